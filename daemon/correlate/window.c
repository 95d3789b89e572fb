/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The window: a context's launches in order of entry, from the oldest that is
 * not finished (and some before it, as points of reference) to the newest. A
 * place whose launch is not known is a hole: its call has not returned yet, or
 * its event was lost. What falls out at the front is summed up in the anchor.
 *
 * Operations that can take grid ids are counted at the launch after them.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/cpu_abi.h"

#define WINDOW_FIRST 256
#define SEQ_BASE     (1ULL << 32)
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
        HASH_ADD(hh, p->contexts, index, sizeof(c->index), c);
        return c;
}

/* Its launches must be finished before. */
struct context *context_free(struct context *c)
{
        struct stream *s, *next;

        if (!c)
                return NULL;
        for (uint64_t seq = c->first_seq; seq < window_end(c); seq++) {
                struct launch *l = window_at(c, seq);

                if (l)
                        launch_discard(l);
        }
        HASH_ITER (hh, c->streams, s, next) {
                HASH_DELETE(hh, c->streams, s);
                free(s);
        }
        HASH_DELETE(hh, c->process->contexts, c);
        free(c->window);
        free(c);
        return NULL;
}

/* ---- places ---- */

uint64_t window_end(const struct context *c)
{
        return c->first_seq + c->count;
}

static struct launch **slot_of(const struct context *c, uint64_t seq)
{
        return &c->window[seq & (c->window_size - 1)];
}

struct launch *window_at(const struct context *c, uint64_t seq)
{
        if (seq < c->first_seq || seq >= window_end(c))
                return NULL;
        return *slot_of(c, seq);
}

uint64_t window_widen(const struct context *c, uint32_t seq)
{
        if (!c->sequenced)
                return SEQ_BASE + seq;
        return c->last_seq + (uint64_t)(int64_t)(int32_t)(seq - (uint32_t)c->last_seq);
}

static int window_grow(struct context *c)
{
        size_t size = c->window_size ? 2 * c->window_size : WINDOW_FIRST;
        struct launch **window = calloc(size, sizeof(*window));

        if (!window)
                return -ENOMEM;
        for (uint64_t seq = c->first_seq; seq < window_end(c); seq++)
                window[seq & (size - 1)] = *slot_of(c, seq);
        free(c->window);
        c->window = window;
        c->window_size = size;
        return 0;
}

static void window_begin(struct context *c, uint64_t seq)
{
        bool birth = c->known_from_birth && seq > SEQ_BASE && seq <= SEQ_BASE + BIRTH_SEQ_MAX;

        c->sequenced = true;
        c->first_seq = birth ? SEQ_BASE + 1 : seq;
        c->count = c->settled = 0;
        c->last_seq = c->contiguous_seq = c->first_seq - 1;
        c->anchor = (struct anchor){.valid = birth};
        c->anchor_from = 0;
}

/* What is in the window is finished as it is; ids have to be found anew. */
static void window_restart(struct context *c, uint64_t seq)
{
        for (uint64_t s = c->first_seq; s < window_end(c); s++) {
                struct launch *l = window_at(c, s);

                if (!l)
                        continue;
                *slot_of(c, s) = NULL;
                l->windowed = false;
                launch_discard(l);
        }
        c->known_from_birth = false;
        window_begin(c, seq);
}

/* Make room up to seq, with holes. */
static int window_extend(struct context *c, uint64_t seq)
{
        int r;

        if (!c->sequenced)
                window_begin(c, seq);
        else if (seq >= window_end(c) && seq - window_end(c) >= WINDOW_MAX / 2)
                window_restart(c, seq);
        while (seq >= window_end(c)) {
                if (c->count >= WINDOW_MAX) {
                        struct launch *l = window_at(c, c->first_seq);

                        if (l && l->state != STATE_DONE)
                                launch_finish(l);
                        if (c->settled == 0)
                                c->settled = 1;
                        window_trim(c);
                        if (c->count >= WINDOW_MAX)
                                return -ENOMEM;
                }
                if (c->count == c->window_size) {
                        r = window_grow(c);
                        if (r < 0)
                                return r;
                }
                *slot_of(c, window_end(c)) = NULL;
                c->count++;
        }
        c->last_seq = window_end(c) - 1;
        return 0;
}

/* ---- reach: the latest return among what came before ---- */

static uint64_t reach_after(const struct launch *l)
{
        uint64_t reach = l->reach_before_ns;

        if (launch_return_ns(l) > reach)
                reach = launch_return_ns(l);
        return l->ops.return_ns > reach ? l->ops.return_ns : reach;
}

