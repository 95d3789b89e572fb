/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A record and the launches that wait in its lane's queue: which can it be of, and
 * what is known once it has been given one.
 */
#include "correlate/join.h"

#include <stdlib.h>

/* ---- what fits ---- */

/*
 * Numbers only grow, and nothing of the old life starts after something of the new one.
 * (For another device's number the clocks are not the same one; its records' own times
 * tell those apart.)
 */
bool tag_may_follow(const struct context *c, uint16_t tag)
{
        const struct tag *tags = c->process->tags;

        if (!c->tag || tag <= c->tag)
                return false;
        return tag >= CONTEXTS_MAX || tags[c->tag].last_ns < tags[tag].first_ns;
}

bool tag_followed(const struct context *c, uint16_t tag)
{
        const struct tag *tags = c->process->tags;

        for (uint32_t later = tag + 1u; later < CONTEXTS_MAX; later++)
                if (tags[later].index ? tags[later].index == c->index : tags[later].first_ns)
                        return true;
        return tag + 1u >= CONTEXTS_MAX;
}

bool match_tag(const struct held *h, const struct context *c)
{
        uint32_t index = h->tag < CONTEXTS_MAX ? c->process->tags[h->tag].index : 0;

        if (!h->tag)
                return true;
        return index ? c->index == index : !c->tag || tag_may_follow(c, h->tag);
}

static bool time_fits(const struct held *h, const struct launch *l)
{
        uint32_t error_ns;
        uint64_t cpu_ns;

        if (!record_time(h, l->context, &cpu_ns, &error_ns))
                return true;
        if ((int64_t)(l->record.cpu_enter_ns - cpu_ns) > (int64_t)error_ns)
                return false;
        return !l->ended_by_ns || (int64_t)(cpu_ns - l->ended_by_ns) <= (int64_t)error_ns;
}

bool record_fits(const struct held *h, const struct launch *l)
{
        return match_tag(h, l->context) && time_fits(h, l) && device_possible(h, l->context) &&
               function_identity(l->context->process, l->function, h->kernel) != IDENTITY_DIFFERS;
}

/* Those of other devices are passed over. */
static struct launch *skip(const struct lane *lane, const struct queue *q, struct launch *l)
{
        if (lane->device == DEVICE_UNKNOWN || !several_devices(lane->process))
                return l;
        for (; l && context_device(l->context) != lane->device; l = TAILQ_NEXT(l, in_laned[q->of]))
                lane->process->correlator->looks++;
        return l;
}

struct launch *lane_first(const struct lane *lane, const struct queue *q)
{
        return skip(lane, q, TAILQ_FIRST(&q->laned));
}

struct launch *lane_next(const struct lane *lane, const struct queue *q, const struct launch *l)
{
        return skip(lane, q, TAILQ_NEXT(l, in_laned[q->of]));
}

/*
 * Of those launches that can have come first and fit, the one whose call returned
 * first: others can still come later, it has to be before what was entered then.
 */
struct launch *match_front(const struct lane *lane, const struct queue *q, const struct held *h,
                           bool *ret_hole)
{
        uint64_t return_ns = UINT64_MAX;
        struct launch *l, *best = NULL;

        *ret_hole = false;
        for (l = lane_first(lane, q); l && l->record.cpu_enter_ns < return_ns;
             l = lane_next(lane, q, l)) {
                if (l->hole != q->hole) {
                        *ret_hole = !best;
                        break;
                }
                if (launch_return_ns(l) < return_ns && !l->may_lack)
                        return_ns = launch_return_ns(l);
                if (record_fits(h, l) && (!best || launch_return_ns(l) < launch_return_ns(best)))
                        best = l;
        }
        return best;
}

/* A launch behind a hole in the order of entry may have come before this one. */
bool match_hidden(const struct held *h, const struct launch *l)
{
        const struct context *c = l->context;

        return c->hole_ns && l->record.cpu_return_ns > c->known_until_ns &&
               !launches_known(c->process, h);
}

