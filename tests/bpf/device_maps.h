/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_maps.bpf.c and its test. */
#include "gpuobs_types.h"

#define MAPS_COUNTERS     3
#define MAPS_HASH_ENTRIES 40

struct maps_value {
        __u64 count;
        __u32 last;
        __u16 lane;
        __u8 set;
} __attribute__((aligned(8)));
