/* SPDX-License-Identifier: Apache-2.0 */
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "store/store_internal.h"
#include "util/macro.h"
#include "util/thread.h"
#include "util/time.h"

#define QUEUE_RECORDS_DEFAULT      65536
#define COMMIT_INTERVAL_DEFAULT_MS 500

/* Launch ids when the database could not be asked: above all that counting reaches, below 2^53. */
#define UNKNOWN_ID_SHIFT 20

DEFINE_CLEANUP(struct store *, store_free)

int store_boot_id(char *buffer, size_t size)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

        if (!f)
                return -errno;
        if (!fgets(buffer, (int)size, f))
                return -EIO;
        buffer[strcspn(buffer, "\n")] = '\0';
        return buffer[0] ? 0 : -EIO;
}

/* ---- opening and closing ---- */

static int init_sync(struct store *s)
{
        pthread_condattr_t monotonic;
        int r;

        r = pthread_condattr_init(&monotonic);
        if (r != 0)
                return -r;
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->wake, &monotonic);
        pthread_cond_init(&s->done, &monotonic);
        pthread_condattr_destroy(&monotonic);
        return 0;
}

static int store_new(const struct store_options *o, const struct intern *names, struct store **ret)
{
        _cleanup_(store_freep) struct store *s = calloc(1, sizeof(*s));
        uint32_t interval =
                o->commit_interval_ms ? o->commit_interval_ms : COMMIT_INTERVAL_DEFAULT_MS;
        int r;

        if (!s)
                return -ENOMEM;
        r = init_sync(s);
        if (r < 0)
                return r;
        s->names = names;
        s->commit_interval_ns = interval * NSEC_PER_MSEC;
        r = queue_init(&s->queue, o->queue_records ? o->queue_records : QUEUE_RECORDS_DEFAULT);
        if (r < 0)
                return r;
        retention_set_limits(&s->writer.retention, o->max_bytes, o->max_age_s, o->max_sums_age_s);
        s->writer.next_launch_id = s->writer.next_process_key = 1;
        s->writer.path = strdup(o->path);
        if (!s->writer.path)
                return -ENOMEM;
        if (o->boot_id)
                snprintf(s->writer.boot_id, sizeof(s->writer.boot_id), "%s", o->boot_id);
        else
                r = store_boot_id(s->writer.boot_id, sizeof(s->writer.boot_id));
        if (r < 0)
                return r;
        *ret = TAKE_PTR(s);
        return 0;
}

/* Troubles that waiting will not cure, or that would make us write where we should not. */
static bool is_fatal(int error)
{
        switch (error) {
        case -ENOENT:
        case -ENOTDIR:
        case -EISDIR:
        case -EMEDIUMTYPE:
        case -EPROTONOSUPPORT:
        case -ENOMEM:
                return true;
        default:
                return false;
        }
}

static int start_thread(struct store *s)
{
        int r = thread_start(&s->thread, writer_thread, s);

        s->thread_started = r == 0;
        return r;
}

/* The database cannot be asked yet: ids that no earlier run can have given. */
static void guess_ids(struct writer *w)
{
        uint64_t guess = (uint64_t)time(NULL) << UNKNOWN_ID_SHIFT;

        w->next_launch_id = w->next_process_key = guess;
}

int store_open(const struct store_options *options, const struct intern *names, char *error,
               size_t error_size, struct store **ret_store, uint64_t *ret_next_launch_id,
               uint64_t *ret_next_process_key)
{
        _cleanup_(store_freep) struct store *s = NULL;
        struct writer *w;
        uint64_t launch_id, process_key;
        int r;

        snprintf(error, error_size, "%s", "");
        if (!options->path || !options->path[0]) {
                snprintf(error, error_size, "no path for the database was given");
                return -EINVAL;
        }
        r = store_new(options, names, &s);
        if (r < 0) {
                snprintf(error, error_size, "the store cannot start: %s", strerror(-r));
                return r;
        }
        w = &s->writer;
        r = writer_open(w);
        snprintf(error, error_size, "%s", r < 0 ? w->db.error : w->notice);
        if (is_fatal(r))
                return r;
        if (r < 0)
                guess_ids(w);
        s->status.failing = r < 0;
        s->status.launches = w->launches;
        snprintf(s->status.error, sizeof(s->status.error), "%s", error);
        launch_id = w->next_launch_id;
        process_key = w->next_process_key;
        r = start_thread(s);
        if (r < 0) {
                snprintf(error, error_size, "the store's thread cannot start: %s", strerror(-r));
                return r;
        }
        *ret_store = TAKE_PTR(s);
        *ret_next_launch_id = launch_id;
        *ret_next_process_key = process_key;
        return 0;
}

