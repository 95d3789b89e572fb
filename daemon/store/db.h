/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The writing connection: opening, prepared statements, rows in. One thread at
 * a time. Functions return 0 or -errno and leave a sentence in error[].
 */
#include <stdbool.h>
#include <stdint.h>

#include <sqlite3.h>

#include "store/outcome.h"
#include "store/process_cache.h"
#include "store/queue.h"

enum db_statement {
        DB_BEGIN,
        DB_COMMIT,
        DB_ROLLBACK,
        DB_LAUNCH,
        DB_PROCESS,
        DB_NAME,
        DB_NAME_TOUCH,
        DB_LEDGER_CLEAR,
        DB_LEDGER,
        DB_META,
        DB_SEGMENT,
        DB_SEGMENT_PROCESS,
        DB_OLDEST_SEGMENT,
        DB_DELETE_LAUNCHES,
        DB_DELETE_SEGMENT_PROCESSES,
        DB_DELETE_SEGMENT,
        DB_IDLE_PROCESSES,
        DB_DELETE_PROCESS,
        DB_DELETE_LEDGER,
        DB_DELETE_NAMES,
        DB_MINUTE_GET,
        DB_MINUTE_PUT,
        DB_PERIOD_PUT,
        DB_PROCESS_PERIOD,
        DB_NAME_PERIOD,
        DB_OLDEST_PERIOD,
        DB_DELETE_MINUTES,
        DB_DELETE_PERIOD,
        DB_ROWS_FROM,
        DB_COUNT_FROM,
        DB_SHARE,
        DB_DELETE_SHARES,
        DB_DELETE_ORPHAN_SHARES,
        DB_OLDEST_SHARE,
        DB_MANAGED,
        DB_DELETE_MANAGED,
        DB_PAGE_COUNT,
        DB_FREE_PAGES,
        DB_STATEMENTS
};

struct store_db {
        sqlite3 *sql;
        sqlite3_stmt *statements[DB_STATEMENTS];
        const char *path; /* not owned */
        int64_t boot;     /* boot.id of the running system */
        uint64_t page_bytes;
        uint64_t next_launch_id; /* from the file, at opening */
        uint64_t next_process_key;
        uint64_t launches;      /* rows, at opening */
        uint64_t minute_rows;   /* rows of sums, about */
        int wal_pages;          /* in the log after the last commit */
        bool damaged;           /* the last error was damage to the file */
        uint64_t inode, device; /* of the file, to notice that it was replaced */
        char error[160];
};

/*
 * Open or create, migrate, prepare. -EBADMSG: damaged; -EMEDIUMTYPE: not a file
 * of ours; -EPROTONOSUPPORT: written by a newer program; else what the system
 * said. wal_limit_bytes: the log is cut to this when it is begun anew.
 */
int db_open(struct store_db *db, const char *path, const char *boot_id, uint64_t wal_limit_bytes);

/* NULL-safe for half-open ones; keeps error[]. */
void db_close(struct store_db *db);

/* Move a damaged file with its log to PATH.corrupt-TIME; closed connections only. */
int db_move_aside(const char *path);

/* The path still leads to the file that is open. */
bool db_is_in_place(const struct store_db *db);

/* Record the sentence for rc; returns its -errno. */
int db_fail(struct store_db *db, int rc);

/* Run a bound statement that gives no rows, and reset it. */
int db_run(struct store_db *db, enum db_statement which);

/* First column of a bound statement's first row, 0 if none; reset. */
int db_run_int(struct store_db *db, enum db_statement which, int64_t *ret_value);

/* ---- rows, inside a transaction ---- */

int db_put_process(struct store_db *db, const struct process_info *p);
int db_put_ledger(struct store_db *db, uint64_t process_key, const struct ledger *l);
/* kernel: name.id, 0 when not known. The id must be new. */
int db_put_launch(struct store_db *db, const struct launch_record *r, int64_t kernel);
/* The row of a text, new or not, used in this segment. */
int db_name_id(struct store_db *db, const char *text, uint64_t segment, int64_t *ret_id);
/* The name is used in this segment; false: retention has deleted the row (and another name may
 * have its id). */
int db_touch_name(struct store_db *db, int64_t id, const char *text, uint64_t segment,
                  bool *ret_exists);
int db_put_meta(struct store_db *db, const char *key, uint64_t value);

/* The log is cut to this when it is begun anew. */
int db_limit_log(struct store_db *db, uint64_t bytes);

/* Copy committed pages from the log into the file; what readers still use stays. */
int db_checkpoint(struct store_db *db);
