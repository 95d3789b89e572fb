/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The most active pieces of memory in bounded space (Space-Saving, Metwally et
 * al. 2005): UVM_HOT_ENTRIES counters; an address that has none takes the one
 * with the least and goes on from its count. Every piece with more than
 * 1/UVM_HOT_ENTRIES of all events is in the list, and a count is at most `error`
 * too high. Bad at telling many equally active pieces apart: then errors are as
 * large as the counts, and the list says so.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_event.h"

#define UVM_HOT_ENTRIES 64

struct uvm_hot_entry {
        uint64_t address;                    /* of the piece */
        uint64_t events;                     /* faults and migrations */
        uint64_t error;                      /* events may be this much too high */
        uint64_t faults;                     /* of these, since the piece is in the list */
        uint64_t bytes_to_gpu, bytes_to_cpu; /* since the piece is in the list */
};

struct uvm_hot {
        unsigned shift; /* pieces of 2^shift bytes */
        size_t count;
        size_t last; /* entry of the event before: they come in runs */
        struct uvm_hot_entry entries[UVM_HOT_ENTRIES];
};

void uvm_hot_init(struct uvm_hot *h, unsigned shift);

/* A fault or a migration: counted at the piece its address lies in. Others are not counted. */
void uvm_hot_event(struct uvm_hot *h, const struct uvm_event *e);

/* The most active pieces, most active first. Returns how many, at most max. */
size_t uvm_hot_top(const struct uvm_hot *h, struct uvm_hot_entry *ret_entries, size_t max);
