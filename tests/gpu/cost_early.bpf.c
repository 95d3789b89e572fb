/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * What most blocks of a large grid do at their exit (probes/device/launch.bpf.c), step by
 * step, for device_cost to tell which step costs what. All count without asking.
 *
 *   early_flat     in a bank chosen by x of the block's index
 *   early_sm       in a bank chosen by the multiprocessor
 *   early_index    in a bank chosen by the block's whole index
 *   early_far      the same, of blocks that are far from the grid's end
 *   early_context  and at a place that is the context's as well
 *   early_ahead    the same, the place asked for before it is known that it is needed
 */
#include "cost_maps.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FAR 4608 /* blocks */

static __always_inline int count(__u32 bank, __u32 place)
{
        struct device_counters *c = all_counters();

        if (c)
                __sync_fetch_and_add(&c->early_done[bank % DEVICE_BANKS][place % DEVICE_GRIDS], 1);
        return 0;
}

SEC("gpu/exit.block")
int early_flat(struct gpuobs_kernel_ctx *ctx)
{
        return count(ctx->block_x, ctx->gridid);
}

SEC("gpu/exit.block")
int early_sm(struct gpuobs_kernel_ctx *ctx)
{
        return count(ctx->smid, ctx->gridid);
}

SEC("gpu/exit.block")
int early_index(struct gpuobs_kernel_ctx *ctx)
{
        return count(block_index(ctx), ctx->gridid);
}

SEC("gpu/exit.block")
int early_far(struct gpuobs_kernel_ctx *ctx)
{
        __u32 index = block_index(ctx);

        return blocks_of(ctx) - index > FAR ? count(index, ctx->gridid) : 0;
}

SEC("gpu/exit.block")
int early_context(struct gpuobs_kernel_ctx *ctx)
{
        __u32 index = block_index(ctx);

        return blocks_of(ctx) - index > FAR ? count(index, DEVICE_PLACE(ctx->gridid, ctx->context))
                                            : 0;
}

SEC("gpu/exit.block")
int early_ahead(struct gpuobs_kernel_ctx *ctx)
{
        __u32 index = block_index(ctx), left = blocks_of(ctx) - index;
        __u32 place = DEVICE_PLACE(ctx->gridid, ctx->context);

        asm volatile("" : "+r"(place)); /* not only where it is needed */
        return left > FAR ? count(index, place) : 0;
}