/*
 * A cluster: launches of which each overlaps with some before it. Where the reach
 * ends before a launch is entered, a new one begins, and whatever was decided
 * wrongly before has no influence any more.
 */
static void cluster_set(struct context *c, struct launch *l, const struct launch *before)
{
        uint64_t cluster = l->seq;
        struct launch *first;

        if (before && l->reach_before_ns > l->record.cpu_enter_ns)
                cluster = before->cluster;
        if (cluster == l->cluster)
                return;
        first = l->chosen ? window_at(c, cluster) : NULL;
        if (first)
                first->chosen = true;
        l->cluster = cluster;
}

static void reach_set(struct context *c, struct launch *l)
{
        struct launch *m = NULL;

        for (uint64_t seq = l->seq; !m && seq-- > c->first_seq;)
                m = window_at(c, seq);
        l->reach_before_ns = m ? reach_after(m) : c->reach_ns;
        cluster_set(c, l, m);
}

/* Carry a change at l on to the launches after it. */
static void reach_spread(struct context *c, struct launch *l)
{
        struct launch *m, *before = l;
        uint64_t cluster;

        for (uint64_t seq = l->seq + 1; seq < window_end(c); seq++) {
                uint64_t reach = reach_after(before);

                m = window_at(c, seq);
                if (!m)
                        continue;
                cluster = m->cluster;
                if (m->reach_before_ns < reach)
                        m->reach_before_ns = reach;
                else
                        reach = 0;
                cluster_set(c, m, before);
                if (!reach && cluster == m->cluster)
                        return;
                before = m;
        }
}

void window_choice(struct launch *l)
{
        struct launch *first = window_at(l->context, l->cluster);

        l->match_ordered = true;
        if (first)
                first->chosen = true;
}

bool window_chosen(const struct launch *l)
{
        const struct launch *first = window_at(l->context, l->cluster);

        return !first || first->chosen;
}

/* ---- operations ---- */

static void operations_add(struct operations *to, const struct operations *from)
{
        if (from->possible == 0)
                return;
        if (to->possible == 0) {
                *to = *from;
                return;
        }
        if (from->enter_ns < to->enter_ns)
                to->enter_ns = from->enter_ns;
        if (from->return_ns > to->return_ns)
                to->return_ns = from->return_ns;
        if (from->after_min < to->after_min)
                to->after_min = from->after_min;
        if (from->after_max > to->after_max)
                to->after_max = from->after_max;
        to->definite += from->definite;
        to->possible += from->possible;
        if (to->possible > UNBOUNDED)
                to->possible = UNBOUNDED;
}

static struct launch *window_next(const struct context *c, uint64_t seq)
{
        for (; seq < window_end(c); seq++) {
                struct launch *l = window_at(c, seq);

                if (l)
                        return l;
        }
        return NULL;
}

/* A launch takes its place: the operations that came before it are no longer the next one's. */
static void operations_share(struct context *c, struct launch *l)
{
        struct launch *n = window_next(c, l->seq + 1);
        struct operations *ops = n ? &n->ops : &c->tail;
        struct operations copy = *ops;

        if (!ops->possible || ops->after_min >= l->seq)
                return;
        if (ops->after_max < l->seq) {
                *ops = (struct operations){0};
        } else {
                /* Some came before, some after, and only their sum is known. */
                copy.definite = 0;
                ops->definite = 0;
        }
        operations_add(&l->ops, &copy);
}

void window_operation(struct context *c, const struct cpu_operation_event *ev, uint32_t definite,
                      uint32_t possible)
{
        struct operations ops = {
                .enter_ns = ev->enter_ns,
                .return_ns = ev->enter_ns + ev->duration_ns,
                .definite = definite,
                .possible = possible,
        };
        struct launch *l;

        /* Before the first launch seen: part of what is not known about the beginning. */
        if (!c->sequenced && !(c->known_from_birth && ev->launch_seq == 0))
                return;
        ops.after_min = ops.after_max = window_widen(c, ev->launch_seq);
        if (c->sequenced && window_extend(c, ops.after_min) < 0)
                return;
        l = c->sequenced ? window_next(c, ops.after_min + 1) : NULL;
        operations_add(l ? &l->ops : &c->tail, &ops);
        if (l)
                reach_spread(c, l);
}

/* ---- holes ---- */

