/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_switches.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "api/server.h"
#include "correlate/slice_history.h"
#include "correlate/slices.h"
#include "daemon.h"
#include "driver/calls.h"
#include "driver/ctxsw_reading.h"
#include "driver/driver_thread.h"
#include "driver/silence.h"
#include "gpu_clocks.h"
#include "policies.h"
#include "store/store.h"
#include "util/log.h"
#include "util/time.h"

/* A switch is in the driver's buffer by then, and so is the error of the clock. */
#define MARGIN_NS (2 * NSEC_PER_MSEC)

#define GPUS_MAX 64

/* Pieces gathered before subscribers are told. */
#define BATCH_SLICES 512

struct traced_gpu {
        struct gpu_switches *all;
        uint32_t gpu; /* minor number */
        uint32_t instance;
        const struct clock_model *clock;
        bool is_traced;
        struct driver_task to_open, to_read;
        struct ctxsw_reading reading; /* the thread's while one of these is under way */
        struct slices *slices;
        uint64_t contradictions; /* already in the ledger */
        uint64_t garbage;
};

struct gpu_switches {
        struct gpuobsd *daemon;
        struct slice_history *history;
        struct traced_gpu *gpus[GPUS_MAX];
        size_t count;
        struct driver_task to_close;
        char refusal[128]; /* of a driver, the last; "" none */
        struct kept_slice batch[BATCH_SLICES];
        size_t batch_count;
};

/* ---- what comes out ---- */

static void publish(struct gpu_switches *g)
{
        if (g->batch_count && g->daemon->api)
                api_server_publish_slices(g->daemon->api, g->batch, g->batch_count);
        g->batch_count = 0;
}

static void on_slice(void *data, const struct slice *s)
{
        struct traced_gpu *t = data;
        struct gpu_switches *g = t->all;
        struct observed *o = s->unknown ? NULL : flow_process_named(g->daemon, s->pid);
        struct kept_slice kept = {
                .process_key = o ? o->info.process_key : 0,
                .gpu = t->gpu,
                .slice = *s,
        };

        if (o) {
                policies_process_on(g->daemon, o, t->gpu);
                policies_slice(o, t->gpu, s->end_ns - s->start_ns);
        }
        if (slice_history_add(g->history, t->gpu, kept.process_key, s, &kept.sequence) < 0) {
                g->daemon->observed.forgotten.lost[LOSS_gpu_slice]++;
                return;
        }
        if (g->batch_count == BATCH_SLICES)
                publish(g);
        g->batch[g->batch_count++] = kept;
}

static struct store_share share_at(const struct traced_gpu *t, const struct slices_second *s)
{
        return (struct store_share){
                .start_ns = s->start_ns,
                .span_ns = s->span_ns,
                .gpu = t->gpu,
                .mig_gpu = s->engine.mig_gpu,
                .mig_compute = s->engine.mig_compute,
        };
}

static struct store_share engine_row(const struct traced_gpu *t, const struct slices_second *s)
{
        struct store_share row = share_at(t, s);

        row.of_engine = true;
        row.active_ns = s->active_ns;
        row.slices = s->switches;
        row.switch_ns = s->switch_ns;
        row.idle_ns = s->idle_ns;
        row.unknown_ns = s->unknown_ns;
        row.lost = s->lost;
        return row;
}

/*
 * The trace names channels; what shares the GPU is their group. It is known of
 * processes whose channels were seen when they were made.
 */
static uint64_t context_of(const struct observed *o, uint32_t context_id)
{
        struct call_group g;

        if (o && o->calls && calls_find_context(o->calls, context_id, &g))
                return STORE_CONTEXT_GROUP | g.object;
        return context_id;
}

static struct store_share context_row(const struct traced_gpu *t, const struct slices_second *s,
                                      const struct slices_share *share)
{
        const struct observed *o = flow_process_named(t->all->daemon, share->pid);
        struct store_share row = share_at(t, s);

        row.process_key = o ? o->info.process_key : 0;
        row.context = context_of(o, share->context_id);
        row.active_ns = share->active_ns;
        row.slices = share->slices;
        row.longest_ns = share->longest_ns;
        return row;
}

