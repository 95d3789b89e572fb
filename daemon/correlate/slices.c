/* SPDX-License-Identifier: Apache-2.0 */
#include "correlate/slices.h"

#include <stdlib.h>

#include "util/macro.h"

/* MIG has at most 7 GPU instances with 7 compute instances; contradicting bytes must not grow us.
 */
#define ENGINES_MAX 64

enum state {
        UNKNOWN, /* since the hand's position */
        BETWEEN, /* the hand stands where the last context left */
        IDLE,
        ACTIVE,
};

struct engine {
        struct slices_engine id;
        enum state state;
        uint64_t hand_ns;  /* everything before has been accounted for */
        bool begun;        /* ACTIVE: the slice's first piece has been handed out */
        uint64_t since_ns; /* ACTIVE: when the slice began */
        uint32_t pid, context_id;

        struct slices_second second;
        struct slices_share shares[SLICES_CONTEXTS_MAX];
};

struct slices {
        const struct clock_model *clock;
        const struct slices_ops *ops;
        void *data;
        uint64_t start_ns; /* where the hand of a new engine begins */
        uint64_t lost;     /* before there was an engine */
        struct engine *engines[ENGINES_MAX];
        size_t engine_count;
        uint64_t contradictions;
};

/* ---- seconds ---- */

static void begin_second(struct engine *e, uint64_t start_ns)
{
        e->second = (struct slices_second){.start_ns = start_ns, .engine = e->id};
}

static void end_second(struct slices *s, struct engine *e, uint64_t end_ns)
{
        struct slices_second *second = &e->second;

        second->span_ns = end_ns - second->start_ns;
        second->shares = e->shares;
        if (second->span_ns)
                s->ops->second(s->data, second);
        begin_second(e, end_ns);
}

/* The last one is for all that find no other. */
static struct slices_share *share_of(struct engine *e)
{
        struct slices_share *share;

        for (uint32_t i = 0; i < e->second.count; i++)
                if (e->shares[i].pid == e->pid && e->shares[i].context_id == e->context_id)
                        return &e->shares[i];
        if (e->second.count == SLICES_CONTEXTS_MAX)
                return &e->shares[SLICES_CONTEXTS_MAX - 1];
        share = &e->shares[e->second.count++];
        *share = (struct slices_share){.pid = e->pid, .context_id = e->context_id};
        if (e->second.count == SLICES_CONTEXTS_MAX)
                share->pid = share->context_id = CTXSW_PID_HIDDEN;
        return share;
}

/* ---- the hand ---- */

static void emit(struct slices *s, struct engine *e, uint64_t to_ns, bool ends)
{
        struct slice piece = {
                .start_ns = e->hand_ns,
                .end_ns = to_ns,
                .since_ns = e->state == ACTIVE ? e->since_ns : e->hand_ns,
                .engine = e->id,
                .unknown = e->state == UNKNOWN,
        };

        if (e->state == ACTIVE) {
                piece.pid = e->pid;
                piece.context_id = e->context_id;
                piece.begins = !e->begun;
                piece.ends = ends;
                e->begun = true;
        }
        s->ops->slice(s->data, &piece);
}

/* Within a second. */
static void account(struct slices *s, struct engine *e, uint64_t to_ns, bool ends)
{
        uint64_t ns = to_ns - e->hand_ns;
        struct slices_share *share;

        switch (e->state) {
        case UNKNOWN:
                e->second.unknown_ns += ns;
                if (ns)
                        emit(s, e, to_ns, false);
                break;
        case BETWEEN:
                e->second.switch_ns += ns;
                break;
        case IDLE:
                e->second.idle_ns += ns;
                break;
        case ACTIVE:
                share = share_of(e);
                e->second.active_ns += ns;
                share->active_ns += ns;
                share->slices += !e->begun;
                if (ends && to_ns - e->since_ns > share->longest_ns)
                        share->longest_ns = to_ns - e->since_ns;
                emit(s, e, to_ns, ends);
                break;
        }
        e->hand_ns = to_ns;
}

/* Move the hand; ends: the slice does, there. */
static void move(struct slices *s, struct engine *e, uint64_t to_ns, bool ends)
{
        uint64_t next;

        for (;;) {
                next = (e->hand_ns / SLICES_SECOND_NS + 1) * SLICES_SECOND_NS;
                if (to_ns < next)
                        break;
                account(s, e, next, ends && to_ns == next);
                end_second(s, e, next);
                if (to_ns == next)
                        return;
        }
        if (to_ns > e->hand_ns || ends)
                account(s, e, to_ns, ends);
}

/* ---- engines ---- */

static struct engine *find_engine(struct slices *s, struct slices_engine id)
{
        struct engine *e;

