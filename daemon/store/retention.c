/* SPDX-License-Identifier: Apache-2.0 */
#include "store/retention.h"

#include <errno.h>

#include "util/macro.h"
#include "util/time.h"

#define STEP_NS            (30 * NSEC_PER_MSEC)
#define SWEEP_PROCESSES    64
#define SWEEP_NAMES        1024
#define VACUUM_PAGES       256
#define WAL_BYTES_MIN      (1ULL << 20)
#define WAL_BYTES_MAX      (8ULL << 20)
#define BATCH_BYTES        (1ULL << 20) /* what one batch may add before the next step */
#define PROCESS_AGE_MIN_NS (86400 * NSEC_PER_SEC)

struct oldest_segment {
        uint64_t first_id, last_id, launches, max_enter_ns, written_realtime_ns;
        int64_t boot;
        bool exists;
};

void retention_set_limits(struct retention *t, uint64_t max_bytes, uint64_t max_age_s,
                          uint64_t max_sums_age_s)
{
        *t = (struct retention){.max_age_ns = max_age_s * NSEC_PER_SEC,
                                .wal_bytes_max = WAL_BYTES_MAX,
                                .after_process = t->after_process,
                                .sweep_due = true};
        if (max_bytes == 0)
                return;
        if (max_bytes < RETENTION_MIN_BYTES)
                max_bytes = RETENTION_MIN_BYTES;
        t->wal_bytes_max = max_bytes / 8;
        if (t->wal_bytes_max < WAL_BYTES_MIN)
                t->wal_bytes_max = WAL_BYTES_MIN;
        if (t->wal_bytes_max > WAL_BYTES_MAX)
                t->wal_bytes_max = WAL_BYTES_MAX;
        t->file_bytes_max = max_bytes - t->wal_bytes_max;
        t->used_bytes_max = t->file_bytes_max - BATCH_BYTES;
}

static int get_oldest(struct store_db *db, struct oldest_segment *ret_segment)
{
        sqlite3_stmt *s = db->statements[DB_OLDEST_SEGMENT];
        int rc = sqlite3_step(s), r;

        *ret_segment = (struct oldest_segment){0};
        r = db_fail(db, rc);
        if (rc == SQLITE_ROW) {
                ret_segment->exists = true;
                ret_segment->first_id = (uint64_t)sqlite3_column_int64(s, 0);
                ret_segment->last_id = (uint64_t)sqlite3_column_int64(s, 1);
                ret_segment->boot = sqlite3_column_int64(s, 2);
                ret_segment->launches = (uint64_t)sqlite3_column_int64(s, 3);
                ret_segment->max_enter_ns = (uint64_t)sqlite3_column_int64(s, 4);
                ret_segment->written_realtime_ns = (uint64_t)sqlite3_column_int64(s, 5);
        }
        sqlite3_reset(s);
        return r;
}

/* Of this boot by its own clock, which nobody sets; of former boots by the wall clock. */
static bool is_older(const struct store_db *db, const struct oldest_segment *s, uint64_t age_ns)
{
        uint64_t now, then;

        now = s->boot == db->boot ? now_ns() : realtime_ns();
        then = s->boot == db->boot ? s->max_enter_ns : s->written_realtime_ns;
        return now > then && now - then > age_ns;
}

static int get_sizes(struct store_db *db, uint64_t *ret_pages, uint64_t *ret_free)
{
        int64_t pages, unused;
        int r;

        r = db_run_int(db, DB_PAGE_COUNT, &pages);
        if (r == 0)
                r = db_run_int(db, DB_FREE_PAGES, &unused);
        if (r < 0)
                return r;
        *ret_pages = (uint64_t)pages;
        *ret_free = (uint64_t)unused;
        return 0;
}

static int is_too_big(const struct retention *t, struct store_db *db, bool *ret_big)
{
        uint64_t pages, unused;
        int r;

        *ret_big = false;
        if (t->used_bytes_max == 0)
                return 0;
        r = get_sizes(db, &pages, &unused);
        if (r == 0)
                *ret_big = (pages - unused) * db->page_bytes > t->used_bytes_max;
        return r;
}

static int run_with(struct store_db *db, enum db_statement which, uint64_t a, uint64_t b)
{
        sqlite3_stmt *s = db->statements[which];

        sqlite3_bind_int64(s, 1, (sqlite3_int64)a);
        if (sqlite3_bind_parameter_count(s) > 1)
                sqlite3_bind_int64(s, 2, (sqlite3_int64)b);
        return db_run(db, which);
}

static int end_transaction(struct store_db *db, int r)
{
        if (r == 0)
                r = db_run(db, DB_COMMIT);
        if (r < 0 && !sqlite3_get_autocommit(db->sql))
                sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
        return r;
}

static int delete_segment(struct store_db *db, const struct oldest_segment *s)
{
        int r = db_run(db, DB_BEGIN);

        if (r < 0)
                return r;
        r = run_with(db, DB_DELETE_LAUNCHES, s->first_id, s->last_id);
        if (r == 0)
                r = run_with(db, DB_DELETE_SEGMENT_PROCESSES, s->first_id, 0);
        if (r == 0)
                r = run_with(db, DB_DELETE_SEGMENT, s->first_id, 0);
        return end_transaction(db, r);
}

