/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The one place where SQLite's result codes become -errno and sentences. */
#include <stddef.h>

#include <sqlite3.h>

/*
 * -errno of a result code (0 for OK, ROW, DONE). db may be NULL. Clear errno
 * before the call that gave the code: it tells a full disk from a broken one.
 */
int sql_errno(sqlite3 *db, int rc);

/* One sentence that says what is wrong and what a person can do, for a code that is an error. */
void sql_sentence(sqlite3 *db, int rc, const char *path, char *buffer, size_t size);
