/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Graphs. A graph's kernel nodes take their grid ids, and launch descriptors of
 * their own, when the graph is instantiated, and keep them at every replay. So a
 * record says which node it is of; which exec the node is of follows from the
 * order of ids (they were taken between those of the launches before and after
 * the instantiation) and from what was replayed by then. Which replay it is of
 * follows from counting: replays of one exec do not overlap, and all its nodes run
 * in each. After a loss that is doubtful until a synchronise has found the exec
 * idle, unless only one replay can be meant.
 *
 * Launches into a stream that is being captured do not run and take no ids.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/cpu_abi.h"

#define REPLAYS_FIRST 16
#define GRAPHS_MAX    4096
#define LOOKS_MAX     256 /* nodes that wait, looked at */
#define EXTRA_IDS     1   /* an instantiation may take one more, in front */

/* ---- captures ---- */

static struct graph *graph_get(struct correlated_process *p, uint64_t handle)
{
        struct graph *g;

        HASH_FIND(hh, p->graphs, &handle, sizeof(handle), g);
        if (g)
                return g;
        if (HASH_CNT(hh, p->graphs) >= GRAPHS_MAX) {
                g = p->graphs;
                HASH_DELETE(hh, p->graphs, g);
                free(g);
        }
        g = calloc(1, sizeof(*g));
        if (!g)
                return NULL;
        g->handle = handle;
        HASH_ADD(hh, p->graphs, handle, sizeof(g->handle), g);
        return g;
}

static void capture_end(struct context *c, struct stream *s, const struct cpu_operation_event *ev)
{
        struct thread *t;
        struct graph *g;

        if (!s->capturing)
                return;
        s->capturing = false;
        c->captures--;
        t = thread_get(c, s->captor);
        if (t && t->captures)
                t->captures--;
        g = ev->result == 0 && ev->handle ? graph_get(c->process, ev->handle) : NULL;
        if (g) {
                g->kernels_min = s->captured;
                g->kernels_max = s->captured + c->maybe_captured;
        }
        if (c->captures == 0)
                c->maybe_captured = 0;
}

void graph_capture(struct context *c, const struct cpu_operation_event *ev, bool begin)
{
        struct stream *s = stream_get(c, ev->stream, ev->tid);
        struct thread *t;

        if (!s)
                return;
        if (!begin) {
                capture_end(c, s, ev);
                return;
        }
        if (ev->result != 0 || s->capturing)
                return;
        s->capturing = true;
        s->captured = 0;
        s->captor = ev->tid;
        c->captures++;
        t = thread_get(c, ev->tid);
        if (t)
                t->captures++;
}

void graph_captures(struct context *c, struct stream *s, uint32_t tid, uint32_t *ret_min,
                    uint32_t *ret_max)
{
        const struct thread *t = c->captures ? thread_get(c, tid) : NULL;

        *ret_min = *ret_max = !s->capturing;
        if (s->capturing) {
                s->captured++;
        } else if (t && t->captures) {
                /* An event may have drawn this stream into the capture. */
                c->maybe_captured++;
                *ret_min = 0;
        }
}

/* ---- execs ---- */

static struct graph_exec *exec_find(struct correlated_process *p, uint64_t handle)
{
        struct graph_exec *e;

        HASH_FIND(hh, p->execs, &handle, sizeof(handle), e);
        return e;
}

static void exec_forget_nodes(struct correlated_process *p, const struct graph_exec *e)
{
        struct node *n, *next;

        if (e->nodes == 0)
                return;
        HASH_ITER (hh, p->nodes, n, next) {
                if (n->exec != e)
                        continue;
                HASH_DELETE(hh, p->nodes, n);
                free(n);
        }
}

static void exec_bounded(struct correlated_process *p, struct graph_exec *e)
{
        if (!e->bounded)
                TAILQ_REMOVE(&p->unbounded, e, in_unbounded);
        e->bounded = true;
}

