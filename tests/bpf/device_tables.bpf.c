/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* Constants that are read at places only known when the program runs. */
#include <device/gpuobs_helpers.h>

#include "device_tables.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, TABLES_COUNTERS);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counts SEC(".maps");

const volatile __u16 weights[8] = {1, 20, 300, 4000, 5, 60, 700, 8000};
const volatile __s32 triangle[4][4] = {{-1, 0, 0, 0}, {-2, 3, 0, 0}, {4, -5, 6, 0}, {7, 8, -9, 10}};
const volatile char word[TABLES_WORD_MAX] = TABLES_WORD;
const volatile __u8 next[16] = TABLES_NEXT;
const volatile __u32 known = 3; /* read where it is known: no load */

static void count(__u32 which, __u64 amount)
{
        __u64 *v = bpf_map_lookup_elem(&counts, &which);

        if (v)
                __sync_fetch_and_add(v, amount);
}

SEC("gpu/entry.thread")
int weigh(struct gpuobs_kernel_ctx *ctx)
{
        count(TABLES_WEIGHT, weights[ctx->thread_x & 7] * known);
        return 0;
}

SEC("gpu/entry.block")
int cells(struct gpuobs_kernel_ctx *ctx)
{
        __u32 row = ctx->block_x & 3, column = ctx->block_y & 3;

        count(TABLES_TRIANGLE, (__s64)triangle[row][column]);
        return 0;
}

SEC("gpu/entry.grid")
int letters(struct gpuobs_kernel_ctx *ctx)
{
        __u64 sum = 0;

        for (__u32 i = 0; i < TABLES_WORD_MAX && word[i]; i++)
                sum += (__u8)word[i];
        count(TABLES_LETTERS, sum);
        return 0;
}

SEC("gpu/exit.warp")
int weigh_exits(struct gpuobs_kernel_ctx *ctx)
{
        count(TABLES_EXITS, weights[ctx->block_x & 7]);
        return 0;
}

/* Each place says where the next one is. */
SEC("gpu/exit.block")
int walk(struct gpuobs_kernel_ctx *ctx)
{
        __u32 at = ctx->block_x & 15;

#pragma unroll
        for (int i = 0; i < TABLES_STEPS; i++)
                at = next[at & 15];
        count(TABLES_STEPPED, at);
        return 0;
}

/* What the table says of a block is the same for all lanes, so they may be asked together. */
SEC("gpu/entry.thread")
int together(struct gpuobs_kernel_ctx *ctx)
{
        if (weights[ctx->block_x & 7] > 100 && gpuobs_warp_sum(1) && ctx->laneid == 0)
                count(TABLES_ALIKE, 1);
        return 0;
}

SEC("gpu/mem")
int weigh_accesses(struct gpuobs_mem_ctx *ctx)
{
        count(TABLES_EXITS, weights[ctx->lanes & 7]);
        return 0;
}
