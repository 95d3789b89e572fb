/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The join of launches (CPU side) and kernel starts and ends (GPU side).
 *
 * The invariant. A context numbers its kernels: each successful launch takes the
 * next grid id, and so does other work now and then. For a launch l
 *
 *     gridid(l) = base + launches before l + foreign ids before l
 *
 * where "before" is the order in which the driver gave ids. That order is the
 * calls' order wherever two calls do not overlap in time, and foreign ids can
 * only have been taken where something could take one: a copy, a set, the
 * instantiation of a graph, a launch whose event was lost. So from any launch
 * whose id is known the ids of those after it follow, exactly where nothing
 * foreign lies between, within bounds where something does (align.c). Every id
 * that becomes known renews the base; nothing is ever counted from the start.
 *
 * The checks. A device record has a grid id and a kernel, but no context. For a
 * launch to be its origin,
 *   identity   the launch's function must mean that kernel (identity.c),
 *   causality  the call must have been entered before the kernel started, give
 *              or take the clock's error,
 *   stream     the launches before it in its stream must have started, since a
 *              stream starts its kernels in order,
 *   grid id    and the invariant must allow the id.
 * Usually one launch passes. Where several do, the record waits: other records,
 * a synchronise, a late event decide. A match that is still a choice after that
 * is called inferred, or not made (records.c). Order alone decides only between
 * calls that overlap in time, and is then called so.
 *
 * Loss. A hole in the order of entry is a launch not seen: it may have taken an
 * id, and records may be its own. A gap in the device records means that a
 * launch may never get its start: its stream's later launches may pass it. Ids
 * go on counting across both. When record after record fits nowhere, the known
 * ids are distrusted and the base is found anew from identity, causality and
 * stream order; until a launch stands alone, what rests on that is inferred.
 *
 * Not every launch takes an id or makes a record: a failed one takes none; a
 * captured one takes none until its graph is instantiated (graph.c); one of an
 * unprobed kernel takes one and makes no record; the agent's own do likewise and
 * are nobody's business.
 *
 * Everything waits a bounded time and in bounded numbers (join.h).
 */
#include "correlate/correlator.h"

#include <stdlib.h>
#include <string.h>

#include "correlate/join.h"
#include "cpu/cpu_abi.h"
#include "device/device_abi.h"

#define CONTEXT_LINGER_NS NSEC_PER_SEC /* its last records may still be on the way */
#define DEVICE_UNKNOWN    (~0u)

struct correlator *correlator_new(const struct correlator_ops *ops, void *data,
                                  struct intern *names)
{
        struct correlator *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        c->ops = ops;
        c->data = data;
        c->names = names;
        return c;
}

struct correlator *correlator_free(struct correlator *c)
{
        struct correlated_process *p, *next;

        if (!c)
                return NULL;
        HASH_ITER (hh, c->processes, p, next)
                correlator_remove_process(c, p);
        free(c);
        return NULL;
}

/* ---- processes ---- */

struct correlated_process *correlator_add_process(struct correlator *c, uint64_t process_key,
                                                  struct ledger *ledger, void *user)
{
        struct correlated_process *p = calloc(1, sizeof(*p));

        if (!p)
                return NULL;
        p->correlator = c;
        p->key = process_key;
        p->ledger = ledger;
        p->user = user;
        TAILQ_INIT(&p->pending);
        for (size_t i = 0; i < LIST_COUNT; i++)
                TAILQ_INIT(&p->lists[i]);
        TAILQ_INIT(&p->starts);
        TAILQ_INIT(&p->ends);
        TAILQ_INIT(&p->strays);
        HASH_ADD(hh, c->processes, key, sizeof(p->key), p);
        return p;
}

void *correlated_process_user(const struct correlated_process *p)
{
        return p->user;
}

size_t correlated_process_pending(const struct correlated_process *p)
{
        return p->pending_count;
}

