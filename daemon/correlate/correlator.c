/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The join of launches (CPU side) and kernel starts and ends (GPU side).
 *
 * Partition. A launch's call tells context and stream; a start record tells the
 * number of its context and the address of its launch descriptor, of which each
 * stream has a block of its own. So launches go into queues, one for each stream, in
 * order of entry (order.c, stream.c), and start records into lanes, one for each
 * block, in the order in which they come (records.c, lane.c). A lane's stream is
 * learned when a single one is possible (bind.c).
 *
 * Pairing. A stream starts its kernels in the order in which they were launched. As
 * long as nothing is lost the next record of a lane is of the next launch of its
 * queue (match.c), and this is proof: no other assignment is possible. Kernel and
 * time have to agree all the same. Only calls of several threads into one stream
 * that overlap may have changed places; if they launch the same kernel they are
 * ordered.
 *
 * Loss. A hole in the order of entry is launches not seen, of any stream; a gap in
 * the records is starts not seen. From there on a lane is in doubt: what comes after
 * it on both sides is complete and can only be shifted against the other (shift.c).
 * Kernels, times, synchronises and the grid ids of launches whose place is certain
 * (ids.c) leave one shift in the end, which is proof again; or, after a while,
 * one is guessed, and what rests on it is inferred (doubt.c).
 *
 * Grid ids are given in the order in which calls run, on a device, through all
 * contexts and streams; other work takes some too. They check and order, but are not
 * counted on: only records that do not tell their stream are joined by them
 * (scattered.c), and nodes of graphs, which keep theirs (graph.c).
 *
 * Not every launch takes an id or makes a record: a failed one takes none; a
 * captured one takes none until its graph is instantiated; one of an unprobed kernel
 * takes one and makes no record; the agent's own do likewise and are nobody's
 * business.
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

struct correlator *correlator_new(const struct correlator_ops *ops, void *data,
                                  struct intern *names)
{
        struct correlator *c = calloc(1, sizeof(*c));

        if (!c)
                return NULL;
        c->ops = ops;
        c->data = data;
        c->names = names;
        c->window = window_new();
        if (!c->window) {
                free(c);
                return NULL;
        }
        return c;
}

struct correlator *correlator_free(struct correlator *c)
{
        struct correlated_process *p, *next;

        if (!c)
                return NULL;
        HASH_ITER (hh, c->processes, p, next)
                correlator_remove_process(c, p);
        window_free(c->window);
        free(c);
        return NULL;
}

/* ---- processes ---- */

static void process_init(struct correlated_process *p)
{
        TAILQ_INIT(&p->pending);
        for (size_t i = 0; i < LIST_COUNT; i++)
                TAILQ_INIT(&p->lists[i]);
        waiting_init(&p->queue, QUEUE_PROCESS);
        TAILQ_INIT(&p->busy);
        TAILQ_INIT(&p->ends);
        TAILQ_INIT(&p->unbounded);
        TAILQ_INIT(&p->node_starts);
}

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
        process_init(p);
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

void correlated_process_set_agent(struct correlated_process *p,
                                  const struct correlated_device *devices, size_t count)
{
        p->has_agent = p->nothing_probed = true;
        devices_set(p, devices, count);
}

static void context_end(struct context *c)
{
        struct correlated_process *p = c->process;

        order_close(c);
        lanes_run(p, true);
        finish_all(p, c);
        graph_forget(c);
        tags_forget(p, c);
        context_free(c);
}

/* Everything still pending is finished as it is. */
static void process_finish(struct correlated_process *p)
{
        struct context *context, *next;

        p->closing = true;
        HASH_ITER (hh, p->contexts, context, next)
                order_close(context);
        lanes_run(p, true);
        graph_tick(p);
        records_done(p);
        finish_all(p, NULL);
        graph_done(p);
        lanes_done(p);
}

static void contexts_done(struct correlated_process *p)
{
        struct context *context, *next;

        HASH_ITER (hh, p->contexts, context, next)
                context_free(context);
}

void correlator_remove_process(struct correlator *c, struct correlated_process *p)
{
        process_finish(p);
        contexts_done(p);
        identity_done(p);
        HASH_DELETE(hh, c->processes, p);
        free(p->running);
        free(p->optional);
        devices_done(p);
        free(p);
}

