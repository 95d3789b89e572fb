/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Counts accesses of memory by kind and space, once per warp and once per thread, and with
 * what machine code has to be careful with: votes, loops, a hash, a stack that is indexed.
 */
#include <device/gpuobs_helpers.h>

#include "device_loops.h"
#include "device_mem.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct mem_counts);
        __uint(max_entries, MEM_ENTRIES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counts SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u64);
        __type(value, __u64);
        __uint(max_entries, MEM_TABLE_KEYS);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} table SEC(".maps");

static __always_inline struct mem_counts *find(struct gpuobs_mem_ctx *ctx)
{
        __u32 index = MEM_INDEX(ctx->kind, ctx->space);

        return bpf_map_lookup_elem(&counts, &index);
}

SEC("gpu/mem")
int mem_warp(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);

        if (!c)
                return 0;
        __sync_fetch_and_add(&c->requests, 1);
        __sync_fetch_and_add(&c->lanes, ctx->lanes);
        __sync_fetch_and_add(&c->sectors, gpuobs_sectors());
        __sync_fetch_and_add(&c->lines, gpuobs_lines());
        return 0;
}

SEC("gpu/mem.thread")
int mem_thread(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);

        if (!c)
                return 0;
        __sync_fetch_and_add(&c->accesses, 1);
        __sync_fetch_and_add(&c->bytes, ctx->size);
        __sync_fetch_and_add(&c->sum, ctx->address);
        __sync_fetch_and_add(&c->mix, mem_mix(ctx->address));
        return 0;
}

SEC("gpu/mem.thread")
int mem_vote(struct gpuobs_mem_ctx *ctx)
{
        __u32 odd = gpuobs_warp_ballot(ctx->address & 4);
        __u32 sum = gpuobs_warp_sum(ctx->address >> 2 & 1);
        struct mem_counts *c = find(ctx);

        if (!c || ctx->kernel.active_mask & ((1u << ctx->kernel.laneid) - 1))
                return 0;
        __sync_fetch_and_add(&c->odd, gpuobs_ones(odd));
        __sync_fetch_and_add(&c->odd_sum, sum);
        return 0;
}

SEC("gpu/mem")
int mem_loop(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);

        if (c)
                __sync_fetch_and_add(&c->rounds,
                                     (__u64)ctx->lanes * loop_go_round(ctx->kind + ctx->size));
        return 0;
}

/* Each lane looks for a key of its own. */
SEC("gpu/mem.thread")
int mem_lanes(struct gpuobs_mem_ctx *ctx)
{
        __u64 key = MEM_TABLE_LANES + ctx->kernel.laneid % MEM_TABLE_LANES;
        __u64 *v = bpf_map_lookup_elem(&table, &key);

        if (v)
                __sync_fetch_and_add(v, 1);
        return 0;
}

SEC("gpu/mem")
int mem_hash(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);
        __u64 key = ctx->kind, *v = bpf_map_lookup_elem(&table, &key);

        if (c)
                __sync_fetch_and_add(&c->found, ctx->lanes * (v ? *v : 1));
        return 0;
}

SEC("gpu/mem")
int mem_stack(struct gpuobs_mem_ctx *ctx)
{
        struct mem_counts *c = find(ctx);
        __u32 number = mem_digits(ctx->kind, ctx->size);

        if (c)
                __sync_fetch_and_add(&c->digits,
                                     (__u64)ctx->lanes * loop_weigh_digits(number, MEM_DIGITS));
        return 0;
}
