/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The next record of a lane and the queue of its stream. After a gap in the records
 * or a hole in the order of entry, and when a record fits nothing, records and
 * launches are compared over all that waits until one way is left in which they can
 * lie to each other (shift.c). While several are left they wait; after a while one
 * is guessed, and what follows is inferred until a synchronise, or a comparison in
 * which the guess has no part, makes it certain again.
 */
#include "correlate/join.h"

#include <stdlib.h>

#define MISFITS_MAX 8 /* records in a row that fit nothing */

static uint32_t not_less(int64_t n)
{
        return n > 0 ? (uint32_t)n : 0;
}

/* Of the launches whose calls overlap with this one's, some have lost their records. */
static int64_t group_start(const struct lane *lane, const struct queue *q, int64_t launch)
{
        const struct launch *l = lane_first(lane, q);
        uint64_t reach_ns = 0;
        int64_t start = 0;

        for (int64_t i = 0; l && i <= launch; i++, l = lane_next(lane, q, l)) {
                if (l->record.cpu_enter_ns >= reach_ns)
                        start = i;
                if (launch_return_ns(l) > reach_ns)
                        reach_ns = launch_return_ns(l);
        }
        return start;
}

/* How many launches there are in the group at the head of the queue. */
static int64_t group_may_lack(const struct lane *lane, const struct queue *q)
{
        struct launch *l = lane_first(lane, q);
        uint64_t reach_ns = 0;
        int64_t size = 0;

        for (; l && (!reach_ns || l->record.cpu_enter_ns < reach_ns); l = lane_next(lane, q, l)) {
                l->may_lack = l->swappable[q->of] = true;
                size++;
                if (launch_return_ns(l) > reach_ns)
                        reach_ns = launch_return_ns(l);
        }
        return size;
}

/* The launches before this one, or the records, are what was lost. */
static void skip_to(struct lane *lane, struct queue *q, int64_t shift)
{
        int64_t whole = shift > 0 ? group_start(lane, q, shift) : shift;
        int64_t lost = shift - whole;

        for (; whole > 0; whole--)
                launch_finish(lane_first(lane, q));
        for (; whole < 0; whole++)
                lane_drop(lane, TAILQ_FIRST(&lane->records));
        if (shift > 0 && lost > 0)
                q->group_records = group_may_lack(lane, q) - lost;
}

/* So many records were of missing launches: of those that are owed first. */
static void explain_hole(const struct lane *lane, struct queue *q, uint32_t records)
{
        const struct launch *l = lane_first(lane, q);
        uint32_t owed = records < q->owed ? records : q->owed;

        q->owed -= owed;
        records -= owed;
        q->hole += l && l->hole - q->hole < records ? l->hole - q->hole : records;
}

/* The rest of the gap, or of the hole, is still to be explained. */
static bool settle_part(struct lane *lane, struct queue *q, int64_t shift)
{
        if (shift > 0 && !q->may_lack)
                lane->gap += (uint32_t)shift;
        if (shift < 0 && !q->may_exceed)
                explain_hole(lane, q, (uint32_t)-shift);
        skip_to(lane, q, shift);
        lane->tried = 0;
        return true;
}

bool doubt_settle(struct lane *lane, struct queue *q, const struct shifts *s)
{
        const struct launch *l;

        q->tally -= s->shift;
        if (!s->pairs)
                return settle_part(lane, q, s->shift);
        skip_to(lane, q, s->shift);
        l = lane_first(lane, q);
        q->owed = s->open ? not_less((int64_t)(q->owed + l->hole - q->hole) +
                                     (s->shift < 0 ? s->shift : 0))
                          : 0;
        lane->gap = TAILQ_FIRST(&lane->records)->gap;
        q->hole = l->hole;
        if (!s->sure)
                q->guess_ns = launch_return_ns(l);
        q->may_lack = q->may_exceed = false;
        lane->before_start_ns = UINT64_MAX;
        lane->tried = 0;
        return true;
}

/* What follows is inferred, until nothing from before is running. */
bool doubt_guess(struct lane *lane, struct queue *q, struct shifts *s)
{
        const struct launch *l = lane_first(lane, q);

        if (!s->pairs && !s->ends)
                return false;
        if (l)
                q->guess_ns = launch_return_ns(l);
        s->sure = false;
        return doubt_settle(lane, q, s);
}

/* All that can have been lost since all was certain, less what was dropped for it on a guess. */
static struct lost lost_since(const struct queue *q, const struct held *h, const struct launch *l)
{
        return (struct lost){
                .lack = not_less(q->tally + (int64_t)(h->gap - q->sure_gap)),
                .exceed = not_less((l ? (int64_t)(l->hole - q->sure_hole) : 0) - q->tally),
        };
}

/*
 * What may have been lost between the last match and what is next. If that match
 * was a guess, some of what was lost then may be among it.
 */
struct lost doubt_lost(const struct lane *lane, const struct queue *q, const struct held *h)
{
        const struct launch *l = lane_first(lane, q);
        struct lost lost = {h->gap - lane->gap, l ? l->hole - q->hole : 0};

        if (lost.lack || lost.exceed)
                lost.exceed += q->owed;
        if (q->guess_ns && (lost.lack || lost.exceed))
                lost = q->tallied ? lost_since(q, h, l) : (struct lost){UINT32_MAX, UINT32_MAX};
        if (q->may_lack)
                lost.lack = UINT32_MAX;
        if (q->may_exceed)
                lost.exceed = UINT32_MAX;
        return lost;
}

