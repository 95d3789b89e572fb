/* SPDX-License-Identifier: Apache-2.0 */

/* Contexts, their streams, and the queues that launches wait in. */
#include "correlate/join.h"

#include <stdlib.h>

#define STREAM_LEGACY     1
#define STREAM_PER_THREAD 2

struct context *context_find(struct correlated_process *p, uint32_t index)
{
        struct context *c;

        if (p->last_context && p->last_context->index == index)
                return p->last_context;
        HASH_FIND(hh, p->contexts, &index, sizeof(index), c);
        return c;
}

struct context *context_get(struct correlated_process *p, uint32_t index)
{
        struct context *c = context_find(p, index);

        if (c)
                return p->last_context = c;
        if (HASH_CNT(hh, p->contexts) >= CONTEXTS_MAX)
                return NULL;
        c = calloc(1, sizeof(*c));
        if (!c)
                return NULL;
        c->process = p;
        c->index = index;
        c->device = DEVICE_UNKNOWN;
        TAILQ_INIT(&c->active);
        STAILQ_INIT(&c->syncs);
        HASH_ADD(hh, p->contexts, index, sizeof(c->index), c);
        return c;
}

static void stream_free(struct stream *s)
{
        if (s->lane)
                lane_unbind(s->lane);
        free(s);
}

struct context *context_free(struct context *c)
{
        struct thread *t, *next_thread;
        struct stream *s, *next;

        if (!c)
                return NULL;
        syncs_run(c, SIZE_MAX);
        HASH_ITER (hh, c->threads, t, next_thread) {
                HASH_DELETE(hh, c->threads, t);
                free(t);
        }
        HASH_ITER (hh, c->streams, s, next) {
                HASH_DELETE(hh, c->streams, s);
                stream_free(s);
        }
        if (c->process->last_context == c)
                c->process->last_context = NULL;
        HASH_DELETE(hh, c->process->contexts, c);
        ids_done(c);
        free(c->behind);
        free(c);
        return NULL;
}

/* ---- streams ---- */

static bool stream_idle(const struct stream *s)
{
        return TAILQ_EMPTY(&s->queue.waiting) && TAILQ_EMPTY(&s->running) && !s->capturing;
}

static void streams_purge(struct context *c)
{
        struct stream *s, *next;

        c->last_stream = NULL;
        HASH_ITER (hh, c->streams, s, next) {
                if (!stream_idle(s) || s->queue.open_count || c->sync_count)
                        continue;
                HASH_DELETE(hh, c->streams, s);
                stream_free(s);
        }
}

struct stream *stream_get(struct context *c, uint64_t handle, uint32_t tid)
{
        struct stream_key key = {.handle = handle == STREAM_LEGACY ? 0 : handle};
        struct stream *s = c->last_stream;

        if (handle == STREAM_PER_THREAD)
                key.tid = tid;
        if (s && s->key.handle == key.handle && s->key.tid == key.tid)
                return s;
        HASH_FIND(hh, c->streams, &key, sizeof(key), s);
        if (s)
                return c->last_stream = s;
        if (HASH_CNT(hh, c->streams) >= STREAMS_MAX)
                streams_purge(c);
        if (HASH_CNT(hh, c->streams) >= STREAMS_MAX)
                return NULL;
        s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        s->key = key;
        s->context = c;
        waiting_init(&s->queue, QUEUE_STREAM);
        TAILQ_INIT(&s->running);
        s->queue.hole = c->hole;
        s->queue.may_lack = s->queue.may_exceed = !c->known_from_birth && !c->before_probes;
        HASH_ADD(hh, c->streams, key, sizeof(s->key), s);
        return s;
}

void stream_launched(struct stream *s, uint32_t tid)
{
        s->context->streams_shared |= s->launcher && s->launcher != tid;
        s->launcher = tid;
}

/* Under a key of its own it lives on for its launches, and a stream with the same handle is new. */
void stream_destroyed(struct context *c, uint64_t handle)
{
        struct stream_key key = {.handle = handle};
        struct stream *s;

        HASH_FIND(hh, c->streams, &key, sizeof(key), s);
        if (!s || s->queue.closed)
                return;
        c->last_stream = NULL;
        HASH_DELETE(hh, c->streams, s);
        s->queue.closed = true;
        s->key.tid = (uint64_t)(uintptr_t)s;
        HASH_ADD(hh, c->streams, key, sizeof(s->key), s);
}

/* ---- queues ---- */

void waiting_init(struct queue *q, enum queue_of of)
{
        TAILQ_INIT(&q->waiting);
        TAILQ_INIT(&q->laned);
        q->of = (uint8_t)of;
}

/* Does its record come in the queue's lane, if it makes one? */
static bool is_laned(const struct queue *q, const struct launch *l)
{
        struct correlated_process *p = l->context->process;
        const struct kernel *k = function_kernel(p, l->function);

        /* What has a name that the agent did not tell of is of an image that it has not seen. */
        if (!k)
                return !l->function || !l->function->name;
        return k->entry_probed &&
               (q->of == QUEUE_PROCESS ? !p->tagged || k->untagged : !k->untagged);
}

/* Those that are not may be thousands: no search walks past them. */
static void queue_sort(struct queue *q)
{
        struct launch *l;

        TAILQ_INIT(&q->laned);
        TAILQ_FOREACH(l, &q->waiting, in_queue[q->of])
        {
                l->laned[q->of] = is_laned(q, l);
                if (l->laned[q->of])
                        TAILQ_INSERT_TAIL(&q->laned, l, in_laned[q->of]);
        }
}

