/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What the probes inside the managed-memory driver (nvidia_uvm) and the daemon
 * share. One event for each return of a probed function of the driver. Names of its
 * functions and types: NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-uvm,
 * releases 535 to 595.
 */
#include "../gpuobs_types.h"

/* Where in the driver. */
enum uvm_point {
        UVM_POINT_BATCH,    /* a batch of GPU faults was dealt with */
        UVM_POINT_PREFETCH, /* it was decided what to bring along */
        UVM_POINT_PICK,     /* a piece of GPU memory was chosen to be emptied */
        UVM_POINT_EVICT,    /* a block of virtual memory was moved out of it */
        UVM_POINT_MOVE,     /* a block's pages were made resident somewhere */
        UVM_POINT_COUNT,
};

/* What a probe wants of a function's arguments; which one it is, the driver's BTF says. */
enum uvm_role {
        UVM_ROLE_GPU,
        UVM_ROLE_FAULTS, /* the batch */
        UVM_ROLE_BLOCK,
        UVM_ROLE_PROCESSOR, /* where memory goes */
        UVM_ROLE_REGION,    /* pages of the block */
        UVM_ROLE_HINT,      /* where the decision is put */
        UVM_ROLE_CHUNK,
        UVM_ROLE_ASKER, /* who wants memory */
        UVM_ROLE_CAUSE,
        UVM_ROLE_COUNT,
};

#define UVM_ARGUMENT_NONE 0xff
#define UVM_ARGUMENTS_MAX 12 /* later ones are not looked at */

/* Whose field `uuid` the argument of UVM_ROLE_GPU leads to. */
enum uvm_gpu_type {
        UVM_GPU_PARENT, /* struct uvm_parent_gpu_struct */
        UVM_GPU_PLAIN,  /* struct uvm_gpu_struct */
};

enum uvm_probe_has {
        UVM_PROBE_HAS_BLOCK = 1,   /* start, end */
        UVM_PROBE_HAS_TGID = 2,    /* whose block */
        UVM_PROBE_HAS_UUID = 4,    /* which GPU */
        UVM_PROBE_HAS_FAULTS = 8,  /* faults, duplicates, distinct, batch */
        UVM_PROBE_HAS_REGION = 16, /* first, outer */
        UVM_PROBE_HAS_PROCESSOR = 32,
        UVM_PROBE_HAS_HINT = 64,   /* chosen, pages */
        UVM_PROBE_HAS_CHUNK = 128, /* physical, state */
        UVM_PROBE_HAS_CAUSE = 256, /* or who wants memory, of a pick */
};

#define UVM_PROBE_PAGES 512 /* of 4 KiB in a block */

struct uvm_probe_event {
        __u64 enter_ns;
        __u64 start; /* virtual addresses of the block: first byte, and last */
        __u64 end;
        __u64 physical;                    /* of a chunk, on its GPU */
        __u64 pages[UVM_PROBE_PAGES / 64]; /* a bit for each that is to be brought along */
        __u32 duration_ns;                 /* 4.29 s at most */
        __u32 tgid;                        /* in the initial pid namespace */
        __u32 status;                      /* NV_STATUS it returned; of a decision: 0 */
        __u32 faults;
        __u32 duplicates;
        __u32 distinct;
        __u32 batch;
        __u32 processor; /* 0: CPU */
        __u32 chosen;    /* processor that pages are to be brought to; none: not processor */
        __u32 state;     /* the driver's number */
        __u32 cause;     /* the driver's number */
        __u16 first;     /* pages of the block: first, and the one after the last */
        __u16 outer;
        __u8 uuid[16];
        __u16 has; /* enum uvm_probe_has */
        __u8 point;
        __u8 pad[5];
};
_Static_assert(sizeof(struct uvm_probe_event) == 168, "no hole");

/* Events that were not written, per CPU. */
enum uvm_probe_loss {
        UVM_PROBE_LOSS_RING,   /* the ring buffer was full */
        UVM_PROBE_LOSS_THREAD, /* no memory for the thread's state, or calls too deep in each other
                                */
        UVM_PROBE_LOSS_COUNT,
};

/*
 * What the driver's numbers mean. They are not the same in all releases: the daemon
 * knows them by their names in BTF.
 */
enum uvm_cause {
        UVM_CAUSE_NONE,
        UVM_CAUSE_FAULT,
        UVM_CAUSE_FATAL_FAULT, /* of the kind that cannot be replayed */
        UVM_CAUSE_ACCESS_COUNTER,
        UVM_CAUSE_PREFETCH,
        UVM_CAUSE_EVICTION,
        UVM_CAUSE_TOOLS,
        UVM_CAUSE_MIGRATE,
        UVM_CAUSE_RANGE_GROUP,
        UVM_CAUSE_HINT,
        UVM_CAUSE_ALLOCATION,          /* of a pick: the driver itself wants memory */
        UVM_CAUSE_PHYSICAL_ALLOCATION, /* ... memory outside it, cuMemAlloc, say */
        UVM_CAUSE_COUNT,
};

enum uvm_chunk_state {
        UVM_CHUNK_UNKNOWN,
        UVM_CHUNK_FREE,
        UVM_CHUNK_SPLIT,
        UVM_CHUNK_PINNED,
        UVM_CHUNK_ALLOCATED,
        UVM_CHUNK_STATE_COUNT,
};
