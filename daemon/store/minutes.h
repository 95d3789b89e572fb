/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Sums of launches per minute, process, kernel and GPU, kept as launches are
 * written and outliving them. The writer holds those of the present minutes in
 * memory; the database has the truth: what is not in memory is read from it
 * first, so that a late launch, or a restart, adds to what is there.
 */
#include <stddef.h>
#include <stdint.h>

#include "store/db.h"
#include "store/histogram.h"

#define MINUTE_NS (60ULL * 1000000000)

/*
 * A minute of a boot: periods are ordered by boot and time. Minutes count from
 * the boot's start of CLOCK_MONOTONIC.
 */
#define PERIOD_ID(boot, minute) ((int64_t)(boot) << 32 | (int64_t)(uint32_t)(minute))

/* A duration over many launches. */
struct minute_spread {
        uint64_t count, total_ns, min_ns, max_ns;
        struct histogram histogram;
};

struct minute_sum;

struct minutes {
        struct minute_sum *by_key;
        struct minute_sum *last; /* the same kernel often comes again */
};

/* Nothing is known of the database any more; what is unwritten is forgotten. */
void minutes_clear(struct minutes *m);

/* A launch that is being written; kernel: name.id, 0 not known. 0 or -errno. */
int minutes_add(struct minutes *m, struct store_db *db, const struct launch_record *r,
                int64_t kernel);

/* Write what has changed, within the transaction. 0 or -errno. */
int minutes_write(struct minutes *m, struct store_db *db);

/* The transaction is committed: keep what may be added to, within bounds. */
void minutes_committed(struct minutes *m);

/* ---- reading (minute_query.c) ---- */

struct store_reader;
struct store_filter;

struct minute_row {
        int64_t kernel; /* name.id, 0 not known */
        uint64_t launches;
        struct minute_spread queue, execution; /* histograms empty: see bytes */
        const void *queue_bytes, *execution_bytes;
        size_t queue_size, execution_size;
};

/*
 * The sums of minutes of the running boot whose launches are not all there any
 * more. *ret_rows_from_ns: the end of the last such minute, 0 when there is none.
 * row() returns 0 or -errno, which ends it. Within reader_begin() and _end().
 */
int minutes_read(struct store_reader *r, const struct store_filter *filter,
                 int (*row)(void *data, const struct minute_row *m), void *data,
                 uint64_t *ret_rows_from_ns);
