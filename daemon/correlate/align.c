/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Who took which grid id. A context gives its ids in ascending order, one at a
 * time; so they are settled in that order, one at a time. The next id can only
 * be of a call at the head of some thread's lane (a thread has one call at a
 * time, and they take ids in order), and of those only of one that was entered
 * before the earliest return among them (a call that had returned has taken its
 * id before one that was entered later). That leaves one candidate for each
 * thread at most. Calls that may have taken an id, or none (a memset), stand in
 * front of the thread's next launch and hide nothing.
 *
 * A start record with the id is there: of the candidates those fit whose
 * function means its kernel, which were entered before it started, and whose
 * stream's earlier launches have started, and not later. One: it is the
 * record's. Several: that one with which the records of the next ids find their
 * launches too; they are confused, and until all of them are matched, and those
 * that could take part in the confusion, matches are called ordered.
 *
 * There is none, but one with a higher id: the id was taken by something without a
 * record, or its kernel has not started yet. What the next record fits after
 * each possibility excludes some. If a doubt is left it waits for the record for
 * a while, and then prefers what makes no records.
 *
 * Nothing fits: the record is a graph node's, another context's, or of a launch
 * that went unseen; it is passed over. If one after the other fits nowhere, what
 * was believed is wrong: the next launch of that kernel is taken for its, and
 * what follows is inferred until a while has gone well.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#define FRONT_MAX     128
#define LANE_DEPTH    64 /* calls that may take ids in front of one that must */
#define LOOK_LANES    16
#define LOOK_DEPTH    24
#define LOOK_BUDGET   1024
#define PROBE_IDS     64
#define PROBE_RECORDS 4096
#define MISFITS_MAX   8
#define UNSURE_AFTER  16
#define SEARCH_DEPTH  512
#define PASSED_KEEP   64

enum verdict { VERDICT_WAIT, VERDICT_DONE };

/* Calls that can have taken the next id. */
struct front {
        struct call *calls[FRONT_MAX];
        size_t count;
        uint64_t return_ns; /* earliest return of one that must have */
};

/* ---- what fits ---- */

enum strictness {
        FITS_LOOSE,   /* kernel and times only */
        FITS_STARTED, /* ... its stream's earlier launches have started */
        FITS_ORDERED, /* ... and not later, which one that was confused may seem to have */
};

/* It makes no record that will be matched. */
static bool silent(const struct call *call)
{
        const struct launch *l = call->launch;
        const struct kernel *k;

        if (!l)
                return !call->lost;
        if (l->recordless || l->state != STATE_WAITING)
                return true;
        k = function_kernel(l->context->process, l->function);
        return k && !k->entry_probed && !l->function->learned;
}

/* One step of a look ahead: a record and the launch it would be of. */
struct path {
        const struct path *before;
        const struct launch *launch;
        const struct held *held;
};

static bool on_path(const struct path *path, const struct launch *l)
{
        for (; path; path = path->before)
                if (path->launch == l)
                        return true;
        return false;
}

/* Its stream's earlier launches have started, as far as is known, and not later. */
static bool stream_allows(const struct launch *l, const struct held *h, const struct path *path,
                          enum strictness strictness)
{
        const struct stream *s = l->stream;
        const struct launch *m;
        unsigned int steps = 0;

        if (!s)
                return true;
        if (strictness == FITS_ORDERED && h->time_ns < s->last_start_gpu_ns)
                return false;
        for (const struct path *at = path; at && strictness == FITS_ORDERED; at = at->before)
                if (at->launch->stream == s && at->held->time_ns > h->time_ns)
                        return false;
        if (l->context->gap_budget)
                return true;
        TAILQ_FOREACH(m, &s->waiting, in_stream)
        {
                if (m == l || m->seq > l->seq || steps++ > LANE_DEPTH)
                        break;
                if (m->passed || m->call.min == 0 || launch_return_ns(m) > l->record.cpu_enter_ns ||
                    on_path(path, m))
                        continue;
                return false;
        }
        return true;
}

static bool fits(const struct call *call, const struct held *h, const struct kernel *k,
                 const struct path *path, enum strictness strictness)
{
        struct launch *l = call->launch;

        if (call->lost)
                return call->max && (!h->converted || call->enter_ns <= h->cpu_ns + h->error_ns);
        if (silent(call) || !record_may_be(h, l) || on_path(path, l))
                return false;
        if (function_identity(l->context->process, l->function, k) == IDENTITY_DIFFERS)
                return false;
        if (l->ended_by_ns && h->converted && h->cpu_ns > l->ended_by_ns + h->error_ns)
                return false;
        return strictness == FITS_LOOSE || stream_allows(l, h, path, strictness);
}

