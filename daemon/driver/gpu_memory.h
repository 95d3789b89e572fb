/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much memory the GPUs of this machine have free, asked of the resource manager. The GPUs are
 * opened by the first question, so that a driver that hangs holds only who asks.
 */
#include <stdint.h>

#include "driver/rm.h"

struct gpu_memory;

/* Calls nothing yet. NULL on no memory. */
struct gpu_memory *gpu_memory_new(const struct rm_system *system);
/* Closes what was opened: calls the driver. */
struct gpu_memory *gpu_memory_free(struct gpu_memory *m);

/*
 * Bytes that nobody has allocated on the GPU with this UUID. 0; -ENODEV not one of
 * ours; other -errno. Any thread.
 */
int gpu_memory_unused(struct gpu_memory *m, const uint8_t uuid[16], uint64_t *ret_bytes);
