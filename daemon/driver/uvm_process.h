/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * All that is known of one process's managed memory, in bounded space: its
 * allocations, what happened to them in total and in the last second, the hottest
 * pieces, the kernels that faulted.
 */
#include <stdbool.h>
#include <stdint.h>

#include "driver/uvm_allocations.h"
#include "driver/uvm_counts.h"
#include "driver/uvm_hot.h"
#include "driver/uvm_join.h"
#include "driver/uvm_tracker.h"

enum uvm_watch {
        UVM_WATCH_OFF,     /* allocations are known, events are not asked for */
        UVM_WATCH_ON,      /* events are read */
        UVM_WATCH_REFUSED, /* ... or cannot be: see reason */
        UVM_WATCH_ENDED,   /* the process has ended */
};

struct uvm_process {
        enum uvm_watch watch;
        char reason[128];  /* with UVM_WATCH_REFUSED: a sentence */
        uint64_t since_ns; /* CLOCK_MONOTONIC since when events are read; 0 never were */
        struct uvm_tracker_counts events; /* read, garbage and dropped, in all */
        struct uvm_allocations allocations;
        struct uvm_counts total; /* of all events read */
        struct uvm_counts mark;  /* total at the last full second */
        struct uvm_counts rate;  /* in the last full second */
        struct uvm_hot *blocks, *pages;
        struct uvm_join *join;
};

/* NULL on no memory. */
struct uvm_process *uvm_process_new(void);
struct uvm_process *uvm_process_free(struct uvm_process *p);

/*
 * Count an event. at_ns: CLOCK_MONOTONIC, as near as is known to when it happened
 * on the GPU.
 */
void uvm_process_event(struct uvm_process *p, const struct uvm_event *e, uint64_t at_ns);

/* A second is full. */
void uvm_process_second(struct uvm_process *p, uint64_t now_ns);
