/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A ring of orders with three positions: what has been collected, what has been
 * performed, what has been submitted. The thread moves the middle one.
 *
 * A thread works on a copy of its order, so that the ring can move on when the
 * order is given up. Such a thread (struct hand) takes no other order, hands its
 * late result over and ends. What it shares with the others lives until the last
 * of them has ended.
 */
#include "policy/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "util/macro.h"
#include "util/thread.h"
#include "util/time.h"

struct job {
        struct policy_order order;
        struct policy_result result;
        bool planned; /* false: there is nothing to perform, or to release */
        alignas(max_align_t) char plan[WORKER_PLAN_BYTES];
};

/* A thread, and the order it is at. */
struct hand {
        struct hand *prev, *next; /* of those that were given up */
        struct policy_worker *worker;
        pthread_t thread;
        uint64_t begun_ns; /* 0: it is at no order */
        uint32_t pid;      /* whom its call is about, with start_ticks */
        uint64_t start_ticks;
        bool given_up;
        bool returned;  /* it takes no more orders: to be joined */
        bool abandoned; /* nobody joins it: it cleans up itself */
        struct job job;
};

struct policy_worker {
        const struct policy_worker_ops *ops;
        void *data;
        int event_fd;
        unsigned users; /* the owner, and each thread */
        pthread_mutex_t lock;
        pthread_cond_t submitted_changed, performed_changed;
        bool ending, hurrying, held;
        uint64_t limit_ns;
        struct hand *hand;  /* takes the next order; NULL: too many calls are stuck */
        struct hand *stuck; /* given up */
        unsigned stuck_count;
        size_t collected, performed, submitted; /* ever */
        struct job jobs[WORKER_ORDERS_MAX];
};

static atomic_uint abandoned;
static _Thread_local struct hand *own_hand; /* NULL: no thread of a worker */

unsigned policy_worker_abandoned(void)
{
        return atomic_load(&abandoned);
}

static struct job *job_at(struct policy_worker *w, size_t position)
{
        return &w->jobs[position % WORKER_ORDERS_MAX];
}

static void announce(struct policy_worker *w)
{
        const uint64_t one = 1;

        pthread_cond_signal(&w->performed_changed);
        (void)!write(w->event_fd, &one, sizeof(one)); /* full: it is readable anyway */
}

static void release(struct policy_worker *w, struct job *job)
{
        if (job->planned && w->ops->release)
                w->ops->release(w->data, job->plan);
        job->planned = false;
}

