/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Seconds of managed memory on their way into the database, and how long they
 * stay there: as long as launches, and at most so many rows.
 */
#include <stddef.h>
#include <stdint.h>

#include "store/db.h"
#include "util/managed_second.h"

#define MANAGED_WAITING_MAX 65536 /* that may wait while the database refuses */

struct managed_put {
        struct managed_put *next;
        struct managed_second second;
};

struct managed_queue {
        struct managed_put *first, *last;
        size_t count;
};

/* Copies. 0, -ENOMEM, -ENOBUFS. */
int managed_queue_add(struct managed_queue *q, const struct managed_second *second);

/* All of from to the end of q; the oldest go when there are too many. */
void managed_queue_move(struct managed_queue *q, struct managed_queue *from);

void managed_queue_clear(struct managed_queue *q);

/* Write all, within a transaction. 0 or -errno. */
int managed_write(const struct managed_queue *q, struct store_db *db);

/* Delete some of the oldest rows that are too old (0: none is) or too many (0: never). 0 or -errno.
 */
int managed_retain(struct store_db *db, uint64_t max_age_ns, uint64_t max_rows);
