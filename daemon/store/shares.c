/* SPDX-License-Identifier: Apache-2.0 */
#include "store/shares.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_FIRST 64

/* ---- lists ---- */

static int make_room(struct share_list *l, size_t n)
{
        size_t size = l->size ? l->size : ROWS_FIRST;
        struct store_share *rows;

        while (size < l->count + n)
                size *= 2;
        if (size == l->size)
                return 0;
        rows = realloc(l->rows, size * sizeof(*rows));
        if (!rows)
                return -ENOMEM;
        l->rows = rows;
        l->size = size;
        return 0;
}

int share_list_add(struct share_list *l, const struct store_share *rows, size_t n, size_t max)
{
        int r;

        if (l->count + n > max)
                return -ENOBUFS;
        r = make_room(l, n);
        if (r < 0)
                return r;
        memcpy(l->rows + l->count, rows, n * sizeof(*rows));
        l->count += n;
        return 0;
}

int share_list_move(struct share_list *l, struct share_list *from)
{
        int r = from->count ? share_list_add(l, from->rows, from->count, SIZE_MAX) : 0;

        if (r == 0)
                share_list_clear(from);
        return r;
}

void share_list_clear(struct share_list *l)
{
        free(l->rows);
        *l = (struct share_list){0};
}

/* ---- rows ---- */

static int put_share(struct store_db *db, const struct store_share *share)
{
        sqlite3_stmt *s = db->statements[DB_SHARE];

        sqlite3_bind_int64(s, 1, db->boot);
        sqlite3_bind_int64(s, 2, (sqlite3_int64)share->start_ns);
        sqlite3_bind_int64(s, 3, share->gpu);
        sqlite3_bind_int64(s, 4, share->mig_gpu << 8 | share->mig_compute);
        sqlite3_bind_int64(s, 5, share->of_engine ? -1 : (sqlite3_int64)share->process_key);
        sqlite3_bind_int64(s, 6, (sqlite3_int64)share->context);
        sqlite3_bind_int64(s, 7, (sqlite3_int64)share->span_ns);
        sqlite3_bind_int64(s, 8, (sqlite3_int64)share->active_ns);
        sqlite3_bind_int64(s, 9, share->slices);
        sqlite3_bind_int64(s, 10, (sqlite3_int64)share->longest_ns);
        sqlite3_bind_int64(s, 11, (sqlite3_int64)share->switch_ns);
        sqlite3_bind_int64(s, 12, (sqlite3_int64)share->idle_ns);
        sqlite3_bind_int64(s, 13, (sqlite3_int64)share->unknown_ns);
        sqlite3_bind_int64(s, 14, (sqlite3_int64)share->lost);
        return db_run(db, DB_SHARE);
}

int shares_write(struct store_db *db, const struct share_list *l)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < l->count; i++)
                r = put_share(db, &l->rows[i]);
        return r;
}

/* ---- retention ---- */

int shares_delete(struct store_db *db, int64_t boot, uint64_t before_ns)
{
        sqlite3_stmt *s = db->statements[DB_DELETE_SHARES];

        sqlite3_bind_int64(s, 1, boot);
        sqlite3_bind_int64(s, 2, (sqlite3_int64)before_ns);
        return db_run(db, DB_DELETE_SHARES);
}

int shares_delete_orphans(struct store_db *db, int *ret_rows)
{
        int r;

        sqlite3_bind_int64(db->statements[DB_DELETE_ORPHAN_SHARES], 1, db->boot);
        r = db_run(db, DB_DELETE_ORPHAN_SHARES);
        *ret_rows = r < 0 ? 0 : sqlite3_changes(db->sql);
        return r;
}

int shares_oldest(struct store_db *db, bool *ret_any, int64_t *ret_boot, uint64_t *ret_start_ns)
{
        sqlite3_stmt *s = db->statements[DB_OLDEST_SHARE];
        int rc, r;

        errno = 0;
        rc = sqlite3_step(s);
        r = db_fail(db, rc);
        *ret_any = rc == SQLITE_ROW;
        if (*ret_any) {
                *ret_boot = sqlite3_column_int64(s, 0);
                *ret_start_ns = (uint64_t)sqlite3_column_int64(s, 1);
        }
        sqlite3_reset(s);
        return r;
}
