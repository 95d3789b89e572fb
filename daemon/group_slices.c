/* SPDX-License-Identifier: Apache-2.0 */
#include "group_slices.h"

#include <stdlib.h>

#include "driver/driver_thread.h"
#include "driver/silence.h"
#include "driver/tsg.h"
#include "util/macro.h"
#include "util/time.h"

/* An answer takes microseconds. */
#define PATIENCE_NS (100 * NSEC_PER_MSEC)

struct group_slices {
        const struct tsg_system *system;
        struct driver_thread *thread;
        struct driver_task question;
        struct tsg_target target; /* the thread's while it asks */
        uint64_t us;
        int error;
};

DEFINE_CLEANUP(struct tsg *, tsg_close)

/* In the thread. */
static void ask(void *data)
{
        struct group_slices *g = data;
        _cleanup_(tsg_closep) struct tsg *t = NULL;

        g->error = tsg_open(g->system, &g->target, &t);
        if (g->error == 0)
                g->error = tsg_get_timeslice(t, &g->us);
}

struct group_slices *group_slices_new(const struct tsg_system *system)
{
        struct group_slices *g = calloc(1, sizeof(*g));

        if (!g)
                return NULL;
        g->system = system;
        g->question = (struct driver_task){.run = ask, .data = g};
        return driver_thread_new("gpuobsd-groups", &g->thread) < 0 ? group_slices_free(g) : g;
}

struct group_slices *group_slices_free(struct group_slices *g)
{
        if (!g)
                return NULL;
        g->thread = driver_thread_free(g->thread);
        if (!silence_abandoned())
                free(g);
        return NULL;
}

bool group_slices_ask(struct group_slices *g, const struct tsg_target *target, uint64_t *ret_us)
{
        driver_thread_collect(g->thread); /* one that came late */
        if (g->question.under_way)
                return false;
        g->target = *target;
        (void)driver_thread_give(g->thread, &g->question);
        if (!driver_thread_wait(g->thread, &g->question, now_ns() + PATIENCE_NS) || g->error < 0)
                return false;
        *ret_us = g->us;
        return true;
}
