/* SPDX-License-Identifier: Apache-2.0 */
#include "store/minutes.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "util/time.h"

/* Beyond so many, those kept in memory are forgotten: some 2 MiB. */
#define KEPT_MAX 4096

struct minute_key {
        int64_t period, process, kernel, gpu; /* gpu -1: not known */
};

struct minute_sum {
        UT_hash_handle hh;
        struct minute_key key;
        uint64_t launches;
        struct minute_spread queue, execution;
        bool is_new; /* not in the database */
        bool dirty;
};

static void sum_free(struct minute_sum *s)
{
        histogram_done(&s->queue.histogram);
        histogram_done(&s->execution.histogram);
        free(s);
}

void minutes_clear(struct minutes *m)
{
        struct minute_sum *s, *next;

        m->last = NULL;
        HASH_ITER (hh, m->by_key, s, next) {
                HASH_DEL(m->by_key, s);
                sum_free(s);
        }
}

/* ---- from the database ---- */

static int get_spread(sqlite3_stmt *stmt, int column, struct minute_spread *s)
{
        s->count = (uint64_t)sqlite3_column_int64(stmt, column);
        s->total_ns = (uint64_t)sqlite3_column_int64(stmt, column + 1);
        s->min_ns = (uint64_t)sqlite3_column_int64(stmt, column + 2);
        s->max_ns = (uint64_t)sqlite3_column_int64(stmt, column + 3);
        return histogram_merge(&s->histogram, sqlite3_column_blob(stmt, column + 4),
                               (size_t)sqlite3_column_bytes(stmt, column + 4));
}

static void bind_key(sqlite3_stmt *stmt, const struct minute_key *key)
{
        sqlite3_bind_int64(stmt, 1, key->period);
        sqlite3_bind_int64(stmt, 2, key->process);
        sqlite3_bind_int64(stmt, 3, key->kernel);
        sqlite3_bind_int64(stmt, 4, key->gpu);
}

/* What is there already; a row that makes no sense is begun anew. */
static int load(struct store_db *db, struct minute_sum *s)
{
        sqlite3_stmt *stmt = db->statements[DB_MINUTE_GET];
        int rc, r = 0;

        bind_key(stmt, &s->key);
        errno = 0;
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
                s->launches = (uint64_t)sqlite3_column_int64(stmt, 0);
                r = get_spread(stmt, 1, &s->queue);
                if (r == 0)
                        r = get_spread(stmt, 6, &s->execution);
                if (r == -EBADMSG)
                        r = 0;
        } else {
                s->is_new = true;
                r = db_fail(db, rc);
        }
        sqlite3_reset(stmt);
        return r;
}

/* ---- adding ---- */

static int get(struct minutes *m, struct store_db *db, const struct minute_key *key,
               struct minute_sum **ret_sum)
{
        struct minute_sum *s = m->last;
        int r;

        if (!s || memcmp(&s->key, key, sizeof(*key)) != 0)
                HASH_FIND(hh, m->by_key, key, sizeof(*key), s);
        if (!s) {
                s = calloc(1, sizeof(*s));
                if (!s)
                        return -ENOMEM;
                s->key = *key;
                r = load(db, s);
                if (r < 0) {
                        sum_free(s);
                        return r;
                }
                HASH_ADD(hh, m->by_key, key, sizeof(s->key), s);
        }
        m->last = *ret_sum = s;
        return 0;
}

/* A negative distance is the clocks' error, not time. */
static int spread_add(struct minute_spread *s, uint64_t from_ns, uint64_t to_ns)
{
        uint64_t ns = to_ns > from_ns ? to_ns - from_ns : 0;

        if (s->count == 0 || ns < s->min_ns)
                s->min_ns = ns;
        if (ns > s->max_ns)
                s->max_ns = ns;
        s->total_ns += ns;
        s->count++;
        return histogram_add(&s->histogram, ns);
}

