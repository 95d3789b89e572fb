/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One kernel launch, as correlated, stored and served. All times are
 * CLOCK_MONOTONIC ns. A field that is not known is absent: its LAUNCH_HAS_ bit
 * is clear and its value is 0 and means nothing.
 */
#include <stdint.h>

enum launch_match {
        MATCH_NONE = 0, /* no device record, or none that could be this launch's */
        MATCH_INFERRED, /* by order alone, after a loss or without an identity to check */
        MATCH_ORDERED,  /* grid id and identity agree, but concurrent launches could be swapped */
        MATCH_EXACT,    /* grid id and identity agree and nothing else fits */
};

enum launch_end {
        END_NONE = 0,
        END_INFERRED, /* from the start of the stream's next kernel or a synchronise: an upper bound
                       */
        END_MEASURED, /* the last block's leader thread wrote it */
};

enum launch_has {
        LAUNCH_HAS_GPU_START = 1 << 0,
        LAUNCH_HAS_GPU_END = 1 << 1,
        LAUNCH_HAS_GRIDID = 1 << 2,
        LAUNCH_HAS_SMID = 1 << 3,
        LAUNCH_HAS_CLOCK_ERROR = 1 << 4,
        LAUNCH_HAS_GPU = 1 << 5,
        LAUNCH_HAS_KERNEL = 1 << 6,
        LAUNCH_HAS_CONTEXT = 1 << 7,
        LAUNCH_HAS_GEOMETRY = 1 << 8, /* grid, block, shared: not for graph launches' nodes */
        LAUNCH_HAS_QUEUE_OTHERS = 1 << 9,
};

struct launch_record {
        uint64_t launch_id;   /* unique in the database, given by the daemon, increasing */
        uint64_t process_key; /* see process_info */
        uint64_t kernel_name; /* id in the daemon's string table (util/intern.h) */
        uint64_t context;     /* CUcontext handle */
        uint64_t stream;      /* CUstream handle as passed to the call */
        uint64_t graph_exec;  /* CUgraphExec of a graph's node, else 0 */
        uint64_t cpu_enter_ns;
        uint64_t cpu_return_ns;
        uint64_t gpu_start_ns;
        uint64_t gpu_end_ns;
        uint64_t gridid;
        uint64_t queue_others_ns; /* of gpu_start - cpu_return, when other processes had the GPU */
        uint32_t tid;
        uint32_t gpu; /* ordinal */
        uint32_t grid_x, grid_y, grid_z;
        uint32_t block_x, block_y, block_z;
        uint32_t shared_bytes;
        uint32_t result;         /* CUresult of the call */
        uint32_t clock_error_ns; /* bound of |stated - true| for the GPU times */
        uint16_t smid;           /* of the first block */
        uint16_t has;            /* enum launch_has */
        uint8_t match;           /* enum launch_match */
        uint8_t end;             /* enum launch_end */
};

/* A process as records refer to it. process_key is unique for the life of the database file. */
struct process_info {
        uint64_t process_key;
        uint64_t start_ticks;         /* /proc/PID/stat field 22 */
        uint64_t started_realtime_ns; /* CLOCK_REALTIME when first seen, for people */
        uint32_t pid;                 /* in the daemon's namespace */
        uint32_t uid;
        char comm[16];
        const char *exe;    /* "" when unknown */
        const char *cgroup; /* cgroup v2 path, "" when unknown */
};
