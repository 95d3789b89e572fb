/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Device records. They wait, are tried at each pass in order of their grid ids,
 * and leave when they have found their launch. What makes a launch a
 * candidate for a start record:
 *
 *   identity    its function means the record's kernel, or is not known
 *   causality   the call was entered before the kernel started
 *   stream      launches before it in its stream have started (they start in
 *               order); passed over may be those that may have no record
 *   grid id     align.c: it may have this id
 *
 * One candidate, and the record is its. Several that only differ by calls that
 * overlap: the one nearest in order of entry. Several otherwise: wait, something
 * will rule some out; or in the end take none.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"

#define HELD_FIRST      256
#define JUMP_AGE_NS     EVENT_LATENCY_NS
#define LOOSE_AGE_NS    (100 * NSEC_PER_MSEC)
#define RETRY_NS        (10 * NSEC_PER_MSEC)
#define PASSED_MAX      256
#define PASSED_KEEP     64
#define PASSES_MAX      3
#define HEADS_MAX       64
#define HEADS_OF_STREAM 16
#define BEHIND_DEPTH    8
#define LOSS_BUDGET_MAX 65536

struct candidate {
        struct launch *launch;
        struct fitting fitting;
        enum identity identity;
};

/* How much a pass may decide. */
enum stage {
        STAGE_PLAIN,   /* in order of arrival: what is plain */
        STAGE_GRAPHS,  /* in order of arrival: nodes of graphs that are known */
        STAGE_CHOICES, /* in order of grid ids: also between calls that overlap */
};

enum verdict {
        VERDICT_WAIT,
        VERDICT_DONE,
        VERDICT_CHOICE, /* only the order of overlapping calls can decide */
};

struct choice {
        enum stage stage;
        uint64_t age_ns;
        struct candidate candidates[CANDIDATES_MAX];
        size_t count;
        bool overflow;
        bool truncated;        /* there may be more */
        struct candidate high; /* the only one whose id would have to be lower */
        size_t high_count;
        struct candidate low; /* the only one if launches took fewer ids than thought */
        size_t low_count;
        struct candidate behind; /* the only one if its stream's order is not what was thought */
        size_t behind_count;
        size_t misfits; /* launches of this kernel that the id rules out */
        struct graph_exec *exec;
        enum graph_claim claim;
        struct context *context; /* of the candidates, when it is one */
        bool several_contexts;
};

/* ---- queues ---- */

static void drop_end(struct correlated_process *p)
{
        p->ledger->lost[LOSS_device_record_unmatched]++;
}

static void drop_start(struct correlated_process *p, const struct held *h)
{
        struct context *c, *next;

        p->ledger->lost[LOSS_device_record_unmatched]++;
        if (!h->candidates)
                return;
        /* Some launch will wait for it in vain. */
        HASH_ITER (hh, p->contexts, c, next)
                if (c->drop_budget < LOSS_BUDGET_MAX)
                        c->drop_budget++;
}

static bool held_reserve(struct held_list *list)
{
        size_t size = list->size ? 2 * list->size : HELD_FIRST;
        struct held *items;

        if (list->count < list->size)
                return true;
        if (size > HELD_MAX)
                return false;
        items = realloc(list->items, size * sizeof(*items));
        if (!items)
                return false;
        list->items = items;
        list->size = size;
        return true;
}

void records_put(struct correlated_process *p, const struct device_record *r)
{
        struct held h = {
                .time_ns = r->time_ns,
                .gridid = DEVICE_RECORD_GRIDID(r),
                .kernel_id = DEVICE_RECORD_KERNEL(r),
                .smid = DEVICE_RECORD_SMID(r),
                .arrived_ns = p->correlator->now_ns,
                .order = p->records++,
        };
        uint8_t type = DEVICE_RECORD_TYPE(r);
        struct held_list *list = type == DEVICE_RECORD_START ? &p->starts : &p->ends;

        if ((type != DEVICE_RECORD_START && type != DEVICE_RECORD_END) || h.gridid == 0) {
                p->ledger->lost[LOSS_device_record_garbage]++;
                return;
        }
        if (!held_reserve(list))
                records_match(p, false);
        if (!held_reserve(list)) {
                p->ledger->lost[LOSS_device_record_unmatched]++;
                return;
        }
        list->items[list->count++] = h;
        p->changed = true;
}

void records_done(struct correlated_process *p)
{
        free(p->starts.items);
        free(p->ends.items);
}