static void inbox_clear(struct store_inbox *inbox)
{
        struct ledger_put *l, *next;

        while (inbox->processes) {
                struct process_put *p = inbox->processes;

                inbox->processes = p->next;
                free(p->info);
                free(p);
        }
        share_list_clear(&inbox->shares);
        managed_queue_clear(&inbox->managed);
        HASH_ITER (hh, inbox->ledgers, l, next) {
                HASH_DEL(inbox->ledgers, l);
                free(l);
        }
}

struct store *store_free(struct store *s)
{
        if (!s)
                return NULL;
        if (s->thread_started) {
                pthread_mutex_lock(&s->lock);
                s->stop = true;
                pthread_cond_signal(&s->wake);
                pthread_mutex_unlock(&s->lock);
                pthread_join(s->thread, NULL);
        }
        writer_done(&s->writer);
        inbox_clear(&s->inbox);
        outcome_clear(&s->outcomes);
        queue_done(&s->queue);
        pthread_cond_destroy(&s->done);
        pthread_cond_destroy(&s->wake);
        pthread_mutex_destroy(&s->lock);
        free(s);
        return NULL;
}

/* ---- putting ---- */

/* Under the lock, after something was put. The writer looks after itself once it has a deadline. */
static void note_pending(struct store *s)
{
        if (s->pending_since_ns == 0) {
                s->pending_since_ns = now_ns();
                pthread_cond_signal(&s->wake);
        }
}

int store_put_process(struct store *s, const struct process_info *process)
{
        struct process_put *p = calloc(1, sizeof(*p));
        int r = -ENOMEM;

        if (p)
                p->info = process_info_copy(process);
        if (!p || !p->info)
                goto fail;
        pthread_mutex_lock(&s->lock);
        if (s->inbox.process_count >= INBOX_MAX) {
                pthread_mutex_unlock(&s->lock);
                r = -ENOBUFS;
                goto fail;
        }
        if (!s->inbox.processes)
                s->inbox.processes_end = &s->inbox.processes;
        *s->inbox.processes_end = p;
        s->inbox.processes_end = &p->next;
        s->inbox.process_count++;
        s->inbox_puts++;
        note_pending(s);
        pthread_mutex_unlock(&s->lock);
        return 0;
fail:
        if (p)
                free(p->info);
        free(p);
        return r;
}

size_t store_put_launches(struct store *s, const struct launch_record *records, size_t n)
{
        uint64_t before;
        size_t taken;

        if (n == 0)
                return 0;
        pthread_mutex_lock(&s->lock);
        before = queue_length(&s->queue);
        for (taken = 0; taken < n; taken++) {
                struct queue_entry *e = queue_push(&s->queue);

                if (!e)
                        break;
                e->record = records[taken];
                /* Looked up here: the table is this thread's, its texts are everybody's. */
                e->kernel = records[taken].kernel_name
                                    ? intern_text(s->names, records[taken].kernel_name)
                                    : NULL;
        }
        if (taken > 0)
                note_pending(s);
        if (before < WRITER_BATCH_RECORDS && before + taken >= WRITER_BATCH_RECORDS)
                pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
        return taken;
}

