/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The most active pieces of memory in bounded space (Space-Saving, Metwally et
 * al. 2005): `room` counters; an address that has none takes the one with the
 * least and goes on from its count. Every piece with more than 1/room of all
 * events is in the list, and a count is at most `error`
 * too high. Bad at telling many equally active pieces apart: then errors are as
 * large as the counts, and the list says so.
 */
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_event.h"

#define UVM_HOT_ENTRIES_MAX 64

#define UVM_BLOCK_SHIFT 21 /* 2 MiB: what the driver manages as one */
#define UVM_PAGE_SHIFT  16 /* 64 KiB: what it moves at least, mostly */

struct uvm_hot_entry {
        uint64_t address;                    /* of the piece */
        uint64_t events;                     /* faults and migrations */
        uint64_t error;                      /* events may be this much too high */
        uint64_t faults;                     /* of these, since the piece is in the list */
        uint64_t bytes_to_gpu, bytes_to_cpu; /* since the piece is in the list */
};

struct uvm_hot {
        unsigned shift; /* pieces of 2^shift bytes */
        size_t room;
        size_t count;
        size_t last; /* entry of the event before: they come in runs */
        struct uvm_hot_entry entries[];
};

/* room: 1 to UVM_HOT_ENTRIES_MAX. NULL on no memory. */
struct uvm_hot *uvm_hot_new(unsigned shift, size_t room);
/* Returns NULL. */
struct uvm_hot *uvm_hot_free(struct uvm_hot *h);

/*
 * A fault or a migration: counted at the piece its address lies in. Others are not counted, nor is
 * a migration of more than a piece: where it was needed is what faulted.
 */
void uvm_hot_event(struct uvm_hot *h, const struct uvm_event *e);

/* The most active pieces, most active first. Returns how many, at most max. */
size_t uvm_hot_top(const struct uvm_hot *h, struct uvm_hot_entry *ret_entries, size_t max);
