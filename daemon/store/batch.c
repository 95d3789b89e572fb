/* SPDX-License-Identifier: Apache-2.0 */
#include "store/batch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/time.h"

#define NAMES_STEP 4096

/* ---- names ---- */

static struct known_name *known_name_at(struct writer *w, uint64_t id)
{
        struct known_name *names;
        size_t count;

        if (id < w->name_count)
                return &w->names[id];
        count = (id / NAMES_STEP + 1) * NAMES_STEP;
        if (count < w->name_count * 2)
                count = w->name_count * 2;
        names = realloc(w->names, count * sizeof(*names));
        if (!names)
                return NULL;
        memset(names + w->name_count, 0, (count - w->name_count) * sizeof(*names));
        w->names = names;
        w->name_count = count;
        return &names[id];
}

/* Row of the record's kernel name; 0 when it has none. Noted once per segment, for retention. */
static int kernel_row(struct writer *w, const struct queue_entry *e, int64_t *ret_row)
{
        struct known_name *name;
        bool exists;
        int r;

        *ret_row = 0;
        if (!(e->record.has & LAUNCH_HAS_KERNEL) || !e->kernel || !e->kernel[0])
                return 0;
        name = known_name_at(w, e->record.kernel_name);
        if (!name)
                return -ENOMEM;
        if (name->row && name->segment != w->segment.first_id) {
                r = db_touch_name(&w->db, name->row, e->kernel, w->segment.first_id, &exists);
                if (r < 0)
                        return r;
                if (!exists)
                        name->row = 0;
        }
        if (!name->row) {
                r = db_name_id(&w->db, e->kernel, w->segment.first_id, &name->row);
                if (r < 0)
                        return r;
        }
        name->segment = w->segment.first_id;
        *ret_row = name->row;
        return 0;
}

/* ---- segments ---- */

static void segment_add(struct segment *s, const struct launch_record *r)
{
        if (s->launches == 0 || r->cpu_enter_ns < s->min_enter_ns)
                s->min_enter_ns = r->cpu_enter_ns;
        if (s->launches == 0 || r->cpu_enter_ns > s->max_enter_ns)
                s->max_enter_ns = r->cpu_enter_ns;
        s->last_id = r->launch_id;
        s->launches++;
}

static int put_segment(struct writer *w)
{
        sqlite3_stmt *s = w->db.statements[DB_SEGMENT];

        sqlite3_bind_int64(s, 1, (sqlite3_int64)w->segment.first_id);
        sqlite3_bind_int64(s, 2, (sqlite3_int64)w->segment.last_id);
        sqlite3_bind_int64(s, 3, w->db.boot);
        sqlite3_bind_int64(s, 4, (sqlite3_int64)w->segment.launches);
        sqlite3_bind_int64(s, 5, (sqlite3_int64)w->segment.min_enter_ns);
        sqlite3_bind_int64(s, 6, (sqlite3_int64)w->segment.max_enter_ns);
        sqlite3_bind_int64(s, 7, (sqlite3_int64)realtime_ns());
        return db_run(&w->db, DB_SEGMENT);
}