void records_gap(struct correlated_process *p, uint64_t lost)
{
        struct context *c, *next;

        if (lost > LOSS_BUDGET_MAX)
                lost = LOSS_BUDGET_MAX;
        /* The records before the gap were complete: judge them as such. */
        records_match(p, false);
        p->gap_order = p->records;
        HASH_ITER (hh, p->contexts, c, next) {
                c->gap_budget += lost;
                if (c->gap_budget > LOSS_BUDGET_MAX)
                        c->gap_budget = LOSS_BUDGET_MAX;
        }
        graph_gap(p);
}

/* ---- candidates ---- */

static bool entered_before(const struct held *h, uint64_t enter_ns)
{
        return !h->converted || enter_ns <= h->cpu_ns + h->error_ns;
}

bool record_may_be(const struct held *h, const struct launch *l)
{
        return entered_before(h, l->record.cpu_enter_ns);
}

static void choice_add(struct choice *ch, struct context *c, const struct candidate *cand)
{
        if (ch->context && ch->context != c)
                ch->several_contexts = true;
        ch->context = c;
        if (ch->count == CANDIDATES_MAX)
                ch->overflow = true;
        else
                ch->candidates[ch->count++] = *cand;
}

static void consider(struct choice *ch, struct context *c, struct launch *l, const struct held *h,
                     const struct kernel *k)
{
        struct candidate cand = {.launch = l};

        cand.identity = function_identity(c->process, l->function, k);
        if (cand.identity == IDENTITY_DIFFERS && !l->function->learned)
                return;
        cand.fitting = align_fit(c, l, h->gridid, h->cpu_ns, false);
        if (cand.identity == IDENTITY_DIFFERS && cand.fitting.fit != FIT_RIGID)
                return;
        switch (cand.fitting.fit) {
        case FIT_LOW:
                ch->misfits++;
                if (cand.identity == IDENTITY_EQUAL &&
                    h->arrived_ns + LOOSE_AGE_NS <= c->process->correlator->now_ns) {
                        cand.fitting = align_fit(c, l, h->gridid, h->cpu_ns, true);
                        if (cand.fitting.fit == FIT_RIGID || cand.fitting.fit == FIT_SLACK) {
                                ch->low = cand;
                                ch->low_count++;
                        }
                }
                break;
        case FIT_HIGH:
                ch->misfits++;
                ch->high = cand;
                ch->high_count++;
                break;
        default:
                choice_add(ch, c, &cand);
                break;
        }
}

/* The kernel started after everything launched before the last synchronise had ended. */
static bool since_sync(const struct context *c, const struct held *h)
{
        return h->converted && c->sync_ns && h->cpu_ns > c->sync_ns + h->error_ns;
}

/* Launches of a stream that the launch of this record may have passed. */
static uint64_t pass_budget(const struct context *c, const struct held *h)
{
        if (!since_sync(c, h))
                return c->gap_budget + c->drop_budget + c->deferred;
        /* A record of before the synchronise came after the gap: so what was lost is older. */
        if (c->before_sync >= c->process->gap_order)
                return c->deferred_since;
        return c->gap_budget + c->deferred_since;
}

/* Its stream says that it cannot have started, its id that it must have. */
static void consider_behind(struct choice *ch, struct context *c, struct launch *l,
                            const struct held *h, const struct kernel *k)
{
        struct candidate cand = {.launch = l};

        cand.identity = function_identity(c->process, l->function, k);
        if (cand.identity != IDENTITY_EQUAL)
                return;
        cand.fitting = align_fit(c, l, h->gridid, h->cpu_ns, false);
        if (cand.fitting.fit != FIT_RIGID && cand.fitting.fit != FIT_SLACK)
                return;
        if (cand.fitting.foreign)
                return;
        ch->behind = cand;
        ch->behind_count++;
}