/* ---- the front ---- */

/* When it has most likely taken its id: more often late in the call than early. */
static uint64_t likely_ns(const struct call *call)
{
        return call->lost ? call->enter_ns
                          : call->enter_ns + (call->return_ns - call->enter_ns) / 4 * 3;
}

static void earlier(struct call **at, struct call *call)
{
        if (!*at || likely_ns(call) < likely_ns(*at))
                *at = call;
}

static bool alone(const struct context *c)
{
        return HASH_COUNT(c->lanes) <= 1;
}

/* past_confused: one that was confused with another may have had that one's id. */
static void front_lane(struct front *f, struct call *from, bool past_confused)
{
        unsigned int depth = 0;
        struct call *call;

        for (call = from; call; call = TAILQ_NEXT(call, in_lane)) {
                if (call->max == 0)
                        continue;
                if (f->count == FRONT_MAX || depth++ > LANE_DEPTH)
                        return;
                f->calls[f->count++] = call;
                if (call->min == 0 || (past_confused && call->launch && call->launch->confused))
                        continue;
                if (call->return_ns < f->return_ns)
                        f->return_ns = call->return_ns;
                return;
        }
}

static void front_limit(struct front *f)
{
        size_t kept = 0;

        for (size_t i = 0; i < f->count; i++)
                if (f->calls[i]->enter_ns <= f->return_ns)
                        f->calls[kept++] = f->calls[i];
        f->count = kept;
}

static void front_lost(struct context *c, struct front *f)
{
        struct call *call;

        TAILQ_FOREACH(call, &c->lost.calls, in_lane)
        if (call->max)
                break;
        if (!call)
                return;
        /* It was the only thread's: they stand in one line. */
        if (alone(c)) {
                for (size_t i = 0; i < f->count; i++)
                        if (f->calls[i]->enter_ns < call->enter_ns)
                                return;
                f->count = 0;
        }
        front_lane(f, call, false);
}

static void front_get(struct context *c, struct front *f, bool past_confused)
{
        struct lane *lane;

        f->count = 0;
        f->return_ns = UINT64_MAX;
        TAILQ_FOREACH(lane, &c->busy, in_busy)
        front_lane(f, TAILQ_FIRST(&lane->calls), past_confused);
        if (c->lost.count)
                front_lost(c, f);
        front_limit(f);
}

/* ---- looking ahead ---- */

struct look {
        struct context *c;
        struct call *at[LOOK_LANES]; /* NULL: the lane's end */
        size_t lanes;
        unsigned int budget;
        bool cut; /* it ended where records or calls are not known yet */
};

static struct call *after_first(struct call *call)
{
        return TAILQ_NEXT(call, in_lane);
}

static bool look_begin(struct look *s, struct context *c)
{
        struct lane *lane;

        *s = (struct look){.c = c, .budget = LOOK_BUDGET};
        /* Another context's records would look like ours. */
        if (c->busy_count > LOOK_LANES || HASH_CNT(hh, c->process->contexts) > 1)
                return false;
        TAILQ_FOREACH(lane, &c->busy, in_busy)
        s->at[s->lanes++] = TAILQ_FIRST(&lane->calls);
        return true;
}

/* Records from this id on that find launches, LOOK_DEPTH where no more can be said. */
static unsigned int look_on(struct look *s, uint64_t id, const struct path *path,
                            unsigned int depth)
{
        struct correlated_process *p = s->c->process;
        const struct held *h = record_first(p, id);
        const struct kernel *k = h ? kernel_find(p, h->kernel_id) : NULL;
        unsigned int best = depth;
        struct front f;

        f.count = 0;
        f.return_ns = UINT64_MAX;
        s->cut |= !h;
        if (!k || depth >= LOOK_DEPTH || s->budget == 0)
                return LOOK_DEPTH;
        s->budget--;
        for (size_t i = 0; i < s->lanes; i++) {
                size_t before = f.count;

                if (!s->at[i]) {
                        s->cut = true;
                        return LOOK_DEPTH;
                }
                front_lane(&f, s->at[i], false);
                if (f.count == before)
                        return LOOK_DEPTH;
        }
        front_limit(&f);
        for (size_t i = 0; i < f.count && best < LOOK_DEPTH; i++) {
                struct path step = {path, f.calls[i]->launch, h};
                struct call *old;
                size_t lane = 0;
                unsigned int reached;

                if (f.calls[i]->lost || !fits(f.calls[i], h, k, path, FITS_ORDERED))
                        continue;
                while (lane < s->lanes && (!s->at[lane] || s->at[lane]->lane != f.calls[i]->lane))
                        lane++;
                if (lane == s->lanes)
                        continue;
                old = s->at[lane];
                s->at[lane] = after_first(f.calls[i]);
                reached = look_on(s, id + 1, &step, depth + 1);
                s->at[lane] = old;
                if (reached > best)
                        best = reached;
        }
        return best;
}

