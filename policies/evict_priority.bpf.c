/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * When memory is short, take it from those who matter least.
 *
 * Processes have one of three levels, by command or cgroup; blocks are kept per
 * level, least recently used first. As long as a lower level has anything on the
 * GPU, nothing of a higher one is evicted.
 *
 * Wins where a process that has to answer quickly shares the GPU with work that
 * can wait: its memory is there when it is needed, however long it was idle. Loses
 * in total: what a high level never uses again keeps its place while the low level
 * faults on every block, so the sum of stalls grows.
 *
 * Source: priorities in global replacement; the kernel's memory.low is a relative.
 */
#define EVICT_OWN_EXIT
#include "evict.bpf.h"

POLICY_TEXTS(high, 4, "command or cgroup patterns of the highest level");
POLICY_TEXTS(low, 4, "of the lowest");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 4096);
        __type(key, __u64);
        __type(value, __u32);
} levels SEC(".maps");

#define LEVELS 3

static void evict_arrived(__u32 number, bool again)
{
}

static void evict_used(__u32 number)
{
        struct block *b = block_at(number);
        __u32 *level;

        if (!b)
                return;
        level = bpf_map_lookup_elem(&levels, &b->key.process);
        list_move(number, level && *level < LEVELS ? *level : 1);
}

static __u32 evict_choose(bool is_short)
{
        for (__u32 i = 0; i < LEVELS && is_short; i++)
                if (list_first(i))
                        return list_first(i);
        return 0;
}

inline_ bool is_one_of(char patterns[][64], const struct policy_batch *b)
{
        for (__u32 i = 0; i < 4; i++)
                if (policy_matches(patterns[i], b->comm, sizeof(b->comm)) ||
                    policy_matches(patterns[i], b->cgroup, sizeof(b->cgroup)))
                        return true;
        return false;
}

POLICY(process_start)
{
        struct policy_batch *b = policy_batch_get();
        __u64 process = e->process;
        __u32 level = 1;

        if (!b)
                return 0;
        if (is_one_of(high, b))
                level = 2;
        else if (is_one_of(low, b))
                level = 0;
        bpf_map_update_elem(&levels, &process, &level, BPF_ANY);
        return 0;
}

POLICY(process_exit)
{
        __u64 process = e->process;

        blocks_forget_process(process);
        bpf_map_delete_elem(&levels, &process);
        return 0;
}
