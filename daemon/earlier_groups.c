/* SPDX-License-Identifier: Apache-2.0 */
#include "earlier_groups.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#include "daemon.h"
#include "driver/calls.h"
#include "driver/group_scan.h"
#include "policies.h"
#include "policy/engine.h"
#include "policy/worker.h"
#include "util/log.h"
#include "util/time.h"

#define SCAN_LIMIT_NS (60 * NSEC_PER_SEC) /* GROUP_SCAN_ASKED_MAX takes some 15 s */

/* The thread's, and the loop's until the result has come. */
struct search {
        struct search *prev, *next;
        uint64_t id; /* the process's key */
        atomic_uint users;
        struct group_scan found;
};

struct earlier_groups {
        struct gpuobsd *daemon;
        struct policy_worker *worker;
        struct search *searches;
        struct search *planned; /* whose order is being given */
        uint64_t began_ticks;   /* processes that started after that were seen from the start */
        uv_poll_t results;
        bool handle_open;
};

/* ---- in the thread ---- */

static void search_leave(struct search *s)
{
        if (atomic_fetch_sub(&s->users, 1) == 1)
                free(s);
}

static int plan(void *data, const struct policy_order *order, void *ret_plan)
{
        const struct earlier_groups *g = data;
        struct search **search = ret_plan;

        *search = g->planned;
        atomic_fetch_add(&g->planned->users, 1);
        return 0;
}

static void perform(void *data, const struct policy_order *order, const void *planned,
                    struct policy_result *result)
{
        struct search *const *search = planned;

        result->error = group_scan(&tsg_system_default, (pid_t)order->pid, order->start_ticks,
                                   &(*search)->found);
}

static void release(void *data, void *planned)
{
        struct search **search = planned;

        search_leave(*search);
}

static const struct policy_worker_ops scan_ops = {
        .plan = plan, .perform = perform, .release = release};

/* ---- what was found ---- */

static size_t take_in(struct observed *o, const struct group_scan *found)
{
        size_t before;

        if (!o->calls)
                o->calls = calls_new();
        before = o->calls ? calls_group_count(o->calls) : 0;
        for (size_t i = 0; i < found->count; i++)
                if (!o->calls || !calls_add_found(o->calls, &found->objects[i]))
                        o->ledger.lost[LOSS_driver_object]++;
        o->ledger.lost[LOSS_driver_object] += found->objects_beyond;
        o->ledger.lost[LOSS_driver_file] += found->files_beyond;
        return o->calls ? calls_group_count(o->calls) - before : 0;
}

static void say_found(const struct observed *o, const struct group_scan *found, size_t groups)
{
        if (groups)
                log_pid(LOG_INFO, (pid_t)o->info.pid,
                        "%zu channel groups found that were there before the daemon (%zu "
                        "questions)",
                        groups, found->asked);
        if (found->files_beyond || found->objects_beyond)
                log_pid(LOG_NOTICE, (pid_t)o->info.pid,
                        "too much to look for channel groups in: %zu of the process's files were "
                        "not searched, %zu objects not kept; those the process made there before "
                        "the daemon started get no time slices",
                        found->files_beyond, found->objects_beyond);
}

static void say_failed(const struct observed *o, int error)
{
        if (error == -EINPROGRESS)
                log_pid(LOG_WARNING, (pid_t)o->info.pid,
                        "the driver does not return when asked for channel groups: those the "
                        "process made before the daemon started get no time slices");
        else if (error != -ESRCH)
                log_pid(LOG_NOTICE, (pid_t)o->info.pid,
                        "the driver does not tell of channel groups (%s): those the process made "
                        "before the daemon started get no time slices",
                        strerror(-error));
}

static void on_found(void *data, const struct policy_result *result)
{
        struct earlier_groups *g = data;
        struct gpuobsd *d = g->daemon;
        struct observed *o = observed_find_key(&d->observed, result->id);
        struct search *s;
        size_t groups = 0;

        DL_SEARCH_SCALAR(g->searches, s, id, result->id);
        if (!s)
                return; /* a late result */
        DL_DELETE(g->searches, s);
        if (o && !o->gone && result->error == 0) {
                groups = take_in(o, &s->found);
                say_found(o, &s->found, groups);
        } else if (o && !o->gone) {
                say_failed(o, result->error);
        }
        search_leave(s);
        if (!groups)
                return;
        policy_engine_slices_changed(policies_engine(d), o->info.process_key, POLICY_GPUS_MAX);
        policies_process_again(d, o);
}

static void on_results(uv_poll_t *poll, int status, int events)
{
        struct earlier_groups *g = poll->data;

        policy_worker_collect(g->worker, on_found, g);
}

/* ---- whom to ask ---- */

static bool is_to_search(const struct earlier_groups *g, const struct observed *o)
{
        return !o->gone && !o->groups_sought && o->info.start_ticks < g->began_ticks;
}

static void search(struct earlier_groups *g, struct observed *o)
{
        const struct policy_order order = {
                .id = o->info.process_key, .pid = o->info.pid, .start_ticks = o->info.start_ticks};
        struct search *s = calloc(1, sizeof(*s));

        if (!s)
                return;
        s->id = order.id;
        atomic_init(&s->users, 1);
        g->planned = s;
        if (!policy_worker_submit(g->worker, &order)) {
                search_leave(s);
                return; /* in a second */
        }
        DL_APPEND(g->searches, s);
        o->groups_sought = true;
}

void earlier_groups_second(struct gpuobsd *d)
{
        struct earlier_groups *g = d->earlier_groups;
        struct observed *o, *next;

        policy_worker_watch(g->worker);
        if (!d->driver_probes || !policy_engine_count(policies_engine(d)))
                return;
        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                if (is_to_search(g, o))
                        search(g, o);
}

/* ---- life ---- */

static uint64_t ticks_now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_BOOTTIME, &t);
        return ((uint64_t)t.tv_sec * NSEC_PER_SEC + (uint64_t)t.tv_nsec) /
               (NSEC_PER_SEC / (uint64_t)sysconf(_SC_CLK_TCK));
}

int earlier_groups_open(struct gpuobsd *d)
{
        struct earlier_groups *g = calloc(1, sizeof(*g));
        int r;

        if (!g)
                return -ENOMEM;
        d->earlier_groups = g;
        g->daemon = d;
        g->began_ticks = ticks_now() + 1;
        r = policy_worker_new(&scan_ops, g, SCAN_LIMIT_NS, &g->worker);
        if (r == 0)
                r = uv_poll_init(d->loop, &g->results, policy_worker_fd(g->worker));
        if (r < 0)
                return r;
        g->handle_open = true;
        g->results.data = g;
        uv_poll_start(&g->results, UV_READABLE, on_results);
        return 0;
}

void earlier_groups_close(struct gpuobsd *d)
{
        struct earlier_groups *g = d->earlier_groups;
        struct search *s, *next;

        if (!g)
                return;
        if (g->handle_open)
                uv_close((uv_handle_t *)&g->results, NULL);
        g->handle_open = false;
        if (g->worker)
                policy_worker_hurry(g->worker);
        g->worker = policy_worker_free(g->worker);
        DL_FOREACH_SAFE(g->searches, s, next)
        {
                DL_DELETE(g->searches, s);
                search_leave(s);
        }
}

void earlier_groups_free(struct gpuobsd *d)
{
        if (!policy_worker_abandoned())
                free(d->earlier_groups);
        d->earlier_groups = NULL;
}
