/* SPDX-License-Identifier: Apache-2.0 */
#include "store/db.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "store/schema.h"
#include "store/sql_error.h"
#include "util/macro.h"

#define BUSY_TIMEOUT_MS 1000
#define CACHE_KIB       2048

#define MINUTE_SPREADS                                                                             \
        "queue_count, queue_total_ns, queue_min_ns, queue_max_ns, queue_histogram,"                \
        " execution_count, execution_total_ns, execution_min_ns, execution_max_ns,"                \
        " execution_histogram"
/* Names and processes used from there on are needed. */
#define FIRST_PERIOD "(SELECT coalesce(min(id), 9223372036854775807) FROM period)"

/* Columns by name: a newer program may have added some. */
static const char *const statement_text[DB_STATEMENTS] = {
        [DB_BEGIN] = "BEGIN IMMEDIATE",
        [DB_COMMIT] = "COMMIT",
        [DB_ROLLBACK] = "ROLLBACK",
        [DB_LAUNCH] = "INSERT INTO launch(launch_id, process, kernel, cpu_enter_ns, cpu_return,"
                      " gpu_start, gpu_end, gpu, match, end_kind, result, tid, context, stream,"
                      " graph_exec, gridid, smid, clock_error_ns, grid_x, grid_y, grid_z,"
                      " block_x, block_y, block_z, shared_bytes, queue_others) VALUES"
                      "(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,"
                      "?21,?22,?23,?24,?25,?26)",
        [DB_PROCESS] = "INSERT INTO process(process_key, boot, pid, start_ticks, uid, comm, exe,"
                       " cgroup, started_realtime_ns) VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9)"
                       " ON CONFLICT(process_key) DO UPDATE SET boot = ?2, pid = ?3,"
                       " start_ticks = ?4, uid = ?5, comm = ?6, exe = ?7, cgroup = ?8,"
                       " started_realtime_ns = ?9",
        [DB_NAME] = "INSERT INTO name(text, last_segment) VALUES(?1, ?2)"
                    " ON CONFLICT(text) DO UPDATE SET last_segment = ?2 RETURNING id",
        [DB_NAME_TOUCH] = "UPDATE name SET last_segment = ?2 WHERE id = ?1 AND text = ?3",
        [DB_LEDGER_CLEAR] = "DELETE FROM ledger WHERE process = ?1",
        [DB_LEDGER] = "INSERT INTO ledger(process, counter, value) VALUES(?1,?2,?3)",
        [DB_META] = "INSERT INTO meta(key, value) VALUES(?1,?2) ON CONFLICT(key) DO UPDATE SET "
                    "value = ?2",
        [DB_SEGMENT] = "INSERT INTO segment(first_id, last_id, boot, launches, min_enter_ns,"
                       " max_enter_ns, written_realtime_ns) VALUES(?1,?2,?3,?4,?5,?6,?7)"
                       " ON CONFLICT(first_id) DO UPDATE SET last_id = ?2, launches = ?4,"
                       " min_enter_ns = ?5, max_enter_ns = ?6, written_realtime_ns = ?7",
        [DB_SEGMENT_PROCESS] =
                "INSERT INTO segment_process(process, segment, launches) VALUES(?1,?2,?3)"
                " ON CONFLICT DO UPDATE SET launches = launches + ?3",
        [DB_OLDEST_SEGMENT] = "SELECT first_id, last_id, boot, launches, max_enter_ns,"
                              " written_realtime_ns FROM segment ORDER BY first_id LIMIT 1",
        [DB_DELETE_LAUNCHES] = "DELETE FROM launch WHERE launch_id BETWEEN ?1 AND ?2",
        [DB_DELETE_SEGMENT_PROCESSES] = "DELETE FROM segment_process WHERE segment = ?1",
        [DB_DELETE_SEGMENT] = "DELETE FROM segment WHERE first_id = ?1",
        [DB_IDLE_PROCESSES] = "SELECT process_key FROM process p WHERE process_key > ?1"
                              " AND started_realtime_ns < ?2 AND NOT EXISTS"
                              "(SELECT 1 FROM segment_process s WHERE s.process = p.process_key)"
                              " AND last_period < " FIRST_PERIOD " ORDER BY process_key LIMIT ?3",
        [DB_DELETE_PROCESS] = "DELETE FROM process WHERE process_key = ?1",
        [DB_DELETE_LEDGER] = "DELETE FROM ledger WHERE process = ?1",
        [DB_DELETE_NAMES] = "DELETE FROM name WHERE id IN (SELECT id FROM name WHERE last_segment <"
                            " (SELECT coalesce(min(first_id), 9223372036854775807) FROM segment)"
                            " AND last_period < " FIRST_PERIOD " LIMIT ?1)",
        [DB_MANAGED] = "INSERT INTO managed_second(process, end_ns, "
                       "written_realtime_ns, events, dropped, gpu_faults, "
                       "cpu_faults, bytes_to_gpu, bytes_to_cpu, bytes_between_gpus, "
                       "bytes_evicted, evictions, thrashing, throttled, "
                       "read_duplications, remote_maps, fatal_faults) VALUES(?1,?2,?"
                       "3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17)",
        [DB_DELETE_MANAGED] = "DELETE FROM managed_second WHERE id IN (SELECT id FROM "
                              "managed_second ORDER BY id LIMIT ?1) AND "
                              "(written_realtime_ns < ?2 OR id <= (SELECT max(id) FROM "
                              "managed_second) - ?3)",
        [DB_MINUTE_GET] = "SELECT launches, " MINUTE_SPREADS
                          " FROM minute WHERE period = ?1 AND process = ?2 AND kernel = ?3"
                          " AND gpu = ?4",
        [DB_MINUTE_PUT] = "INSERT OR REPLACE INTO minute(period, process, kernel, gpu,"
                          " launches, " MINUTE_SPREADS
                          ") VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15)",
        [DB_PERIOD_PUT] = "INSERT INTO period(id, boot, minute, rows, written_realtime_ns)"
                          " VALUES(?1,?2,?3,1,?4) ON CONFLICT DO UPDATE SET rows = rows + 1,"
                          " written_realtime_ns = ?4",
        [DB_PROCESS_PERIOD] = "UPDATE process SET last_period = max(last_period, ?2)"
                              " WHERE process_key = ?1",
        [DB_NAME_PERIOD] = "UPDATE name SET last_period = max(last_period, ?2) WHERE id = ?1",
        [DB_OLDEST_PERIOD] = "SELECT id, boot, minute, rows, written_realtime_ns FROM period"
                             " ORDER BY id LIMIT 1",
        [DB_DELETE_MINUTES] = "DELETE FROM minute WHERE period = ?1",
        [DB_DELETE_PERIOD] = "DELETE FROM period WHERE id = ?1",
        [DB_COUNT_FROM] = "SELECT process, count(*) FROM launch WHERE launch_id >= ?1"
                          " GROUP BY process",
        [DB_SHARE] =
                "INSERT OR REPLACE INTO share(boot, start_ns, gpu, mig, process, context,"
                " span_ns, active_ns, slices, longest_ns, switch_ns, idle_ns, unknown_ns, lost)"
                " VALUES(?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14)",
        [DB_DELETE_SHARES] = "DELETE FROM share WHERE boot = ?1 AND start_ns < ?2",
        [DB_DELETE_ORPHAN_SHARES] =
                "DELETE FROM share WHERE boot < ?1 AND boot NOT IN (SELECT boot FROM segment)",
        [DB_OLDEST_SHARE] = "SELECT boot, start_ns FROM share ORDER BY boot, start_ns LIMIT 1",
        [DB_ROWS_FROM] = "UPDATE boot SET rows_from = max(rows_from, ?2) WHERE id = ?1",
        [DB_PAGE_COUNT] = "PRAGMA page_count",
        [DB_FREE_PAGES] = "PRAGMA freelist_count",
};

