/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How much memory the GPUs have free, asked of the driver in the thread for that (asking.h). */
#include <stddef.h>
#include <stdint.h>

struct free_memory;
struct gpu_numbers;
struct gpuobsd;

/* index: of the GPU in the list that was asked about. unused: bytes; NULL: the driver is silent. */
typedef void free_memory_told(void *data, size_t index, const uint64_t *unused);

/* NULL on no memory. */
struct free_memory *free_memory_new(struct gpuobsd *d, free_memory_told *told, void *data);
/* After asking_free(). Returns NULL. */
struct free_memory *free_memory_free(struct free_memory *f);

/* Ask about all of them, unless it is still being asked. The list only grows. */
void free_memory_ask(struct free_memory *f, const struct gpu_numbers *gpus);