/* The lock is held, and given back. The last one frees. */
static void leave(struct policy_worker *w)
{
        bool last = --w->users == 0;

        pthread_cond_broadcast(&w->performed_changed);
        pthread_mutex_unlock(&w->lock);
        if (!last)
                return;
        closep(&w->event_fd);
        pthread_cond_destroy(&w->performed_changed);
        pthread_cond_destroy(&w->submitted_changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
}

/* ---- the thread; the lock is held unless it performs ---- */

/* The next job to perform; NULL at the end. */
static struct job *wait_for_job(struct policy_worker *w)
{
        while (!w->ending && (w->held || w->performed == w->submitted))
                pthread_cond_wait(&w->submitted_changed, &w->lock);
        return w->ending ? NULL : job_at(w, w->performed);
}

/* Another call about the process has not returned: this one would come to wait for it. */
static bool is_stuck(const struct policy_worker *w, uint32_t pid, uint64_t start_ticks)
{
        const struct hand *h;

        DL_FOREACH(w->stuck, h)
        {
                if (h != own_hand && h->pid == pid && h->start_ticks == start_ticks)
                        return true;
        }
        return false;
}

static int refusal(const struct policy_worker *w, const struct policy_order *order)
{
        if (w->hurrying && !order->undo)
                return -ECANCELED;
        return is_stuck(w, order->pid, order->start_ticks) ? -EINPROGRESS : 0;
}

/* Without the lock; false: it was given up meanwhile, and the job in the ring is gone. */
static bool perform(struct hand *h, struct job *job)
{
        struct policy_worker *w = h->worker;

        h->job = *job;
        h->pid = job->order.pid;
        h->start_ticks = job->order.start_ticks;
        h->begun_ns = now_ns();
        pthread_mutex_unlock(&w->lock);
        w->ops->perform(w->data, &h->job.order, h->job.plan, &h->job.result);
        pthread_mutex_lock(&w->lock);
        h->begun_ns = 0;
        if (!h->given_up)
                job->result = h->job.result;
        return !h->given_up;
}

/* Who would collect the late result may have gone. */
static void come_late(struct hand *h)
{
        struct policy_worker *w = h->worker;

        h->returned = true;
        if (!h->abandoned) {
                announce(w);
                return;
        }
        DL_DELETE(w->stuck, h);
        release(w, &h->job);
        free(h);
        atomic_fetch_sub(&abandoned, 1);
}

static void *work(void *data)
{
        struct hand *h = data;
        struct policy_worker *w = h->worker;
        struct job *job;
        bool goes_on = true;

        own_hand = h;
        pthread_mutex_lock(&w->lock);
        while (goes_on && (job = wait_for_job(w))) {
                int error = job->planned ? refusal(w, &job->order) : 0;

                if (error)
                        job->result.error = error;
                else if (job->planned)
                        goes_on = perform(h, job);
                if (!goes_on)
                        break;
                w->performed++;
                announce(w);
        }
        if (goes_on)
                h->returned = true;
        else
                come_late(h);
        leave(w);
        return NULL;
}

/* 0 or -errno. */
static int start_hand(struct policy_worker *w)
{
        struct hand *h = calloc(1, sizeof(*h));
        int r;

        if (!h)
                return -ENOMEM;
        h->worker = w;
        r = thread_start(&h->thread, work, h);
        if (r < 0) {
                free(h);
                return r;
        }
        w->hand = h;
        w->users++;
        return 0;
}

/* ---- giving up; on the loop's thread, the lock is held ---- */

static uint64_t limit_of(const struct policy_worker *w)
{
        return w->hurrying && w->limit_ns > WORKER_HURRY_NS ? WORKER_HURRY_NS : w->limit_ns;
}

static void give_up(struct policy_worker *w)
{
        struct hand *h = w->hand;
        struct job *job = job_at(w, w->performed);

        h->given_up = true;
        DL_APPEND(w->stuck, h);
        w->stuck_count++;
        w->hand = NULL;
        job->planned = false; /* the thread has it */
        job->result.error = -EINPROGRESS;
        job->result.given_up = true;
        w->performed++;
        announce(w);
}

/* Nobody is left to carry them out. */
static void refuse_all(struct policy_worker *w)
{
        if (w->performed == w->submitted)
                return;
        for (; w->performed != w->submitted; w->performed++)
                if (job_at(w, w->performed)->planned)
                        job_at(w, w->performed)->result.error = -EINPROGRESS;
        announce(w);
}

static bool is_overdue(const struct policy_worker *w)
{
        return w->hand && w->hand->begun_ns && now_ns() - w->hand->begun_ns >= limit_of(w);
}

static void watch(struct policy_worker *w)
{
        if (is_overdue(w))
                give_up(w);
        if (!w->hand && (w->stuck_count >= WORKER_STUCK_MAX || start_hand(w) < 0))
                refuse_all(w);
}

/* Until something has been performed, or is to be given up. */
static void wait_for_result(struct policy_worker *w)
{
        uint64_t until_ns = now_ns() + limit_of(w) / 8 + 1;
        struct timespec until = {.tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(until_ns % NSEC_PER_SEC)};

        (void)pthread_cond_timedwait(&w->performed_changed, &w->lock, &until);
}

/* ---- interface ---- */

static void init_conditions(struct policy_worker *w)
{
        pthread_condattr_t monotonic;

        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&w->submitted_changed, NULL);
        pthread_cond_init(&w->performed_changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
}

int policy_worker_new(const struct policy_worker_ops *ops, void *data, uint64_t limit_ns,
                      struct policy_worker **ret_worker)
{
        struct policy_worker *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return -ENOMEM;
        w->ops = ops;
        w->data = data;
        w->limit_ns = limit_ns;
        w->users = 1;
        pthread_mutex_init(&w->lock, NULL);
        init_conditions(w);
        w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = w->event_fd < 0 ? -errno : start_hand(w);
        if (r < 0) {
                policy_worker_free(w);
                return r;
        }
        *ret_worker = w;
        return 0;
}

/* It has returned, and is about to end. */
static void hand_join(struct hand *h)
{
        pthread_join(h->thread, NULL);
        free(h);
}

/* They clean up when they return, whoever is left then. The lock is held. */
static void abandon_stuck(struct policy_worker *w)
{
        struct hand *h, *next;

        DL_FOREACH_SAFE(w->stuck, h, next)
        {
                pthread_detach(h->thread);
                if (!h->returned) {
                        h->abandoned = true;
                        atomic_fetch_add(&abandoned, 1);
                        continue;
                }
                DL_DELETE(w->stuck, h);
                release(w, &h->job);
                free(h);
        }
}

struct policy_worker *policy_worker_free(struct policy_worker *w)
{
        struct hand *last;

        if (!w)
                return NULL;
        pthread_mutex_lock(&w->lock);
        w->ending = true;
        pthread_cond_signal(&w->submitted_changed);
        while (w->hand && !w->hand->returned) {
                if (is_overdue(w))
                        give_up(w);
                else
                        wait_for_result(w);
        }
        last = w->hand;
        for (; w->collected != w->submitted; w->collected++)
                release(w, job_at(w, w->collected));
        abandon_stuck(w);
        pthread_mutex_unlock(&w->lock);
        if (last)
                hand_join(last);
        pthread_mutex_lock(&w->lock);
        leave(w);
        return NULL;
}

void policy_worker_hurry(struct policy_worker *w)
{
        pthread_mutex_lock(&w->lock);
        w->hurrying = true;
        pthread_mutex_unlock(&w->lock);
}

int policy_worker_fd(const struct policy_worker *w)
{
        return w->event_fd;
}

bool policy_worker_submit(struct policy_worker *w, const struct policy_order *order)
{
        struct job *job;
        int r;

        /* Only this thread moves `submitted` and `collected`. */
        if (w->submitted - w->collected == WORKER_ORDERS_MAX)
                return false;
        job = job_at(w, w->submitted);
        memset(job->plan, 0, sizeof(job->plan));
        job->order = *order;
        job->result = (struct policy_result){.id = order->id};
        r = w->ops->plan(w->data, order, job->plan);
        job->planned = r == 0;
        job->result.error = r;
        pthread_mutex_lock(&w->lock);
        w->submitted++;
        pthread_cond_signal(&w->submitted_changed);
        if (!w->hand)
                refuse_all(w);
        pthread_mutex_unlock(&w->lock);
        return true;
}

void policy_worker_hold(struct policy_worker *w, bool on)
{
        pthread_mutex_lock(&w->lock);
        w->held = on;
        pthread_cond_signal(&w->submitted_changed);
        pthread_mutex_unlock(&w->lock);
}

bool policy_worker_is_stuck(struct policy_worker *w, uint32_t pid, uint64_t start_ticks)
{
        bool stuck;

        pthread_mutex_lock(&w->lock);
        stuck = is_stuck(w, pid, start_ticks);
        pthread_mutex_unlock(&w->lock);
        return stuck;
}

bool policy_worker_turn_to(uint32_t pid, uint64_t start_ticks)
{
        struct hand *h = own_hand;
        bool stuck;

        if (!h)
                return true;
        pthread_mutex_lock(&h->worker->lock);
        stuck = is_stuck(h->worker, pid, start_ticks);
        if (!stuck) {
                h->pid = pid;
                h->start_ticks = start_ticks;
        }
        pthread_mutex_unlock(&h->worker->lock);
        return !stuck;
}

void policy_worker_watch(struct policy_worker *w)
{
        pthread_mutex_lock(&w->lock);
        watch(w);
        pthread_mutex_unlock(&w->lock);
}

/* One that was given up and has returned; NULL: none. */
static struct hand *take_returned(struct policy_worker *w)
{
        struct hand *h;

        pthread_mutex_lock(&w->lock);
        DL_SEARCH_SCALAR(w->stuck, h, returned, true);
        if (h) {
                DL_DELETE(w->stuck, h);
                w->stuck_count--;
                watch(w);
        }
        pthread_mutex_unlock(&w->lock);
        return h;
}

static void collect_late(struct policy_worker *w,
                         void (*done)(void *done_data, const struct policy_result *result),
                         void *done_data)
{
        struct hand *h;

        while ((h = take_returned(w))) {
                h->job.result.late = true;
                done(done_data, &h->job.result);
                release(w, &h->job);
                hand_join(h);
        }
}

void policy_worker_collect(struct policy_worker *w,
                           void (*done)(void *done_data, const struct policy_result *result),
                           void *done_data)
{
        struct policy_result result;
        uint64_t count;
        size_t until;

        (void)!read(w->event_fd, &count, sizeof(count)); /* nothing there is fine */
        pthread_mutex_lock(&w->lock);
        until = w->performed;
        pthread_mutex_unlock(&w->lock);
        while (w->collected != until) {
                /* done() may submit, into the place that becomes free. */
                result = job_at(w, w->collected)->result;
                release(w, job_at(w, w->collected));
                w->collected++;
                done(done_data, &result);
        }
        collect_late(w, done, done_data);
}

void policy_worker_flush(struct policy_worker *w,
                         void (*done)(void *done_data, const struct policy_result *result),
                         void *done_data)
{
        while (w->collected != w->submitted) {
                pthread_mutex_lock(&w->lock);
                for (watch(w); w->performed != w->submitted; watch(w))
                        wait_for_result(w);
                pthread_mutex_unlock(&w->lock);
                policy_worker_collect(w, done, done_data);
        }
}
