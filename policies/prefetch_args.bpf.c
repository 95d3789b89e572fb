/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Bring what the next kernels were given before they need it.
 *
 * A launch is called on the CPU before the kernel starts on the GPU, and its
 * arguments say which memory it is about. So the ranges of a launch are brought as
 * soon as it is called, unless they are there already. A kernel that has begun
 * meanwhile faults where the copy has not come yet, and no more behind it: the copy
 * goes through the range in large pieces, four times as fast as faults do, so it
 * overtakes the kernel and stays ahead.
 *
 * What is there is known from migrations; what was asked for counts as there for
 * `asked_ms`, so that the launches that follow do not ask for it again. A few blocks
 * that are there in the middle of many that are not are asked for with the rest:
 * that costs nothing, and one request is carried out faster than two.
 *
 * Wins where kernels use most of what they are given: layers, tiles, buffers. The
 * faults disappear, as far as there is room and the link keeps up with the kernels.
 * Loses where kernels are given a large range and touch little of it (tables,
 * graphs): all of it is brought for a few pages; `range_mib` bounds what is
 * believed. Gains least where the CPU waits for each kernel: nothing is known early.
 * It never evicts; load it together with a policy that keeps a reserve.
 *
 * Source: what cudaMemPrefetchAsync is for, done for programs that do not call it.
 */
#include "blocks.bpf.h"

POLICY_PARAM(__u64, range_mib, 1024, 2, 65536, "larger ranges are not brought, MiB");
POLICY_PARAM(__u32, spare_blocks, 0, 0, 65536, "blocks of the GPU's memory left free");
POLICY_PARAM(__u32, gap_blocks, 8, 0, 64, "blocks already there that are asked for with the rest");
POLICY_PARAM(__u64, asked_ms, 100, 1, 10000, "how long what was asked for counts as there, ms");

#define LIST_THERE    0
#define LIST_ASKED    1
#define REQUEST_BYTES (1ull << 30) /* the daemon takes no more in one request */

struct visit {
        __u64 process;
        __u64 address;
        __u32 gpu;
        bool left;
};

/* Of the run that goes on: here rather than in struct visit, where the verifier would follow them.
 */
__u64 now_ns;
__u64 missing;     /* where the request being collected begins; 0: there is none */
__u64 missing_end; /* behind its last missing block */
__u64 room;        /* blocks that may still be brought */

/* ---- what is there ---- */

static long note_block(__u32 i, struct visit *v)
{
        __u64 address = v->address + (__u64)i * POLICY_BLOCK_BYTES;
        __u32 number = block_find(v->process, address);

        if (v->left)
                block_forget(number);
        else if (number)
                block_move(number, LIST_THERE);
        else
                block_add(v->process, address, LIST_THERE);
        return 0;
}

static long note_moved(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].moved.address;
        v->left = b->items[i].moved.to == POLICY_HOST;
        bpf_loop(range_blocks(v->address, b->items[i].moved.bytes), note_block, v, 0);
        return 0;
}

POLICY(migration)
{
        struct visit v = {.process = e->process};

        bpf_loop(e->items, note_moved, &v, 0);
        return 0;
}

static long note_freed(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].range.address;
        bpf_loop(range_blocks(v->address, b->items[i].range.bytes), note_block, v, 0);
        return 0;
}

POLICY(free)
{
        struct visit v = {.process = e->process, .left = true};

        bpf_loop(e->items, note_freed, &v, 0);
        return 0;
}

POLICY(process_exit)
{
        blocks_forget_process(e->process);
        return 0;
}

/* ---- what will be needed ---- */

noinline_ int bring(__u64 process, __u32 gpu)
{
        if (missing)
                policy_migrate(process, missing, missing_end - missing, gpu);
        missing = 0;
        return 0;
}

/* Takes down what was asked for; false: it is there, or on its way. */
noinline_ bool block_wanted(__u64 process, __u64 address)
{
        __u32 number = block_find(process, address);
        struct block *b = block_at(number);

        if (number && b && (b->list == LIST_THERE || now_ns - b->used_ns < asked_ms * 1000000))
                return false;
        if (!number)
                number = block_add(process, address, LIST_ASKED);
        b = number ? block_at(number) : NULL;
        if (b)
                b->used_ns = now_ns;
        return true;
}

static long look(__u32 i, struct visit *v)
{
        __u64 address = policy_block(v->address) + (__u64)i * POLICY_BLOCK_BYTES;

        if (!room)
                return 1;
        if (!block_wanted(v->process, address))
                return 0;
        room--;
        if (missing && (address - missing_end > (__u64)gap_blocks * POLICY_BLOCK_BYTES ||
                        address - missing >= REQUEST_BYTES))
                bring(v->process, v->gpu);
        if (!missing)
                missing = address;
        missing_end = address + POLICY_BLOCK_BYTES;
        return 0;
}

static long look_range(__u32 i, struct visit *v)
{
        struct policy_batch *b = policy_batch_get();
        __u64 bytes;
        __u32 n;

        if (!b || i >= POLICY_ITEMS_MAX)
                return 1;
        v->address = b->items[i].range.address;
        bytes = b->items[i].range.bytes;
        if (bytes > range_mib << 20)
                return 0;
        n = range_blocks(v->address, bytes);
        bpf_loop(n, look, v, 0);
        bring(v->process, v->gpu);
        return room == 0;
}

POLICY(launch)
{
        struct visit v = {.process = e->process, .gpu = e->gpu};
        __u64 spare = (__u64)spare_blocks * POLICY_BLOCK_BYTES;

        now_ns = e->now_ns;
        missing = 0;
        room = ~0ull;
        if (e->free_bytes != POLICY_UNKNOWN)
                room = e->free_bytes > spare ? (e->free_bytes - spare) / POLICY_BLOCK_BYTES : 0;
        bpf_loop(e->items, look_range, &v, 0);
        return 0;
}
