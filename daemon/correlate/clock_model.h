/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * GPU clock to CLOCK_MONOTONIC, with a bound on |estimate - true| that holds for
 * certain under one assumption: the rate of one clock against the other is
 * within CLOCK_RATE_MAX_PPM of 1 and changes by at most CLOCK_WANDER_PPB_PER_S
 * each second. (Crystals wander far less; a time daemon that slews
 * CLOCK_MONOTONIC faster breaks it, which shows as contradicting readings: the
 * model then starts over.) How it works: clock_model.c.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/clock_sample.h"

#define CLOCK_RATE_MAX_PPM     600 /* NTP's largest correction, 500, and two crystals */
#define CLOCK_WANDER_PPB_PER_S 50

struct clock_model;

/* step_ns: resolution of the GPU clock (32 for PTIMER on H200); NULL on no memory. */
struct clock_model *clock_model_new(uint32_t step_ns);
struct clock_model *clock_model_free(struct clock_model *m);

/*
 * Add a reading, in order of time. -EINVAL when it contradicts itself (after <
 * before, older than the last one, a bracket of over a second); -ERANGE when it
 * lies outside what the model allows and was left out: the clock jumped (reset,
 * suspend, slewing); the third such reading in a row starts the model over and
 * returns 0.
 */
int clock_model_add(struct clock_model *m, const struct clock_sample *sample);

/*
 * CLOCK_MONOTONIC ns of a GPU time, and the bound of its error in ns, which grows
 * with the distance from the last reading, on both sides; UINT32_MAX: 4 s or
 * more. -EAGAIN before the first reading.
 */
int clock_model_to_cpu(const struct clock_model *m, uint64_t gpu_ns, uint64_t *ret_cpu_ns,
                       uint32_t *ret_error_ns);

/*
 * Rate of the GPU clock against CLOCK_MONOTONIC, parts per billion fast; false
 * before two readings.
 */
bool clock_model_drift_ppb(const struct clock_model *m, int64_t *ret_ppb);

/* Times the model started over since it was made. */
uint32_t clock_model_restarts(const struct clock_model *m);
