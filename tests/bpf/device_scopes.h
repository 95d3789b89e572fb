/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_scopes.bpf.c and its test. */
#include "gpuobs_types.h"

enum {
        SCOPE_GRID,
        SCOPE_BLOCK,
        SCOPE_WARP,
        SCOPE_THREAD,
        SCOPE_STACK,
        SCOPE_WARP_WIDE,
        SCOPE_ENTRIES,
};

struct scope_counts {
        __u64 runs;
        __u64 lanes;   /* set of lanes that ran it */
        __u64 active;  /* sum of the active lanes they saw */
        __u64 threads; /* sum of the block sizes they saw */
        __u64 position;
        __u64 same_smid;
        __u64 warps; /* a byte per warp number */
        __u64 pad;
};
