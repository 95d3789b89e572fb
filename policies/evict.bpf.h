/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * The common half of the policies that choose what to evict. The driver cannot be
 * told which block to give up, but it need not choose at all when there is room:
 * these policies keep a reserve free by moving blocks of their choice to the host
 * before the driver has to, off the path of the kernel that faults. The driver
 * knows of faults only; they also see which ranges kernels are given.
 *
 * Each GPU has its own lists, since what leaves one makes no room on another. A run
 * is about one GPU, and list_first() and its kind about the lists of that.
 *
 * A policy that includes this defines:
 *      evict_arrived(block, again)  it came to a GPU and is in list 0; again: it
 *                                   is remembered from an earlier stay
 *      evict_used(block)            a kernel was given it, or it came (a fault says
 *                                   no more than that: what faults comes)
 *      evict_choose(short)          the next to go, the first of a list, 0 none;
 *                                   short: memory is needed
 * and may define, before: EVICT_LISTS, how many lists it has (a power of two, 4);
 * EVICT_REMEMBERED, how many blocks that left are remembered; EVICT_OWN_EXIT and
 * EVICT_OWN_TICK, to have these programs itself; EVICT_TELLS_LOST, to be told in
 * evict_lost() what the driver evicted; EVICT_TELLS_REFUSED, to be told in
 * evict_refused() of other actions that were refused.
 */
#ifndef EVICT_LISTS
#define EVICT_LISTS 4
#endif
#define EVICT_GPUS  64 /* a power of two; those of higher numbers share lists with others */
#define BLOCK_LISTS (2 * EVICT_GPUS * EVICT_LISTS)
#include "blocks.bpf.h"

#ifndef EVICT_REMEMBERED
#define EVICT_REMEMBERED 0
#endif
#define EVICT_GONE      (EVICT_GPUS * EVICT_LISTS) /* the list of those */
#define EVICT_LEAVING   (EVICT_GONE + 1)           /* and of those asked to leave, first to last */
#define EVICT_UNSEEN_NS 3000000000ull              /* later than that it is not told of a refusal */

POLICY_PARAM(__u32, reserve_blocks, 8, 1, 131072, "blocks of 2 MiB to keep free");
POLICY_PARAM(__u32, per_run, 64, 1, 1024, "blocks to evict in one run at most");

__u32 run_gpu; /* that the run is about */

/* Asked for and not yet seen to move, of each GPU. */
__u64 leaving_bytes[EVICT_GPUS];

static void evict_arrived(__u32 number, bool again);
static void evict_used(__u32 number);
static __u32 evict_choose(bool is_short);
#ifdef EVICT_TELLS_LOST
static void evict_lost(__u64 process, __u32 gpu, const struct policy_moved *m);
#endif
#ifdef EVICT_TELLS_REFUSED
static void evict_refused(const struct policy_refused *r);
#endif

struct visit {
        __u64 process;
        __u64 address;
        __u64 now_ns;
        __u64 free_bytes;
        __u32 gpu;
        bool arrived;
        bool left;
};

/* ---- lists of a GPU ---- */

inline_ struct block_list *list_of(__u32 list)
{
        return &block_lists[(run_gpu % EVICT_GPUS * EVICT_LISTS + list) % BLOCK_LISTS];
}

inline_ __u32 list_first(__u32 list)
{
        return list_of(list)->first;
}

inline_ __u32 list_count(__u32 list)
{
        return list_of(list)->count;
}

/* Whether it is in that list of its GPU. */
inline_ bool list_has(const struct block *b, __u32 list)
{
        return b->list < EVICT_GONE && b->list % EVICT_LISTS == list;
}

/* Of the GPU where the block is. */
inline_ void list_move(__u32 number, __u32 list)
{
        struct block *b = block_at(number);

        if (b)
                block_move(number, b->gpu % EVICT_GPUS * EVICT_LISTS + list);
}

inline_ void list_prepend(__u32 number, __u32 list)
{
        struct block *b = block_at(number);

        if (!b)
                return;
        block_unlink(number);
        block_prepend(number, b->gpu % EVICT_GPUS * EVICT_LISTS + list);
}

inline_ __u64 *leaving_of(__u32 gpu)
{
        return &leaving_bytes[gpu % EVICT_GPUS];
}

inline_ void leaving_less(__u32 gpu, __u64 bytes)
{
        __u64 *leaving = leaving_of(gpu);

        *leaving -= bytes < *leaving ? bytes : *leaving;
}

/* ---- what happens to blocks ---- */

noinline_ int block_gone(__u32 number)
{
        if (!EVICT_REMEMBERED)
                return block_forget(number);
        block_move(number, EVICT_GONE);
        if (block_lists[EVICT_GONE].count > EVICT_REMEMBERED)
                block_forget(block_lists[EVICT_GONE].first);
        return 0;
}

inline_ bool is_in(__u32 number, __u32 list)
{
        struct block *b = number ? block_at(number) : NULL;

        return b && b->list == list;
}

/* To list 0 of a GPU, as one that is remembered or as a new one. The block; 0: no room for it. */
inline_ __u32 block_come(__u64 process, __u64 address, __u32 gpu, __u32 number)
{
        struct block *b;

        if (!number)
                number = block_add(process, address, EVICT_GONE);
        b = number ? block_at(number) : NULL;
        if (!b)
                return 0;
        b->gpu = gpu;
        list_move(number, 0);
        return number;
}

