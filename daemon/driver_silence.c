/* SPDX-License-Identifier: Apache-2.0 */
#include "driver_silence.h"

#include <stdio.h>

#include "daemon.h"
#include "driver/driver_thread.h"
#include "driver/nvml.h"
#include "driver/silence.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

/* Of all who ask: the longest that lasts, and those that were. */
struct sum {
        uint64_t lasts_ns, count, total_ns;
};

static void add(struct sum *sum, const struct silence *s)
{
        uint64_t lasts_ns = silence_lasts_ns(s);

        if (lasts_ns >= SILENCE_NS && lasts_ns > sum->lasts_ns)
                sum->lasts_ns = lasts_ns;
        sum->count += silence_count(s);
        sum->total_ns += silence_total_ns(s);
}

static struct sum sum_up(const struct gpuobsd *d)
{
        struct sum sum = {0};

        if (d->driver)
                add(&sum, driver_thread_silence(d->driver));
        if (d->nvml)
                add(&sum, nvml_silence(d->nvml));
        return sum;
}

static unsigned long long seconds(uint64_t ns)
{
        return ns / NSEC_PER_SEC;
}

bool driver_silence_describe(const struct gpuobsd *d, char ret_text[DRIVER_SILENCE_TEXT])
{
        struct sum sum = sum_up(d);

        if (sum.lasts_ns)
                snprintf(ret_text, DRIVER_SILENCE_TEXT,
                         "the driver has not answered for %llu s: what it tells of the GPUs is "
                         "absent until it does; launches are recorded as before",
                         seconds(sum.lasts_ns));
        else if (sum.count)
                snprintf(ret_text, DRIVER_SILENCE_TEXT,
                         "it answers; calls that took longer than %llu s: %llu, %llu s in all",
                         seconds(SILENCE_NS), (unsigned long long)sum.count, seconds(sum.total_ns));
        else
                snprintf(ret_text, DRIVER_SILENCE_TEXT, "it answers within %llu s",
                         seconds(SILENCE_NS));
        return sum.lasts_ns != 0;
}

void driver_silence_second(struct gpuobsd *d)
{
        struct sum sum = sum_up(d);

        if (!d->silence_said && sum.lasts_ns)
                log_warning("the driver has not answered for %llu s: what it tells of the GPUs is "
                            "absent until it does. " DRIVER_SILENCE_ADVICE,
                            seconds(sum.lasts_ns));
        else if (d->silence_said && !sum.lasts_ns)
                log_notice("the driver answers again; calls that took longer than %llu s: %llu, "
                           "%llu s in all",
                           seconds(SILENCE_NS), (unsigned long long)sum.count,
                           seconds(sum.total_ns));
        d->silence_said = sum.lasts_ns != 0;
}