/* To the row of the same group, if there is one: the number of rows then. */
static size_t add_row(struct store_share *rows, size_t n, const struct store_share *row)
{
        for (size_t i = 1; i < n; i++) {
                if (rows[i].process_key != row->process_key || rows[i].context != row->context)
                        continue;
                rows[i].active_ns += row->active_ns;
                rows[i].slices += row->slices;
                if (row->longest_ns > rows[i].longest_ns)
                        rows[i].longest_ns = row->longest_ns;
                return n;
        }
        rows[n] = *row;
        return n + 1;
}

static void on_second(void *data, const struct slices_second *s)
{
        static struct store_share rows[SLICES_CONTEXTS_MAX + 1]; /* the main thread's */
        struct traced_gpu *t = data;
        struct gpuobsd *d = t->all->daemon;
        size_t n = 1;

        rows[0] = engine_row(t, s);
        for (uint32_t i = 0; i < s->count; i++) {
                struct store_share row = context_row(t, s, &s->shares[i]);

                n = add_row(rows, n, &row);
        }
        if (store_put_shares(d->store, rows, n) < 0)
                d->observed.forgotten.lost[LOSS_gpu_share] += n;
}

static const struct slices_ops slices_ops = {on_slice, on_second};

/* ---- what goes in ---- */

static void on_event(void *data, const struct ctxsw_event *e)
{
        struct traced_gpu *t = data;

        /* What was fetched happened before the fetching ended. */
        slices_event(t->slices, e, t->reading.after_ns);
}

static void on_gap(void *data, uint64_t lost)
{
        struct traced_gpu *t = data;

        t->all->daemon->observed.forgotten.lost[LOSS_gpu_switch] += lost;
        slices_gap(t->slices, lost);
}

static const struct ctxsw_ops ctxsw_ops = {.event = on_event, .gap = on_gap};

static void give_up(struct traced_gpu *t)
{
        snprintf(t->all->refusal, sizeof(t->all->refusal), "that of GPU %u has ended: %s", t->gpu,
                 strerror(-t->reading.error));
        log_warning("the context switches of GPU %u are not traced any more: %s", t->gpu,
                    strerror(-t->reading.error));
        slices_finish(t->slices, now_ns());
        t->is_traced = false;
}

static void count_nonsense(struct traced_gpu *t)
{
        struct ledger *l = &t->all->daemon->observed.forgotten;
        uint64_t contradictions = slices_contradictions(t->slices);

        l->lost[LOSS_gpu_switch_garbage] += contradictions - t->contradictions;
        l->lost[LOSS_gpu_switch_garbage] += t->reading.garbage - t->garbage;
        t->contradictions = contradictions;
        t->garbage = t->reading.garbage;
}

static bool is_reading(const struct gpu_switches *g)
{
        for (size_t i = 0; i < g->count; i++)
                if (g->gpus[i]->to_read.under_way)
                        return true;
        return false;
}

static void read_in_thread(void *data)
{
        struct traced_gpu *t = data;

        ctxsw_reading_read(&t->reading);
}

static void take_in(void *data)
{
        struct traced_gpu *t = data;
        struct gpu_switches *g = t->all;
        uint64_t until_ns = t->reading.before_ns - MARGIN_NS;

        ctxsw_reading_replay(&t->reading, &ctxsw_ops, t);
        if (t->reading.error == 0) {
                slices_advance(t->slices, until_ns);
                slice_history_advance(g->history, t->gpu, until_ns);
        }
        count_nonsense(t);
        if (t->reading.error)
                give_up(t);
        if (is_reading(g))
                return;
        publish(g);
        if (gpu_switches_count(g))
                policies_shares(g->daemon);
}

void gpu_switches_tick(struct gpu_switches *g)
{
        for (size_t i = 0; i < g->count; i++)
                if (g->gpus[i]->is_traced)
                        (void)driver_thread_give(g->daemon->driver, &g->gpus[i]->to_read);
}

/* What has happened until now, unless the driver is silent. */
static void read_last(struct traced_gpu *t, uint64_t until_ns)
{
        struct driver_thread *driver = t->all->daemon->driver;

        if (driver_thread_wait(driver, &t->to_read, until_ns) && t->is_traced &&
            driver_thread_give(driver, &t->to_read))
                (void)driver_thread_wait(driver, &t->to_read, until_ns);
}

