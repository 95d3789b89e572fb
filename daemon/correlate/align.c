/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Alignment: which grid ids can a launch have? Count, from the nearest launch
 * before it whose id is known, what must and what may have taken ids in between
 * (the invariant in correlator.c). Calls that overlap in time may have taken
 * theirs in either order, and a hole may or may not have taken one.
 */
#include "correlate/join.h"

#define SUCCESSOR_STEPS 64

struct count {
        uint64_t low, high; /* only known ids between these count */
        uint64_t definite;
        uint64_t possible;
        uint64_t pinned;
        uint64_t holes;
        uint64_t last_hole;
        uint64_t foreign; /* possible, by other things than launches */
        bool taken;       /* the id in question is another launch's */
};

static bool trusted(const struct context *c, const struct launch *l)
{
        return l->pinned && l->seq >= c->anchor_from;
}

static void count_hole(struct count *n, uint64_t seq)
{
        n->possible++;
        n->holes++;
        if (seq > n->last_hole)
                n->last_hole = seq;
}

/* surely: if it took an id, then one in between. */
static void count_launch(const struct context *c, struct count *n, const struct launch *m,
                         bool surely)
{
        if (trusted(c, m)) {
                n->taken |= m->record.gridid == n->high;
                if (m->record.gridid > n->low && m->record.gridid < n->high)
                        n->pinned++;
                return;
        }
        if (m->consumes == CONSUMES_NONE)
                return;
        n->possible++;
        if (m->consumes == CONSUMES_MAYBE)
                n->foreign++;
        else if (surely)
                n->definite++;
}

static void count_operations(struct count *n, const struct operations *ops, bool surely)
{
        n->possible += ops->possible;
        n->foreign += ops->possible;
        if (surely)
                n->definite += ops->definite;
}

/* The nearest launch before l whose id is known and whose call had returned by then. */
static const struct launch *anchor_before(const struct context *c, const struct launch *l,
                                          bool *ret_gave_up)
{
        uint64_t from = c->anchor_from > c->first_seq ? c->anchor_from : c->first_seq;
        unsigned int steps = 0;

        *ret_gave_up = from > c->first_seq;
        for (uint64_t seq = l->seq; seq-- > from;) {
                const struct launch *m = window_at(c, seq);

                if (m && trusted(c, m) && launch_return_ns(m) <= l->record.cpu_enter_ns)
                        return m;
                if (++steps > SCAN_MAX) {
                        *ret_gave_up = true;
                        return NULL;
                }
        }
        return NULL;
}

/* Launches before the anchor that may have taken their id after it. */
static void count_behind(const struct context *c, struct count *n, const struct launch *anchor)
{
        uint64_t reach = anchor->reach_before_ns, enter_ns = anchor->record.cpu_enter_ns;
        unsigned int steps = 0;

        if (anchor->ops.return_ns > enter_ns)
                count_operations(n, &anchor->ops, false);
        for (uint64_t seq = anchor->seq; seq-- > c->first_seq && steps++ < SCAN_MAX;) {
                const struct launch *m = window_at(c, seq);

                if (reach <= enter_ns && seq <= c->contiguous_seq)
                        return;
                if (!m) {
                        if (window_hole_overlaps(c, seq, anchor))
                                count_hole(n, seq);
                        continue;
                }
                if (launch_return_ns(m) > enter_ns)
                        count_launch(c, n, m, false);
                if (m->ops.return_ns > enter_ns)
                        count_operations(n, &m->ops, false);
                reach = m->reach_before_ns;
        }
}

/* Launches after l that may have taken their id before it. */
static void count_ahead(const struct context *c, struct count *n, const struct launch *l)
{
        uint64_t return_ns = launch_return_ns(l);
        unsigned int steps = 0;

        for (uint64_t seq = l->seq + 1; seq < window_end(c) && steps++ < SCAN_MAX; seq++) {
                const struct launch *m = window_at(c, seq);

                if (!m) {
                        if (window_hole_overlaps(c, seq, l))
                                count_hole(n, seq);
                        continue;
                }
                if (m->ops.possible && m->ops.enter_ns < return_ns)
                        count_operations(n, &m->ops, false);
                if (m->record.cpu_enter_ns >= return_ns)
                        return;
                count_launch(c, n, m, false);
        }
        if (c->tail.possible && c->tail.enter_ns < return_ns)
                count_operations(n, &c->tail, false);
}

