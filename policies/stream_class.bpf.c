/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Two classes where kernels share a channel group: priorities of streams.
 *
 * Of streams in one context (or of clients of MPS), the GPU takes blocks of those with
 * the greatest priority first, and kernels of the others wait. Streams of processes
 * that have to be quick are made with the greatest priority, those of all others with
 * the least, whatever they ask for. CUDA fixes a priority when a stream is made: what a
 * process made before it was known to have an agent stays as it is.
 *
 * Wins where a quick client shares a channel group with a greedy one. Loses the greedy
 * one's progress: with the quick one always busy it would never get on. Of no use
 * between channel groups, which take turns by time slices: see sched_class.
 *
 * Source: the stream priorities of CUDA, for applications that do not use them; fixed
 * priorities as in Liu and Layland, JACM 1973.
 */
#include "processes.bpf.h"

#define PATTERNS 8

POLICY_TEXTS(critical, PATTERNS, "command or cgroup patterns of critical processes");
POLICY_PARAM(__u32, critical_priority, 1, 0, 64, "of their streams, 1 the greatest; 0 as they ask");
POLICY_PARAM(__u32, other_priority, 64, 0, 64, "of everybody else's");

POLICY(process_start)
{
        struct process *p;

        process_note(e, critical, PATTERNS);
        p = process_of(e->process);
        if (p)
                policy_stream_priority(e->process, p->kind ? critical_priority : other_priority);
        return 0;
}

static long ask_again(__u32 i, void *unused)
{
        struct policy_refused *r = policy_refused_at(i);

        if (r && policy_may_go_later(r))
                policy_ask_again(r);
        return 0;
}

POLICY(refused)
{
        bpf_loop(e->items, ask_again, NULL, 0);
        return 0;
}

POLICY(process_exit)
{
        process_forget(e);
        return 0;
}