static void tally_begin(const struct lane *lane, struct queue *q)
{
        if (q->may_lack || q->may_exceed || lane->guessed || q->of == QUEUE_PROCESS)
                q->tallied = false;
        else if (!q->guess_ns) {
                q->tallied = true;
                q->sure_gap = lane->gap;
                q->sure_hole = q->hole;
                q->tally = 0;
        }
}

static bool resolve_doubt(struct lane *lane, struct queue *q, struct held *h, struct lost lost,
                          bool all)
{
        struct correlated_process *p = lane->process;
        const struct launch *first = lane_first(lane, q);
        bool in_group = first && first->may_lack;
        struct shifts s;

        if (!lane_worth_trying(lane, q->count, all))
                return false;
        tally_begin(lane, q);
        s = shifts_find(lane, q, lost.lack, lost.exceed);
        if (s.count == 0 && (lost.lack != UINT32_MAX || lost.exceed != UINT32_MAX)) {
                q->may_lack = q->may_exceed = true;
                q->tallied = false;
                lost = (struct lost){UINT32_MAX, UINT32_MAX};
                s = shifts_find(lane, q, lost.lack, lost.exceed);
        }
        if (s.count == 1 && (s.pairs || s.ends)) {
                /* Then it does not matter what was guessed before. */
                if (s.sure && s.pairs && !in_group && !lane->guessed &&
                    (q->tallied || (lost.lack == UINT32_MAX && lost.exceed == UINT32_MAX)))
                        q->guess_ns = 0;
                return doubt_settle(lane, q, &s);
        }
        if (s.count && !process_pressed(p) && !record_aged(p, h, DOUBT_PATIENCE_NS))
                return false;
        if (s.count && doubt_guess(lane, q, &s))
                return true;
        if (!launches_known(p, h) || launches_due(p, h) ||
            (s.count && !record_aged(p, h, RECORD_PATIENCE_NS)))
                return false;
        q->tallied = false;
        s = shifts_guess(lane, q);
        if (doubt_guess(lane, q, &s))
                return true;
        lane_drop(lane, h);
        /* It may be the wrong stream's. */
        if (q->of == QUEUE_STREAM && ++lane->misfits > MISFITS_MAX) {
                lane->guessed = true;
                lane_release(lane);
        }
        return true;
}

/* Is there a stream without a lane whose first launch it could be? */
static bool another_fits(const struct correlated_process *p, const struct held *h)
{
        const struct context *c, *next;
        const struct stream *s;

        HASH_ITER (hh, p->contexts, c, next)
                TAILQ_FOREACH(s, &c->active, in_active)
        if (!s->lane && record_fits(h, TAILQ_FIRST(&s->queue.waiting)))
                return true;
        return false;
}

/* All that was launched into its stream has its record. */
static bool pair_none(struct lane *lane, struct queue *q, struct held *h)
{
        struct correlated_process *p = lane->process;

        if (launches_due(p, h))
                return false;
        /* It would lack its record if it came all the same. */
        q->may_lack |= !order_known(lane->stream->context, h);
        q->tallied = false;
        lane->before_start_ns = UINT64_MAX;
        /* Its stream may be gone, though that was not seen. */
        if (another_fits(p, h))
                lane_release(lane);
        else
                lane_drop(lane, h);
        return true;
}

/*
 * It may be of a call that was under way while launches were lost, and was given the record of
 * one of these: then one too many was taken for theirs.
 */
static void foreign(struct lane *lane, struct queue *q, struct held *h)
{
        const struct launch *l = lane_first(lane, q);

        q->tallied &= h->gridid == lane->last_id;
        if (l && l->context->hole && h->gridid != lane->last_id) {
                q->guess_ns = q->reach_ns;
                q->may_lack = q->may_exceed = true;
                lane->tried = 0;
        }
        lane_drop(lane, h);
}

/* capped: what is matched is not more than inferred. */
bool pair_step(struct lane *lane, struct queue *q, struct held *h, bool capped, bool all)
{
        struct correlated_process *p = lane->process;
        struct launch *l;
        struct lost lost;
        bool hole, scattered;

        if (match_foreign(lane, q, h)) {
                foreign(lane, q, h);
                return true;
        }
        scattered = q->of == QUEUE_PROCESS && streams_waiting(p) > 1;
        lost = doubt_lost(lane, q, h);
        if (lost.lack || lost.exceed)
                return scattered ? scattered_any(lane, q, h) : resolve_doubt(lane, q, h, lost, all);
        l = match_front(lane, q, h, &hole);
        if (l && match_hidden(h, l))
                return false;
        if (l) {
                match_launch(lane, q, h, l, capped);
                return true;
        }
        if (!hole && !launches_known(p, h))
                return false;
        if (q->of == QUEUE_STREAM && q->count == 0)
                return pair_none(lane, q, h);
        if (!lane_first(lane, q) && launches_due(p, h))
                return false;
        if (scattered)
                return scattered_any(lane, q, h);
        /* Of a group some of whose records were lost, one has been given to the wrong launch. */
        l = lane_first(lane, q);
        if (l && l->may_lack)
                q->guess_ns = launch_return_ns(l);
        q->may_exceed = q->may_lack = true;
        lane->tried = 0;
        return true;
}
