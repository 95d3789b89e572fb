/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* For scheduling policies: what is kept of each process, and passing over shares. */
#include "gpuobs_policy.h"

#define ASK_AGAIN_NS 1000000000ull /* for what has not come into force */

struct process {
        __u32 kind;      /* the policy's: index of the pattern that matched, from 1; 0 none */
        __u32 slice_us;  /* asked for last; 0 none */
        __u64 active_ns; /* summed up by the policy */
        __u64 since_ns;  /* something is waiting since */
        __u64 factor;    /* the policy's */
        __u64 asked_ns;  /* for a slice, last */
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 4096);
        __type(key, __u64);
        __type(value, struct process);
} processes SEC(".maps");

inline_ struct process *process_of(__u64 key)
{
        return bpf_map_lookup_elem(&processes, &key);
}

/*
 * Note a process: which of the patterns its command or cgroup matches first. It is told of again
 * when patterns may have changed; all else begins anew then. Whether something had been asked for
 * that the policy has to take back.
 */
inline_ bool process_note(const struct policy_event *e, char patterns[][64], __u32 count)
{
        struct policy_batch *b = policy_batch_get();
        struct process fresh = {0}, *known;
        __u64 key = e->process;
        bool had_asked;

        for (__u32 i = 0; i < count && b && !fresh.kind; i++)
                if (policy_matches(patterns[i], b->comm, sizeof(b->comm)) ||
                    policy_matches(patterns[i], b->cgroup, sizeof(b->cgroup)))
                        fresh.kind = i + 1;
        known = process_of(key);
        had_asked = known && known->slice_us;
        bpf_map_update_elem(&processes, &key, &fresh, BPF_ANY);
        return had_asked;
}

inline_ void process_forget(const struct policy_event *e)
{
        __u64 key = e->process;

        bpf_map_delete_elem(&processes, &key);
}

inline_ struct policy_share *share_at(__u32 i)
{
        struct policy_batch *b = policy_batch_get();

        return b && i < POLICY_ITEMS_MAX ? &b->items[i].share : NULL;
}

/*
 * Ask for a slice unless the process has it already. One that was refused, or is another by now, is
 * asked for again after a while.
 */
inline_ void want_slice(const struct policy_share *s, struct process *p, __u32 us, __u64 now_ns)
{
        if (p->slice_us == us && (s->slice_us == us || now_ns - p->asked_ns < ASK_AGAIN_NS))
                return;
        p->slice_us = us;
        p->asked_ns = now_ns;
        policy_time_slice(s->process, us);
}
