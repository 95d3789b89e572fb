/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Keeping the database within its limits of age and size. Works in short steps
 * between the writer's batches: one segment of launches per transaction.
 */
#include <stdbool.h>
#include <stdint.h>

#include "store/db.h"
#include "store/process_cache.h"

/* Smaller limits would leave no room for a batch and its log beside the rows. */
#define RETENTION_MIN_BYTES (8ULL << 20)

struct retention {
        uint64_t max_age_ns; /* 0 = no limit */
        uint64_t max_sums_age_ns;
        uint64_t minute_rows_max;  /* sums: a quarter of the limit of size; 0 = no limit */
        uint64_t managed_rows_max; /* seconds of managed memory: an eighth; 0 = no limit */
        uint64_t used_bytes_max;   /* pages in use; 0 = no limit */
        uint64_t file_bytes_max;   /* pages in the file */
        uint64_t wal_bytes_max;    /* the log */
        uint64_t after_process;    /* where the search for idle processes goes on */
        bool sweep_due;            /* launches were deleted since the last full sweep */
        bool more;                 /* the last step did not get to the end */
};

/* Zero-initialise before the first time. As in store_options. */
void retention_set_limits(struct retention *t, uint64_t max_bytes, uint64_t max_age_s,
                          uint64_t max_sums_age_s);

struct retention_deleted {
        uint64_t launches;
        uint64_t periods; /* minutes whose sums went */
};

/*
 * Delete what is over the limits, for some tens of ms at most. keep_from:
 * first id of the segment being written, which stays. 0 or -errno (db->error);
 * *ret_deleted is set either way.
 */
int retention_step(struct retention *t, struct store_db *db, uint64_t keep_from,
                   struct retention_deleted *ret_deleted);

/*
 * The same for what is older than an age, whatever the limits; sums: sums as
 * well. Sets *ret_more when there is more of it.
 */
int retention_prune(struct retention *t, struct store_db *db, uint64_t older_than_ns, bool sums,
                    struct retention_deleted *ret_deleted, bool *ret_more);

/* Once a second: processes and names that nothing refers to any more, some at a time. */
int retention_sweep(struct retention *t, struct store_db *db, struct process_cache *cache);
