/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The clock model against clocks whose truth is known: whatever the drift, the
 * jitter of the readings and the moment asked for, the truth lies within the
 * stated bound, and the bound is small enough to be of use.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "correlate/clock_model.h"
#include "unit/test.h"

#define SEC  1000000000ULL
#define STEP 32

/* A GPU clock: offset, and a rate that wanders at most as fast as the model assumes. */
struct truth {
        uint64_t seed;
        uint64_t cpu_ns; /* now */
        double gpu_low;  /* GPU time now: base + this, kept small */
        uint64_t gpu_base;
        double rate;   /* d(gpu)/d(cpu) - 1 */
        double wander; /* per ns, what is in use now */
};

static double uniform(uint64_t *seed)
{
        return (double)(test_random(seed) >> 11) / 9007199254740992.0;
}

static void truth_init(struct truth *t, uint64_t seed)
{
        *t = (struct truth){.seed = seed, .cpu_ns = 1000 * SEC};
        t->gpu_base = 1700000000ULL * SEC + test_random(&t->seed) % SEC;
        t->rate = (uniform(&t->seed) - 0.5) * 100e-6; /* +-50 ppm */
}

/* Let time pass; the rate moves by at most 0.9 of the assumed wander. */
static void truth_advance(struct truth *t, double ns)
{
        double limit = 0.9 * CLOCK_WANDER_PPB_PER_S * 1e-18;

        if (uniform(&t->seed) < 0.2)
                t->wander = (uniform(&t->seed) * 2 - 1) * limit;
        t->gpu_low += ns + t->rate * ns + t->wander * ns * ns / 2;
        t->rate += t->wander * ns;
        t->cpu_ns += (uint64_t)ns;
}

static uint64_t truth_gpu(const struct truth *t)
{
        return t->gpu_base + (uint64_t)t->gpu_low;
}

/* A reading now, with a bracket whose widths are heavy-tailed and lopsided. */
static struct clock_sample read_clock(struct truth *t, double typical_ns)
{
        double before = typical_ns * (0.7 + uniform(&t->seed)),
               after = typical_ns * uniform(&t->seed);

        if (uniform(&t->seed) < 0.05)
                before += typical_ns * 50 * uniform(&t->seed);
        if (uniform(&t->seed) < 0.05)
                after += typical_ns * 200 * uniform(&t->seed);
        return (struct clock_sample){
                .raw_before_ns = t->cpu_ns - (uint64_t)before,
                .gpu_ns = truth_gpu(t) / STEP * STEP,
                .raw_after_ns = t->cpu_ns + 1 + (uint64_t)after,
        };
}

/* |estimate - truth| <= bound at this moment; returns the bound. */
static uint32_t check_now(const struct clock_model *m, const struct truth *t)
{
        uint64_t estimate;
        uint32_t error;
        int64_t off;

        CHECK_EQ(clock_model_to_cpu(m, truth_gpu(t), &estimate, &error), 0);
        off = (int64_t)(estimate - t->cpu_ns);
        if (llabs(off) > (long long)error + 1) {
                fprintf(stderr, "off by %lld ns, bound %u ns\n", (long long)off, error);
                exit(1);
        }
        return error;
}

