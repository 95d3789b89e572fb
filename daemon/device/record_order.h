/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Records of a ring in which START records come with the END records, in the order of
 * their times: those of one reading together with what the table of what runs has got
 * since (running_table.h). So a kernel's start is handed out before that of one that
 * started later in the same stream and ended earlier.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct device_record;
struct record_order;
struct running_table;

#define RECORD_ORDER_MAX  4096 /* records of the ring between two flushes */
#define RECORD_ORDER_KEPT 9216 /* at most, from one flush to the next */

/* running stays the caller's. NULL: out of memory. */
struct record_order *record_order_new(struct running_table *running);
struct record_order *record_order_free(struct record_order *o);

/* For record_ring.c: takes a record of the ring, or that so many are missing before the next. */
void record_order_put(void *order, const struct device_record *rec);
void record_order_gap(void *order, uint64_t lost);

enum record_order_look {
        RECORDS_CAME, /* and more may */
        RECORDS_ALL,  /* the ring has no more */
        RECORDS_IDLE, /* likewise, and it is time to look for what runs for long */
};

/* Whether records wait for a flush. */
bool record_order_keeps(const struct record_order *o);

/*
 * Hand out what nothing can come before any more, with what the table has until then. Where
 * records of the ring are missing, any start may have been among them that is not in the
 * table: a gap comes before each start.
 */
void record_order_flush(struct record_order *o, enum record_order_look look,
                        void (*record)(void *data, const struct device_record *rec),
                        void (*gap)(void *data, uint64_t lost), void *data);
