/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A context's calls that take grid ids, or may: by thread, in the order in which
 * the thread made them, which is the order in which their events come. And
 * which launches are known: the order of entry has a hole where a call has not
 * returned yet, or its event was lost; a hole that is too old becomes a call of
 * its own, since it has most likely taken an id.
 */
#include "correlate/join.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_abi.h"

#define ENTERED_FIRST 256
#define LANE_IDLE_NS  NSEC_PER_SEC
#define BIRTH_SEQ_MAX                                                                              \
        1024 /* a context whose first event has a later seq was not seen from birth                \
              */
#define STREAM_LEGACY     1
#define STREAM_PER_THREAD 2

struct context *context_get(struct correlated_process *p, uint32_t index)
{
        struct context *c;

        HASH_FIND(hh, p->contexts, &index, sizeof(index), c);
        if (c)
                return c;
        if (HASH_CNT(hh, p->contexts) >= CONTEXTS_MAX)
                return NULL;
        c = calloc(1, sizeof(*c));
        if (!c)
                return NULL;
        c->process = p;
        c->index = index;
        c->device = ~0u;
        TAILQ_INIT(&c->active);
        TAILQ_INIT(&c->busy);
        TAILQ_INIT(&c->lost.calls);
        c->lost.context = c;
        HASH_ADD(hh, p->contexts, index, sizeof(c->index), c);
        return c;
}

static void lane_empty(struct lane *lane)
{
        while (!TAILQ_EMPTY(&lane->calls))
                lane_remove(TAILQ_FIRST(&lane->calls));
}

/* Its launches must be finished before. */
struct context *context_free(struct context *c)
{
        struct stream *s, *next;
        struct lane *lane, *next_lane;

        if (!c)
                return NULL;
        lane_empty(&c->lost);
        HASH_ITER (hh, c->lanes, lane, next_lane) {
                lane_empty(lane);
                HASH_DELETE(hh, c->lanes, lane);
                free(lane);
        }
        HASH_ITER (hh, c->streams, s, next) {
                HASH_DELETE(hh, c->streams, s);
                free(s);
        }
        HASH_DELETE(hh, c->process->contexts, c);
        free(c->entered);
        free(c);
        return NULL;
}

/* ---- lanes ---- */

void lanes_purge(struct context *c)
{
        uint64_t now = c->process->correlator->now_ns;
        struct lane *lane, *next;

        HASH_ITER (hh, c->lanes, lane, next) {
                if (!TAILQ_EMPTY(&lane->calls) || lane->last_ns + LANE_IDLE_NS > now)
                        continue;
                HASH_DELETE(hh, c->lanes, lane);
                free(lane);
        }
}

struct lane *lane_get(struct context *c, uint32_t tid)
{
        struct lane *lane;

        HASH_FIND(hh, c->lanes, &tid, sizeof(tid), lane);
        if (lane)
                return lane;
        if (HASH_CNT(hh, c->lanes) >= LANES_MAX)
                lanes_purge(c);
        if (HASH_CNT(hh, c->lanes) >= LANES_MAX)
                return NULL;
        lane = calloc(1, sizeof(*lane));
        if (!lane)
                return NULL;
        lane->tid = tid;
        lane->context = c;
        TAILQ_INIT(&lane->calls);
        HASH_ADD(hh, c->lanes, tid, sizeof(lane->tid), lane);
        return lane;
}

void lane_push(struct lane *lane, struct call *call)
{
        struct context *c = lane->context;

        if (TAILQ_EMPTY(&lane->calls) && lane != &c->lost) {
                TAILQ_INSERT_TAIL(&c->busy, lane, in_busy);
                c->busy_count++;
        }
        TAILQ_INSERT_TAIL(&lane->calls, call, in_lane);
        call->lane = lane;
        lane->count++;
        if (call->return_ns != UINT64_MAX)
                lane->last_ns = call->return_ns;
        if (call->launch && call->seq > lane->last_seq)
                lane->last_seq = call->seq;
}