/* The contexts of the old state, as little as handles tell of them. */
static void contexts_keep(struct correlated_process *p, const struct context *kept, size_t count)
{
        for (size_t i = 0; i < count; i++) {
                struct context *c = context_get(p, kept[i].index);

                if (!c)
                        continue;
                c->handle = kept[i].handle;
                c->device = kept[i].device;
        }
}

void correlator_end_agent(struct correlator *c, struct correlated_process *p)
{
        struct context *kept, *context, *next;
        struct correlated_process old;
        size_t count = 0;

        process_finish(p);
        kept = calloc(HASH_CNT(hh, p->contexts) + 1, sizeof(*kept));
        HASH_ITER (hh, p->contexts, context, next)
                if (kept && !context->destroyed_ns)
                        kept[count++] = *context;
        contexts_done(p);
        identity_forget_kernels(p);
        free(p->running);
        free(p->optional);
        devices_done(p);
        old = *p;
        *p = (struct correlated_process){.hh = old.hh,
                                         .correlator = c,
                                         .key = old.key,
                                         .ledger = old.ledger,
                                         .user = old.user,
                                         .functions = old.functions,
                                         .launched_names = old.launched_names,
                                         .unlisted_count = old.unlisted_count,
                                         .graphs_seen = old.graphs_seen,
                                         .identity_generation = old.identity_generation + 1,
                                         .names_added = old.names_added};
        process_init(p);
        contexts_keep(p, kept, count);
        free(kept);
}

/* ---- launches ---- */

static void now_at_least(struct correlator *c, uint64_t ns)
{
        if (ns > c->now_ns)
                c->now_ns = ns;
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
        device_fill(p, c, r);
}

/* A launch that no device record can be found for: what the CPU saw is all there is. */
static void launch_bare(struct correlated_process *p, struct context *c,
                        const struct cpu_launch_event *ev)
{
        struct function *f = function_get(p, ev->func);
        struct launch_record r;

        record_fill(p, c, ev, &r);
        function_launched(p, f);
        (void)function_kernel(p, f);
        r.kernel_name = f ? f->name : 0;
        if (r.kernel_name)
                r.has |= LAUNCH_HAS_KERNEL;
        function_unref(f);
        if (c) {
                c->known_from_birth = false;
                if (!p->has_agent && ev->seq)
                        order_bare(c, ev->seq);
        }
        p->correlator->ops->launch(p->correlator->data, p, &r);
}

static void launch_follows_sync(struct launch *l)
{
        const struct queue *queues[QUEUE_COUNT] = {&l->stream->queue, &l->context->process->queue};

        for (size_t i = 0; i < QUEUE_COUNT; i++)
                if (queues[i]->idle_ns <= l->record.cpu_enter_ns) {
                        l->idle_from_ns[i] = queues[i]->idle_from_ns;
                        l->idle_ns[i] = queues[i]->idle_ns;
                }
}

/* Its turn in the order of entry. */
void launch_admit(struct launch *l)
{
        struct correlated_process *p = l->context->process;
        struct kernel *k = function_kernel(p, l->function);

        if (l->function && !l->function->launched) {
                /* Its code may be loaded now, with ids taken for that. */
                ids_loosen(l->context, l->record.cpu_enter_ns);
                l->function->launched = true;
        }
        if (l->ids)
                ids_taken(l->context, l);
        else if (l->optional_id)
                ids_optional(p, l->record.cpu_enter_ns, launch_return_ns(l), 1);
        if (l->silent || l->unprobed || l->record.result || (k && !k->entry_probed)) {
                launch_finish(l);
                return;
        }
        launch_follows_sync(l);
        launch_queue(l);
        if (!k)
                launch_schedule(l, LIST_LONG);
}

/* Does it take an id, now that something may be captured? */
static void launch_takes(struct launch *l)
{
        uint32_t min = 0, max = 0;

        if (l->record.result == 0)
                graph_captures(l->context, l->stream, l->record.tid, &min, &max);
        l->ids = min > 0;
        l->optional_id = min < max;
        /* It went into a graph: nothing was launched. */
        if (l->record.result == 0 && max == 0) {
                l->context->process->ledger->produced--;
                l->silent = true;
        }
}

static void launch_join(struct context *c, const struct cpu_launch_event *ev, struct function *f)
{
        struct correlated_process *p = c->process;
        struct stream *s = stream_get(c, ev->stream, ev->tid);
        struct launch *l = s ? launch_new(c) : NULL;

        if (!l) {
                function_unref(f);
                launch_bare(p, c, ev);
                return;
        }
        record_fill(p, c, ev, &l->record);
        function_launched(p, f);
        l->function = f;
        l->stream = s;
        stream_launched(s, ev->tid);
        l->unprobed = ev->type & CPU_EVENT_UNPROBED;
        launch_takes(l);
        order_launch(c, l, ev->seq);
}

