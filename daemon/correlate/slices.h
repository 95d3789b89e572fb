/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * From the context switches of one GPU to time slices and shares.
 *
 * Each engine (one for a GPU, one for each MIG compute instance) has a hand that
 * moves forward in time. What it passes over is one of
 *   active     a context was on the engine (also while it had nothing to run: a
 *              context that is alone stays on),
 *   switching  between two contexts, if that took SLICES_SWITCH_MAX_NS at most,
 *   idle       nobody was on it for longer,
 *   unknown    before the first switch, and after records were lost.
 * so that for each engine the four add up to the time that passed. Slices are
 * handed out in pieces, cut at the beginning of each second and wherever time is
 * advanced to, and the sums second by second. All times are CLOCK_MONOTONIC. Main
 * thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "correlate/clock_model.h"
#include "driver/ctxsw_ring.h"

#define SLICES_SWITCH_MAX_NS 1000000
#define SLICES_SECOND_NS     1000000000ULL

/* Contexts of an engine that are told apart in one second; the rest share one. */
#define SLICES_CONTEXTS_MAX 256

struct slices_engine {
        uint8_t mig_gpu, mig_compute; /* CTXSW_NO_MIG without MIG */
};

/* A piece of a slice, or of time that nothing is known of. */
struct slice {
        uint64_t start_ns, end_ns;
        uint64_t since_ns; /* start of the whole slice */
        uint32_t pid;      /* CTXSW_PID_HIDDEN, CTXSW_PID_KERNEL: nobody's */
        uint32_t context_id;
        struct slices_engine engine;
        bool unknown; /* nobody knows who had the engine */
        bool begins;  /* the slice began with this piece */
        bool ends;    /* and ended */
};

/* One context in one second. */
struct slices_share {
        uint32_t pid, context_id;
        uint32_t slices; /* begun */
        uint64_t active_ns;
        uint64_t longest_ns; /* of those that ended */
};

/* One engine in one second (the first and the last may be shorter). */
struct slices_second {
        uint64_t start_ns, span_ns;
        struct slices_engine engine;
        uint64_t active_ns, switch_ns, idle_ns, unknown_ns;
        uint64_t lost;     /* records */
        uint32_t switches; /* gaps counted in switch_ns */
        uint32_t count;
        const struct slices_share *shares;
};

struct slices_ops {
        void (*slice)(void *data, const struct slice *s);
        void (*second)(void *data, const struct slices_second *s);
};

struct slices;

/* clock and data outlive it. Time is unknown from start_ns on. NULL on no memory. */
struct slices *slices_new(const struct clock_model *clock, const struct slices_ops *ops, void *data,
                          uint64_t start_ns);
struct slices *slices_free(struct slices *s);

/*
 * In the order of the trace. now_ns: the present, after which nothing can have
 * happened; an event that says so is counted as a contradiction.
 */
void slices_event(struct slices *s, const struct ctxsw_event *e, uint64_t now_ns);

/* Records were lost here, on an engine that is not known: nothing is certain until the next. */
void slices_gap(struct slices *s, uint64_t lost);

/* Everything that happened before now_ns has been told. */
void slices_advance(struct slices *s, uint64_t now_ns);

/* The GPU comes to an end, or the daemon: advance and hand out the last, short seconds. */
void slices_finish(struct slices *s, uint64_t now_ns);

/* Events that contradicted what was known: an end of something that had not begun, and so on. */
uint64_t slices_contradictions(const struct slices *s);
