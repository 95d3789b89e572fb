/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_mem.bpf.c and the tests that look at what it counted. */
#include "gpuobs_types.h"

struct mem_counts {
        /* by the program that runs per warp */
        __u64 requests;
        __u64 lanes;
        __u64 sectors;
        __u64 lines;
        /* by the one that runs per thread */
        __u64 accesses;
        __u64 bytes;
        __u64 sum; /* of addresses */
        __u64 mix; /* of mem_mix() of them */
        /* by the one that votes: accesses with bit 2 of the address set, and again as a sum */
        __u64 odd;
        __u64 odd_sum;
        __u64 rounds; /* loop_go_round() of kind and size, for each access */
        __u64 found;  /* what the table has for its kind, 1 where it has nothing, for each */
        __u64 digits; /* loop_weigh_digits() of mem_digits(), for each */
};
_Static_assert(sizeof(struct mem_counts) == 104, "counts of an access");

/* An element for each kind and space. */
#define MEM_ENTRIES            32
#define MEM_INDEX(kind, space) ((kind) | (space) << 2)

/* What tests put into the table: kinds other than these are not in it. */
#define MEM_TABLE_KEYS   16
#define MEM_TABLE_LOAD   1000
#define MEM_TABLE_ATOMIC 77

#define MEM_DIGITS 4
static inline __u32 mem_digits(__u32 kind, __u32 size)
{
        return kind * 0x249 + size * 5;
}

/* What mem_lanes counts there: accesses, by the number of the lane modulo this, plus this. */
#define MEM_TABLE_LANES 8

/* So that sets of addresses with the same sum are told apart. */
static inline __u64 mem_mix(__u64 address)
{
        address *= 0x9e3779b97f4a7c15ULL;
        return address ^ address >> 29;
}
