/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Key-value caches of language models: written once, at a growing end.
 *
 * The cache of a sequence grows block by block. Attention over a window reads its
 * end in each step, and what lies behind hardly ever. This policy finds places that
 * grow (a block arrives right behind one that arrived before), keeps the last
 * `window` blocks of each and gives up what lies behind before anything else. A
 * block that comes back after it was given up has shown that it is no such history
 * (weights that were read in order look like a growing cache the first time): from
 * then on it is ordinary, and least recently faulted.
 *
 * Wins on decoding with a window while the caches outgrow the memory: weights stay,
 * the history goes. Loses on full attention, which reads all of the history in each
 * step: everything given up is missed at once, more than the driver misses. Loses
 * to evict_mru on cyclic sweeps. In the simulator evict_2q, which knows nothing of
 * caches, does a little better where looks back are rare and weights are swept: try
 * both.
 *
 * Source: sliding windows as in Xiao et al., "Efficient streaming language models
 * with attention sinks", ICLR 2024; paging the cache at all, Kwon et al., SOSP 2023.
 */
#define EVICT_REMEMBERED 32768
#include "evict.bpf.h"

#define ORDINARY 0
#define WINDOW   1
#define HISTORY  2
#define GROWTHS  64

POLICY_PARAM(__u32, window, 24, 1, 4096, "blocks kept at the growing end of each cache");

/* A place that grows: its last block. */
struct growth {
        __u64 process;
        __u64 end;    /* address behind the last block */
        __u64 length; /* blocks so far */
};
struct growth growths[GROWTHS];
__u32 next_growth; /* replaced when none fits: the oldest */

inline_ struct growth *growth_of(__u64 process, __u64 address)
{
        struct growth *g;

        for (__u32 i = 0; i < GROWTHS; i++)
                if (growths[i].end == address && growths[i].process == process)
                        return &growths[i];
        g = &growths[next_growth++ % GROWTHS];
        g->process = process;
        g->end = address;
        g->length = 0;
        return g;
}

static void evict_arrived(__u32 number, bool again)
{
        struct block *b = block_at(number);
        struct growth *g;
        __u32 behind;

        if (!b || (b->uses && !again))
                return;
        b->uses = 1;
        if (again) {
                list_move(number, ORDINARY);
                return;
        }
        g = growth_of(b->key.process, b->key.address);
        g->end += POLICY_BLOCK_BYTES;
        g->length++;
        list_move(number, WINDOW);
        if (g->length <= window)
                return;
        behind = block_find(b->key.process, g->end - (__u64)(window + 1) * POLICY_BLOCK_BYTES);
        b = behind ? block_at(behind) : NULL;
        if (b && list_has(b, WINDOW))
                list_move(behind, HISTORY);
}

static void evict_used(__u32 number)
{
}

static __u32 evict_choose(bool is_short)
{
        if (!is_short)
                return 0;
        if (list_first(HISTORY))
                return list_first(HISTORY);
        return list_first(ORDINARY) ? list_first(ORDINARY) : list_first(WINDOW);
}
