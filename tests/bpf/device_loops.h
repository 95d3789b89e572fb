/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_loops.bpf.c, device_mem.bpf.c and the tests that look at what they counted. */
#include "gpuobs_types.h"

/* An element for each program; only of one the numbers depend on who leaves together. */
enum {
        LOOP_WARP,
        LOOP_THREAD,
        LOOP_DIVIDE,
        LOOP_VOTE,
        LOOP_ENTRY_STACK,
        LOOP_EXIT_STACK,
        LOOP_ENTRIES,
};

struct loop_counts {
        __u64 runs;
        __u64 sum; /* over all threads, of what the program finds for each */
};
_Static_assert(sizeof(struct loop_counts) == 16, "counts of a program with a loop");

#define LOOP_KEYS 1024 /* of the table */

/* A division whose quotient differs for small differences of the divisor. */
#define LOOP_NUMBER  0xfedcba9876543210ULL
#define LOOP_DIVISOR 0x10001ULL

/* What the loops of the programs compute: up to 7 rounds. */
static inline __u32 loop_go_round(__u32 number)
{
        __u32 n = number;

        for (__u32 i = 0; i < (number & 7); i++)
                n = n * 5 + i;
        return n;
}

/* How often each octal digit is among the lowest of a number, weighed: counted on the stack. */
static inline __attribute__((always_inline)) __u32 loop_weigh_digits(__u32 number, __u32 digits)
{
        __u32 seen[8] = {}, sum = 0;

        for (__u32 i = 0; i < digits; i++)
                seen[number >> 3 * i & 7]++;
        for (__u32 i = 0; i < 8; i++)
                sum = sum * 5 + seen[i];
        return sum;
}

/* The same of a number of each thread, and as many digits as its block says. */
static inline __u32 loop_weigh_thread(__u32 block, __u32 thread)
{
        return loop_weigh_digits((block * 1000 + thread) * 2654435761u, 3 + (block & 3));
}