static void stream_candidates(struct choice *ch, struct context *c, struct stream *s,
                              const struct held *h, const struct kernel *k)
{
        uint64_t limit_ns = UINT64_MAX, budget = pass_budget(c, h);
        unsigned int depth = 0, passed = 0, blocked = 0;
        struct launch *l;

        TAILQ_FOREACH(l, &s->waiting, in_stream)
        {
                const struct kernel *own = function_kernel(c->process, l->function);

                if (!entered_before(h, l->record.cpu_enter_ns))
                        return;
                if (l->ended_by_ns && h->converted && h->cpu_ns > l->ended_by_ns + h->error_ns)
                        continue;
                if (depth >= CANDIDATE_DEPTH || passed >= PASSED_MAX) {
                        ch->truncated = true;
                        return;
                }
                if (l->record.cpu_enter_ns >= limit_ns) {
                        if (ch->count || ch->behind_count > 1 || blocked++ >= BEHIND_DEPTH)
                                return;
                        consider_behind(ch, c, l, h, k);
                        continue;
                }
                if (own && !own->entry_probed && !l->function->learned)
                        continue;
                consider(ch, c, l, h, k);
                if (l->passed) {
                        passed++;
                        continue;
                }
                depth++;
                if (!own || l->consumes == CONSUMES_MAYBE)
                        continue;
                if (budget)
                        budget--;
                else if (launch_return_ns(l) < limit_ns)
                        limit_ns = launch_return_ns(l);
        }
}

/*
 * After a loss the launch may be far down its stream: look where the id would
 * be if ids were taken in order of entry.
 */
static void distant_candidates(struct choice *ch, struct context *c, const struct held *h,
                               const struct kernel *k)
{
        const struct launch *pin = NULL;
        unsigned int steps = 0;
        uint64_t seq;

        for (seq = window_end(c); seq-- > c->first_seq && steps++ < SCAN_MAX;) {
                const struct launch *m = window_at(c, seq);

                if (m && m->pinned && m->seq >= c->anchor_from && m->record.gridid < h->gridid) {
                        pin = m;
                        break;
                }
        }
        if (!pin)
                return;
        for (seq = pin->seq + 1; seq < window_end(c) && steps++ < 2 * SCAN_MAX; seq++) {
                struct launch *l = window_at(c, seq);

                if (l && !entered_before(h, l->record.cpu_enter_ns))
                        break;
                if (!l || l->state != STATE_WAITING || ch->count == CANDIDATES_MAX)
                        continue;
                if (seq - pin->seq > h->gridid - pin->record.gridid + HIDDEN_IDS_MAX)
                        break;
                if (function_identity(c->process, l->function, k) == IDENTITY_EQUAL)
                        consider(ch, c, l, h, k);
        }
}

static void context_candidates(struct choice *ch, struct context *c, const struct held *h,
                               struct kernel *k)
{
        struct graph_exec *exec = NULL;
        enum graph_claim claim;
        struct stream *s;
        size_t before = ch->count;

        claim = graph_claims(c, h, k, &exec);
        if (claim > ch->claim) {
                ch->claim = claim;
                ch->exec = exec;
        }
        if (claim == GRAPH_YES || claim == GRAPH_WAIT)
                return;
        TAILQ_FOREACH(s, &c->active, in_active)
        stream_candidates(ch, c, s, h, k);
        if (ch->count == before && pass_budget(c, h) > CANDIDATE_DEPTH)
                distant_candidates(ch, c, h, k);
}

/* ---- assignment ---- */

/* Launches of its stream that must have started before it: their records are overdue. */
static void pass_over(struct launch *l)
{
        struct context *c = l->context;
        struct launch *m, *next;
        size_t kept = 0;

        for (m = TAILQ_PREV(l, launch_head, in_stream); m; m = next) {
                next = TAILQ_PREV(m, launch_head, in_stream);
                if (launch_return_ns(m) > l->record.cpu_enter_ns)
                        continue;
                if (!m->passed && c->drop_budget)
                        c->drop_budget--;
                else if (!m->passed && c->gap_budget)
                        c->gap_budget--;
                if (++kept > PASSED_KEEP) {
                        launch_finish(m);
                } else if (!m->passed) {
                        m->passed = true;
                        launch_schedule(m, LIST_SHORT);
                }
        }
}

static void learn(struct launch *l, struct kernel *k, const struct candidate *cand)
{
        struct function *f = l->function;

        if (cand->identity == IDENTITY_EQUAL || cand->fitting.fit != FIT_RIGID)
                return;
        if (cand->identity == IDENTITY_DIFFERS) {
                /* What was learned was wrong, or the handle has another meaning now. */
                f->kernel = NULL;
                f->learned = false;
                return;
        }
        if (!f->name && !f->parent) {
                f->kernel = k;
                f->learned = true;
        }
}