        for (size_t i = 0; i < s->engine_count; i++)
                if (s->engines[i]->id.mig_gpu == id.mig_gpu &&
                    s->engines[i]->id.mig_compute == id.mig_compute)
                        return s->engines[i];
        if (s->engine_count == ENGINES_MAX)
                return NULL;
        e = calloc(1, sizeof(*e));
        if (!e)
                return NULL;
        e->id = id;
        e->hand_ns = s->start_ns;
        begin_second(e, s->start_ns);
        e->second.lost = s->lost;
        s->lost = 0;
        s->engines[s->engine_count++] = e;
        return e;
}

struct slices *slices_new(const struct clock_model *clock, const struct slices_ops *ops, void *data,
                          uint64_t start_ns)
{
        struct slices *s = calloc(1, sizeof(*s));

        if (!s)
                return NULL;
        s->clock = clock;
        s->ops = ops;
        s->data = data;
        s->start_ns = start_ns;
        return s;
}

struct slices *slices_free(struct slices *s)
{
        if (!s)
                return NULL;
        for (size_t i = 0; i < s->engine_count; i++)
                free(s->engines[i]);
        free(s);
        return NULL;
}

uint64_t slices_contradictions(const struct slices *s)
{
        return s->contradictions;
}

/* ---- events ---- */

/* The gap until the next start is a switch if it is short. */
static void end_gap(struct slices *s, struct engine *e, uint64_t at_ns)
{
        if (e->state == BETWEEN && at_ns - e->hand_ns > SLICES_SWITCH_MAX_NS)
                e->state = IDLE;
        else if (e->state == BETWEEN)
                e->second.switches++;
        move(s, e, at_ns, false);
}

static void on_start(struct slices *s, struct engine *e, const struct ctxsw_event *event,
                     uint64_t at_ns)
{
        if (e->state == ACTIVE) {
                /* Its end was not told: the engine was taken from it at this moment at the latest.
                 */
                s->contradictions++;
                move(s, e, at_ns, true);
        } else {
                end_gap(s, e, at_ns);
        }
        e->state = ACTIVE;
        e->begun = false;
        e->since_ns = at_ns;
        e->pid = event->pid;
        e->context_id = event->context_id;
}

/* An end without a beginning tells who had the engine, but not since when. */
static void on_end(struct slices *s, struct engine *e, const struct ctxsw_event *event,
                   uint64_t at_ns)
{
        bool same = event->kind == CTXSW_RESET ||
                    (e->pid == event->pid && e->context_id == event->context_id);

        if (e->state == ACTIVE && same) {
                move(s, e, at_ns, true);
        } else {
                s->contradictions += e->state != UNKNOWN;
                e->state = UNKNOWN;
                move(s, e, at_ns, false);
        }
        e->state = BETWEEN;
}

void slices_event(struct slices *s, const struct ctxsw_event *event, uint64_t now_ns)
{
        struct engine *e =
                find_engine(s, (struct slices_engine){event->mig_gpu, event->mig_compute});
        uint32_t error_ns;
        uint64_t at_ns;

        if (!e || clock_model_to_cpu(s->clock, event->gpu_ns, &at_ns, &error_ns) < 0 ||
            at_ns > now_ns + error_ns) {
                s->contradictions++;
                return;
        }
        /* The clock model moves a little between readings: time does not go back for it. */
        if (at_ns < e->hand_ns)
                at_ns = e->hand_ns;
        if (event->kind == CTXSW_START)
                on_start(s, e, event, at_ns);
        else
                on_end(s, e, event, at_ns);
}

void slices_gap(struct slices *s, uint64_t lost)
{
        for (size_t i = 0; i < s->engine_count; i++)
                s->engines[i]->state = UNKNOWN;
        if (s->engine_count)
                s->engines[0]->second.lost += lost;
        else
                s->lost += lost;
}

static void advance(struct slices *s, struct engine *e, uint64_t now_ns, bool finish)
{
        if (now_ns <= e->hand_ns)
                return;
        /* Too short yet to be called idle: wait for what follows. */
        if (e->state == BETWEEN && now_ns - e->hand_ns <= SLICES_SWITCH_MAX_NS && !finish)
                return;
        if (e->state == BETWEEN)
                e->state = IDLE;
        move(s, e, now_ns, false);
}

void slices_advance(struct slices *s, uint64_t now_ns)
{
        if (now_ns > s->start_ns)
                s->start_ns = now_ns;
        for (size_t i = 0; i < s->engine_count; i++)
                advance(s, s->engines[i], now_ns, false);
}

void slices_finish(struct slices *s, uint64_t now_ns)
{
        for (size_t i = 0; i < s->engine_count; i++) {
                advance(s, s->engines[i], now_ns, true);
                end_second(s, s->engines[i], s->engines[i]->hand_ns);
        }
}