void correlated_process_set_agent(struct correlated_process *p, const struct clock_model *clock,
                                  uint32_t gpu)
{
        p->has_agent = true;
        p->clock = clock;
        p->gpu = gpu;
}

static void context_end(struct context *c)
{
        align_run(c->process, false);
        finish_all(c->process, c);
        graph_forget(c);
        context_free(c);
}

void correlator_remove_process(struct correlator *c, struct correlated_process *p)
{
        struct context *context, *next;

        align_run(p, true);
        records_tick(p, true);
        finish_all(p, NULL);
        graph_done(p);
        HASH_ITER (hh, p->contexts, context, next)
                context_free(context);
        identity_done(p);
        HASH_DELETE(hh, c->processes, p);
        free(p->running);
        records_done(p);
        free(p);
}

/* ---- launches ---- */

static void now_at_least(struct correlator *c, uint64_t ns)
{
        if (ns > c->now_ns)
                c->now_ns = ns;
}

static void gpu_fill(const struct correlated_process *p, const struct context *c,
                     struct launch_record *r)
{
        if (c && c->device != DEVICE_UNKNOWN && (c->device || !p->has_agent))
                r->gpu = c->device;
        else if (p->has_agent)
                r->gpu = p->gpu;
        else
                return;
        r->has |= LAUNCH_HAS_GPU;
}

static void record_fill(const struct correlated_process *p, const struct context *c,
                        const struct cpu_launch_event *ev, struct launch_record *r)
{
        *r = (struct launch_record){
                .process_key = p->key,
                .context = c ? c->handle : 0,
                .stream = ev->stream,
                .cpu_enter_ns = ev->enter_ns,
                .cpu_return_ns = ev->enter_ns + ev->duration_ns,
                .tid = ev->tid,
                .grid_x = ev->grid_x,
                .grid_y = ev->grid_y,
                .grid_z = ev->grid_z,
                .block_x = ev->block_x,
                .block_y = ev->block_y,
                .block_z = ev->block_z,
                .shared_bytes = ev->shared_bytes,
                .result = ev->result,
                .has = LAUNCH_HAS_GEOMETRY,
        };
        if (r->context)
                r->has |= LAUNCH_HAS_CONTEXT;
        gpu_fill(p, c, r);
}

/* A launch that no device record can be found for: what the CPU saw is all there is. */
static void launch_bare(struct correlated_process *p, struct context *c,
                        const struct cpu_launch_event *ev)
{
        struct function *f = function_get(p, ev->func);
        struct launch_record r;

        record_fill(p, c, ev, &r);
        (void)function_kernel(p, f);
        r.kernel_name = f ? f->name : 0;
        if (r.kernel_name)
                r.has |= LAUNCH_HAS_KERNEL;
        function_unref(f);
        if (c)
                c->known_from_birth = false;
        p->correlator->ops->launch(p->correlator->data, p, &r);
}

/* Its place among its thread's calls. */
static void launch_call(struct launch *l, const struct cpu_launch_event *ev, uint32_t min,
                        uint32_t max)
{
        struct context *c = l->context;
        struct lane *lane;

        l->seq = order_widen(c, ev->seq);
        l->call.seq = l->seq;
        l->call.enter_ns = ev->enter_ns;
        l->call.return_ns = ev->enter_ns + ev->duration_ns;
        l->call.min = min;
        l->call.max = max;
        lane = max ? lane_get(c, ev->tid) : NULL;
        if (lane)
                lane_push(lane, &l->call);
        order_launch(c, l->seq, ev->enter_ns, ev->tid);
}

/* Only its place in the order matters. */
static void launch_place(struct context *c, const struct cpu_launch_event *ev, uint32_t ids)
{
        struct launch *l = launch_new(c);

        if (!l)
                return;
        record_fill(c->process, c, ev, &l->record);
        l->recordless = true;
        launch_withdraw(l);
        launch_call(l, ev, ids, ids);
        if (l->call.lane)
                align_late_event(c, l);
        else
                launch_discard(l);
}

