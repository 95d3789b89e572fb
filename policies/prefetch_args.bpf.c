/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Bring what the next kernels were given before they start.
 *
 * A launch is called on the CPU well before the kernel starts on the GPU, and its
 * arguments say which memory it is about. So while the queue is being worked off,
 * the ranges of the launches in it are brought, unless they are there already.
 *
 * Wins where kernels use most of what they are given: layers, tiles, buffers. The
 * faults disappear, as far as there is room and the link keeps up with the kernels.
 * Loses where kernels are given a large range and touch little of it (tables,
 * graphs): all of it is brought for a few pages; `range_mib` bounds what is
 * believed. Loses also when the CPU waits for each kernel: nothing is known early.
 * It never evicts; load it together with a policy that keeps a reserve.
 *
 * Source: what cudaMemPrefetchAsync is for, done for programs that do not call it.
 */
#include "blocks.bpf.h"

POLICY_PARAM(__u64, range_mib, 1024, 2, 65536, "larger ranges are not brought, MiB");
POLICY_PARAM(__u32, spare_blocks, 0, 0, 65536, "blocks of the GPU's memory left free");

struct visit {
        __u64 process;
        __u64 address;
        __u32 gpu;
        bool left;
};

/* Of the run that goes on: here rather than in struct visit, where the verifier would follow them.
 */
__u64 missing; /* where missing blocks began; 0: none is being collected */
__u64 room;    /* blocks that may still be brought */

/* ---- what is there ---- */

static long note_block(__u32 i, struct visit *v)
{
        __u64 address = v->address + (__u64)i * POLICY_BLOCK_BYTES;
        __u32 number = block_find(v->process, address);

        if (v->left)
                block_forget(number);
        else if (!number)
                block_add(v->process, address, 0);
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

noinline_ int bring(__u64 process, __u64 from, __u64 to, __u32 gpu)
{
        if (from && to > from)
                policy_migrate(process, from, to - from, gpu);
        return 0;
}

static long look(__u32 i, struct visit *v)
{
        __u64 address = policy_block(v->address) + (__u64)i * POLICY_BLOCK_BYTES;

        if (block_find(v->process, address) || !room) {
                bring(v->process, missing, address, v->gpu);
                missing = 0;
                return !room;
        }
        room--;
        if (!missing)
                missing = address;
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
        missing = 0;
        bpf_loop(n, look, v, 0);
        bring(v->process, missing, policy_block(v->address) + (__u64)n * POLICY_BLOCK_BYTES,
              v->gpu);
        return room == 0;
}

POLICY(launch)
{
        struct visit v = {.process = e->process, .gpu = e->gpu};
        __u64 spare = (__u64)spare_blocks * POLICY_BLOCK_BYTES;

        room = ~0ull;
        if (e->free_bytes != POLICY_UNKNOWN)
                room = e->free_bytes > spare ? (e->free_bytes - spare) / POLICY_BLOCK_BYTES : 0;
        bpf_loop(e->items, look_range, &v, 0);
        return 0;
}