/* Give pages back to the file system: what is over the limit, and the greater half of much air. */
static int shrink(struct retention *t, struct store_db *db)
{
        uint64_t pages, unused;
        char sql[64];
        bool over;
        int r;

        r = get_sizes(db, &pages, &unused);
        if (r < 0 || unused == 0)
                return r;
        over = t->file_bytes_max && pages * db->page_bytes > t->file_bytes_max;
        if (!over && (unused < 4 * VACUUM_PAGES || unused < pages / 2))
                return 0;
        snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%d)", VACUUM_PAGES);
        errno = 0;
        r = db_fail(db, sqlite3_exec(db->sql, sql, NULL, NULL, NULL));
        t->more = r == 0 && unused > VACUUM_PAGES;
        return r;
}

int retention_step(struct retention *t, struct store_db *db, uint64_t keep_from,
                   uint64_t *ret_deleted)
{
        uint64_t start_ns = now_ns();
        struct oldest_segment s;
        bool big;
        int r;

        *ret_deleted = 0;
        t->more = false;
        if (t->max_age_ns == 0 && t->used_bytes_max == 0)
                return 0;
        for (;;) {
                r = get_oldest(db, &s);
                if (r < 0)
                        return r;
                if (!s.exists || (keep_from && s.first_id >= keep_from))
                        break;
                r = is_too_big(t, db, &big);
                if (r < 0)
                        return r;
                if (!big && !(t->max_age_ns && is_older(db, &s, t->max_age_ns)))
                        break;
                r = delete_segment(db, &s);
                if (r < 0)
                        return r;
                *ret_deleted += s.launches;
                t->sweep_due = true;
                if (now_ns() - start_ns > STEP_NS) {
                        t->more = true;
                        return 0;
                }
        }
        return shrink(t, db);
}

int retention_prune(struct retention *t, struct store_db *db, uint64_t older_than_ns,
                    uint64_t *ret_deleted, bool *ret_more)
{
        uint64_t start_ns = now_ns();
        struct oldest_segment s;
        int r;

        *ret_deleted = 0;
        for (;;) {
                r = get_oldest(db, &s);
                if (r < 0)
                        return r;
                *ret_more = s.exists && is_older(db, &s, older_than_ns);
                if (!*ret_more || now_ns() - start_ns > STEP_NS)
                        return 0;
                r = delete_segment(db, &s);
                if (r < 0)
                        return r;
                *ret_deleted += s.launches;
                t->sweep_due = true;
        }
}

/* Keys of up to SWEEP_PROCESSES processes without launches, seen first long ago. */
static int find_idle(struct retention *t, struct store_db *db, uint64_t *keys, size_t *ret_count)
{
        sqlite3_stmt *s = db->statements[DB_IDLE_PROCESSES];
        uint64_t age = t->max_age_ns > PROCESS_AGE_MIN_NS ? t->max_age_ns : PROCESS_AGE_MIN_NS;
        uint64_t now = realtime_ns();
        size_t n = 0;
        int rc, r;

        sqlite3_bind_int64(s, 1, (sqlite3_int64)t->after_process);
        sqlite3_bind_int64(s, 2, now > age ? (sqlite3_int64)(now - age) : 0);
        sqlite3_bind_int64(s, 3, SWEEP_PROCESSES);
        while ((rc = sqlite3_step(s)) == SQLITE_ROW)
                keys[n++] = (uint64_t)sqlite3_column_int64(s, 0);
        r = db_fail(db, rc);
        sqlite3_reset(s);
        t->after_process = n == SWEEP_PROCESSES ? keys[n - 1] : 0;
        *ret_count = n;
        return r;
}

static int delete_idle(struct store_db *db, struct process_cache *cache, const uint64_t *keys,
                       size_t n)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < n; i++) {
                /* Processes of this run are in use: their launches may be on the way. */
                if (process_cache_knows(cache, keys[i]))
                        continue;
                r = run_with(db, DB_DELETE_LEDGER, keys[i], 0);
                if (r == 0)
                        r = run_with(db, DB_DELETE_PROCESS, keys[i], 0);
        }
        return r;
}

int retention_sweep(struct retention *t, struct store_db *db, struct process_cache *cache)
{
        uint64_t keys[SWEEP_PROCESSES];
        size_t n;
        int names, r;

        if (!t->sweep_due || (t->max_age_ns == 0 && t->used_bytes_max == 0))
                return 0;
        r = find_idle(t, db, keys, &n);
        if (r < 0)
                return r;
        r = db_run(db, DB_BEGIN);
        if (r < 0)
                return r;
        r = delete_idle(db, cache, keys, n);
        if (r == 0)
                r = run_with(db, DB_DELETE_NAMES, SWEEP_NAMES, 0);
        names = sqlite3_changes(db->sql);
        r = end_transaction(db, r);
        if (r == 0)
                t->sweep_due = n == SWEEP_PROCESSES || names == SWEEP_NAMES;
        return r;
}
