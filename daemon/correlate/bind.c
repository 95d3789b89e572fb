/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whose is a lane? A stream has one block of launch descriptors while it lives, so
 * it is learned once: when a single one of the streams that have no lane yet can
 * have made the records that wait, and no graph can. A stream that was destroyed
 * gives up its lane when its last launch has been matched. So do the streams of a
 * context that was reset: handles, the default stream's first of all, stay as they
 * are, but descriptors lie in blocks of a context with a new number. The call is not
 * seen; that nothing of the old number comes any more, and nothing else can have made
 * the new one's records, tells it.
 *
 * That a single stream is possible is proof only if its records cannot be of a launch that
 * does not wait: one that was never seen (order_missing()), or was taken for another's or
 * dropped on a guess (match_spoiled()). Where that cannot be excluded the lane is guessed,
 * and nothing in it is more than inferred, until a synchronise of the context lets it be
 * proven: what was before has ended then, and what comes after is of later launches.
 */
#include "correlate/join.h"

#include <stdlib.h>

#define STREAM_IDS 8

struct candidates {
        size_t count;
        bool open;             /* it may be another's, which may become known */
        bool missing;          /* it may be of a launch that was never seen */
        struct stream *stream; /* the one that most records are known to fit */
        struct shifts shifts;
};

static uint64_t lane_last_ns(const struct lane *lane)
{
        const struct held *last = TAILQ_LAST(&lane->records, held_head);

        return last && last->time_ns > lane->last_time_ns ? last->time_ns : lane->last_time_ns;
}

/* It has no lane; or one that nothing more comes in, if its context was reset. */
static bool lane_free_for(const struct stream *s, const struct lane *lane, const struct held *h)
{
        const struct lane *old = s->lane;

        return !old || old == lane ||
               (old->tag && old->tag < h->tag && lane_last_ns(old) < h->time_ns);
}

/*
 * The context may have had another number before, even one of which no record came: of
 * what was launched then some may never have started.
 */
static bool not_first(const struct context *c, const struct held *h)
{
        const struct tag *tags = c->process->tags;

        if (h->tag >= CONTEXTS_MAX)
                return true;
        for (uint16_t tag = 1; tag < h->tag; tag++)
                if (tags[tag].index ? tags[tag].index == c->index
                                    : tags[tag].last_ns < tags[h->tag].first_ns)
                        return true;
        return false;
}

/*
 * A reset ends what was launched and has not started. That is an error of the program, and
 * may be left out of account in a guess.
 */
static struct shifts candidate_shifts(struct lane *lane, const struct stream *s,
                                      const struct held *h, bool reset, bool guess)
{
        struct lost lost = doubt_lost(lane, &s->queue, h);

        if (match_spoiled(&s->queue, h))
                lost.lack = lost.exceed = UINT32_MAX;
        else if (!order_missing(s->context, h))
                lost.exceed = 0;
        /* Records of its first launches may have been taken for another stream's. */
        if (s->lane == lane || lane->spent || (reset && !guess))
                lost.lack = UINT32_MAX;
        return shifts_find(lane, &s->queue, lost.lack, lost.exceed);
}

/* loose: the first few records are enough. */
static void candidate(struct lane *lane, struct stream *s, const struct held *h, bool loose,
                      struct candidates *found)
{
        bool reset = s->lane != lane && not_first(s->context, h);
        bool guess = record_aged(lane->process, h, DOUBT_PATIENCE_NS);
        struct shifts shifts;

        if (!lane_free_for(s, lane, h) || !lane_first(lane, &s->queue))
                return;
        found->open |= reset && guess;
        shifts = loose ? shifts_guess(lane, &s->queue) : candidate_shifts(lane, s, h, reset, guess);
        /* Of a launch behind the hole. */
        found->open |= shifts.count && !shifts.pairs && shifts.ends && shifts.shift > 0;
        if (!shifts.count || (!shifts.pairs && shifts.shift >= 0 && (!reset || guess)))
                return;
        if (!found->stream || shifts.records > found->shifts.records) {
                found->stream = s;
                found->shifts = shifts;
        }
        found->count += shifts.count;
}

/* Can h be of one of its launches that does not wait: taken for another's, or dropped? */
static bool open_to(const struct stream *s, const struct lane *lane, const struct held *h)
{
        if (s->lane && s->lane != lane && s->lane->guessed)
                return true;
        return lane_free_for(s, lane, h) && match_spoiled(&s->queue, h);
}

static struct candidates candidates(struct lane *lane, const struct held *h, bool loose)
{
        struct candidates found = {0};
        struct context *c, *next_context;
        struct stream *s, *next;

        HASH_ITER (hh, lane->process->contexts, c, next_context)
                if (match_tag(h, c)) {
                        found.missing |= order_missing(c, h);
                        TAILQ_FOREACH(s, &c->active, in_active)
                        candidate(lane, s, h, loose, &found);
                }
        HASH_ITER (hh, lane->process->contexts, c, next_context)
                if (match_tag(h, c))
                        HASH_ITER (hh, c->streams, s, next)
                                found.open |= s != found.stream && open_to(s, lane, h);
        return found;
}

