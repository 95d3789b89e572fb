/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Shares of the GPU's time by weight, by turning time slices up and down.
 *
 * Channel groups that have work take turns, so their shares are as their slices,
 * roughly: each turn is longer than its slice by what it takes to notice, a process
 * may have several groups, and one that sometimes has nothing to run gets less. So
 * slices begin as the weights are, and then the loop is closed on what was measured:
 * over `window_ms`, many turns, the time of those that had work is summed up, and
 * each slice is corrected by half of what is missing to the process's share of that.
 *
 * The shortest slice is `least_us`, so that turns are long against the changes
 * between them, unless the longest would be longer than `most_us`. One that does not
 * use up its slices cannot be helped by longer ones: no correction is more than
 * sixteen times another.
 *
 * Wins where processes that always have work are to share in a ratio. Loses
 * latency: turns get longer as ratios do, so a process with little work waits
 * longer for its turn than with the driver's equal slices; see sched_class.
 *
 * Source: weighted round robin, Katevenis et al. 1991; the loop is ours.
 */
#include "processes.bpf.h"

#define GROUPS        8
#define ONE           1024 /* a factor of 1 */
#define FACTOR_MAX    (16 * ONE)
#define SLICE_MIN     100 /* us, what may be asked for */
#define NSEC_PER_MSEC 1000000ull

POLICY_TEXTS(groups, GROUPS, "command or cgroup patterns");
POLICY_NUMBERS(__u32, weights, GROUPS, 0, 10000, "their weights, in the same order");
POLICY_PARAM(__u32, other_weight, 100, 1, 10000, "weight of all others");
POLICY_PARAM(__u32, least_us, 2000, 100, 100000, "shortest slice, us");
POLICY_PARAM(__u32, most_us, 20000, 100, 100000, "longest slice, us");
POLICY_PARAM(__u32, window_ms, 200, 10, 60000, "measured before slices are changed");

/* Of those that had work: here, where the verifier does not follow them. */
__u64 all_weight;
__u64 all_active_ns;
__u64 least_factor;
__u64 least_parts, most_parts; /* weight and factor together: slices up to their scale */
__u64 window_began_ns;
__u64 now_ns;

inline_ __u32 weight_of(const struct process *p)
{
        __u32 i = p->kind - 1;

        return p->kind && i < GROUPS && weights[i] ? weights[i] : other_weight;
}

inline_ __u64 clamp(__u64 n, __u64 low, __u64 high)
{
        return n < low ? low : n > high ? high : n;
}

inline_ struct process *process_at(__u32 i)
{
        struct policy_share *s = share_at(i);

        return s ? process_of(s->process) : NULL;
}

/* One that had work in this window. */
inline_ struct process *busy_at(__u32 i)
{
        struct process *p = process_at(i);

        return p && p->since_ns == window_began_ns && p->active_ns ? p : NULL;
}

/* Whoever has nothing waiting was not held back by its slice. */
static long measure(__u32 i, void *unused)
{
        struct policy_share *s = share_at(i);
        struct process *p = process_at(i);

        if (!s || !p || !s->waiting)
                return 0;
        if (p->since_ns != window_began_ns) {
                p->since_ns = window_began_ns;
                p->active_ns = 0;
        }
        p->active_ns += s->active_ns;
        return 0;
}

static long add(__u32 i, void *unused)
{
        struct process *p = busy_at(i);

        if (p) {
                all_weight += weight_of(p);
                all_active_ns += p->active_ns;
        }
        return 0;
}

/* Half way to the factor that would have given the process its due. */
static long correct(__u32 i, void *unused)
{
        struct process *p = busy_at(i);
        __u64 due_ns;

        if (!p || !all_weight)
                return 0;
        if (p->factor) {
                due_ns = all_active_ns / all_weight * weight_of(p);
                p->factor =
                        (p->factor + p->factor * (due_ns / 1000) / (p->active_ns / 1000 + 1)) / 2;
        } else {
                p->factor = ONE;
        }
        p->factor = clamp(p->factor, 1, FACTOR_MAX * ONE);
        if (!least_factor || p->factor < least_factor)
                least_factor = p->factor;
        return 0;
}

static long compare(__u32 i, void *unused)
{
        struct process *p = busy_at(i);
        __u64 parts;

        if (!p || !least_factor)
                return 0;
        p->factor = clamp(p->factor * ONE / least_factor, ONE, FACTOR_MAX);
        parts = p->factor * weight_of(p);
        if (!least_parts || parts < least_parts)
                least_parts = parts;
        if (parts > most_parts)
                most_parts = parts;
        return 0;
}

/* A change of less than a 64th is not worth a call. */
inline_ __u64 steady(const struct process *p, __u64 us)
{
        __u64 apart = us > p->slice_us ? us - p->slice_us : p->slice_us - us;

        return apart < p->slice_us / 64 ? p->slice_us : us;
}

static long set(__u32 i, void *unused)
{
        struct policy_share *s = share_at(i);
        struct process *p = busy_at(i);
        __u64 parts, us;

        if (!s || !p || !least_parts)
                return 0;
        parts = p->factor * weight_of(p);
        if (most_parts * least_us > least_parts * most_us)
                us = parts * most_us / most_parts;
        else
                us = parts * least_us / least_parts;
        want_slice(s, p, steady(p, clamp(us, SLICE_MIN, most_us)), now_ns);
        return 0;
}

POLICY(share)
{
        bpf_loop(e->items, measure, NULL, 0);
        if (e->now_ns - window_began_ns < window_ms * NSEC_PER_MSEC)
                return 0;
        now_ns = e->now_ns;
        all_weight = all_active_ns = 0;
        least_factor = least_parts = most_parts = 0;
        bpf_loop(e->items, add, NULL, 0);
        bpf_loop(e->items, correct, NULL, 0);
        bpf_loop(e->items, compare, NULL, 0);
        bpf_loop(e->items, set, NULL, 0);
        window_began_ns = e->now_ns;
        return 0;
}

POLICY(process_start)
{
        process_note(e, groups, GROUPS);
        return 0;
}

POLICY(process_exit)
{
        process_forget(e);
        return 0;
}
