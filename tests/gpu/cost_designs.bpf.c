/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Ways to find the block of a grid that ends last, for device_cost to compare. They
 * count like the start/end program (probes/device/launch.bpf.c) and leave a record
 * of two words, so that what differs is how blocks are counted:
 *
 *   end_all     every block asks for the count it makes: exact, a round trip a block
 *   end_banked  the same in eight counters, then one more: exact, less crowded
 *   end_tail    blocks count without asking, but those that may be in the last wave
 *   end_none    blocks count without asking; nobody knows: the least there can be
 *   end_test    nobody counts: what finding the leader and three constants costs
 */
#include "gpuobs_device.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define MULTIPROCESSORS 132
#define BANKS           8

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_record);
        __uint(max_entries, DEVICE_RING_ENTRIES);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(map_extra, GPUOBS_PLACE_HOST);
} records SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_counters);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counters SEC(".maps");

static __always_inline struct device_counters *all_counters(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&counters, &zero);
}

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

static __always_inline __u32 blocks_of(const struct gpuobs_kernel_ctx *ctx)
{
        return ctx->grid_x * ctx->grid_y * ctx->grid_z;
}

static __always_inline __u32 block_index(const struct gpuobs_kernel_ctx *ctx)
{
        return ctx->block_x + ctx->grid_x * (ctx->block_y + ctx->grid_y * ctx->block_z);
}

SEC("gpu/exit.block")
int end_all(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();
        __u32 *done, blocks;
        __u64 gridid;

        if (!c)
                return 0;
        gridid = ctx->gridid;
        blocks = blocks_of(ctx);
        done = &c->blocks_done[gridid % DEVICE_GRIDS];
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
        __u32 blocks, bank, in_bank, banks, base, *done;
        __u64 gridid;

        if (!c)
                return 0;
        gridid = ctx->gridid;
        blocks = blocks_of(ctx);
        bank = block_index(ctx) % BANKS;
        in_bank = (blocks + BANKS - 1 - bank) / BANKS;
        banks = blocks < BANKS ? blocks : BANKS;
        /* counters of a grid are 128 bytes apart from each other */
        base = gridid % (DEVICE_GRIDS / 512) * 32;
        done = &c->blocks_done[(bank * 1024 + base) % DEVICE_GRIDS];
        if (__sync_fetch_and_add(done, 1) + 1 != in_bank)
                return 0;
        *done = 0;
        done = &c->blocks_done[(BANKS * 1024 + base) % DEVICE_GRIDS];
        if (__sync_fetch_and_add(done, 1) + 1 != banks)
                return 0;
        *done = 0;
        publish(c, gridid);
        return 0;
}

/* So many blocks of this size the device can hold at once, for want of threads or slots. */
static __always_inline __u32 resident(const struct gpuobs_kernel_ctx *ctx)
{
        __u32 threads = ctx->block_dim_x * ctx->block_dim_y * ctx->block_dim_z;
        __u32 blocks = MULTIPROCESSORS * 2;

        if (threads <= 512)
                blocks *= 2;
        if (threads <= 256)
                blocks *= 2;
        if (threads <= 128)
                blocks *= 2;
        if (threads <= 64)
                blocks *= 2;
        return blocks;
}

SEC("gpu/exit.block")
int end_tail(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = all_counters();
        __u32 *done, blocks;
        __u64 gridid;

        if (!c)
                return 0;
        gridid = ctx->gridid;
        blocks = blocks_of(ctx);
        done = &c->blocks_done[gridid % DEVICE_GRIDS];
        if (block_index(ctx) + resident(ctx) < blocks) {
                __sync_fetch_and_add(done, 1);
                return 0;
        }
        asm volatile(""); /* else the compiler makes one atomic of the two */
        if (__sync_fetch_and_add(done, 1) + 1 != blocks)
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
                __sync_fetch_and_add(&c->blocks_done[ctx->gridid % DEVICE_GRIDS], 1);
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