/* A launch has one start; and ids grow, but for calls that overlap. */
bool match_foreign(const struct lane *lane, const struct queue *q, const struct held *h)
{
        const struct launch *l = lane_first(lane, q);

        return h->gridid == lane->last_id || (h->gridid < lane->last_id && l && !l->may_lack &&
                                              l->record.cpu_enter_ns >= lane->last_return_ns);
}

/* ---- matching ---- */

bool match_after_sync(const struct queue *q, const struct held *h)
{
        return q->idle_ns && h->converted && h->cpu_ns - h->error_ns > q->idle_ns;
}

bool match_spoiled(const struct queue *q, const struct held *h)
{
        return q->guess_ns && !(q->guess_ns <= q->idle_from_ns && match_after_sync(q, h));
}

/*
 * Guesses stop to matter at a synchronise: when this record is of a kernel that
 * started after it and the one before is not, and their launches lie likewise.
 */
static bool rests_on_guess(const struct lane *lane, struct queue *q, const struct held *h,
                           const struct launch *l)
{
        uint64_t idle_ns = l->idle_ns[q->of];

        if (q->guess_ns && !lane->guessed && h->converted && l == lane_first(lane, q) &&
            h->cpu_ns - h->error_ns > idle_ns && lane->before_start_ns < idle_ns &&
            lane->before_return_ns <= l->idle_from_ns[q->of])
                q->guess_ns = 0;
        return q->guess_ns != 0;
}

static void learn_tag(const struct held *h, struct launch *l)
{
        struct context *c = l->context;

        if (!h->tag || h->tag >= CONTEXTS_MAX || h->tag <= c->tag)
                return;
        c->tag = h->tag;
        c->process->tags[h->tag].index = (uint16_t)c->index;
        c->process->rehome = true;
}

static void lane_matched(struct lane *lane, const struct held *h, const struct launch *l)
{
        lane->before_start_ns = h->converted ? h->cpu_ns + h->error_ns : UINT64_MAX;
        lane->before_return_ns = launch_return_ns(l);
        if (h->gridid <= lane->last_id)
                return;
        lane->last_id = h->gridid;
        lane->last_time_ns = h->time_ns;
        lane->last_enter_ns = l->record.cpu_enter_ns;
        lane->last_return_ns = launch_return_ns(l);
}

/* All records of the group at the head have been matched: what is left has none. */
static void finish_lacking(const struct lane *lane, const struct queue *q)
{
        struct launch *l;

        while ((l = lane_first(lane, q)) && l->may_lack)
                launch_finish(l);
}

void match_launch(struct lane *lane, struct queue *q, struct held *h, struct launch *l, bool guess)
{
        struct correlated_process *p = lane->process;
        bool last_of_group;

        lane_remove(lane, h);
        (void)record_convert(p, h, context_device(l->context));
        l->match_inferred = rests_on_guess(lane, q, h, l) && !l->id_proven;
        lane->spent |= lane->guessed;
        if (guess || lane->guessed || l->optional_id ||
            function_identity(p, l->function, h->kernel) != IDENTITY_EQUAL) {
                if (q->guess_ns < launch_return_ns(l))
                        q->guess_ns = launch_return_ns(l);
                l->match_inferred = true;
        }
        lane->misfits = 0;
        lane_matched(lane, h, l);
        l->match_ordered = lane->skipped && !l->id_proven;
        l->process_queue = q->of == QUEUE_PROCESS && !l->placed;
        l->record.gridid = h->gridid;
        records_matched(l->context, h);
        if (!l->match_inferred && !l->match_ordered &&
            !l->swappable[l->process_queue ? QUEUE_PROCESS : QUEUE_STREAM] &&
            launch_overlaps_known(l)) {
                learn_tag(h, l);
                ids_anchor(l);
                graph_anchor(l, h->gridid);
        }
        last_of_group = l->may_lack && --q->group_records <= 0;
        record_take(p, h, l);
        if (last_of_group)
                finish_lacking(lane, q);
        if (q->count == 0)
                lane->skipped = false;
}
