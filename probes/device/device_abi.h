/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * The shared start/end map: an mmapable eBPF array of DEVICE_RING_ENTRIES
 * records of 32 bytes, one per process. Written by the GPU with posted stores
 * (no fence, no host atomic), read by the daemon through its mapping and by
 * kernel eBPF through map lookups.
 *
 * The n-th record of the process (n from 0, taken from a counter in GPU memory)
 * goes to slot n % DEVICE_RING_ENTRIES. Its four 8-byte words may become
 * visible in any order, so the last one seals the others:
 *
 *     check = (n + 1) ^ time_ns ^ (grid * DEVICE_SEAL_GRID) ^ (who * DEVICE_SEAL_WHO)
 *
 * A reader that expects record n accepts the slot when device_record_index()
 * gives n; a slot whose index is n + k * DEVICE_RING_ENTRIES (k >= 1) has been
 * overwritten: k * DEVICE_RING_ENTRIES records at least were lost. Anything
 * else is not yet written, torn, or garbage: try again later.
 *
 * The process can write anything here. Treat it as hostile.
 */
#include "../gpuobs_types.h"

#define DEVICE_RING_ENTRIES 65536
#define DEVICE_RING_BYTES   (DEVICE_RING_ENTRIES * 32)

/*
 * Where the process maps the array so that compiled programs are the same in
 * every process. MAP_FIXED_NOREPLACE; the agent refuses if it is taken.
 */
#define DEVICE_RING_ADDRESS 0x6f0000000000ULL

#define DEVICE_SEAL_GRID 0x9e3779b97f4a7c15ULL
#define DEVICE_SEAL_WHO  0xc2b2ae3d27d4eb4fULL

enum device_record_type {
        DEVICE_RECORD_START = 1, /* block 0 of the grid began */
        DEVICE_RECORD_END = 2,   /* the last block's leader thread ended */
};

struct device_record {
        __u64 time_ns; /* GPU clock (%globaltimer, PTIMER) */
        __u64 grid;    /* bits 0..47 %gridid, 48..55 enum device_record_type */
        __u64 who;     /* bits 0..31 kernel id given by the agent, 32..47 %smid */
        __u64 check;   /* the seal, see above */
};
_Static_assert(sizeof(struct device_record) == 32, "device record is 32 bytes");

#define DEVICE_RECORD_GRIDID(r) ((r)->grid & 0xffffffffffffULL)
#define DEVICE_RECORD_TYPE(r)   ((__u8)((r)->grid >> 48))
#define DEVICE_RECORD_KERNEL(r) ((__u32)(r)->who)
#define DEVICE_RECORD_SMID(r)   ((__u16)((r)->who >> 32))

/* Position n of a record in the order of the process, from its seal; ~0 for an all-zero slot. */
static inline __u64 device_record_index(const struct device_record *r)
{
        return (r->check ^ r->time_ns ^ (r->grid * DEVICE_SEAL_GRID) ^ (r->who * DEVICE_SEAL_WHO)) -
               1;
}

/*
 * Per-process counters in GPU memory (placement device): head counts records,
 * blocks_done[gridid % DEVICE_GRIDS] the blocks of a grid that ended; the last
 * one resets it.
 */
#define DEVICE_GRIDS 16384

struct device_counters {
        __u64 head;
        __u64 pad[15]; /* keep the hot counter on its own lines */
        __u32 blocks_done[DEVICE_GRIDS];
};
_Static_assert(sizeof(struct device_counters) == 128 + 4 * DEVICE_GRIDS, "device counters");

/* Where a map of a device program lives: __uint(map_extra, ...) in its declaration. */
enum gpuobs_placement {
        GPUOBS_PLACE_HOST = 1, /* a kernel eBPF map mapped into the process, seen by GPU and CPU */
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
