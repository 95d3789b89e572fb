/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon as one object: owns the event loop's handles, the probes, the
 * correlator, the store and the servers, and moves events between them.
 */
#include <stddef.h>
#include <uv.h>

#include "util/config.h"

struct gpuobsd;
struct settings_source;

/*
 * Build everything from the settings, which the daemon borrows and changes when
 * it is told to; so it does the source, to read them again. 0, or -errno
 * with a sentence in error[] on what to do. Nothing runs before uv_run().
 */
int gpuobsd_new(uv_loop_t *loop, const struct settings_source *source, struct config *config,
                char *error, size_t error_size, struct gpuobsd **ret_daemon);

/* Stop: close every handle, so that uv_run() returns once they are closed. */
void gpuobsd_stop(struct gpuobsd *d);

/* Free after uv_run() returned; flushes the store. NULL and half-built are fine. */
struct gpuobsd *gpuobsd_free(struct gpuobsd *d);
