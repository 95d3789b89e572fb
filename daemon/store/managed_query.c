/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "store/reader.h"
#include "util/macro.h"
#include "util/time.h"

/*
 * Of the running boot. A second belongs to the step in which it ended; one that ended
 * at a step's very end is the last of it. A cursor is the step and the process of the
 * last row: steps are counted from the boot.
 */
#define COUNT_COLUMN(name) ", sum(m." #name ")"
static const char query[] =
        "SELECT m.process, (m.end_ns - 1) / :step AS step, count(*), sum(m.events),"
        " sum(m.dropped), p.pid, p.start_ticks, p.comm" MANAGED_COUNTS(
                COUNT_COLUMN) " FROM managed_second m JOIN process p ON p.process_key = m.process"
                              " WHERE p.boot = (SELECT id FROM boot WHERE boot_id = :boot)"
                              " AND m.end_ns >= :since AND (:until = 0 OR m.end_ns < :until)"
                              " AND (:pid = 0 OR p.pid = :pid) AND (:uid < 0 OR p.uid = :uid)"
                              " GROUP BY step, m.process"
                              " HAVING step > :after_step OR (step = :after_step AND m.process > "
                              ":after_process)"
                              " ORDER BY step, m.process LIMIT :limit";

#define FIRST_COUNT 8 /* column */

static void bind(sqlite3_stmt *stmt, const char *name, uint64_t value)
{
        sqlite3_bind_int64(stmt, sqlite3_bind_parameter_index(stmt, name), (sqlite3_int64)value);
}

static void bind_filter(struct store_reader *r, sqlite3_stmt *stmt, const struct store_filter *f,
                        uint32_t step_s)
{
        reader_bind_filter(r, f, stmt);
        bind(stmt, ":step", step_s * NSEC_PER_SEC);
        bind(stmt, ":after_step", f->after_launch_id >> 32);
        bind(stmt, ":after_process", f->after_launch_id & UINT32_MAX);
        bind(stmt, ":limit", f->limit);
}

static void get_past(sqlite3_stmt *s, uint32_t step_s, struct store_managed_past *ret_past)
{
        uint64_t process = (uint64_t)sqlite3_column_int64(s, 0);
        uint64_t step = (uint64_t)sqlite3_column_int64(s, 1);
        int at = FIRST_COUNT;

        *ret_past = (struct store_managed_past){
                .sum = {.process_key = process,
                        .end_ns = (step + 1) * step_s * NSEC_PER_SEC,
                        .events = (uint64_t)sqlite3_column_int64(s, 3),
                        .dropped = (uint64_t)sqlite3_column_int64(s, 4)},
                .start_ns = step * step_s * NSEC_PER_SEC,
                .seconds = (uint32_t)sqlite3_column_int64(s, 2),
                .cursor = step << 32 | (process & UINT32_MAX),
                .pid = (uint32_t)sqlite3_column_int64(s, 5),
                .start_ticks = (uint64_t)sqlite3_column_int64(s, 6),
                .comm = (const char *)sqlite3_column_text(s, 7),
        };
#define X(name) ret_past->sum.name = (uint64_t)sqlite3_column_int64(s, at++);
        MANAGED_COUNTS(X)
#undef X
}

static int read_past(struct store_reader *r, const struct store_filter *f, uint32_t step_s,
                     int (*row)(void *data, const struct store_managed_past *past), void *data)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        struct store_managed_past past;
        int rc, error = reader_prepare(r, query, &stmt);

        if (error < 0)
                return error;
        bind_filter(r, stmt, f, step_s);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                get_past(stmt, step_s, &past);
                if (row(data, &past))
                        return 0;
        }
        return reader_fail(r, rc);
}

int store_query_managed(struct store_reader *r, const struct store_filter *filter, uint32_t step_s,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_managed_past *past), void *data)
{
        int error = step_s ? reader_check_filter(r, filter) : -EINVAL;

        if (error < 0)
                return error;
        error = reader_begin(r, timeout_ms);
        if (error == 0)
                error = read_past(r, filter, step_s, row, data);
        reader_end(r);
        return error;
}
