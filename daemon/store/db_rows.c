/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "store/db.h"

/*
 * Rows into the database. 64-bit values keep their bits: a handle above 2^63
 * reads as negative in SQL and comes back unchanged through the reader. Integers
 * and static texts are bound without allocating, so binding cannot fail.
 */

static void bind_u64(sqlite3_stmt *stmt, int column, uint64_t value)
{
        sqlite3_bind_int64(stmt, column, (sqlite3_int64)value);
}

static void bind_known(sqlite3_stmt *stmt, int column, bool known, uint64_t value)
{
        if (known)
                bind_u64(stmt, column, value);
        else
                sqlite3_bind_null(stmt, column);
}

static void bind_text(sqlite3_stmt *stmt, int column, const char *text, size_t length)
{
        if (length > 0)
                sqlite3_bind_text(stmt, column, text, (int)length, SQLITE_STATIC);
        else
                sqlite3_bind_null(stmt, column);
}

int db_put_process(struct store_db *db, const struct process_info *p)
{
        sqlite3_stmt *s = db->statements[DB_PROCESS];

        bind_u64(s, 1, p->process_key);
        sqlite3_bind_int64(s, 2, db->boot);
        bind_u64(s, 3, p->pid);
        bind_u64(s, 4, p->start_ticks);
        bind_u64(s, 5, p->uid);
        sqlite3_bind_text(s, 6, p->comm, (int)strnlen(p->comm, sizeof(p->comm)), SQLITE_STATIC);
        bind_text(s, 7, p->exe, strlen(p->exe));
        bind_text(s, 8, p->cgroup, strlen(p->cgroup));
        bind_u64(s, 9, p->started_realtime_ns);
        return db_run(db, DB_PROCESS);
}

static int put_counter(struct store_db *db, uint64_t process_key, const char *name, uint64_t value)
{
        sqlite3_stmt *s = db->statements[DB_LEDGER];

        if (value == 0)
                return 0;
        bind_u64(s, 1, process_key);
        sqlite3_bind_text(s, 2, name, -1, SQLITE_STATIC);
        bind_u64(s, 3, value);
        return db_run(db, DB_LEDGER);
}

/* Replaces the process's counters: they are totals, so writing them twice counts nothing twice. */
int db_put_ledger(struct store_db *db, uint64_t process_key, const struct ledger *l)
{
        int r;

        bind_u64(db->statements[DB_LEDGER_CLEAR], 1, process_key);
        r = db_run(db, DB_LEDGER_CLEAR);
        if (r == 0)
                r = put_counter(db, process_key, "produced", l->produced);
        if (r == 0)
                r = put_counter(db, process_key, "stored", l->stored);
        for (int i = 0; r == 0 && i < LOSS_COUNT; i++)
                r = put_counter(db, process_key, ledger_loss_names[i], l->lost[i]);
        return r;
}

int db_name_id(struct store_db *db, const char *text, uint64_t segment, int64_t *ret_id)
{
        sqlite3_stmt *s = db->statements[DB_NAME];

        sqlite3_bind_text(s, 1, text, -1, SQLITE_STATIC);
        bind_u64(s, 2, segment);
        return db_run_int(db, DB_NAME, ret_id);
}

int db_touch_name(struct store_db *db, int64_t id, const char *text, uint64_t segment,
                  bool *ret_exists)
{
        sqlite3_stmt *s = db->statements[DB_NAME_TOUCH];
        int r;

        sqlite3_bind_int64(s, 1, id);
        bind_u64(s, 2, segment);
        sqlite3_bind_text(s, 3, text, -1, SQLITE_STATIC);
        r = db_run(db, DB_NAME_TOUCH);
        if (r == 0)
                *ret_exists = sqlite3_changes(db->sql) > 0;
        return r;
}

int db_put_meta(struct store_db *db, const char *key, uint64_t value)
{
        sqlite3_stmt *s = db->statements[DB_META];

        sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
        bind_u64(s, 2, value);
        return db_run(db, DB_META);
}

static void bind_geometry(sqlite3_stmt *s, const struct launch_record *r)
{
        bool known = r->has & LAUNCH_HAS_GEOMETRY;

        bind_known(s, 19, known, r->grid_x);
        bind_known(s, 20, known, r->grid_y);
        bind_known(s, 21, known, r->grid_z);
        bind_known(s, 22, known, r->block_x);
        bind_known(s, 23, known, r->block_y);
        bind_known(s, 24, known, r->block_z);
        bind_known(s, 25, known, r->shared_bytes);
}

int db_put_launch(struct store_db *db, const struct launch_record *r, int64_t kernel)
{
        sqlite3_stmt *s = db->statements[DB_LAUNCH];
        int rc, error;

        bind_u64(s, 1, r->launch_id);
        bind_u64(s, 2, r->process_key);
        bind_known(s, 3, kernel != 0, (uint64_t)kernel);
        bind_u64(s, 4, r->cpu_enter_ns);
        bind_u64(s, 5, r->cpu_return_ns - r->cpu_enter_ns);
        bind_known(s, 6, r->has & LAUNCH_HAS_GPU_START, r->gpu_start_ns - r->cpu_enter_ns);
        bind_known(s, 7, r->has & LAUNCH_HAS_GPU_END, r->gpu_end_ns - r->cpu_enter_ns);
        bind_known(s, 8, r->has & LAUNCH_HAS_GPU, r->gpu);
        bind_u64(s, 9, r->match);
        bind_u64(s, 10, r->end);
        bind_u64(s, 11, r->result);
        bind_u64(s, 12, r->tid);
        bind_known(s, 13, r->has & LAUNCH_HAS_CONTEXT, r->context);
        bind_u64(s, 14, r->stream);
        bind_known(s, 15, r->graph_exec != 0, r->graph_exec);
        bind_known(s, 16, r->has & LAUNCH_HAS_GRIDID, r->gridid);
        bind_known(s, 17, r->has & LAUNCH_HAS_SMID, r->smid);
        bind_known(s, 18, r->has & LAUNCH_HAS_CLOCK_ERROR, r->clock_error_ns);
        bind_geometry(s, r);
        bind_known(s, 26, r->has & LAUNCH_HAS_QUEUE_OTHERS, r->queue_others_ns);
        errno = 0;
        rc = sqlite3_step(s);
        error = rc == SQLITE_DONE ? 0 : db_fail(db, rc);
        sqlite3_reset(s);
        return error;
}
