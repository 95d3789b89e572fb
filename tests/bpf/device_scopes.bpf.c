/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * For device_scopes_test: one program per scope, each counting who ran it, one with
 * small and large stacks that are indexed, of which the large one must lie in memory, and one that
 * asks its warp.
 */
#include <device/gpuobs_helpers.h>

#include "device_scopes.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct scope_counts);
        __uint(max_entries, SCOPE_ENTRIES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counts SEC(".maps");

static __always_inline void count(struct gpuobs_kernel_ctx *ctx, __u32 scope)
{
        struct scope_counts *c = bpf_map_lookup_elem(&counts, &scope);

        if (!c)
                return;
        __sync_fetch_and_add(&c->runs, 1);
        __sync_fetch_and_or(&c->lanes, 1ULL << ctx->laneid);
        __sync_fetch_and_add(&c->active, __builtin_popcountll(ctx->active_mask));
        __sync_fetch_and_add(&c->threads, ctx->block_dim_x * ctx->block_dim_y * ctx->block_dim_z);
        __sync_fetch_and_add(&c->position,
                             ctx->thread_x + 100 * ctx->thread_y + 10000 * ctx->thread_z +
                                     1000000 * (ctx->block_x + ctx->block_y + ctx->block_z));
        if (bpf_get_smp_processor_id() == ctx->smid)
                __sync_fetch_and_add(&c->same_smid, 1);
        __sync_fetch_and_add(&c->warps, 1ULL << (8 * (ctx->warpid & 7)));
}

SEC("gpu/entry.grid")
int scope_grid(struct gpuobs_kernel_ctx *ctx)
{
        count(ctx, SCOPE_GRID);
        return 0;
}

SEC("gpu/entry")
int scope_block(struct gpuobs_kernel_ctx *ctx)
{
        count(ctx, SCOPE_BLOCK);
        return 0;
}

SEC("gpu/exit.warp")
int scope_warp(struct gpuobs_kernel_ctx *ctx)
{
        count(ctx, SCOPE_WARP);
        return 0;
}

SEC("gpu/exit.thread")
int scope_thread(struct gpuobs_kernel_ctx *ctx)
{
        count(ctx, SCOPE_THREAD);
        return 0;
}

/* Which bytes of the grid id are how often there: a histogram in an indexed stack array. */
SEC("gpu/entry.grid")
int stack_array(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = SCOPE_STACK;
        struct scope_counts *c = bpf_map_lookup_elem(&counts, &key);
        __u8 seen[16] = {};
        __u64 rest = ctx->gridid;

        if (!c)
                return 0;
        for (int i = 0; i < 6; i++) {
                __u32 digit = rest & 15;

                seen[digit & 15]++;
                rest >>= 4;
        }
        for (int i = 0; i < 16; i++)
                if (seen[i])
                        __sync_fetch_and_or(&c->lanes, (__u64)seen[i] << (4 * i));
        __sync_fetch_and_add(&c->runs, 1);
        return 0;
}

/* The same in an array as large as it can be in registers, which loops go through. */
SEC("gpu/exit.grid")
int full_array(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = SCOPE_STACK;
        struct scope_counts *c = bpf_map_lookup_elem(&counts, &key);
        __u64 seen[16] = {}, rest = ctx->gridid;

        if (!c)
                return 0;
#pragma clang loop unroll(disable)
        for (int i = 0; i < 6; i++)
                seen[rest >> 4 * i & 15]++;
#pragma clang loop unroll(disable)
        for (int i = 0; i < 16; i++)
                __sync_fetch_and_or(&c->lanes, seen[i] << (4 * i));
        __sync_fetch_and_add(&c->runs, 1);
        return 0;
}

/* The same in an array that is too large for registers. */
SEC("gpu/entry.grid")
int wide_array(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = SCOPE_STACK;
        struct scope_counts *c = bpf_map_lookup_elem(&counts, &key);
        __u64 seen[32] = {}, rest = ctx->gridid;

        if (!c)
                return 0;
        for (int i = 0; i < 6; i++)
                seen[2 * (rest >> 4 * i & 15)]++;
        for (int i = 0; i < 16; i++)
                __sync_fetch_and_or(&c->lanes, seen[2 * i] << (4 * i));
        __sync_fetch_and_add(&c->runs, 1);
        return 0;
}

/* What lanes know together, counted by the first lane of each warp, after they have been apart. */
SEC("gpu/exit.thread")
int warp_wide(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = SCOPE_WARP_WIDE, lane = ctx->laneid, odd;
        struct scope_counts *c = bpf_map_lookup_elem(&counts, &key);
        volatile __u32 number = lane;

        if (!c)
                return 0;
        if (lane & 1)
                number = lane + 100;
        odd = gpuobs_warp_ballot(number >= 100);
        __u32 sum = gpuobs_warp_sum(number), most = gpuobs_warp_max(number);
        __u32 least = gpuobs_warp_min(number + 5), all = gpuobs_warp_and(number | 64);
        __u32 any = gpuobs_warp_or(number), parity = gpuobs_warp_xor(number);

        if (lane != 0)
                return 0;
        __sync_fetch_and_add(&c->runs, 1);
        __sync_fetch_and_or(&c->lanes, odd);
        __sync_fetch_and_add(&c->active, sum);
        __sync_fetch_and_add(&c->threads, most);
        __sync_fetch_and_add(&c->position, least);
        __sync_fetch_and_add(&c->same_smid, all);
        __sync_fetch_and_add(&c->warps, any + parity);
        __sync_fetch_and_add(&c->pad,
                             gpuobs_bits(0) + gpuobs_bits(ctx->gridid) + gpuobs_ones(ctx->gridid));
        return 0;
}
