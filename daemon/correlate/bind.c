/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whose is a lane? A stream has one block of launch descriptors while it lives, so
 * it is learned once: when a single one of the streams that have no lane yet can
 * have made the records that wait, and no graph can. A stream that was destroyed
 * gives up its lane when its last launch has been matched.
 */
#include "correlate/join.h"

#include <stdlib.h>

#define STREAM_IDS 8

struct candidates {
        size_t count;
        struct stream *stream; /* the one that most records are known to fit */
        struct shifts shifts;
};

/* loose: the first few records are enough. */
static void candidate(struct lane *lane, struct stream *s, const struct held *h, bool loose,
                      struct candidates *found)
{
        struct queue *q = &s->queue;
        const struct launch *l = lane_first(lane, q);
        struct lost lost = doubt_lost(lane, q, h);
        struct shifts shifts;

        if (s->lane || !l || !match_tag(h, l))
                return;
        shifts = loose ? shifts_guess(lane, q) : shifts_find(lane, q, lost.lack, lost.exceed);
        if (!shifts.count || (!shifts.pairs && shifts.shift >= 0))
                return;
        if (!found->stream || shifts.records > found->shifts.records) {
                found->stream = s;
                found->shifts = shifts;
        }
        found->count += shifts.count;
}

static struct candidates candidates(struct lane *lane, const struct held *h, bool loose)
{
        struct candidates found = {0};
        struct context *c, *next;
        struct stream *s;

        HASH_ITER (hh, lane->process->contexts, c, next)
                TAILQ_FOREACH(s, &c->active, in_active)
        candidate(lane, s, h, loose, &found);
        return found;
}

static void bind(struct lane *lane, struct stream *s)
{
        lane->stream = s;
        s->lane = lane;
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

static bool bind_step(struct lane *lane, struct held *h, bool all)
{
        struct correlated_process *p = lane->process;
        bool graph = graph_may_be(p, h) && !stream_like(lane);
        struct candidates found;

        if (!lane_worth_trying(lane, p->queue.count, all) || !launches_known(p, h))
                return false;
        found = candidates(lane, h, false);
        if (found.count == 1 && !graph) {
                bind(lane, found.stream);
                return doubt_settle(lane, &found.stream->queue, &found.shifts);
        }
        if (found.count == 0 && graph) {
                lane->graph = true;
                return true;
        }
        if (!record_aged(p, h, DOUBT_PATIENCE_NS))
                return false;
        if (found.count == 0)
                found = candidates(lane, h, true);
        if (found.count && found.shifts.pairs) {
                bind(lane, found.stream);
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
