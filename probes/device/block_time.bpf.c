/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * How long the blocks of each kernel take.
 *
 * Tells, for each kernel, a histogram of the times of its blocks in powers of two. One
 * narrow hill: all blocks do the same. Two hills: two kinds of work, or blocks that had
 * to share their multiprocessor. A long tail: a few blocks keep the grid from ending.
 *
 * Costs: at a block's beginning a store that nobody waits for; at its end one load of
 * what was stored and one of the kernel's place in the table (both from the
 * second-level cache, the waiting overlaps), and two atomic operations that are not
 * waited for. Blocks of one kernel count in the same few words: a GPU does about one
 * such operation a nanosecond, which many blocks below a microsecond can reach.
 *
 * Misleads: times are of the block's first thread; other warps may end later. They
 * include what the block was switched out (time slicing, debuggers). Blocks that were
 * running when the program came, and blocks of kernels that are not probed at both
 * ends, do not count. Of more than BLOCK_TIME_KERNELS kernels, or of those that find no
 * place in the table, the blocks are counted in `blocks_without_place` only.
 */
#include "block_time_abi.h"
#include "gpuobs_helpers.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_WARP);
} began SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct block_time);
        __uint(max_entries, BLOCK_TIME_KERNELS);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} kernels SEC(".maps");

volatile __u64 blocks_without_place;

SEC("gpu/entry.block")
int block_begins(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *began_ns = bpf_map_lookup_elem(&began, &zero);

        if (began_ns)
                *began_ns = bpf_ktime_get_ns();
        return 0;
}

static __always_inline void count(struct gpuobs_kernel_ctx *ctx, __u64 time_ns)
{
        struct block_time *kernel = id_table_find(&kernels, BLOCK_TIME_KERNELS, ctx->kernel_id);
        __u32 bucket = gpuobs_bits(time_ns);

        if (!kernel) {
                __sync_fetch_and_add(&blocks_without_place, 1);
                asm volatile(""); /* else the compiler makes one atomic of this and the last */
                return;
        }
        if (bucket > BLOCK_TIME_BUCKETS - 1)
                bucket = BLOCK_TIME_BUCKETS - 1;
        __sync_fetch_and_add(&kernel->sum_ns, time_ns);
        __sync_fetch_and_add(&kernel->buckets[bucket], 1);
}

SEC("gpu/exit.block")
int block_ends(struct gpuobs_kernel_ctx *ctx)
{
        __u64 now_ns = bpf_ktime_get_ns(), then_ns;
        __u32 zero = 0;
        __u64 *began_ns = bpf_map_lookup_elem(&began, &zero);

        if (!began_ns)
                return 0;
        then_ns = *began_ns;
        *began_ns = 0; /* the place's next block may be of a kernel that is probed here only */
        if (then_ns)
                count(ctx, now_ns - then_ns);
        return 0;
}
