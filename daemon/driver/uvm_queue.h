/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The reading side of a UVM event queue: a ring of 64-byte entries and a control
 * page, both memory of this process that the driver writes to. When the ring is
 * full the driver drops events and counts them by kind: what was produced is
 * what was read and what was dropped.
 *
 * Nothing in that memory is believed: the read position is kept here, the write
 * position is taken modulo the ring's size, each entry is copied out before it
 * is looked at.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_abi.h"
#include "driver/uvm_event.h"

struct uvm_queue {
        const uint8_t *entries;
        struct uvm_control *control;
        uint32_t mask; /* entries - 1 */
        uint32_t get;
        uint64_t read;    /* entries taken, garbage included */
        uint64_t garbage; /* of these, not decodable */
        uint64_t dropped; /* by the driver */
        uint64_t dropped_seen[UVM_CONTROL_KINDS];
};

/* entries: a power of two, at least 2; both areas outlive the queue. */
void uvm_queue_init(struct uvm_queue *q, const void *memory, uint32_t entries,
                    struct uvm_control *control);

/*
 * Take at most max events and hand them to event(); entries that are no events
 * are counted and skipped. Returns how many entries were taken: max means that
 * there may be more. Also brings q->dropped up to date. One thread.
 */
size_t uvm_queue_read(struct uvm_queue *q, size_t max,
                      void (*event)(void *data, const struct uvm_event *e), void *data);
