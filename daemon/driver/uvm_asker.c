/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_asker.h"

#include <errno.h>
#include <stdlib.h>

#include "driver/driver_thread.h"
#include "driver/silence.h"

struct uvm_asker {
        const struct uvm_system *system;
        struct uvm_tracker_options options;
        void (*opened)(void *data, int error, struct uvm_tracker *tracker);
        void *data;
        struct driver_thread *thread;
        struct driver_task to_open, to_flush, to_learn, to_close;
        struct uvm_tracker *tracker; /* the thread's until it is open, and when it is closed */
        int error;
        bool closing, closed;
        uint8_t processors[UVM_PROCESSORS_MAX][UVM_UUID_BYTES]; /* the thread's while it learns */
        int learn_error;
};

/* ---- in the thread ---- */

static void open_tracker(void *data)
{
        struct uvm_asker *a = data;

        a->error = uvm_tracker_new(a->system, &a->options, &a->tracker);
}

static void flush(void *data)
{
        struct uvm_asker *a = data;

        (void)uvm_tracker_flush(a->tracker);
}

static void learn(void *data)
{
        struct uvm_asker *a = data;

        a->learn_error = uvm_tracker_ask_processors(a->tracker, a->processors);
}

/* May wait for the driver to take apart what the process had. */
static void close_tracker(void *data)
{
        struct uvm_asker *a = data;

        a->tracker = uvm_tracker_free(a->tracker);
}

/* ---- on the loop's ---- */

static void after_open(void *data)
{
        struct uvm_asker *a = data;

        if (!a->closing)
                a->opened(a->data, a->error, a->error == 0 ? a->tracker : NULL);
}

static void after_learn(void *data)
{
        struct uvm_asker *a = data;

        if (a->learn_error == 0 && !a->closing)
                uvm_tracker_set_processors(a->tracker, a->processors);
}

static void after_close(void *data)
{
        struct uvm_asker *a = data;

        a->closed = true;
}

static struct driver_task task_of(struct uvm_asker *a, void (*run)(void *data),
                                  void (*done)(void *data))
{
        return (struct driver_task){.run = run, .done = done, .data = a};
}

int uvm_asker_new(const struct uvm_system *system, const struct uvm_tracker_options *options,
                  void (*opened)(void *data, int error, struct uvm_tracker *tracker), void *data,
                  struct uvm_asker **ret_asker)
{
        struct uvm_asker *a = calloc(1, sizeof(*a));
        int r;

        if (!a)
                return -ENOMEM;
        a->system = system;
        a->options = *options;
        a->opened = opened;
        a->data = data;
        a->to_open = task_of(a, open_tracker, after_open);
        a->to_flush = task_of(a, flush, NULL);
        a->to_learn = task_of(a, learn, after_learn);
        a->to_close = task_of(a, close_tracker, after_close);
        r = driver_thread_new("gpuobsd-uvm", &a->thread);
        if (r < 0) {
                free(a);
                return r;
        }
        (void)driver_thread_give(a->thread, &a->to_open);
        *ret_asker = a;
        return 0;
}

struct uvm_asker *uvm_asker_free(struct uvm_asker *a, uint64_t until_ns)
{
        if (!a)
                return NULL;
        a->thread = driver_thread_end(a->thread, until_ns);
        if (!silence_abandoned())
                free(a);
        return NULL;
}

void uvm_asker_collect(struct uvm_asker *a)
{
        driver_thread_collect(a->thread);
}

bool uvm_asker_wait(struct uvm_asker *a, uint64_t until_ns)
{
        return driver_thread_wait(a->thread, &a->to_open, until_ns);
}

void uvm_asker_flush(struct uvm_asker *a)
{
        if (!a->closing)
                (void)driver_thread_give(a->thread, &a->to_flush);
}

bool uvm_asker_learn(struct uvm_asker *a, uint64_t until_ns)
{
        return !a->closing && driver_thread_give(a->thread, &a->to_learn) &&
               driver_thread_wait(a->thread, &a->to_learn, until_ns);
}

void uvm_asker_close(struct uvm_asker *a)
{
        a->closing = true;
        (void)driver_thread_give(a->thread, &a->to_close);
}

bool uvm_asker_is_closed(const struct uvm_asker *a)
{
        return a->closed;
}