static void exec_free(struct correlated_process *p, struct graph_exec *e)
{
        exec_forget_nodes(p, e);
        exec_bounded(p, e);
        HASH_DELETE(hh, p->execs, e);
        free(e->replays);
        free(e);
}

static struct graph_exec *exec_new(struct correlated_process *p, uint64_t handle)
{
        struct graph_exec *e = exec_find(p, handle), *next;

        p->graphs_seen = true;
        if (e)
                exec_free(p, e);
        if (HASH_CNT(hh, p->execs) >= EXECS_MAX)
                HASH_ITER (hh, p->execs, e, next)
                        if (e->destroyed)
                                exec_free(p, e);
        if (HASH_CNT(hh, p->execs) >= EXECS_MAX)
                exec_free(p, p->execs);
        e = calloc(1, sizeof(*e));
        if (!e)
                return NULL;
        e->handle = handle;
        e->kernels_max = UNBOUNDED;
        e->id_high = UINT64_MAX;
        e->replays_first = 1;
        HASH_ADD(hh, p->execs, handle, sizeof(e->handle), e);
        TAILQ_INSERT_TAIL(&p->unbounded, e, in_unbounded);
        return e;
}

void graph_handle(struct correlated_process *p, const struct cpu_handle_event *ev)
{
        struct graph_exec *e;

        if (!ev->destroyed) {
                e = exec_new(p, ev->handle);
                if (e)
                        e->graph = ev->parent;
                return;
        }
        /* It may still be running. */
        e = exec_find(p, ev->handle);
        if (e)
                e->destroyed = true;
}

void graph_instantiate(struct context *c, const struct cpu_operation_event *ev)
{
        struct correlated_process *p = c->process;
        struct graph_exec *e = exec_find(p, ev->handle);
        uint64_t return_ns = ev->enter_ns + ev->duration_ns;
        struct graph *g = NULL;

        if (!ev->handle)
                return;
        if (!e || e->context)
                e = exec_new(p, ev->handle);
        if (!e) {
                ids_loosen(c, return_ns);
                return;
        }
        e->context = c;
        e->enter_ns = ev->enter_ns;
        e->hole = c->hole;
        e->return_ns = return_ns;
        HASH_FIND(hh, p->graphs, &e->graph, sizeof(e->graph), g);
        if (g) {
                e->kernels_min = g->kernels_min;
                e->kernels_max = g->kernels_max;
                ids_optional(p, ev->enter_ns, return_ns, g->kernels_max + EXTRA_IDS);
        } else {
                ids_loosen(c, return_ns);
        }
}

static bool before(const struct launch *l, uint64_t ns)
{
        return launch_return_ns(l) <= ns;
}

void graph_anchor(const struct launch *l, uint64_t id)
{
        struct correlated_process *p = l->context->process;
        struct graph_exec *e, *next;

        for (e = TAILQ_FIRST(&p->unbounded); e; e = next) {
                next = TAILQ_NEXT(e, in_unbounded);
                if (!e->context || !same_device(e->context, l->context))
                        continue;
                if (before(l, e->enter_ns) && id > e->id_low)
                        e->id_low = id;
                if (l->record.cpu_enter_ns < e->return_ns)
                        continue;
                if (id < e->id_high)
                        e->id_high = id;
                exec_bounded(p, e);
        }
}

void graph_ids(const struct correlated_process *p, uint64_t from_ns, uint64_t to_ns,
               uint64_t *ret_min, uint64_t *ret_max)
{
        const struct graph_exec *e;

        *ret_min = *ret_max = 0;
        TAILQ_FOREACH(e, &p->unbounded, in_unbounded)
        {
                if (!e->enter_ns || e->enter_ns < from_ns || e->return_ns > to_ns)
                        continue;
                *ret_min += e->kernels_min;
                *ret_max += (uint64_t)e->kernels_max + EXTRA_IDS;
        }
}

/* ---- replays ---- */

static uint64_t replays_end(const struct graph_exec *e)
{
        return e->replays_first + e->replays_count;
}

