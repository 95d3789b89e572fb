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
 */
#include "correlate/join.h"

#include <stdlib.h>

#define STREAM_IDS 8

struct candidates {
        size_t count;
        bool guessed;          /* another stream may be one, whose lane was guessed */
        struct stream *stream; /* the one that most records are known to fit */
        struct shifts shifts;
};

static uint64_t lane_last_ns(const struct lane *lane)
{
        const struct held *last = TAILQ_LAST(&lane->records, held_head);

        return last && last->time_ns > lane->last_time_ns ? last->time_ns : lane->last_time_ns;
}

/* It has no lane; or one that nothing more comes in, if its context was reset. */
static bool lane_free_for(const struct stream *s, const struct held *h)
{
        const struct lane *old = s->lane;

        return !old || (old->tag && old->tag < h->tag && lane_last_ns(old) < h->time_ns);
}

/* A number whose context is not known may have been the same one's before a reset. */
static bool has_forerunner(const struct correlated_process *p, const struct held *h)
{
        for (uint16_t tag = 1; tag < h->tag && h->tag < CONTEXTS_MAX; tag++)
                if (p->tags[tag].first_ns && !p->tags[tag].index &&
                    p->tags[tag].last_ns < p->tags[h->tag].first_ns)
                        return true;
        return false;
}

/* Nothing was lost ever: all that records can be of is known. */
static bool lossless(const struct correlated_process *p)
{
        const struct context *c, *next;

        HASH_ITER (hh, p->contexts, c, next)
                if (c->hole)
                        return false;
        return p->gap == 0;
}

/*
 * A reset ends what was launched and has not started. That is an error of the program, and
 * may be left out of account in a guess.
 */
static struct shifts shifts_reset(struct lane *lane, const struct stream *s, struct lost lost,
                                  bool guess)
{
        struct shifts shifts;

        if (!guess)
                lost.lack = UINT32_MAX;
        shifts = shifts_find(lane, &s->queue, lost.lack, lost.exceed);
        shifts.sure &= !guess && lossless(lane->process);
        return shifts;
}

/* loose: the first few records are enough. */
static void candidate(struct lane *lane, struct stream *s, const struct held *h, bool loose,
                      struct candidates *found)
{
        bool reset = s->lane || has_forerunner(lane->process, h);
        bool guess = record_aged(lane->process, h, DOUBT_PATIENCE_NS);
        struct lost lost = doubt_lost(lane, &s->queue, h);
        const struct launch *l = lane_first(lane, &s->queue);
        struct shifts shifts;

        if (!lane_free_for(s, h) || !l || !match_tag(h, s->context))
                return;
        if (loose)
                shifts = shifts_guess(lane, &s->queue);
        else if (reset)
                shifts = shifts_reset(lane, s, lost, guess);
        else
                shifts = shifts_find(lane, &s->queue, lost.lack, lost.exceed);
        if (!shifts.count || (!shifts.pairs && shifts.shift >= 0 && (!reset || guess)))
                return;
        if (!found->stream || shifts.records > found->shifts.records) {
                found->stream = s;
                found->shifts = shifts;
        }
        found->count += shifts.count;
}

/* A stream that has its lane by a guess cannot be ruled out. */
static bool guessed(const struct correlated_process *p, const struct held *h)
{
        const struct context *c, *next_context;
        const struct stream *s, *next;

        if (!p->guessed_lanes)
                return false;
        HASH_ITER (hh, p->contexts, c, next_context)
                HASH_ITER (hh, c->streams, s, next)
                        if (s->lane && s->lane->guessed && match_tag(h, c))
                                return true;
        return false;
}

static struct candidates candidates(struct lane *lane, const struct held *h, bool loose)
{
        struct candidates found = {0};
        struct context *c, *next;
        struct stream *s;

        HASH_ITER (hh, lane->process->contexts, c, next)
                TAILQ_FOREACH(s, &c->active, in_active)
        candidate(lane, s, h, loose, &found);
        found.guessed = guessed(lane->process, h);
        return found;
}

/* If it is a guess among contexts, no order within the stream can make up for it. */
static void bind(struct lane *lane, struct stream *s, bool sure, bool guess)
{
        lane->doubtful = !sure && HASH_CNT(hh, lane->process->contexts) > 1;
        if (s->lane) {
                s->queue.may_lack = true;
                lane_release(s->lane, false);
        }
        lane->stream = s;
        lane->guessed = guess;
        lane->process->guessed_lanes += guess;
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
                        if (s->lane && s->lane->doubtful && s->lane->tag > h->tag &&
                            (!index || index == c->index))
                                lane_release(s->lane, true);
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
            (found->shifts.sure || !has_forerunner(lane->process, h)))
                return false;
        TAILQ_FOREACH(other, &lane->process->busy, in_busy)
        if ((!other->stream || other->stream == found->stream) && other->tag < lane->tag &&
            lane_last_ns(other) < h->time_ns)
                return !record_aged(lane->process, h, 2 * DOUBT_PATIENCE_NS);
        return false;
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
        if (found.count == 1 && !found.guessed && (found.shifts.pairs || found.shifts.shift < 0) &&
            !graph) {
                bind(lane, found.stream, found.shifts.sure, false);
                return doubt_settle(lane, &found.stream->queue, &found.shifts);
        }
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
                bind(lane, found.stream, false, true);
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
                lane_release(lane, true);
                lane_to_graph(lane, h);
                return true;
        }
        if (s && s->queue.closed && s->queue.count == 0) {
                lane_release(lane, false);
                s = NULL;
        }
        return s ? pair_step(lane, &s->queue, h, false, all) : bind_step(lane, h, all);
}
