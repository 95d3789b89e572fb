/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the query files share: the connection, a query's frame, the filter in SQL. */
#include <stdint.h>

#include <sqlite3.h>

#include "store/store.h"

struct store_reader {
        char *path;
        char boot_id[40];
        sqlite3 *sql;
        uint64_t inode, device; /* of the open file */
        uint64_t deadline_ns;   /* 0 = none */
        char error[160];
};

/*
 * Begin a query: reopen if the file was replaced, start the clock, take a
 * snapshot. reader_end() ends it whatever happened. 0 or -errno.
 */
int reader_begin(struct store_reader *r, uint32_t timeout_ms);
void reader_end(struct store_reader *r);

/* -errno of an SQLite code, with the sentence kept. */
int reader_fail(struct store_reader *r, int rc);

/* Prepared with a fresh statement. 0 or -errno. */
int reader_prepare(struct store_reader *r, const char *sql, sqlite3_stmt **ret_stmt);

static inline void reader_finalizep(sqlite3_stmt **stmt)
{
        sqlite3_finalize(*stmt);
}

/* -EINVAL with a sentence when the limit or the pattern is out of bounds. */
int reader_check_filter(struct store_reader *r, const struct store_filter *f);

/*
 * "FROM segment s CROSS JOIN launch l ... WHERE ..." for the filter, in the
 * order of launch ids; limit, cursor and newest left to the caller. Values are
 * bound by reader_bind_filter(). NULL on no memory; sqlite3_free() it.
 */
char *reader_filter_sql(const struct store_filter *f);
/* Those of its values that the statement has parameters for: :boot, :since, :until, :pid and so on;
 * :uid is -1 for any. */
void reader_bind_filter(struct store_reader *r, const struct store_filter *f, sqlite3_stmt *stmt);
