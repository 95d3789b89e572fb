/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * How many bytes of global memory each kernel accesses.
 *
 * Tells, for each kernel, how many bytes its threads loaded, stored and changed by atomic
 * operations, and how many sectors of 32 bytes that took. Bytes by sectors is how much of
 * what moves between the caches is used: 32 of 32 where neighbours access neighbours, 4 of
 * 32 where each thread of a warp reads a word of a line of its own.
 *
 * Costs: at each access, in all lanes, what it takes to count sectors (a comparison between
 * lanes and a vote); in one lane a load of the kernel's place in the table and two atomic
 * operations that nobody waits for, on words that the multiprocessor has of its own. A
 * kernel that does little but access memory becomes several times as slow.
 *
 * Misleads: this is what the program asks for, not what the memory delivers: caches answer
 * a part of it, and a sector that two warps touch counts twice. Generic addresses count in
 * full, also when they are of shared memory. Bulk copies, tensor descriptors, textures and
 * local memory do not count. Of more than MEM_BYTES_KERNELS kernels, those that find no
 * place are counted in `requests_without_place` only.
 */
#include "gpuobs_helpers.h"
#include "mem_bytes_abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct mem_bytes);
        __uint(max_entries, MEM_BYTES_KERNELS);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
} kernels SEC(".maps");

volatile __u64 requests_without_place;

static __always_inline void count(struct gpuobs_mem_ctx *ctx, struct mem_bytes *kernel)
{
        __u64 bytes = (__u64)ctx->size * ctx->lanes;
        __u64 *sum = &kernel->atomic;

        if (ctx->kind == GPUOBS_ACCESS_LOAD)
                sum = &kernel->loaded;
        else if (ctx->kind == GPUOBS_ACCESS_STORE)
                sum = &kernel->stored;
        __sync_fetch_and_add(sum, bytes);
        __sync_fetch_and_add(&kernel->sectors, gpuobs_sectors());
        if (ctx->space == GPUOBS_SPACE_GENERIC)
                __sync_fetch_and_add(&kernel->generic, bytes);
}

SEC("gpu/mem.warp")
int global_access(struct gpuobs_mem_ctx *ctx)
{
        struct mem_bytes *kernel;

        if (ctx->space != GPUOBS_SPACE_GLOBAL && ctx->space != GPUOBS_SPACE_GENERIC)
                return 0;
        kernel = id_table_find(&kernels, MEM_BYTES_KERNELS, ctx->kernel.kernel_id);
        if (kernel)
                count(ctx, kernel);
        else
                __sync_fetch_and_add(&requests_without_place, 1);
        return 0;
}
