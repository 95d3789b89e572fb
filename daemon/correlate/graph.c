/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Graphs. A graph's kernel nodes take their grid ids when the graph is
 * instantiated and keep them at every replay, so the id says which node, and
 * only the order in time says which replay. Replays of one exec never overlap:
 * a node that starts for the second time begins the next replay, and when one
 * has begun all nodes are known. A synchronise tells so too.
 *
 * Which ids are whose is learned: ids taken at the place of the instantiation,
 * seen to start while a replay was outstanding. A graph that was captured from a
 * stream tells how many to expect, since the captured launches were seen. They
 * themselves never run and take no id.
 */
#include "correlate/join.h"

#include <stdlib.h>

#include "cpu/cpu_abi.h"

#define REPLAYS_FIRST 16
#define GRAPHS_MAX    4096

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
        struct graph *g;

        if (!s->capturing)
                return;
        s->capturing = false;
        c->captures--;
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
        c->captures++;
}

void graph_captures(struct context *c, struct stream *s, uint32_t *ret_min, uint32_t *ret_max)
{
        *ret_min = *ret_max = !s->capturing;
        if (s->capturing) {
                s->captured++;
        } else if (c->captures) {
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

static void exec_forget_nodes(struct graph_exec *e)
{
        struct node *n, *next;

        if (!e->context)
                return;
        HASH_ITER (hh, e->context->nodes, n, next) {
                if (n->exec != e)
                        continue;
                HASH_DELETE(hh, e->context->nodes, n);
                e->context->process->node_count--;
                free(n);
        }
}

static void exec_free(struct correlated_process *p, struct graph_exec *e)
{
        exec_forget_nodes(e);
        HASH_DELETE(hh, p->execs, e);
        free(e->replays);
        free(e);
}

static struct graph_exec *exec_new(struct correlated_process *p, uint64_t handle)
{
        struct graph_exec *e = exec_find(p, handle), *next;

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
        e->replays_first = 1;
        HASH_ADD(hh, p->execs, handle, sizeof(e->handle), e);
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
        struct graph *g = NULL;

        if (ev->result != 0 || !ev->handle)
                return;
        if (!e || e->context)
                e = exec_new(p, ev->handle);
        if (e) {
                e->context = c;
                HASH_FIND(hh, p->graphs, &e->graph, sizeof(e->graph), g);
        }
        if (e && g) {
                e->kernels_min = g->kernels_min;
                e->kernels_max = g->kernels_max;
        }
        order_operation(c, ev, e ? e->kernels_min : 0, e ? e->kernels_max : UNBOUNDED, ev->handle);
}

/* ---- replays ---- */

static uint64_t replays_end(const struct graph_exec *e)
{
        return e->replays_first + e->replays_count;
}

static const struct replay *replay_at(const struct graph_exec *e, uint64_t number)
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

/* Those before the one that runs now have ended. */
static void replays_forget(struct graph_exec *e)
{
        while (e->replays_count && e->replays_first < e->current) {
                e->replays_first++;
                e->replays_count--;
        }
}

void graph_launch(struct context *c, const struct cpu_launch_event *ev)
{
        struct graph_exec *e = exec_find(c->process, ev->func);
        struct launch_record *r;

        if (ev->result != 0)
                return;
        if (!e) {
                e = exec_new(c->process, ev->func);
                /* It was instantiated before anyone looked. */
                if (e) {
                        e->context = c;
                        e->id_low = 1;
                        e->id_high = c->anchored ? c->next_id - 1 : UINT64_MAX;
                }
        }
        if (!e || !replays_reserve(e))
                return;
        r = &e->replays[replays_end(e) & (e->replays_size - 1)].record;
        e->replays_count++;
        *r = (struct launch_record){
                .process_key = c->process->key,
                .context = c->handle,
                .stream = ev->stream,
                .graph_exec = ev->func,
                .cpu_enter_ns = ev->enter_ns,
                .cpu_return_ns = ev->enter_ns + ev->duration_ns,
                .tid = ev->tid,
                .has = c->handle ? LAUNCH_HAS_CONTEXT : 0,
        };
}

static bool replay_entered(const struct graph_exec *e, uint64_t number, const struct held *h)
{
        const struct replay *r = replay_at(e, number);

        return r && (!h->converted || r->record.cpu_enter_ns <= h->cpu_ns + h->error_ns);
}

/* The replay that a start at this time belongs to; last: the one the node was last seen in. */
static uint64_t replay_of(const struct graph_exec *e, const struct held *h, uint64_t last)
{
        uint64_t current = e->current ? e->current : 1;

        if (current < e->replays_first)
                current = e->replays_first;
        if (h->converted && h->cpu_ns > e->synced_ns + h->error_ns && current <= e->synced)
                return e->synced + 1;
        return last >= current ? last + 1 : current;
}

void graph_ids(struct correlated_process *p, uint64_t exec, uint64_t low, uint64_t high)
{
        struct graph_exec *e = exec_find(p, exec);

        if (!e || low > high)
                return;
        if (!e->id_low)
                e->id_low = low;
        if (high > e->id_high)
                e->id_high = high;
}

bool graph_entered(struct correlated_process *p, uint64_t exec, const struct held *h)
{
        const struct graph_exec *e = exec_find(p, exec);

        return e && replay_entered(e, replay_of(e, h, 0), h);
}

static struct node *node_find(const struct context *c, uint64_t gridid)
{
        struct node *n;

        HASH_FIND(hh, c->nodes, &gridid, sizeof(gridid), n);
        return n;
}

static bool exec_open(const struct graph_exec *e, const struct context *c, const struct held *h)
{
        if (e->context != c || e->closed || e->nodes >= e->kernels_max)
                return false;
        if (!replay_entered(e, replay_of(e, h, 0), h))
                return false;
        /* Once a replay is over, all its nodes have been seen. */
        if (e->current && !e->lossy && replay_of(e, h, 0) > e->current)
                return false;
        return e->id_low && h->gridid >= e->id_low && h->gridid <= e->id_high;
}

enum graph_claim graph_claims(struct context *c, const struct held *h, struct kernel *k,
                              struct graph_exec **ret_exec)
{
        struct graph_exec *e, *next, *best = NULL;
        struct node *n = node_find(c, h->gridid);

        if (n) {
                if (!kernel_same(n->kernel, k))
                        return GRAPH_NO;
                *ret_exec = n->exec;
                return replay_entered(n->exec, replay_of(n->exec, h, n->last_replay), h)
                               ? GRAPH_YES
                               : GRAPH_WAIT;
        }
        HASH_ITER (hh, c->process->execs, e, next)
                if (exec_open(e, c, h) && (!best || e->id_low > best->id_low))
                        best = e;
        if (!best)
                return GRAPH_NO;
        *ret_exec = best;
        return GRAPH_MAYBE;
}

static struct node *node_get(struct graph_exec *e, uint64_t gridid, struct kernel *k)
{
        struct context *c = e->context;
        struct node *n = node_find(c, gridid);

        if (n || c->process->node_count >= NODES_MAX)
                return n;
        n = calloc(1, sizeof(*n));
        if (!n)
                return NULL;
        n->gridid = gridid;
        n->exec = e;
        n->kernel = k;
        HASH_ADD(hh, c->nodes, gridid, sizeof(n->gridid), n);
        c->process->node_count++;
        e->nodes++;
        return n;
}

static void replay_begins(struct graph_exec *e, uint64_t number)
{
        if (e->current && !e->lossy)
                e->closed = true;
        if (number > e->synced && e->synced >= e->current)
                e->lossy = false;
        e->current = number;
        replays_forget(e);
}

void graph_start(struct graph_exec *e, const struct held *h, struct kernel *k)
{
        struct node *n = node_get(e, h->gridid, k);
        uint64_t number = replay_of(e, h, n ? n->last_replay : 0);
        const struct replay *r = replay_at(e, number);
        struct launch *l = n && r ? launch_new(e->context) : NULL;

        if (!l) {
                e->context->process->ledger->lost[LOSS_device_record_unmatched]++;
                return;
        }
        l->record = r->record;
        l->match_ordered = replay_entered(e, number + 1, h);
        l->match_inferred = e->lossy;
        n->last_replay = number;
        if (number != e->current)
                replay_begins(e, number);
        e->context->process->ledger->produced++;
        launch_started(l, h, k);
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
        }
}

void graph_gap(struct correlated_process *p)
{
        struct graph_exec *e, *next;

        HASH_ITER (hh, p->execs, e, next)
                if (e->replays_count)
                        e->lossy = true;
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

        HASH_ITER (hh, p->execs, e, next_exec)
                exec_free(p, e);
        HASH_ITER (hh, p->graphs, g, next_graph) {
                HASH_DELETE(hh, p->graphs, g);
                free(g);
        }
}