/* The only launch of the context that can have started by then. */
static bool alone(const struct context *c, const struct launch *l, const struct held *h)
{
        const struct stream *s;

        TAILQ_FOREACH(s, &c->active, in_active)
        {
                const struct launch *m;

                TAILQ_FOREACH(m, &s->waiting, in_stream)
                {
                        if (!entered_before(h, m->record.cpu_enter_ns))
                                break;
                        if (m != l)
                                return false;
                }
        }
        return true;
}

static void mark_inferred(struct launch *l, bool soft)
{
        l->match_inferred = true;
        l->soft = soft;
}

static void assign(const struct held *h, struct kernel *k, const struct candidate *cand)
{
        struct launch *l = cand->launch;

        if (cand->identity != IDENTITY_EQUAL)
                l->match_ordered = true;
        if (cand->fitting.soft && !alone(l->context, l, h))
                mark_inferred(l, true);
        learn(l, k, cand);
        pass_over(l);
        l->context->misfits = 0;
        launch_started(l, h, k);
}

void record_assign(const struct held *h, struct launch *l)
{
        struct kernel *k = kernel_find(l->context->process, h->kernel_id);
        struct candidate cand = {
                .launch = l,
                .fitting = {.fit = FIT_RIGID},
                .identity = function_identity(l->context->process, l->function, k),
        };

        if (k)
                assign(h, k, &cand);
}

/* ---- decisions ---- */

static bool complete(const struct context *c, const struct held *h, uint64_t age_ns)
{
        return age_ns >= EVENT_LATENCY_NS ||
               (h->converted && c->known_until_ns > h->cpu_ns + h->error_ns);
}

static enum verdict decide_one(struct choice *ch, const struct held *h, struct kernel *k)
{
        struct candidate *cand = &ch->candidates[0];
        struct launch *l = cand->launch;

        if (cand->fitting.fit == FIT_RIGID) {
                assign(h, k, cand);
                return VERDICT_DONE;
        }
        if (ch->claim == GRAPH_MAYBE || ch->truncated || !complete(l->context, h, ch->age_ns))
                return VERDICT_WAIT;
        if (cand->fitting.hole) {
                if (ch->age_ns < EVENT_LATENCY_NS || cand->fitting.distance)
                        return VERDICT_WAIT;
                mark_inferred(l, true);
        }
        if (cand->fitting.fit == FIT_UNANCHORED &&
            (!alone(l->context, l, h) || cand->identity != IDENTITY_EQUAL))
                mark_inferred(l, true);
        assign(h, k, cand);
        return VERDICT_DONE;
}

static struct candidate *nearest(struct choice *ch)
{
        struct candidate *best = &ch->candidates[0];

        for (size_t i = 1; i < ch->count; i++) {
                struct candidate *cand = &ch->candidates[i];

                if (cand->fitting.distance < best->fitting.distance ||
                    (cand->fitting.distance == best->fitting.distance &&
                     cand->launch->seq < best->launch->seq))
                        best = cand;
        }
        return best;
}

/*
 * Calls that overlap, records in order of ids: the one that returned first is the
 * one that can least wait for a later id.
 */
static struct candidate *earliest(struct choice *ch)
{
        struct candidate *best = &ch->candidates[0];

        for (size_t i = 1; i < ch->count; i++)
                if (launch_return_ns(ch->candidates[i].launch) < launch_return_ns(best->launch))
                        best = &ch->candidates[i];
        return best;
}

/* There was a moment at which all of them were in their calls. */
static bool all_overlap(const struct choice *ch)
{
        uint64_t enter_ns = 0, return_ns = UINT64_MAX;

        for (size_t i = 0; i < ch->count; i++) {
                const struct launch *l = ch->candidates[i].launch;

                if (l->record.cpu_enter_ns > enter_ns)
                        enter_ns = l->record.cpu_enter_ns;
                if (launch_return_ns(l) < return_ns)
                        return_ns = launch_return_ns(l);
        }
        return enter_ns < return_ns;
}

/*
 * Lost launches could have had the id as well. It is likely that each of them
 * took one: then one candidate has just this id.
 */
static enum verdict decide_lossy(struct choice *ch, const struct held *h, struct kernel *k)
{
        struct candidate *best = nearest(ch);

        if (ch->age_ns < EVENT_LATENCY_NS || pass_budget(ch->context, h) ||
            best->fitting.distance || best->fitting.hole)
                return VERDICT_WAIT;
        mark_inferred(best->launch, true);
        assign(h, k, best);
        return VERDICT_DONE;
}

