/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* For device_twice_test: settings that come from the CPU, counters that go there. */
#include <device/gpuobs_helpers.h>

#include "device_twice.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct twice_limits);
        __uint(max_entries, TWICE_LIMITS);
        __uint(map_extra, GPUOBS_PLACE_DUPLICATE | GPUOBS_SETTINGS);
} limits SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 2);
        __uint(map_extra, GPUOBS_PLACE_DUPLICATE | GPUOBS_SUM | GPUOBS_PER_SM);
} totals SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, struct twice_column);
        __type(value, struct twice_sums);
        __uint(max_entries, 2 * TWICE_LIMITS);
        __uint(map_extra, GPUOBS_PLACE_DUPLICATE | GPUOBS_SUM);
} columns SEC(".maps");

SEC("gpu/entry.block")
int add_up(struct gpuobs_kernel_ctx *ctx)
{
        struct twice_column key = {.column = ctx->block_x & (TWICE_LIMITS - 1),
                                   .threads = ctx->block_dim_x};
        struct twice_sums none = {}, *s;

        bpf_map_update_elem(&columns, &key, &none, BPF_NOEXIST);
        s = bpf_map_lookup_elem(&columns, &key);
        if (!s)
                return 0;
        __sync_fetch_and_add(&s->blocks, 1);
        __sync_fetch_and_add(&s->numbers, ctx->block_x);
        return 0;
}

/* The first column of small blocks begins anew. */
SEC("gpu/exit.grid")
int drop(struct gpuobs_kernel_ctx *ctx)
{
        struct twice_column key = {.threads = 32};

        bpf_map_delete_elem(&columns, &key);
        return 0;
}

/* How many blocks lie within the limits of their row. */
SEC("gpu/entry.block")
int within(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->block_x & (TWICE_LIMITS - 1), in = 0, out = 1;
        struct twice_limits *l = bpf_map_lookup_elem(&limits, &key);
        __u64 *count;

        if (!l)
                return 0;
        if (ctx->block_x >= l->least && ctx->block_x <= l->most)
                count = bpf_map_lookup_elem(&totals, &in);
        else
                count = bpf_map_lookup_elem(&totals, &out);
        if (count)
                __sync_fetch_and_add(count, 1);
        return 0;
}
