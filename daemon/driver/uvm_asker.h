/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The calls of a tracker (uvm_tracker.h) in a thread of its own, one for each process that is
 * watched: what the driver does not return from for one holds neither the loop nor others. The
 * queue itself is memory, which the loop reads.
 *
 * All functions are for the loop's thread.
 */
#include <stdbool.h>
#include <stdint.h>

#include "driver/uvm_tracker.h"

struct uvm_asker;

/*
 * Begins to open a tracker; opened() is told of it, once: 0 and the tracker, or as
 * uvm_tracker_new(). options->map must have been read just before. 0 or -errno.
 */
int uvm_asker_new(const struct uvm_system *system, const struct uvm_tracker_options *options,
                  void (*opened)(void *data, int error, struct uvm_tracker *tracker), void *data,
                  struct uvm_asker **ret_asker);
/*
 * Ends the thread when it has done what it was given, at most then; else it is left to its call
 * (silence.h), and with it what it uses. Returns NULL.
 */
struct uvm_asker *uvm_asker_free(struct uvm_asker *a, uint64_t until_ns);

/* Take in what has been answered: a few times a second. */
void uvm_asker_collect(struct uvm_asker *a);

/* Wait for the opening. False: it is still under way, and opened() comes later. */
bool uvm_asker_wait(struct uvm_asker *a, uint64_t until_ns);

/* As uvm_tracker_flush(), unless that is still under way. */
void uvm_asker_flush(struct uvm_asker *a);

/*
 * Have the driver tell the tracker of processors that came since. Waits until then; false: there
 * is no answer yet.
 */
bool uvm_asker_learn(struct uvm_asker *a, uint64_t until_ns);

/* Once: the tracker must not be used any more. It may still be being opened. */
void uvm_asker_close(struct uvm_asker *a);
/* It has been closed: uvm_asker_free() will not wait. */
bool uvm_asker_is_closed(const struct uvm_asker *a);