static struct replay *replay_at(const struct graph_exec *e, uint64_t number)
{
        if (number < e->replays_first || number >= replays_end(e))
                return NULL;
        return &e->replays[number & (e->replays_size - 1)];
}

static bool replays_reserve(struct graph_exec *e)
{
        size_t size = e->replays_size ? 2 * e->replays_size : REPLAYS_FIRST;
        struct replay *replays;

        if (e->replays_count < e->replays_size)
                return true;
        if (size > REPLAYS_MAX) {
                e->replays_first++;
                e->replays_count--;
                e->lossy = true;
                return true;
        }
        replays = calloc(size, sizeof(*replays));
        if (!replays)
                return false;
        for (uint64_t n = e->replays_first; n < replays_end(e); n++)
                replays[n & (size - 1)] = *replay_at(e, n);
        free(e->replays);
        e->replays = replays;
        e->replays_size = size;
        return true;
}

/* It was instantiated before anyone looked. */
static struct graph_exec *exec_unseen(struct context *c, const struct cpu_launch_event *ev)
{
        struct graph_exec *e = exec_new(c->process, ev->func);

        if (!e)
                return NULL;
        e->return_ns = ev->enter_ns;
        e->lossy = true;
        return e;
}

void graph_launch(struct context *c, const struct cpu_launch_event *ev)
{
        struct graph_exec *e = exec_find(c->process, ev->func);
        struct replay *last;
        bool overlaps;

        if (!e)
                e = exec_unseen(c, ev);
        if (!e || !replays_reserve(e))
                return;
        if (!e->context)
                e->context = c;
        e->replays_count++;
        last = replay_at(e, replays_end(e) - 2);
        overlaps = last && last->record.cpu_return_ns > ev->enter_ns && last->record.tid != ev->tid;
        if (overlaps)
                last->overlaps = true;
        *replay_at(e, replays_end(e) - 1) =
                (struct replay){.overlaps = overlaps,
                                .record = {
                                        .process_key = c->process->key,
                                        .context = c->handle,
                                        .stream = ev->stream,
                                        .graph_exec = ev->func,
                                        .cpu_enter_ns = ev->enter_ns,
                                        .cpu_return_ns = ev->enter_ns + ev->duration_ns,
                                        .tid = ev->tid,
                                        .has = c->handle ? LAUNCH_HAS_CONTEXT : 0,
                                }};
}

/* Those before the one that runs now have ended. */
static void replays_forget(struct graph_exec *e)
{
        while (e->replays_count && e->replays_first < e->current) {
                e->replays_first++;
                e->replays_count--;
        }
}

static bool replay_entered(const struct graph_exec *e, uint64_t number, const struct held *h)
{
        const struct replay *r = replay_at(e, number);
        uint32_t error_ns;
        uint64_t cpu_ns;

        return r && (!e->context || !record_time(h, e->context, &cpu_ns, &error_ns) ||
                     (int64_t)(r->record.cpu_enter_ns - cpu_ns) <= (int64_t)error_ns);
}

/* First replay that can run when h started. */
static uint64_t replay_low(const struct graph_exec *e, const struct held *h)
{
        uint64_t low = e->current > e->replays_first ? e->current : e->replays_first;

        if (h->converted && e->synced >= low && h->cpu_ns > e->synced_ns + h->error_ns)
                return e->synced + 1;
        return low;
}

void graph_synced(struct context *c, uint64_t enter_ns, uint64_t at_ns)
{
        struct graph_exec *e, *next;

        HASH_ITER (hh, c->process->execs, e, next) {
                uint64_t last = replays_end(e) - 1;
                const struct replay *r;

                if (e->context != c)
                        continue;
                while ((r = replay_at(e, last)) && r->record.cpu_return_ns > enter_ns)
                        last--;
                if (last < e->synced)
                        continue;
                e->synced = last;
                e->synced_ns = at_ns;
                e->synced_from_ns = enter_ns;
                e->synced_gap = c->process->gap;
        }
}

/* ---- nodes ---- */