/* Only its place in the order matters. */
static void launch_place(struct context *c, const struct cpu_launch_event *ev, bool takes_id)
{
        struct launch *l = launch_new(c);

        if (!l)
                return;
        record_fill(c->process, c, ev, &l->record);
        l->silent = true;
        l->ids = takes_id;
        order_launch(c, l, ev->seq);
}

static void input(struct correlated_process *p)
{
        if (++p->inputs < INPUTS_MAX)
                return;
        p->inputs = 0;
        lanes_run(p, false);
        if (p->pending_count <= PENDING_MAX)
                return;
        while (p->pending_count > PENDING_MAX - PENDING_MAX / 8) {
                p->ledger->lost[LOSS_join_queue_full]++;
                launch_abandon(TAILQ_FIRST(&p->pending));
        }
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
                launch_place(context, ev, false);
                if (ev->result == 0)
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

void synced(struct context *c, const struct sync *sync)
{
        if (!sync->stream)
                graph_synced(c, sync->enter_ns, sync->return_ns);
        finish_synced(c, sync->stream, sync->enter_ns, sync->return_ns);
}

void correlator_operation(struct correlator *c, struct correlated_process *p,
                          const struct cpu_operation_event *ev)
{
        struct context *context;
        struct stream *stream;

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
                ids_optional(p, ev->enter_ns, ev->enter_ns + ev->duration_ns, 1);
                break;
        case CPU_OP_GRAPH_INSTANTIATE:
                graph_instantiate(context, ev);
                break;
        case CPU_OP_CAPTURE_BEGIN:
        case CPU_OP_CAPTURE_END:
                graph_capture(context, ev, ev->operation == CPU_OP_CAPTURE_BEGIN);
                break;
        case CPU_OP_SYNC_CONTEXT:
                order_sync(context, NULL, ev);
                break;
        case CPU_OP_SYNC_STREAM:
                stream = stream_get(context, ev->stream, ev->tid);
                if (stream)
                        order_sync(context, stream, ev);
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
        p->rehome = true;
        if (!c->sequenced && ev->handle && c->device != DEVICE_UNKNOWN)
                c->known_from_birth = true;
}

/* Any context may be current when a stream is destroyed. */
static void stream_gone(struct correlated_process *p, const struct cpu_handle_event *ev)
{
        struct context *context, *next;

        HASH_ITER (hh, p->contexts, context, next)
                stream_destroyed(context, ev->handle);
}

/* Code is loaded: memory may have been set. */
static void code_loaded(struct correlated_process *p, uint64_t at_ns)
{
        struct context *context, *next;

        HASH_ITER (hh, p->contexts, context, next)
                ids_loosen(context, at_ns);
}

void correlator_handle(struct correlator *c, struct correlated_process *p,
                       const struct cpu_handle_event *ev)
{
        now_at_least(c, ev->ts_ns);
        switch (ev->kind) {
        case CPU_HANDLE_CONTEXT:
                context_handle(p, ev);
                break;
        case CPU_HANDLE_STREAM:
                if (ev->destroyed)
                        stream_gone(p, ev);
                break;
        case CPU_HANDLE_GRAPH_EXEC:
                if (p->has_agent)
                        graph_handle(p, ev);
                break;
        default:
                if (!ev->destroyed)
                        code_loaded(p, ev->ts_ns);
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
        if (f && f->unlisted) {
                f->unlisted = false;
                p->unlisted_count--;
        }
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
        lanes_run(p, true);
        graph_tick(p);
        records_tick(p, false);
        finish_due(p);
        HASH_ITER (hh, p->contexts, c, next)
                if (c->destroyed_ns && c->destroyed_ns + CONTEXT_LINGER_NS <= now)
                        context_end(c);
}

void correlator_now(struct correlator *c, uint64_t now_ns)
{
        now_at_least(c, now_ns);
}

void correlator_tick(struct correlator *c, uint64_t now_ns)
{
        struct correlated_process *p, *next;

        now_at_least(c, now_ns);
        c->looks = 0;
        c->ticks++;
        HASH_ITER (hh, c->processes, p, next)
                if (p->has_agent)
                        process_tick(p);
}
