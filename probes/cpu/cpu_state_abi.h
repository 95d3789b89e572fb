/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What the CPU probes and the daemon share besides the events: how a probed
 * function is described to the programs (its attach cookie), and the state the
 * programs keep of contexts and processes.
 */
#include "../gpuobs_types.h"

enum cpu_call_action {
        CPU_CALL_OPERATION = 1,
        CPU_CALL_CREATE,      /* an out-parameter receives a new handle */
        CPU_CALL_DESTROY,     /* a handle ceases to be */
        CPU_CALL_INSTANTIATE, /* CREATE, and CPU_OP_GRAPH_INSTANTIATE */
        CPU_CALL_CONTEXT_CREATE,
        CPU_CALL_CONTEXT_RETAIN,
        CPU_CALL_CONTEXT_DESTROY,
        CPU_CALL_CONTEXT_SET,
        CPU_CALL_CONTEXT_PUSH,
        CPU_CALL_CONTEXT_POP,
};

/* Positions of arguments count from 1; 0: the function has no such argument. */
#define CPU_ARG_OUT  0x80 /* the argument points to where the value is on return */
#define CPU_ARG_MASK 0x0f
#define CPU_ARG_MAX  6 /* arguments in registers */

enum cpu_call_flags {
        CPU_CALL_SHIFT_MASK = 0x03, /* log2 of the element that `bytes` counts */
        CPU_CALL_PER_THREAD = 0x04, /* stream 0 means the per-thread default stream */
        CPU_CALL_COPY_2D = 0x08,    /* argument 1: CUDA_MEMCPY2D */
        CPU_CALL_COPY_3D = 0x10,    /* argument 1: CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER */
};

/* One function of the CUDA driver API, as the attach cookie of its probes. */
union cpu_call_cookie {
        struct {
                __u8 action;  /* enum cpu_call_action */
                __u8 what;    /* enum cpu_operation or cpu_handle_kind */
                __u8 bytes;   /* low nibble: argument; high nibble: argument it is multiplied by */
                __u8 address; /* argument, CPU_ARG_OUT */
                __u8 stream;
                __u8 handle; /* argument, CPU_ARG_OUT */
                __u8 parent; /* low nibble: argument; high nibble: argument that is the name */
                __u8 flags;  /* enum cpu_call_flags */
        };
        __u64 value;
};
_Static_assert(sizeof(union cpu_call_cookie) == 8, "a cookie is 64 bits");

#define CPU_STREAM_PER_THREAD 2ULL
#define CPU_DEVICE_UNKNOWN    (~0ULL)

/* Map `contexts`, an array by context index; index 0 is not used. */
struct cpu_context {
        __u64 handle;    /* 0: the process had made its context before we looked */
        __u64 device;    /* ordinal or CPU_DEVICE_UNKNOWN */
        __u32 tgid;      /* 0: the index is free */
        __u32 seq;       /* launches entered, graph launches among them; once the process has a
                            launch map, those in there come on top (agent/launch_abi.h) */
        __u32 graphs;    /* graph launches entered; likewise */
        __u32 completed; /* kernel launches known to have ended: a cuCtxSynchronize came back */
        __u32 launched;  /* by depth_update, when it is the only context: kernel launches, */
        __u32 started;   /* ... those that the GPU has begun, */
        __u32 depth;     /* ... and the difference */
        __u32 pad[5];
};
_Static_assert(sizeof(struct cpu_context) == 64, "a context is a cache line");

/* Key of map `context_index`. An exec gives the process a new generation. */
struct cpu_context_key {
        __u64 handle;
        __u32 tgid;
        __u32 generation;
};
_Static_assert(sizeof(struct cpu_context_key) == 16, "context key");

enum cpu_process_end {
        CPU_PROCESS_END_NONE = 0,
        CPU_PROCESS_END_REPORTED,   /* its last thread has exited, and an event says so */
        CPU_PROCESS_END_UNREPORTED, /* ... but there was no room for the event */
};

/* Map `processes`, by tgid: every process that has called a probed function. */
struct cpu_process {
        __u64 launches_lost; /* launch events not written: ring full */
        __u64 cursor;        /* depth_update: next device record */
        __u64 hole_ns;       /* depth_update: since when the cursor stands at a hole */
        __u64 started;       /* depth_update: start records seen */
        __u64 device_lost;   /* depth_update: device records passed unread */
        __s64 adjust;        /* depth_update: started + adjust is comparable with launched */
        __u32 retired;       /* kernel launches of contexts since destroyed; wraps */
        __u32 first_context; /* index; used by threads that never set one */
        __u32 generation;
        __u32 ended; /* enum cpu_process_end */
};
_Static_assert(sizeof(struct cpu_process) == 64, "a process is a cache line");

/* Context of program depth_update: tgid and max in, the rest out. */
struct cpu_depth {
        __u32 tgid;
        __u32 max;      /* device records to look at, at most */
        __u32 error;    /* positive errno: ENOENT no such process or no ring */
        __u32 contexts; /* live contexts of the process */
        __u32 launched; /* kernel launches entered, graph launches not among them; wraps */
        __u32 started;  /* of these, known to have started; wraps */
        __u32 depth;    /* launched - started */
        __u32 read;     /* device records passed by this call */
        __u64 records;  /* start records seen, ever */
        __u64 lost;     /* device records passed unread, ever */
        __u64 position; /* in the start/end map, read up to here */
        __u32 shared;   /* of launched, those counted in the process's launch map; wraps */
        __u32 pad;
};
_Static_assert(sizeof(struct cpu_depth) == 64, "depth arguments");