static struct node_key node_key(const struct held *h)
{
        return (struct node_key){h->gridid, (uint64_t)h->tag << 32 | h->queue};
}

static struct node *node_find(const struct correlated_process *p, const struct held *h)
{
        struct node_key key = node_key(h);
        struct node *n;

        HASH_FIND(hh, p->nodes, &key, sizeof(key), n);
        return n;
}

static bool exec_may_own(const struct graph_exec *e, const struct held *h)
{
        if (!e->context || h->gridid <= e->id_low || h->gridid >= e->id_high)
                return false;
        if (!match_tag(h, e->context) || !device_possible(h, e->context))
                return false;
        /* Once a replay is over, all its nodes have been seen. */
        if (!e->doubtful && (e->nodes >= e->kernels_max || (!e->lossy && e->current > 1)))
                return false;
        return replay_entered(e, replay_low(e, h), h);
}

/* One that was instantiated before, or after, took so many ids that h's cannot be e's. */
static bool crowded_out(const struct correlated_process *p, const struct graph_exec *e,
                        const struct held *h)
{
        const struct graph_exec *o, *next;

        HASH_ITER (hh, p->execs, o, next) {
                if (o == e || !o->enter_ns || !o->context || !same_device(o->context, e->context))
                        continue;
                if (o->return_ns <= e->enter_ns && h->gridid <= o->id_low + o->kernels_min)
                        return true;
                if (o->enter_ns >= e->return_ns && o->id_high != UINT64_MAX &&
                    h->gridid + o->kernels_min >= o->id_high)
                        return true;
        }
        return false;
}

/* Execs whose node h can be of: how many, and the one instantiated last. */
static size_t owners(const struct correlated_process *p, const struct held *h,
                     struct graph_exec **ret_exec)
{
        struct graph_exec *e, *next;
        size_t count = 0;

        *ret_exec = NULL;
        HASH_ITER (hh, p->execs, e, next) {
                if (!exec_may_own(e, h) || crowded_out(p, e, h))
                        continue;
                if (count++ == 0 || e->enter_ns > (*ret_exec)->enter_ns)
                        *ret_exec = e;
        }
        return count;
}

bool graph_known(struct correlated_process *p, const struct held *h)
{
        return node_find(p, h) != NULL;
}

bool graph_may_be(struct correlated_process *p, const struct held *h)
{
        struct graph_exec *e;

        return p->execs && (node_find(p, h) || owners(p, h, &e));
}

/*
 * A graph that was instantiated before l was entered has a node with a higher id, and l's is
 * higher than all of them. Where all were, it does not matter whose a node is that still waits.
 */
bool graph_passed(const struct correlated_process *p, const struct held *h, const struct launch *l)
{
        const struct graph_exec *e, *next;
        const struct held *node;
        unsigned int looks = 0;
        bool all = true;

        HASH_ITER (hh, p->execs, e, next) {
                bool earlier = e->context && e->return_ns <= l->record.cpu_enter_ns;

                if (earlier && e->id_last > h->gridid && same_device(e->context, l->context))
                        return true;
                all &= earlier;
        }
        if (!all || several_devices(p))
                return false;
        TAILQ_FOREACH(node, &p->node_starts, in_list)
        {
                if (node->queue && node->gridid > h->gridid)
                        return true;
                if (++looks == LOOKS_MAX)
                        break;
        }
        return false;
}

static struct node *node_new(struct correlated_process *p, struct graph_exec *e,
                             const struct held *h)
{
        struct graph_exec *other;
        struct node *n;

        if (HASH_CNT(hh, p->nodes) >= NODES_MAX)
                return NULL;
        n = calloc(1, sizeof(*n));
        if (!n)
                return NULL;
        n->key = node_key(h);
        n->exec = e;
        n->epoch = e->epoch;
        n->certain = h->queue && e->enter_ns && e->hole == e->context->hole;
        HASH_ADD(hh, p->nodes, key, sizeof(n->key), n);
        e->nodes++;
        /* Instantiations one after the other took their ids so, too. */
        TAILQ_FOREACH(other, &p->unbounded, in_unbounded)
        {
                if (other == e || !other->context || !same_device(other->context, e->context))
                        continue;
                if (other->return_ns <= e->enter_ns && h->gridid < other->id_high)
                        other->id_high = h->gridid;
                if (other->enter_ns >= e->return_ns && h->gridid > other->id_low)
                        other->id_low = h->gridid;
        }
        return n;
}