static int ascending(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

static void run_clock(uint64_t seed, double typical_ns, double spacing_ns, uint32_t median_max_ns)
{
        struct clock_model *m = clock_model_new(STEP, NULL);
        struct truth t, past;
        uint32_t bounds[30 * 8];
        size_t n = 0;

        CHECK(m);
        truth_init(&t, seed);
        for (int i = 0; i < 5; i++) { /* the burst at the start */
                struct clock_sample s = read_clock(&t, typical_ns);

                CHECK_EQ(clock_model_add(m, &s), 0);
                truth_advance(&t, 100e6);
        }
        for (int i = 0; i < 30; i++) {
                struct clock_sample s = read_clock(&t, typical_ns);

                CHECK_EQ(clock_model_add(m, &s), 0);
                past = t;
                for (int k = 0; k < 8; k++) {
                        bounds[n++] = check_now(m, &t);
                        truth_advance(&t, spacing_ns / 8);
                }
                check_now(m, &past); /* an older moment, asked for later */
        }
        CHECK_EQ(clock_model_restarts(m), 0);
        qsort(bounds, n, sizeof(bounds[0]), ascending);
        CHECK(bounds[n / 2] <= median_max_ns);
        clock_model_free(m);
}

static void truth_is_always_within_the_bound(void)
{
        for (uint64_t seed = 1; seed <= 1000; seed++)
                run_clock(seed, 450, 1e9, 1000); /* MMIO readings */
        for (uint64_t seed = 1; seed <= 300; seed++)
                run_clock(seed, 6000, 1e9, 8000); /* timestamp kernels */
        for (uint64_t seed = 1; seed <= 300; seed++)
                run_clock(seed, 450, 0.25e9, 800);
}

static void a_long_run_loses_no_precision(void)
{
        struct clock_model *m = clock_model_new(STEP, NULL);
        struct truth t;

        truth_init(&t, 7);
        for (int i = 0; i < 20000; i++) { /* five and a half hours */
                struct clock_sample s = read_clock(&t, 450);

                CHECK_EQ(clock_model_add(m, &s), 0);
                truth_advance(&t, 1e9);
                if (t.gpu_low > 1e13) { /* keep the truth itself precise */
                        t.gpu_base += (uint64_t)1e13;
                        t.gpu_low -= 1e13;
                }
                if (i > 20)
                        CHECK(check_now(m, &t) < 100000);
        }
        CHECK_EQ(clock_model_restarts(m), 0);
        clock_model_free(m);
}

static void drift_is_found(void)
{
        struct clock_model *m = clock_model_new(STEP, NULL);
        struct truth t;
        int64_t ppb;

        truth_init(&t, 3);
        CHECK(!clock_model_drift_ppb(m, &ppb));
        t.rate = 4.78e-6;
        for (int i = 0; i < 20; i++) {
                struct clock_sample s = read_clock(&t, 450);

                CHECK_EQ(clock_model_add(m, &s), 0);
                t.gpu_low += 1e9 + t.rate * 1e9;
                t.cpu_ns += SEC;
        }
        CHECK(clock_model_drift_ppb(m, &ppb));
        CHECK(llabs(ppb - 4780) < 500);
        clock_model_free(m);
}

static void a_jump_is_noticed_and_survived(void)
{
        struct clock_model *m = clock_model_new(STEP, NULL);
        struct truth t;
        struct clock_sample s;

        truth_init(&t, 11);
        for (int i = 0; i < 10; i++) {
                s = read_clock(&t, 450);
                CHECK_EQ(clock_model_add(m, &s), 0);
                truth_advance(&t, 1e9);
        }
        t.gpu_base -= 50 * SEC; /* a reset of the GPU */
        for (int i = 0; i < 2; i++) {
                s = read_clock(&t, 450);
                CHECK_EQ(clock_model_add(m, &s), -ERANGE);
                truth_advance(&t, 1e9);
        }
        s = read_clock(&t, 450);
        CHECK_EQ(clock_model_add(m, &s), 0);
        CHECK_EQ(clock_model_restarts(m), 1);
        check_now(m, &t);
        for (int i = 0; i < 5; i++) {
                truth_advance(&t, 1e9);
                s = read_clock(&t, 450);
                CHECK_EQ(clock_model_add(m, &s), 0);
                check_now(m, &t);
        }
        clock_model_free(m);
}

static void one_wrong_reading_changes_nothing(void)
{
        struct clock_model *m = clock_model_new(STEP, NULL);
        struct truth t;
        struct clock_sample s, wrong;

        truth_init(&t, 5);
        for (int i = 0; i < 30; i++) {
                s = read_clock(&t, 450);
                CHECK_EQ(clock_model_add(m, &s), 0);
                truth_advance(&t, 1e9);
                if (i >= 5) {
                        wrong = read_clock(&t, 450);
                        wrong.gpu_ns += 5 * SEC;
                        CHECK_EQ(clock_model_add(m, &wrong), -ERANGE);
                        check_now(m, &t);
                        truth_advance(&t, 1e6);
                }
        }
        CHECK_EQ(clock_model_restarts(m), 0);
        clock_model_free(m);
}

static void nonsense_is_refused(void)
{
        struct clock_model *m = clock_model_new(STEP, NULL);
        struct clock_sample good = {1000 * SEC, 5 * SEC, 1000 * SEC + 900};
        struct clock_sample inverted = {1001 * SEC, 6 * SEC, 1001 * SEC - 1};
        struct clock_sample older = {999 * SEC, 4 * SEC, 999 * SEC + 900};
        struct clock_sample endless = {1001 * SEC, 6 * SEC, 1010 * SEC};
        uint64_t cpu;
        uint32_t error;

        CHECK_EQ(clock_model_to_cpu(m, 5, &cpu, &error), -EAGAIN);
        CHECK_EQ(clock_model_add(m, &good), 0);
        CHECK_EQ(clock_model_add(m, &inverted), -EINVAL);
        CHECK_EQ(clock_model_add(m, &older), -EINVAL);
        CHECK_EQ(clock_model_add(m, &endless), -EINVAL);
        CHECK_EQ(clock_model_to_cpu(m, UINT64_MAX, &cpu, &error), 0);
        CHECK_EQ(clock_model_to_cpu(m, UINT64_MAX / 2, &cpu, &error), 0);
        CHECK_EQ(error, UINT32_MAX);
        clock_model_free(m);
}

int main(void)
{
        TEST(truth_is_always_within_the_bound);
        TEST(a_long_run_loses_no_precision);
        TEST(drift_is_found);
        TEST(a_jump_is_noticed_and_survived);
        TEST(one_wrong_reading_changes_nothing);
        TEST(nonsense_is_refused);
        return 0;
}