int db_fail(struct store_db *db, int rc)
{
        int error = sql_errno(db->sql, rc);

        if (error == 0)
                return 0;
        sql_sentence(db->sql, rc, db->path, db->error, sizeof(db->error));
        db->damaged = error == -EBADMSG;
        return error;
}

/* ---- opening ---- */

/* auto_vacuum must be chosen before the first table; secure_delete would write pages only to erase.
 */
static int set_pragmas(struct store_db *db, uint64_t wal_limit_bytes)
{
        char *sql;
        int rc;

        sql = sqlite3_mprintf("PRAGMA auto_vacuum = INCREMENTAL;"
                              "PRAGMA journal_mode = WAL;"
                              "PRAGMA synchronous = NORMAL;"
                              "PRAGMA secure_delete = OFF;"
                              "PRAGMA mmap_size = 0;"
                              "PRAGMA cache_size = -%d;"
                              "PRAGMA temp_store = MEMORY;"
                              "PRAGMA wal_autocheckpoint = 0;"
                              "PRAGMA journal_size_limit = %lld;",
                              CACHE_KIB, (long long)wal_limit_bytes);
        if (!sql)
                return SQLITE_NOMEM;
        errno = 0;
        rc = sqlite3_exec(db->sql, sql, NULL, NULL, NULL);
        sqlite3_free(sql);
        return rc;
}