/* Of which of several execs it is, the others' nodes are not all known either. */
static struct node *node_guess(struct correlated_process *p, struct graph_exec *of,
                               const struct held *h)
{
        struct graph_exec *e, *next;
        struct node *n;

        HASH_ITER (hh, p->execs, e, next)
                if (exec_may_own(e, h))
                        e->doubtful = true;
        n = node_new(p, of, h);
        if (n)
                n->certain = false;
        return n;
}

/* NULL: it cannot be said yet, or (drop) ever. */
static struct node *node_of(struct correlated_process *p, const struct held *h, bool *ret_drop)
{
        struct node *n = node_find(p, h);
        struct graph_exec *e;
        size_t count;

        *ret_drop = false;
        if (n)
                return n;
        count = owners(p, h, &e);
        *ret_drop = count == 0;
        if (count == 1) {
                n = node_new(p, e, h);
                if (n && n->certain && h->gridid > e->id_last)
                        e->id_last = h->gridid;
                return n;
        }
        if (count == 0 || !record_aged(p, h, DOUBT_PATIENCE_NS))
                return NULL;
        return node_guess(p, e, h);
}

/* Nothing was lost between the time when a synchronise found the exec idle and h. */
static bool idle_before(const struct graph_exec *e, const struct held *h)
{
        return h->converted && h->cpu_ns > e->synced_ns + h->error_ns &&
               e->synced_from_ns >= e->holed_ns && h->gap == e->synced_gap;
}

static void replay_begins(struct graph_exec *e, const struct held *h, uint64_t number)
{
        if (e->lossy && number == e->synced + 1 && e->synced >= e->current && idle_before(e, h)) {
                e->lossy = false;
                e->epoch++;
        }
        e->current = number;
        replays_forget(e);
}

/* The last replay that was entered by then. */
static uint64_t replay_high(const struct graph_exec *e, const struct held *h)
{
        uint64_t number = replays_end(e) - 1;

        while (number >= e->replays_first && !replay_entered(e, number, h))
                number--;
        return number;
}

/* Nothing but this replay is possible, whatever was believed of earlier ones. */
static bool single(const struct node *n, const struct held *h, uint64_t number)
{
        const struct graph_exec *e = n->exec;
        uint64_t low = e->sure > n->sure ? e->sure : n->sure + 1;

        if (e->holed_ns && !idle_before(e, h))
                return false;
        if (h->converted && h->cpu_ns > e->synced_ns + h->error_ns && e->synced >= low)
                low = e->synced + 1;
        return low >= number && replay_high(e, h) <= number;
}

static void node_started(struct node *n, struct held *h, uint64_t number)
{
        struct graph_exec *e = n->exec;
        struct correlated_process *p = e->context->process;
        struct launch *l = launch_new(e->context);
        bool counted;

        if (!l) {
                record_drop(p, h);
                return;
        }
        l->record = replay_at(e, number)->record;
        l->match_ordered = replay_at(e, number)->overlaps;
        if (number != e->current)
                replay_begins(e, h, number);
        counted = number == n->last_replay + 1 || n->epoch != e->epoch || n->last_replay == 0;
        l->match_inferred = !n->certain || ((e->lossy || !counted) && !single(n, h, number));
        if (!l->match_inferred && !l->match_ordered)
                e->sure = n->sure = number;
        n->last_replay = number;
        n->epoch = e->epoch;
        p->ledger->produced++;
        record_take(p, h, l);
}

/*
 * Records that do not tell their stream wait elsewhere until it is known what they are: of nodes,
 * perhaps, that started before this one, maybe in an earlier replay.
 */
