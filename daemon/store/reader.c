/* SPDX-License-Identifier: Apache-2.0 */
#include "store/reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/glob.h"
#include "store/schema.h"
#include "store/sql_error.h"
#include "store/store_internal.h"
#include "util/macro.h"
#include "util/time.h"

#define BUSY_TIMEOUT_MS      200 /* only a recovery after a crash ever makes a reader wait */
#define LIMIT_MAX            10000
#define GLOB_BYTES_MAX       1024
#define CACHE_KIB            1024
#define STEPS_BETWEEN_CHECKS 5000 /* of SQLite's machine: some 0.1 ms */

DEFINE_CLEANUP(struct store_reader *, store_reader_free)

static int out_of_time(void *data)
{
        struct store_reader *r = data;

        return r->deadline_ns && now_ns() > r->deadline_ns;
}

int reader_fail(struct store_reader *r, int rc)
{
        int error = sql_errno(r->sql, rc);

        if (error == -ETIME)
                snprintf(r->error, sizeof(r->error),
                         "the query took too long: narrow its time, process or kernel");
        else if (error < 0)
                sql_sentence(r->sql, rc, r->path, r->error, sizeof(r->error));
        return error;
}

int reader_prepare(struct store_reader *r, const char *sql, sqlite3_stmt **ret_stmt)
{
        if (!sql)
                return -ENOMEM;
        return reader_fail(r, sqlite3_prepare_v2(r->sql, sql, -1, ret_stmt, NULL));
}

/* What "text GLOB pattern" calls. */
static void sql_glob(sqlite3_context *context, int count, sqlite3_value **values)
{
        const char *pattern = (const char *)sqlite3_value_text(values[0]);
        const char *text = (const char *)sqlite3_value_text(values[1]);

        sqlite3_result_int(context, pattern && text && glob_matches(pattern, text));
}

static void reader_close(struct store_reader *r)
{
        sqlite3_close(r->sql);
        r->sql = NULL;
}

static int check_schema(struct store_reader *r)
{
        int version, rc;

        rc = schema_check(r->sql, &version);
        if (rc != SQLITE_MISMATCH)
                return reader_fail(r, rc);
        snprintf(r->error, sizeof(r->error),
                 "the database's schema (version %d) is not version %d:"
                 " use the gpuobsd that wrote it (%s)",
                 version, STORE_SCHEMA_VERSION, r->path);
        return -EPROTONOSUPPORT;
}

