/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Whether the multiprocessors share the work evenly.
 *
 * Tells, for each multiprocessor: how many blocks ran there, the sum of their times,
 * and how long it was busy, which means that at least one block was there. The view
 * makes an imbalance of it: how much longer the busiest was busy than the average. A
 * grid whose last wave fills part of the GPU, blocks that take unequal times, and a
 * persistent kernel with fewer blocks than multiprocessors show there.
 *
 * Costs: one leader per block, at its beginning and at its end: an atomic operation
 * whose result is waited for (a round trip to the second-level cache, half a
 * microsecond), and three that are not. Nothing per thread. The waiting is what
 * matters, and only where blocks take a few microseconds.
 *
 * Misleads: a block is there, not running: one that waits at a barrier or for memory
 * is busy. Time slicing counts for whoever is switched out. Kernels that are probed at
 * the entry but not at the exit (the coverage list says which) never leave: `resident`
 * stays above 0 when nothing runs, and times are then too large. Times are ends of
 * leaders: the other warps of a block may stay a little longer.
 */
#include "gpuobs_device.h"
#include "sm_balance_abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct sm_balance);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
} multiprocessors SEC(".maps");

static __always_inline struct sm_balance *this_one(void)
{
        __u32 zero = 0;

        return bpf_map_lookup_elem(&multiprocessors, &zero);
}

/*
 * The clock is read after a block is counted in, and before it is counted out: a
 * stretch then ends no later than the next one begins, and no time is counted twice.
 */
SEC("gpu/entry.block")
int sm_block_begins(struct gpuobs_kernel_ctx *ctx)
{
        struct sm_balance *sm = this_one();
        __u64 others, now_ns;

        if (!sm)
                return 0;
        __sync_fetch_and_add(&sm->blocks, 1);
        others = __sync_fetch_and_add(&sm->resident, 1);
        now_ns = bpf_ktime_get_ns();
        __sync_fetch_and_add(&sm->block_ns, -now_ns);
        sm->last_ns = now_ns;
        if (!others)
                __sync_fetch_and_add(&sm->busy_ns, -now_ns);
        return 0;
}

SEC("gpu/exit.block")
int sm_block_ends(struct gpuobs_kernel_ctx *ctx)
{
        struct sm_balance *sm = this_one();
        __u64 now_ns = bpf_ktime_get_ns();

        if (!sm)
                return 0;
        __sync_fetch_and_add(&sm->block_ns, now_ns);
        sm->last_ns = now_ns;
        if (__sync_fetch_and_add(&sm->resident, -1) == 1)
                __sync_fetch_and_add(&sm->busy_ns, now_ns);
        return 0;
}