/* How far it would go on if this call had this record (NULL: none with this id). */
static unsigned int look_after(struct context *c, const struct call *call, const struct held *h,
                               uint64_t id, bool *ret_cut)
{
        struct path step = {NULL, call ? call->launch : NULL, h};
        struct look s;
        unsigned int reached;

        if (!look_begin(&s, c))
                return LOOK_DEPTH;
        for (size_t i = 0; call && i < s.lanes; i++)
                if (s.at[i]->lane == call->lane && call->max <= 1)
                        s.at[i] = TAILQ_NEXT(call, in_lane);
        reached = look_on(&s, id + 1, h && step.launch ? &step : NULL, 0);
        if (ret_cut)
                *ret_cut |= s.cut;
        return reached;
}

/* ---- settling ---- */

static bool aged(const struct context *c, const struct held *h, uint64_t ns, bool last)
{
        const struct correlated_process *p = c->process;

        return last || p->pending_count > PENDING_MAX / 2 || p->held_count > HELD_MAX / 2 ||
               h->arrived_ns + ns <= p->correlator->now_ns;
}

/* Calls other than this one that have not taken an id by now have taken none. */
static void settle_before(struct context *c, uint64_t enter_ns, const struct call *but)
{
        struct lane *lane, *next;

        for (lane = TAILQ_FIRST(&c->busy); lane; lane = next) {
                struct call *call;

                next = TAILQ_NEXT(lane, in_busy);
                while ((call = TAILQ_FIRST(&lane->calls)) && call != but && call->min == 0 &&
                       call->return_ns <= enter_ns) {
                        bool empties = lane->count == 1;

                        lane_remove(call);
                        if (empties)
                                break;
                }
        }
}

void align_evicted(struct correlated_process *p)
{
        struct context *c, *next_context;
        struct lane *lane, *next;

        HASH_ITER (hh, p->contexts, c, next_context) {
                size_t removed = 0;

                for (lane = TAILQ_FIRST(&c->busy); lane; lane = next) {
                        next = TAILQ_NEXT(lane, in_busy);
                        for (size_t left = lane->count; left > 0; left--) {
                                struct call *call = TAILQ_FIRST(&lane->calls);

                                if (call->launch ? call->launch->state != STATE_DONE : call->lost)
                                        break;
                                lane_remove(call);
                                removed++;
                        }
                }
                if (removed) {
                        c->anchored = false;
                        c->unsure = UNSURE_AFTER;
                }
        }
}

static void settle_call(struct call *call)
{
        struct lane *lane = call->lane;

        while (TAILQ_FIRST(&lane->calls) != call)
                lane_remove(TAILQ_FIRST(&lane->calls));
        lane_remove(call);
}

/* The call takes an id that has no record, or whose record is a graph node's. */
static void take(struct context *c, struct call *call)
{
        struct launch *l = call->launch;
        uint64_t id = c->next_id++;

        if (call->exec)
                graph_ids(c->process, call->exec, id, id);
        if (call->min)
                call->min--;
        call->max--;
        if (call->lost) {
                call->low = id;
                if (!alone(c))
                        c->unsure = UNSURE_AFTER;
                return;
        }
        if (l && l->state == STATE_WAITING && !l->recordless)
                late_add(l, id);
        if (call->max == 0) {
                settle_before(c, call->enter_ns, call);
                settle_call(call);
        }
}

/* ---- matching ---- */

static void confuse(struct context *c, struct launch *l)
{
        if (l->confused || l->state != STATE_WAITING)
                return;
        l->confused = true;
        c->confused++;
}

/* While some are confused, so are those that overlap with a match and could be its. */
static void confuse_around(struct context *c, const struct launch *l, const struct held *h,
                           const struct kernel *k)
{
        struct lane *lane;
        struct call *call;

        TAILQ_FOREACH(lane, &c->busy, in_busy)
        {
                unsigned int steps = 0;

                if (lane == l->call.lane)
                        continue;
                TAILQ_FOREACH(call, &lane->calls, in_lane)
                {
                        if (call->enter_ns > launch_return_ns(l) || steps++ > LANE_DEPTH)
                                break;
                        if (call->launch && fits(call, h, k, NULL, FITS_LOOSE))
                                confuse(c, call->launch);
                }
        }
}

