/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What the CPU-side eBPF programs send to the daemon through one ring buffer.
 *
 * Every record starts with the u8 `type` at CPU_EVENT_TYPE_OFFSET from its
 * first byte, so that the launch record stays at 64 bytes. All times are
 * CLOCK_MONOTONIC in ns (bpf_ktime_get_ns). Handles are the raw driver API
 * handles of the observed process (its virtual addresses), 0 when absent.
 */
#include "../gpuobs_types.h"

#define CPU_EVENT_TYPE_OFFSET 60
#define CPU_NAME_MAX          2048 /* bytes of a kernel name kept, with the NUL */
#define CPU_CONTEXT_MAX       16384

enum cpu_event_type {
        CPU_EVENT_LAUNCH = 1,   /* struct cpu_launch_event: a kernel launch returned */
        CPU_EVENT_GRAPH_LAUNCH, /* struct cpu_launch_event: func is the graph exec, grid/block 0 */
        CPU_EVENT_OPERATION, /* struct cpu_operation_event: copy, set, alloc, free, synchronise */
        CPU_EVENT_HANDLE,    /* struct cpu_handle_event: a handle came to be or was destroyed */
        CPU_EVENT_PROCESS,   /* struct cpu_process_event: exec, exit, libcuda mapped */
};
/* Added to the type of a launch by the daemon: an agent says that no start record will come. */
#define CPU_EVENT_UNPROBED 0x40

/*
 * One kernel launch, written when the call returns. A call that never returns
 * (the thread is killed in it) leaves a gap in seq.
 */
struct cpu_launch_event {
        __u64 enter_ns;
        __u64 func;        /* CUfunction or CUkernel handle; CUgraphExec for a graph */
        __u64 stream;      /* CUstream handle as passed; 0 legacy default, 1 legacy, 2 per-thread */
        __u32 context;     /* index of the context, see cpu_handle_event; 0 unknown */
        __u32 seq;         /* order of entry among launches of the context, from 1, wraps */
        __u32 duration_ns; /* return - enter, saturated at 2^32-1 */
        __u32 tgid;
        __u32 tid;
        __u32 grid_x; /* blocks; grids of at most 2^31-1 x 65535 x 65535 */
        __u16 grid_y;
        __u16 grid_z;
        __u32 shared_bytes; /* dynamic shared memory */
        __u16 block_x;
        __u16 block_y;
        __u8 type; /* CPU_EVENT_LAUNCH, perhaps | CPU_EVENT_UNPROBED; or CPU_EVENT_GRAPH_LAUNCH */
        __u8 block_z;
        __u16 result; /* CUresult */
};
_Static_assert(sizeof(struct cpu_launch_event) == 64, "launch event is 64 bytes");
_Static_assert(__builtin_offsetof(struct cpu_launch_event, type) == CPU_EVENT_TYPE_OFFSET, "type");

enum cpu_operation {
        CPU_OP_MEMCPY_HTOD = 1,
        CPU_OP_MEMCPY_DTOH,
        CPU_OP_MEMCPY_DTOD,
        CPU_OP_MEMCPY_PEER,
        CPU_OP_MEMCPY_OTHER, /* direction not known from the call */
        CPU_OP_MEMSET,
        CPU_OP_ALLOC,
        CPU_OP_ALLOC_MANAGED,
        CPU_OP_ALLOC_HOST,
        CPU_OP_ALLOC_ASYNC,
        CPU_OP_FREE,
        CPU_OP_SYNC_CONTEXT,
        CPU_OP_SYNC_STREAM,
        CPU_OP_SYNC_EVENT,
        CPU_OP_GRAPH_INSTANTIATE, /* may take one grid id per kernel node; handle = graph exec */
        CPU_OP_MEM_ADVISE,
        CPU_OP_MEM_PREFETCH,
        CPU_OP_CAPTURE_BEGIN, /* launches in the stream go into a graph from here */
        CPU_OP_CAPTURE_END,   /* ... to here; handle = the graph */
        CPU_OP_MAP,           /* virtual memory: a range has memory from here */
        CPU_OP_UNMAP,         /* ... to here; the range may hold several */
};

/*
 * Work other than a launch. launch_seq is the context's last launch seq at
 * entry: the operation lies between launches launch_seq and launch_seq + 1
 * (exactly, if one thread launches). Copies and sets may take grid ids.
 */