static enum verdict decide_several(struct choice *ch, const struct held *h, struct kernel *k)
{
        struct candidate *best = earliest(ch);
        bool anchored = true, foreign = ch->overflow, hole = false, plain;

        for (size_t i = 0; i < ch->count; i++) {
                foreign |= ch->candidates[i].fitting.foreign;
                hole |= ch->candidates[i].fitting.hole;
                anchored &= ch->candidates[i].fitting.fit != FIT_UNANCHORED;
        }
        if (!anchored || ch->several_contexts || ch->truncated || ch->claim == GRAPH_MAYBE ||
            !complete(ch->context, h, ch->age_ns))
                return VERDICT_WAIT;
        /*
         * If all lower ids are taken, it is the earliest one's or one's that
         * overlaps with that; else an earlier one may have a lower id whose
         * kernel has not started.
         */
        if (hole)
                return decide_lossy(ch, h, k);
        plain = all_overlap(ch) || (!ch->overflow && best->fitting.missing == 0);
        if (foreign && !plain && (ch->age_ns < CHOICE_PATIENCE_NS || pass_budget(ch->context, h)))
                return VERDICT_WAIT;
        if (ch->stage != STAGE_CHOICES)
                return VERDICT_CHOICE;
        /* The record of a lower id may be on its way: it would say more. */
        if (best->fitting.missing && ch->age_ns < EVENT_LATENCY_NS)
                return VERDICT_WAIT;
        if (best->fitting.missing)
                best = nearest(ch);
        if (foreign && !plain)
                mark_inferred(best->launch, false);
        window_choice(best->launch);
        assign(h, k, best);
        return VERDICT_DONE;
}

/* No launch fits: did something take ids unseen, or less than was thought? */
static enum verdict decide_none(struct choice *ch, const struct held *h, struct kernel *k)
{
        struct candidate *cand = NULL;
        const struct context *c;

        if (ch->claim == GRAPH_MAYBE) {
                if (ch->stage == STAGE_CHOICES || !complete(ch->exec->context, h, ch->age_ns))
                        return VERDICT_WAIT;
                graph_start(ch->exec, h, k);
                return VERDICT_DONE;
        }
        if (ch->behind_count == 1 && complete(ch->behind.launch->context, h, ch->age_ns))
                cand = &ch->behind;
        else if (ch->high_count == 1 && ch->age_ns >= JUMP_AGE_NS &&
                 ch->high.fitting.excess <= HIDDEN_IDS_MAX)
                cand = &ch->high;
        else if (ch->low_count == 1 && ch->high_count == 0)
                cand = &ch->low;
        if (!cand)
                return VERDICT_WAIT;
        c = cand->launch->context;
        if (pass_budget(c, h) || ch->truncated || cand->fitting.foreign) {
                if (ch->age_ns < CHOICE_PATIENCE_NS)
                        return VERDICT_WAIT;
                mark_inferred(cand->launch, true);
        }
        cand->launch->match_ordered = true;
        assign(h, k, cand);
        return VERDICT_DONE;
}

/*
 * Many records in a row that are of launched kernels and fit no launch by their
 * ids: what was believed about ids is wrong.
 */
static void misfit(struct correlated_process *p)
{
        struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next) {
                if (TAILQ_EMPTY(&c->active))
                        continue;
                if (c->holes_lost) {
                        c->holes_lost--;
                        continue;
                }
                if (++c->misfits < UNANCHOR_AFTER)
                        continue;
                c->misfits = 0;
                c->anchor_from = window_end(c);
                c->anchor.valid = false;
        }
}

static void choose_context_candidates(struct correlated_process *p, struct choice *ch,
                                      const struct held *h, struct kernel *k)
{
        struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next)
                context_candidates(ch, c, h, k);
}

static enum verdict start_match(struct correlated_process *p, struct held *h, uint64_t age_ns,
                                enum stage stage)
{
        struct choice ch = {.stage = stage, .age_ns = age_ns};
        struct kernel *k = kernel_find(p, h->kernel_id);
        enum verdict v;

