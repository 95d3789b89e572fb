/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Device records that wait. Starts wait by grid id for align.c to come to their
 * id; a start whose id was passed is a stray: a graph's node, or of a launch
 * that was given the id before its record came, else nobody's. An end finds its
 * launch by grid id and kernel among those that run.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#include "device/device_abi.h"

#define HELD_FIRST      1024
#define LOSS_BUDGET_MAX 65536
#define STRAYS_MAX      4096 /* looked at in a tick */
#define STARTS_MAX      256  /* likewise */

/* ---- table ---- */

static size_t slot_of(const struct correlated_process *p, uint64_t gridid)
{
        return gridid & (p->held_size - 1);
}

static bool held_grow(struct correlated_process *p)
{
        size_t size = p->held_size ? 4 * p->held_size : HELD_FIRST, old = p->held_size;
        struct held **table = calloc(size, sizeof(*table)), **from = p->held;

        if (!table)
                return false;
        p->held = table;
        p->held_size = size;
        for (size_t i = 0; i < old; i++)
                for (struct held *h = from[i], *next; h; h = next) {
                        next = h->hash_next;
                        h->hash_next = table[slot_of(p, h->gridid)];
                        table[slot_of(p, h->gridid)] = h;
                }
        free(from);
        return true;
}

static struct held_head *list_of(struct correlated_process *p, const struct held *h)
{
        if (h->type == DEVICE_RECORD_END)
                return &p->ends;
        return h->stray ? &p->strays : &p->starts;
}

static void held_add(struct correlated_process *p, struct held *h)
{
        size_t slot = slot_of(p, h->gridid);

        h->hash_next = p->held[slot];
        p->held[slot] = h;
        p->held_count++;
        TAILQ_INSERT_TAIL(list_of(p, h), h, in_list);
}

static void held_remove(struct correlated_process *p, struct held *h)
{
        struct held **at = &p->held[slot_of(p, h->gridid)];

        while (*at != h)
                at = &(*at)->hash_next;
        *at = h->hash_next;
        p->held_count--;
        TAILQ_REMOVE(list_of(p, h), h, in_list);
        free(h);
}

static struct held *next_start(struct held *h, uint64_t gridid)
{
        while (h && (h->gridid != gridid || h->type != DEVICE_RECORD_START || h->stray))
                h = h->hash_next;
        return h;
}

struct held *record_first(const struct correlated_process *p, uint64_t gridid)
{
        return p->held_size ? next_start(p->held[slot_of(p, gridid)], gridid) : NULL;
}

struct held *record_next(const struct held *h)
{
        return next_start(h->hash_next, h->gridid);
}

void record_stray(struct correlated_process *p, struct held *h)
{
        TAILQ_REMOVE(&p->starts, h, in_list);
        h->stray = true;
        TAILQ_INSERT_TAIL(&p->strays, h, in_list);
}

static void held_drop(struct correlated_process *p, struct held *h)
{
        p->ledger->lost[LOSS_device_record_unmatched]++;
        held_remove(p, h);
}

/* ---- times ---- */

int record_convert(struct correlated_process *p, struct held *h)
{
        int r;

        if (h->converted || !p->clock)
                return 0;
        r = clock_model_to_cpu(p->clock, h->time_ns, &h->cpu_ns, &h->error_ns);
        h->converted = r == 0;
        if (r == -EAGAIN && h->arrived_ns + CLOCK_PATIENCE_NS > p->correlator->now_ns)
                return -EAGAIN;
        return 0;
}

bool record_may_be(const struct held *h, const struct launch *l)
{
        return !h->converted || l->record.cpu_enter_ns <= h->cpu_ns + h->error_ns;
}

/* ---- launches that have an id and wait for its record ---- */

void late_add(struct launch *l, uint64_t gridid)
{
        struct launch **slot = &l->context->process->late[gridid % LATE_SLOTS];

        l->record.gridid = gridid;
        l->pinned = true;
        l->late = true;
        l->hash_next = *slot;
        *slot = l;
}

