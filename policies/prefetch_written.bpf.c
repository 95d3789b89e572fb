/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Bring what the host has finished writing, before a kernel asks for it.
 *
 * Caches that another machine filled, batches of input, sessions that come back: the
 * host writes memory in order, and then kernels fault on all of it. The host's own
 * faults tell where it writes. Up to 64 places are followed; what lies more than
 * `behind` blocks before such a place is brought to the GPU, `chunk` blocks at a time,
 * and the rest once nothing has been written there for `idle_ms`. Of a process whose
 * kernels have not faulted yet nothing is brought: who knows what it writes for.
 *
 * Wins where kernels read what the host has written: they find it there, and the bus
 * is used while the host is writing. Loses where they read little of it, and where
 * the host goes over the same memory again and again: then all of it crosses the bus,
 * there and back. It never evicts; load it together with a policy that keeps a reserve.
 *
 * Source: write-behind, as buffer caches do it: Ritchie and Thompson, "The UNIX
 * time-sharing system", CACM 1974; the link in the place of the disk.
 */
#include "gpuobs_policy.h"

#define PLACES        64 /* power of two */
#define NSEC_PER_MSEC 1000000ull

POLICY_PARAM(__u32, behind, 2, 1, 64, "blocks of 2 MiB the host has to be further on");
POLICY_PARAM(__u32, chunk, 4, 1, 256, "blocks brought at once");
POLICY_PARAM(__u32, idle_ms, 10, 1, 10000, "without a write: what is left is brought, too");

/* Where the host writes. */
struct place {
        __u64 process;
        __u64 first; /* block, not brought yet */
        __u64 last;  /* block, written to last */
        __u64 at_ns; /* then */
};
struct place places[PLACES];
__u32 next_place; /* replaced when none fits: the oldest */
__u32 next_look;  /* at whether it is idle */

/* Processes whose kernels have faulted. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 4096);
        __type(key, __u64);
        __type(value, __u32);
} readers SEC(".maps");

struct visit {
        __u64 process;
        __u64 block;
        __u64 now_ns;
        __u32 gpu;
        bool found;
};

/* All that was written before `end`. */
inline_ void bring(struct place *p, __u64 end, __u32 gpu)
{
        if (end > p->first)
                policy_migrate(p->process, p->first, end - p->first, gpu);
        p->first = end;
}

inline_ void finish(struct place *p, __u32 gpu)
{
        if (p->process)
                bring(p, p->last + POLICY_BLOCK_BYTES, gpu);
        p->process = 0;
}

/* The host is at the same block still, or at the next one: 1, seen. */
static long step(__u32 i, struct visit *v)
{
        struct place *p = &places[i & (PLACES - 1)];
        __u64 far = (__u64)(behind + chunk) * POLICY_BLOCK_BYTES;

        if (p->process != v->process || v->block - p->last > POLICY_BLOCK_BYTES)
                return 0;
        p->at_ns = v->now_ns;
        p->last = v->block;
        v->found = true;
        if (p->last - p->first >= far)
                bring(p, p->last - (__u64)behind * POLICY_BLOCK_BYTES, v->gpu);
        return 1;
}

inline_ void written(struct visit *v)
{
        struct place *p;

        v->found = false;
        bpf_loop(PLACES, step, v, 0);
        if (v->found)
                return;
        p = &places[next_place++ & (PLACES - 1)];
        finish(p, v->gpu);
        p->process = v->process;
        p->first = p->last = v->block;
        p->at_ns = v->now_ns;
}

inline_ void finish_idle(__u32 i, __u64 now_ns, __u32 gpu)
{
        struct place *p = &places[i & (PLACES - 1)];

        if (p->process && now_ns - p->at_ns >= idle_ms * NSEC_PER_MSEC)
                finish(p, gpu);
}

static long visit_fault(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();
        __u32 one = 1;
        __u64 block;

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        if (b->items[i].fault.gpu != POLICY_HOST) {
                bpf_map_update_elem(&readers, &v->process, &one, BPF_NOEXIST);
                return 0;
        }
        block = policy_block(b->items[i].fault.address);
        if (block == v->block)
                return 0;
        v->block = block;
        if (bpf_map_lookup_elem(&readers, &v->process))
                written(v);
        return 0;
}

POLICY(fault)
{
        struct visit v = {.process = e->process, .now_ns = e->now_ns, .gpu = e->gpu};

        bpf_loop(e->items, visit_fault, &v, 0);
        finish_idle(next_look++, e->now_ns, e->gpu);
        return 0;
}

struct look {
        __u64 now_ns;
        __u32 gpu;
};

static long look(__u32 i, struct look *l)
{
        finish_idle(i, l->now_ns, l->gpu);
        return 0;
}

POLICY(tick)
{
        struct look l = {e->now_ns, e->gpu};

        bpf_loop(PLACES, look, &l, 0);
        return 0;
}

/* Nothing is written there any more that would tell of it once more. */
static long bring_again(__u32 i, void *unused)
{
        struct policy_refused *r = policy_refused_at(i);

        if (r && policy_may_go_later(r))
                policy_ask_again(r);
        return 0;
}

POLICY(refused)
{
        bpf_loop(e->items, bring_again, NULL, 0);
        return 0;
}

static long forget(__u32 i, __u64 *process)
{
        struct place *p = &places[i & (PLACES - 1)];

        if (p->process == *process)
                p->process = 0;
        return 0;
}

POLICY(process_exit)
{
        __u64 process = e->process;

        bpf_map_delete_elem(&readers, &process);
        bpf_loop(PLACES, forget, &process, 0);
        return 0;
}