        if (!k)
                return VERDICT_WAIT;
        choose_context_candidates(p, &ch, h, k);
        if (ch.claim == GRAPH_YES) {
                graph_start(ch.exec, h, k);
                return VERDICT_DONE;
        }
        if (ch.claim == GRAPH_WAIT || stage == STAGE_GRAPHS)
                return VERDICT_WAIT;
        if (ch.count == 1)
                v = decide_one(&ch, h, k);
        else if (ch.count > 1)
                v = decide_several(&ch, h, k);
        else
                v = decide_none(&ch, h, k);
        if (v != VERDICT_WAIT)
                return v;
        h->candidates = ch.count > 0;
        for (size_t i = 0; i < ch.count; i++) {
                const struct candidate *cand = &ch.candidates[i];

                cand->launch->context->deferred++;
                cand->launch->context->deferred_since += since_sync(cand->launch->context, h);
        }
        if (ch.count > 0)
                return VERDICT_WAIT;
        if (ch.misfits && age_ns >= LOOSE_AGE_NS && !h->misfitted) {
                h->misfitted = true;
                misfit(p);
        }
        return VERDICT_WAIT;
}

/* CPU time of a record. -EAGAIN: the clock will be known soon. */
static int convert(struct correlated_process *p, struct held *h, bool last)
{
        struct context *c, *next;
        int r;

        if (h->converted || !p->clock)
                return 0;
        r = clock_model_to_cpu(p->clock, h->time_ns, &h->cpu_ns, &h->error_ns);
        h->converted = r == 0;
        HASH_ITER (hh, p->contexts, c, next)
                if (h->converted && h->order > c->before_sync && h->cpu_ns <= c->sync_ns)
                        c->before_sync = h->order;
        if (r == -EAGAIN && !last && h->arrived_ns + CLOCK_PATIENCE_NS > p->correlator->now_ns)
                return -EAGAIN;
        return 0;
}

static uint64_t age_of(const struct correlated_process *p, const struct held *h, bool last)
{
        return last ? RECORD_PATIENCE_NS : p->correlator->now_ns - h->arrived_ns;
}

static int by_order(const void *a, const void *b)
{
        const struct held *x = a, *y = b;

        return x->order < y->order ? -1 : x->order > y->order;
}

static int by_gridid(const void *a, const void *b)
{
        const struct held *x = a, *y = b;

        if (x->gridid != y->gridid)
                return x->gridid < y->gridid ? -1 : 1;
        return by_order(a, b);
}

/* Mostly they are in order already. */
static void held_sort(struct held_list *list, int (*compare)(const void *, const void *))
{
        for (size_t i = 1; i < list->count; i++)
                if (compare(&list->items[i - 1], &list->items[i]) > 0) {
                        qsort(list->items, list->count, sizeof(*list->items), compare);
                        return;
                }
}

static bool end_or_drop(struct correlated_process *p, struct held *h, uint64_t age_ns)
{
        struct launch *l = launch_running(p, h);

        if (l) {
                launch_ended(l, h);
                return true;
        }
        if (age_ns < RECORD_PATIENCE_NS)
                return false;
        drop_end(p);
        return true;
}

/* One of the launches that wait waits for this record, in vain; which one is not known. */
static void waiting_overdue(struct correlated_process *p, const struct held *h)
{
        struct context *c, *next;
        struct stream *s;
        struct launch *l;

        if (!h->candidates)
                return;
        HASH_ITER (hh, p->contexts, c, next)
                TAILQ_FOREACH(s, &c->active, in_active)
                {
                        l = TAILQ_FIRST(&s->waiting);
                        if (l && entered_before(h, l->record.cpu_enter_ns) && l->list == LIST_NONE)
                                launch_schedule(l, LIST_SHORT);
                }
}

/*
 * Try each start; those that are done with leave the list. A pass ends early: the
 * plain stage at a choice between overlapping calls, since what comes after rests
 * on it; the stage that makes choices at a record that will soon be decided.
 */