static void bind(struct lane *lane, struct stream *s, bool proven)
{
        if (s->lane) {
                s->queue.may_lack = true;
                lane_release(s->lane);
        }
        s->queue.tallied = false;
        lane->stream = s;
        lane->guessed = !proven;
        lane->spent &= !proven;
        s->lane = lane;
}

/*
 * What was taken for a reset of this record's context was none: it goes on. Where its
 * context is not known, a lane with a later number may have been given its stream.
 */
static void refute_resets(const struct lane *lane, const struct held *h)
{
        const struct tag *tags = lane->process->tags;
        uint32_t index = h->tag < CONTEXTS_MAX ? tags[h->tag].index : 0;
        struct context *c, *next_context;
        struct stream *s, *next;

        HASH_ITER (hh, lane->process->contexts, c, next_context)
                HASH_ITER (hh, c->streams, s, next)
                        if (s->lane && s->lane->guessed && s->lane->tag > h->tag &&
                            tags[s->lane->tag % CONTEXTS_MAX].index != c->index &&
                            (!index || index == c->index))
                                lane_release(s->lane);
}

/* So many ids, each higher than the one before, and all at one kind of address: not of nodes. */
static bool stream_like(const struct lane *lane)
{
        const struct held *h = TAILQ_FIRST(&lane->records), *next;
        unsigned int count = 1;

        for (; (next = TAILQ_NEXT(h, in_list)) && count < STREAM_IDS; h = next, count++)
                if (next->gridid <= h->gridid)
                        return false;
        return count == STREAM_IDS;
}

/*
 * Records of an earlier number wait, perhaps for the launches that would be passed over;
 * or to be told whose they are, which tells that there was no reset. (Times of two GPUs
 * say nothing of which number was first.)
 */
static bool forerunner_waits(const struct lane *lane, const struct held *h,
                             const struct candidates *found)
{
        const struct lane *other;

        if (!found->stream)
                return false;
        if (found->shifts.shift <= 0 && !found->stream->lane &&
            (found->shifts.sure || !not_first(found->stream->context, h)))
                return false;
        TAILQ_FOREACH(other, &lane->process->busy, in_busy)
        if ((!other->stream || other->stream == found->stream) && other->tag < lane->tag &&
            lane_last_ns(other) < h->time_ns)
                return !record_aged(lane->process, h, 2 * DOUBT_PATIENCE_NS);
        return false;
}

/* To the only one that is possible of those that are known. */
static bool bind_only(struct lane *lane, const struct candidates *found)
{
        struct queue *q = &found->stream->queue;

        bind(lane, found->stream, !found->missing);
        /* Where all records are of launches that do not wait, those that do are where they were. */
        if (found->shifts.sure && found->shifts.pairs)
                q->guess_ns = 0;
        return doubt_settle(lane, q, &found->shifts);
}

/* After a synchronise, what was guessed before it does not matter: can it be proven now? */
static bool prove_step(struct lane *lane, const struct held *h)
{
        const struct queue *q = &lane->stream->queue;
        struct candidates found;

        if (!lane->guessed || lane->proof_ns == q->idle_ns || !match_after_sync(q, h) ||
            !launches_known(lane->process, h))
                return false;
        lane->proof_ns = q->idle_ns;
        found = candidates(lane, h, false);
        if (found.count != 1 || found.open || found.missing || !found.shifts.pairs)
                return false;
        lane_release(lane);
        return bind_only(lane, &found);
}

static bool bind_step(struct lane *lane, struct held *h, bool all)
{
        struct correlated_process *p = lane->process;
        bool graph = graph_may_be(p, h) && !stream_like(lane);
        struct candidates found;

        if (!lane_worth_trying(lane, p->queue.count, all) || !launches_known(p, h))
                return false;
        found = candidates(lane, h, false);
        if (forerunner_waits(lane, h, &found))
                return false;
        if (found.count == 1 && !found.open && (found.shifts.pairs || found.shifts.shift < 0) &&
            !graph)
                return bind_only(lane, &found);
        if (found.count == 0 && graph) {
                lane->graph = true;
                return true;
        }
        if (!record_aged(p, h, DOUBT_PATIENCE_NS))
                return false;
        if (found.count == 0)
                refute_resets(lane, h);
        if (found.count == 0)
                found = candidates(lane, h, true);
        if (found.count && found.shifts.pairs) {
                bind(lane, found.stream, false);
                return doubt_guess(lane, &found.stream->queue, &found.shifts);
        }
        /* It may have been a launch's. */
        lane->gap--;
        lane_drop(lane, h);
        return true;
}

bool stream_step(struct lane *lane, struct held *h, bool all)
{
        struct stream *s = lane->stream;

        if (lane->graph) {
                lane->guessed = true;
                lane_release(lane);
                lane_to_graph(lane, h);
                return true;
        }
        if (s && s->queue.closed && s->queue.count == 0) {
                lane_release(lane);
                s = NULL;
        }
        if (s && prove_step(lane, h))
                return true;
        return s ? pair_step(lane, &s->queue, h, false, all) : bind_step(lane, h, all);
}
