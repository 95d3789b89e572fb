/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * GPU clock to CLOCK_MONOTONIC: a robust linear fit over bracketed readings,
 * re-anchored continuously, with a bound on |estimate - true|.
 */
#include <stdbool.h>
#include <stdint.h>

struct clock_model;

/* One reading: the GPU clock said gpu_ns at some moment in [cpu_before_ns, cpu_after_ns]. */
struct clock_sample {
        uint64_t cpu_before_ns;
        uint64_t gpu_ns;
        uint64_t cpu_after_ns;
};

/* step_ns: resolution of the GPU clock (32 for PTIMER on H200); NULL on no memory. */
struct clock_model *clock_model_new(uint32_t step_ns);
struct clock_model *clock_model_free(struct clock_model *m);

/*
 * Add a reading, in order of time. -EINVAL when it contradicts itself (after <
 * before, far in the future); -ERANGE when it lies outside what the model
 * allows: the clock jumped (reset, suspend); after three in a row the model
 * starts over.
 */
int clock_model_add(struct clock_model *m, const struct clock_sample *sample);

/*
 * CLOCK_MONOTONIC ns of a GPU time, and the bound of its error in ns (grows with
 * the distance from the samples). -EAGAIN before the first sample.
 */
int clock_model_to_cpu(const struct clock_model *m, uint64_t gpu_ns, uint64_t *ret_cpu_ns,
                       uint32_t *ret_error_ns);

/* Rate of the GPU clock against CLOCK_MONOTONIC, parts per billion; false before it is known. */
bool clock_model_drift_ppb(const struct clock_model *m, int64_t *ret_ppb);
