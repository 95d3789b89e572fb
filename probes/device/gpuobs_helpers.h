/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * Helpers that only a GPU has. The kernel, which verifies a device program, knows
 * none of them, so each is a function of the program: its first instruction loads a
 * mark by which the device compiler knows it and writes the GPU's instruction in its
 * place; the rest is what the helper gives in a warp of one lane, and what the kernel
 * verifies. They must stay global: of a static function the kernel would take the
 * result for known.
 *
 * docs/device-programs.md says what each does and costs.
 */
#include "gpuobs_device.h"

#define GPUOBS_HELPER __attribute__((noinline))

/*
 * First in the function: what it does with the argument must come behind it. The
 * compiler of device programs refuses a mark that stands elsewhere.
 */
#define GPUOBS_STAND_IN(number, kind, argument)                                                    \
        asm volatile("r0 = 0x6f627347505500" #number " ll" : "+" kind(argument) : : "r0")
#define GPUOBS_32_BITS "w"
#define GPUOBS_64_BITS "r"

/*
 * Helpers for whole warps, in programs of scope .thread: all lanes of the warp that
 * entered the program together call them together, so they must not stand where
 * lanes may have gone different ways.
 */

/* The set of lanes whose argument is not 0. */
GPUOBS_HELPER __u32 gpuobs_warp_ballot(__u32 predicate)
{
        GPUOBS_STAND_IN(01, GPUOBS_32_BITS, predicate);
        return predicate != 0;
}

#define GPUOBS_WARP_REDUCTION(name, number)                                                        \
        GPUOBS_HELPER __u32 name(__u32 value)                                                      \
        {                                                                                          \
                GPUOBS_STAND_IN(number, GPUOBS_32_BITS, value);                                    \
                return value;                                                                      \
        }

/* The sum (modulo 2^32), the least, the greatest of the lanes' values; their bits combined. */
GPUOBS_WARP_REDUCTION(gpuobs_warp_sum, 02)
GPUOBS_WARP_REDUCTION(gpuobs_warp_min, 03)
GPUOBS_WARP_REDUCTION(gpuobs_warp_max, 04)
GPUOBS_WARP_REDUCTION(gpuobs_warp_and, 05)
GPUOBS_WARP_REDUCTION(gpuobs_warp_or, 06)
GPUOBS_WARP_REDUCTION(gpuobs_warp_xor, 07)

static __always_inline __u32 gpuobs_count_ones(__u64 value)
{
        value -= value >> 1 & 0x5555555555555555ULL;
        value = (value & 0x3333333333333333ULL) + (value >> 2 & 0x3333333333333333ULL);
        value = (value + (value >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
        return value * 0x0101010101010101ULL >> 56;
}

/*
 * In gpu/mem programs: how many different sectors of 32 bytes, and lines of 128 bytes,
 * the lanes of the warp that access memory touch together. All of these lanes count
 * before the program starts, whoever runs it.
 */
#define GPUOBS_WARP_COUNT(name, number)                                                            \
        GPUOBS_HELPER __u32 name(void)                                                             \
        {                                                                                          \
                __u32 one; /* the compiler must not know it: it would use it without a call */     \
                                                                                                   \
                asm volatile("r0 = 0x6f627347505500" #number " ll; %0 = 1" : "=w"(one) : : "r0");  \
                return one;                                                                        \
        }

GPUOBS_WARP_COUNT(gpuobs_sectors, 09)
GPUOBS_WARP_COUNT(gpuobs_lines, 0a)

/* How many bits a number needs: 0 for 0, n for 2^(n-1) to 2^n - 1; at most 64. */
GPUOBS_HELPER __u32 gpuobs_bits(__u64 value)
{
        GPUOBS_STAND_IN(08, GPUOBS_64_BITS, value);
        /* all bits below the highest become 1, and the ones are counted */
        value |= value >> 1;
        value |= value >> 2;
        value |= value >> 4;
        value |= value >> 8;
        value |= value >> 16;
        value |= value >> 32;
        return gpuobs_count_ones(value);
}

/* How many bits of a number are 1, such as lanes in a set of lanes. */
GPUOBS_HELPER __u32 gpuobs_ones(__u64 value)
{
        GPUOBS_STAND_IN(20, GPUOBS_64_BITS, value);
        return gpuobs_count_ones(value);
}

#define GPUOBS_HISTOGRAM_BUCKETS 65

/* Count a value in bucket gpuobs_bits(value) of an array of 65 __u64 on the device. */
static __always_inline void gpuobs_histogram(void *map, __u64 value)
{
        __u32 bucket = gpuobs_bits(value);
        __u64 *count = bpf_map_lookup_elem(map, &bucket);

        if (count)
                __sync_fetch_and_add(count, 1);
}
