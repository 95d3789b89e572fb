/* SPDX-License-Identifier: Apache-2.0 */
#include "store/retention.h"

#include <errno.h>

#include "store/minutes.h"
#include "store/shares.h"
#include "util/macro.h"
#include "util/time.h"

#define MANAGED_ROW_BYTES  80 /* with its share of pages */
#define STEP_NS            (30 * NSEC_PER_MSEC)
#define SWEEP_PROCESSES    64
#define SWEEP_NAMES        1024
#define VACUUM_PAGES       256
#define WAL_BYTES_MIN      (1ULL << 20)
#define WAL_BYTES_MAX      (8ULL << 20)
#define BATCH_BYTES        (1ULL << 20) /* what one batch may add before the next step */
#define MINUTE_ROW_BYTES   192          /* in the file, about */
#define PROCESS_AGE_MIN_NS (86400 * NSEC_PER_SEC)

struct oldest_period {
        int64_t id, boot;
        uint64_t minute, rows, written_realtime_ns;
        bool exists;
};

struct oldest_segment {
        uint64_t first_id, last_id, launches, max_enter_ns, written_realtime_ns;
        int64_t boot;
        bool exists;
};

void retention_set_limits(struct retention *t, uint64_t max_bytes, uint64_t max_age_s,
                          uint64_t max_sums_age_s)
{
        *t = (struct retention){.max_age_ns = max_age_s * NSEC_PER_SEC,
                                .max_sums_age_ns = max_sums_age_s * NSEC_PER_SEC,
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
        t->minute_rows_max = t->used_bytes_max / 4 / MINUTE_ROW_BYTES;
        t->managed_rows_max = t->used_bytes_max / 8 / MANAGED_ROW_BYTES;
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

/*
 * The minutes of its launches are no longer complete: for them there are the
 * sums. A time in the future is not to be believed: it would hide what comes.
 */
static int note_rows_from(struct store_db *db, const struct oldest_segment *s)
{
        uint64_t last_ns = s->max_enter_ns;

        if (s->boot == db->boot && last_ns > now_ns())
                last_ns = now_ns();
        return run_with(db, DB_ROWS_FROM, (uint64_t)s->boot, last_ns / MINUTE_NS + 1);
}

static int delete_segment(struct store_db *db, const struct oldest_segment *s)
{
        int r = db_run(db, DB_BEGIN);

        if (r < 0)
                return r;
        r = note_rows_from(db, s);
        if (r == 0)
                r = run_with(db, DB_DELETE_LAUNCHES, s->first_id, s->last_id);
        if (r == 0)
                r = shares_delete(db, s->boot, s->max_enter_ns);
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

/* ---- segments ---- */

static int drop_segment(struct retention *t, struct store_db *db, const struct oldest_segment *s,
                        struct retention_deleted *deleted)
{
        int r = delete_segment(db, s);

        if (r < 0)
                return r;
        deleted->launches += s->launches;
        t->sweep_due = true;
        return 0;
}

static bool out_of_time(struct retention *t, uint64_t start_ns)
{
        if (now_ns() - start_ns > STEP_NS)
                t->more = true;
        return t->more;
}

/*
 * One at least, however little time this thread is given: what a batch brings is no more than what
 * a segment takes along, so that launches that come in do not outrun those that go.
 */
static int limit_segments(struct retention *t, struct store_db *db, uint64_t keep_from,
                          uint64_t start_ns, struct retention_deleted *deleted)
{
        struct oldest_segment s;
        bool big;
        int r;

        do {
                r = get_oldest(db, &s);
                if (r < 0 || !s.exists || (keep_from && s.first_id >= keep_from))
                        return r;
                r = is_too_big(t, db, &big);
                if (r < 0 || (!big && !(t->max_age_ns && is_older(db, &s, t->max_age_ns))))
                        return r;
                r = drop_segment(t, db, &s, deleted);
        } while (r == 0 && !out_of_time(t, start_ns));
        return r;
}

/* ---- sums ---- */

static int get_oldest_period(struct store_db *db, struct oldest_period *ret_period)
{
        sqlite3_stmt *s = db->statements[DB_OLDEST_PERIOD];
        int rc, r;

        errno = 0;
        rc = sqlite3_step(s);
        *ret_period = (struct oldest_period){0};
        r = db_fail(db, rc);
        if (rc == SQLITE_ROW) {
                ret_period->exists = true;
                ret_period->id = sqlite3_column_int64(s, 0);
                ret_period->boot = sqlite3_column_int64(s, 1);
                ret_period->minute = (uint64_t)sqlite3_column_int64(s, 2);
                ret_period->rows = (uint64_t)sqlite3_column_int64(s, 3);
                ret_period->written_realtime_ns = (uint64_t)sqlite3_column_int64(s, 4);
        }
        sqlite3_reset(s);
        return r;
}

/* By the clocks that is_older() uses for launches; the minute under way is now. */
static bool is_older_period(const struct store_db *db, const struct oldest_period *p,
                            uint64_t age_ns)
{
        bool own = p->boot == db->boot;
        uint64_t now = own ? now_ns() : realtime_ns();
        uint64_t then = own ? (p->minute + 1) * MINUTE_NS : p->written_realtime_ns;

        return now - (then < now ? then : now) >= age_ns;
}

static int drop_period(struct retention *t, struct store_db *db, const struct oldest_period *p,
                       struct retention_deleted *deleted)
{
        int r = db_run(db, DB_BEGIN);

        if (r < 0)
                return r;
        r = run_with(db, DB_DELETE_MINUTES, (uint64_t)p->id, 0);
        if (r == 0)
                r = run_with(db, DB_DELETE_PERIOD, (uint64_t)p->id, 0);
        r = end_transaction(db, r);
        if (r < 0)
                return r;
        db->minute_rows -= p->rows < db->minute_rows ? p->rows : db->minute_rows;
        deleted->periods++;
        t->sweep_due = true;
        return 0;
}

static int limit_periods(struct retention *t, struct store_db *db, uint64_t start_ns,
                         struct retention_deleted *deleted)
{
        struct oldest_period p;
        int r;

        while (!out_of_time(t, start_ns)) {
                r = get_oldest_period(db, &p);
                if (r < 0 || !p.exists)
                        return r;
                if (!(t->minute_rows_max && db->minute_rows > t->minute_rows_max) &&
                    !(t->max_sums_age_ns && is_older_period(db, &p, t->max_sums_age_ns)))
                        return 0;
                r = drop_period(t, db, &p, deleted);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- shares of the GPUs ---- */

/* Whether the oldest are to go although launches of their time are there, or none ever were. */
static int is_share_over(struct retention *t, struct store_db *db, int64_t boot, uint64_t start_ns,
                         bool *ret_over)
{
        uint64_t now = now_ns();

        *ret_over = boot == db->boot && t->max_age_ns && now > start_ns &&
                    now - start_ns > t->max_age_ns + MINUTE_NS;
        return *ret_over ? 0 : is_too_big(t, db, ret_over);
}

/* A minute at a time. Launches take the shares of their time with them; this is for the rest. */
static int limit_shares(struct retention *t, struct store_db *db, uint64_t started_ns)
{
        uint64_t start_ns;
        int64_t boot;
        bool any, over;
        int rows, r;

        while (!out_of_time(t, started_ns)) {
                r = shares_oldest(db, &any, &boot, &start_ns);
                if (r < 0 || !any)
                        return r;
                if (boot != db->boot) {
                        r = shares_delete_orphans(db, &rows);
                        if (r < 0)
                                return r;
                        if (rows)
                                continue;
                }
                r = is_share_over(t, db, boot, start_ns, &over);
                if (r < 0 || !over)
                        return r;
                r = shares_delete(db, boot, start_ns + MINUTE_NS);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- all ---- */

static bool has_limits(const struct retention *t)
{
        return t->max_age_ns || t->max_sums_age_ns || t->used_bytes_max;
}

int retention_step(struct retention *t, struct store_db *db, uint64_t keep_from,
                   struct retention_deleted *ret_deleted)
{
        uint64_t start_ns = now_ns();
        int r;

        *ret_deleted = (struct retention_deleted){0};
        t->more = false;
        if (!has_limits(t))
                return 0;
        r = limit_periods(t, db, start_ns, ret_deleted);
        if (r == 0)
                r = limit_segments(t, db, keep_from, start_ns, ret_deleted);
        if (r == 0)
                r = limit_shares(t, db, start_ns);
        return r < 0 || t->more ? r : shrink(t, db);
}

static int prune_periods(struct retention *t, struct store_db *db, uint64_t older_than_ns,
                         uint64_t start_ns, struct retention_deleted *deleted, bool *ret_more)
{
        struct oldest_period p;
        int r;

        for (;;) {
                r = get_oldest_period(db, &p);
                if (r < 0)
                        return r;
                *ret_more = p.exists && is_older_period(db, &p, older_than_ns);
                if (!*ret_more || now_ns() - start_ns > STEP_NS)
                        return 0;
                r = drop_period(t, db, &p, deleted);
                if (r < 0)
                        return r;
        }
}

int retention_prune(struct retention *t, struct store_db *db, uint64_t older_than_ns, bool sums,
                    struct retention_deleted *ret_deleted, bool *ret_more)
{
        uint64_t start_ns = now_ns();
        struct oldest_segment s;
        int r;

        *ret_deleted = (struct retention_deleted){0};
        for (;;) {
                r = get_oldest(db, &s);
                if (r < 0)
                        return r;
                *ret_more = s.exists && is_older(db, &s, older_than_ns);
                if (!*ret_more)
                        break;
                if (now_ns() - start_ns > STEP_NS)
                        return 0;
                r = drop_segment(t, db, &s, ret_deleted);
                if (r < 0)
                        return r;
        }
        if (!sums)
                return 0;
        return prune_periods(t, db, older_than_ns, start_ns, ret_deleted, ret_more);
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

        if (!t->sweep_due || !has_limits(t))
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
