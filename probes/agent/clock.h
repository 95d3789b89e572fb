/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The clock where the daemon cannot read the GPU's: a thread that launches a
 * one-thread kernel which stores %globaltimer in host memory, brackets it with
 * CLOCK_MONOTONIC_RAW, and sends the narrowest of a few brackets, a burst at first,
 * then once a second. Exists only when the daemon asks. Ends with the process,
 * the connection, or the first error of the driver.
 */
#include <stdint.h>

#include "cuda_api.h"
#include "wire.h"

/*
 * Start the thread; context is the device's primary one, retained by the caller
 * for good. devices: a bit for each whose clock is to be sent; others than this one
 * are read once the process has a primary context there, which is retained then. The api and the
 * wire must outlive the process's other uses of them. 0; -EALREADY; -errno.
 */
int clock_start(const struct cuda_api *api, struct wire *wire, cuda_handle context, int device,
                uint64_t devices);

/*
 * The device's primary context is about to go: its clock is not read any more, what
 * the daemon knows of it has to do. Waits for a reading under way, for a moment.
 */
void clock_forget(int device);

/* Ask the thread to stop and wait for it, for a moment. Called at exit too. */
void clock_stop(void);
