/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Two classes: those that have to be quick, and those that take what is left.
 *
 * Critical processes get long slices, so that a burst is not interrupted; all
 * others get short ones, so that a burst does not wait long for its turn. When a
 * critical process waited all of the last period without getting the GPU, the
 * others are taken off it.
 *
 * Wins where a process with little work in bursts shares the GPU with batch work:
 * its bursts wait for a short slice instead of a long one, whatever the length of
 * the kernels, which are cut when their slice is over. Loses throughput: the batch
 * work changes places more often, and each change takes some 88 us. With several
 * batch processes that cost is paid all the time, critical work or none.
 *
 * Source: the two lowest levels of a multilevel queue, Corbato et al. 1962.
 */
#include "processes.bpf.h"

#define PATTERNS 8

POLICY_TEXTS(critical, PATTERNS, "command or cgroup patterns of critical processes");
POLICY_PARAM(__u32, critical_us, 8000, 100, 100000, "their slice, us");
POLICY_PARAM(__u32, other_us, 250, 100, 100000, "everybody else's");
POLICY_PARAM(__u32, preempt, 1, 0, 1, "take others off the GPU when a critical one starves");

struct seen {
        __u64 now_ns;
        bool starving;
};

static long look(__u32 i, struct seen *seen)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;

        if (!p)
                return 0;
        want_slice(s, p, p->kind ? critical_us : other_us, seen->now_ns);
        if (p->kind && s->waiting && !s->active_ns)
                seen->starving = true;
        return 0;
}

static long push_off(__u32 i, struct seen *seen)
{
        struct policy_share *s = share_at(i);
        struct process *p = s ? process_of(s->process) : NULL;

        if (p && !p->kind && s->active_ns)
                policy_preempt(s->process);
        return 0;
}

POLICY(share)
{
        struct seen seen = {.now_ns = e->now_ns};

        bpf_loop(e->items, look, &seen, 0);
        if (seen.starving && preempt)
                bpf_loop(e->items, push_off, &seen, 0);
        return 0;
}

POLICY(process_start)
{
        process_note(e, critical, PATTERNS);
        return 0;
}

POLICY(process_exit)
{
        process_forget(e);
        return 0;
}
