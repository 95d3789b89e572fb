/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The thread that owns the writing connection: takes what was put, commits it
 * in batches, keeps the limits, and when the database refuses, keeps the
 * records and tries again.
 */
#include <stdbool.h>
#include <stdint.h>

#include "store/db.h"
#include "store/managed.h"
#include "store/minutes.h"
#include "store/outcome.h"
#include "store/process_cache.h"
#include "store/retention.h"
#include "store/shares.h"

struct store;

/* Rows per transaction: some 600 KiB, 15-30 ms. Also where a segment ends. */
#define WRITER_BATCH_RECORDS 8192

/* Launches of one boot with neighbouring ids; see schema.c. */
struct segment {
        uint64_t first_id, last_id, launches;
        uint64_t min_enter_ns, max_enter_ns;
        uint64_t begun_ns; /* 0: no segment is open */
};

/* A kernel name's row, by the id in the daemon's string table. */
struct known_name {
        int64_t row;      /* name.id, 0 when not known yet */
        uint64_t segment; /* the last one it was noted in */
};

struct writer {
        char *path;
        char boot_id[40];
        struct store_db db;
        bool is_open;
        char notice[160]; /* worth knowing though all is well, e.g. a file moved aside */
        uint64_t moved_aside_ns;

        struct process_cache processes;
        struct share_list shares; /* not written yet */
        struct known_name *names;
        size_t name_count;
        struct segment segment;
        struct minutes minutes;
        struct managed_queue managed; /* taken, not committed */
        struct outcome_table batch;   /* of the transaction under way */
        /*
         * Launches committed since all of the log was last brought to the disk, from an id
         * on: what a file system that fails may take back.
         */
        struct outcome_table unsynced;
        uint64_t unsynced_from;
        struct outcome_table vanished; /* of those, to be reported */
        uint64_t next_launch_id;       /* smallest id that may still come */
        uint64_t next_process_key;
        uint64_t launches;    /* rows */
        uint64_t inbox_taken; /* of store->inbox_puts, those in the cache or further */

        struct retention retention;
        uint64_t tick_ns;       /* next time for checks and retention */
        uint64_t checkpoint_ns; /* a checkpoint is due then even if the log is small */
        uint64_t retry_ns;      /* while failing: no attempt before this */
        uint64_t backoff_ns;    /* 0: not failing */
        bool failed_once;       /* the connection is suspect: open it anew */
};

/* Open the database (main thread, before the thread runs). 0 or -errno, sentence in db.error. */
int writer_open(struct writer *w);
void writer_done(struct writer *w);

/* Thread body; data is the struct store. Ends when store->stop is set and nothing more can be done.
 */
void *writer_thread(void *data);
