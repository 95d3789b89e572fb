/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The clock of a GPU (PTIMER, what kernels see as %globaltimer), read over MMIO
 * through the usermode object of an RM client: no CUDA context needed. One read
 * takes about 1 us on the bus; bracketed by CLOCK_MONOTONIC it is known to
 * about half of that.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/rm.h"
#include "util/clock_sample.h"

struct ptimer;

/* Resolution of PTIMER on the GPUs measured (H200), ns. */
#define PTIMER_STEP_NS 32

/* One GPU: RM's device instance and the minor number of its device file. */
struct ptimer_gpu {
        unsigned instance;
        unsigned minor;
};

/*
 * GPUs of this machine, from the driver's procfs entries or the device files. Returns how many.
 * Reading an entry is a call of the driver, which may not return.
 */
size_t ptimer_list_gpus(struct ptimer_gpu *ret_gpus, size_t max);

/* How many there are by the names of these alone: calls nobody. */
size_t ptimer_count_gpus(void);

/*
 * 0; -ENOENT no driver or GPU; -EACCES not allowed; -ENOTSUP the GPU has none of
 * the known usermode classes; other -errno.
 */
int ptimer_new(const struct rm_system *system, const struct ptimer_gpu *gpu,
               struct ptimer **ret_ptimer);
struct ptimer *ptimer_free(struct ptimer *p);

/* The narrowest of `tries` bracketed readings (1..1000). -EIO: the GPU is gone (all ones). */
int ptimer_read(struct ptimer *p, unsigned tries, struct clock_sample *ret_reading);

/* UUID of the GPU, 16 bytes; 0 or -errno. */
int ptimer_uuid(struct ptimer *p, uint8_t ret_uuid[16]);