static int open_file(struct store_reader *r)
{
        struct stat st;
        char *pragmas;
        int rc;

        if (stat(r->path, &st) < 0) {
                snprintf(r->error, sizeof(r->error), "there is no database yet (%s): %s",
                         strerror(errno), r->path);
                return -errno;
        }
        errno = 0;
        rc = sqlite3_open_v2(r->path, &r->sql, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
        if (rc != SQLITE_OK)
                return reader_fail(r, rc);
        r->inode = st.st_ino;
        r->device = st.st_dev;
        sqlite3_extended_result_codes(r->sql, 1);
        sqlite3_busy_timeout(r->sql, BUSY_TIMEOUT_MS);
        sqlite3_progress_handler(r->sql, STEPS_BETWEEN_CHECKS, out_of_time, r);
        rc = sqlite3_create_function(r->sql, "glob", 2, SQLITE_UTF8 | SQLITE_DETERMINISTIC, NULL,
                                     sql_glob, NULL, NULL);
        if (rc != SQLITE_OK)
                return reader_fail(r, rc);
        pragmas = sqlite3_mprintf("PRAGMA query_only = ON; PRAGMA trusted_schema = OFF;"
                                  "PRAGMA mmap_size = 0; PRAGMA cache_size = -%d;"
                                  "PRAGMA temp_store = MEMORY",
                                  CACHE_KIB);
        if (!pragmas)
                return -ENOMEM;
        rc = sqlite3_exec(r->sql, pragmas, NULL, NULL, NULL);
        sqlite3_free(pragmas);
        if (rc != SQLITE_OK)
                return reader_fail(r, rc);
        return check_schema(r);
}

static int open_or_close(struct store_reader *r)
{
        int error = open_file(r);

        if (error < 0)
                reader_close(r);
        return error;
}

int store_reader_new(const char *path, struct store_reader **ret_reader)
{
        _cleanup_(store_reader_freep) struct store_reader *r = calloc(1, sizeof(*r));
        int error;

        if (!r)
                return -ENOMEM;
        r->path = strdup(path);
        if (!r->path)
                return -ENOMEM;
        error = store_boot_id(r->boot_id, sizeof(r->boot_id));
        if (error < 0)
                return error;
        error = open_or_close(r);
        if (error < 0)
                return error;
        *ret_reader = TAKE_PTR(r);
        return 0;
}

struct store_reader *store_reader_free(struct store_reader *r)
{
        if (!r)
                return NULL;
        reader_close(r);
        free(r->path);
        free(r);
        return NULL;
}

const char *store_reader_error(const struct store_reader *r)
{
        return r->error;
}

static bool is_in_place(const struct store_reader *r)
{
        struct stat st;

        return r->sql && stat(r->path, &st) == 0 && st.st_ino == r->inode && st.st_dev == r->device;
}

int reader_begin(struct store_reader *r, uint32_t timeout_ms)
{
        int error;

        errno = 0;
        r->error[0] = '\0';
        r->deadline_ns = 0;
        if (!is_in_place(r)) {
                reader_close(r);
                error = open_or_close(r);
                if (error < 0)
                        return error;
        }
        r->deadline_ns = timeout_ms ? now_ns() + timeout_ms * NSEC_PER_MSEC : 0;
        return reader_fail(r, sqlite3_exec(r->sql, "BEGIN", NULL, NULL, NULL));
}

void reader_end(struct store_reader *r)
{
        r->deadline_ns = 0;
        if (r->sql && !sqlite3_get_autocommit(r->sql))
                sqlite3_exec(r->sql, "COMMIT", NULL, NULL, NULL);
}

/* ---- the filter ---- */

int reader_check_filter(struct store_reader *r, const struct store_filter *f)
{
        if (f->limit < 1 || f->limit > LIMIT_MAX)
                snprintf(r->error, sizeof(r->error), "the limit must be 1 to %d rows", LIMIT_MAX);
        else if (f->kernel_glob && strlen(f->kernel_glob) > GLOB_BYTES_MAX)
                snprintf(r->error, sizeof(r->error), "the kernel pattern is longer than %d bytes",
                         GLOB_BYTES_MAX);
        else
                return 0;
        return -EINVAL;
}

/*
 * Segments first: they tell by time, boot and process which stretches of ids
 * can hold rows at all. CROSS JOIN keeps SQLite from turning the loops round.
 */
char *reader_filter_sql(const struct store_filter *f)
{
        bool by_process = f->pid != 0 || f->uid != UINT32_MAX;
        const char *processes = "(SELECT process_key FROM process WHERE (:pid = 0 OR pid = :pid)"
                                " AND (:uid < 0 OR uid = :uid))";

        return sqlite3_mprintf(
                " FROM segment s CROSS JOIN launch l"
                " ON l.launch_id BETWEEN max(s.first_id, :after + 1) AND s.last_id"
                " WHERE s.last_id > :after%s%s%s%s%s%s%s%s%s",
                f->all_boots ? "" : " AND s.boot = (SELECT id FROM boot WHERE boot_id = :boot)",
                f->since_ns ? " AND s.max_enter_ns >= :since AND l.cpu_enter_ns >= :since" : "",
                f->until_ns ? " AND s.min_enter_ns < :until AND l.cpu_enter_ns < :until" : "",
                by_process ? " AND EXISTS (SELECT 1 FROM segment_process sp"
                             " WHERE sp.segment = s.first_id AND sp.process IN "
                           : "",
                by_process ? processes : "", by_process ? ") AND l.process IN " : "",
                by_process ? processes : "", f->gpu != STORE_ANY_GPU ? " AND l.gpu = :gpu" : "",
                f->kernel_glob ? " AND l.kernel IN (SELECT id FROM name WHERE text GLOB :glob)"
                               : "");
}

static void bind_int(sqlite3_stmt *stmt, const char *name, uint64_t value)
{
        int index = sqlite3_bind_parameter_index(stmt, name);

        if (index > 0)
                sqlite3_bind_int64(stmt, index, value > INT64_MAX ? INT64_MAX : (int64_t)value);
}

static void bind_text(sqlite3_stmt *stmt, const char *name, const char *text)
{
        int index = sqlite3_bind_parameter_index(stmt, name);

        if (index > 0)
                sqlite3_bind_text(stmt, index, text, -1, SQLITE_STATIC);
}

void reader_bind_filter(struct store_reader *r, const struct store_filter *f, sqlite3_stmt *stmt)
{
        int uid = sqlite3_bind_parameter_index(stmt, ":uid");

        bind_text(stmt, ":boot", r->boot_id);
        bind_int(stmt, ":after",
                 f->after_launch_id >= INT64_MAX ? INT64_MAX - 1 : f->after_launch_id);
        bind_int(stmt, ":since", f->since_ns);
        bind_int(stmt, ":until", f->until_ns);
        bind_int(stmt, ":pid", f->pid);
        bind_int(stmt, ":gpu", f->gpu);
        bind_text(stmt, ":glob", f->kernel_glob);
        if (uid > 0)
                sqlite3_bind_int64(stmt, uid, f->uid == UINT32_MAX ? -1 : (int64_t)f->uid);
}
