/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shares of the GPUs in the database: a row for each second, engine and context
 * that was active in it, and one for the engine itself. A GPU that one process
 * keeps takes two rows a second, some 10 MB a day.
 */
#include <stdbool.h>
#include <stddef.h>

#include "store/db.h"
#include "store/store.h"

/* Rows on their way to the database, in the order they came. */
struct share_list {
        struct store_share *rows;
        size_t count, size;
};

/* Copy n rows to the end; at most max in all. 0, -ENOBUFS, -ENOMEM: none was taken. */
int share_list_add(struct share_list *l, const struct store_share *rows, size_t n, size_t max);
/* Move all of `from` to the end. 0, or -ENOMEM with `from` as it was. */
int share_list_move(struct share_list *l, struct share_list *from);
void share_list_clear(struct share_list *l);

/* Inside a transaction. */
int shares_write(struct store_db *db, const struct share_list *l);

/* Delete the shares of a boot from before a time. */
int shares_delete(struct store_db *db, int64_t boot, uint64_t before_ns);

/* Delete shares of former boots of which no launch is left. *ret_rows: how many. */
int shares_delete_orphans(struct store_db *db, int *ret_rows);

/* The oldest second there is; *ret_any false: there is none. */
int shares_oldest(struct store_db *db, bool *ret_any, int64_t *ret_boot, uint64_t *ret_start_ns);
