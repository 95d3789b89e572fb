/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How often durations of each size occurred: buckets an eighth of a power of two
 * wide, so that a percentile is within 1/16 of the value. As bytes: varints
 * (7 bits each, the last without the high bit) of the first bucket, the number of
 * buckets, and the count of each.
 */
#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS   496
#define HISTOGRAM_BYTES_MAX (10 * (HISTOGRAM_BUCKETS + 2))

struct histogram {
        uint32_t first; /* bucket of counts[0] */
        uint32_t count;
        uint64_t *counts; /* NULL: empty */
};

/* Zero-initialise. */
void histogram_done(struct histogram *h);

/* 0 or -ENOMEM. */
int histogram_add(struct histogram *h, uint64_t value);

/* Add what bytes hold. 0, -ENOMEM, or -EBADMSG with nothing added when they are no histogram. */
int histogram_merge(struct histogram *h, const void *bytes, size_t size);

/* Returns the number of bytes written to out[HISTOGRAM_BYTES_MAX]; 0 for an empty one. */
size_t histogram_encode(const struct histogram *h, uint8_t *out);

/* The middle of the bucket that the value of this rank (from 1) is in; 0 beyond the last. */
uint64_t histogram_value(const struct histogram *h, uint64_t rank);