static int select_int(struct store_db *db, const char *sql, const char *text, int64_t *ret_value)
{
        sqlite3_stmt *stmt;
        int rc;

        errno = 0;
        rc = sqlite3_prepare_v2(db->sql, sql, -1, &stmt, NULL);
        if (rc != SQLITE_OK)
                return db_fail(db, rc);
        if (text)
                sqlite3_bind_text(stmt, 1, text, -1, SQLITE_STATIC);
        rc = sqlite3_step(stmt);
        *ret_value = rc == SQLITE_ROW ? sqlite3_column_int64(stmt, 0) : 0;
        sqlite3_finalize(stmt);
        return db_fail(db, rc);
}

static int remember_boot(struct store_db *db, const char *boot_id)
{
        int64_t unused;
        int r;

        r = select_int(db, "INSERT INTO boot(boot_id) VALUES(?1) ON CONFLICT DO NOTHING", boot_id,
                       &unused);
        if (r < 0)
                return r;
        return select_int(db, "SELECT id FROM boot WHERE boot_id = ?1", boot_id, &db->boot);
}

/* The greater of what was noted and what is there: a note can be older than the rows after repairs.
 */
static int read_counters(struct store_db *db)
{
        int64_t launch, process, rows, sums, page;
        int r;

        r = select_int(db,
                       "SELECT max((SELECT value FROM meta WHERE key = 'next_launch_id'),"
                       " (SELECT coalesce(max(launch_id), 0) + 1 FROM launch))",
                       NULL, &launch);
        if (r < 0)
                return r;
        r = select_int(db,
                       "SELECT max((SELECT value FROM meta WHERE key = 'next_process_key'),"
                       " (SELECT coalesce(max(process_key), 0) + 1 FROM process))",
                       NULL, &process);
        if (r < 0)
                return r;
        r = select_int(db, "SELECT coalesce(sum(launches), 0) FROM segment", NULL, &rows);
        if (r < 0)
                return r;
        r = select_int(db, "SELECT coalesce(sum(rows), 0) FROM period", NULL, &sums);
        if (r < 0)
                return r;
        r = select_int(db, "PRAGMA page_size", NULL, &page);
        if (r < 0)
                return r;
        db->next_launch_id = (uint64_t)launch;
        db->next_process_key = (uint64_t)process;
        db->launches = (uint64_t)rows;
        db->minute_rows = (uint64_t)sums;
        db->page_bytes = (uint64_t)page;
        return 0;
}

static int prepare_all(struct store_db *db)
{
        for (int i = 0; i < DB_STATEMENTS; i++) {
                int rc = sqlite3_prepare_v3(db->sql, statement_text[i], -1,
                                            SQLITE_PREPARE_PERSISTENT, &db->statements[i], NULL);

                if (rc != SQLITE_OK)
                        return db_fail(db, rc);
        }
        return 0;
}

static int on_commit(void *data, sqlite3 *sql, const char *name, int pages)
{
        ((struct store_db *)data)->wal_pages = pages;
        return SQLITE_OK;
}

static int migrate(struct store_db *db)
{
        int version, rc;

        errno = 0;
        rc = schema_migrate(db->sql, &version);
        if (rc != SQLITE_MISMATCH)
                return db_fail(db, rc);
        if (version == 0) {
                snprintf(db->error, sizeof(db->error),
                         "the file belongs to another program: choose another path (%s)", db->path);
                return -EMEDIUMTYPE;
        }
        snprintf(db->error, sizeof(db->error),
                 "the database was written by a newer gpuobsd: upgrade, or move it away (%s)",
                 db->path);
        return -EPROTONOSUPPORT;
}

/* Before anything is written: a file of somebody else must stay as it is. */
static int refuse_foreign(struct store_db *db)
{
        int64_t tables, application;
        int r;

        r = select_int(db, "SELECT count(*) FROM sqlite_schema", NULL, &tables);
        if (r < 0)
                return r;
        r = select_int(db, "PRAGMA application_id", NULL, &application);
        if (r < 0)
                return r;
        if (tables == 0 || application == STORE_APPLICATION_ID)
                return 0;
        snprintf(db->error, sizeof(db->error),
                 "the file belongs to another program: choose another path (%s)", db->path);
        return -EMEDIUMTYPE;
}

/* SQLite's own error for these would be "unable to open": say which it is. */
static int check_directory(struct store_db *db)
{
        _cleanup_free_ char *copy = strdup(db->path);
        const char *directory;
        struct stat st;
        int error = 0;

        if (!copy)
                return -ENOMEM;
        directory = dirname(copy);
        if (stat(directory, &st) < 0)
                error = errno;
        else if (!S_ISDIR(st.st_mode))
                error = ENOTDIR;
        else if (stat(db->path, &st) == 0 && S_ISDIR(st.st_mode))
                error = EISDIR;
        else if (access(directory, W_OK) < 0)
                error = errno;
        if (error == EROFS || error == EACCES)
                return db_fail(db, SQLITE_READONLY);
        if (error)
                snprintf(db->error, sizeof(db->error),
                         "the database cannot be there (%s): create its directory or choose another"
                         " path (%s)",
                         strerror(error), db->path);
        return -error;
}

