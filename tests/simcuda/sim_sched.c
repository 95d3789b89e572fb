/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The workers are the device: each takes a stream that has commands, carries
 * out a few, and puts it back, so that streams overlap and interleave. A worker
 * without work looks for some for a while before it sleeps, because waking a
 * thread costs more than a launch.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define BATCH 32 /* commands of one stream before others have a turn */

static struct {
        pthread_mutex_t lock;
        pthread_cond_t work;
        pthread_cond_t progress; /* for those who wait for completion */
        struct sim_stream *ready, **ready_end;
        struct sim_stream *blocked; /* their next command waits for another stream */
        _Atomic unsigned ready_count;
        _Atomic unsigned blocked_count;
        _Atomic unsigned spinning;
        unsigned sleeping;
} sched = {
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .work = PTHREAD_COND_INITIALIZER,
        .progress = PTHREAD_COND_INITIALIZER,
        .ready_end = &sched.ready,
};

static void relax(void)
{
        __builtin_ia32_pause();
}

/* With the lock. */
static void push_ready(struct sim_stream *stream)
{
        stream->next_ready = NULL;
        *sched.ready_end = stream;
        sched.ready_end = &stream->next_ready;
        atomic_fetch_add(&sched.ready_count, 1);
        if (sched.sleeping && !atomic_load(&sched.spinning))
                pthread_cond_signal(&sched.work);
}

void sim_sched_add(struct sim_stream *stream)
{
        pthread_mutex_lock(&sched.lock);
        push_ready(stream);
        pthread_mutex_unlock(&sched.lock);
}

/* With the lock; NULL when there is nothing. */
static struct sim_stream *pop_ready(void)
{
        struct sim_stream *stream = sched.ready;

        if (!stream)
                return NULL;
        sched.ready = stream->next_ready;
        if (!sched.ready)
                sched.ready_end = &sched.ready;
        atomic_fetch_sub(&sched.ready_count, 1);
        if (sched.ready && sched.sleeping && !atomic_load(&sched.spinning))
                pthread_cond_signal(&sched.work);
        return stream;
}

/* Look for work without sleeping, for as long as configured. */
static void spin_for_work(void)
{
        uint64_t until = sim_monotonic_ns() + sim_driver.config.spin_ns;

        atomic_fetch_add(&sched.spinning, 1);
        while (!atomic_load(&sched.ready_count) && sim_monotonic_ns() < until) {
                for (int i = 0; i < 32 && !atomic_load(&sched.ready_count); i++)
                        relax();
        }
        atomic_fetch_sub(&sched.spinning, 1);
}

static struct sim_stream *take_stream(void)
{
        struct sim_stream *stream;

        if (!atomic_load(&sched.ready_count) && !atomic_load(&sched.spinning))
                spin_for_work();
        pthread_mutex_lock(&sched.lock);
        while (!(stream = pop_ready())) {
                sched.sleeping++;
                pthread_cond_wait(&sched.work, &sched.lock);
                sched.sleeping--;
        }
        pthread_mutex_unlock(&sched.lock);
        return stream;
}

static bool is_complete(const struct sim_wait *wait)
{
        return !wait->stream || atomic_load(&wait->stream->completed) >= wait->seq;
}

static bool may_start(const struct sim_command *command)
{
        if (!is_complete(&command->wait))
                return false;
        for (unsigned i = 0; i < command->more_wait_count; i++) {
                if (!is_complete(&command->more_waits[i]))
                        return false;
        }
        return true;
}

/* Everything that waited may look again. */
static void unblock_all(void)
{
        struct sim_stream *stream;

        pthread_mutex_lock(&sched.lock);
        while ((stream = sched.blocked)) {
                sched.blocked = stream->next_ready;
                atomic_fetch_sub(&sched.blocked_count, 1);
                push_ready(stream);
        }
        pthread_mutex_unlock(&sched.lock);
}

/*
 * Put a stream aside until another completes something. Its command is looked at
 * once more afterwards, in case that has happened in between.
 */
static void block(struct sim_stream *stream, const struct sim_command *command)
{
        pthread_mutex_lock(&sched.lock);
        stream->next_ready = sched.blocked;
        sched.blocked = stream;
        atomic_fetch_add(&sched.blocked_count, 1);
        if (may_start(command)) {
                sched.blocked = stream->next_ready;
                atomic_fetch_sub(&sched.blocked_count, 1);
                push_ready(stream);
        }
        pthread_mutex_unlock(&sched.lock);
}