void late_remove(struct launch *l)
{
        struct launch **at = &l->context->process->late[l->record.gridid % LATE_SLOTS];

        if (!l->late)
                return;
        while (*at != l)
                at = &(*at)->hash_next;
        *at = l->hash_next;
        l->late = false;
}

static bool late_fits(struct correlated_process *p, struct launch *l, const struct held *h,
                      const struct kernel *k)
{
        return function_identity(p, l->function, k) != IDENTITY_DIFFERS && record_may_be(h, l);
}

static struct launch *late_find(struct correlated_process *p, const struct held *h,
                                const struct kernel *k)
{
        struct launch *l;

        for (l = p->late[h->gridid % LATE_SLOTS]; l; l = l->hash_next)
                if (l->record.gridid == h->gridid && late_fits(p, l, h, k))
                        return l;
        return NULL;
}

/* ---- ends ---- */

static struct held *end_find(struct correlated_process *p, const struct launch *l)
{
        struct held *h = p->held_size ? p->held[slot_of(p, l->record.gridid)] : NULL;

        for (; h; h = h->hash_next)
                if (h->type == DEVICE_RECORD_END && h->gridid == l->record.gridid &&
                    h->kernel_id == l->kernel->kernel_id && h->time_ns >= l->start_gpu_ns)
                        return h;
        return NULL;
}

static void end_take(struct correlated_process *p, struct launch *l)
{
        struct held *h = end_find(p, l);

        if (!h)
                return;
        (void)record_convert(p, h);
        launch_ended(l, h);
        held_remove(p, h);
}

void record_take(struct correlated_process *p, struct held *h, struct kernel *k, struct launch *l)
{
        struct held copy = *h;

        held_remove(p, h);
        if (k->exit_probed && p->held_count) {
                launch_started(l, &copy, k);
                if (l->state == STATE_RUNNING)
                        end_take(p, l);
        } else {
                launch_started(l, &copy, k);
        }
}

/* ---- strays ---- */

static bool stray_match(struct correlated_process *p, struct held *h)
{
        struct kernel *k = kernel_find(p, h->kernel_id);
        struct graph_exec *exec = NULL;
        struct context *c, *next;
        struct launch *l;

        if (!k || record_convert(p, h) < 0)
                return false;
        l = late_find(p, h, k);
        if (l) {
                record_take(p, h, k, l);
                return true;
        }
        HASH_ITER (hh, p->contexts, c, next) {
                enum graph_claim claim = p->execs ? graph_claims(c, h, k, &exec) : GRAPH_NO;

                if (claim != GRAPH_YES && claim != GRAPH_MAYBE)
                        continue;
                graph_start(exec, h, k);
                held_remove(p, h);
                return true;
        }
        return false;
}

static bool node_known(struct correlated_process *p, const struct held *h)
{
        struct kernel *k = p->execs ? kernel_find(p, h->kernel_id) : NULL;
        struct context *c, *next;

        if (!k)
                return false;
        HASH_ITER (hh, p->contexts, c, next) {
                struct graph_exec *exec;
                enum graph_claim claim = graph_claims(c, h, k, &exec);

                if (claim == GRAPH_YES || claim == GRAPH_WAIT)
                        return true;
        }
        return false;
}

/* Every context that could want it has gone by this id. */
static bool passed_by(struct correlated_process *p, uint64_t gridid)
{
        struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next) {
                /* No id known and no call waits: it can only be a graph's. */
                bool only_graphs = !c->anchored && p->execs && TAILQ_EMPTY(&c->busy);

                if (!only_graphs && (!c->anchored || c->next_id <= gridid))
                        return false;
        }
        return p->contexts != NULL;
}

/* ---- arrival ---- */

