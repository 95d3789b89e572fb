/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "driver/silence.h"
#include "util/macro.h"
#include "util/thread.h"
#include "util/time.h"

struct driver_thread {
        char name[16];
        int event_fd;
        pthread_t thread;
        struct silence silence;
        pthread_mutex_t lock;
        pthread_cond_t given_changed, finished_changed;
        struct driver_task *given;    /* in order; the first may be running */
        struct driver_task *finished; /* to be collected */
        bool stop, ended, abandoned;
};

static void destroy(struct driver_thread *t)
{
        closep(&t->event_fd);
        pthread_cond_destroy(&t->finished_changed);
        pthread_cond_destroy(&t->given_changed);
        pthread_mutex_destroy(&t->lock);
        free(t);
}

/* ---- the thread; the lock is held unless a task runs ---- */

static struct driver_task *wait_for_task(struct driver_thread *t)
{
        while (!t->stop && !t->given)
                pthread_cond_wait(&t->given_changed, &t->lock);
        return t->given;
}

static void run(struct driver_thread *t, struct driver_task *task)
{
        pthread_mutex_unlock(&t->lock);
        silence_begin(&t->silence);
        task->run(task->data);
        silence_end(&t->silence);
        pthread_mutex_lock(&t->lock);
}

static void finish(struct driver_thread *t, struct driver_task *task)
{
        const uint64_t one = 1;

        LL_DELETE(t->given, task);
        task->has_run = true;
        LL_APPEND(t->finished, task);
        pthread_cond_broadcast(&t->finished_changed);
        (void)!write(t->event_fd, &one, sizeof(one)); /* full: it is readable anyway */
}

static void *work(void *data)
{
        struct driver_thread *t = data;
        struct driver_task *task;
        bool abandoned;

        pthread_setname_np(pthread_self(), t->name);
        pthread_mutex_lock(&t->lock);
        while (!t->abandoned && (task = wait_for_task(t))) {
                run(t, task);
                if (!t->abandoned)
                        finish(t, task);
        }
        t->ended = true;
        abandoned = t->abandoned;
        pthread_cond_broadcast(&t->finished_changed);
        pthread_mutex_unlock(&t->lock);
        if (abandoned) {
                destroy(t);
                silence_returned();
        }
        return NULL;
}

/* ---- life ---- */

int driver_thread_new(const char *name, struct driver_thread **ret_thread)
{
        struct driver_thread *t = calloc(1, sizeof(*t));
        pthread_condattr_t monotonic;
        int r;

        if (!t)
                return -ENOMEM;
        snprintf(t->name, sizeof(t->name), "%s", name);
        pthread_mutex_init(&t->lock, NULL);
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_cond_init(&t->given_changed, NULL);
        pthread_cond_init(&t->finished_changed, &monotonic);
        pthread_condattr_destroy(&monotonic);
        t->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        r = t->event_fd < 0 ? -errno : thread_start(&t->thread, work, t);
        if (r < 0) {
                destroy(t);
                return r;
        }
        *ret_thread = t;
        return 0;
}

/* With the lock. False: it is that late. */
static bool wait_for_change(struct driver_thread *t, uint64_t until_ns)
{
        struct timespec until = {.tv_sec = (time_t)(until_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(until_ns % NSEC_PER_SEC)};

        return pthread_cond_timedwait(&t->finished_changed, &t->lock, &until) != ETIMEDOUT;
}

struct driver_thread *driver_thread_free(struct driver_thread *t)
{
        return driver_thread_end(t, now_ns() + SILENCE_END_NS);
}

struct driver_thread *driver_thread_end(struct driver_thread *t, uint64_t until_ns)
{
        if (!t)
                return NULL;
        pthread_mutex_lock(&t->lock);
        t->stop = true;
        pthread_cond_signal(&t->given_changed);
        while (!t->ended && wait_for_change(t, until_ns))
                ;
        t->abandoned = !t->ended;
        if (t->abandoned) {
                silence_abandon();
                pthread_detach(t->thread);
                pthread_mutex_unlock(&t->lock); /* from here on it is the thread's */
                return NULL;
        }
        pthread_mutex_unlock(&t->lock);
        pthread_join(t->thread, NULL);
        destroy(t);
        return NULL;
}

/* ---- tasks ---- */

int driver_thread_fd(const struct driver_thread *t)
{
        return t->event_fd;
}

static struct driver_task *take_finished(struct driver_thread *t)
{
        struct driver_task *task;

        pthread_mutex_lock(&t->lock);
        task = t->finished;
        if (task)
                LL_DELETE(t->finished, task);
        pthread_mutex_unlock(&t->lock);
        return task;
}

void driver_thread_collect(struct driver_thread *t)
{
        struct driver_task *task;
        uint64_t count;

        (void)!read(t->event_fd, &count, sizeof(count)); /* nothing there is fine */
        while ((task = take_finished(t))) {
                task->under_way = false;
                if (task->done)
                        task->done(task->data); /* may give it again */
        }
}

bool driver_thread_give(struct driver_thread *t, struct driver_task *task)
{
        if (task->under_way)
                return false;
        task->under_way = true;
        task->has_run = false;
        pthread_mutex_lock(&t->lock);
        LL_APPEND(t->given, task);
        pthread_cond_signal(&t->given_changed);
        pthread_mutex_unlock(&t->lock);
        return true;
}

bool driver_thread_wait(struct driver_thread *t, const struct driver_task *task, uint64_t until_ns)
{
        bool in_time = true;

        while (task->under_way && in_time) {
                pthread_mutex_lock(&t->lock);
                while (!task->has_run && in_time)
                        in_time = wait_for_change(t, until_ns);
                pthread_mutex_unlock(&t->lock);
                driver_thread_collect(t);
        }
        return !task->under_way;
}

struct silence *driver_thread_silence(struct driver_thread *t)
{
        return &t->silence;
}