static void complete(struct sim_stream *stream)
{
        uint64_t completed = atomic_fetch_add(&stream->completed, 1) + 1;

        if (completed >= atomic_load(&stream->wake_at)) {
                pthread_mutex_lock(&sched.lock);
                atomic_store(&stream->wake_at, UINT64_MAX);
                pthread_cond_broadcast(&sched.progress);
                pthread_mutex_unlock(&sched.lock);
        }
        if (atomic_load(&sched.blocked_count))
                unblock_all();
}

static void delay_start(const struct sim_command *command)
{
        uint64_t start = command->submit_ns + sim_driver.config.start_delay_ns;

        while (sim_driver.config.start_delay_ns && sim_monotonic_ns() < start)
                sched_yield();
}

enum turn {
        TURN_IDLE,    /* no more commands */
        TURN_MORE,    /* there are, but others have waited long enough */
        TURN_BLOCKED, /* given to block() */
};

static enum turn run_turn(struct sim_worker *worker, struct sim_stream *stream)
{
        unsigned mask_entries = sim_driver.config.queue_entries;

        for (unsigned i = 0; i < BATCH; i++) {
                uint64_t seq = atomic_load(&stream->completed);
                struct sim_command *command = &stream->ring[seq % mask_entries];

                if (seq == atomic_load(&stream->submitted))
                        return TURN_IDLE;
                if (!may_start(command)) {
                        block(stream, command);
                        return TURN_BLOCKED;
                }
                delay_start(command);
                sim_command_run(worker, stream->context, command);
                sim_command_done(command);
                complete(stream);
        }
        return TURN_MORE;
}

/*
 * A stream without commands is let go; one that was appended to meanwhile has
 * to be taken up again by whoever sees it first. The worker's reference keeps
 * it alive: a destroyed stream ends here.
 */
static void run_stream(struct sim_worker *worker, struct sim_stream *stream)
{
        switch (run_turn(worker, stream)) {
        case TURN_BLOCKED:
                return;
        case TURN_MORE:
                sim_sched_add(stream);
                return;
        case TURN_IDLE:
                break;
        }
        atomic_store(&stream->scheduled, 0);
        if (atomic_load(&stream->completed) != atomic_load(&stream->submitted) &&
            atomic_exchange(&stream->scheduled, 1) == 0)
                return sim_sched_add(stream);
        if (atomic_load(&stream->destroyed))
                sim_stream_retire(stream);
        sim_stream_unref(stream);
}

static void *worker_main(void *argument)
{
        struct sim_worker *worker = argument;

        for (;;)
                run_stream(worker, take_stream());
        return NULL;
}

static int start_worker(void)
{
        struct sim_worker *worker = sim_worker_new();
        pthread_t thread;
        int r;

        if (!worker)
                return -ENOMEM;
        r = pthread_create(&thread, NULL, worker_main, worker);
        if (r)
                return -r;
        pthread_setname_np(thread, "simgpu");
        pthread_detach(thread);
        return 0;
}

int sim_sched_start(void)
{
        sigset_t all, old;
        int r = 0;

        /* The application's signals are not for these threads. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        for (unsigned i = 0; i < sim_driver.config.workers && r == 0; i++)
                r = start_worker();
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        return r;
}

void sim_sched_wait(struct sim_stream *stream, uint64_t seq)
{
        uint64_t until = sim_monotonic_ns() + sim_driver.config.spin_ns;

        while (atomic_load(&stream->completed) < seq && sim_monotonic_ns() < until) {
                for (int i = 0; i < 32 && atomic_load(&stream->completed) < seq; i++)
                        relax();
        }
        if (atomic_load(&stream->completed) >= seq)
                return;
        pthread_mutex_lock(&sched.lock);
        for (;;) {
                /* First say what we wait for, then look: the worker does it the other way round. */
                if (seq < atomic_load(&stream->wake_at))
                        atomic_store(&stream->wake_at, seq);
                if (atomic_load(&stream->completed) >= seq)
                        break;
                pthread_cond_wait(&sched.progress, &sched.lock);
        }
        pthread_mutex_unlock(&sched.lock);
}
