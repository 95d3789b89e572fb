/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Who had which GPU when: the context-switch traces of all GPUs (driver/ctxsw.h),
 * as slices in memory (correlate/slice_history.h), as sums in the database, and to
 * subscribers.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu_switches;
struct gpuobsd;
struct slice_history;

/* NULL on no memory. */
struct gpu_switches *gpu_switches_new(struct gpuobsd *d);

/*
 * Begin a trace of every GPU whose clock can be read, if the settings want it, as soon as the
 * driver answers. One that refuses is said so and lived with. Once.
 */
void gpu_switches_open(struct gpu_switches *g);
/* Wait until they have begun, at most until then. */
void gpu_switches_wait(struct gpu_switches *g, uint64_t until_ns);

/* End the traces; before asking_free(). */
void gpu_switches_close(struct gpu_switches *g);
/* After it, and while the store is still there. */
struct gpu_switches *gpu_switches_free(struct gpu_switches *g);

/* Ask for what has happened, unless that is still being asked; a few times a second. */
void gpu_switches_tick(struct gpu_switches *g);

/* The end is near: hand everything out. */
void gpu_switches_finish(struct gpu_switches *g);

/* Traces that run. */
size_t gpu_switches_count(const struct gpu_switches *g);

/* Why there are none, or fewer than there are GPUs; "" nothing was refused. */
const char *gpu_switches_refusal(const struct gpu_switches *g);

/* Any thread may ask it. */
struct slice_history *gpu_switches_history(struct gpu_switches *g);
