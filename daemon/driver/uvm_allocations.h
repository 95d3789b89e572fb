/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The managed allocations of one process, by address, and what happened to each.
 * Bounded: beyond UVM_ALLOCATIONS_MAX an allocation is not listed, and events in
 * it count as outside. What a freed allocation counted goes into `freed`.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_counts.h"
#include "driver/uvm_hot.h"

#define UVM_ALLOCATIONS_MAX 4096
#define UVM_ALLOCATION_HOT  16 /* hot pages kept of one */

struct uvm_allocation {
        uint64_t address, bytes;
        uint64_t since_ns; /* CLOCK_MONOTONIC of the allocation */
        bool advised;      /* the application gave advice on memory in it */
        struct uvm_counts total;
        struct uvm_counts mark; /* total at the last full second */
        struct uvm_counts rate; /* in the last full second */
        struct uvm_hot *pages;  /* the hottest; NULL: no event yet, or no memory */
};

struct uvm_allocations {
        struct uvm_allocation *list; /* ascending, never overlapping */
        size_t count, room;
        size_t last;               /* index of the event before: they come in runs */
        uint64_t refused;          /* allocations not listed: too many */
        struct uvm_counts freed;   /* of allocations that are gone */
        struct uvm_counts outside; /* of memory in no allocation known here */
};

void uvm_allocations_done(struct uvm_allocations *a);

/*
 * The process allocated managed memory. What the list has there is gone: its free
 * was not seen. 0; -EINVAL no memory range; -ENOMEM; -ENOSPC too many.
 */
int uvm_allocations_add(struct uvm_allocations *a, uint64_t address, uint64_t bytes,
                        uint64_t at_ns);

/* The process freed memory that begins here. Returns whether it was managed. */
bool uvm_allocations_remove(struct uvm_allocations *a, uint64_t address);

/* The application gave advice on a range. */
void uvm_allocations_advised(struct uvm_allocations *a, uint64_t address, uint64_t bytes);

/* The allocation an address lies in, or NULL. */
const struct uvm_allocation *uvm_allocations_find(const struct uvm_allocations *a,
                                                  uint64_t address);

/* The first allocation that ends after address, or NULL: to walk a range, ascending. */
const struct uvm_allocation *uvm_allocations_from(const struct uvm_allocations *a,
                                                  uint64_t address);

/* Count an event where its address lies. */
void uvm_allocations_event(struct uvm_allocations *a, const struct uvm_event *e);

/* A second is full: rates are what came since the last call. */
void uvm_allocations_second(struct uvm_allocations *a);

/* Bytes of all allocations listed. */
uint64_t uvm_allocations_bytes(const struct uvm_allocations *a);
