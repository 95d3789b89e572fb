/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* For device_maps_test: every kind of map, and variables, used by many threads. */
#include <device/gpuobs_helpers.h>

#include "device_maps.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define COUNTERS(name, spread)                                                                     \
        struct {                                                                                   \
                __uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
                __type(key, __u32);                                                                \
                __type(value, __u64);                                                              \
                __uint(max_entries, MAPS_COUNTERS);                                                \
                __uint(map_extra, GPUOBS_PLACE_DEVICE | (spread));                                 \
        } name SEC(".maps")

COUNTERS(per_sm, GPUOBS_PER_SM);
COUNTERS(per_warp, GPUOBS_PER_WARP);
COUNTERS(per_thread, GPUOBS_PER_THREAD);

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u64);
        __type(value, struct maps_value);
        __uint(max_entries, MAPS_HASH_ENTRIES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} table SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, GPUOBS_HISTOGRAM_BUCKETS);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} histogram SEC(".maps");

volatile __u64 total, failed;
const volatile __u32 step = 7;

/* Each of its own: no atomic operations where no other thread has the element. */
SEC("gpu/entry.thread")
int count_threads(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->block_y;
        __u64 *of_sm = bpf_map_lookup_elem(&per_sm, &key);
        __u64 *of_thread = bpf_map_lookup_elem(&per_thread, &key);

        if (of_sm)
                __sync_fetch_and_add(of_sm, 1);
        if (of_thread)
                *of_thread += step;
        __sync_fetch_and_add(&total, step);
        gpuobs_histogram(&histogram, ctx->thread_x);
        return 0;
}

SEC("gpu/exit.warp")
int count_warps(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = 1;
        __u64 *of_warp = bpf_map_lookup_elem(&per_warp, &key), value;

        if (!of_warp)
                return 0;
        value = *of_warp + 1;
        bpf_map_update_elem(&per_warp, &key, &value, BPF_ANY);
        return 0;
}

/* Threads that agree in their place in the row count together under one key. */
SEC("gpu/entry.thread")
int fill_table(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = (__u64)ctx->gridid << 32 | ctx->thread_x;
        struct maps_value first = {.last = ctx->gridid, .lane = ctx->laneid, .set = 1};
        struct maps_value *v = bpf_map_lookup_elem(&table, &key);

        if (!v) {
                if (bpf_map_update_elem(&table, &key, &first, BPF_NOEXIST) == -7 /* -E2BIG */)
                        __sync_fetch_and_add(&failed, 1);
                v = bpf_map_lookup_elem(&table, &key);
        }
        if (v)
                __sync_fetch_and_add(&v->count, 1);
        return 0;
}

/* Every second key goes; a key that is gone is not there to be deleted. */
SEC("gpu/exit.thread")
int thin_table(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = (__u64)ctx->gridid << 32 | ctx->thread_x;

        if (ctx->thread_x & 1 && !bpf_map_delete_elem(&table, &key))
                __sync_fetch_and_add(&total, 1);
        return 0;
}

SEC("gpu/exit.grid")
int dice(struct gpuobs_kernel_ctx *ctx)
{
        __u32 a = bpf_get_prandom_u32(), b = bpf_get_prandom_u32();

        if (a != b)
                __sync_fetch_and_add(&total, 1);
        return 0;
}

/* The last to write wins; what was counted before is gone. */
SEC("gpu/exit.grid")
int overwrite(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = ctx->gridid;
        struct maps_value value = {.count = 77, .last = 1, .lane = 2, .set = 3};

        bpf_map_update_elem(&table, &key, &value, BPF_ANY);
        return 0;
}

/* How many blocks of each grid have begun, by grid. */
SEC("gpu/entry.block")
int count_blocks(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = ctx->gridid;
        struct maps_value zero = {}, *v = bpf_map_lookup_elem(&table, &key);

        if (!v) {
                bpf_map_update_elem(&table, &key, &zero, BPF_NOEXIST);
                v = bpf_map_lookup_elem(&table, &key);
        }
        if (v)
                __sync_fetch_and_add(&v->count, 1);
        return 0;
}
