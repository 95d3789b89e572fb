/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A launch from its start to its record's emission: ends, measured or inferred;
 * what to do when a record that should be there is not; how sure the match is.
 *
 * How sure can only be said when all calls that overlap with this one are known,
 * since one of them may have been the kernel that started. So a complete launch
 * is held back until launches (or operations) are known that were entered after
 * its return, or a while has passed.
 */
#include "correlate/join.h"

#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"

#define RUNNING_FIRST 1024

struct launch *launch_new(struct context *c)
{
        struct correlated_process *p = c->process;
        struct launch *l = calloc(1, sizeof(*l));

        if (!l)
                return NULL;
        l->context = c;
        l->seq = UINT64_MAX;
        TAILQ_INSERT_TAIL(&p->pending, l, in_pending);
        p->pending_count++;
        return l;
}

/* ---- lists by deadline ---- */

static void unschedule(struct launch *l)
{
        if (l->list != LIST_NONE)
                TAILQ_REMOVE(&l->context->process->lists[l->list], l, in_list);
        l->list = LIST_NONE;
}

void launch_schedule(struct launch *l, enum launch_list list)
{
        struct correlated_process *p = l->context->process;

        unschedule(l);
        l->deadline_ns =
                p->correlator->now_ns + (list == LIST_SHORT ? SHORT_PATIENCE_NS : LONG_PATIENCE_NS);
        l->list = list;
        TAILQ_INSERT_TAIL(&p->lists[list], l, in_list);
}

/* ---- running launches by grid id ---- */

static size_t running_slot(const struct correlated_process *p, uint64_t gridid)
{
        return (gridid * 0x9e3779b97f4a7c15ULL >> 32) & (p->running_size - 1);
}

static void running_grow(struct correlated_process *p)
{
        size_t size = p->running_size ? 4 * p->running_size : RUNNING_FIRST, old = p->running_size;
        struct launch **table = calloc(size, sizeof(*table)), **from = p->running;

        if (!table)
                return;
        p->running = table;
        p->running_size = size;
        for (size_t i = 0; i < old; i++)
                for (struct launch *l = from[i], *next; l; l = next) {
                        size_t slot = running_slot(p, l->record.gridid);

                        next = l->hash_next;
                        l->hash_next = table[slot];
                        table[slot] = l;
                }
        free(from);
}

static void running_add(struct launch *l)
{
        struct correlated_process *p = l->context->process;
        size_t slot;

        if (p->running_count >= p->running_size)
                running_grow(p);
        if (!p->running_size)
                return;
        slot = running_slot(p, l->record.gridid);
        l->hash_next = p->running[slot];
        p->running[slot] = l;
        p->running_count++;
        l->hashed = true;
}

static void running_remove(struct launch *l)
{
        struct correlated_process *p = l->context->process;
        struct launch **at;

        if (!l->hashed)
                return;
        at = &p->running[running_slot(p, l->record.gridid)];
        while (*at != l)
                at = &(*at)->hash_next;
        *at = l->hash_next;
        p->running_count--;
        l->hashed = false;
}

bool end_fits(const struct held *h, const struct launch *l)
{
        return l->record.gridid == h->gridid && l->kernel->kernel_id == h->kernel_id &&
               l->queue == h->queue && l->tag == h->tag && l->start_gpu_ns <= h->time_ns &&
               device_certain(h, l->context);
}

struct launch *launch_running(struct correlated_process *p, const struct held *h)
{
        struct launch *best = NULL;

        if (!p->running_size)
                return NULL;
        for (struct launch *l = p->running[running_slot(p, h->gridid)]; l; l = l->hash_next) {
                if (!end_fits(h, l))
                        continue;
                if (!best || l->start_gpu_ns > best->start_gpu_ns)
                        best = l;
        }
        return best;
}

/* ---- how sure ---- */

bool launch_overlaps_known(const struct launch *l)
{
        const struct context *c, *next;

        if (!l->process_queue)
                return l->context->known_until_ns >= launch_return_ns(l);
        HASH_ITER (hh, l->context->process->contexts, c, next)
                if (c->known_until_ns < launch_return_ns(l))
                        return false;
        return true;
}

