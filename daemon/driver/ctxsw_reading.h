/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A trace of context switches that is read in one thread (ctxsw.h: its calls may not return) and
 * looked at in another, one at a time.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/ctxsw.h"

struct ctxsw_note; /* an event or a gap */

struct ctxsw_reading {
        struct ctxsw *trace; /* NULL: it could not be opened, or has failed */
        int error;           /* why; 0 */
        uint64_t before_ns;  /* what happened until then was read */
        uint64_t after_ns;   /* what was read happened until then */
        uint64_t garbage;    /* ctxsw_garbage() */
        struct ctxsw_note *notes;
        size_t count, room;
        uint64_t forgotten; /* records that there was no memory for */
};

/* In the thread that calls the driver; zeroed at first. The error is in it. */
void ctxsw_reading_open(struct ctxsw_reading *r, const struct rm_system *system, unsigned instance,
                        unsigned minor);
void ctxsw_reading_read(struct ctxsw_reading *r);
void ctxsw_reading_close(struct ctxsw_reading *r);

/* What was read last, in its order; gaps for what was forgotten. */
void ctxsw_reading_replay(const struct ctxsw_reading *r, const struct ctxsw_ops *ops, void *data);

/* Frees its memory; the trace is closed by then. */
void ctxsw_reading_done(struct ctxsw_reading *r);