/* Those of the front that could be the record's, if earlier ones were confused as well. */
static void confuse_front(struct context *c, const struct front *f, const struct held *h,
                          const struct kernel *k)
{
        struct call *first = NULL;
        bool several = false;

        for (size_t i = 0; i < f->count; i++) {
                if (!f->calls[i]->launch || !fits(f->calls[i], h, k, NULL, FITS_STARTED))
                        continue;
                if (first) {
                        confuse(c, f->calls[i]->launch);
                        several = true;
                }
                first = first ? first : f->calls[i];
        }
        if (several)
                confuse(c, first->launch);
}

/* Launches of its stream that must have started before it: their records are overdue. */
static void pass_over(struct launch *l)
{
        struct context *c = l->context;
        struct launch *m, *before;
        size_t kept = 0;

        for (m = TAILQ_PREV(l, launch_head, in_stream); m; m = before) {
                before = TAILQ_PREV(m, launch_head, in_stream);
                if (launch_return_ns(m) > l->record.cpu_enter_ns)
                        continue;
                if (!m->passed && c->gap_budget)
                        c->gap_budget--;
                if (++kept > PASSED_KEEP) {
                        launch_finish(m);
                } else if (!m->passed) {
                        m->passed = true;
                        launch_schedule(m, LIST_SHORT);
                }
        }
}

static void learn(struct launch *l, struct kernel *k)
{
        struct function *f = l->function;

        if (f->name || f->parent || f->kernel)
                return;
        f->kernel = k;
        f->learned = true;
}

/* All calls that can have been under way with the front are known. */
static bool complete(const struct context *c, const struct front *f)
{
        return c->known_until_ns >= f->return_ns || (alone(c) && c->contiguous_seq >= c->last_seq);
}

static void match(struct context *c, struct call *call, struct held *h, struct kernel *k,
                  bool complete)
{
        struct launch *l = call->launch;
        uint64_t enter_ns = call->enter_ns;

        c->next_id = h->gridid + 1;
        c->misfits = 0;
        if (call->lost) {
                call->min = call->max = 0;
                call->low = h->gridid;
                record_stray(c->process, h);
                return;
        }
        if (function_identity(c->process, l->function, k) != IDENTITY_EQUAL)
                l->match_ordered = true;
        if (c->confused || !complete)
                l->match_ordered = true;
        if (c->confused)
                confuse_around(c, l, h, k);
        if (c->unsure) {
                c->unsure--;
                l->match_inferred = true;
        }
        if (k->shared)
                l->match_inferred = true;
        l->unchecked = c->known_until_ns < launch_return_ns(l);
        learn(l, k);
        pass_over(l);
        settle_before(c, enter_ns, call);
        /* First out of its lane: it may be emitted and freed. */
        for (struct call *at = TAILQ_PREV(call, call_head, in_lane), *before; at; at = before) {
                before = TAILQ_PREV(at, call_head, in_lane);
                if (at->min == 0)
                        lane_remove(at);
        }
        lane_remove(call);
        record_take(c->process, h, k, l);
}

/* Of several that fit: the one with which it goes on best, the likely earliest of those. */
static struct call *choose(struct context *c, struct call **calls, size_t count,
                           const struct held *h, bool *ret_cut)
{
        struct call *best = NULL;
        unsigned int best_reached = 0;

        for (size_t i = 0; i < count; i++)
                for (size_t j = i + 1; j < count; j++)
                        if (likely_ns(calls[j]) < likely_ns(calls[i])) {
                                struct call *swap = calls[i];

                                calls[i] = calls[j];
                                calls[j] = swap;
                        }
        for (size_t i = 0; i < count; i++) {
                unsigned int reached = 1 + look_after(c, calls[i], h, h->gridid, ret_cut);

                if (calls[i]->lost)
                        reached = 0;
                if (!best || reached > best_reached) {
                        best = calls[i];
                        best_reached = reached;
                }
                if (reached > LOOK_DEPTH)
                        break;
        }
        return best;
}

/* A node of a graph that was instantiated here. */
static struct call *front_graph(struct context *c, const struct front *f, const struct held *h)
{
        for (size_t i = 0; i < f->count; i++)
                if (f->calls[i]->exec && graph_entered(c->process, f->calls[i]->exec, h))
                        return f->calls[i];
        return NULL;
}

/* ---- when nothing fits ---- */

/* The first launch of this kernel, wherever it stands. */
static struct call *search(struct context *c, const struct held *h, const struct kernel *k)
{
        struct call *best = NULL, *call;
        struct lane *lane;

        TAILQ_FOREACH(lane, &c->busy, in_busy)
        {
                unsigned int steps = 0;

                TAILQ_FOREACH(call, &lane->calls, in_lane)
                {
                        if ((best && call->enter_ns >= best->enter_ns) || steps++ > SEARCH_DEPTH)
                                break;
                        if (!call->lost && fits(call, h, k, NULL, FITS_LOOSE)) {
                                best = call;
                                break;
                        }
                }
        }
        return best;
}

