/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Records that do not tell their stream: of an unknown driver, or of a kernel that
 * cannot be made to tell. They are in one lane of their device, in order of ids, and
 * the process's launches in one queue, in order of entry. A record's turn comes when
 * none with a lower id can come any more.
 */
#include "correlate/join.h"

#include <stdlib.h>
#include <string.h>

#define CHOICES_MAX   256 /* launches looked at */
#define CHOICES_LEAST 16  /* ... when much was looked at lately */
#define IDS_COST      16  /* looks that a comparison of ids is worth */
#define LATE_NS       (5 * NSEC_PER_MSEC)

/* Ids of several devices are among each other. */
static bool devices_mixed(const struct lane *lane)
{
        return lane->device == DEVICE_UNKNOWN && several_devices(lane->process);
}

size_t streams_waiting(const struct correlated_process *p)
{
        const struct context *c, *next;
        const struct stream *s;
        size_t count = 0;

        HASH_ITER (hh, p->contexts, c, next)
                TAILQ_FOREACH(s, &c->active, in_active)
        if (++count > 1)
                return count;
        return count;
}

static bool only_first_entered(const struct lane *lane, const struct held *h)
{
        const struct queue *q = &lane->process->queue;
        const struct launch *first = lane_first(lane, q);
        const struct launch *second = first ? lane_next(lane, q, first) : NULL;

        return second && h->converted && second->record.cpu_enter_ns > h->cpu_ns + h->error_ns;
}

/* Those that had ended well before will not get their records. */
static void finish_stale(const struct lane *lane, const struct queue *q, const struct held *h)
{
        struct launch *l;

        while ((l = lane_first(lane, q)) && l->ended_by_ns && h->converted &&
               l->ended_by_ns + LATE_NS < h->cpu_ns)
                launch_finish(l);
}

/*
 * Of the process's launches into several streams some may not have started: they
 * and the records lie in no order that could be shifted. The first that fits then.
 */
bool scattered_any(struct lane *lane, struct queue *q, struct held *h)
{
        unsigned int looks = 0;
        struct launch *l;

        finish_stale(lane, q, h);
        l = lane_first(lane, q);
        for (; l && looks++ < CHOICES_MAX && !record_fits(h, l); l = lane_next(lane, q, l))
                ;
        lane->process->correlator->looks += looks;
        if (looks > CHOICES_MAX)
                l = NULL;
        if (!l && (!launches_known(lane->process, h) || launches_due(lane->process, h)))
                return false;
        lane->gap = h->gap;
        if (l)
                match_launch(lane, q, h, l, true);
        else
                lane_drop(lane, h);
        return true;
}

/*
 * Launches between the one matched last and one behind that many holes; those of several
 * contexts cannot be compared: h may be of a launch missing in any.
 */
static bool launches_missing(const struct correlated_process *p, const struct held *h,
                             uint32_t hole)
{
        const struct context *c, *next;

        if (HASH_CNT(hh, p->contexts) <= 1)
                return hole != p->queue.hole;
        HASH_ITER (hh, p->contexts, c, next)
                if (order_missing(c, h))
                        return true;
        return false;
}

/*
 * The time of the latest record up to which all launches are known. If as many records had
 * come by then as launches that wait had been entered, these have all started: none of the
 * others can have a lower id than what had come.
 */
static void count_started(struct lane *lane)
{
        struct correlated_process *p = lane->process;
        const struct held *h, *until = NULL;
        const struct launch *l;
        size_t count = 0;

        TAILQ_FOREACH(h, &lane->records, in_list)
        if (h->converted && (!until || h->time_ns > until->time_ns) && launches_known(p, h))
                until = h;
        if (!until || p->execs || launches_missing(p, until, p->contexts->hole))
                return;
        TAILQ_FOREACH(h, &lane->records, in_list)
        count += h->time_ns <= until->time_ns;
        for (l = lane_first(lane, &p->queue); l; l = lane_next(lane, &p->queue, l))
                if (l->record.cpu_enter_ns <= until->cpu_ns + until->error_ns && count-- == 0)
                        return;
        if (count == 0)
                lane->started_ns = until->time_ns;
        p->correlator->looks += lane->count;
}

