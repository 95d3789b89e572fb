/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A set-membership filter. The state is not an estimate with a variance but the
 * set of everything that could be true: at the anchor (the last reading's GPU
 * time) CLOCK_MONOTONIC_RAW lies in [low, high], and the rate in [rate_low, rate_high].
 *
 * A reading says that at its GPU time CLOCK_MONOTONIC_RAW lay in [before - step,
 * after]. To take it in, the state is carried forward to it (both sets grow by
 * what the rate and its wander allow), then cut with the reading. Earlier
 * anchors, kept for a while, cut the rate: the mean rate between two anchors is
 * known from their sets, and the rate now differs from that mean by at most half
 * the wander over the distance. Every cut is sound, so the truth never leaves
 * the set while the assumption holds, however jittery the readings: a wide
 * bracket merely cuts less. The answer is the middle of the set, the bound half
 * its width.
 *
 * An empty set means that the assumption or a reading is false. One such reading
 * is dropped; three in a row mean that the clocks jumped.
 */
#include "correlate/clock_model.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "util/time.h"

#define HISTORY 32
#define HISTORY_SPACING_NS                                                                         \
        (200 * NSEC_PER_MSEC) /* anchors closer than this say little about the rate */
#define CONTRADICTIONS_MAX 3
#define BRACKET_MAX_NS     NSEC_PER_SEC
#define RATE_MAX           (CLOCK_RATE_MAX_PPM * 1e-6)
#define WANDER_PER_NS      (CLOCK_WANDER_PPB_PER_S * 1e-18)

/* A past anchor with the set it had. Times of the CPU are relative to base_cpu. */
struct anchor {
        uint64_t gpu_ns;
        double low, high;
};

struct clock_model {
        double step_ns;
        bool ready;
        uint64_t gpu_ns; /* the anchor */
        uint64_t
                base_cpu; /* CPU times below are ns after this, so that doubles hold them exactly */
        double low, high;
        double rate_low, rate_high; /* d(cpu)/d(gpu) - 1 */
        uint64_t last_before_ns;
        struct mono_map *map; /* not owned; NULL: readings are in the wanted clock */
        unsigned contradictions;
        uint32_t restarts;
        struct anchor history[HISTORY];
        unsigned history_count, history_next;
};

struct clock_model *clock_model_new(uint32_t step_ns, struct mono_map *map)
{
        struct clock_model *m = calloc(1, sizeof(*m));

        if (!m)
                return NULL;
        m->step_ns = step_ns;
        m->map = map;
        return m;
}

struct clock_model *clock_model_free(struct clock_model *m)
{
        free(m);
        return NULL;
}

static void start(struct clock_model *m, const struct clock_sample *s)
{
        m->ready = true;
        m->gpu_ns = s->gpu_ns;
        m->base_cpu = s->raw_before_ns;
        m->low = -m->step_ns * (1 + RATE_MAX);
        m->high = (double)(s->raw_after_ns - s->raw_before_ns);
        m->rate_low = -RATE_MAX;
        m->rate_high = RATE_MAX;
        m->contradictions = 0;
        m->history_count = 0;
        m->history_next = 0;
}

/* The rate now, from the mean rate since a past anchor. */
static void cut_rate(const struct clock_model *m, const struct anchor *a, uint64_t gpu_ns,
                     double low, double high, double *rate_low, double *rate_high)
{
        double distance = (double)(gpu_ns - a->gpu_ns);
        double slack = WANDER_PER_NS * distance / 2;

        *rate_low = fmax(*rate_low, (low - a->high - distance) / distance - slack);
        *rate_high = fmin(*rate_high, (high - a->low - distance) / distance + slack);
}

static void remember(struct clock_model *m)
{
        const struct anchor *newest =
                m->history_count ? &m->history[(m->history_next + HISTORY - 1) % HISTORY] : NULL;

        if (newest && m->gpu_ns - newest->gpu_ns < HISTORY_SPACING_NS)
                return;
        m->history[m->history_next] =
                (struct anchor){.gpu_ns = m->gpu_ns, .low = m->low, .high = m->high};
        m->history_next = (m->history_next + 1) % HISTORY;
        if (m->history_count < HISTORY)
                m->history_count++;
}

