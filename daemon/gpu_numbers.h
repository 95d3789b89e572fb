/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The numbers policies know GPUs by: minor numbers, as in launch records and
 * `gpuobsctl gpus`. A GPU whose minor number is not known (its clock cannot be read)
 * gets the lowest number that no other has.
 */
#include <stddef.h>
#include <stdint.h>

#define GPU_NUMBERS_MAX   64 /* numbers are less than that */
#define GPU_NUMBERS_BYTES 16 /* of a UUID */

struct gpu_clocks;

struct numbered_gpu {
        uint8_t uuid[GPU_NUMBERS_BYTES];
        uint32_t number;
        uint64_t total_bytes; /* the owner's: the most that was ever free */
};

/* Zeroed at first. */
struct gpu_numbers {
        struct numbered_gpu list[GPU_NUMBERS_MAX];
        size_t count;
};

/* The GPU with this UUID, given a number if it is new. NULL: no UUID, or too many GPUs. */
const struct numbered_gpu *gpu_numbers_add(struct gpu_numbers *n, const struct gpu_clocks *clocks,
                                           const uint8_t uuid[GPU_NUMBERS_BYTES]);

/* The GPU with this number, or NULL. */
const struct numbered_gpu *gpu_numbers_find(const struct gpu_numbers *n, uint32_t number);
