/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_clock.h"

#include "util/time.h"

/* A base of so long makes the rate exact to a few ns per reading's error. */
#define BASE_NS (100 * NSEC_PER_MSEC)
#define TRIES   3

/* What NTP can do in a day, at 500 ppm. */
#define SLEW_MAX_NS 43.2e9

/* The narrowest of a few brackets: an interrupt between the readings would be an error. */
static struct uvm_clock_pair read_pair(const struct uvm_system *system, uint32_t *ret_error)
{
        struct uvm_clock_pair best = {0};
        uint64_t width = UINT64_MAX;

        for (int i = 0; i < TRIES; i++) {
                uint64_t before = system->monotonic_ns();
                uint64_t raw = system->raw_ns();
                uint64_t after = system->monotonic_ns();

                if (after - before >= width)
                        continue;
                width = after - before;
                best = (struct uvm_clock_pair){raw, before + width / 2};
        }
        *ret_error = (uint32_t)(width / 2);
        return best;
}

void uvm_clock_read(struct uvm_clock *c, const struct uvm_system *system)
{
        struct uvm_clock_pair now = read_pair(system, &c->error_ns);

        if (c->last.raw_ns == 0) {
                c->first = c->middle = c->last = now;
        } else if (now.raw_ns - c->middle.raw_ns >= BASE_NS) {
                c->first = c->middle;
                c->middle = now;
        }
        c->before = c->last;
        c->last = now;
}

uint64_t uvm_clock_convert(const struct uvm_clock *c, uint64_t raw_ns)
{
        const struct uvm_clock_pair *base = raw_ns >= c->before.raw_ns ? &c->before : &c->first;
        int64_t raw_span = (int64_t)(c->last.raw_ns - base->raw_ns);
        int64_t difference = (int64_t)(c->last.monotonic_ns - base->monotonic_ns) - raw_span;
        int64_t since = (int64_t)(raw_ns - c->last.raw_ns);
        double slewed = 0;

        if (raw_ns == 0)
                return 0;
        if (raw_span > 0)
                slewed = (double)difference * (double)since / (double)raw_span;
        /* A time that is nonsense stays far off, but is no undefined conversion. */
        if (slewed > SLEW_MAX_NS || slewed < -SLEW_MAX_NS)
                slewed = 0;
        return c->last.monotonic_ns + (uint64_t)since + (uint64_t)(int64_t)slewed;
}
