/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_twice.bpf.c and its test. */
#include "gpuobs_types.h"

#define TWICE_LIMITS 4

struct twice_limits {
        __u32 least, most;
        __u64 spare;
};

/* Of a hash: sums by column, of blocks and of their numbers. */
struct twice_column {
        __u32 column, threads, zero;
};

struct twice_sums {
        __u64 blocks, numbers;
};
