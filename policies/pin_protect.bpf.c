/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Keep the memory of processes that have to be quick on the GPU.
 *
 * The driver has no pin for managed memory: a preferred location does not protect
 * from eviction. This policy comes as near as one can from outside: memory of
 * critical processes is never among what it gives up, it keeps so much free that the
 * driver does not have to choose, and what the driver takes from a critical process
 * all the same is brought back at once.
 *
 * Wins on a critical process that works in bursts beside one that streams: its next
 * burst finds its memory. Loses when critical memory is as large as the GPU: there
 * is nothing else to give up, and what it brings back pushes out its own. Costs the
 * others what it saves the critical ones, and more.
 *
 * Source: mlock(2), as a policy.
 */
#define EVICT_OWN_EXIT
#define EVICT_TELLS_LOST
#define EVICT_TELLS_REFUSED
#include "evict.bpf.h"

#define OTHERS   0
#define CRITICAL 1

POLICY_TEXTS(critical, 4, "command or cgroup patterns of critical processes");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 1024);
        __type(key, __u64);
        __type(value, __u32);
} criticals SEC(".maps");

inline_ bool is_critical(__u64 process)
{
        return bpf_map_lookup_elem(&criticals, &process);
}

static void evict_arrived(__u32 number, bool again)
{
}

static void evict_used(__u32 number)
{
        struct block *b = block_at(number);

        if (b)
                list_move(number, is_critical(b->key.process) ? CRITICAL : OTHERS);
}

static __u32 evict_choose(bool is_short)
{
        return is_short ? list_first(OTHERS) : 0;
}

/* What the driver took from a critical process. */
static void evict_lost(__u64 process, __u32 gpu, const struct policy_moved *m)
{
        if (m->cause == POLICY_BY_EVICTION && is_critical(process))
                policy_migrate(process, m->address, m->bytes, gpu);
}

/* Others are made to leave meanwhile, so that there is room. */
static void evict_refused(const struct policy_refused *r)
{
        if (policy_may_go_later(r) || r->reason == POLICY_REFUSED_no_room)
                policy_ask_again(r);
}

POLICY(process_start)
{
        struct policy_batch *b = policy_batch_get();
        __u64 process = e->process;
        __u32 one = 1;

        bpf_map_delete_elem(&criticals, &process);
        for (__u32 i = 0; i < 4 && b; i++)
                if (policy_matches(critical[i], b->comm, sizeof(b->comm)) ||
                    policy_matches(critical[i], b->cgroup, sizeof(b->cgroup)))
                        bpf_map_update_elem(&criticals, &process, &one, BPF_ANY);
        return 0;
}

POLICY(process_exit)
{
        __u64 process = e->process;

        blocks_forget_process(process);
        bpf_map_delete_elem(&criticals, &process);
        return 0;
}
