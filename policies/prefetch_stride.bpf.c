/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Bring the blocks a process will fault on next, when it walks.
 *
 * Faults of a process are looked at block by block. When three in a row are the
 * same distance apart, so many blocks further on are brought; each time the walk
 * reaches the end of what was brought, twice as many, up to `depth`; when it turns
 * elsewhere, it starts small again. This is the kernel's read-ahead, with strides.
 *
 * Wins on streams and regular strides through memory that is on the host: one
 * fault for `depth` blocks instead of one for each. A stream is brought in large
 * requests, a stride in one for each block, and these are made one at a time: in the
 * simulator a quarter of the driver's stall is left of the one, three quarters of the
 * other. Loses on short runs, which look like the beginning of a walk and are over:
 * what is brought then takes the link and places from what is needed, several times
 * the bytes that are used. It never evicts; when memory is full it brings nothing, so
 * load it together with a policy that keeps a reserve.
 *
 * Source: Wu et al., "On the design of a new Linux readahead framework", 2008.
 */
#include "gpuobs_policy.h"

POLICY_PARAM(__u32, depth, 64, 1, 512, "blocks of 2 MiB brought ahead at most");
POLICY_PARAM(__u32, sure, 2, 1, 16, "times a distance has to repeat");

struct walk {
        __u64 last;   /* block that faulted last */
        __s64 stride; /* bytes */
        __u64 end;    /* brought up to here, exclusive */
        __u32 repeats;
        __u32 ahead; /* blocks brought the last time */
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 4096);
        __type(key, __u64);
        __type(value, struct walk);
} walks SEC(".maps");

struct visit {
        __u64 process;
        __u32 gpu;
        struct walk *walk;
};

struct bringing {
        __u64 process;
        __u64 from;
        __s64 stride;
        __u32 gpu;
};

static long bring_one(__u32 i, struct bringing *b)
{
        policy_migrate(b->process, b->from + (__s64)i * b->stride, POLICY_BLOCK_BYTES, b->gpu);
        return 0;
}

/* Neighbours go in one request. */
inline_ void bring(const struct visit *v, __u64 from, __s64 stride, __u32 n)
{
        struct bringing b = {v->process, from, stride, v->gpu};

        if (stride == POLICY_BLOCK_BYTES)
                policy_migrate(v->process, from, (__u64)n * POLICY_BLOCK_BYTES, v->gpu);
        else
                bpf_loop(n, bring_one, &b, 0);
}

inline_ void step(struct visit *v, struct walk *w, __u64 block)
{
        __s64 stride = block - w->last;

        if (!stride)
                return;
        w->last = block;
        if (w->end && block == w->end && w->ahead) {
                /* The walk has used up what was brought. */
                w->ahead = w->ahead * 2 < depth ? w->ahead * 2 : depth;
        } else if (stride == w->stride) {
                if (++w->repeats < sure)
                        return;
                /* Still among what is on its way: nothing new to bring. */
                if (w->ahead && w->repeats > sure)
                        return;
                w->ahead = depth < 8 ? depth : 8;
        } else {
                w->stride = stride;
                w->repeats = 0;
                w->ahead = 0;
                w->end = 0;
                return;
        }
        bring(v, block + w->stride, w->stride, w->ahead);
        w->end = block + (__u64)(w->ahead + 1) * w->stride;
}

static long visit_fault(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();
        struct walk *w = bpf_map_lookup_elem(&walks, &v->process);

        if (!b || !w || i >= POLICY_ITEMS_MAX)
                return 1;
        if (b->items[i].fault.gpu != POLICY_HOST)
                step(v, w, policy_block(b->items[i].fault.address));
        return 0;
}

POLICY(fault)
{
        struct visit v = {.process = e->process, .gpu = e->gpu};
        struct walk fresh = {0};

        bpf_map_update_elem(&walks, &v.process, &fresh, BPF_NOEXIST);
        bpf_loop(e->items, visit_fault, &v, 0);
        return 0;
}

/* Nothing is on its way: the next step of the walk brings what it needs. */
static long visit_refused(__u32 i, void *unused)
{
        struct policy_refused *r = policy_refused_at(i);
        struct walk *w = r ? bpf_map_lookup_elem(&walks, &r->process) : NULL;

        if (w)
                w->ahead = w->end = 0;
        return 0;
}

POLICY(refused)
{
        bpf_loop(e->items, visit_refused, NULL, 0);
        return 0;
}

POLICY(process_exit)
{
        __u64 process = e->process;

        bpf_map_delete_elem(&walks, &process);
        return 0;
}