/* A call that has not returned may turn out to overlap. */
static bool overlap_due(const struct launch *l)
{
        const struct context *c, *next;

        if (l->context->process->closing)
                return false;
        HASH_ITER (hh, l->context->process->contexts, c, next)
                if ((l->process_queue || c == l->context) &&
                    c->known_until_ns < launch_return_ns(l) &&
                    (c->hole_ns ||
                     ((l->process_queue || c->streams_shared) && others_at_work(c, l))))
                        return true;
        return false;
}

static enum launch_match quality(const struct launch *l)
{
        enum queue_of of = l->process_queue ? QUEUE_PROCESS : QUEUE_STREAM;

        if (!l->has_start)
                return MATCH_NONE;
        if (l->match_inferred)
                return MATCH_INFERRED;
        if (l->match_ordered || l->swappable[of] || overlap_due(l))
                return MATCH_ORDERED;
        return MATCH_EXACT;
}

static bool can_be_judged(const struct launch *l)
{
        return !l->stream || !l->has_start || launch_overlaps_known(l) ||
               l->context->process->correlator->now_ns >= launch_return_ns(l) + HORIZON_NS;
}

/* ---- emission ---- */

/* GPU times that came before the clock was known. */
static void times_resolve(struct launch *l)
{
        struct correlated_process *p = l->context->process;
        uint32_t device = context_device(l->context), error_ns;
        struct launch_record *r = &l->record;
        uint64_t cpu_ns;

        if (l->has_start && !l->start_known &&
            device_time(p, device, l->start_gpu_ns, &cpu_ns, &error_ns) == 0) {
                r->gpu_start_ns = cpu_ns;
                l->start_error_ns = error_ns;
                l->start_known = true;
        }
        if (l->end_gpu_ns && device_time(p, device, l->end_gpu_ns, &cpu_ns, &error_ns) == 0) {
                r->gpu_end_ns = cpu_ns;
                r->end = END_MEASURED;
                if (error_ns > r->clock_error_ns)
                        r->clock_error_ns = error_ns;
        }
}

static void record_complete(struct launch *l)
{
        struct launch_record *r = &l->record;
        const struct kernel *k = l->kernel;

        if (!k)
                k = function_kernel(l->context->process, l->function);
        times_resolve(l);
        if (!(r->has & LAUNCH_HAS_GPU))
                device_fill(l->context->process, l->context, r);
        if (!r->context && l->context->handle) {
                r->context = l->context->handle;
                r->has |= LAUNCH_HAS_CONTEXT;
        }
        r->match = quality(l);
        if (l->has_start && !launch_overlaps_known(l))
                order_judged(l);
        r->kernel_name = l->function && l->function->name ? l->function->name : k ? k->key.name : 0;
        if (r->kernel_name)
                r->has |= LAUNCH_HAS_KERNEL;
        if (l->has_start)
                r->has |= LAUNCH_HAS_GRIDID | LAUNCH_HAS_SMID;
        else
                r->gridid = 0;
        if (l->start_known) {
                r->has |= LAUNCH_HAS_GPU_START | LAUNCH_HAS_CLOCK_ERROR;
                if (l->start_error_ns > r->clock_error_ns)
                        r->clock_error_ns = l->start_error_ns;
        }
        /* Without a start there is nothing an upper bound could bound. */
        if (r->end == END_INFERRED && (!l->start_known || r->gpu_end_ns < r->gpu_start_ns)) {
                r->end = END_NONE;
                r->gpu_end_ns = 0;
        }
        if (r->end != END_NONE)
                r->has |= LAUNCH_HAS_GPU_END | LAUNCH_HAS_CLOCK_ERROR;
}

static void launch_free(struct launch *l)
{
        struct correlated_process *p = l->context->process;

        if (l->state == STATE_ENTERED)
                order_leave(l);
        launch_unqueue(l);
        launch_close(l);
        unschedule(l);
        running_remove(l);
        TAILQ_REMOVE(&p->pending, l, in_pending);
        p->pending_count--;
        function_unref(l->function);
        free(l);
}

