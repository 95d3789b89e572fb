/* SPDX-License-Identifier: Apache-2.0 */
#include "store/managed.h"

#include <errno.h>
#include <stdlib.h>

#include "util/time.h"

/* Rows looked at in one go. */
#define RETAIN_ROWS 4096

int managed_queue_add(struct managed_queue *q, const struct managed_second *second)
{
        struct managed_put *p;

        if (q->count >= MANAGED_WAITING_MAX)
                return -ENOBUFS;
        p = malloc(sizeof(*p));
        if (!p)
                return -ENOMEM;
        *p = (struct managed_put){.second = *second};
        if (q->last)
                q->last->next = p;
        else
                q->first = p;
        q->last = p;
        q->count++;
        return 0;
}

static void drop_first(struct managed_queue *q)
{
        struct managed_put *p = q->first;

        q->first = p->next;
        if (!q->first)
                q->last = NULL;
        q->count--;
        free(p);
}

void managed_queue_move(struct managed_queue *q, struct managed_queue *from)
{
        if (!from->first)
                return;
        if (q->last)
                q->last->next = from->first;
        else
                q->first = from->first;
        q->last = from->last;
        q->count += from->count;
        *from = (struct managed_queue){0};
        while (q->count > MANAGED_WAITING_MAX)
                drop_first(q);
}

void managed_queue_clear(struct managed_queue *q)
{
        while (q->first)
                drop_first(q);
}

static int write_second(struct store_db *db, const struct managed_second *m)
{
        sqlite3_stmt *s = db->statements[DB_MANAGED];
        int at = 6;

        sqlite3_bind_int64(s, 1, (sqlite3_int64)m->process_key);
        sqlite3_bind_int64(s, 2, (sqlite3_int64)m->end_ns);
        sqlite3_bind_int64(s, 3, (sqlite3_int64)realtime_ns());
        sqlite3_bind_int64(s, 4, (sqlite3_int64)m->events);
        sqlite3_bind_int64(s, 5, (sqlite3_int64)m->dropped);
#define X(name) sqlite3_bind_int64(s, at++, (sqlite3_int64)m->name);
        MANAGED_COUNTS(X)
#undef X
        return db_run(db, DB_MANAGED);
}

int managed_write(const struct managed_queue *q, struct store_db *db)
{
        int r = 0;

        for (const struct managed_put *p = q->first; p && r == 0; p = p->next)
                r = write_second(db, &p->second);
        return r;
}

int managed_retain(struct store_db *db, uint64_t max_age_ns, uint64_t max_rows)
{
        sqlite3_stmt *s = db->statements[DB_DELETE_MANAGED];
        uint64_t now = realtime_ns();

        if (!max_age_ns && !max_rows)
                return 0;
        sqlite3_bind_int64(s, 1, RETAIN_ROWS);
        sqlite3_bind_int64(s, 2,
                           max_age_ns && now > max_age_ns ? (sqlite3_int64)(now - max_age_ns) : 0);
        sqlite3_bind_int64(s, 3, max_rows ? (sqlite3_int64)max_rows : INT64_MAX);
        return db_run(db, DB_DELETE_MANAGED);
}
