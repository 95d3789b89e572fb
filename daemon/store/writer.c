/* SPDX-License-Identifier: Apache-2.0 */
#include "store/writer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "store/batch.h"
#include "store/store_internal.h"
#include "util/macro.h"
#include "util/time.h"

#define TICK_NS           NSEC_PER_SEC
#define CHECKPOINT_NS     (5 * NSEC_PER_SEC)
#define BACKOFF_FIRST_NS  (100 * NSEC_PER_MSEC)
#define BACKOFF_MAX_NS    (2 * NSEC_PER_SEC)
#define SEGMENT_AGE_NS    (60 * NSEC_PER_SEC)  /* so that few rows do not share one for days */
#define MOVE_ASIDE_GAP_NS (600 * NSEC_PER_SEC) /* a dying disk must not fill up with copies */

/* ---- the database as a whole ---- */

static void close_database(struct writer *w)
{
        db_close(&w->db);
        w->is_open = false;
}

/* All that was committed is on the disk, or belongs to a file that is another one now. */
static void all_synced(struct writer *w)
{
        outcome_clear(&w->unsynced);
        w->unsynced_from = w->next_launch_id;
}

/* Launches per process from unsynced_from on. 0 or -errno. */
static int count_unsynced(struct writer *w, struct outcome_table *found)
{
        sqlite3_stmt *s = w->db.statements[DB_COUNT_FROM];
        int rc, r = 0;

        sqlite3_bind_int64(s, 1, (sqlite3_int64)w->unsynced_from);
        errno = 0;
        while (r == 0 && (rc = sqlite3_step(s)) == SQLITE_ROW)
                r = outcome_add(found, (uint64_t)sqlite3_column_int64(s, 0),
                                (uint64_t)sqlite3_column_int64(s, 1), 0);
        if (r == 0)
                r = db_fail(&w->db, rc);
        sqlite3_reset(s);
        return r;
}

/* The database is back: what was committed and is not there any more is a loss after all. */
static int find_vanished(struct writer *w)
{
        struct outcome_table found = {0};
        const struct store_outcome *o = NULL, *there;
        int r = count_unsynced(w, &found);

        while (r == 0 && (o = outcome_next(&w->unsynced, o))) {
                there = outcome_find(&found, o->process_key);
                if (!there || there->stored < o->stored)
                        r = outcome_vanish(&w->vanished, o->process_key,
                                           o->stored - (there ? there->stored : 0));
        }
        outcome_clear(&found);
        if (r == 0)
                all_synced(w);
        else
                outcome_clear(&w->vanished); /* counted again with the next attempt */
        return r;
}

static int open_once(struct writer *w)
{
        int r = db_open(&w->db, w->path, w->boot_id, w->retention.wal_bytes_max);

        if (r < 0)
                return r;
        if (outcome_next(&w->unsynced, NULL) && w->db.next_launch_id < w->next_launch_id) {
                r = find_vanished(w);
                if (r < 0) {
                        close_database(w);
                        return r;
                }
        }
        w->is_open = true;
        w->failed_once = false;
        batch_forget(w);
        w->launches = w->db.launches;
        if (w->db.next_launch_id > w->next_launch_id)
                w->next_launch_id = w->db.next_launch_id;
        if (w->db.next_process_key > w->next_process_key)
                w->next_process_key = w->db.next_process_key;
        return 0;
}

static int begin_anew(struct writer *w)
{
        uint64_t now = now_ns();
        int r;

        close_database(w);
        all_synced(w);
        if (w->moved_aside_ns && now - w->moved_aside_ns < MOVE_ASIDE_GAP_NS) {
                snprintf(w->db.error, sizeof(w->db.error),
                         "the database was damaged twice in ten minutes: check the disk (%s)",
                         w->path);
                return -EBADMSG;
        }
        r = db_move_aside(w->path);
        if (r < 0) {
                snprintf(
                        w->db.error, sizeof(w->db.error),
                        "the database is damaged and cannot be moved aside (%s): move it away (%s)",
                        strerror(-r), w->path);
                return r;
        }
        w->moved_aside_ns = now;
        r = open_once(w);
        if (r == 0)
                snprintf(w->notice, sizeof(w->notice),
                         "the database was damaged: it was moved to %s.corrupt-* and begun anew",
                         w->path);
        return r;
}

