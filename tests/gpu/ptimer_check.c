/* SPDX-License-Identifier: Apache-2.0 */

/*
 * On a GPU machine: the clock read over MMIO, and the model fed by it, for
 * SECONDS (default 10), against CLOCK_MONOTONIC_RAW. Between two readings that the model gets,
 * others check its prediction: each must lie within the bound, the reading's own bracket taken into
 * account. Exit 1 when one does not, 77 without a readable clock. ptimer_check [SECONDS]
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "correlate/clock_model.h"
#include "driver/ptimer.h"
#include "util/macro.h"
#include "util/time.h"

#define CHECKS_PER_SECOND 200
#define CHECKS_MAX        (600 * CHECKS_PER_SECOND)

static uint32_t brackets[CHECKS_MAX], bounds[CHECKS_MAX];
static size_t count, outside;

static int ascending(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

static void print_spread(const char *what, uint32_t *values)
{
        qsort(values, count, sizeof(values[0]), ascending);
        printf("%s ns: min %u p50 %u p99 %u max %u\n", what, values[0], values[count / 2],
               values[count * 99 / 100], values[count - 1]);
}

static int feed(struct ptimer *p, struct clock_model *m)
{
        struct clock_sample s;
        int e = ptimer_read(p, 8, &s);

        if (e < 0)
                return e;
        return clock_model_add(m, &s);
}

/* The truth lies in the reading's bracket (less one step); the prediction must meet it. */
static int check(struct ptimer *p, const struct clock_model *m)
{
        struct clock_sample r;
        uint64_t estimate;
        uint32_t error;
        int e = ptimer_read(p, 1, &r);

        if (e < 0)
                return e;
        e = clock_model_to_cpu(m, r.gpu_ns, &estimate, &error);
        if (e < 0)
                return e;
        if (estimate + error + PTIMER_STEP_NS < r.raw_before_ns ||
            estimate > r.raw_after_ns + error)
                outside++;
        brackets[count] = (uint32_t)(r.raw_after_ns - r.raw_before_ns);
        bounds[count] = error;
        count++;
        return 0;
}

static void print_uuid(struct ptimer *p)
{
        uint8_t uuid[16];
        int r = ptimer_uuid(p, uuid);

        if (r < 0) {
                printf("uuid: not known (%s)\n", strerror(-r));
                return;
        }
        printf("uuid: ");
        for (int i = 0; i < 16; i++)
                printf("%02x", uuid[i]);
        printf("\n");
}

int main(int argc, char **argv)
{
        unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 10;
        struct ptimer_gpu gpu;
        struct ptimer *p;
        struct clock_model *m = clock_model_new(PTIMER_STEP_NS, NULL);
        int64_t ppb = 0;
        int r;

        if (ptimer_list_gpus(&gpu, 1) == 0) {
                printf("SKIP: no NVIDIA GPU\n");
                return 77;
        }
        r = ptimer_new(&rm_system_default, &gpu, &p);
        if (r < 0) {
                printf("SKIP: the GPU's clock cannot be read: %s\n", strerror(-r));
                return 77;
        }
        print_uuid(p);
        for (int i = 0; i < 5 && r == 0; i++) {
                r = feed(p, m);
                usleep(50000);
        }
        for (unsigned s = 0; s < seconds * 4 && r == 0; s++) {
                r = feed(p, m);
                for (int i = 0; i < CHECKS_PER_SECOND / 4 && r == 0 && count < CHECKS_MAX; i++) {
                        usleep(1000000 / CHECKS_PER_SECOND);
                        r = check(p, m);
                }
        }
        if (r < 0 || count == 0) {
                printf("failed: %s\n", strerror(-r));
                return 1;
        }
        print_spread("bracket", brackets);
        print_spread("bound", bounds);
        clock_model_drift_ppb(m, &ppb);
        printf("drift %" PRId64 " ppb, %u restarts, %zu of %zu checks outside the bound\n", ppb,
               clock_model_restarts(m), outside, count);
        ptimer_free(p);
        clock_model_free(m);
        return outside ? 1 : 0;
}
