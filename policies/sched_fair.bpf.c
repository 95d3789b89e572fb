/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Shares of the GPU's time by weight, by turning time slices up and down.
 *
 * Channel groups that have work take turns, so their shares are as their slices,
 * roughly: a slice ends with a kernel, so long kernels get more than their slice
 * says, and a group that sometimes waits gets less. The loop is therefore closed on
 * what was measured: over `periods` periods, many turns, the time of those that had
 * work is summed up; then each slice is moved half way to the one that would have
 * given the process its share of that, between `least_us` and `most_us`.
 *
 * Wins where processes that always have work are to share in a ratio. Loses
 * latency: turns get longer as ratios do, so a process with little work waits
 * longer for its turn than with the driver's equal slices; see sched_class. A
 * kernel longer than a turn cannot be outweighed.
 *
 * Source: weighted round robin, Katevenis et al. 1991; the loop is ours.
 */
#include "processes.bpf.h"

#define GROUPS 8

POLICY_TEXTS(groups, GROUPS, "command or cgroup patterns");
POLICY_NUMBERS(__u32, weights, GROUPS, 0, 10000, "their weights, in the same order");
POLICY_PARAM(__u32, other_weight, 100, 1, 10000, "weight of all others");
POLICY_PARAM(__u32, least_us, 250, 100, 100000, "shortest slice, us");
POLICY_PARAM(__u32, most_us, 20000, 100, 100000, "longest slice, us");
POLICY_PARAM(__u32, periods, 20, 1, 1000, "periods measured before slices are changed");

/* Of those that had work: here, where the verifier does not follow them. */
__u64 all_weight;
__u64 all_active_ns;
__u32 measured; /* periods */

inline_ __u32 weight_of(const struct process *p)
{
        __u32 i = p->kind - 1;

        return p->kind && i < GROUPS && weights[i] ? weights[i] : other_weight;
}

/* Whoever has nothing waiting was not held back by its slice. */
static long measure(__u32 i, void *unused)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;

        if (p && s->waiting)
                p->active_ns += s->active_ns;
        return 0;
}

static long add(__u32 i, void *unused)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;

        if (p && p->active_ns) {
                all_weight += weight_of(p);
                all_active_ns += p->active_ns;
        }
        return 0;
}

inline_ __u64 clamp(__u64 us)
{
        return us < least_us ? least_us : us > most_us ? most_us : us;
}

static long adjust(__u32 i, void *unused)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;
        __u64 slice, due_ns;

        if (!p || !p->active_ns || !all_weight)
                return 0;
        slice = p->slice_us ? p->slice_us : s->slice_us ? s->slice_us : 2048;
        due_ns = all_active_ns / all_weight * weight_of(p);
        slice = clamp((slice + slice * (due_ns / 1000) / (p->active_ns / 1000 + 1)) / 2);
        p->active_ns = 0;
        want_slice(s, p, slice);
        return 0;
}

POLICY(share)
{
        bpf_loop(e->items, measure, NULL, 0);
        if (++measured < periods)
                return 0;
        measured = 0;
        all_weight = all_active_ns = 0;
        bpf_loop(e->items, add, NULL, 0);
        bpf_loop(e->items, adjust, NULL, 0);
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
