/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "store/reader.h"
#include "util/ledger.h"
#include "util/macro.h"

#define LAUNCH_COLUMNS                                                                             \
        "l.launch_id, l.process, l.cpu_enter_ns, l.cpu_return, l.gpu_start, l.gpu_end, l.gpu,"     \
        " l.match, l.end_kind, l.result, l.tid, l.context, l.stream, l.graph_exec, l.gridid,"      \
        " l.smid, l.clock_error_ns, l.grid_x, l.grid_y, l.grid_z, l.block_x, l.block_y,"           \
        " l.block_z, l.shared_bytes,"                                                              \
        " (SELECT text FROM name WHERE id = l.kernel), p.comm, p.pid, p.start_ticks, p.uid, "      \
        "p.cgroup,"                                                                                \
        " (SELECT boot_id FROM boot WHERE id = s.boot), l.queue_others"

/* ---- launches ---- */

static uint64_t get_u64(sqlite3_stmt *stmt, int column)
{
        return (uint64_t)sqlite3_column_int64(stmt, column);
}

/* 0, and the bit not set, where the value is not known. */
static uint64_t get_known(sqlite3_stmt *stmt, int column, uint16_t bit, uint16_t *has)
{
        if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
                return 0;
        *has |= bit;
        return get_u64(stmt, column);
}

static uint64_t get_time(sqlite3_stmt *stmt, int column, uint64_t base_ns, uint16_t bit,
                         uint16_t *has)
{
        uint64_t distance = get_known(stmt, column, bit, has);

        return *has & bit ? base_ns + distance : 0;
}

static void get_geometry(sqlite3_stmt *s, struct launch_record *r)
{
        r->grid_x = (uint32_t)get_known(s, 17, LAUNCH_HAS_GEOMETRY, &r->has);
        r->grid_y = (uint32_t)get_u64(s, 18);
        r->grid_z = (uint32_t)get_u64(s, 19);
        r->block_x = (uint32_t)get_u64(s, 20);
        r->block_y = (uint32_t)get_u64(s, 21);
        r->block_z = (uint32_t)get_u64(s, 22);
        r->shared_bytes = (uint32_t)get_u64(s, 23);
}

static void get_record(sqlite3_stmt *s, struct launch_record *r)
{
        *r = (struct launch_record){.launch_id = get_u64(s, 0), .process_key = get_u64(s, 1)};
        r->cpu_enter_ns = get_u64(s, 2);
        r->cpu_return_ns = r->cpu_enter_ns + get_u64(s, 3);
        r->gpu_start_ns = get_time(s, 4, r->cpu_enter_ns, LAUNCH_HAS_GPU_START, &r->has);
        r->gpu_end_ns = get_time(s, 5, r->cpu_enter_ns, LAUNCH_HAS_GPU_END, &r->has);
        r->gpu = (uint32_t)get_known(s, 6, LAUNCH_HAS_GPU, &r->has);
        r->match = (uint8_t)get_u64(s, 7);
        r->end = (uint8_t)get_u64(s, 8);
        r->result = (uint32_t)get_u64(s, 9);
        r->tid = (uint32_t)get_u64(s, 10);
        r->context = get_known(s, 11, LAUNCH_HAS_CONTEXT, &r->has);
        r->stream = get_u64(s, 12);
        r->graph_exec = get_u64(s, 13);
        r->gridid = get_known(s, 14, LAUNCH_HAS_GRIDID, &r->has);
        r->smid = (uint16_t)get_known(s, 15, LAUNCH_HAS_SMID, &r->has);
        r->clock_error_ns = (uint32_t)get_known(s, 16, LAUNCH_HAS_CLOCK_ERROR, &r->has);
        get_geometry(s, r);
        r->queue_others_ns = get_known(s, 31, LAUNCH_HAS_QUEUE_OTHERS, &r->has);
}

static const char *get_text(sqlite3_stmt *stmt, int column, const char *otherwise)
{
        const char *text = (const char *)sqlite3_column_text(stmt, column);

        return text ? text : otherwise;
}

static void get_launch(sqlite3_stmt *s, struct store_launch *l)
{
        *l = (struct store_launch){.kernel = get_text(s, 24, NULL),
                                   .comm = get_text(s, 25, ""),
                                   .pid = (uint32_t)get_u64(s, 26),
                                   .start_ticks = get_u64(s, 27),
                                   .uid = (uint32_t)get_u64(s, 28),
                                   .cgroup = get_text(s, 29, ""),
                                   .boot_id = get_text(s, 30, "")};
        get_record(s, &l->record);
        if (l->kernel)
                l->record.has |= LAUNCH_HAS_KERNEL;
}

/* The cursor after which the last `limit` matching rows begin. */
static int find_newest(struct store_reader *r, const struct store_filter *f, const char *where,
                       uint64_t *ret_after)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        char *sql;
        int rc, error;

        sql = sqlite3_mprintf("SELECT min(launch_id) FROM (SELECT l.launch_id AS launch_id %s"
                              " ORDER BY s.first_id DESC, l.launch_id DESC LIMIT %u)",
                              where, f->limit);
        error = reader_prepare(r, sql, &stmt);
        sqlite3_free(sql);
        if (error < 0)
                return error;
        reader_bind_filter(r, f, stmt);
        rc = sqlite3_step(stmt);
        error = reader_fail(r, rc);
        if (error == 0)
                *ret_after = sqlite3_column_type(stmt, 0) == SQLITE_NULL ? f->after_launch_id
                                                                         : get_u64(stmt, 0) - 1;
        return error;
}