static void start_arrived(struct correlated_process *p, struct held *h)
{
        if (h->time_ns > p->newest_gpu_ns)
                p->newest_gpu_ns = h->time_ns;
        (void)record_convert(p, h);
        h->stray = passed_by(p, h->gridid) || node_known(p, h);
        held_add(p, h);
        if (h->stray && (!TAILQ_PREV(h, held_head, in_list) || !p->execs))
                (void)stray_match(p, h);
}

static void end_arrived(struct correlated_process *p, struct held *h)
{
        struct launch *l = launch_running(p, h);

        if (!l) {
                held_add(p, h);
                return;
        }
        (void)record_convert(p, h);
        launch_ended(l, h);
        free(h);
}

void records_put(struct correlated_process *p, const struct device_record *r)
{
        uint8_t type = DEVICE_RECORD_TYPE(r);
        uint64_t gridid = DEVICE_RECORD_GRIDID(r);
        struct held *h;

        if ((type != DEVICE_RECORD_START && type != DEVICE_RECORD_END) || gridid == 0) {
                p->ledger->lost[LOSS_device_record_garbage]++;
                return;
        }
        h = p->held_count < HELD_MAX ? calloc(1, sizeof(*h)) : NULL;
        if (!h || (p->held_count >= p->held_size && !held_grow(p) && !p->held_size)) {
                free(h);
                p->ledger->lost[LOSS_device_record_unmatched]++;
                return;
        }
        *h = (struct held){
                .time_ns = r->time_ns,
                .gridid = gridid,
                .kernel_id = DEVICE_RECORD_KERNEL(r),
                .smid = DEVICE_RECORD_SMID(r),
                .type = type,
                .arrived_ns = p->correlator->now_ns,
        };
        if (type == DEVICE_RECORD_START)
                start_arrived(p, h);
        else
                end_arrived(p, h);
}

void records_gap(struct correlated_process *p, uint64_t lost)
{
        struct context *c, *next;

        if (lost > LOSS_BUDGET_MAX)
                lost = LOSS_BUDGET_MAX;
        /* The records before the gap were complete: judge them as such. */
        align_run(p, false);
        HASH_ITER (hh, p->contexts, c, next) {
                c->gap_budget += lost;
                if (c->gap_budget > LOSS_BUDGET_MAX)
                        c->gap_budget = LOSS_BUDGET_MAX;
        }
        graph_gap(p);
}

/* ---- time ---- */

static void expire(struct correlated_process *p, struct held_head *list, bool last)
{
        struct held *h;

        while ((h = TAILQ_FIRST(list)) &&
               (last || h->arrived_ns + RECORD_PATIENCE_NS <= p->correlator->now_ns))
                held_drop(p, h);
}

void records_tick(struct correlated_process *p, bool last)
{
        struct held *h, *next;
        unsigned int steps = 0;

        for (h = TAILQ_FIRST(&p->starts); h && steps++ < STARTS_MAX; h = next) {
                next = TAILQ_NEXT(h, in_list);
                if (passed_by(p, h->gridid))
                        record_stray(p, h);
        }
        steps = 0;
        for (h = TAILQ_FIRST(&p->strays); h && steps++ < STRAYS_MAX; h = next) {
                next = TAILQ_NEXT(h, in_list);
                (void)stray_match(p, h);
        }
        for (h = TAILQ_FIRST(&p->ends), steps = 0; h && steps++ < STRAYS_MAX; h = next) {
                struct launch *l = launch_running(p, h);

                next = TAILQ_NEXT(h, in_list);
                if (l) {
                        (void)record_convert(p, h);
                        launch_ended(l, h);
                        held_remove(p, h);
                }
        }
        expire(p, &p->strays, last);
        expire(p, &p->starts, last);
        expire(p, &p->ends, last);
}

void records_done(struct correlated_process *p)
{
        struct held_head *lists[] = {&p->starts, &p->ends, &p->strays};

        for (size_t i = 0; i < 3; i++)
                while (!TAILQ_EMPTY(lists[i]))
                        held_remove(p, TAILQ_FIRST(lists[i]));
        free(p->held);
}