int writer_open(struct writer *w)
{
        int r;

        if (w->is_open && w->failed_once)
                close_database(w);
        if (w->is_open)
                return 0;
        r = open_once(w);
        return r == -EBADMSG ? begin_anew(w) : r;
}

void writer_done(struct writer *w)
{
        close_database(w);
        process_cache_clear(&w->processes);
        share_list_clear(&w->shares);
        minutes_clear(&w->minutes);
        managed_queue_clear(&w->managed);
        outcome_clear(&w->batch);
        outcome_clear(&w->unsynced);
        outcome_clear(&w->vanished);
        free(w->names);
        free(w->path);
        w->names = NULL;
        w->path = NULL;
}

static uint64_t file_bytes(const char *path, const char *suffix)
{
        _cleanup_free_ char *full = NULL;
        struct stat st;

        if (asprintf(&full, "%s%s", path, suffix) < 0) {
                full = NULL;
                return 0;
        }
        return stat(full, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* ---- success and failure ---- */

/* Under the lock. */
static void set_status(struct store *s, int error)
{
        struct writer *w = &s->writer;

        s->status.launches = w->launches;
        s->status.failing = error < 0;
        snprintf(s->status.error, sizeof(s->status.error), "%s",
                 error < 0 ? w->db.error : w->notice);
}

static void publish(struct store *s, int error)
{
        const char *path = s->writer.path;
        uint64_t bytes = file_bytes(path, "") + file_bytes(path, "-wal");

        pthread_mutex_lock(&s->lock);
        s->status.bytes = bytes;
        set_status(s, error);
        pthread_mutex_unlock(&s->lock);
}

static void succeeded(struct store *s)
{
        s->writer.backoff_ns = 0;
        publish(s, 0);
}

/* Full or locked may pass with the connection as it is; anything else deserves a fresh one. */
static void failed(struct store *s, int error)
{
        struct writer *w = &s->writer;

        w->backoff_ns = w->backoff_ns ? w->backoff_ns * 2 : BACKOFF_FIRST_NS;
        if (w->backoff_ns > BACKOFF_MAX_NS)
                w->backoff_ns = BACKOFF_MAX_NS;
        w->retry_ns = now_ns() + w->backoff_ns;
        if (error != -ENOSPC && error != -EBUSY)
                w->failed_once = true;
        publish(s, error);
}

/* ---- taking work ---- */

struct work {
        struct store_inbox inbox;
        uint64_t from, n;          /* records in the queue */
        uint64_t pending_since_ns; /* to be put back if it fails */
};

/* Records and inbox at one moment: a process put before its launches is taken with them or before.
 */
static void take_work(struct store *s, struct work *ret_work)
{
        struct writer *w = &s->writer;

        *ret_work = (struct work){0};
        pthread_mutex_lock(&s->lock);
        ret_work->from = s->queue.head;
        ret_work->n = queue_length(&s->queue);
        ret_work->pending_since_ns = s->pending_since_ns;
        if (ret_work->n > WRITER_BATCH_RECORDS)
                ret_work->n = WRITER_BATCH_RECORDS;
        else
                s->pending_since_ns = 0;
        /* While nothing can be written the cache grows: leave the rest where it is bounded. */
        if (w->processes.unwritten < INBOX_MAX && w->shares.count < INBOX_MAX) {
                ret_work->inbox = s->inbox;
                s->inbox = (struct store_inbox){0};
                w->inbox_taken = s->inbox_puts;
        }
        pthread_mutex_unlock(&s->lock);
}

static int cache_inbox(struct writer *w, struct store_inbox *inbox)
{
        struct ledger_put *l, *next;
        int r = share_list_move(&w->shares, &inbox->shares);

        share_list_clear(&inbox->shares);
        while (inbox->processes) {
                struct process_put *p = inbox->processes;

                inbox->processes = p->next;
                if (process_cache_put(&w->processes, p->info) < 0)
                        r = -ENOMEM;
                free(p);
        }
        managed_queue_move(&w->managed, &inbox->managed);
        HASH_ITER (hh, inbox->ledgers, l, next) {
                HASH_DEL(inbox->ledgers, l);
                if (process_cache_put_ledger(&w->processes, l->process_key, &l->ledger) < 0)
                        r = -ENOMEM;
                free(l);
        }
        return r;
}

static void settle(struct store *s, const struct work *work)
{
        const struct store_outcome *o = NULL;
        struct writer *w = &s->writer;

        /* On no memory they could only vanish uncounted, which takes a second misfortune. */
        while ((o = outcome_next(&w->batch, o)))
                (void)outcome_add(&w->unsynced, o->process_key, o->stored, 0);
        pthread_mutex_lock(&s->lock);
        queue_pop(&s->queue, work->n);
        outcome_merge(&s->outcomes, &w->batch);
        outcome_merge(&s->outcomes, &w->vanished);
        s->inbox_done = s->writer.inbox_taken;
        set_status(s, 0); /* whoever waits in store_flush() may look at it next */
        pthread_cond_broadcast(&s->done);
        pthread_mutex_unlock(&s->lock);
}

static void unsettle(struct store *s, const struct work *work)
{
        pthread_mutex_lock(&s->lock);
        s->pending_since_ns = work->pending_since_ns;
        pthread_mutex_unlock(&s->lock);
}

static void end_segment_when_due(struct writer *w, uint64_t now)
{
        struct segment *s = &w->segment;

        if (s->begun_ns &&
            (s->launches >= WRITER_BATCH_RECORDS || now - s->begun_ns > SEGMENT_AGE_NS))
                *s = (struct segment){0};
}

/* When the log has grown, and now and then anyway: a loss of power then takes little. */
static int checkpoint_when_due(struct writer *w, uint64_t now)
{
        uint64_t bytes = (uint64_t)w->db.wal_pages * w->db.page_bytes;
        int r;

        if (bytes == 0 || (bytes < w->retention.wal_bytes_max / 2 && now < w->checkpoint_ns))
                return 0;
        w->checkpoint_ns = now + CHECKPOINT_NS;
        r = db_checkpoint(&w->db);
        if (r == 0 && w->db.wal_pages == 0)
                all_synced(w);
        return r;
}

static void note_deleted(struct writer *w, const struct retention_deleted *deleted)
{
        w->launches -= deleted->launches < w->launches ? deleted->launches : w->launches;
        /* Nor have they vanished that were deleted. */
        if (deleted->launches)
                all_synced(w);
        /* Of those in memory some may be gone. */
        if (deleted->periods)
                minutes_clear(&w->minutes);
}

static int retain(struct writer *w)
{
        struct retention_deleted deleted;
        int r = retention_step(&w->retention, &w->db, w->segment.first_id, &deleted);

        note_deleted(w, &deleted);
        return r;
}

/* One batch. The lock is not held while the disk is used: only this thread moves the queue's head.
 */
static int write_some(struct store *s)
{
        struct writer *w = &s->writer;
        struct work work;
        int r;

        take_work(s, &work);
        r = cache_inbox(w, &work.inbox);
        if (r == 0 && (work.n > 0 || w->processes.unwritten > 0 || w->shares.count > 0 ||
                       w->managed.count > 0))
                r = batch_write(w, &s->queue, work.from, work.n);
        if (r < 0) {
                unsettle(s, &work);
                return r;
        }
        settle(s, &work);
        end_segment_when_due(w, now_ns());
        r = retain(w);
        return r < 0 ? r : checkpoint_when_due(w, now_ns());
}

/* Once a second, busy or idle. */
static int tick(struct writer *w, uint64_t now)
{
        int r;

        if (now < w->tick_ns)
                return 0;
        w->tick_ns = now + TICK_NS;
        if (!db_is_in_place(&w->db)) {
                snprintf(w->notice, sizeof(w->notice),
                         "the database file was removed or replaced: a new one was begun (%s)",
                         w->path);
                close_database(w);
                all_synced(w);
                return writer_open(w);
        }
        end_segment_when_due(w, now);
        r = retain(w);
        if (r == 0)
                r = retention_sweep(&w->retention, &w->db, &w->processes);
        if (r == 0)
                r = managed_retain(&w->db, w->retention.max_age_ns, w->retention.managed_rows_max);
        return r;
}

/* New limits, if there are any. */
static int take_limits(struct store *s)
{
        struct writer *w = &s->writer;
        struct store_limits limits;

        pthread_mutex_lock(&s->lock);
        limits = s->limits;
        s->limits.changed = false;
        pthread_mutex_unlock(&s->lock);
        if (!limits.changed)
                return 0;
        retention_set_limits(&w->retention, limits.max_bytes, limits.max_age_s,
                             limits.max_sums_age_s);
        return db_limit_log(&w->db, w->retention.wal_bytes_max);
}

/* Part of what store_prune() waits for; the records that are queued come first. */
static int prune_some(struct store *s)
{
        struct writer *w = &s->writer;
        struct retention_deleted deleted;
        struct store_prune order;
        bool more;
        int r;

        pthread_mutex_lock(&s->lock);
        order = s->prune;
        pthread_mutex_unlock(&s->lock);
        if (!order.wanted)
                return 0;
        w->segment = (struct segment){0}; /* the next launch begins another */
        r = retention_prune(&w->retention, &w->db, order.older_than_ns, order.sums, &deleted,
                            &more);
        note_deleted(w, &deleted);
        pthread_mutex_lock(&s->lock);
        if (s->prune.number == order.number) {
                s->prune.deleted += deleted.launches;
                if (r == 0 && !more)
                        s->prune.wanted = false;
                pthread_cond_broadcast(&s->done);
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

static int cycle(struct store *s)
{
        struct writer *w = &s->writer;
        int r;

        r = writer_open(w);
        if (r == 0)
                r = take_limits(s);
        if (r == 0)
                r = tick(w, now_ns());
        if (r == 0)
                r = write_some(s);
        if (r == 0)
                r = prune_some(s);
        if (r == -EBADMSG && w->is_open)
                r = begin_anew(w);
        return r;
}

/* ---- the thread ---- */

static bool is_due(const struct store *s, uint64_t now, uint64_t *ret_wait_until)
{
        const struct writer *w = &s->writer;

        *ret_wait_until = w->backoff_ns ? w->retry_ns : w->tick_ns;
        if (w->backoff_ns)
                return now >= w->retry_ns;
        if (queue_length(&s->queue) >= WRITER_BATCH_RECORDS || w->retention.more ||
            s->limits.changed || s->prune.wanted || now >= w->tick_ns)
                return true;
        if (s->pending_since_ns == 0)
                return false;
        if (s->flushers > 0 || now >= s->pending_since_ns + s->commit_interval_ns)
                return true;
        if (s->pending_since_ns + s->commit_interval_ns < *ret_wait_until)
                *ret_wait_until = s->pending_since_ns + s->commit_interval_ns;
        return false;
}

/* False when it is time to end. */
static bool wait_for_work(struct store *s)
{
        uint64_t until;
        struct timespec t;
        bool go_on;

        pthread_mutex_lock(&s->lock);
        while (!s->stop && !is_due(s, now_ns(), &until)) {
                t = (struct timespec){.tv_sec = (time_t)(until / NSEC_PER_SEC),
                                      .tv_nsec = (long)(until % NSEC_PER_SEC)};
                pthread_cond_timedwait(&s->wake, &s->lock, &t);
        }
        go_on = !s->stop;
        pthread_mutex_unlock(&s->lock);
        return go_on;
}

static bool is_pending(struct store *s)
{
        bool pending;

        pthread_mutex_lock(&s->lock);
        pending = queue_length(&s->queue) > 0 || s->inbox_puts != s->inbox_done;
        pthread_mutex_unlock(&s->lock);
        return pending;
}

void *writer_thread(void *data)
{
        struct store *s = data;
        int r = 0;

        pthread_setname_np(pthread_self(), "gpuobsd-store");
        while (wait_for_work(s)) {
                r = cycle(s);
                if (r < 0)
                        failed(s, r);
                else
                        succeeded(s);
        }
        /* What is still there gets one chance each. */
        for (r = 0; r == 0 && is_pending(s);)
                r = cycle(s);
        publish(s, r);
        return NULL;
}