static bool expects_record(struct correlated_process *p, const struct launch *l)
{
        struct kernel *k = function_kernel(p, l->function);

        if (k && !k->context)
                k->context = l->context->index;
        if (k && k->context != l->context->index)
                k->shared = true;
        return l->call.max && (!k || k->entry_probed || l->function->learned);
}

static void launch_wait(struct launch *l, struct stream *s)
{
        struct correlated_process *p = l->context->process;

        stream_queue(s, l);
        if (!function_kernel(p, l->function))
                launch_schedule(l, LIST_LONG);
}

static void launch_join(struct context *c, const struct cpu_launch_event *ev, struct function *f)
{
        struct correlated_process *p = c->process;
        struct stream *s = stream_get(c, ev->stream, ev->tid);
        struct launch *l = s ? launch_new(c) : NULL;
        uint32_t min = 0, max = 0;

        if (!l) {
                function_unref(f);
                launch_bare(p, c, ev);
                return;
        }
        record_fill(p, c, ev, &l->record);
        l->function = f;
        if (ev->result == 0)
                graph_captures(c, s, &min, &max);
        l->maybe_captured = min < max;
        /* It went into a graph: nothing was launched. */
        if (ev->result == 0 && max == 0) {
                p->ledger->produced--;
                launch_withdraw(l);
                launch_call(l, ev, 0, 0);
                launch_discard(l);
                return;
        }
        launch_call(l, ev, min, max);
        if (expects_record(p, l)) {
                launch_wait(l, s);
                align_late_event(c, l);
        } else {
                launch_finish(l);
        }
}

static void input(struct correlated_process *p)
{
        if (++p->inputs < INPUTS_MAX)
                return;
        p->inputs = 0;
        align_run(p, false);
        if (p->pending_count <= PENDING_MAX)
                return;
        while (p->pending_count > PENDING_MAX - PENDING_MAX / 8) {
                p->ledger->lost[LOSS_join_queue_full]++;
                launch_finish(TAILQ_FIRST(&p->pending));
        }
        align_evicted(p);
}

void correlator_launch(struct correlator *c, struct correlated_process *p,
                       const struct cpu_launch_event *ev)
{
        struct context *context = ev->context ? context_get(p, ev->context) : NULL;
        bool joined = p->has_agent && context && ev->seq;
        struct function *f;

        now_at_least(c, ev->enter_ns + ev->duration_ns);
        if (ev->type == CPU_EVENT_GRAPH_LAUNCH) {
                if (!joined)
                        return;
                launch_place(context, ev, 0);
                graph_launch(context, ev);
                return;
        }
        f = joined ? function_get(p, ev->func) : NULL;
        if (f && f->own) {
                launch_place(context, ev, ev->result == 0);
                function_unref(f);
                return;
        }
        p->ledger->produced++;
        if (f)
                launch_join(context, ev, f);
        else
                launch_bare(p, context, ev);
        input(p);
}

/* ---- operations ---- */

static void synced(struct context *c, const struct cpu_operation_event *ev)
{
        uint64_t return_ns = ev->enter_ns + ev->duration_ns;
        struct stream *s = NULL;

        if (ev->operation == CPU_OP_SYNC_STREAM) {
                s = stream_get(c, ev->stream, ev->tid);
                if (!s)
                        return;
        } else {
                graph_synced(c, ev->enter_ns, return_ns);
        }
        finish_synced(c, s, ev->enter_ns, return_ns);
}

