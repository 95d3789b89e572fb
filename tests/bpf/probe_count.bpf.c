/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* Counts that tests know: launches, blocks and threads, in a map of each kind. */
#include <device/gpuobs_device.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 4);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counts SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 2);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
} blocks SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 64);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} kernels SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 8);
        __uint(map_extra, GPUOBS_PLACE_HOST);
} last SEC(".maps");

struct shape {
        __u32 kernel, blocks, threads;
};

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, struct shape);
        __type(value, __u64);
        __uint(max_entries, 64);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} shapes SEC(".maps");

const volatile __u16 weights[8] = {1, 20, 300, 4000, 5, 60, 700, 8000};

volatile __u64 begun = 5; /* at first */
volatile __u64 wide[2048] SEC(".data.wide") = {[0 ... 2047] = -1};

SEC("gpu/entry.grid")
int count_launch(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0, id = ctx->kernel_id;
        __u64 *n = bpf_map_lookup_elem(&counts, &zero), none = 0;

        if (n)
                __sync_fetch_and_add(n, 1);
        __sync_fetch_and_add(&begun, 1);
        bpf_map_update_elem(&kernels, &id, &none, BPF_NOEXIST);
        n = bpf_map_lookup_elem(&kernels, &id);
        if (n)
                __sync_fetch_and_add(n, 1);
        n = bpf_map_lookup_elem(&last, &zero);
        if (n)
                *n = ctx->grid_x;
        return 0;
}

/* By all that a launch is known by here, weighed by a table. */
SEC("gpu/entry.grid")
int count_shape(struct gpuobs_kernel_ctx *ctx)
{
        struct shape key = {ctx->kernel_id, ctx->grid_x, ctx->block_dim_x};
        __u64 *n, none = 0;

        bpf_map_update_elem(&shapes, &key, &none, BPF_NOEXIST);
        n = bpf_map_lookup_elem(&shapes, &key);
        if (n)
                __sync_fetch_and_add(n, weights[ctx->grid_x & 7]);
        return 0;
}

SEC("gpu/entry.block")
int count_block(struct gpuobs_kernel_ctx *ctx)
{
        __u32 one = 1;
        __u64 *n = bpf_map_lookup_elem(&blocks, &one);

        if (n)
                __sync_fetch_and_add(n, 1);
        return 0;
}

/* Lanes of a warp that leave together, counted by one of them. */
SEC("gpu/exit.warp")
int count_warp(struct gpuobs_kernel_ctx *ctx)
{
        __u32 two = 2;
        __u64 *n = bpf_map_lookup_elem(&counts, &two);

        if (n)
                __sync_fetch_and_add(n, 1);
        return 0;
}

SEC("gpu/exit.thread")
int count_thread(struct gpuobs_kernel_ctx *ctx)
{
        __u32 one = 1;
        __u64 *n = bpf_map_lookup_elem(&counts, &one);

        if (n)
                __sync_fetch_and_add(n, 1);
        return 0;
}
