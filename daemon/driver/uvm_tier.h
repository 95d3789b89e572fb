/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the probes inside the managed-memory driver saw: sums since the start by
 * point, GPU and process, and the latest events. One thread. Everything is of
 * bounded size: processes beyond the table's are summed up in one.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "driver/uvm_probe_abi.h"

#define UVM_TIER_GPUS      64
#define UVM_TIER_PROCESSES 256
#define UVM_TIER_EVENTS    4096 /* the latest, kept */

/* An event as it is kept. */
struct uvm_tier_event {
        struct uvm_probe_event probe;
        uint64_t sequence;    /* from 1 */
        uint64_t process_key; /* 0: not known */
        uint8_t cause;        /* enum uvm_cause */
        uint8_t state;        /* enum uvm_chunk_state */
};

struct uvm_tier_time {
        uint64_t count;
        uint64_t failed; /* of these, with a status other than 0 */
        uint64_t total_ns;
        uint64_t max_ns;
};

struct uvm_tier_gpu {
        uint8_t uuid[16];
        struct uvm_tier_time batches;
        uint64_t faults, distinct, duplicates;
        uint64_t largest; /* faults of one batch */
        uint64_t evicted; /* blocks moved out of it */
};

struct uvm_tier_process {
        uint64_t process_key; /* 0: not known, or no longer listed */
        uint64_t last;        /* sequence of its last event */
        uint64_t decisions;   /* about what to bring along */
        uint64_t chosen;      /* of these, that brought something along */
        uint64_t pages;       /* brought along, of 4 KiB */
        uint64_t evicted;     /* blocks */
        struct uvm_tier_time moves[UVM_CAUSE_COUNT];
};

struct uvm_tier;

struct uvm_tier *uvm_tier_new(void);
struct uvm_tier *uvm_tier_free(struct uvm_tier *t);

/* Take an event in; its sequence is given here. */
void uvm_tier_add(struct uvm_tier *t, const struct uvm_tier_event *e);

struct uvm_tier_time uvm_tier_point(const struct uvm_tier *t, unsigned point);

/* Pieces of GPU memory chosen to be emptied, by who wanted memory and by what was in them. */
struct uvm_tier_picks {
        uint64_t by_cause[UVM_CAUSE_COUNT];
        uint64_t by_state[UVM_CHUNK_STATE_COUNT];
};
struct uvm_tier_picks uvm_tier_picks(const struct uvm_tier *t);

/* Entries from 0 up; NULL at the end. The first process is the sum of those that are not listed. */
const struct uvm_tier_gpu *uvm_tier_gpu(const struct uvm_tier *t, size_t index);
const struct uvm_tier_process *uvm_tier_process(const struct uvm_tier *t, size_t index);

/* The first kept event with a greater sequence; NULL: there is none yet. */
const struct uvm_tier_event *uvm_tier_after(const struct uvm_tier *t, uint64_t sequence);

/* Pages that an event says are to be brought along; 0: none. */
unsigned uvm_tier_pages(const struct uvm_probe_event *e);

/* The first of them and the one after the last, as addresses. False: none. */
bool uvm_tier_span(const struct uvm_probe_event *e, uint64_t *ret_start, uint64_t *ret_bytes);
