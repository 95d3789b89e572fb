/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Finished launches on their way to the database, held back in order until the context switches
 * of the time that they waited are in: a quarter of a second. So how much of its wait others had
 * the GPU is stored with a launch. One that this is not known of in time goes without. What is
 * let go comes in bursts: those that the database has no room for yet stay here until it has.
 *
 * One thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "correlate/slice_history.h"
#include "util/launch_record.h"

#define HELD_MAX      65536 /* launches; beyond, the oldest goes as it is */
#define HELD_LIMIT_NS 400000000ull

struct held;

/*
 * Where they go: records in order, each with what came with it. How many were taken, from
 * the first on.
 */
typedef size_t held_put_fn(void *data, const struct launch_record *records, void *const *owners,
                           size_t n);

/* One is lost: HELD_MAX wait already, and none was taken. */
typedef void held_lose_fn(void *data, void *owner);

/* NULL on no memory. The history outlives it. */
struct held *held_new(struct slice_history *history, held_put_fn *put, held_lose_fn *lose,
                      void *data);
/* Returns NULL. What is held is lost: held_finish() first. */
struct held *held_free(struct held *h);

void held_add(struct held *h, const struct launch_record *record, void *owner);

/* Let go what is complete. traced: context switches are still read; else nothing waits for them. */
void held_turn(struct held *h, uint64_t now_ns, bool traced);

/* Let go all, with what is known by now. How many the database had no room for, which stay. */
size_t held_finish(struct held *h);

/* Lose those that stayed. */
void held_drop(struct held *h);