/* Carry the state to the reading, cut, commit; false when nothing is left. */
static bool advance(struct clock_model *m, const struct clock_sample *s)
{
        double distance = (double)(int64_t)(s->gpu_ns - m->gpu_ns);
        double slack = WANDER_PER_NS * distance * distance / 2;
        double before = (double)(int64_t)(s->raw_before_ns - m->base_cpu);
        double after = (double)(int64_t)(s->raw_after_ns - m->base_cpu);
        double low, high, rate_low, rate_high;

        if (distance < 0)
                return false;
        low = m->low + distance + m->rate_low * distance - slack;
        high = m->high + distance + m->rate_high * distance + slack;
        low = fmax(low, before - m->step_ns * (1 + RATE_MAX));
        high = fmin(high, after);
        rate_low = fmax(-RATE_MAX, m->rate_low - WANDER_PER_NS * distance);
        rate_high = fmin(RATE_MAX, m->rate_high + WANDER_PER_NS * distance);
        for (unsigned i = 0; i < m->history_count; i++)
                if (s->gpu_ns > m->history[i].gpu_ns)
                        cut_rate(m, &m->history[i], s->gpu_ns, low, high, &rate_low, &rate_high);
        if (low > high || rate_low > rate_high)
                return false;
        remember(m);
        m->gpu_ns = s->gpu_ns;
        m->low = low;
        m->high = high;
        m->rate_low = rate_low;
        m->rate_high = rate_high;
        return true;
}

/* Keep CPU times near zero: after hours a double would lose nanoseconds. */
static void rebase(struct clock_model *m)
{
        double shift = floor(m->low);

        if (shift < 1e12)
                return;
        m->base_cpu += (uint64_t)shift;
        m->low -= shift;
        m->high -= shift;
        for (unsigned i = 0; i < HISTORY; i++) {
                m->history[i].low -= shift;
                m->history[i].high -= shift;
        }
}

int clock_model_add(struct clock_model *m, const struct clock_sample *s)
{
        if (s->raw_after_ns < s->raw_before_ns ||
            s->raw_after_ns - s->raw_before_ns > BRACKET_MAX_NS ||
            s->raw_before_ns < m->last_before_ns)
                return -EINVAL;
        m->last_before_ns = s->raw_before_ns;
        if (!m->ready) {
                start(m, s);
                return 0;
        }
        if (advance(m, s)) {
                m->contradictions = 0;
                rebase(m);
                return 0;
        }
        if (++m->contradictions < CONTRADICTIONS_MAX)
                return -ERANGE;
        m->restarts++;
        start(m, s);
        return 0;
}

int clock_model_to_cpu(const struct clock_model *m, uint64_t gpu_ns, uint64_t *ret_cpu_ns,
                       uint32_t *ret_error_ns)
{
        double distance, middle, error;
        uint64_t cpu_ns;
        int64_t whole;

        if (!m->ready)
                return -EAGAIN;
        /* The whole distance is added as an integer: only small numbers go through doubles. */
        whole = (int64_t)(gpu_ns - m->gpu_ns);
        distance = (double)whole;
        middle = (m->low + m->high) / 2 + distance * (m->rate_low + m->rate_high) / 2;
        error = (m->high - m->low) / 2 + fabs(distance) * (m->rate_high - m->rate_low) / 2 +
                WANDER_PER_NS * distance * distance / 2 + 1;
        cpu_ns = m->base_cpu + (uint64_t)whole + (uint64_t)(int64_t)llrint(middle);
        if (m->map && mono_map_convert(m->map, cpu_ns, error, &cpu_ns, &error) < 0)
                return -EAGAIN;
        *ret_cpu_ns = cpu_ns;
        *ret_error_ns = error >= (double)UINT32_MAX ? UINT32_MAX : (uint32_t)ceil(error);
        return 0;
}

bool clock_model_drift_ppb(const struct clock_model *m, int64_t *ret_ppb)
{
        double rate = (m->rate_low + m->rate_high) / 2;

        if (!m->ready || m->history_count == 0)
                return false;
        *ret_ppb = llrint((1 / (1 + rate) - 1) * 1e9);
        return true;
}

uint32_t clock_model_restarts(const struct clock_model *m)
{
        return m->restarts;
}