void waiting_sort(struct correlated_process *p)
{
        struct context *c, *next;
        struct stream *s;

        if (p->laned_generation == p->identity_generation)
                return;
        p->laned_generation = p->identity_generation;
        p->correlator->looks += 2 * p->queue.count;
        queue_sort(&p->queue);
        HASH_ITER (hh, p->contexts, c, next)
                TAILQ_FOREACH(s, &c->active, in_active)
        queue_sort(&s->queue);
}

static bool same_kernel(const struct launch *a, const struct launch *b)
{
        struct correlated_process *p = a->context->process;
        struct kernel *k;

        if (a->function == b->function)
                return true;
        k = function_kernel(p, a->function);
        return function_identity(p, b->function, k) != IDENTITY_DIFFERS;
}

static void open_remove(struct queue *q, size_t i)
{
        q->open[i]->open[q->of] = false;
        q->open[i] = q->open[--q->open_count];
}

/* Whose calls overlap may have got their places the other way round. */
static void queue_overlaps(struct queue *q, struct launch *l)
{
        for (size_t i = 0; i < q->open_count;) {
                struct launch *m = q->open[i];

                if (launch_return_ns(m) <= l->record.cpu_enter_ns) {
                        open_remove(q, i);
                        continue;
                }
                if (m->record.tid != l->record.tid && same_kernel(l, m))
                        l->swappable[q->of] = m->swappable[q->of] = true;
                i++;
        }
        if (q->open_count == OPEN_MAX) {
                /* Others may overlap with one that is forgotten. */
                q->open[0]->swappable[q->of] = l->swappable[q->of] = true;
                open_remove(q, 0);
        }
        q->open[q->open_count++] = l;
        l->open[q->of] = true;
}

/* The process's launches come from several contexts, nearly in order. */
static void queue_insert(struct queue *q, struct launch *l)
{
        struct launch *m = TAILQ_LAST(&q->waiting, launch_head), *laned = NULL;

        while (m && m->context != l->context && m->record.cpu_enter_ns > l->record.cpu_enter_ns) {
                laned = m->laned[q->of] ? m : laned;
                m = TAILQ_PREV(m, launch_head, in_queue[q->of]);
        }
        if (m)
                TAILQ_INSERT_AFTER(&q->waiting, m, l, in_queue[q->of]);
        else
                TAILQ_INSERT_HEAD(&q->waiting, l, in_queue[q->of]);
        q->count++;
        l->laned[q->of] = is_laned(q, l);
        if (l->laned[q->of] && laned)
                TAILQ_INSERT_BEFORE(laned, l, in_laned[q->of]);
        else if (l->laned[q->of])
                TAILQ_INSERT_TAIL(&q->laned, l, in_laned[q->of]);
}

static void queue_push(struct queue *q, struct launch *l)
{
        queue_overlaps(q, l);
        queue_insert(q, l);
}

static void queue_remove(struct queue *q, struct launch *l)
{
        TAILQ_REMOVE(&q->waiting, l, in_queue[q->of]);
        if (l->laned[q->of])
                TAILQ_REMOVE(&q->laned, l, in_laned[q->of]);
        if (launch_return_ns(l) > q->reach_ns)
                q->reach_ns = launch_return_ns(l);
        q->count--;
}

/*
 * Launches of several contexts come into the process's queue in no order: a call may
 * overlap with one that is not among the open ones any more. Events come in order of return.
 */
static void contexts_overlap(struct launch *l)
{
        uint64_t since_ns = l->record.cpu_enter_ns;
        struct launch *m = l;

        if (HASH_COUNT(l->context->process->contexts) <= 1)
                return;
        while ((m = TAILQ_PREV(m, launch_head, in_pending)) &&
               launch_return_ns(m) + RETURN_SLACK_NS > since_ns) {
                if (m->context != l->context && m->record.tid != l->record.tid &&
                    launch_return_ns(m) > since_ns && same_kernel(l, m))
                        l->swappable[QUEUE_PROCESS] = m->swappable[QUEUE_PROCESS] = true;
        }
}

void launch_queue(struct launch *l)
{
        struct stream *s = l->stream;

        l->state = STATE_WAITING;
        if (s->queue.count == 0)
                TAILQ_INSERT_TAIL(&l->context->active, s, in_active);
        queue_push(&s->queue, l);
        queue_push(&l->context->process->queue, l);
        contexts_overlap(l);
}

static struct queue *queue_of(struct launch *l, enum queue_of of)
{
        return of == QUEUE_STREAM ? l->stream ? &l->stream->queue : NULL
                                  : &l->context->process->queue;
}

void launch_close(struct launch *l)
{
        for (enum queue_of of = 0; of < QUEUE_COUNT; of++) {
                struct queue *q = queue_of(l, of);

                for (size_t i = 0; l->open[of] && i < q->open_count; i++)
                        if (q->open[i] == l)
                                open_remove(q, i);
        }
}

void launch_unqueue(struct launch *l)
{
        struct stream *s = l->stream;

        if (l->state == STATE_RUNNING && s) {
                TAILQ_REMOVE(&s->running, l, in_queue[QUEUE_STREAM]);
                return;
        }
        if (l->state != STATE_WAITING)
                return;
        queue_remove(&s->queue, l);
        queue_remove(&l->context->process->queue, l);
        if (s->queue.count == 0)
                TAILQ_REMOVE(&l->context->active, s, in_active);
}
