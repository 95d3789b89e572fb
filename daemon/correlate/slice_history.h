/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The latest slices of all GPUs, in memory: to be listed, and to say of a time
 * that a launch waited how much of it others had the GPU. One thread adds; any
 * may ask.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "correlate/slices.h"

/* Pieces kept of each engine, the newest; and engines. */
#define SLICE_HISTORY_PIECES  16384
#define SLICE_HISTORY_ENGINES 128

struct slice_history;

/* A piece with where it comes from. */
struct kept_slice {
        uint64_t sequence;    /* from 1, in the order of adding, over all GPUs */
        uint64_t process_key; /* 0: nobody's or not known */
        uint32_t gpu;         /* minor number */
        struct slice slice;
};

/* NULL on no memory. */
struct slice_history *slice_history_new(void);
struct slice_history *slice_history_free(struct slice_history *h);

/*
 * Pieces of an engine in order of time. 0; -ENOMEM; -ENOBUFS too many engines. The
 * piece's sequence number goes to *ret_sequence.
 */
int slice_history_add(struct slice_history *h, uint32_t gpu, uint64_t process_key,
                      const struct slice *s, uint64_t *ret_sequence);

/* Everything before now_ns is in. */
void slice_history_advance(struct slice_history *h, uint32_t gpu, uint64_t now_ns);

/* Whether everything before that time is in, of all engines; false as long as there is none. */
bool slice_history_reaches(struct slice_history *h, uint64_t ns);

/*
 * How long other processes had the engine of a process between two times, ns. The
 * engine is the one where the process has had slices. False: not known, because the
 * history does not reach that far in either direction, a part of the time is
 * unknown, or the process had no slice, or on several engines.
 */
bool slice_history_others(struct slice_history *h, uint64_t process_key, uint64_t from_ns,
                          uint64_t to_ns, uint64_t *ret_ns);

/*
 * Copy out pieces with sequence > after that end after since_ns and start before
 * until_ns, ascending by sequence, at most max. The number.
 */
size_t slice_history_copy(struct slice_history *h, uint64_t after, uint64_t since_ns,
                          uint64_t until_ns, struct kept_slice *ret_slices, size_t max);
