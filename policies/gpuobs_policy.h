/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * For policies: the two maps, parameters, and one function per action.
 *
 *      #include "gpuobs_policy.h"
 *
 *      POLICY_PARAM(__u32, depth, 4, 1, 64, "blocks fetched ahead");
 *
 *      POLICY(fault)
 *      {
 *              struct policy_batch *b = policy_batch_get();
 *
 *              for (__u32 i = 0; b && i < e->items && i < POLICY_ITEMS_MAX; i++)
 *                      policy_migrate(e->process, b->items[i].fault.address, 2 << 20, e->gpu);
 *              return 0;
 *      }
 *
 * A program returns 0. Anything else tells that the policy cannot go on: it is
 * removed, what it did is undone, and the number is reported.
 */
#include "bpf/gpuobs_core.h"

#include <bpf/bpf_helpers.h>

#include "policy_abi.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, struct policy_batch);
} policy_batch SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, POLICY_RING_BYTES);
} policy_actions SEC(".maps");

const volatile __u32 policy_abi = POLICY_ABI_VERSION;
__u64 policy_unsaid; /* answers the ring had no room for */
__u32 policy_steps;  /* that loops of this run may still take, and one; 0: they wanted more */

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* A variable that `gpuobsctl policy set` may change while the policy runs, within bounds. */
#define POLICY_PARAM(type, name, value, low, high, doc)                                            \
        type name SEC(".data") __attribute__((btf_decl_tag("param " #low " " #high " " doc))) =    \
                value
/* A text, or several: a pattern that policy_matches() takes. */
#define POLICY_TEXTS(name, count, doc)                                                             \
        char name[count][64] SEC(".data") __attribute__((btf_decl_tag("param 0 0 " doc)))
#define POLICY_NUMBERS(type, name, count, low, high, doc)                                          \
        type name[count] SEC(".data") __attribute__((btf_decl_tag("param " #low " " #high " " doc)))

#define POLICY(name) SEC("syscall") int policy_##name(struct policy_event *e)

#define inline_ static __attribute__((always_inline)) inline

inline_ struct policy_batch *policy_batch_get(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&policy_batch, &zero);
}

/* ---- loops ---- */

/*
 * The kernel cannot stop a program: loops within loops could keep it busy for years. So each
 * takes its steps from what a run has, and is not begun when it wants more; the policy is
 * ejected after such a run.
 */
inline_ __u32 policy_take_steps(__u32 steps)
{
        if (steps >= policy_steps) {
                policy_steps = 0;
                return 0;
        }
        policy_steps -= steps;
        return steps;
}

#define bpf_loop(steps, callback, context, flags)                                                  \
        bpf_loop(policy_take_steps(steps), callback, context, flags)
#define bpf_for_each_map_elem(map, callback, context, flags)                                       \
        (policy_take_steps(sizeof(*(map)->max_entries) / sizeof(int))                              \
                 ? bpf_for_each_map_elem(map, callback, context, flags)                            \
                 : 0)

/* ---- actions ---- */

inline_ void policy_act(__u32 kind, __u32 to, __u64 process, __u64 address, __u64 bytes,
                        __u64 value)
{
        struct policy_action *a = bpf_ringbuf_reserve(&policy_actions, sizeof(*a), 0);

        if (!a) {
                policy_unsaid++;
                return;
        }
        a->kind = kind;
        a->to = to;
        a->process = process;
        a->address = address;
        a->bytes = bytes;
        a->value = value;
        bpf_ringbuf_submit(a, BPF_RB_NO_WAKEUP);
}

/* Move memory of a process to a GPU, or to the host (evict). */
inline_ void policy_migrate(__u64 process, __u64 address, __u64 bytes, __u32 to)
{
        policy_act(POLICY_ACTION_migrate, to, process, address, bytes, 0);
}

inline_ void policy_evict(__u64 process, __u64 address, __u64 bytes)
{
        policy_migrate(process, address, bytes, POLICY_HOST);
}

inline_ void policy_prefer(__u64 process, __u64 address, __u64 bytes, __u32 to)
{
        policy_act(POLICY_ACTION_prefer, to, process, address, bytes, 0);
}

inline_ void policy_time_slice(__u64 process, __u64 us)
{
        policy_act(POLICY_ACTION_time_slice, 0, process, 0, 0, us);
}

/* Of the process's channel groups on one GPU. */
inline_ void policy_time_slice_on(__u64 process, __u64 us, __u32 gpu)
{
        policy_act(POLICY_ACTION_time_slice, POLICY_ON_GPU(gpu), process, 0, 0, us);
}

inline_ void policy_preempt(__u64 process)
{
        policy_act(POLICY_ACTION_preempt, 0, process, 0, 0, 0);
}

inline_ void policy_preempt_on(__u64 process, __u32 gpu)
{
        policy_act(POLICY_ACTION_preempt, POLICY_ON_GPU(gpu), process, 0, 0, 0);
}

inline_ void policy_pace(__u64 process, __u64 launches)
{
        policy_act(POLICY_ACTION_pace, 0, process, 0, 0, launches);
}

inline_ void policy_launch_rate(__u64 process, __u64 launches)
{
        policy_act(POLICY_ACTION_launch_rate, 0, process, 0, 0, launches);
}

inline_ void policy_stream_priority(__u64 process, __u64 priority)
{
        policy_act(POLICY_ACTION_stream_priority, 0, process, 0, 0, priority);
}

/* ---- refusals ---- */

inline_ struct policy_refused *policy_refused_at(__u32 i)
{
        struct policy_batch *b = policy_batch_get();

        return b && i < POLICY_ITEMS_MAX ? &b->items[i].refused : NULL;
}

/* Whether it was only a matter of too much at once. */
inline_ bool policy_may_go_later(const struct policy_refused *r)
{
        return r->reason == POLICY_REFUSED_over_budget || r->reason == POLICY_REFUSED_queue_full;
}

inline_ void policy_ask_again(const struct policy_refused *r)
{
        policy_act(r->kind, r->to, r->process, r->address, r->bytes, r->value);
}

/* ---- helpers ---- */

inline_ __u64 policy_block(__u64 address)
{
        return address & ~(__u64)(POLICY_BLOCK_BYTES - 1);
}

/*
 * Whether a text is the pattern; a pattern that ends with * matches what begins
 * like it, and an empty one matches nothing. text_max: the text's array.
 */
inline_ bool policy_matches(const char *pattern, const char *text, __u32 text_max)
{
        if (!pattern[0])
                return false;
        for (__u32 i = 0; i < 64 && i < text_max; i++) {
                if (pattern[i] == '*')
                        return true;
                if (pattern[i] != text[i])
                        return false;
                if (!pattern[i])
                        return true;
        }
        return false;
}
