/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * GPU clock to CLOCK_MONOTONIC, with a bound on |estimate - true|. The GPU's clock is
 * held against CLOCK_MONOTONIC_RAW, whose rate nobody sets; from there a map leads to
 * CLOCK_MONOTONIC (mono_map.h). The bound of the first step holds for certain under one
 * assumption: the rate of one clock against the other is within CLOCK_RATE_MAX_PPM of 1
 * and changes by at most CLOCK_WANDER_PPB_PER_S each second (crystals wander far less).
 * A clock that breaks it shows as contradicting readings: the model then starts over.
 * How it works: clock_model.c.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/clock_sample.h"
#include "util/mono_map.h"

/* Two crystals, and what the kernel may take its own for: 500. */
#define CLOCK_RATE_MAX_PPM     600
#define CLOCK_WANDER_PPB_PER_S 50

struct clock_model;

/*
 * step_ns: resolution of the GPU clock (32 for PTIMER on H200). map: outlives the model;
 * NULL: times stay in the clock that the readings are in. NULL on no memory.
 */
struct clock_model *clock_model_new(uint32_t step_ns, struct mono_map *map);
struct clock_model *clock_model_free(struct clock_model *m);

/*
 * Add a reading, in order of time. -EINVAL when it contradicts itself (after <
 * before, older than the last one, a bracket of over a second); -ERANGE when it
 * lies outside what the model allows and was left out: the clock jumped (reset,
 * suspend); the third such reading in a row starts the model over and
 * returns 0.
 */
int clock_model_add(struct clock_model *m, const struct clock_sample *sample);

/*
 * CLOCK_MONOTONIC ns of a GPU time, and the bound of its error in ns, which grows
 * with the distance from the last reading, on both sides; UINT32_MAX: 4 s or
 * more. -EAGAIN before the first reading, of this clock or the map.
 */
int clock_model_to_cpu(const struct clock_model *m, uint64_t gpu_ns, uint64_t *ret_cpu_ns,
                       uint32_t *ret_error_ns);

/*
 * Rate of the GPU clock against CLOCK_MONOTONIC_RAW, parts per billion fast; false
 * before two readings.
 */
bool clock_model_drift_ppb(const struct clock_model *m, int64_t *ret_ppb);

/* Times the model started over since it was made. */
uint32_t clock_model_restarts(const struct clock_model *m);