struct cpu_operation_event {
        __u64 enter_ns;
        __u64 bytes;   /* 0 when not applicable */
        __u64 address; /* device address acted on or allocated; 0 when not applicable */
        __u64 stream;
        __u64 handle; /* event or graph exec */
        __u32 context;
        __u32 launch_seq;
        __u32 duration_ns;
        __u32 tgid;
        __u32 tid;      /* offset 56 */
        __u8 type;      /* CPU_EVENT_OPERATION */
        __u8 operation; /* enum cpu_operation */
        __u16 result;
};
_Static_assert(sizeof(struct cpu_operation_event) == 64, "operation event is 64 bytes");
_Static_assert(__builtin_offsetof(struct cpu_operation_event, type) == CPU_EVENT_TYPE_OFFSET,
               "type");

enum cpu_handle_kind {
        CPU_HANDLE_MODULE = 1, /* name: file name where there is one */
        CPU_HANDLE_LIBRARY,
        CPU_HANDLE_FUNCTION, /* CUfunction: parent module or kernel; name when looked up by name */
        CPU_HANDLE_KERNEL,   /* CUkernel: parent library, name */
        CPU_HANDLE_CONTEXT,  /* handle CUcontext (0: made before the probes), context its index,
                                 parent the device ordinal, ~0 when unknown; sent again when
                                 handle or device becomes known */
        CPU_HANDLE_STREAM,
        CPU_HANDLE_GRAPH_EXEC, /* parent the graph */
};

/* A handle was created (destroyed = 0) or destroyed. Variable size. */
struct cpu_handle_event {
        __u64 ts_ns;
        __u64 handle;
        __u64 parent;
        __u32 context; /* index of the current context of the caller; 0 unknown */
        __u32 tgid;
        __u32 tid;
        __u16 name_length; /* without the NUL; 0: no name */
        __u8 destroyed;
        __u8 name_truncated;
        __u8 kind; /* enum cpu_handle_kind */
        __u8 pad[19];
        __u8 type; /* CPU_EVENT_HANDLE */
        __u8 pad2[3];
        char name[]; /* name_length bytes and a NUL */
};
_Static_assert(sizeof(struct cpu_handle_event) == 64, "handle event head is 64 bytes");
_Static_assert(__builtin_offsetof(struct cpu_handle_event, type) == CPU_EVENT_TYPE_OFFSET, "type");

enum cpu_process_what {
        CPU_PROCESS_EXIT = 1, /* a process that had used a probed library is gone */
        CPU_PROCESS_EXEC,     /* ... or replaced its program */
        CPU_PROCESS_LIBRARY,  /* a file named libcuda.so* was mapped executable */
        CPU_PROCESS_FORK,     /* a tracked process forked; parent_tgid is the tracked one */
        CPU_PROCESS_FIRST,    /* a process called a probed function for the first time */
};

#define CPU_COMM_BYTES 16

struct cpu_process_event {
        __u64 ts_ns;
        union {
                struct {
                        __u64 inode;  /* of the mapped library */
                        __u64 device; /* kernel dev_t of the mapped library */
                };
                char comm[CPU_COMM_BYTES]; /* first call: the process's name, with its NUL */
        };
        __u32 tgid;
        __u32 tid;
        union {
                __u32 parent_tgid;
                __u32 uid; /* first call: real user id */
        };
        __u8 what; /* enum cpu_process_what */
        __u8 pad[3];
        union {
                __u64 launches_lost; /* exit and exec: launch events of the process not written */
                __u64 started_ns;    /* first call: when the process started, CLOCK_BOOTTIME */
        };
        __u8 pad1[12];
        __u8 type; /* CPU_EVENT_PROCESS */
        __u8 pad2[3];
};
_Static_assert(sizeof(struct cpu_process_event) == 64, "process event is 64 bytes");
_Static_assert(__builtin_offsetof(struct cpu_process_event, type) == CPU_EVENT_TYPE_OFFSET, "type");

/* Per-CPU counters of what was lost in the kernel (map cpu_losses, per-CPU array, one u64 each). */
enum cpu_loss {
        CPU_LOSS_RING_LAUNCH,    /* launch or graph launch not written: ring full */
        CPU_LOSS_RING_OPERATION, /* operation not written: ring full */
        CPU_LOSS_RING_HANDLE,    /* handle event not written: ring full */
        CPU_LOSS_RING_PROCESS,
        CPU_LOSS_THREAD_STATE, /* no memory for a thread's state: a launch went unseen */
        CPU_LOSS_CONTEXT_FULL, /* more than CPU_CONTEXT_MAX live contexts: index 0 was used */
        CPU_LOSS_COUNT,
};
