/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Loops, a hash, a division and votes at exits, where machine code may use neither the
 * kernel's uniform registers nor its barriers, and a stack that is indexed, which it does not have.
 * What is counted does not depend on which lanes leave together.
 */
#include <device/gpuobs_helpers.h>

#include "device_loops.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct loop_counts);
        __uint(max_entries, LOOP_ENTRIES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} counts SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __type(key, __u64);
        __type(value, __u64);
        __uint(max_entries, LOOP_KEYS);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} table SEC(".maps");

static __always_inline void count(__u32 program, __u64 number)
{
        struct loop_counts *c = bpf_map_lookup_elem(&counts, &program);

        if (!c)
                return;
        __sync_fetch_and_add(&c->runs, 1);
        __sync_fetch_and_add(&c->sum, number);
}

SEC("gpu/exit.warp")
int exit_loop(struct gpuobs_kernel_ctx *ctx)
{
        count(LOOP_WARP, (__u64)gpuobs_ones(ctx->active_mask) * loop_go_round(ctx->block_x));
        return 0;
}

SEC("gpu/exit.thread")
int exit_loop_thread(struct gpuobs_kernel_ctx *ctx)
{
        count(LOOP_THREAD, loop_go_round(ctx->thread_x));
        return 0;
}

SEC("gpu/exit.warp")
int exit_divide(struct gpuobs_kernel_ctx *ctx)
{
        count(LOOP_DIVIDE,
              gpuobs_ones(ctx->active_mask) * (LOOP_NUMBER / (ctx->block_x + LOOP_DIVISOR)));
        return 0;
}

/* How many threads of each number there are: as many as blocks. */
SEC("gpu/exit.thread")
int exit_hash(struct gpuobs_kernel_ctx *ctx)
{
        __u64 key = ctx->thread_x, zero = 0, *v = bpf_map_lookup_elem(&table, &key);

        if (!v) {
                bpf_map_update_elem(&table, &key, &zero, BPF_NOEXIST);
                v = bpf_map_lookup_elem(&table, &key);
        }
        if (v)
                __sync_fetch_and_add(v, 1);
        return 0;
}

/*
 * Lanes go different ways and have to meet again: the first of those that leave together tells
 * how many odd lanes there are among them, and the sum of all their numbers.
 */
SEC("gpu/exit.thread")
int exit_vote(struct gpuobs_kernel_ctx *ctx)
{
        volatile __u32 number = ctx->laneid;
        __u32 odd, sum;

        if (ctx->laneid & 1)
                number = loop_go_round(ctx->thread_x) & 0xffff;
        odd = gpuobs_warp_ballot(ctx->laneid & 1);
        sum = gpuobs_warp_sum(number);
        if (ctx->active_mask & ((1u << ctx->laneid) - 1))
                return 0;
        count(LOOP_VOTE, (__u64)gpuobs_ones(odd) << 40 | sum);
        return 0;
}

static __always_inline void weigh(struct gpuobs_kernel_ctx *ctx, __u32 program)
{
        count(program, loop_weigh_thread(ctx->block_x, ctx->thread_x));
}

SEC("gpu/entry.thread")
int entry_stack(struct gpuobs_kernel_ctx *ctx)
{
        weigh(ctx, LOOP_ENTRY_STACK);
        return 0;
}

SEC("gpu/exit.thread")
int exit_stack(struct gpuobs_kernel_ctx *ctx)
{
        weigh(ctx, LOOP_EXIT_STACK);
        return 0;
}
