/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tables and their history. A version only adds tables, or columns that may be
 * NULL; what cannot be read or written by older code raises `compatible`.
 * docs: the comments in schema.c describe each column.
 */
#include <sqlite3.h>

#define STORE_SCHEMA_VERSION 6
#define STORE_APPLICATION_ID 0x4750554f /* "GPUO", in the file's header */

/*
 * Create or migrate: each version in its own transaction. SQLITE_OK, or
 * SQLITE_MISMATCH when the file belongs to something else or needs a newer
 * program (ret_version tells: 0 = not ours), or another SQLite code.
 */
int schema_migrate(sqlite3 *db, int *ret_version);

/* For readers: SQLITE_OK when this program can read the file, else as above. */
int schema_check(sqlite3 *db, int *ret_version);
