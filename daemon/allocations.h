/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The live allocations of one process that its GPUs can reach, by address, as its calls of
 * the driver tell. Bounded: beyond ALLOCATIONS_MAX one is not listed, and counted. Those
 * made before the process was observed are not known; those of a context go with it.
 */
#include <stddef.h>
#include <stdint.h>

#define ALLOCATIONS_MAX 16384

struct cpu_operation_event;

struct allocation {
        uint64_t address, bytes;
        uint64_t since_ns;  /* CLOCK_MONOTONIC, when the call returned */
        uint32_t context;   /* index, as of events; 0 unknown */
        uint32_t operation; /* enum cpu_operation that made it */
};

struct allocations {
        struct allocation *list; /* ascending, never overlapping */
        size_t count, room;
        uint64_t unlisted; /* too many, or no memory */
};

void allocations_done(struct allocations *a);

/* The process called the driver: allocations and frees are of interest. */
void allocations_operation(struct allocations *a, const struct cpu_operation_event *e);

/* A context is gone, with what was allocated in it. */
void allocations_context_gone(struct allocations *a, uint32_t context);

/* The first that begins at this address or after; NULL there is none. */
const struct allocation *allocations_from(const struct allocations *a, uint64_t address);
