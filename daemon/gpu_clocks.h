/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The clocks of the GPUs of this machine, read over MMIO (driver/ptimer.h) and
 * fitted to CLOCK_MONOTONIC_RAW, and that fitted to CLOCK_MONOTONIC. GPUs the driver lets us read
 * no clock of are not in the list; their processes' agents supply the clock instead.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct clock_model;
struct driver_thread;
struct gpu_clocks;
struct mono_map;
struct trace;

/*
 * An empty list. trace: where readings are noted; may be NULL, else outlives it. opened: called
 * when the driver has been asked for the GPUs. NULL on no memory.
 */
struct gpu_clocks *gpu_clocks_new(struct driver_thread *driver, struct trace *trace,
                                  void (*opened)(void *data), void *data);

/* Ask for what can be opened, once; it stays an empty list while the driver does not answer. */
void gpu_clocks_open(struct gpu_clocks *c);
/* Wait for the answer, at most until then. False: there is none yet. */
bool gpu_clocks_wait(struct gpu_clocks *c, uint64_t until_ns);

/* There is no answer yet. */
bool gpu_clocks_are_opening(const struct gpu_clocks *c);

/* Close them; before asking_free(). */
void gpu_clocks_close(struct gpu_clocks *c);
/* After it. */
struct gpu_clocks *gpu_clocks_free(struct gpu_clocks *c);

/* Why the clock of a GPU, the last such, cannot be read through the driver; "" of none. */
const char *gpu_clocks_refusal(const struct gpu_clocks *c);

size_t gpu_clocks_count(const struct gpu_clocks *c);

/* The clock, minor number and RM instance of one, index below the count. */
const struct clock_model *gpu_clocks_at(const struct gpu_clocks *c, size_t index, uint32_t *ret_gpu,
                                        uint32_t *ret_instance);

/* Ask for a reading of every clock, unless that is still being asked; call four times a second. */
void gpu_clocks_tick(struct gpu_clocks *c);

/*
 * Read both clocks of the CPU; call with each look at the rings. Times between two calls
 * milliseconds apart are known well whatever NTP does.
 */
void gpu_clocks_pair(struct gpu_clocks *c);

/* From CLOCK_MONOTONIC_RAW to CLOCK_MONOTONIC, for clocks that agents supply. */
struct mono_map *gpu_clocks_map(const struct gpu_clocks *c);

/*
 * The clock of the GPU with this UUID and its minor number; with one GPU in the
 * list that has no known UUID, that one. NULL when there is none.
 */
const struct clock_model *gpu_clocks_find(const struct gpu_clocks *c, const uint8_t uuid[16],
                                          uint32_t *ret_gpu);

/* The minor number of RM's instance of a GPU; false: there is none in the list. */
bool gpu_clocks_gpu_of_instance(const struct gpu_clocks *c, uint32_t instance, uint32_t *ret_gpu);

/* The UUID of the GPU with this minor number; NULL: not known. */
const uint8_t *gpu_clocks_uuid(const struct gpu_clocks *c, uint32_t gpu);

struct api_gpu;

/* The GPUs as the API shows them; texts live as long as the list. Returns how many, at most max. */
size_t gpu_clocks_describe(const struct gpu_clocks *c, struct api_gpu *ret_gpus, size_t max);