static int open_steps(struct store_db *db, const char *boot_id, uint64_t wal_limit_bytes)
{
        struct stat st;
        int r, rc;

        r = check_directory(db);
        if (r < 0)
                return r;
        errno = 0;
        rc = sqlite3_open_v2(db->path, &db->sql,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX,
                             NULL);
        if (rc != SQLITE_OK)
                return db_fail(db, rc);
        sqlite3_extended_result_codes(db->sql, 1);
        sqlite3_busy_timeout(db->sql, BUSY_TIMEOUT_MS);
        r = refuse_foreign(db);
        if (r < 0)
                return r;
        rc = set_pragmas(db, wal_limit_bytes);
        if (rc != SQLITE_OK)
                return db_fail(db, rc);
        r = migrate(db);
        if (r < 0)
                return r;
        r = remember_boot(db, boot_id);
        if (r < 0)
                return r;
        r = read_counters(db);
        if (r < 0)
                return r;
        r = prepare_all(db);
        if (r < 0)
                return r;
        if (stat(db->path, &st) < 0)
                return db_fail(db, SQLITE_CANTOPEN);
        db->inode = st.st_ino;
        db->device = st.st_dev;
        sqlite3_wal_hook(db->sql, on_commit, db);
        return 0;
}

int db_open(struct store_db *db, const char *path, const char *boot_id, uint64_t wal_limit_bytes)
{
        int r;

        *db = (struct store_db){.path = path};
        r = open_steps(db, boot_id, wal_limit_bytes);
        if (r < 0)
                db_close(db);
        return r;
}

void db_close(struct store_db *db)
{
        for (int i = 0; i < DB_STATEMENTS; i++) {
                sqlite3_finalize(db->statements[i]);
                db->statements[i] = NULL;
        }
        sqlite3_close(db->sql);
        db->sql = NULL;
        db->wal_pages = 0;
}

int db_move_aside(const char *path)
{
        /* The log first: left beside a new file, it would be replayed into it. */
        static const char *const suffixes[] = {"-wal", ""};
        _cleanup_free_ char *from = NULL, *to = NULL;
        long long now = (long long)time(NULL);
        char *shm;

        for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
                freep(&from);
                freep(&to);
                from = to = NULL;
                if (asprintf(&from, "%s%s", path, suffixes[i]) < 0) {
                        from = NULL;
                        return -ENOMEM;
                }
                if (asprintf(&to, "%s.corrupt-%lld%s", path, now, suffixes[i]) < 0) {
                        to = NULL;
                        return -ENOMEM;
                }
                if (rename(from, to) < 0 && errno != ENOENT)
                        return -errno;
        }
        if (asprintf(&shm, "%s-shm", path) < 0)
                return -ENOMEM;
        unlink(shm);
        free(shm);
        return 0;
}

bool db_is_in_place(const struct store_db *db)
{
        struct stat st;

        return stat(db->path, &st) == 0 && st.st_ino == db->inode && st.st_dev == db->device;
}

/* ---- statements ---- */

int db_run(struct store_db *db, enum db_statement which)
{
        sqlite3_stmt *stmt = db->statements[which];
        int rc, error;

        errno = 0;
        do
                rc = sqlite3_step(stmt);
        while (rc == SQLITE_ROW);
        error = rc == SQLITE_DONE ? 0 : db_fail(db, rc);
        sqlite3_reset(stmt);
        return error;
}

int db_run_int(struct store_db *db, enum db_statement which, int64_t *ret_value)
{
        sqlite3_stmt *stmt = db->statements[which];
        int64_t value = 0;
        int rc, error;

        errno = 0;
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
                value = sqlite3_column_int64(stmt, 0);
                rc = sqlite3_step(stmt); /* an INSERT RETURNING ends with its last step */
        }
        error = db_fail(db, rc);
        if (error == 0)
                *ret_value = value;
        sqlite3_reset(stmt);
        return error;
}

int db_limit_log(struct store_db *db, uint64_t bytes)
{
        char sql[64];

        snprintf(sql, sizeof(sql), "PRAGMA journal_size_limit = %lld", (long long)bytes);
        errno = 0;
        return db_fail(db, sqlite3_exec(db->sql, sql, NULL, NULL, NULL));
}

int db_checkpoint(struct store_db *db)
{
        int in_log, copied, rc;

        errno = 0;
        rc = sqlite3_wal_checkpoint_v2(db->sql, NULL, SQLITE_CHECKPOINT_PASSIVE, &in_log, &copied);
        /* A reader that holds old pages is no failure: the rest follows next time. */
        if ((rc & 0xff) == SQLITE_BUSY)
                return 0;
        if (rc == SQLITE_OK && copied == in_log)
                db->wal_pages = 0;
        return db_fail(db, rc);
}
