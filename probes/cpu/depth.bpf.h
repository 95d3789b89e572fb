/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * How many launches wait: launched (counted by the launch probes) minus started
 * (start records that the GPU wrote into the process's shared map, read here
 * through the same map).
 *
 * The two never agree for long by themselves. Kernels without a probe start
 * without a record, records are overwritten, graphs start kernels that nobody
 * launched one by one. So the difference is kept within what is certain: it is
 * not negative, and what was launched before a cuCtxSynchronize that came back
 * does not wait. `adjust` carries the correction. All counts wrap at 2^32.
 */
#include "state.bpf.h"

#define HOLE_PATIENCE_NS 20000000ULL  /* a record still missing after this never comes */
#define HOLE_LOOK_AHEAD  32           /* records passed at most for one hole */
#define OVERRUN_MAX      (1ULL << 32) /* further ahead is a torn or forged record */

struct device_ring {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, DEVICE_RING_ENTRIES);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(key_size, sizeof(__u32));
        __uint(value_size, sizeof(struct device_record));
};

/* By tgid, the start/end map of each process that has an agent. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
        __uint(max_entries, 4096);
        __type(key, __u32);
        __array(values, struct device_ring);
} agent_maps SEC(".maps");

struct ring_walk {
        void *ring;
        __u64 cursor;
        __u64 started;
        __u64 lost;
        __u32 read;
};

/* Position of the record in a slot, ~0 when it is empty; its type in ret_type. */
static __always_inline __u64 ring_slot(void *ring, __u64 n, __u32 *ret_type)
{
        __u32 slot = n % DEVICE_RING_ENTRIES;
        struct device_record *shared = bpf_map_lookup_elem(ring, &slot), r;

        if (!shared)
                return ~0ULL;
        /* The GPU writes meanwhile: each word is read once. */
        r.time_ns = *(volatile __u64 *)&shared->time_ns;
        r.grid = *(volatile __u64 *)&shared->grid;
        r.who = *(volatile __u64 *)&shared->who;
        r.check = *(volatile __u64 *)&shared->check;
        *ret_type = DEVICE_RECORD_TYPE(&r);
        return device_record_index(&r);
}

static long ring_step(__u32 i, void *data)
{
        struct ring_walk *w = data;
        __u64 index, ahead;
        __u32 type = 0;

        index = ring_slot(w->ring, w->cursor, &type);
        ahead = index - w->cursor;
        if (!ahead) {
                w->cursor++;
                w->read++;
                w->started += type == DEVICE_RECORD_START;
                return 0;
        }
        if (index == ~0ULL || ahead % DEVICE_RING_ENTRIES || ahead > OVERRUN_MAX)
                return 1;
        /* Overwritten: the oldest that is still there comes next. */
        ahead -= DEVICE_RING_ENTRIES - 1;
        w->cursor += ahead;
        w->lost += ahead;
        return 0;
}

struct hole_search {
        void *ring;
        __u64 cursor;
        __u32 found; /* distance to the next complete record, 0: none */
};

static long hole_step(__u32 i, void *data)
{
        struct hole_search *s = data;
        __u32 type;

        if (ring_slot(s->ring, s->cursor + i + 1, &type) != s->cursor + i + 1)
                return 0;
        s->found = i + 1;
        return 1;
}

/* The walk stopped: at the end, or at a record that is claimed but not complete. */
static __always_inline void ring_hole(struct ring_walk *w, struct cpu_process *p)
{
        struct hole_search s = {.ring = w->ring, .cursor = w->cursor};
        __u64 now = bpf_ktime_get_ns();

        bpf_loop(HOLE_LOOK_AHEAD, hole_step, &s, 0);
        if (!s.found || w->cursor != p->cursor || !p->hole_ns) {
                p->hole_ns = s.found ? now : 0;
                return;
        }
        if (now - p->hole_ns < HOLE_PATIENCE_NS)
                return;
        w->cursor += s.found;
        w->lost += s.found;
        p->hole_ns = 0;
}

struct bpf_map;