/* All launches that were entered by the time of h have started. */
static bool all_started(struct lane *lane, const struct held *h)
{
        if (lane->counted != lane->process->correlator->ticks) {
                lane->counted = lane->process->correlator->ticks;
                count_started(lane);
        }
        return h->time_ns <= lane->started_ns;
}

/* Can no record with a lower id be of a launch that waits? */
static bool in_turn(struct lane *lane, const struct held *h)
{
        struct correlated_process *p = lane->process;

        if (h->gridid == lane->last_id + 1 || streams_waiting(p) <= 1)
                return true;
        if (only_first_entered(lane, h) || all_started(lane, h))
                return true;
        if (!record_aged(p, h, CHOICE_PATIENCE_NS))
                return false;
        lane->skipped = true;
        return true;
}

enum node_or_launch { IS_LAUNCH, IS_NODE, IS_EITHER };

/* Graph nodes take ids like launches, but keep them. */
static enum node_or_launch node_or_launch(struct lane *lane, const struct held *h)
{
        struct correlated_process *p = lane->process;
        const struct launch *l = lane_first(lane, &p->queue);
        uint64_t min, max;

        if (!p->execs)
                return IS_LAUNCH;
        if (graph_known(p, h) || (h->gridid <= lane->last_id && !devices_mixed(lane)))
                return IS_NODE;
        if (l && !devices_mixed(lane) && graph_passed(p, h, l))
                return IS_NODE;
        if (!graph_may_be(p, h))
                return IS_LAUNCH;
        graph_ids(p, lane->last_enter_ns, l ? l->record.cpu_enter_ns : UINT64_MAX, &min, &max);
        if (h->gridid <= lane->last_id + min)
                return IS_NODE;
        /* Where all of them are in this lane; else those of others took ids in between as well. */
        if (!p->tagged && h->gridid > lane->last_id + max)
                return IS_LAUNCH;
        return l && record_fits(h, l) ? IS_EITHER : IS_NODE;
}

/* Launches that h can be of, as far as it was entered by then. */
struct choice {
        struct launch *first;
        struct launch *allowed; /* the first whose id it may be */
        size_t count;           /* whose id it may be */
        bool one_stream;        /* all of those, and those whose id it may not be */
        bool all;               /* were looked at */
        bool proven;            /* there is only one, by ids alone */
};

static struct choice choices(const struct lane *lane, const struct queue *q, const struct held *h,
                             const struct neighbours *n)
{
        struct correlated_process *p = lane->process;
        bool tired = p->correlator->looks > LOOKS_PER_TICK && !p->closing;
        unsigned int looks = 0, max = tired ? CHOICES_LEAST : CHOICES_MAX;
        struct choice c = {.one_stream = true};
        enum id_verdict verdict;
        struct launch *l;

        for (l = lane_first(lane, q); l && looks < max; l = lane_next(lane, q, l)) {
                /* Neither ids nor the stream can tell any more. */
                if (c.count > 1 && !c.one_stream && !ids_enclosed(n))
                        break;
                if (h->converted && l->record.cpu_enter_ns > h->cpu_ns + h->error_ns)
                        break;
                if (n->higher && l->record.cpu_enter_ns >= n->higher->return_ns &&
                    HASH_CNT(hh, p->contexts) == 1)
                        break;
                looks++;
                if (!record_fits(h, l))
                        continue;
                p->correlator->looks += IDS_COST;
                verdict = ids_verdict(l, h->gridid, n);
                if (verdict == ID_PROVEN)
                        return (struct choice){l, l, 1, .proven = true};
                if (!c.first)
                        c.first = l;
                c.one_stream &= l->stream == c.first->stream;
                if (verdict == ID_POSSIBLE && c.count++ == 0)
                        c.allowed = l;
        }
        p->correlator->looks += looks;
        c.all = looks < max;
        return c;
}