/* A known id after l leaves room for what must have come in between. */
static bool successor_allows(const struct context *c, const struct launch *l, uint64_t gridid)
{
        struct count n = {.low = gridid, .high = UINT64_MAX};
        unsigned int steps = 0;

        for (uint64_t seq = l->seq + 1; seq < window_end(c) && steps++ < SUCCESSOR_STEPS; seq++) {
                const struct launch *m = window_at(c, seq);
                bool after;

                if (!m)
                        continue;
                after = m->record.cpu_enter_ns >= launch_return_ns(l);
                if (after && m->ops.enter_ns >= launch_return_ns(l))
                        n.definite += m->ops.definite;
                if (after && trusted(c, m))
                        return m->record.gridid > gridid &&
                               m->record.gridid - gridid - 1 >= n.definite;
                if (after && m->consumes == CONSUMES_ONE && !m->pinned &&
                    m->reach_before_ns <= m->record.cpu_enter_ns && seq + 1 < window_end(c) &&
                    window_at(c, seq + 1) &&
                    window_at(c, seq + 1)->record.cpu_enter_ns >= launch_return_ns(m))
                        n.definite++;
        }
        return true;
}

static struct fitting judge(const struct context *c, const struct launch *l, uint64_t gridid,
                            uint64_t record_ns, const struct count *n, uint64_t nominal)
{
        uint64_t need = gridid - n->low - 1;
        uint64_t least = n->definite + n->pinned, most = n->possible + n->pinned;
        struct fitting f = {.foreign = n->foreign > 0 || n->holes > 0};

        f.missing = need > n->pinned ? need - n->pinned : 0;
        f.distance = need > nominal ? need - nominal : nominal - need;
        if (n->taken || need < least) {
                f.fit = FIT_LOW;
        } else if (need > most) {
                f.fit = FIT_HIGH;
                f.excess = need - most;
        } else if (least == most) {
                f.fit = FIT_RIGID;
        } else {
                f.fit = successor_allows(c, l, gridid) ? FIT_SLACK : FIT_LOW;
                /* A kernel that starts after the holes' launches had ended is none of theirs. */
                f.hole = n->holes && need < most &&
                         !(record_ns > c->sync_ns && n->last_hole <= c->sync_seq &&
                           n->last_hole <= c->contiguous_seq);
        }
        return f;
}

struct fitting align_fit(const struct context *c, const struct launch *l, uint64_t gridid,
                         uint64_t record_ns, bool loose)
{
        const struct launch *anchor;
        struct count n = {.high = gridid};
        struct fitting f;
        uint64_t from, nominal = 0, anchor_return_ns = 0;
        bool gave_up;

        anchor = anchor_before(c, l, &gave_up);
        if (!anchor && (gave_up || !c->anchor.valid))
                return (struct fitting){.fit = FIT_UNANCHORED};
        if (anchor) {
                n.low = anchor->record.gridid;
                from = anchor->seq + 1;
                anchor_return_ns = launch_return_ns(anchor);
        } else {
                n.low = c->anchor.id;
                n.definite = c->anchor.definite;
                n.possible = c->anchor.possible;
                n.foreign = n.possible - n.definite;
                nominal = n.definite;
                from = c->first_seq;
        }
        if (gridid <= n.low)
                return (struct fitting){.fit = FIT_LOW};
        if (anchor)
                count_behind(c, &n, anchor);
        for (uint64_t seq = from; seq < l->seq; seq++) {
                const struct launch *m = window_at(c, seq);

                if (!m) {
                        count_hole(&n, seq);
                        nominal++;
                        continue;
                }
                nominal += m->consumes == CONSUMES_ONE;
                count_launch(c, &n, m,
                             m->record.cpu_enter_ns >= anchor_return_ns &&
                                     launch_return_ns(m) <= l->record.cpu_enter_ns);
                count_operations(&n, &m->ops, m->ops.enter_ns >= anchor_return_ns);
        }
        nominal += l->ops.definite;
        count_operations(&n, &l->ops, l->ops.enter_ns >= anchor_return_ns);
        count_ahead(c, &n, l);
        if (loose)
                n.definite = 0;
        f = judge(c, l, gridid, record_ns, &n, nominal);
        f.soft = anchor && anchor->soft;
        return f;
}

void align_between(const struct context *c, uint64_t position, uint64_t enter_ns,
                   uint64_t return_ns, uint64_t *ret_low, uint64_t *ret_high)
{
        unsigned int steps = 0;

        *ret_low = c->anchor.valid ? c->anchor.id + 1 : 1;
        *ret_high = UINT64_MAX;
        for (uint64_t seq = position + 1; seq-- > c->first_seq && steps++ < SCAN_MAX;) {
                const struct launch *m = window_at(c, seq);

                if (m && trusted(c, m) && launch_return_ns(m) <= enter_ns) {
                        *ret_low = m->record.gridid + 1;
                        break;
                }
        }
        steps = 0;
        for (uint64_t seq = position + 1; seq < window_end(c) && steps++ < SCAN_MAX; seq++) {
                const struct launch *m = window_at(c, seq);

                if (m && trusted(c, m) && m->record.cpu_enter_ns >= return_ns) {
                        *ret_high = m->record.gridid - 1;
                        break;
                }
        }
}
