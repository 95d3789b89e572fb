/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much memory the GPUs of this machine have free, asked of the resource manager. */
#include <stdint.h>

#include "driver/rm.h"

struct gpu_memory;

/* Opens what can be opened; a machine without a GPU is no error. NULL on no memory. */
struct gpu_memory *gpu_memory_new(const struct rm_system *system);
struct gpu_memory *gpu_memory_free(struct gpu_memory *m);

/*
 * Bytes that nobody has allocated on the GPU with this UUID. 0; -ENODEV not one of
 * ours; other -errno. Any thread.
 */
int gpu_memory_unused(const struct gpu_memory *m, const uint8_t uuid[16], uint64_t *ret_bytes);