struct context_sum {
        __u32 tgid;
        __u32 count;
        __u32 last; /* index of the last one seen */
        __u32 launched;
        __u32 completed;
};

static long context_step(struct bpf_map *map, const void *key, void *value, void *data)
{
        const struct cpu_context_key *k = key;
        struct context_sum *sum = data;
        __u32 index = *(__u32 *)value;
        struct cpu_context *c;

        if (k->tgid != sum->tgid)
                return 0;
        c = bpf_map_lookup_elem(&contexts, &index);
        if (!c || c->tgid != sum->tgid)
                return 0;
        sum->count++;
        sum->last = index;
        sum->launched += c->seq - c->graphs;
        sum->completed += c->completed;
        return 0;
}

/* What the process has counted by itself, in all contexts that it still has. */
static __noinline __u32 launched_shared(__u32 tgid)
{
        void *map = bpf_map_lookup_elem(&launch_maps, &tgid);
        __u32 i, key, launched = 0;

        for (i = 0; map && i < AGENT_LAUNCH_CONTEXTS; i++) {
                struct agent_launch_context *s;

                key = AGENT_LAUNCH_CONTEXT_0 + i;
                s = bpf_map_lookup_elem(map, &key);
                if (!s || !s->handle)
                        break;
                launched += shared_kernels(s);
        }
        return launched;
}

/* Keep started between what has ended for certain and what was launched. */
static __always_inline __u32 depth_settle(struct cpu_process *p, __u32 launched, __u32 completed)
{
        __s32 waiting = launched - (__u32)(p->started + p->adjust);
        __s32 most = launched - completed;
        __s32 settled = waiting;

        if (settled > most)
                settled = most;
        if (settled < 0)
                settled = 0;
        p->adjust += waiting - settled;
        return settled;
}

static __always_inline void depth_of_context(const struct context_sum *sum,
                                             const struct cpu_depth *d)
{
        __u32 index = sum->last;
        struct cpu_context *c = bpf_map_lookup_elem(&contexts, &index);

        if (sum->count != 1 || !c)
                return;
        c->launched = d->launched;
        c->started = d->started;
        c->depth = d->depth;
}

/*
 * Events are written through casts, which leaves their types out of the object's
 * type information. Naming them here keeps them there, for the test that
 * compares layouts.
 */
#define KEEP_TYPE(type) asm volatile("" ::"r"((__u64)bpf_core_type_id_local(type)))

static __always_inline void keep_types(void)
{
        KEEP_TYPE(struct cpu_operation_event);
        KEEP_TYPE(struct cpu_process_event);
        KEEP_TYPE(struct device_record);
        KEEP_TYPE(struct agent_launch_map);
}

/* Only one at a time for a process: the daemon's main thread. */
SEC("syscall")
int depth_update(struct cpu_depth *d)
{
        struct context_sum sum = {.tgid = d->tgid};
        __u32 tgid = d->tgid;
        struct cpu_process *p = bpf_map_lookup_elem(&processes, &tgid);
        struct ring_walk w = {.ring = bpf_map_lookup_elem(&agent_maps, &tgid)};

        keep_types();
        if (!p || !w.ring) {
                d->error = 2; /* ENOENT */
                return 0;
        }
        w.cursor = p->cursor;
        bpf_loop(d->max, ring_step, &w, 0);
        if (w.read < d->max)
                ring_hole(&w, p);
        p->cursor = w.cursor;
        p->started += w.started;
        p->device_lost += w.lost;

        bpf_for_each_map_elem(&context_index, context_step, &sum, 0);
        d->error = 0;
        d->contexts = sum.count;
        d->shared = launched_shared(tgid);
        d->launched = sum.launched + p->retired + d->shared;
        d->depth = depth_settle(p, d->launched, sum.completed + p->retired);
        d->started = d->launched - d->depth;
        d->read = w.read;
        d->records = p->started;
        d->lost = p->device_lost;
        d->position = p->cursor;
        depth_of_context(&sum, d);
        return 0;
}
