/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "store/reader.h"
#include "util/macro.h"

/*
 * Of the running boot. Rows of engines (process -1) are shown to everybody; those
 * of contexts only with the process they belong to, when rows are asked for by
 * process or user.
 */
static const char query[] =
        "SELECT s.gpu, s.mig, s.process, s.context, sum(s.span_ns), sum(s.active_ns),"
        " sum(s.slices), max(s.longest_ns), sum(s.switch_ns), sum(s.idle_ns), sum(s.unknown_ns),"
        " sum(s.lost), min(s.start_ns), max(s.start_ns + s.span_ns), p.pid, p.start_ticks, p.comm"
        " FROM share s LEFT JOIN process p ON p.process_key = s.process"
        " WHERE s.boot = (SELECT id FROM boot WHERE boot_id = :boot)"
        " AND s.start_ns >= :since AND (:until = 0 OR s.start_ns < :until)"
        " AND (:gpu < 0 OR s.gpu = :gpu)"
        " AND (s.process = -1 OR ((:pid = 0 OR p.pid = :pid) AND (:uid < 0 OR p.uid = :uid)))"
        " GROUP BY s.gpu, s.mig, s.process, s.context"
        " ORDER BY s.gpu, s.mig, s.process <> -1, sum(s.active_ns) DESC LIMIT :limit";

static void bind(sqlite3_stmt *stmt, const char *name, int64_t value)
{
        sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, name), value);
}

static void bind_filter(struct store_reader *r, sqlite3_stmt *stmt, const struct store_filter *f)
{
        reader_bind_filter(r, f, stmt);
        bind(stmt, ":gpu", f->gpu == STORE_ANY_GPU ? -1 : (int64_t)f->gpu);
        bind(stmt, ":limit", f->limit);
}

static void get_share(sqlite3_stmt *s, struct store_share_sum *ret_sum)
{
        int64_t process = sqlite3_column_int64(s, 2);
        uint32_t mig = (uint32_t)sqlite3_column_int64(s, 1);

        *ret_sum = (struct store_share_sum){
                .share =
                        {
                                .gpu = (uint32_t)sqlite3_column_int64(s, 0),
                                .mig_gpu = (uint8_t)(mig >> 8),
                                .mig_compute = (uint8_t)mig,
                                .of_engine = process == -1,
                                .process_key = process == -1 ? 0 : (uint64_t)process,
                                .context = (uint64_t)sqlite3_column_int64(s, 3),
                                .span_ns = (uint64_t)sqlite3_column_int64(s, 4),
                                .active_ns = (uint64_t)sqlite3_column_int64(s, 5),
                                .slices = (uint32_t)sqlite3_column_int64(s, 6),
                                .longest_ns = (uint64_t)sqlite3_column_int64(s, 7),
                                .switch_ns = (uint64_t)sqlite3_column_int64(s, 8),
                                .idle_ns = (uint64_t)sqlite3_column_int64(s, 9),
                                .unknown_ns = (uint64_t)sqlite3_column_int64(s, 10),
                                .lost = (uint64_t)sqlite3_column_int64(s, 11),
                                .start_ns = (uint64_t)sqlite3_column_int64(s, 12),
                        },
                .end_ns = (uint64_t)sqlite3_column_int64(s, 13),
                .pid = (uint32_t)sqlite3_column_int64(s, 14),
                .start_ticks = (uint64_t)sqlite3_column_int64(s, 15),
                .comm = (const char *)sqlite3_column_text(s, 16),
        };
}

static int read_shares(struct store_reader *r, const struct store_filter *f,
                       int (*row)(void *data, const struct store_share_sum *sum), void *data)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        struct store_share_sum sum;
        int rc, error = reader_prepare(r, query, &stmt);

        if (error < 0)
                return error;
        bind_filter(r, stmt, f);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                get_share(stmt, &sum);
                if (row(data, &sum))
                        return 0;
        }
        return reader_fail(r, rc);
}

int store_query_shares(struct store_reader *r, const struct store_filter *filter,
                       uint32_t timeout_ms,
                       int (*row)(void *data, const struct store_share_sum *sum), void *data)
{
        int error = reader_check_filter(r, filter);

        if (error < 0)
                return error;
        error = reader_begin(r, timeout_ms);
        if (error == 0)
                error = read_shares(r, filter, row, data);
        reader_end(r);
        return error;
}
