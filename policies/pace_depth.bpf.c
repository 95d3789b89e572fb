/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Keep queues of those that can wait short, for those they stand before.
 *
 * Kernels in one channel group are started in the order they were launched,
 * whoever launched them: streams of one process, processes under MPS. A batch
 * client that keeps hundreds of launches waiting makes everybody behind it wait for
 * all of them. This policy watches how many launches of each process wait; beyond
 * `high` it lets a process that is not exempt launch no more than `limit` ahead, and
 * no more than `rate` a second, and lets go when fewer than `low` wait.
 *
 * The process's agent does the waiting, and looks by itself at what has started; where
 * there is no agent nothing can be held back.
 *
 * Wins where a quick client shares a queue with a greedy one. Loses where kernels
 * are shorter than a launch takes: the GPU runs dry between them, and nobody gained
 * anything. Of no use between channel groups, which wait for slices, not queues.
 *
 * Source: backpressure against bufferbloat, as Nichols and Jacobson, "Controlling
 * queue delay", ACM Queue 2012, with the depth in place of the delay.
 */
#include "processes.bpf.h"

#define PATTERNS 8

POLICY_TEXTS(exempt, PATTERNS, "command or cgroup patterns of processes never held back");
POLICY_PARAM(__u32, high, 16, 1, 4096, "launches waiting: hold back");
POLICY_PARAM(__u32, low, 0, 0, 4096, "launches waiting: let go");
POLICY_PARAM(__u32, limit, 2, 1, 4096, "launches that may wait while held back");
POLICY_PARAM(__u32, rate, 0, 0, 1000000, "launches a second then, at least 10; 0 any number");

inline_ void hold(__u64 process, __u32 waiting, __u32 a_second)
{
        policy_pace(process, waiting);
        if (rate)
                policy_launch_rate(process, a_second);
}

POLICY(launch)
{
        struct process *p = process_of(e->process);

        if (!p || p->kind || e->depth == POLICY_UNKNOWN)
                return 0;
        /* slice_us serves as the limit asked for. */
        if (e->depth > high && p->slice_us != limit) {
                p->slice_us = limit;
                hold(e->process, limit, rate);
        } else if (e->depth < low && p->slice_us) {
                p->slice_us = 0;
                hold(e->process, 0, 0);
        }
        return 0;
}

/* As long as the process is still to be held back. */
static long hold_again(__u32 i, void *unused)
{
        struct policy_refused *r = policy_refused_at(i);
        struct process *p = r ? process_of(r->process) : NULL;

        if (p && p->slice_us && policy_may_go_later(r))
                policy_ask_again(r);
        return 0;
}

POLICY(refused)
{
        bpf_loop(e->items, hold_again, NULL, 0);
        return 0;
}

POLICY(process_start)
{
        if (process_note(e, exempt, PATTERNS)) {
                policy_pace(e->process, 0);
                policy_launch_rate(e->process, 0);
        }
        return 0;
}

POLICY(process_exit)
{
        process_forget(e);
        return 0;
}
