/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Evict the block that was used least often since it came.
 *
 * Blocks are kept in three classes by how often kernels were given them, in powers
 * of four; the oldest of the lowest class that has any goes first. Within a class
 * it is least recently used.
 *
 * Wins where use is skewed and stays so: the head of a Zipf distribution, a hot
 * set that sweeps pass by (a block seen once goes before one seen often, however
 * recent). Loses badly where the hot set moves: what was used a hundred times and never
 * will be again keeps its place, and the new set fights over what is left (see
 * `decay`, off by default: each tick it halves the counts of so many blocks, the
 * highest class first).
 *
 * Source: least frequently used, and its weakness, in Robinson and Devarakonda,
 * "Data cache management using frequency-based replacement", SIGMETRICS 1990.
 */
#define EVICT_OWN_TICK
#include "evict.bpf.h"

POLICY_PARAM(__u32, decay, 0, 0, 4096, "blocks whose count is halved in each tick");

inline_ __u32 class_of(__u32 uses)
{
        return uses < 4 ? 0 : uses < 16 ? 1 : 2;
}

static void evict_arrived(__u32 number, bool again)
{
}

static void evict_used(__u32 number)
{
        struct block *b = block_at(number);

        if (!b)
                return;
        b->uses++;
        list_move(number, class_of(b->uses));
}

static __u32 evict_choose(bool is_short)
{
        for (__u32 i = 0; i < 3 && is_short; i++)
                if (list_first(i))
                        return list_first(i);
        return 0;
}

static long halve(__u32 i, void *unused)
{
        __u32 number = list_first(2) ? list_first(2) : list_first(1);
        struct block *b = number ? block_at(number) : NULL;

        if (!b)
                return 1;
        b->uses /= 2;
        list_move(number, class_of(b->uses));
        return 0;
}

POLICY(tick)
{
        evict_forget_asked(e);
        bpf_loop(decay, halve, NULL, 0);
        return 0;
}
