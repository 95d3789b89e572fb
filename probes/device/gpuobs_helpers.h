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

#define GPUOBS_STAND_IN(number) "r0 = 0x6f627347505500" #number " ll;"
#define GPUOBS_HELPER           __attribute__((noinline, naked))

/*
 * Helpers for whole warps, in programs of scope .thread: all lanes of the warp that
 * entered the program together call them together, so they must not stand where
 * lanes may have gone different ways.
 */

/* The set of lanes whose argument is not 0. */
GPUOBS_HELPER __u32 gpuobs_warp_ballot(__u32 predicate)
{
        asm volatile(GPUOBS_STAND_IN(01) "r0 = 0;"
                                         "if w1 == 0 goto +1;"
                                         "r0 = 1;"
                                         "exit;");
}

#define GPUOBS_WARP_REDUCTION(name, number)                                                        \
        GPUOBS_HELPER __u32 name(__u32 value)                                                      \
        {                                                                                          \
                asm volatile(GPUOBS_STAND_IN(number) "w0 = w1;"                                    \
                                                     "exit;");                                     \
        }

/* The sum (modulo 2^32), the least, the greatest of the lanes' values; their bits combined. */
GPUOBS_WARP_REDUCTION(gpuobs_warp_sum, 02)
GPUOBS_WARP_REDUCTION(gpuobs_warp_min, 03)
GPUOBS_WARP_REDUCTION(gpuobs_warp_max, 04)
GPUOBS_WARP_REDUCTION(gpuobs_warp_and, 05)
GPUOBS_WARP_REDUCTION(gpuobs_warp_or, 06)
GPUOBS_WARP_REDUCTION(gpuobs_warp_xor, 07)

/* How many bits a number needs: 0 for 0, n for 2^(n-1) to 2^n - 1; at most 64. */
#define GPUOBS_SPREAD(shift) "r2 = r1; r2 >>= " #shift "; r1 |= r2;"
GPUOBS_HELPER __u32 gpuobs_bits(__u64 value)
{
        /* all bits below the highest become 1, and the ones are counted */
        asm volatile(GPUOBS_STAND_IN(08) GPUOBS_SPREAD(1) GPUOBS_SPREAD(2) GPUOBS_SPREAD(4)
                             GPUOBS_SPREAD(8) GPUOBS_SPREAD(16) GPUOBS_SPREAD(
                                     32) "r2 = r1; r2 >>= 1; r3 = 0x5555555555555555 ll; r2 &= r3; "
                                         "r1 -= r2;"
                                         "r3 = 0x3333333333333333 ll; r2 = r1; r2 &= r3; r1 >>= 2; "
                                         "r1 &= r3; r1 += r2;"
                                         "r2 = r1; r2 >>= 4; r1 += r2; r3 = 0x0f0f0f0f0f0f0f0f ll; "
                                         "r1 &= r3;"
                                         "r3 = 0x0101010101010101 ll; r1 *= r3; r1 >>= 56; r0 = r1;"
                                         "exit;");
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