/* Add what this batch brought to the segment's count of each process. */
static int put_segment_processes(struct writer *w)
{
        sqlite3_stmt *s = w->db.statements[DB_SEGMENT_PROCESS];
        const struct store_outcome *o = NULL;

        while ((o = outcome_next(&w->batch, o))) {
                int r;

                if (o->stored == 0)
                        continue;
                sqlite3_bind_int64(s, 1, (sqlite3_int64)o->process_key);
                sqlite3_bind_int64(s, 2, (sqlite3_int64)w->segment.first_id);
                sqlite3_bind_int64(s, 3, (sqlite3_int64)o->stored);
                r = db_run(&w->db, DB_SEGMENT_PROCESS);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* ---- the transaction ---- */

static int put_processes(struct writer *w)
{
        struct cached_process *e, *next;
        int r;

        if (w->processes.unwritten == 0)
                return 0;
        HASH_ITER (hh, w->processes.by_key, e, next) {
                if (e->info && !e->info_written) {
                        r = db_put_process(&w->db, e->info);
                        if (r < 0)
                                return r;
                        if (e->process_key >= w->next_process_key)
                                w->next_process_key = e->process_key + 1;
                }
                if (e->has_ledger && !e->ledger_written) {
                        r = db_put_ledger(&w->db, e->process_key, &e->ledger);
                        if (r < 0)
                                return r;
                }
        }
        return 0;
}

static int put_record(struct writer *w, const struct queue_entry *e)
{
        const struct launch_record *record = &e->record;
        int64_t kernel;
        int r;

        /* Ids must grow: segments, cursors and retention rely on it. */
        if (record->launch_id < w->next_launch_id || record->launch_id > INT64_MAX)
                return outcome_add(&w->batch, record->process_key, 0, 1);
        if (w->segment.begun_ns == 0)
                w->segment = (struct segment){.first_id = record->launch_id, .begun_ns = now_ns()};
        r = kernel_row(w, e, &kernel);
        if (r == 0)
                r = db_put_launch(&w->db, record, kernel);
        /* This one will never fit (id taken, name too long): the others need not suffer. */
        if (r == -EEXIST || r == -E2BIG)
                return outcome_add(&w->batch, record->process_key, 0, 1);
        if (r == 0)
                r = minutes_add(&w->minutes, &w->db, record, kernel);
        if (r < 0)
                return r;
        segment_add(&w->segment, record);
        w->next_launch_id = record->launch_id + 1;
        return outcome_add(&w->batch, record->process_key, 1, 0);
}

static int put_records(struct writer *w, const struct record_queue *queue, uint64_t from, size_t n)
{
        int r;

        for (size_t i = 0; i < n; i++) {
                r = put_record(w, queue_at(queue, from + i));
                if (r < 0)
                        return r;
        }
        if (n == 0 || w->segment.launches == 0)
                return 0;
        r = put_segment(w);
        if (r == 0)
                r = put_segment_processes(w);
        if (r == 0)
                r = minutes_write(&w->minutes, &w->db);
        return r;
}

static int put_counters(struct writer *w)
{
        int r = db_put_meta(&w->db, "next_launch_id", w->next_launch_id);

        return r < 0 ? r : db_put_meta(&w->db, "next_process_key", w->next_process_key);
}

static int transaction(struct writer *w, const struct record_queue *queue, uint64_t from, size_t n)
{
        int r = db_run(&w->db, DB_BEGIN);

        if (r == 0)
                r = put_processes(w);
        if (r == 0)
                r = put_records(w, queue, from, n);
        if (r == 0)
                r = shares_write(&w->db, &w->shares);
        if (r == 0)
                r = managed_write(&w->managed, &w->db);
        if (r == 0)
                r = put_counters(w);
        if (r == 0)
                r = db_run(&w->db, DB_COMMIT);
        if (r < 0 && !sqlite3_get_autocommit(w->db.sql))
                sqlite3_exec(w->db.sql, "ROLLBACK", NULL, NULL, NULL);
        return r;
}

void batch_forget(struct writer *w)
{
        if (w->names)
                memset(w->names, 0, w->name_count * sizeof(*w->names));
        process_cache_none_written(&w->processes);
        minutes_clear(&w->minutes);
        w->segment = (struct segment){0};
}

int batch_write(struct writer *w, const struct record_queue *queue, uint64_t from, size_t n)
{
        struct segment segment = w->segment;
        uint64_t next_launch_id = w->next_launch_id, next_process_key = w->next_process_key;
        uint64_t launches = w->segment.launches;
        int r;

        r = transaction(w, queue, from, n);
        if (r < 0) {
                /* Names and processes written in it are gone; the segment is as it was. */
                batch_forget(w);
                outcome_clear(&w->batch);
                w->segment = segment;
                w->next_launch_id = next_launch_id;
                w->next_process_key = next_process_key;
                return r;
        }
        process_cache_all_written(&w->processes);
        share_list_clear(&w->shares);
        minutes_committed(&w->minutes);
        managed_queue_clear(&w->managed);
        w->launches += w->segment.launches - (segment.begun_ns ? launches : 0);
        return 0;
}