static struct awaited awaited(const struct held *h, const struct neighbours *n)
{
        return (struct awaited){h->gridid, n->lower ? n->lower->id : 0,
                                n->higher ? n->higher->id : 0};
}

/* It was looked at before, and nothing more has been proven since. */
static bool looked_at(const struct lane *lane, const struct held *h, const struct neighbours *n)
{
        struct awaited now = awaited(h, n);

        return memcmp(&lane->awaited, &now, sizeof(now)) == 0;
}

/* Is there another record of the lane, which started before h, that l could have? */
static bool another_started(const struct lane *lane, const struct held *h, const struct launch *l)
{
        const struct held *other;
        unsigned int looks = 0;

        TAILQ_FOREACH(other, &lane->records, in_list)
        {
                if (other->time_ns < h->time_ns && record_fits(other, l))
                        return true;
                if (++looks == CHOICES_MAX)
                        break;
        }
        return false;
}

/*
 * Most records tell, those of this kernel do not. Its launches are few: either they
 * are all in one stream, or ids tell which it is, by those that other lanes have. Either:
 * it may be of a graph's node as well. Where another that started before it fits its launch,
 * what comes next may tell; if not, it is the node's.
 */
static bool untagged_step(struct lane *lane, struct held *h, bool either)
{
        struct correlated_process *p = lane->process;
        struct queue *q = &p->queue;
        struct device *d = device_get(p, lane->device);
        struct neighbours n = {NULL, NULL};
        struct choice c;
        struct launch *l;
        bool in_order, certain, waits;

        if (!launches_known(p, h))
                return false;
        if (d)
                n = ids_neighbours(d, h->gridid);
        waits = d && !process_pressed(p) && !record_aged(p, h, DOUBT_PATIENCE_NS);
        if (waits && looked_at(lane, h, &n))
                return false;
        /* After an overrun they would be all that is looked at. */
        if (p->gap)
                finish_stale(lane, q, h);
        c = choices(lane, q, h, &n);
        l = c.allowed ? c.allowed : c.first;
        either = either && l && !c.proven && another_started(lane, h, l);
        if (!l && h->gridid != lane->last_id && launches_due(p, h))
                return false;
        if ((h->gridid == lane->last_id && !devices_mixed(lane)) || !l) {
                lane_drop(lane, h);
                return true;
        }
        in_order = c.one_stream && !lane->skipped;
        certain = c.proven || (!either && !devices_mixed(lane) && c.all && h->gap == lane->gap &&
                               !launches_missing(p, h, l->hole) && l == c.allowed &&
                               (c.count == 1 || (in_order && l == c.first)));
        if (waits && !certain && !ids_enclosed(&n)) {
                lane->awaited = awaited(h, &n);
                return false;
        }
        if (either) {
                lane_to_graph(lane, h);
                return true;
        }
        lane->gap = h->gap;
        q->hole = l->hole;
        l->placed = certain;
        l->id_proven = c.proven;
        /* One of another thread may have gone into the stream first, with a higher id. */
        lane->skipped |= l->swappable[QUEUE_STREAM];
        match_launch(lane, q, h, l, !certain);
        return true;
}

bool scattered_step(struct lane *lane, struct held *h, bool all)
{
        struct correlated_process *p = lane->process;
        enum node_or_launch is = node_or_launch(lane, h);

        if (is == IS_NODE) {
                lane_to_graph(lane, h);
                return true;
        }
        if (p->tagged)
                return untagged_step(lane, h, is == IS_EITHER);
        if (devices_mixed(lane))
                return launches_known(p, h) && scattered_any(lane, &p->queue, h);
        /* It was not waited for. */
        if (h->gridid < lane->last_id && lane->skipped)
                return scattered_any(lane, &p->queue, h);
        if (!launches_known(p, h))
                return false;
        if (!in_turn(lane, h))
                return false;
        return pair_step(lane, &p->queue, h, is == IS_EITHER, all);
}