noinline_ int visit_arrived(__u64 process, __u64 address, __u32 gpu)
{
        __u32 number = block_find(process, address);
        struct block *b = number ? block_at(number) : NULL;
        bool is_there = b && b->list < EVICT_GONE && b->gpu == gpu, again;

        if (b && !is_there && b->list != EVICT_GONE) {
                block_gone(number); /* it was elsewhere, or was to leave */
                number = block_find(process, address);
        }
        again = number && !is_there;
        if (!is_there)
                number = block_come(process, address, gpu, number);
        if (number) {
                evict_arrived(number, again);
                evict_used(number);
        }
        return 0;
}

static long visit_block(__u32 i, struct visit *v)
{
        __u64 address = v->address + (__u64)i * POLICY_BLOCK_BYTES;
        __u32 number;

        if (v->arrived) {
                visit_arrived(v->process, address, v->gpu);
                return 0;
        }
        number = block_find(v->process, address);
        if (!number || is_in(number, EVICT_GONE))
                return 0;
        if (v->left)
                block_gone(number);
        else if (!is_in(number, EVICT_LEAVING))
                evict_used(number);
        return 0;
}

static long visit_moved(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();
        struct policy_moved *m;

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        m = &b->items[i].moved;
        v->address = m->address;
        v->left = m->to == POLICY_HOST;
        v->arrived = !v->left;
        if (v->left && m->cause == POLICY_BY_REQUEST)
                leaving_less(v->gpu, m->bytes);
#ifdef EVICT_TELLS_LOST
        if (v->left)
                evict_lost(v->process, v->gpu, m);
#endif
        bpf_loop(range_blocks(m->address, m->bytes), visit_block, v, 0);
        return 0;
}

static long visit_range(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].range.address;
        bpf_loop(range_blocks(v->address, b->items[i].range.bytes), visit_block, v, 0);
        return 0;
}

/* ---- making room ---- */

static long evict_one(__u32 i, struct visit *v)
{
        struct block *b;
        __u32 number;
        __u64 *leaving = leaving_of(v->gpu);
        bool is_short = v->free_bytes + *leaving < (__u64)reserve_blocks * POLICY_BLOCK_BYTES;

        number = evict_choose(is_short);
        b = number ? block_at(number) : NULL;
        if (!b)
                return 1;
        policy_evict(b->key.process, b->key.address, POLICY_BLOCK_BYTES);
        *leaving += POLICY_BLOCK_BYTES;
        b->from = b->list;
        b->used_ns = v->now_ns;
        block_move(number, EVICT_LEAVING);
        return 0;
}

inline_ void make_room(struct visit *v)
{
        if (v->free_bytes != POLICY_UNKNOWN)
                bpf_loop(per_run, evict_one, v, 0);
}

inline_ struct visit visit_of(const struct policy_event *e)
{
        run_gpu = e->gpu;
        return (struct visit){.process = e->process,
                              .now_ns = e->now_ns,
                              .free_bytes = e->free_bytes,
                              .gpu = e->gpu};
}

POLICY(migration)
{
        struct visit v = visit_of(e);

        bpf_loop(e->items, visit_moved, &v, 0);
        make_room(&v);
        return 0;
}

POLICY(launch)
{
        struct visit v = visit_of(e);

        bpf_loop(e->items, visit_range, &v, 0);
        make_room(&v);
        return 0;
}

POLICY(free)
{
        struct visit v = visit_of(e);

        v.left = true;
        bpf_loop(e->items, visit_range, &v, 0);
        return 0;
}

POLICY(pressure)
{
        struct visit v = visit_of(e);

        make_room(&v);
        return 0;
}

/* ---- what was asked for and did not come ---- */

static long forget_unseen(__u32 i, __u64 *now_ns)
{
        __u32 number = block_lists[EVICT_LEAVING].first;
        struct block *b = number ? block_at(number) : NULL;

        if (!b || *now_ns - b->used_ns < EVICT_UNSEEN_NS)
                return 1;
        block_gone(number);
        return 0;
}

/* Not all that leaves is seen to: blocks were there in part, the driver dropped events. */
inline_ void evict_forget_asked(const struct policy_event *e)
{
        __u64 now_ns = e->now_ns;

        run_gpu = e->gpu;
        *leaving_of(run_gpu) /= 2;
        bpf_loop(per_run, forget_unseen, &now_ns, 0);
}

/* It is still where it was. What the driver would not move goes after all others. */
inline_ void stop_leaving(__u32 number, const struct policy_refused *r)
{
        struct block *b = block_at(number);

        if (!b)
                return;
        leaving_less(b->gpu, POLICY_BLOCK_BYTES);
        block_unlink(number);
        if (policy_may_go_later(r))
                block_prepend(number, b->from);
        else
                block_append(number, b->from);
}

/* From the last, so that the first to go is the first again. */
static long visit_refused(__u32 i, __u32 *items)
{
        struct policy_refused *r = policy_refused_at(*items - 1 - i);
        __u32 number;

        if (!r)
                return 1;
        number = r->to == POLICY_HOST ? block_find(r->process, r->address) : 0;
        if (is_in(number, EVICT_LEAVING))
                stop_leaving(number, r);
#ifdef EVICT_TELLS_REFUSED
        if (r->to != POLICY_HOST)
                evict_refused(r);
#endif
        return 0;
}

POLICY(refused)
{
        __u32 items = e->items;

        bpf_loop(items, visit_refused, &items, 0);
        return 0;
}

#ifndef EVICT_OWN_EXIT
POLICY(process_exit)
{
        blocks_forget_process(e->process);
        return 0;
}
#endif

#ifndef EVICT_OWN_TICK
POLICY(tick)
{
        evict_forget_asked(e);
        return 0;
}
#endif
