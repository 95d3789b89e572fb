/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * How full warps are.
 *
 * Tells how many warps began with 1 to 32 lanes, and in groups of how many lanes they
 * left. A block whose size is no multiple of 32 begins with a warp that is not full and
 * wastes the rest of it for its whole life. Lanes of a warp that leave in several
 * groups went different ways: an early return for those out of bounds shows as one
 * small group for each row, a loop that lanes leave at different times as many groups.
 *
 * Costs: one lane of each warp, at the beginning and at each exit: the set of active
 * lanes, its size, and one atomic operation that nobody waits for, on words that each
 * multiprocessor has of its own.
 *
 * Misleads: lanes that go different ways and meet again before they leave are not seen.
 * Compilers often let lanes that are done wait for the others, or put an early return
 * under a predicate; what is counted is what the machine does at its exits, not what
 * the source says.
 */
#include "gpuobs_helpers.h"
#include "warp_lanes_abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct warp_lanes);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
} lanes SEC(".maps");

static __always_inline void count(struct gpuobs_kernel_ctx *ctx, enum warp_lanes_where where)
{
        __u32 zero = 0, n = gpuobs_ones(ctx->active_mask);
        struct warp_lanes *l = bpf_map_lookup_elem(&lanes, &zero);

        asm volatile("" : "+r"(n)); /* else the place is computed before n is checked */
        if (!l || n >= WARP_LANES)
                return;
        __sync_fetch_and_add(&l->warps[where][n], 1);
}

SEC("gpu/entry.warp")
int warp_begins(struct gpuobs_kernel_ctx *ctx)
{
        count(ctx, WARP_LANES_ENTRY);
        return 0;
}

SEC("gpu/exit.warp")
int lanes_leave(struct gpuobs_kernel_ctx *ctx)
{
        count(ctx, WARP_LANES_EXIT);
        return 0;
}