int store_put_ledger(struct store *s, uint64_t process_key, const struct ledger *ledger)
{
        struct ledger_put *l, *fresh;
        int r = 0;

        fresh = calloc(1, sizeof(*fresh));
        if (!fresh)
                return -ENOMEM;
        fresh->process_key = process_key;
        fresh->ledger = *ledger;
        pthread_mutex_lock(&s->lock);
        HASH_FIND(hh, s->inbox.ledgers, &process_key, sizeof(process_key), l);
        if (l) {
                l->ledger = *ledger;
        } else if (HASH_COUNT(s->inbox.ledgers) >= INBOX_MAX) {
                r = -ENOBUFS;
        } else {
                l = fresh;
                HASH_ADD(hh, s->inbox.ledgers, process_key, sizeof(process_key), l);
                fresh = NULL;
        }
        if (r == 0) {
                s->inbox_puts++;
                note_pending(s);
        }
        pthread_mutex_unlock(&s->lock);
        free(fresh);
        return r;
}

int store_put_shares(struct store *s, const struct store_share *shares, size_t n)
{
        int r;

        pthread_mutex_lock(&s->lock);
        r = share_list_add(&s->inbox.shares, shares, n, INBOX_MAX);
        if (r == 0) {
                s->inbox_puts++;
                note_pending(s);
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

int store_put_managed(struct store *s, const struct managed_second *second)
{
        int r;

        pthread_mutex_lock(&s->lock);
        r = managed_queue_add(&s->inbox.managed, second);
        if (r == 0) {
                s->inbox_puts++;
                note_pending(s);
        }
        pthread_mutex_unlock(&s->lock);
        return r;
}

/* ---- asking ---- */

size_t store_collect(struct store *s, struct store_outcome *out, size_t max)
{
        size_t n;

        pthread_mutex_lock(&s->lock);
        n = outcome_take(&s->outcomes, out, max);
        pthread_mutex_unlock(&s->lock);
        return n;
}

void store_get_status(struct store *s, struct store_status *ret_status)
{
        pthread_mutex_lock(&s->lock);
        *ret_status = s->status;
        ret_status->queued = queue_length(&s->queue);
        pthread_mutex_unlock(&s->lock);
}

static struct timespec timespec_of(uint64_t ns)
{
        return (struct timespec){.tv_sec = (time_t)(ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(ns % NSEC_PER_SEC)};
}

int store_flush(struct store *s, uint64_t timeout_ns)
{
        struct timespec t = timespec_of(now_ns() + timeout_ns);
        uint64_t records, puts;
        bool done = false;
        int r = 0;

        pthread_mutex_lock(&s->lock);
        records = s->queue.tail;
        puts = s->inbox_puts;
        s->flushers++;
        pthread_cond_signal(&s->wake);
        for (;;) {
                done = s->queue.head >= records && s->inbox_done >= puts;
                if (done || r != 0)
                        break;
                r = pthread_cond_timedwait(&s->done, &s->lock, &t);
        }
        s->flushers--;
        pthread_mutex_unlock(&s->lock);
        return done ? 0 : -ETIMEDOUT;
}

/* ---- orders ---- */

void store_set_limits(struct store *s, uint64_t max_bytes, uint64_t max_age_s,
                      uint64_t max_sums_age_s)
{
        pthread_mutex_lock(&s->lock);
        s->limits = (struct store_limits){max_bytes, max_age_s, max_sums_age_s, true};
        pthread_cond_signal(&s->wake);
        pthread_mutex_unlock(&s->lock);
}

int store_prune(struct store *s, uint64_t older_than_ns, bool sums, uint64_t timeout_ns,
                uint64_t *ret_deleted)
{
        struct timespec t = timespec_of(now_ns() + timeout_ns);
        bool done;
        int r = 0;

        pthread_mutex_lock(&s->lock);
        if (s->prune.wanted) {
                pthread_mutex_unlock(&s->lock);
                return -EBUSY;
        }
        s->prune = (struct store_prune){.wanted = true,
                                        .number = s->prune.number + 1,
                                        .sums = sums,
                                        .older_than_ns = older_than_ns};
        pthread_cond_signal(&s->wake);
        while (s->prune.wanted && r == 0)
                r = pthread_cond_timedwait(&s->done, &s->lock, &t);
        done = !s->prune.wanted;
        s->prune.wanted = false;
        *ret_deleted = s->prune.deleted;
        pthread_mutex_unlock(&s->lock);
        return done ? 0 : -ETIMEDOUT;
}
