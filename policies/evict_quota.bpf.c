/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * A quota of GPU memory for each process, on each GPU: who is over it pays with its own
 * memory.
 *
 * Blocks are kept per process, least recently used first. While a process has more
 * blocks than its quota, its oldest go to the host, whether or not memory is short;
 * when memory is short the process that is most over gives, or, when none is, the
 * one that has most. Up to 14 processes are told apart; the others share one quota.
 *
 * Wins where one process streams through memory and would push out everybody
 * else's working set: it is held to its share. Loses where memory is idle: a
 * process alone on the GPU that needs more than its quota evicts although there is
 * room. (A quota that only counts when memory is short is evict_priority's job.)
 *
 * Source: local replacement with fixed allocation, as in Denning, "Virtual memory",
 * Computing Surveys 1970.
 */
#define EVICT_LISTS 16
#define EVICT_OWN_EXIT
#include "evict.bpf.h"

#define SLOTS 15 /* 0 is of those that got none of their own */

POLICY_PARAM(__u64, quota_mib, 4096, 2, 1048576, "MiB a process may have on a GPU");
POLICY_TEXTS(special, 4, "command or cgroup patterns with a quota of their own");
POLICY_NUMBERS(__u64, special_mib, 4, 0, 1048576, "their quotas, MiB, in the same order");

__u64 slot_process[SLOTS];
__u64 slot_quota[SLOTS]; /* blocks; 0: quota_mib */

inline_ __u32 slot_of(__u64 process)
{
        for (__u32 i = 1; i < SLOTS; i++)
                if (slot_process[i] == process)
                        return i;
        return 0;
}

static void evict_arrived(__u32 number, bool again)
{
}

static void evict_used(__u32 number)
{
        struct block *b = block_at(number);

        if (b)
                list_move(number, slot_of(b->key.process));
}

inline_ __u64 quota_of(__u32 slot)
{
        return slot_quota[slot] ? slot_quota[slot] : quota_mib / 2;
}

static __u32 evict_choose(bool is_short)
{
        __s64 most = is_short ? -(1ll << 40) : 0;
        __u32 slot = SLOTS;

        for (__u32 i = 0; i < SLOTS; i++) {
                __s64 over = (__s64)list_count(i) - (__s64)quota_of(i);

                if (list_count(i) && over > most) {
                        most = over;
                        slot = i;
                }
        }
        return slot < SLOTS ? list_first(slot) : 0;
}

POLICY(process_start)
{
        struct policy_batch *b = policy_batch_get();
        __u32 slot = slot_of(e->process);
        __u64 quota = 0;

        for (__u32 i = 0; i < 4 && b; i++)
                if (policy_matches(special[i], b->comm, sizeof(b->comm)) ||
                    policy_matches(special[i], b->cgroup, sizeof(b->cgroup)))
                        quota = special_mib[i] / 2;
        for (__u32 i = 1; i < SLOTS && !slot; i++)
                if (!slot_process[i])
                        slot = i;
        if (slot && slot < SLOTS) {
                slot_process[slot] = e->process;
                slot_quota[slot] = quota;
        }
        return 0;
}

POLICY(process_exit)
{
        __u32 slot = slot_of(e->process);

        blocks_forget_process(e->process);
        if (slot)
                slot_process[slot] = 0;
        return 0;
}