/* What came before a call has taken its id, whichever it was. */
static void abandon_before(struct context *c, const struct call *call)
{
        uint64_t enter_ns = call->enter_ns;
        struct lane *lane, *next;
        struct call *first;

        for (lane = TAILQ_FIRST(&c->busy); lane; lane = next) {
                next = TAILQ_NEXT(lane, in_busy);
                for (size_t left = lane->count; left > 0; left--) {
                        struct launch *l;

                        first = TAILQ_FIRST(&lane->calls);
                        if (first->return_ns > enter_ns || first == call)
                                break;
                        l = first->launch;
                        if (l && l->state == STATE_WAITING && l->list == LIST_NONE)
                                launch_schedule(l, LIST_SHORT);
                        lane_remove(first);
                }
        }
}

/*
 * Two were taken for each other: one's stream seems to have started a later
 * kernel already, or what followed the one is now behind the other.
 */
static struct call *unswapped(struct context *c, const struct held *h, const struct kernel *k)
{
        struct call *best = NULL;
        struct front f;

        for (int past = 0; past < 2 && !best; past++) {
                front_get(c, &f, past);
                for (size_t i = 0; i < f.count; i++)
                        if (!f.calls[i]->lost &&
                            fits(f.calls[i], h, k, NULL, past ? FITS_LOOSE : FITS_STARTED))
                                earlier(&best, f.calls[i]);
        }
        return best;
}

static enum verdict misfit(struct context *c, struct held *h, struct kernel *k, bool last)
{
        struct call *call = alone(c) ? NULL : unswapped(c, h, k);

        if (call) {
                match(c, call, h, k, false);
                return VERDICT_DONE;
        }
        if (!aged(c, h, EVENT_LATENCY_NS, last))
                return VERDICT_WAIT;
        call = search(c, h, k);
        if (call && ++c->misfits > MISFITS_MAX) {
                abandon_before(c, call);
                c->unsure = UNSURE_AFTER;
                match(c, call, h, k, true);
                return VERDICT_DONE;
        }
        /* It is nobody's here. */
        c->next_id = h->gridid + 1;
        if (HASH_CNT(hh, c->process->contexts) == 1)
                record_stray(c->process, h);
        return VERDICT_DONE;
}

/* ---- decisions ---- */

static enum verdict decide_present(struct context *c, const struct front *f, struct held *h,
                                   struct kernel *k, bool last)
{
        struct call *fit[FRONT_MAX], *call;
        bool known = complete(c, f), cut = false;
        size_t count = 0;

        if (!known && !aged(c, h, c->hole_ns ? 2 * HOLE_PATIENCE_NS : EVENT_LATENCY_NS, last))
                return VERDICT_WAIT;
        for (size_t i = 0; i < f->count; i++)
                if (fits(f->calls[i], h, k, NULL, FITS_ORDERED))
                        fit[count++] = f->calls[i];
        call = front_graph(c, f, h);
        if (call && (count == 0 || call->min)) {
                take(c, call);
                record_stray(c->process, h);
                return VERDICT_DONE;
        }
        if (count == 0)
                return misfit(c, h, k, last);
        call = fit[0];
        if (count > 1) {
                call = choose(c, fit, count, h, &cut);
                /* More records will say more. */
                if (cut && !aged(c, h, EVENT_LATENCY_NS, last))
                        return VERDICT_WAIT;
                for (size_t i = 0; i < count; i++)
                        if (!fit[i]->launch && c->unsure < UNSURE_AFTER)
                                c->unsure = UNSURE_AFTER;
        }
        confuse_front(c, f, h, k);
        match(c, call, h, k, known || alone(c));
        return VERDICT_DONE;
}

/* Would anything fit a record some ids on, if this call had no record yet? */
static bool fits_later(struct context *c, const struct call *without, const struct held *h)
{
        const struct kernel *k = kernel_find(c->process, h->kernel_id);
        struct lane *lane;
        struct call *call;

        if (!k)
                return true;
        TAILQ_FOREACH(lane, &c->busy, in_busy)
        {
                unsigned int steps = 0;

                TAILQ_FOREACH(call, &lane->calls, in_lane)
                {
                        if (call != without && fits(call, h, k, NULL, FITS_ORDERED))
                                return true;
                        if (steps++ > LANE_DEPTH)
                                return true;
                }
                /* What it will be may not be known yet. */
                if (lane->last_ns < h->cpu_ns && h->converted && !alone(c))
                        return true;
        }
        return false;
}