void launch_finish(struct launch *l)
{
        struct correlated_process *p = l->context->process;
        bool silent = l->silent;
        struct launch_record out;

        if (!silent)
                record_complete(l);
        out = l->record;
        launch_free(l);
        if (!silent)
                p->correlator->ops->launch(p->correlator->data, p, &out);
}

void launch_abandon(struct launch *l)
{
        if (l->state == STATE_WAITING) {
                l->stream->queue.may_exceed = l->context->process->queue.may_exceed = true;
                l->stream->queue.guess_ns = launch_return_ns(l);
        }
        launch_finish(l);
}

static void launch_ready(struct launch *l)
{
        launch_unqueue(l);
        running_remove(l);
        l->state = STATE_READY;
        if (can_be_judged(l))
                launch_finish(l);
        else
                launch_schedule(l, LIST_READY);
}

/* ---- starts and ends ---- */

static void end_infer(struct launch *l, uint64_t end_ns)
{
        struct launch_record *r = &l->record;

        if (!end_ns || r->end == END_MEASURED ||
            (r->end == END_INFERRED && r->gpu_end_ns <= end_ns))
                return;
        r->end = END_INFERRED;
        r->gpu_end_ns = end_ns;
}

/* It has ended by then (0: at a time not known): its end record, if any, is due. */
static void launch_superseded(struct launch *l, uint64_t end_ns)
{
        end_infer(l, end_ns);
        if (!l->kernel->exit_probed)
                launch_ready(l);
        else if (l->list != LIST_SHORT)
                launch_schedule(l, LIST_SHORT);
}

/* Nothing but a certain start tells that what was launched before had ended by then. */
static void supersede_before(struct stream *s, const struct launch *l)
{
        bool certain = l->start_known && !l->match_inferred && !l->match_ordered &&
                       !l->swappable[l->process_queue ? QUEUE_PROCESS : QUEUE_STREAM];
        struct launch *m, *next;

        for (m = TAILQ_FIRST(&s->running); m; m = next) {
                next = TAILQ_NEXT(m, in_queue[QUEUE_STREAM]);
                if (m->seq < l->seq && launch_return_ns(m) <= l->record.cpu_enter_ns)
                        launch_superseded(m, certain ? l->record.gpu_start_ns : 0);
        }
}

static void start_set(struct launch *l, const struct held *h)
{
        l->kernel = h->kernel;
        l->queue = h->queue;
        l->tag = h->tag;
        l->record.gridid = h->gridid;
        l->record.smid = h->smid;
        l->has_start = true;
        l->start_gpu_ns = h->time_ns;
        l->start_known = h->converted;
        if (h->converted) {
                l->record.gpu_start_ns = h->cpu_ns;
                l->start_error_ns = h->error_ns;
        }
}

void launch_started(struct launch *l, const struct held *h)
{
        struct stream *s = l->stream;

        launch_unqueue(l);
        unschedule(l);
        l->state = STATE_RUNNING;
        start_set(l, h);
        if (s) {
                supersede_before(s, l);
                TAILQ_INSERT_TAIL(&s->running, l, in_queue[QUEUE_STREAM]);
        }
        if (l->kernel->exit_probed)
                running_add(l);
        if (l->ended_by_ns)
                launch_superseded(l, l->ended_by_ns);
        else if (!l->kernel->exit_probed && s)
                launch_schedule(l, LIST_LONG);
        else if (!l->kernel->exit_probed)
                launch_ready(l);
}

/* The clock has become better known between start and end: one reading for both. */
static void start_again(struct launch *l)
{
        (void)device_time(l->context->process, context_device(l->context), l->start_gpu_ns,
                          &l->record.gpu_start_ns, &l->start_error_ns);
}

