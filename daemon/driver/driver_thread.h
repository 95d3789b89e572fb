/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A thread that calls the driver for the event loop, so that a driver that does not answer
 * (driver/silence.h) holds only what is asked of it. Tasks are run one after the other, and what
 * came of each is taken in on the loop's thread.
 *
 * All functions are for the loop's thread; run() alone runs in the other.
 */
#include <stdbool.h>
#include <stdint.h>

struct driver_thread;
struct silence;

/* Part of what owns it. While it is under way, what run() uses is the thread's. */
struct driver_task {
        void (*run)(void *data);  /* in the thread */
        void (*done)(void *data); /* afterwards, on the loop's thread; NULL: nothing */
        void *data;
        bool under_way; /* given, and done() has not been called */
        bool has_run;
        struct driver_task *next;
};

/* name: at most 15 characters. 0 or -errno. */
int driver_thread_new(const char *name, struct driver_thread **ret_thread);
/*
 * Ends when all that was given has been run, or leaves the thread to the call that it is in:
 * silence_abandoned() says so, and then what tasks use must not be freed. No done() is called.
 * Returns NULL.
 */
struct driver_thread *driver_thread_free(struct driver_thread *t);
/* The same, and at most until then (CLOCK_MONOTONIC): several are waited for together. */
struct driver_thread *driver_thread_end(struct driver_thread *t, uint64_t until_ns);

/* Readable when driver_thread_collect() has something to do. Not owned by the caller. */
int driver_thread_fd(const struct driver_thread *t);
void driver_thread_collect(struct driver_thread *t);

/* False: it is still under way. */
bool driver_thread_give(struct driver_thread *t, struct driver_task *task);

/* Wait for a task, taking in others, until then (CLOCK_MONOTONIC). False: it is still under way. */
bool driver_thread_wait(struct driver_thread *t, const struct driver_task *task, uint64_t until_ns);

/* The thread begins it with each task; run() with each further call that may take its time. */
struct silence *driver_thread_silence(struct driver_thread *t);
