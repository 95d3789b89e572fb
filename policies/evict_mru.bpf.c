/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Evict what came last, for memory that is swept again and again.
 *
 * A sweep over a little more than fits is the worst case of every scheme that
 * keeps what is recent: each block is thrown out just before it is needed. Keeping
 * what is there and letting the rest pass through a few places is the best one can
 * do without looking ahead: of N blocks with C places, N - C miss in a sweep
 * instead of N. The last `guard` arrivals are left alone: a kernel may be at work
 * on them.
 *
 * Wins on cyclic sweeps: layers of a model too large for the GPU, epochs over a
 * data set. Loses wherever what was used last will be used next: a hot set that
 * moves never gets in, since its own blocks are the first to go.
 *
 * Source: Chou and DeWitt, "An evaluation of buffer management strategies for
 * relational database systems", VLDB 1985 (looping access).
 */
#include "evict.bpf.h"

#define OLD   0 /* latest first */
#define YOUNG 1

POLICY_PARAM(__u32, guard, 32, 1, 4096, "latest arrivals that are not evicted");

static void evict_arrived(__u32 number, bool again)
{
        struct block *b = block_at(number);
        __u32 oldest;

        /* Parts of one block arrive apart: it is as old as the first of them. */
        if (!b || b->uses)
                return;
        b->uses = 1;
        list_move(number, YOUNG);
        if (list_count(YOUNG) > guard) {
                oldest = list_first(YOUNG);
                list_prepend(oldest, OLD);
        }
}

static void evict_used(__u32 number)
{
}

static __u32 evict_choose(bool is_short)
{
        if (!is_short)
                return 0;
        return list_first(OLD) ? list_first(OLD) : list_first(YOUNG);
}
