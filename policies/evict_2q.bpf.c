/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Two queues: a block has to prove itself before it may stay.
 *
 * What comes for the first time stands in a queue, first in first out, that has a
 * fifth of the places. What falls out of it is remembered for a while without its
 * memory; if it comes back within that time it has been used twice at some distance
 * and goes to the main list, least recently used. So a sweep over much memory runs
 * through the queue and leaves the main list alone.
 *
 * Wins on a hot set with sweeps between, where least recently used loses the hot
 * set with every sweep. Loses to least recently used where use is skewed and
 * nothing sweeps (a Zipf distribution): a fifth of the places goes to newcomers,
 * most of which never come again; and, like every scheme that keeps what is recent,
 * to evict_mru on cyclic sweeps.
 *
 * Source: Johnson and Shasha, "2Q: a low overhead high performance buffer
 * management replacement algorithm", VLDB 1994.
 */
#define EVICT_REMEMBERED 32768
#include "evict.bpf.h"

#define QUEUE 0
#define MAIN  1

POLICY_PARAM(__u32, queue_percent, 20, 1, 90, "of the blocks on the GPU, in the queue");

static void evict_arrived(__u32 number, bool again)
{
        list_move(number, again ? MAIN : QUEUE);
}

/* In the queue uses do not count: they are likely to belong together. */
static void evict_used(__u32 number)
{
        struct block *b = block_at(number);

        if (b && list_has(b, MAIN))
                list_move(number, MAIN);
}

static __u32 evict_choose(bool is_short)
{
        __u32 queued = list_count(QUEUE), all = queued + list_count(MAIN);

        if (!is_short)
                return 0;
        if (queued && (__u64)queued * 100 >= (__u64)all * queue_percent)
                return list_first(QUEUE);
        return list_first(MAIN) ? list_first(MAIN) : list_first(QUEUE);
}