static void thread_launched(struct context *c, const struct launch *l)
{
        struct thread *oldest = &c->threads[0];

        if (c->last_tid && c->last_tid != l->record.tid)
                c->mixed_ns = launch_return_ns(l);
        c->last_tid = l->record.tid;
        for (size_t i = 0; i < THREADS_MAX; i++) {
                struct thread *t = &c->threads[i];

                if (t->tid == l->record.tid || t->tid == 0) {
                        oldest = t;
                        break;
                }
                if (t->at_ns < oldest->at_ns)
                        oldest = t;
        }
        if (oldest->tid == l->record.tid && oldest->seq > l->seq)
                return;
        *oldest = (struct thread){
                .tid = l->record.tid,
                .seq = l->seq,
                .at_ns = launch_return_ns(l),
        };
}

/*
 * A hole is a call under way or a lost event. It is lost when each thread has
 * launched again since (one that has not for long is not counted), or after a while.
 */
static bool hole_is_lost(const struct context *c, uint64_t hole, const struct launch *after)
{
        uint64_t now = c->process->correlator->now_ns;

        if (after->arrived_ns + HOLE_PATIENCE_NS <= now)
                return true;
        for (size_t i = 0; i < THREADS_MAX && c->threads[i].tid; i++)
                if (c->threads[i].seq < hole && c->threads[i].at_ns + HOLE_PATIENCE_NS > now)
                        return false;
        return true;
}

/* Where one thread does all the launching, calls whose events were lost overlap with none. */
bool window_hole_overlaps(const struct context *c, uint64_t hole, const struct launch *l)
{
        return hole > c->contiguous_seq ||
               (c->mixed_ns && c->mixed_ns + HOLE_PATIENCE_NS > l->record.cpu_enter_ns);
}

/* ---- in and out ---- */

int window_put(struct context *c, struct launch *l)
{
        bool newest = !c->sequenced || l->seq >= window_end(c);
        int r;

        if (c->sequenced && l->seq < c->first_seq)
                return -ERANGE;
        if (newest) {
                r = window_extend(c, l->seq);
                if (r < 0)
                        return r;
        }
        if (window_at(c, l->seq))
                return -EEXIST;
        *slot_of(c, l->seq) = l;
        l->windowed = true;
        if (c->settled > l->seq - c->first_seq)
                c->settled = l->seq - c->first_seq;
        operations_share(c, l);
        reach_set(c, l);
        if (!newest)
                reach_spread(c, l);
        thread_launched(c, l);
        window_known(c);
        return 0;
}

void window_seen(struct context *c, const struct cpu_operation_event *ev)
{
        if (c->sequenced && window_widen(c, ev->launch_seq) == c->contiguous_seq &&
            ev->enter_ns > c->known_until_ns)
                c->known_until_ns = ev->enter_ns;
}

void window_known(struct context *c)
{
        while (c->contiguous_seq + 1 < window_end(c)) {
                uint64_t hole = c->contiguous_seq + 1;
                const struct launch *l = window_at(c, hole);

                if (!l) {
                        l = window_next(c, hole);
                        if (!l || !hole_is_lost(c, hole, l))
                                return;
                        c->holes_lost += l->seq - hole;
                }
                c->contiguous_seq = l->seq;
                if (l->record.cpu_enter_ns > c->known_until_ns)
                        c->known_until_ns = l->record.cpu_enter_ns;
        }
}

/* Keep in sum what leaves the window. */
static void anchor_absorb(struct context *c, const struct launch *l)
{
        struct anchor *a = &c->anchor;

        if (!l) {
                a->possible++;
                return;
        }
        if (reach_after(l) > c->reach_ns)
                c->reach_ns = reach_after(l);
        if (l->pinned && l->seq >= c->anchor_from) {
                if (!a->valid || l->record.gridid > a->id)
                        *a = (struct anchor){.valid = true, .id = l->record.gridid};
                return;
        }
        a->definite += l->ops.definite + (l->consumes == CONSUMES_ONE);
        a->possible += l->ops.possible + (l->consumes != CONSUMES_NONE);
}

void window_trim(struct context *c)
{
        while (c->settled < c->count) {
                uint64_t seq = c->first_seq + c->settled;
                const struct launch *l = window_at(c, seq);

                if (l ? l->state != STATE_DONE : seq > c->contiguous_seq)
                        break;
                c->settled++;
        }
        while (c->settled > WINDOW_KEEP || (c->settled && c->count >= WINDOW_MAX)) {
                struct launch *l = window_at(c, c->first_seq);

                anchor_absorb(c, l);
                *slot_of(c, c->first_seq) = NULL;
                c->first_seq++;
                c->count--;
                c->settled--;
                if (l) {
                        l->windowed = false;
                        launch_discard(l);
                }
        }
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