void correlator_operation(struct correlator *c, struct correlated_process *p,
                          const struct cpu_operation_event *ev)
{
        struct context *context;

        now_at_least(c, ev->enter_ns + ev->duration_ns);
        /* An agent greets at the first image, which a program may load in the middle of a capture.
         */
        if (!p->has_agent && ev->operation != CPU_OP_CAPTURE_BEGIN &&
            ev->operation != CPU_OP_CAPTURE_END)
                return;
        context = ev->context ? context_get(p, ev->context) : NULL;
        if (!context || (ev->result != 0 && ev->operation != CPU_OP_CAPTURE_END))
                return;
        switch (ev->operation) {
        case CPU_OP_MEMCPY_HTOD:
        case CPU_OP_MEMCPY_DTOH:
        case CPU_OP_MEMCPY_DTOD:
        case CPU_OP_MEMCPY_PEER:
        case CPU_OP_MEMCPY_OTHER:
        case CPU_OP_MEMSET:
                order_operation(context, ev, 0, 1, 0);
                break;
        case CPU_OP_GRAPH_INSTANTIATE:
                graph_instantiate(context, ev);
                break;
        case CPU_OP_CAPTURE_BEGIN:
        case CPU_OP_CAPTURE_END:
                graph_capture(context, ev, ev->operation == CPU_OP_CAPTURE_BEGIN);
                break;
        case CPU_OP_SYNC_CONTEXT:
        case CPU_OP_SYNC_STREAM:
                synced(context, ev);
                break;
        default:
                break;
        }
        order_seen(context, ev);
}

/* ---- handles ---- */

static void context_handle(struct correlated_process *p, const struct cpu_handle_event *ev)
{
        struct context *c = context_get(p, ev->context);

        if (!c || !ev->context)
                return;
        if (ev->destroyed) {
                c->destroyed_ns = p->correlator->now_ns;
                return;
        }
        /* The index of one that is gone, used again. */
        if (c->destroyed_ns || (c->handle && ev->handle && c->handle != ev->handle)) {
                context_end(c);
                c = context_get(p, ev->context);
                if (!c)
                        return;
        }
        if (ev->handle)
                c->handle = ev->handle;
        if (ev->parent <= UINT32_MAX - 1)
                c->device = (uint32_t)ev->parent;
        if (!c->sequenced && ev->handle && c->device != DEVICE_UNKNOWN)
                c->known_from_birth = true;
}

void correlator_handle(struct correlator *c, struct correlated_process *p,
                       const struct cpu_handle_event *ev)
{
        now_at_least(c, ev->ts_ns);
        switch (ev->kind) {
        case CPU_HANDLE_CONTEXT:
                context_handle(p, ev);
                break;
        case CPU_HANDLE_GRAPH_EXEC:
                if (p->has_agent)
                        graph_handle(p, ev);
                break;
        default:
                identity_handle(p, ev);
                break;
        }
}

void correlator_kernel(struct correlator *c, struct correlated_process *p,
                       const struct correlated_kernel *kernel)
{
        identity_kernel(p, kernel);
}

void correlator_own_function(struct correlator *c, struct correlated_process *p, uint64_t func)
{
        struct function *f = function_get(p, func);

        if (f)
                f->own = true;
        function_unref(f);
}

/* ---- device records and time ---- */

void correlator_device_record(struct correlator *c, struct correlated_process *p,
                              const struct device_record *r)
{
        records_put(p, r);
        input(p);
}

void correlator_device_gap(struct correlator *c, struct correlated_process *p, uint64_t lost)
{
        records_gap(p, lost);
}

static void process_tick(struct correlated_process *p)
{
        uint64_t now = p->correlator->now_ns;
        struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next)
                order_tick(c);
        align_run(p, false);
        records_tick(p, false);
        finish_due(p);
        HASH_ITER (hh, p->contexts, c, next) {
                if (TAILQ_EMPTY(&c->active) && TAILQ_EMPTY(&p->starts))
                        c->gap_budget = 0;
                if (c->destroyed_ns && c->destroyed_ns + CONTEXT_LINGER_NS <= now)
                        context_end(c);
        }
}

void correlator_tick(struct correlator *c, uint64_t now_ns)
{
        struct correlated_process *p, *next;

        now_at_least(c, now_ns);
        HASH_ITER (hh, c->processes, p, next)
                if (p->has_agent)
                        process_tick(p);
}