void lane_remove(struct call *call)
{
        struct lane *lane = call->lane;
        struct launch *l = call->launch;

        TAILQ_REMOVE(&lane->calls, call, in_lane);
        call->lane = NULL;
        lane->count--;
        if (TAILQ_EMPTY(&lane->calls) && lane != &lane->context->lost) {
                TAILQ_REMOVE(&lane->context->busy, lane, in_busy);
                lane->context->busy_count--;
        }
        if (!l)
                free(call);
        else if (l->state == STATE_DONE)
                launch_discard(l);
}

void order_operation(struct context *c, const struct cpu_operation_event *ev, uint32_t min,
                     uint32_t max, uint64_t exec)
{
        struct lane *lane = max ? lane_get(c, ev->tid) : NULL;
        struct call *call = lane ? calloc(1, sizeof(*call)) : NULL;

        if (!call)
                return;
        call->enter_ns = ev->enter_ns;
        call->return_ns = ev->enter_ns + ev->duration_ns;
        call->min = min;
        call->max = max;
        call->exec = exec;
        lane_push(lane, call);
        /* A thread that never launches. */
        if (lane->count > CALLS_MAX && !TAILQ_FIRST(&lane->calls)->launch)
                lane_remove(TAILQ_FIRST(&lane->calls));
}

/* ---- order of entry ---- */

uint64_t order_widen(const struct context *c, uint32_t seq)
{
        if (!c->sequenced)
                return (1ULL << 32) + seq;
        return c->last_seq + (uint64_t)(int64_t)(int32_t)(seq - (uint32_t)c->last_seq);
}

static bool entered_grow(struct context *c)
{
        size_t size = c->entered_size ? 4 * c->entered_size : ENTERED_FIRST;
        uint64_t *entered = calloc(size, sizeof(*entered));

        if (!entered)
                return false;
        for (uint64_t seq = c->contiguous_seq + 1; c->entered_size && seq <= c->last_seq; seq++)
                entered[seq & (size - 1)] = c->entered[seq & (c->entered_size - 1)];
        free(c->entered);
        c->entered = entered;
        c->entered_size = size;
        return true;
}

static void order_advance(struct context *c)
{
        while (c->contiguous_seq < c->last_seq) {
                uint64_t *at = &c->entered[(c->contiguous_seq + 1) & (c->entered_size - 1)];

                if (*at == 0) {
                        if (!c->hole_ns)
                                c->hole_ns = c->process->correlator->now_ns;
                        return;
                }
                if (*at > c->known_until_ns)
                        c->known_until_ns = *at;
                *at = 0;
                c->contiguous_seq++;
                c->hole_ns = 0;
        }
}

static void hole_give_up(struct context *c)
{
        struct call *call = c->lost.count < CALLS_MAX ? calloc(1, sizeof(*call)) : NULL;

        c->contiguous_seq++;
        c->hole_ns = 0;
        if (!call) {
                c->anchored = false;
                return;
        }
        call->seq = c->contiguous_seq;
        call->enter_ns = c->known_until_ns + 1;
        call->return_ns = UINT64_MAX;
        call->min = call->max = 1;
        call->lost = true;
        lane_push(&c->lost, call);
}

static void order_restart(struct context *c, uint64_t seq)
{
        c->sequenced = true;
        c->contiguous_seq = seq - 1;
        c->last_seq = seq - 1;
        c->hole_ns = 0;
        if (c->entered)
                memset(c->entered, 0, c->entered_size * sizeof(*c->entered));
}

void order_launch(struct context *c, uint64_t seq, uint64_t enter_ns, uint32_t tid)
{
        if (c->last_tid && c->last_tid != tid && enter_ns > c->mixed_ns)
                c->mixed_ns = enter_ns;
        c->last_tid = tid;
        if (!c->sequenced) {
                if ((uint32_t)seq > BIRTH_SEQ_MAX)
                        c->known_from_birth = false;
                order_restart(c, c->known_from_birth ? (1ULL << 32) + 1 : seq);
                c->anchored = c->known_from_birth;
                c->born = c->known_from_birth;
                c->next_id = 1;
        }
        if (seq <= c->contiguous_seq)
                return;
        if (seq - c->contiguous_seq >= ENTERED_MAX) {
                order_restart(c, seq);
                c->anchored = false;
        }
        while (seq - c->contiguous_seq >= c->entered_size)
                if (!entered_grow(c)) {
                        order_restart(c, seq + 1);
                        return;
                }
        c->entered[seq & (c->entered_size - 1)] = enter_ns ? enter_ns : 1;
        if (seq > c->last_seq)
                c->last_seq = seq;
        order_advance(c);
}

