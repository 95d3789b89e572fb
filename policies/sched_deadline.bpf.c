/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Help a process only when it is about to be late.
 *
 * A process with deadlines runs with the same slices as all others while it is in
 * time. When its work has been waiting for more than `alarm_percent` of the
 * deadline, it gets the longest slice and everybody else the shortest, until
 * nothing of it waits any more; then all get back what they had.
 *
 * Wins where deadlines are met most of the time anyway: they are met always, and
 * the others lose little. Loses where the process is behind all the time: then it
 * is sched_class with worse manners. Of no use when `alarm_percent` of the deadline
 * is less than the period in which shares are told: the alarm comes too late.
 *
 * Source: between earliest deadline first and a watchdog; compare Kato et al.,
 * "TimeGraph: GPU scheduling for real-time multi-tasking environments", ATC 2011.
 */
#include "processes.bpf.h"

#define PATTERNS 8

POLICY_TEXTS(urgent, PATTERNS, "command or cgroup patterns of processes with a deadline");
POLICY_NUMBERS(__u32, deadline_us, PATTERNS, 1000, 60000000, "their deadlines, same order");
POLICY_PARAM(__u32, alarm_percent, 40, 1, 100, "of the deadline, waited: help");
POLICY_PARAM(__u32, long_us, 20000, 100, 100000, "slice of who is late, us");
POLICY_PARAM(__u32, short_us, 200, 100, 100000, "slice of the others meanwhile");

struct seen {
        __u64 now_ns;
        bool alarm;
};

inline_ bool is_late(struct process *p, const struct policy_share *s, __u64 now_ns)
{
        __u32 i = p->kind - 1;

        if (!p->kind || i >= PATTERNS)
                return false;
        if (!s->waiting) {
                p->since_ns = 0;
                return false;
        }
        if (!p->since_ns)
                p->since_ns = now_ns - s->period_ns; /* it may have begun then */
        return now_ns - p->since_ns > (__u64)deadline_us[i] * 10 * alarm_percent;
}

static long look(__u32 i, struct seen *seen)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;

        if (p && is_late(p, s, seen->now_ns))
                seen->alarm = true;
        return 0;
}

static long act(__u32 i, struct seen *seen)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;

        if (!p)
                return 0;
        if (seen->alarm)
                want_slice(s, p, p->kind ? long_us : short_us, seen->now_ns);
        else if (p->slice_us) {
                p->slice_us = 0;
                policy_time_slice(s->process, 0);
        }
        return 0;
}

POLICY(share)
{
        struct seen seen = {.now_ns = e->now_ns};

        bpf_loop(e->items, look, &seen, 0);
        bpf_loop(e->items, act, &seen, 0);
        return 0;
}

POLICY(process_start)
{
        if (process_note(e, urgent, PATTERNS))
                policy_time_slice(e->process, 0);
        return 0;
}

POLICY(process_exit)
{
        process_forget(e);
        return 0;
}
