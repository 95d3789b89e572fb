/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The context-switch trace of one GPU: which process's context was on the engine
 * when, for all processes, from the GPU's own scheduler. Needs no CUDA context and
 * changes nothing in the processes. One thread.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/ctxsw_ring.h"
#include "driver/rm.h"

/* Records the buffer holds: more than three seconds of switches every 0.2 ms. */
#define CTXSW_ENTRIES 32768

struct ctxsw;

/*
 * Begin a trace. instance and minor name the GPU as for rm_client_new(). 0;
 * -ENOTSUP the GPU or the driver does not trace; -EPERM it does only for
 * administrators; others as rm_client_new().
 */
int ctxsw_new(const struct rm_system *system, unsigned instance, unsigned minor,
              struct ctxsw **ret_trace);
struct ctxsw *ctxsw_free(struct ctxsw *c);

/*
 * Fetch what happened until now and hand it out in the order of the buffer. The
 * number of records, or -errno. The fetching takes the driver's lock of the GPU
 * for some microseconds: a few times a second is enough.
 */
int ctxsw_read(struct ctxsw *c, const struct ctxsw_ops *ops, void *data);

/* Records that made no sense, since the start. */
uint64_t ctxsw_garbage(const struct ctxsw *c);