static bool others_first(const struct correlated_process *p, const struct held *h)
{
        const struct lane *lane;
        const struct held *other;
        unsigned int looks = 0;

        TAILQ_FOREACH(lane, &p->busy, in_busy)
        {
                if (!lane_of_process(lane))
                        continue;
                TAILQ_FOREACH(other, &lane->records, in_list)
                {
                        if (other->time_ns < h->time_ns && other->device == h->device)
                                return true;
                        if (++looks == LOOKS_MAX)
                                return false;
                }
        }
        return false;
}

/* True: h is dealt with, and gone. */
static bool node_try(struct correlated_process *p, struct held *h)
{
        struct node *n;
        uint64_t number;
        bool dropped;

        if (record_resolve(p, h, tag_device(p, h->tag)) == -EAGAIN || !launches_known(p, h))
                return false;
        if (h->queue && others_first(p, h) && !record_aged(p, h, DOUBT_PATIENCE_NS))
                return false;
        n = node_of(p, h, &dropped);
        if (n && h->kernel) {
                (void)record_convert(p, h, context_device(n->exec->context));
                number = replay_low(n->exec, h);
                if (n->last_replay >= number)
                        number = n->last_replay + 1;
                if (replay_entered(n->exec, number, h)) {
                        node_started(n, h, number);
                        return true;
                }
        }
        if (!dropped && !record_aged(p, h, RECORD_PATIENCE_NS))
                return false;
        record_drop(p, h);
        return true;
}

/* In order: what an exec has started tells of the records that come later. */
static void nodes_run(struct correlated_process *p)
{
        struct held *h;

        while ((h = TAILQ_FIRST(&p->node_starts))) {
                /* Out of the list first: it may be freed. */
                TAILQ_REMOVE(&p->node_starts, h, in_list);
                if (node_try(p, h))
                        continue;
                TAILQ_INSERT_HEAD(&p->node_starts, h, in_list);
                return;
        }
}

void graph_start(struct correlated_process *p, struct held *h)
{
        struct held *last;

        if (TAILQ_EMPTY(&p->node_starts) && node_try(p, h))
                return;
        /* It may have been waiting elsewhere while nodes of later replays came. */
        last = TAILQ_LAST(&p->node_starts, held_head);
        while (last && last->time_ns > h->time_ns && last->device == h->device)
                last = TAILQ_PREV(last, held_head, in_list);
        if (last)
                TAILQ_INSERT_AFTER(&p->node_starts, last, h, in_list);
        else
                TAILQ_INSERT_HEAD(&p->node_starts, h, in_list);
}

/* ---- the rest ---- */

void graph_gap(struct correlated_process *p)
{
        struct graph_exec *e, *next;

        HASH_ITER (hh, p->execs, e, next)
                if (e->replays_count)
                        e->lossy = true;
}

void graph_hole(struct context *c, uint64_t at_ns)
{
        struct graph_exec *e, *next;

        HASH_ITER (hh, c->process->execs, e, next) {
                if (e->context != c)
                        continue;
                e->lossy = true;
                e->holed_ns = at_ns;
        }
}

void graph_tick(struct correlated_process *p)
{
        nodes_run(p);
}

void graph_forget(struct context *c)
{
        struct graph_exec *e, *next;

        HASH_ITER (hh, c->process->execs, e, next)
                if (e->context == c)
                        exec_free(c->process, e);
}

void graph_done(struct correlated_process *p)
{
        struct graph_exec *e, *next_exec;
        struct graph *g, *next_graph;
        struct held *h;

        nodes_run(p);
        while ((h = TAILQ_FIRST(&p->node_starts))) {
                TAILQ_REMOVE(&p->node_starts, h, in_list);
                record_drop(p, h);
        }
        HASH_ITER (hh, p->execs, e, next_exec)
                exec_free(p, e);
        HASH_ITER (hh, p->graphs, g, next_graph) {
                HASH_DELETE(hh, p->graphs, g);
                free(g);
        }
}
