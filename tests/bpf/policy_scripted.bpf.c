/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* A policy for tests: on the chosen event it asks for what its parameters say. */
#include "gpuobs_policy.h"

POLICY_PARAM(__u32, on, 9, 0, 10, "event that it acts on");
POLICY_PARAM(__u32, repeat, 1, 0, 1000000, "how often it asks");
POLICY_PARAM(__s32, answer, 0, -1000, 1000, "what it returns");
POLICY_PARAM(__u64, spin, 0, 0, 8000000, "steps it wastes");
POLICY_PARAM(__u64, nested, 1, 0, 8000000, "steps it wastes in each of them");
POLICY_PARAM(__u32, garbled, 0, 0, 1000, "answers that are no actions");
POLICY_TEXTS(words, 2, "for the test of texts");
POLICY_NUMBERS(__u16, numbers, 3, 10, 20, "for the test of arrays");
__u32 kind SEC(".data") = POLICY_ACTION_preempt;
__u32 to SEC(".data") = 0;
__u64 process SEC(".data") = 0;
__u64 address SEC(".data") = 0;
__u64 bytes SEC(".data") = 0;
__u64 value SEC(".data") = 0;
__u64 step SEC(".data") = 0; /* added to the address each time */

/* What was seen. */
__u64 seen[POLICY_EVENT_COUNT];
__u64 seen_items[POLICY_EVENT_COUNT];
__u64 last_address;
__u64 last_free;
__u64 last_gpu;
__u64 last_refused_address, last_refused_value, last_refused_to, last_reason;
__u64 wasted;
__u64 given_address_0, given_address_1, given_address_2, given_address_3;
__u64 given_bytes_0, given_bytes_1, given_bytes_2, given_bytes_3;
__u64 given_count; /* ranges of the last launch event that had some, and the first of them */
__u64 given_gpu;
__u64 given_launches; /* launches of all events with ranges */

static long ask(__u32 i, void *unused)
{
        policy_act(kind, to, process, address + i * step, bytes, value);
        return 0;
}

static long garble(__u32 i, void *unused)
{
        struct policy_action a[2] = {{.kind = POLICY_ACTION_preempt, .process = process}};

        bpf_ringbuf_output(&policy_actions, a, i % 2 ? sizeof(a) : 8, BPF_RB_NO_WAKEUP);
        return 0;
}

static long waste(__u32 i, void *unused)
{
        wasted++;
        return 0;
}

static long waste_more(__u32 i, void *unused)
{
        bpf_loop(nested, waste, NULL, 0);
        return 0;
}

static __attribute__((noinline)) int event(struct policy_event *e, __u32 type)
{
        struct policy_batch *b = policy_batch_get();

        if (type >= POLICY_EVENT_COUNT || e->type != type || !b)
                return -1;
        seen[type]++;
        seen_items[type] += e->items;
        last_free = e->free_bytes;
        last_gpu = e->gpu;
        if (e->items)
                last_address = b->items[0].range.address;
        if (type == POLICY_EVENT_refused) {
                last_refused_address = b->items[0].refused.address;
                last_refused_value = b->items[0].refused.value;
                last_refused_to = b->items[0].refused.to;
                last_reason = b->items[0].refused.reason;
        }
        if (type == POLICY_EVENT_launch && e->items) {
                given_count = e->items;
                given_gpu = e->gpu;
                given_launches += e->launches;
                given_address_0 = b->items[0].range.address;
                given_address_1 = b->items[1].range.address;
                given_address_2 = b->items[2].range.address;
                given_address_3 = b->items[3].range.address;
                given_bytes_0 = b->items[0].range.bytes;
                given_bytes_1 = b->items[1].range.bytes;
                given_bytes_2 = b->items[2].range.bytes;
                given_bytes_3 = b->items[3].range.bytes;
        }
        if (on != type)
                return 0;
        if (nested == 1)
                bpf_loop(spin, waste, NULL, 0);
        else
                bpf_loop(spin, waste_more, NULL, 0);
        bpf_loop(repeat, ask, NULL, 0);
        bpf_loop(garbled, garble, NULL, 0);
        return answer;
}

#define X(name, number, item)                                                                      \
        POLICY(name)                                                                               \
        {                                                                                          \
                return event(e, number);                                                           \
        }
POLICY_EVENTS(X)
#undef X
