/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What a device program (eBPF C that runs on the GPU) includes.
 *
 * A program is a function in a section SEC("gpu/entry"), SEC("gpu/exit") (later
 * SEC("gpu/mem")), with an optional scope suffix .grid, .block, .warp, .thread
 * that says which thread runs it: the first thread of the first block, the first
 * thread of each block (default), the lowest active lane of each warp, each thread.
 * Fields of its context are read from the GPU's special registers at the moment
 * of the load; the context cannot be written.
 *
 * bpf_ktime_get_ns() is the GPU clock in ns. Maps carry a placement:
 *     __uint(map_extra, GPUOBS_PLACE_HOST);
 */
#include "../bpf/gpuobs_core.h"
#include <bpf/bpf_helpers.h>
#include "device_abi.h"

enum gpuobs_placement {
        GPUOBS_PLACE_HOST = 1,   /* a kernel eBPF map mapped into the process, seen by GPU and CPU */
        GPUOBS_PLACE_DEVICE = 2, /* GPU memory of the process's context */
};

/* Context of gpu/entry and gpu/exit programs. */
struct gpuobs_kernel_ctx {
        __u32 block_x, block_y, block_z;             /* blockIdx */
        __u32 grid_x, grid_y, grid_z;                /* gridDim, blocks */
        __u32 thread_x, thread_y, thread_z;          /* threadIdx */
        __u32 block_dim_x, block_dim_y, block_dim_z; /* blockDim, threads */
        __u64 gridid;                                /* %gridid: per-context launch number */
        __u32 kernel_id;                             /* given by the agent, per process */
        __u32 smid;
        __u32 warpid;
        __u32 laneid;
        __u32 active_mask;
        __u32 pad;
};
_Static_assert(sizeof(struct gpuobs_kernel_ctx) == 80, "device program context");
