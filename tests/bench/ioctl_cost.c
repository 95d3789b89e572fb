/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ioctl programs cost: nanoseconds per ioctl of a request that is not
 * the driver's, of one that could be but is on another file, and of one that is
 * recorded; with and without the programs. Compare the lines of one run.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "probe/driver_probes.h"
#include "util/macro.h"
#include "util/time.h"

#define CALLS  200 /* short, to fall between interrupts and other tasks */
#define ROUNDS 1000

static const struct driver_device_range ranges[] = {{1, 3, 3, DRIVER_DEVICE_RM}, {0}};

static void discard(void *data, const struct driver_call_event *e)
{
}

/* The least of several rounds: what disturbs only adds. */
static double measure(struct driver_probes *probes, int fd, unsigned long request)
{
        double best = 1e12, each;
        char argument[64] = {0};
        uint64_t start;

        for (int round = 0; round < ROUNDS; round++) {
                start = now_ns();
                for (int i = 0; i < CALLS; i++)
                        (void)ioctl(fd, request, argument);
                each = (double)(now_ns() - start) / CALLS;
                if (each < best)
                        best = each;
                if (probes)
                        (void)driver_probes_poll(probes, CALLS, discard, NULL);
        }
        return best;
}

int main(void)
{
        const struct driver_probes_options options = {.ranges = ranges};
        _cleanup_close_ int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        _cleanup_close_ int zero_fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
        double bare_null, bare_zero;
        struct driver_probes *probes;

        bare_null = measure(NULL, null_fd, 0x5401);
        bare_zero = measure(NULL, zero_fd, 0xc020462a);
        if (driver_probes_new(&options, &probes) < 0) {
                printf("no right to load eBPF\n");
                return 77;
        }
        printf("without programs               %7.1f ns\n", bare_null);
        printf("another request               +%7.1f ns\n",
               measure(probes, null_fd, 0x5401) - bare_null);
        printf("the request, another file     +%7.1f ns\n",
               measure(probes, zero_fd, 0xc020462a) - bare_zero);
        printf("recorded                      +%7.1f ns\n",
               measure(probes, null_fd, 0xc020462a) - bare_null);
        driver_probes_free(probes);
        return 0;
}
