/* SPDX-License-Identifier: Apache-2.0 */
#include "store/minutes.h"
#include "store/reader.h"
#include "util/macro.h"

struct boot {
        int64_t id;
        uint64_t rows_from; /* the first minute whose launches are all there */
};

static int read_boot(struct store_reader *r, struct boot *ret_boot)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        int error, rc;

        *ret_boot = (struct boot){0};
        error = reader_prepare(r, "SELECT id, rows_from FROM boot WHERE boot_id = ?1", &stmt);
        if (error < 0)
                return error;
        sqlite3_bind_text(stmt, 1, r->boot_id, -1, SQLITE_STATIC);
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
                ret_boot->id = sqlite3_column_int64(stmt, 0);
                ret_boot->rows_from = (uint64_t)sqlite3_column_int64(stmt, 1);
        }
        return reader_fail(r, rc);
}

static char *rows_sql(const struct store_filter *f)
{
        bool by_process = f->pid != 0 || f->uid != UINT32_MAX;

        return sqlite3_mprintf(
                "SELECT m.kernel, m.launches, m.queue_count, m.queue_total_ns, m.queue_min_ns,"
                " m.queue_max_ns, m.queue_histogram, m.execution_count, m.execution_total_ns,"
                " m.execution_min_ns, m.execution_max_ns, m.execution_histogram"
                " FROM minute m WHERE m.period >= :from AND m.period < :to%s%s%s",
                by_process ? " AND m.process IN (SELECT process_key FROM process WHERE"
                             " (:pid = 0 OR pid = :pid) AND (:uid < 0 OR uid = :uid))"
                           : "",
                f->gpu != STORE_ANY_GPU ? " AND m.gpu = :gpu" : "",
                f->kernel_glob ? " AND m.kernel IN (SELECT id FROM name WHERE text GLOB :glob)"
                               : "");
}

static void get_spread(sqlite3_stmt *stmt, int column, struct minute_spread *s, const void **bytes,
                       size_t *size)
{
        *s = (struct minute_spread){
                .count = (uint64_t)sqlite3_column_int64(stmt, column),
                .total_ns = (uint64_t)sqlite3_column_int64(stmt, column + 1),
                .min_ns = (uint64_t)sqlite3_column_int64(stmt, column + 2),
                .max_ns = (uint64_t)sqlite3_column_int64(stmt, column + 3),
        };
        *bytes = sqlite3_column_blob(stmt, column + 4);
        *size = (size_t)sqlite3_column_bytes(stmt, column + 4);
}

static int read_rows(struct store_reader *r, sqlite3_stmt *stmt,
                     int (*row)(void *data, const struct minute_row *m), void *data)
{
        struct minute_row m;
        int rc, error;

        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                m.kernel = sqlite3_column_int64(stmt, 0);
                m.launches = (uint64_t)sqlite3_column_int64(stmt, 1);
                get_spread(stmt, 2, &m.queue, &m.queue_bytes, &m.queue_size);
                get_spread(stmt, 7, &m.execution, &m.execution_bytes, &m.execution_size);
                error = row(data, &m);
                if (error < 0)
                        return error;
        }
        return reader_fail(r, rc);
}

/* Minutes before rows_from that overlap the filter's times. */
static void bind_range(sqlite3_stmt *stmt, const struct store_filter *f, const struct boot *boot)
{
        uint64_t from = f->since_ns / MINUTE_NS, to = boot->rows_from;

        if (f->until_ns && (f->until_ns - 1) / MINUTE_NS + 1 < to)
                to = (f->until_ns - 1) / MINUTE_NS + 1;
        if (from > to)
                from = to;
        sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":from"),
                           PERIOD_ID(boot->id, from));
        sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, ":to"),
                           PERIOD_ID(boot->id, to));
}

int minutes_read(struct store_reader *r, const struct store_filter *f,
                 int (*row)(void *data, const struct minute_row *m), void *data,
                 uint64_t *ret_rows_from_ns)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        struct boot boot;
        char *sql;
        int error;

        error = read_boot(r, &boot);
        if (error < 0)
                return error;
        *ret_rows_from_ns = boot.rows_from * MINUTE_NS;
        if (boot.rows_from == 0)
                return 0;
        sql = rows_sql(f);
        error = reader_prepare(r, sql, &stmt);
        sqlite3_free(sql);
        if (error < 0)
                return error;
        reader_bind_filter(r, f, stmt);
        bind_range(stmt, f, &boot);
        return read_rows(r, stmt, row, data);
}