/* The next record, after an id that has none. */
static struct held *record_after(struct context *c, uint64_t id)
{
        struct correlated_process *p = c->process;
        /* No more can have been taken by what is known. */
        uint64_t limit = id + p->pending_count + (c->last_seq - c->contiguous_seq) + c->lost.count +
                         PROBE_IDS;
        struct held *h, *best = NULL;
        bool several = HASH_CNT(hh, p->contexts) > 1;
        unsigned int steps = 0;

        /* Nothing has come since it was looked for last. */
        if (!several && c->after_id > id && c->after_inputs == p->inputs)
                best = record_first(p, c->after_id);
        if (best)
                return best;
        for (uint64_t next = id + 1; next <= id + PROBE_IDS; next++) {
                for (h = record_first(p, next); h; h = record_next(h))
                        if (!several || fits_later(c, NULL, h))
                                return h;
        }
        TAILQ_FOREACH(h, &p->starts, in_list)
        {
                if (h->gridid > id && h->gridid < limit && (!best || h->gridid < best->gridid) &&
                    (!several || fits_later(c, NULL, h)))
                        best = h;
                if (++steps > PROBE_RECORDS)
                        break;
        }
        c->after_id = best ? best->gridid : 0;
        c->after_inputs = p->inputs;
        return best;
}

/* Of the possible takers of an id without a record, the best of a sort. */
struct takers {
        struct call *optional, *quiet, *late, *lost;
        bool hidden; /* the next record fits though nobody took it */
        size_t late_count;
};

/* check: leave out those after which the next record would not fit. */
static void takers_get(struct context *c, const struct front *f, struct held *next, uint64_t id,
                       bool check, struct takers *t)
{
        struct call *exec = NULL;

        /* A node's record fits no launch. */
        for (size_t i = 0; i < f->count; i++)
                check &= f->calls[i]->exec == 0;
        *t = (struct takers){0};
        for (size_t i = 0; i < f->count; i++) {
                struct call *call = f->calls[i];

                if (call->lost) {
                        earlier(&t->lost, call);
                        continue;
                }
                if (call->launch && call->launch->ended_by_ns && c->gap_budget == 0 &&
                    !silent(call) && next->converted &&
                    next->cpu_ns > call->launch->ended_by_ns + next->error_ns)
                        continue;
                if (check && call->max == 1 && look_after(c, call, NULL, id, NULL) == 0)
                        continue;
                if (!check && !silent(call) && !fits_later(c, call, next))
                        continue;
                /* Its nodes would have started. */
                if (call->exec && graph_entered(c->process, call->exec, next)) {
                        exec = call;
                        continue;
                }
                if (!silent(call)) {
                        earlier(&t->late, call);
                        t->late_count++;
                } else if (call->min) {
                        earlier(&t->quiet, call);
                } else {
                        earlier(&t->optional, call);
                }
        }
        if (!t->optional && !t->quiet && !t->late && exec)
                t->quiet = exec;
        t->hidden = check && look_after(c, NULL, NULL, id, NULL) > 0;
}

/* Ids that calls without records must have taken before the one that the next record is of. */
static uint64_t quiet_needed(struct context *c, const struct held *next)
{
        const struct kernel *k = kernel_find(c->process, next->kernel_id);
        const struct call *of = k ? search(c, next, k) : NULL;
        const struct lane *lane;
        const struct call *call;
        uint64_t needed = 0;

        if (!of)
                return 0;
        TAILQ_FOREACH(lane, &c->busy, in_busy)
        {
                unsigned int steps = 0;

                TAILQ_FOREACH(call, &lane->calls, in_lane)
                {
                        if (call == of || call->return_ns > of->enter_ns || steps++ > LANE_DEPTH)
                                break;
                        if (silent(call))
                                needed += call->min;
                }
        }
        return needed;
}

static enum verdict decide_absent(struct context *c, const struct front *f, bool last)
{
        uint64_t id = c->next_id;
        struct held *next = record_after(c, id);
        struct takers t;
        bool aged_events, aged_choice;

        if (!next || f->count == 0)
                return VERDICT_WAIT;
        if (record_convert(c->process, next) < 0)
                return VERDICT_WAIT;
        aged_events = aged(c, next, EVENT_LATENCY_NS, last);
        aged_choice = aged(c, next, CHOICE_PATIENCE_NS, last);
        if (!complete(c, f) && (!aged_events || (c->hole_ns && !aged_choice)))
                return VERDICT_WAIT;
        takers_get(c, f, next, id, next->gridid == id + 1, &t);
        if (!t.optional && !t.quiet && !t.late && !t.lost && !t.hidden)
                takers_get(c, f, next, id, false, &t);
        if (t.optional && t.quiet && quiet_needed(c, next) >= next->gridid - id)
                t.optional = NULL;
        if (t.optional || t.quiet) {
                /* Or its kernel starts late. */
                if (t.late && !aged_choice)
                        return VERDICT_WAIT;
                take(c, t.quiet && (!t.optional || t.quiet->enter_ns < t.optional->enter_ns)
                                ? t.quiet
                                : t.optional);
                return VERDICT_DONE;
        }
        if (t.lost && (!t.late || aged_choice)) {
                take(c, t.lost);
                return VERDICT_DONE;
        }
        if (t.late && (alone(c) || aged_events)) {
                take(c, t.late);
                return VERDICT_DONE;
        }
        if (t.late || !aged_events)
                return VERDICT_WAIT;
        /* Something unseen took it. */
        c->next_id++;
        return VERDICT_DONE;
}

