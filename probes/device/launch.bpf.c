/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * When kernels start and end: one START record by the first thread of the first
 * block, one END record by the leader of the block that ends last, both in the
 * process's shared start/end map (device_abi.h).
 *
 * This runs in every kernel of an application, so the leader test comes first
 * (the compiler makes it from the scope), the position of a record comes from a
 * counter in GPU memory, and the record itself is four plain stores to the host
 * that nobody waits for.
 */
#include "gpuobs_device.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_record);
        __uint(max_entries, DEVICE_RING_ENTRIES);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(map_extra, GPUOBS_PLACE_HOST);
} launch_records SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_counters);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} launch_counters SEC(".maps");

static __always_inline struct device_counters *counters(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&launch_counters, &zero);
}

static __always_inline void publish(struct gpuobs_kernel_ctx *ctx, struct device_counters *c,
                                    __u64 time_ns, __u64 type)
{
        __u64 n = __sync_fetch_and_add(&c->head, 1);
        __u64 grid = DEVICE_RECORD_GRID(ctx->gridid, type, ctx->context);
        __u64 who = DEVICE_RECORD_WHO(ctx->kernel_id, ctx->smid, ctx->queue >> DEVICE_QUEUE_SHIFT);
        __u64 seal = time_ns ^ (grid * DEVICE_SEAL_GRID) ^ (who * DEVICE_SEAL_WHO);
        __u32 slot = n % DEVICE_RING_ENTRIES;
        struct device_record *r = bpf_map_lookup_elem(&launch_records, &slot);

        if (!r)
                return;
        r->time_ns = time_ns;
        r->grid = grid;
        r->who = who;
        r->check = seal ^ (n + 1);
}

SEC("gpu/entry.grid")
int launch_start(struct gpuobs_kernel_ctx *ctx)
{
        __u64 now_ns = bpf_ktime_get_ns();
        struct device_counters *c = counters();

        if (c)
                publish(ctx, c, now_ns, DEVICE_RECORD_START);
        return 0;
}

/*
 * Whether this block is the last of its grid to end. A grid of one block needs
 * no counting. The last one leaves the counter at 0 for the next grid with this
 * slot; nothing of the grid runs any more, so a plain store does.
 */
static __always_inline bool last_block(struct gpuobs_kernel_ctx *ctx, struct device_counters *c)
{
        __u64 blocks = (__u64)ctx->grid_x * ctx->grid_y * ctx->grid_z;
        __u32 *done = &c->blocks_done[ctx->gridid % DEVICE_GRIDS];

        if (blocks == 1)
                return true;
        if ((__u64)__sync_fetch_and_add(done, 1) + 1 != blocks)
                return false;
        *done = 0;
        return true;
}

SEC("gpu/exit.block")
int launch_end(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = counters();

        if (c && last_block(ctx, c))
                publish(ctx, c, bpf_ktime_get_ns(), DEVICE_RECORD_END);
        return 0;
}