void launch_ended(struct launch *l, const struct held *h)
{
        if (h->converted && l->start_known && h->cpu_ns < l->record.gpu_start_ns)
                start_again(l);
        l->end_gpu_ns = h->time_ns;
        if (h->converted) {
                l->record.end = END_MEASURED;
                l->record.gpu_end_ns = h->cpu_ns;
                l->record.clock_error_ns = h->error_ns;
                l->end_gpu_ns = 0;
        }
        launch_ready(l);
}

/* ---- what is due ---- */

static void queue_synced(struct queue *q, uint64_t enter_ns, uint64_t at_ns)
{
        if (at_ns <= q->idle_ns)
                return;
        q->idle_from_ns = enter_ns;
        q->idle_ns = at_ns;
}

static void stream_synced(struct stream *s, uint64_t enter_ns, uint64_t at_ns)
{
        struct launch *l, *next;

        queue_synced(&s->queue, enter_ns, at_ns);
        if (s->lane)
                s->lane->tried = 0;
        /* From the newest: what an earlier synchronise has marked lies behind, however much it is.
         */
        TAILQ_FOREACH_REVERSE(l, &s->queue.waiting, launch_head, in_queue[QUEUE_STREAM])
        {
                if (launch_return_ns(l) > enter_ns)
                        continue;
                if (l->ended_by_ns)
                        break;
                l->ended_by_ns = at_ns;
                launch_schedule(l, LIST_SHORT);
        }
        for (l = TAILQ_FIRST(&s->running); l; l = next) {
                next = TAILQ_NEXT(l, in_queue[QUEUE_STREAM]);
                if (launch_return_ns(l) <= enter_ns)
                        launch_superseded(l, at_ns);
        }
}

void finish_synced(struct context *c, struct stream *only, uint64_t enter_ns, uint64_t at_ns)
{
        struct stream *s, *next;

        if (only) {
                stream_synced(only, enter_ns, at_ns);
                return;
        }
        if (!c->holed_end_ns && c->holed_ns <= enter_ns)
                c->holed_end_ns = at_ns;
        HASH_ITER (hh, c->streams, s, next)
                stream_synced(s, enter_ns, at_ns);
        if (HASH_CNT(hh, c->process->contexts) == 1)
                queue_synced(&c->process->queue, enter_ns, at_ns);
}

/* A record that should have come has not. */
static void overdue(struct launch *l)
{
        const struct kernel *k = function_kernel(l->context->process, l->function);

        /* Only those whose kernel nobody knows are given up unasked. */
        if (l->state == STATE_WAITING && l->list == LIST_LONG && k && k->entry_probed)
                unschedule(l);
        else
                launch_abandon(l);
}

static void list_due(struct correlated_process *p, enum launch_list list)
{
        uint64_t now = p->correlator->now_ns;
        struct launch *l;

        while ((l = TAILQ_FIRST(&p->lists[list])) && l->deadline_ns <= now)
                overdue(l);
}

/* Coverage may have become known only after the launch: nobody waits for its record then. */
static void unprobed_finish(struct context *c)
{
        struct stream *s, *next;

        for (s = TAILQ_FIRST(&c->active); s; s = next) {
                struct launch *l;

                next = TAILQ_NEXT(s, in_active);
                while ((l = TAILQ_FIRST(&s->queue.waiting))) {
                        const struct kernel *k = function_kernel(c->process, l->function);

                        if (!k || k->entry_probed)
                                break;
                        launch_finish(l);
                }
        }
}

void finish_due(struct correlated_process *p)
{
        struct context *c, *next_context;
        struct launch *l, *next;

        list_due(p, LIST_SHORT);
        list_due(p, LIST_LONG);
        for (l = TAILQ_FIRST(&p->lists[LIST_READY]); l; l = next) {
                next = TAILQ_NEXT(l, in_list);
                if (can_be_judged(l))
                        launch_finish(l);
        }
        HASH_ITER (hh, p->contexts, c, next_context)
                unprobed_finish(c);
}

void finish_all(struct correlated_process *p, const struct context *only)
{
        struct launch *l, *next;

        for (l = TAILQ_FIRST(&p->pending); l; l = next) {
                next = TAILQ_NEXT(l, in_pending);
                if (!only || l->context == only)
                        launch_finish(l);
        }
}