/* Where the context's ids stand when it was not seen from its birth. */
static bool anchor(struct context *c, const struct front *f, bool last)
{
        struct correlated_process *p = c->process;
        struct held *h, *best = NULL;
        unsigned int steps = 0;

        TAILQ_FOREACH(h, &p->starts, in_list)
        {
                struct kernel *k = kernel_find(p, h->kernel_id);

                if (++steps > PROBE_RECORDS || !aged(c, h, EVENT_LATENCY_NS, last))
                        break;
                if (!k || record_convert(p, h) < 0 || (best && h->gridid >= best->gridid))
                        continue;
                for (size_t i = 0; i < f->count; i++)
                        if (!f->calls[i]->lost && fits(f->calls[i], h, k, NULL, FITS_LOOSE))
                                best = h;
        }
        if (!best)
                return false;
        c->anchored = true;
        c->next_id = best->gridid;
        if (!alone(c))
                c->unsure = UNSURE_AFTER;
        return true;
}

/* The earliest call of the front that the record fits. */
static const struct call *front_fit(const struct front *f, const struct held *h,
                                    const struct kernel *k)
{
        const struct call *best = NULL;

        for (size_t i = 0; i < f->count; i++)
                if (!f->calls[i]->lost && fits(f->calls[i], h, k, NULL, FITS_ORDERED) &&
                    (!best || f->calls[i]->enter_ns < best->enter_ns))
                        best = f->calls[i];
        return best;
}

static size_t calls_waiting(const struct context *c)
{
        const struct lane *lane;
        size_t count = 0;

        TAILQ_FOREACH(lane, &c->busy, in_busy)
        count += lane->count;
        return count;
}

enum rivals {
        RIVALS_NONE,
        RIVALS_LATER,   /* another context's call fits as well, but ours was first */
        RIVALS_EARLIER, /* ... and was first */
        RIVALS_BEHIND,  /* another context may come to this id */
};

/* Contexts count alike: would another one have this record as well? */
static enum rivals rivals(struct context *c, const struct call *ours, const struct held *h,
                          const struct kernel *k)
{
        enum rivals most = RIVALS_NONE, r;
        struct context *other, *next;

        if (k->context == c->index && !k->shared)
                return RIVALS_NONE;
        HASH_ITER (hh, c->process->contexts, other, next) {
                const struct call *theirs;
                struct front f;

                if (other == c || TAILQ_EMPTY(&other->busy) || other->next_id > h->gridid)
                        continue;
                if (other->anchored && other->next_id == h->gridid) {
                        front_get(other, &f, false);
                        theirs = front_fit(&f, h, k);
                        r = !theirs                             ? RIVALS_NONE
                            : theirs->enter_ns < ours->enter_ns ? RIVALS_EARLIER
                                                                : RIVALS_LATER;
                } else {
                        r = h->gridid <= other->next_id + calls_waiting(other) + PROBE_IDS
                                    ? RIVALS_BEHIND
                                    : RIVALS_NONE;
                }
                if (r > most)
                        most = r;
        }
        return most;
}

static size_t records_with(const struct correlated_process *p, uint64_t gridid)
{
        size_t count = 0;

        for (struct held *h = record_first(p, gridid); h; h = record_next(h))
                count++;
        return count;
}

/*
 * A record with the next id, the earliest that fits if there are several.
 * -EAGAIN: another context has to be waited for.
 */
static int record_of(struct context *c, const struct front *f, bool last, struct held **ret_held,
                     struct kernel **ret_kernel)
{
        struct correlated_process *p = c->process;
        bool several = HASH_CNT(hh, p->contexts) > 1, best_fits = false;
        struct held *h = record_first(p, c->next_id);
        enum rivals r = RIVALS_NONE, best_rivals = RIVALS_NONE;