void order_seen(struct context *c, const struct cpu_operation_event *ev)
{
        if (c->sequenced && order_widen(c, ev->launch_seq) == c->contiguous_seq &&
            ev->enter_ns > c->known_until_ns)
                c->known_until_ns = ev->enter_ns;
}

/* The first hole is lost when each thread has launched again since, or after a while. */
void order_tick(struct context *c)
{
        uint64_t now = c->process->correlator->now_ns, since = UINT64_MAX;
        struct lane *lane, *next;

        if (!c->hole_ns || (HASH_COUNT(c->lanes) > 1 && c->hole_ns + EVENT_LATENCY_NS > now))
                return;
        HASH_ITER (hh, c->lanes, lane, next)
                if (lane->last_seq < since && lane->last_ns + HOLE_PATIENCE_NS > now)
                        since = lane->last_seq;
        while (c->contiguous_seq < c->last_seq &&
               c->entered[(c->contiguous_seq + 1) & (c->entered_size - 1)] == 0 &&
               (c->contiguous_seq + 1 < since || c->hole_ns + HOLE_PATIENCE_NS <= now)) {
                uint64_t hole_ns = c->hole_ns;

                hole_give_up(c);
                /* Those right behind it are as old. */
                if (c->contiguous_seq < c->last_seq &&
                    c->entered[(c->contiguous_seq + 1) & (c->entered_size - 1)] == 0)
                        c->hole_ns = hole_ns;
        }
        order_advance(c);
}

/* ---- streams ---- */

static void streams_purge(struct context *c)
{
        struct stream *s, *next;

        HASH_ITER (hh, c->streams, s, next) {
                if (!TAILQ_EMPTY(&s->waiting) || !TAILQ_EMPTY(&s->running) || s->capturing)
                        continue;
                HASH_DELETE(hh, c->streams, s);
                free(s);
        }
}

struct stream *stream_get(struct context *c, uint64_t handle, uint32_t tid)
{
        struct stream_key key = {.handle = handle == STREAM_LEGACY ? 0 : handle};
        struct stream *s;

        if (handle == STREAM_PER_THREAD)
                key.tid = tid;
        HASH_FIND(hh, c->streams, &key, sizeof(key), s);
        if (s)
                return s;
        if (HASH_CNT(hh, c->streams) >= STREAMS_MAX)
                streams_purge(c);
        if (HASH_CNT(hh, c->streams) >= STREAMS_MAX)
                return NULL;
        s = calloc(1, sizeof(*s));
        if (!s)
                return NULL;
        s->key = key;
        TAILQ_INIT(&s->waiting);
        TAILQ_INIT(&s->running);
        HASH_ADD(hh, c->streams, key, sizeof(s->key), s);
        return s;
}

/* In order of entry; calls mostly return in that order too. */
void stream_queue(struct stream *s, struct launch *l)
{
        struct launch *m = TAILQ_LAST(&s->waiting, launch_head);

        while (m && m->seq > l->seq)
                m = TAILQ_PREV(m, launch_head, in_stream);
        if (m)
                TAILQ_INSERT_AFTER(&s->waiting, m, l, in_stream);
        else
                TAILQ_INSERT_HEAD(&s->waiting, l, in_stream);
        l->stream = s;
        if (!s->active) {
                s->active = true;
                TAILQ_INSERT_TAIL(&l->context->active, s, in_active);
        }
}

void stream_unqueue(struct launch *l)
{
        struct stream *s = l->stream;

        if (!s)
                return;
        if (l->state == STATE_WAITING) {
                TAILQ_REMOVE(&s->waiting, l, in_stream);
                if (TAILQ_EMPTY(&s->waiting)) {
                        TAILQ_REMOVE(&l->context->active, s, in_active);
                        s->active = false;
                }
        } else {
                TAILQ_REMOVE(&s->running, l, in_stream);
        }
        l->stream = NULL;
}
