/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Between two pairs CLOCK_MONOTONIC follows some path; a time is put on the straight line
 * (the chord), and the bound covers the paths there can be.
 *
 * How far the path may be off the chord is taken from where it should have ended: the rates
 * known before (from pairs of the last half second), carried to the second pair, say so. The
 * farthest that the second pair can be from there is `astray`. A path that departs from its
 * old line and does not come back to it, once or in steps, by any rate, is within `astray`
 * of the chord: that is the one assumption. (A pulse one way and its exact opposite between
 * two pairs, milliseconds apart while there is work, would not be seen. Nothing that sets
 * the clock does it.)
 *
 * The kernel's limit of the rate gives another bound: paths no faster than it lie in a
 * parallelogram around the chord. Where the second pair is where it should be, the smaller
 * bound of the two holds. Where it is not, the rate was changed in between, and the larger
 * one is stated. Rates beyond the limit (the kernel's tick, which chrony turns to slew) widen
 * the parallelogram as soon as pairs show them, and until then `astray` covers them.
 */
#include "util/mono_map.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "util/time.h"

#define PAIRS      2048
#define SPACING_NS (2 * NSEC_PER_MSEC)   /* closer pairs are not kept, but for the latest */
#define BASE_NS    (500 * NSEC_PER_MSEC) /* what rates are measured over */
#define TRIES      4
#define RATE_MAX   (MONO_RATE_MAX_PPM * 1e-6)

/* Rates are d(monotonic)/d(raw) - 1. */
struct rates {
        double low, high;
};

struct knot {
        struct clock_pair at;
        /* Of the interval from the knot before to this one. */
        double slope;
        double astray_ns;
        bool bent;
        struct rates limits; /* what its rates may have been, by the kernel's limit */
        /* From here on. */
        struct rates rates; /* what the rate is, unless it changes */
        uint64_t line;      /* the number of the knot it is measured from */
};

struct mono_map {
        mono_map_read_fn read;
        void *data;
        struct knot knots[PAIRS]; /* number n at n % PAIRS */
        uint64_t count;           /* of numbers given out */
};

struct mono_map *mono_map_new(mono_map_read_fn read, void *data)
{
        struct mono_map *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->read = read;
        m->data = data;
        return m;
}

struct mono_map *mono_map_free(struct mono_map *m)
{
        free(m);
        return NULL;
}

static struct knot *knot(struct mono_map *m, uint64_t number)
{
        return &m->knots[number % PAIRS];
}

static double span(const struct knot *a, const struct knot *b)
{
        return (double)(b->at.raw_ns - a->at.raw_ns);
}

/* How much CLOCK_MONOTONIC gained on the other between two knots. */
static double gain(const struct knot *a, const struct knot *b)
{
        return (double)(int64_t)((b->at.monotonic_ns - a->at.monotonic_ns) -
                                 (b->at.raw_ns - a->at.raw_ns));
}

static struct rates widen(struct rates r, double low, double high)
{
        return (struct rates){fmin(r.low, low), fmax(r.high, high)};
}

static struct rates mean_rates(const struct knot *a, const struct knot *b)
{
        double error = (double)a->at.error_ns + b->at.error_ns;

        return (struct rates){(gain(a, b) - error) / span(a, b), (gain(a, b) + error) / span(a, b)};
}

/* Compare where the new knot is with where the one before it said it would be. */
static void judge(const struct knot *from, struct knot *k)
{
        double t = span(from, k), g = gain(from, k), error = k->at.error_ns;
        double low = from->rates.low * t - from->at.error_ns;
        double high = from->rates.high * t + from->at.error_ns;

        k->slope = g / t;
        k->astray_ns = fmax(high - (g - error), g + error - low);
        k->bent = g + error < low || g - error > high;
        k->limits = widen(widen(from->rates, -RATE_MAX, RATE_MAX), k->slope, k->slope);
}

/* The rate from here on. The line goes back no farther than where it was bent. */
static void measure(struct mono_map *m, uint64_t from, struct knot *k, uint64_t number)
{
        struct rates r;

        if (k->bent) {
                r = mean_rates(knot(m, from), k);
                k->rates = widen(r, -RATE_MAX, RATE_MAX);
                k->line = number;
                return;
        }
        k->line = knot(m, from)->line;
        while (k->line < from &&
               (k->line + PAIRS <= number || span(knot(m, k->line + 1), k) >= (double)BASE_NS))
                k->line++;
        r = mean_rates(knot(m, k->line), k);
        k->rates = (struct rates){fmax(r.low, k->limits.low), fmin(r.high, k->limits.high)};
        if (k->rates.low > k->rates.high)
                k->rates = r;
}

int mono_map_add(struct mono_map *m, const struct clock_pair *pair)
{
        struct knot k = {.at = *pair, .rates = {-RATE_MAX, RATE_MAX}};
        const struct knot *last = m->count ? knot(m, m->count - 1) : NULL;
        uint64_t number = m->count;

        if (last && (pair->raw_ns <= last->at.raw_ns || pair->monotonic_ns < last->at.monotonic_ns))
                return -EINVAL;
        /* The latest makes way when it is too close to the one before it. */
        if (m->count >= 2 && span(knot(m, m->count - 2), last) < (double)SPACING_NS)
                number--;
        if (number > 0) {
                judge(knot(m, number - 1), &k);
                measure(m, number - 1, &k, number);
        }
        *knot(m, number) = k;
        m->count = number + 1;
        return 0;
}

int mono_map_read(struct mono_map *m)
{
        struct clock_pair pair;
        int r;

        if (!m->read)
                return -ENOTSUP;
        r = m->read(m->data, &pair);
        return r < 0 ? r : mono_map_add(m, &pair);
}

static bool later(uint64_t raw_ns, const struct knot *k)
{
        return (int64_t)(raw_ns - k->at.raw_ns) > 0;
}

/* The first knot that is not before the time; the caller knows that there is one. */
static uint64_t find(struct mono_map *m, uint64_t low, uint64_t raw_ns)
{
        uint64_t high = m->count - 1;

        while (low < high) {
                uint64_t middle = low + (high - low) / 2;

                if (later(raw_ns, knot(m, middle)))
                        low = middle + 1;
                else
                        high = middle;
        }
        return high;
}

/* What paths within the limits can be off the chord, x after its start of t. */
static double parallelogram(const struct knot *k, double x, double t)
{
        double up = k->limits.high - k->slope, down = k->slope - k->limits.low;

        return fmax(fmin(up * x, down * (t - x)), fmin(down * x, up * (t - x)));
}

static double between(const struct knot *a, const struct knot *b, uint64_t raw_ns, double *ret_gain)
{
        double x = (double)(raw_ns - a->at.raw_ns);
        double limit = parallelogram(b, x, span(a, b));
        double off = b->bent ? fmax(b->astray_ns, limit) : fmin(b->astray_ns, limit);

        *ret_gain = b->slope * x;
        return off + fmax(a->at.error_ns, b->at.error_ns);
}

/* On one side of all knots: by the rate at the last of them, which may change at once. */
static double beyond(const struct knot *k, uint64_t raw_ns, double *ret_gain)
{
        struct rates limits = widen(k->rates, -RATE_MAX, RATE_MAX);
        double x = (double)(int64_t)(raw_ns - k->at.raw_ns);
        double rate = (k->rates.low + k->rates.high) / 2;

        *ret_gain = rate * x;
        return fabs(x) * fmax(limits.high - rate, rate - limits.low) + k->at.error_ns;
}

int mono_map_convert(struct mono_map *m, uint64_t raw_ns, double raw_error_ns,
                     uint64_t *ret_monotonic_ns, double *ret_error_ns)
{
        uint64_t first, number;
        const struct knot *from;
        double error, gained, rate;

        if (m->count == 0 || later(raw_ns, knot(m, m->count - 1)))
                (void)mono_map_read(m); /* without it the bound is wider */
        if (m->count == 0)
                return -EAGAIN;
        first = m->count > PAIRS ? m->count - PAIRS : 0;
        if (!later(raw_ns, knot(m, first)) || later(raw_ns, knot(m, m->count - 1))) {
                from = knot(m, later(raw_ns, knot(m, first)) ? m->count - 1 : first);
                error = beyond(from, raw_ns, &gained);
                rate = fmax(RATE_MAX, fmax(-from->rates.low, from->rates.high));
        } else {
                number = find(m, first + 1, raw_ns);
                from = knot(m, number - 1);
                error = between(from, knot(m, number), raw_ns, &gained);
                rate = fmax(-knot(m, number)->limits.low, knot(m, number)->limits.high);
        }
        *ret_monotonic_ns = from->at.monotonic_ns + (raw_ns - from->at.raw_ns) +
                            (uint64_t)(int64_t)llrint(gained);
        *ret_error_ns = error + raw_error_ns * (1 + rate) + 1;
        return 0;
}

int clock_pair_read(void *data, struct clock_pair *ret_pair)
{
        uint64_t width = UINT64_MAX;

        for (int i = 0; i < TRIES; i++) {
                uint64_t before = now_ns(), raw = raw_now_ns(), after = now_ns();

                if (after - before >= width)
                        continue;
                width = after - before;
                *ret_pair = (struct clock_pair){.raw_ns = raw,
                                                .monotonic_ns = before + width / 2,
                                                .error_ns = (uint32_t)(width / 2 + 2)};
        }
        return 0;
}
