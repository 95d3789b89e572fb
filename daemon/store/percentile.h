/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Exact percentiles (nearest rank) of values that are read several times, in
 * bounded memory. First pass, by the caller: count, minimum, maximum. Then, as
 * long as percentiles_done() is false: begin a pass, add every value, end it.
 * A pass either collects the values of the range a rank lies in, if memory
 * allows, or narrows the range to a thousandth.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERCENTILES 3 /* p50, p95, p99 */

struct percentile_span {
        uint64_t low, high; /* values in it, both included */
        uint64_t below;     /* how many values are less than low */
        uint64_t inside;    /* how many are in it */
        unsigned first_target, target_count;
        uint32_t *data; /* of this pass: values minus low, or counts per bucket; NULL: left out */
        uint64_t filled;
        bool buckets;
};

struct percentiles {
        uint64_t rank[PERCENTILES]; /* from 1 */
        uint64_t value[PERCENTILES];
        struct percentile_span spans[PERCENTILES];
        unsigned span_count; /* ranges still open */
};

/* The rank, from 1, of percentile which (0 to PERCENTILES - 1) among count values. */
uint64_t percentiles_rank(uint64_t count, int which);

void percentiles_init(struct percentiles *p, uint64_t count, uint64_t min, uint64_t max);
static inline bool percentiles_done(const struct percentiles *p)
{
        return p->span_count == 0;
}

/* Take memory for a pass out of *budget_bytes, none when it does not suffice. 0 or -ENOMEM. */
int percentiles_begin_pass(struct percentiles *p, size_t *budget_bytes);
void percentiles_add(struct percentiles *p, uint64_t value);
void percentiles_end_pass(struct percentiles *p);

/* Free a pass that was given up. */
void percentiles_release(struct percentiles *p);