static enum verdict starts_pass(struct correlated_process *p, bool last, enum stage stage)
{
        struct held_list *list = &p->starts;
        size_t kept = 0, i, before = list->count;
        uint64_t now = p->correlator->now_ns;
        enum verdict v = VERDICT_WAIT;
        bool stop = false;
        struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next)
                c->deferred = c->deferred_since = 0;
        for (i = 0; i < before; i++)
                if (convert(p, &list->items[i], last) < 0)
                        return VERDICT_WAIT;
        held_sort(list, stage == STAGE_CHOICES ? by_gridid : by_order);
        for (i = 0; i < before && !stop; i++) {
                struct held *h = &list->items[i];
                uint64_t age_ns = age_of(p, h, last);

                v = VERDICT_WAIT;
                if (h->retry_ns <= now || last)
                        v = start_match(p, h, age_ns, stage);
                if (v == VERDICT_DONE)
                        continue;
                if (v == VERDICT_WAIT && age_ns >= RECORD_PATIENCE_NS) {
                        drop_start(p, h);
                        waiting_overdue(p, h);
                        continue;
                }
                /* What fits nowhere is tried the less often the longer it has been there. */
                if (v == VERDICT_WAIT && !h->candidates && age_ns > LOOSE_AGE_NS &&
                    h->retry_ns <= now)
                        h->retry_ns = now + age_ns / 8;
                stop = v == VERDICT_CHOICE ||
                       (stage == STAGE_CHOICES && h->candidates && age_ns < EVENT_LATENCY_NS);
                list->items[kept++] = *h;
        }
        memmove(&list->items[kept], &list->items[i], (before - i) * sizeof(*list->items));
        list->count = kept + before - i;
        return v == VERDICT_CHOICE ? v : list->count < before ? VERDICT_DONE : VERDICT_WAIT;
}

static void ends_pass(struct correlated_process *p, bool last)
{
        struct held_list *list = &p->ends;
        size_t kept = 0, before = list->count;

        for (size_t i = 0; i < before; i++) {
                struct held *h = &list->items[i];

                if (convert(p, h, last) < 0 || !end_or_drop(p, h, age_of(p, h, last)))
                        list->items[kept++] = *h;
        }
        list->count = kept;
}

/* The waiting launches to solve around: in each stream the first few that nothing has passed. */
static size_t solve_heads(const struct context *c, uint64_t heads[HEADS_MAX])
{
        const struct stream *s;
        size_t count = 0;

        TAILQ_FOREACH(s, &c->active, in_active)
        {
                const struct launch *l;
                size_t of_stream = 0;

                TAILQ_FOREACH(l, &s->waiting, in_stream)
                {
                        if (count == HEADS_MAX || of_stream == HEADS_OF_STREAM)
                                break;
                        if (l->passed)
                                continue;
                        heads[count++] = l->seq;
                        of_stream++;
                }
        }
        return count;
}

static size_t context_solve(struct context *c, struct held_list *starts, bool exclusive)
{
        uint64_t heads[HEADS_MAX], end = 0;
        size_t solved = 0, count = solve_heads(c, heads);

        for (size_t i = 0; i < count; i++) {
                const struct launch *l = window_at(c, heads[i]);

                if (l && l->state == STATE_WAITING && (l->seq >= end || i == 0))
                        solved += solve_around(c, l, starts, exclusive, &end);
        }
        return solved;
}

/* Stretches of launches whose alignment is not known: settle what can be proven. */
static bool starts_solve(struct correlated_process *p)
{
        bool exclusive = HASH_CNT(hh, p->contexts) == 1;
        struct held_list *list = &p->starts;
        struct context *c, *next;
        size_t solved = 0, kept = 0;

        held_sort(list, by_gridid);
        HASH_ITER (hh, p->contexts, c, next)
                solved += context_solve(c, list, exclusive);
        if (solved == 0)
                return false;
        for (size_t i = 0; i < list->count; i++)
                if (!list->items[i].taken)
                        list->items[kept++] = list->items[i];
        list->count = kept;
        return true;
}

/* One round over all that waits; false when it settled nothing. */
static bool starts_round(struct correlated_process *p, bool last)
{
        enum verdict v = starts_pass(p, last, STAGE_PLAIN);
        bool solved;

        solved = p->starts.count && starts_solve(p);
        if (v != VERDICT_CHOICE)
                return v == VERDICT_DONE || solved;
        if (p->execs)
                starts_pass(p, last, STAGE_GRAPHS);
        /*
         * In order of ids the launch whose id is known is mostly the one just
         * before, and of several that overlap the right one is taken first.
         */
        return starts_pass(p, last, STAGE_CHOICES) == VERDICT_DONE || solved;
}

void records_match(struct correlated_process *p, bool last)
{
        uint64_t now = p->correlator->now_ns;

        if (!p->changed && !last && p->retried_ns + RETRY_NS > now)
                return;
        p->retried_ns = now;
        p->changed = false;
        /* What one pass settled may settle more. */
        for (int i = 0; i < PASSES_MAX && p->starts.count; i++)
                if (!starts_round(p, false))
                        break;
        if (last)
                starts_round(p, true);
        ends_pass(p, last);
}