static int read_launches(struct store_reader *r, const struct store_filter *f, const char *where,
                         int (*row)(void *data, const struct store_launch *l), void *data)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        struct store_launch l;
        char *sql;
        int rc, error;

        /* The process is looked up per row that is shown, not per row that is tried. */
        sql = sqlite3_mprintf("SELECT " LAUNCH_COLUMNS " FROM (SELECT l.launch_id AS id,"
                              " s.boot AS boot %s ORDER BY s.first_id, l.launch_id LIMIT %u) s"
                              " CROSS JOIN launch l ON l.launch_id = s.id"
                              " LEFT JOIN process p ON p.process_key = l.process ORDER BY s.id",
                              where, f->limit);
        error = reader_prepare(r, sql, &stmt);
        sqlite3_free(sql);
        if (error < 0)
                return error;
        reader_bind_filter(r, f, stmt);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                get_launch(stmt, &l);
                if (row(data, &l))
                        return 0;
        }
        return reader_fail(r, rc);
}

int store_query_launches(struct store_reader *r, const struct store_filter *filter,
                         uint32_t timeout_ms, int (*row)(void *data, const struct store_launch *l),
                         void *data)
{
        struct store_filter f = *filter;
        char *where;
        int error;

        error = reader_check_filter(r, &f);
        if (error < 0)
                return error;
        where = reader_filter_sql(&f);
        if (!where)
                return -ENOMEM;
        error = reader_begin(r, timeout_ms);
        if (error == 0 && f.newest)
                error = find_newest(r, &f, where, &f.after_launch_id);
        if (error == 0)
                error = read_launches(r, &f, where, row, data);
        reader_end(r);
        sqlite3_free(where);
        return error;
}

/* ---- processes ---- */

static void get_process(sqlite3_stmt *s, struct process_info *p)
{
        *p = (struct process_info){.process_key = get_u64(s, 0),
                                   .pid = (uint32_t)get_u64(s, 1),
                                   .start_ticks = get_u64(s, 2),
                                   .uid = (uint32_t)get_u64(s, 3),
                                   .exe = get_text(s, 5, ""),
                                   .cgroup = get_text(s, 6, ""),
                                   .started_realtime_ns = get_u64(s, 7)};
        snprintf(p->comm, sizeof(p->comm), "%s", get_text(s, 4, ""));
}

static int read_processes(struct store_reader *r,
                          int (*row)(void *data, const struct process_info *p, uint64_t launches),
                          void *data)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        struct process_info p;
        int rc, error;

        error = reader_prepare(r,
                               "SELECT process_key, pid, start_ticks, uid, comm, exe, cgroup,"
                               " started_realtime_ns, (SELECT coalesce(sum(launches), 0)"
                               " FROM segment_process sp WHERE sp.process = p.process_key)"
                               " FROM process p WHERE boot ="
                               " (SELECT id FROM boot WHERE boot_id = ?1) ORDER BY process_key",
                               &stmt);
        if (error < 0)
                return error;
        sqlite3_bind_text(stmt, 1, r->boot_id, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                get_process(stmt, &p);
                if (row(data, &p, get_u64(stmt, 8)))
                        return 0;
        }
        return reader_fail(r, rc);
}

int store_query_processes(struct store_reader *r, uint32_t timeout_ms,
                          int (*row)(void *data, const struct process_info *p, uint64_t launches),
                          void *data)
{
        int error = reader_begin(r, timeout_ms);

        if (error == 0)
                error = read_processes(r, row, data);
        reader_end(r);
        return error;
}

/* ---- ledgers ---- */

/* Counters of a newer program that this one does not know are passed over. */
static void set_counter(struct ledger *l, const char *name, uint64_t value)
{
        if (strcmp(name, "produced") == 0)
                l->produced = value;
        else if (strcmp(name, "stored") == 0)
                l->stored = value;
        for (int i = 0; i < LOSS_COUNT; i++)
                if (strcmp(name, ledger_loss_names[i]) == 0)
                        l->lost[i] = value;
}

static int read_ledgers(struct store_reader *r,
                        int (*row)(void *data, uint64_t process_key, const struct ledger *ledger),
                        void *data)
{
        _cleanup_(reader_finalizep) sqlite3_stmt *stmt = NULL;
        struct ledger ledger = {0};
        uint64_t key = 0, process;
        int rc, error;

        error = reader_prepare(r,
                               "SELECT l.process, l.counter, l.value FROM ledger l"
                               " JOIN process p ON p.process_key = l.process WHERE p.boot ="
                               " (SELECT id FROM boot WHERE boot_id = ?1) ORDER BY l.process",
                               &stmt);
        if (error < 0)
                return error;
        sqlite3_bind_text(stmt, 1, r->boot_id, -1, SQLITE_STATIC);
        while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
                process = get_u64(stmt, 0);
                if (key && process != key) {
                        if (row(data, key, &ledger))
                                return 0;
                        ledger = (struct ledger){0};
                }
                key = process;
                set_counter(&ledger, get_text(stmt, 1, ""), get_u64(stmt, 2));
        }
        error = reader_fail(r, rc);
        if (error == 0 && key)
                row(data, key, &ledger);
        return error;
}

int store_query_ledgers(struct store_reader *r, uint32_t timeout_ms,
                        int (*row)(void *data, uint64_t process_key, const struct ledger *ledger),
                        void *data)
{
        int error = reader_begin(r, timeout_ms);

        if (error == 0)
                error = read_ledgers(r, row, data);
        reader_end(r);
        return error;
}
