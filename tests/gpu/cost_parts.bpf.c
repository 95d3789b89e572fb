/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Parts of what the start/end program does, for device_cost to tell which of them costs
 * what. None of them asks for the place of a record, so nobody could read what they leave.
 *
 *   mark_clock   at the entry, the time to GPU memory
 *   mark_record  a whole record to the host
 *   mark_place   an answer of the L2 cache is waited for, and put down
 *   end_record   at every block's exit, a whole record to the host
 *   end_count    the count of blocks that have ended is asked for
 *   end_told     the last block by that count puts a record where the count says
 *   end_words    the time to a word of the host that each of 64 blocks has for itself
 */
#include "cost_maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define SOME_SLOT 7

static __always_inline void put_record(struct gpuobs_kernel_ctx *ctx, __u32 slot, __u64 index)
{
        __u64 time_ns = bpf_ktime_get_ns();
        __u64 grid = DEVICE_RECORD_GRID(ctx->gridid, DEVICE_RECORD_END, ctx->context);
        __u64 who = DEVICE_RECORD_WHO(ctx->kernel_id, ctx->smid, ctx->queue >> DEVICE_QUEUE_SHIFT);
        struct device_record *r = bpf_map_lookup_elem(&records, &slot);

        if (!r)
                return;
        r->time_ns = time_ns;
        r->grid = grid;
        r->who = who;
        r->check = time_ns ^ (grid * DEVICE_SEAL_GRID) ^ (who * DEVICE_SEAL_WHO) ^ (index + 1);
}

SEC("gpu/entry.grid")
int mark_clock(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();

        if (c)
                c->pad[0] = bpf_ktime_get_ns();
        return 0;
}

SEC("gpu/entry.grid")
int mark_record(struct gpuobs_kernel_ctx *ctx)
{
        put_record(ctx, SOME_SLOT, 0);
        return 0;
}

SEC("gpu/entry.grid")
int mark_place(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();

        if (c)
                c->pad[0] = __sync_fetch_and_add(&c->pad[1], 1);
        return 0;
}

SEC("gpu/exit.block")
int end_record(struct gpuobs_kernel_ctx *ctx)
{
        put_record(ctx, SOME_SLOT, 0);
        return 0;
}

SEC("gpu/exit.block")
int end_count(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();
        __u64 *done;

        if (!c)
                return 0;
        done = &c->tail_done[ctx->gridid % DEVICE_GRIDS];
        if (__sync_fetch_and_add(done, 1) + 1 == blocks_of(ctx))
                *done = 0;
        return 0;
}

SEC("gpu/exit.block")
int end_told(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();
        __u64 *done, n;

        if (!c)
                return 0;
        done = &c->tail_done[ctx->gridid % DEVICE_GRIDS];
        n = __sync_fetch_and_add(done, 1) + 1;
        if ((__u32)n != blocks_of(ctx))
                return 0;
        *done = 0;
        put_record(ctx, (n >> 32) % DEVICE_RING_ENTRIES, n);
        return 0;
}

SEC("gpu/exit.block")
int end_words(struct gpuobs_kernel_ctx *ctx)
{
        __u32 slot = (ctx->gridid * 64 + block_index(ctx)) % DEVICE_RING_ENTRIES;
        struct device_record *r = bpf_map_lookup_elem(&records, &slot);

        if (r)
                r->time_ns = bpf_ktime_get_ns();
        return 0;
}