void gpu_switches_finish(struct gpu_switches *g)
{
        uint64_t until_ns = now_ns() + SILENCE_END_NS;

        if (!g)
                return;
        for (size_t i = 0; i < g->count; i++) {
                struct traced_gpu *t = g->gpus[i];

                if (t->is_traced)
                        read_last(t, until_ns);
                if (t->is_traced)
                        slices_finish(t->slices, now_ns());
                t->is_traced = false;
        }
        publish(g);
}

/* ---- life ---- */

static void open_in_thread(void *data)
{
        struct traced_gpu *t = data;

        ctxsw_reading_open(&t->reading, &rm_system_default, t->instance, t->gpu);
}

static void refuse(struct traced_gpu *t, int error)
{
        struct gpu_switches *g = t->all;
        const char *why = error == -ENOTSUP ? "its driver does not offer it" : strerror(-error);

        snprintf(g->refusal, sizeof(g->refusal), "GPU %u: %s", t->gpu, why);
        log_notice("the context switches of GPU %u are not traced: %s", t->gpu, why);
}

static void opened(void *data)
{
        struct traced_gpu *t = data;
        int r = t->reading.error;

        if (r == 0)
                r = flow_hold(t->all->daemon);
        if (r == 0) {
                t->slices = slices_new(t->clock, &slices_ops, t, now_ns());
                r = t->slices ? 0 : -ENOMEM;
        }
        t->is_traced = r == 0;
        if (r < 0)
                refuse(t, r);
}

static void open_gpu(struct gpu_switches *g, size_t index)
{
        struct traced_gpu *t = calloc(1, sizeof(*t));

        if (!t)
                return;
        t->all = g;
        t->clock = gpu_clocks_at(g->daemon->clocks, index, &t->gpu, &t->instance);
        t->to_open = (struct driver_task){.run = open_in_thread, .done = opened, .data = t};
        t->to_read = (struct driver_task){.run = read_in_thread, .done = take_in, .data = t};
        g->gpus[g->count++] = t;
        (void)driver_thread_give(g->daemon->driver, &t->to_open);
}

struct gpu_switches *gpu_switches_new(struct gpuobsd *d)
{
        struct gpu_switches *g = calloc(1, sizeof(*g));

        if (!g)
                return NULL;
        g->daemon = d;
        g->history = slice_history_new();
        return g->history ? g : gpu_switches_free(g);
}

void gpu_switches_open(struct gpu_switches *g)
{
        size_t n = gpu_clocks_count(g->daemon->clocks);

        for (size_t i = 0; g->daemon->config->context_switches && i < n && i < GPUS_MAX; i++)
                open_gpu(g, i);
}

void gpu_switches_wait(struct gpu_switches *g, uint64_t until_ns)
{
        for (size_t i = 0; i < g->count; i++)
                (void)driver_thread_wait(g->daemon->driver, &g->gpus[i]->to_open, until_ns);
}

static void close_in_thread(void *data)
{
        struct gpu_switches *g = data;

        for (size_t i = 0; i < g->count; i++)
                ctxsw_reading_close(&g->gpus[i]->reading);
}

void gpu_switches_close(struct gpu_switches *g)
{
        if (!g)
                return;
        g->to_close = (struct driver_task){.run = close_in_thread, .data = g};
        (void)driver_thread_give(g->daemon->driver, &g->to_close);
}

struct gpu_switches *gpu_switches_free(struct gpu_switches *g)
{
        if (!g || silence_abandoned())
                return NULL; /* the thread may still use it */
        for (size_t i = 0; i < g->count; i++) {
                ctxsw_reading_done(&g->gpus[i]->reading);
                slices_free(g->gpus[i]->slices);
                free(g->gpus[i]);
        }
        slice_history_free(g->history);
        free(g);
        return NULL;
}

size_t gpu_switches_count(const struct gpu_switches *g)
{
        size_t n = 0;

        for (size_t i = 0; i < g->count; i++)
                n += g->gpus[i]->is_traced;
        return n;
}

const char *gpu_switches_refusal(const struct gpu_switches *g)
{
        return g->refusal;
}

struct slice_history *gpu_switches_history(struct gpu_switches *g)
{
        return g->history;
}
