/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A ring of orders with three positions: what has been collected, what has been
 * performed, what has been submitted. The thread moves the middle one.
 */
#include "policy/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "util/macro.h"

struct job {
        struct policy_order order;
        struct policy_result result;
        bool planned; /* false: the result is known already */
        alignas(max_align_t) char plan[WORKER_PLAN_BYTES];
};

struct policy_worker {
        const struct policy_worker_ops *ops;
        void *data;
        int event_fd;
        bool has_thread;
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t submitted_changed, performed_changed;
        bool ending, hurrying;
        size_t collected, performed, submitted; /* ever */
        struct job jobs[WORKER_ORDERS_MAX];
};

static struct job *job_at(struct policy_worker *w, size_t position)
{
        return &w->jobs[position % WORKER_ORDERS_MAX];
}

/* The next job to perform; NULL at the end. The lock is held. */
static struct job *wait_for_job(struct policy_worker *w)
{
        while (!w->ending && w->performed == w->submitted)
                pthread_cond_wait(&w->submitted_changed, &w->lock);
        return w->ending ? NULL : job_at(w, w->performed);
}

static void *work(void *data)
{
        struct policy_worker *w = data;
        const uint64_t one = 1;
        struct job *job;

        pthread_mutex_lock(&w->lock);
        while ((job = wait_for_job(w))) {
                bool is_dropped = w->hurrying && !job->order.undo;

                pthread_mutex_unlock(&w->lock);
                if (job->planned && is_dropped)
                        job->result.error = -ECANCELED;
                else if (job->planned)
                        w->ops->perform(w->data, &job->order, job->plan, &job->result);
                pthread_mutex_lock(&w->lock);
                w->performed++;
                pthread_cond_signal(&w->performed_changed);
                (void)!write(w->event_fd, &one, sizeof(one)); /* full: it is readable anyway */
        }
        pthread_mutex_unlock(&w->lock);
        return NULL;
}

/* Of a job that the thread has done with, or will not come to. */
static void release(struct policy_worker *w, struct job *job)
{
        if (job->planned && w->ops->release)
                w->ops->release(w->data, job->plan);
}

int policy_worker_new(const struct policy_worker_ops *ops, void *data,
                      struct policy_worker **ret_worker)
{
        struct policy_worker *w = calloc(1, sizeof(*w));
        int r;

        if (!w)
                return -ENOMEM;
        w->ops = ops;
        w->data = data;
        pthread_mutex_init(&w->lock, NULL);
        pthread_cond_init(&w->submitted_changed, NULL);
        pthread_cond_init(&w->performed_changed, NULL);
        w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (w->event_fd < 0) {
                r = -errno;
                policy_worker_free(w);
                return r;
        }
        r = -pthread_create(&w->thread, NULL, work, w);
        if (r < 0) {
                policy_worker_free(w);
                return r;
        }
        w->has_thread = true;
        *ret_worker = w;
        return 0;
}

struct policy_worker *policy_worker_free(struct policy_worker *w)
{
        if (!w)
                return NULL;
        if (w->has_thread) {
                pthread_mutex_lock(&w->lock);
                w->ending = true;
                pthread_cond_signal(&w->submitted_changed);
                pthread_mutex_unlock(&w->lock);
                pthread_join(w->thread, NULL);
        }
        for (; w->collected != w->submitted; w->collected++)
                release(w, job_at(w, w->collected));
        closep(&w->event_fd);
        pthread_cond_destroy(&w->performed_changed);
        pthread_cond_destroy(&w->submitted_changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
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
        pthread_mutex_unlock(&w->lock);
        return true;
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
}

void policy_worker_flush(struct policy_worker *w,
                         void (*done)(void *done_data, const struct policy_result *result),
                         void *done_data)
{
        while (w->collected != w->submitted) {
                pthread_mutex_lock(&w->lock);
                while (w->performed != w->submitted)
                        pthread_cond_wait(&w->performed_changed, &w->lock);
                pthread_mutex_unlock(&w->lock);
                policy_worker_collect(w, done, done_data);
        }
}