int minutes_add(struct minutes *m, struct store_db *db, const struct launch_record *r,
                int64_t kernel)
{
        const struct minute_key key = {
                .period = PERIOD_ID(db->boot, r->cpu_enter_ns / MINUTE_NS),
                .process = (int64_t)r->process_key,
                .kernel = kernel,
                .gpu = r->has & LAUNCH_HAS_GPU ? (int64_t)r->gpu : -1,
        };
        struct minute_sum *s;
        int error = get(m, db, &key, &s);

        if (error < 0)
                return error;
        s->dirty = true;
        s->launches++;
        if (r->has & LAUNCH_HAS_GPU_START)
                error = spread_add(&s->queue, r->cpu_return_ns, r->gpu_start_ns);
        if (error == 0 && (r->has & LAUNCH_HAS_GPU_START) && (r->has & LAUNCH_HAS_GPU_END))
                error = spread_add(&s->execution, r->gpu_start_ns, r->gpu_end_ns);
        return error;
}

/* ---- writing ---- */

static void bind_spread(sqlite3_stmt *stmt, int column, const struct minute_spread *s,
                        uint8_t *bytes)
{
        size_t size = histogram_encode(&s->histogram, bytes);

        sqlite3_bind_int64(stmt, column, (sqlite3_int64)s->count);
        sqlite3_bind_int64(stmt, column + 1, (sqlite3_int64)s->total_ns);
        sqlite3_bind_int64(stmt, column + 2, (sqlite3_int64)s->min_ns);
        sqlite3_bind_int64(stmt, column + 3, (sqlite3_int64)s->max_ns);
        if (size)
                sqlite3_bind_blob(stmt, column + 4, bytes, (int)size, SQLITE_STATIC);
        else
                sqlite3_bind_null(stmt, column + 4);
}

static int put_row(struct store_db *db, const struct minute_sum *s)
{
        uint8_t queue[HISTOGRAM_BYTES_MAX], execution[HISTOGRAM_BYTES_MAX];
        sqlite3_stmt *stmt = db->statements[DB_MINUTE_PUT];
        int r;

        bind_key(stmt, &s->key);
        sqlite3_bind_int64(stmt, 5, (sqlite3_int64)s->launches);
        bind_spread(stmt, 6, &s->queue, queue);
        bind_spread(stmt, 11, &s->execution, execution);
        r = db_run(db, DB_MINUTE_PUT);
        sqlite3_clear_bindings(stmt); /* the bytes are this function's */
        return r;
}

static int run_with(struct store_db *db, enum db_statement which, int64_t a, int64_t b)
{
        sqlite3_bind_int64(db->statements[which], 1, a);
        sqlite3_bind_int64(db->statements[which], 2, b);
        return db_run(db, which);
}

/* The first of its key: its process and name must stay as long as it does. */
static int put_new(struct store_db *db, const struct minute_key *key)
{
        sqlite3_stmt *stmt = db->statements[DB_PERIOD_PUT];
        int r;

        sqlite3_bind_int64(stmt, 1, key->period);
        sqlite3_bind_int64(stmt, 2, db->boot);
        sqlite3_bind_int64(stmt, 3, key->period & UINT32_MAX);
        sqlite3_bind_int64(stmt, 4, (sqlite3_int64)realtime_ns());
        r = db_run(db, DB_PERIOD_PUT);
        if (r == 0)
                r = run_with(db, DB_PROCESS_PERIOD, key->process, key->period);
        if (r == 0 && key->kernel)
                r = run_with(db, DB_NAME_PERIOD, key->kernel, key->period);
        db->minute_rows++;
        return r;
}

int minutes_write(struct minutes *m, struct store_db *db)
{
        struct minute_sum *s, *next;
        int r = 0;

        HASH_ITER (hh, m->by_key, s, next) {
                if (!s->dirty)
                        continue;
                r = put_row(db, s);
                if (r == 0 && s->is_new)
                        r = put_new(db, &s->key);
                if (r < 0)
                        return r;
        }
        return 0;
}

void minutes_committed(struct minutes *m)
{
        struct minute_sum *s, *next;

        if (HASH_COUNT(m->by_key) > KEPT_MAX) {
                minutes_clear(m);
                return;
        }
        HASH_ITER (hh, m->by_key, s, next)
                s->is_new = s->dirty = false;
}
