/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Ways to find the block of a grid that ends last, for device_cost to compare. They
 * count like the start/end program (probes/device/launch.bpf.c) and leave a record
 * of two words, so that what differs is how blocks are counted:
 *
 *   end_all     every block asks for the count it makes: exact, a round trip a block
 *   end_banked  the same in eight counters, then one more: exact, less crowded
 *   end_none    blocks count without asking; nobody knows: the least there can be
 *   end_test    nobody counts: what finding the leader and three constants costs
 */
#include "cost_maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define BANKS 8

static __always_inline void publish(struct device_counters *c, __u64 gridid)
{
        __u64 n = __sync_fetch_and_add(&c->head, 1);
        __u32 slot = n % DEVICE_RING_ENTRIES;
        struct device_record *r = bpf_map_lookup_elem(&records, &slot);

        if (!r)
                return;
        r->time_ns = bpf_ktime_get_ns();
        r->grid = gridid;
}

SEC("gpu/exit.block")
int end_all(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();
        __u64 gridid, *done;
        __u32 blocks;

        if (!c)
                return 0;
        gridid = ctx->gridid;
        blocks = blocks_of(ctx);
        done = &c->tail_done[gridid % DEVICE_GRIDS];
        if (__sync_fetch_and_add(done, 1) + 1 != blocks)
                return 0;
        *done = 0;
        publish(c, gridid);
        return 0;
}

SEC("gpu/exit.block")
int end_banked(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();
        __u32 blocks, bank, in_bank, banks, base;
        __u64 *done;
        __u64 gridid;

        if (!c)
                return 0;
        gridid = ctx->gridid;
        blocks = blocks_of(ctx);
        bank = block_index(ctx) % BANKS;
        in_bank = (blocks + BANKS - 1 - bank) / BANKS;
        banks = blocks < BANKS ? blocks : BANKS;
        /* counters of a grid are far from each other */
        base = gridid % (DEVICE_GRIDS / 512) * 32;
        done = &c->tail_done[(bank * 1024 + base) % DEVICE_GRIDS];
        if (__sync_fetch_and_add(done, 1) + 1 != in_bank)
                return 0;
        *done = 0;
        done = &c->tail_done[(BANKS * 1024 + base) % DEVICE_GRIDS];
        if (__sync_fetch_and_add(done, 1) + 1 != banks)
                return 0;
        *done = 0;
        publish(c, gridid);
        return 0;
}

SEC("gpu/exit.block")
int end_none(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();

        if (c)
                __sync_fetch_and_add(&c->tail_done[ctx->gridid % DEVICE_GRIDS], 1);
        return 0;
}

SEC("gpu/exit.block")
int end_test(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();

        if (c && blocks_of(ctx) == 0)
                publish(c, ctx->gridid);
        return 0;
}