        *ret_held = NULL;
        if (h && !several && !record_next(h)) {
                *ret_kernel = kernel_find(p, h->kernel_id);
                *ret_held = h;
                return 0;
        }
        for (; h; h = record_next(h)) {
                struct kernel *k = kernel_find(p, h->kernel_id);
                const struct call *call = NULL;

                if (k && record_convert(p, h) == 0)
                        call = front_fit(f, h, k);
                if (several && !call)
                        continue;
                if (several) {
                        r = rivals(c, call, h, k);
                        if (r >= RIVALS_EARLIER && !aged(c, h, EVENT_LATENCY_NS, last))
                                return -EAGAIN;
                        if (r == RIVALS_LATER && records_with(p, h->gridid) < 2 &&
                            !aged(c, h, EVENT_LATENCY_NS, last))
                                return -EAGAIN;
                        if (r == RIVALS_EARLIER)
                                continue;
                }
                if (*ret_held && (best_fits > !!call ||
                                  (best_fits == !!call && (*ret_held)->time_ns < h->time_ns)))
                        continue;
                *ret_held = h;
                best_fits = call;
                best_rivals = r;
                *ret_kernel = k;
        }
        if (best_rivals != RIVALS_NONE && c->unsure == 0)
                c->unsure = 1;
        return 0;
}

/*
 * Ids begin at 1, but the driver takes some before the application's first
 * launch: loading code, clearing memory. So in a context that has matched
 * nothing yet, the lowest id of a record that fits is where its calls begin.
 */
static bool begin_at(struct context *c, const struct front *f, bool last)
{
        struct correlated_process *p = c->process;
        struct held *h, *best = NULL;
        unsigned int steps = 0;

        TAILQ_FOREACH(h, &p->starts, in_list)
        {
                struct kernel *k = kernel_find(p, h->kernel_id);

                if (++steps > PROBE_RECORDS || !aged(c, h, EVENT_LATENCY_NS, last))
                        break;
                if (!k || h->gridid < c->next_id || (best && h->gridid >= best->gridid) ||
                    record_convert(p, h) < 0)
                        continue;
                for (size_t i = 0; i < f->count; i++) {
                        const struct call *call = f->calls[i];
                        bool graph = call->exec && call->min &&
                                     call->enter_ns <= h->cpu_ns + h->error_ns;

                        if (graph || (!call->lost && fits(call, h, k, NULL, FITS_LOOSE)))
                                best = h;
                }
        }
        if (best)
                c->next_id = best->gridid;
        return best;
}

/* The agent's own launches have taken ids as well: with them the count from 1 is complete. */
static bool own_among(const struct front *f)
{
        for (size_t i = 0; i < f->count; i++)
                if (!f->calls[i]->exec && f->calls[i]->min && silent(f->calls[i]))
                        return true;
        return false;
}

static enum verdict align_step(struct context *c, bool last)
{
        struct kernel *k = NULL;
        struct front f;
        struct held *h;

        front_get(c, &f, false);
        if (f.count == 0)
                return VERDICT_WAIT;
        if (!c->anchored && !anchor(c, &f, last))
                return VERDICT_WAIT;
        if (c->born && !own_among(&f)) {
                if (!record_first(c->process, c->next_id) && !begin_at(c, &f, last))
                        return f.return_ns + RECORD_PATIENCE_NS > c->process->correlator->now_ns &&
                                               !last
                                       ? VERDICT_WAIT
                                       : decide_absent(c, &f, last);
                c->born = false;
        }
        if (record_of(c, &f, last, &h, &k) < 0)
                return VERDICT_WAIT;
        if (!h)
                return decide_absent(c, &f, last);
        if (record_convert(c->process, h) < 0)
                return VERDICT_WAIT;
        if (k)
                return decide_present(c, &f, h, k, last);
        if (!aged(c, h, RECORD_PATIENCE_NS / 2, last))
                return VERDICT_WAIT;
        /* A kernel that nobody told of. */
        record_stray(c->process, h);
        return VERDICT_DONE;
}

void align_run(struct correlated_process *p, bool last)
{
        struct context *c, *next;
        bool progress;

        do {
                progress = false;
                HASH_ITER (hh, p->contexts, c, next)
                        while (align_step(c, last) == VERDICT_DONE)
                                progress = true;
        } while (progress && HASH_CNT(hh, p->contexts) > 1);
}

void align_late_event(struct context *c, struct launch *l)
{
        struct call *call;

        if (l->seq > c->contiguous_seq || c->lost.count == 0)
                return;
        TAILQ_FOREACH(call, &c->lost.calls, in_lane)
        if (call->seq == l->seq)
                break;
        if (!call)
                return;
        if (call->max == 0) {
                /* It stays in its lane until it is first there. */
                l->call.min = l->call.max = 0;
                if (l->state == STATE_WAITING && !l->recordless)
                        late_add(l, call->low);
        }
        lane_remove(call);
}
