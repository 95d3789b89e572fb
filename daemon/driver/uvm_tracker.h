/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The events of one process's managed memory, from outside: a queue at
 * /dev/nvidia-uvm-tools bound to a duplicate of its UVM file. Nothing changes in
 * the process but that the driver takes note of what it does.
 *
 * Close soon after the process has ended (uvm_tracker_ended(), or the pidfd
 * becomes readable): until then the driver keeps what the process had on the
 * GPU. Closing may take the driver long: better not on the event loop.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_event.h"
#include "driver/uvm_system.h"

struct mono_map;
struct uvm_tracker;

#define UVM_TRACKER_ENTRIES_MAX (1u << 20)

/* Every kind that says something of memory; page size changes are of no use to anybody. */
#define UVM_KINDS_DEFAULT (((1ULL << UVM_KIND_COUNT) - 2) & ~(1ULL << UVM_KIND_PAGE_SIZE))

struct uvm_tracker_options {
        pid_t pid;
        uint64_t start_ticks;
        uint32_t entries; /* of the queue, 64 bytes each, kept in memory: a power of two, at most
                             UVM_TRACKER_ENTRIES_MAX */
        uint64_t kinds;   /* a bit per kind; 0: UVM_KINDS_DEFAULT */
        struct mono_map *map; /* outlives the tracker; to be read just before it begins */
};

/* CLOCK_MONOTONIC of an event's begin_raw_ns and end_raw_ns; 0: it has none. */
struct uvm_when {
        uint64_t at_ns, end_ns;
        uint32_t error_ns; /* bound of the error of both */
};

/*
 * Begin, in any thread. 0; -ESRCH, -ENODEV (no managed memory yet: try again when it allocates
 * some), -EPERM as uvm_target_open(); -ENOENT no UVM driver; -ENOMEM (the queue is
 * pinned in memory); other -errno.
 */
int uvm_tracker_new(const struct uvm_system *system, const struct uvm_tracker_options *options,
                    struct uvm_tracker **ret_tracker);
struct uvm_tracker *uvm_tracker_free(struct uvm_tracker *t);

/* For polling: readable when an eighth of the queue is full. Not owned by the caller. */
int uvm_tracker_fd(const struct uvm_tracker *t);
/* For polling: readable when the process has ended. Not owned by the caller. */
int uvm_tracker_pidfd(const struct uvm_tracker *t);
bool uvm_tracker_ended(const struct uvm_tracker *t);

/*
 * Take at most max events, oldest first. Returns how many entries were taken; max means
 * there may be more. One thread per map.
 */
size_t uvm_tracker_read(struct uvm_tracker *t, size_t max,
                        void (*event)(void *data, const struct uvm_event *e,
                                      const struct uvm_when *when),
                        void *data);

/* Have the driver put out what it holds back (times of copies still under way). 0 or -errno. */
int uvm_tracker_flush(struct uvm_tracker *t);

struct uvm_tracker_counts {
        uint64_t read;    /* taken from the queue */
        uint64_t garbage; /* of these, no events */
        uint64_t dropped; /* by the driver: the queue was full. produced = read + dropped */
};
void uvm_tracker_get_counts(const struct uvm_tracker *t, struct uvm_tracker_counts *ret_counts);

/*
 * UUID of a processor by the index that events have, as it was when the tracker began or the
 * processors were set; NULL: not known.
 */
const uint8_t *uvm_tracker_uuid(const struct uvm_tracker *t, unsigned index);

/* Ask the driver for the processors of now: any thread. 0 or -errno. */
int uvm_tracker_ask_processors(const struct uvm_tracker *t,
                               uint8_t ret_processors[UVM_PROCESSORS_MAX][UVM_UUID_BYTES]);
void uvm_tracker_set_processors(struct uvm_tracker *t,
                                uint8_t processors[UVM_PROCESSORS_MAX][UVM_UUID_BYTES]);
