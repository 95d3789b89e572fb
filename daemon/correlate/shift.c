/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How records and launches lie to each other when something between them was
 * lost. From the last gap on the records of a lane are complete, from the last
 * hole on the launches of a queue are; so record i is of launch i + shift, with
 * one and the same shift for all of them. A shift falls out
 *   when a record is earlier than the entry of its launch, or of another kernel,
 *   when a launch had ended before its record's kernel started,
 *   when a launch must have started, but its record has not come,
 *   when ids would not fit what is proven of others (ids.c).
 * All shifts are looked at, over all that waits; one that cannot be is possible.
 * When a single one is left that is proof.
 */
#include "correlate/join.h"

#include <stdlib.h>

#define WINDOW_RECORDS  4096
#define WINDOW_LAUNCHES PENDING_MAX
#define LOOKS_MAX       (1u << 17) /* pairs looked at */
#define GUESS_RECORDS   64
#define GUESS_LEAST     4
#define IDS_LOOKS       8     /* pairs of a shift whose ids are looked at */
#define TELLING         16    /* pairs that all fit: it is not chance */
#define RING_SLACK_NS   10000 /* records come in order of time, nearly */

struct window {
        const struct held *records[WINDOW_RECORDS];
        const struct launch *launches[WINDOW_LAUNCHES];
        /* Of launches whose calls overlap, one with the next: they may have changed places. */
        int32_t group_first[WINDOW_LAUNCHES], group_last[WINDOW_LAUNCHES];
        int64_t n, m;      /* records, launches */
        int64_t firm;      /* launches before this one came before those that are not known */
        bool hole;         /* the queue goes on behind a hole */
        bool all_records;  /* up to the lane's end, no gap since */
        bool all_launches; /* up to the queue's end, no hole since, even one with none behind */
        bool sure;         /* all launches make records in this lane, in order ... */
        bool told;         /* ... and so do those whose kernel has made none yet */
        int64_t low, high; /* bounds of the shift */
        unsigned int looks;
};

struct window *window_new(void)
{
        return malloc(sizeof(struct window));
}

struct window *window_free(struct window *w)
{
        free(w);
        return NULL;
}

/* Its records tell their stream, as far as is known. */
static bool told(const struct lane *lane, const struct launch *l)
{
        const struct kernel *k = l->function ? l->function->kernel : NULL;

        return lane_of_process(lane) || !lane->process->untagged || (k && k->tagged);
}

/* All that were entered before this time are known. */
static uint64_t known_until_ns(const struct launch *l, const struct queue *q)
{
        const struct context *c, *next;
        uint64_t ns = l->context->known_until_ns;

        if (q->of == QUEUE_PROCESS)
                HASH_ITER (hh, l->context->process->contexts, c, next)
                        ns = c->known_until_ns < ns ? c->known_until_ns : ns;
        return ns;
}

/*
 * What had not returned when one that is not known was entered may come after it, and all
 * behind it one place later: so many of the last ones tell nothing.
 */
static int64_t firm(const struct window *w, const struct queue *q)
{
        int64_t open = 0;
        uint64_t ns;

        if (!w->m || !w->launches[0]->context->streams_shared)
                return w->m;
        ns = w->all_launches ? known_until_ns(w->launches[0], q) : UINT64_MAX;
        for (int64_t j = 0; j < w->m; j++)
                open += w->launches[j]->outlasted || launch_return_ns(w->launches[j]) > ns;
        return w->m - open;
}

static void fill_launches(struct window *w, const struct lane *lane, const struct queue *q)
{
        const struct launch *l = lane_first(lane, q);
        uint32_t hole = l ? l->hole : 0;

        w->sure = q->of == QUEUE_STREAM || streams_waiting(lane->process) <= 1;
        /* On a guess one behind may have been given the record of one that still waits. */
        if (l && q->guess_ns && l->record.cpu_enter_ns < q->reach_ns)
                w->sure = false;
        w->told = true;
        for (w->m = 0; l && l->hole == hole && w->m < WINDOW_LAUNCHES; l = lane_next(lane, q, l)) {
                w->sure &= l->function && l->function->kernel && !l->optional_id;
                w->told &= told(lane, l);
                w->launches[w->m++] = l;
        }
        w->hole = l && l->hole != hole;
        w->all_launches = !l && (w->m == 0 || w->launches[0]->context->hole == hole);
        w->firm = firm(w, q);
}

static void fill_records(struct window *w, const struct lane *lane, const struct queue *q,
                         int64_t max)
{
        struct held *h = TAILQ_FIRST(&lane->records);
        uint32_t gap = h ? h->gap : 0;

        if (q->closed && w->m < max)
                max = w->m;
        for (w->n = 0; h && h->gap == gap && w->n < max; h = TAILQ_NEXT(h, in_list)) {
                if (record_resolve(lane->process, h, lane_device(lane, h)) < 0)
                        break;
                w->records[w->n++] = h;
        }
        w->all_records = !h && gap == lane->process->gap;
}

static void group(struct window *w)
{
        uint64_t reach_ns = 0;
        int64_t first = 0;

        for (int64_t j = 0; j < w->m; j++) {
                const struct launch *l = w->launches[j];

                if (l->record.cpu_enter_ns >= reach_ns)
                        first = j;
                if (launch_return_ns(l) > reach_ns)
                        reach_ns = launch_return_ns(l);
                w->group_first[j] = (int32_t)first;
        }
        for (int64_t j = w->m; j-- > 0;)
                w->group_last[j] = j + 1 < w->m && w->group_first[j + 1] == w->group_first[j]
                                           ? w->group_last[j + 1]
                                           : (int32_t)j;
}

static uint64_t latest_ns(const struct held *h)
{
        return h->converted ? h->cpu_ns + h->error_ns : UINT64_MAX;
}

static uint64_t earliest_ns(const struct held *h)
{
        return h->converted ? h->cpu_ns - h->error_ns : 0;
}

/* No record is of a launch that was entered later, as far as the lane is the queue's. */
static void bound_by_entry(struct window *w, const struct correlated_process *p,
                           const struct queue *q)
{
        uint64_t reached_ns = 0;
        int64_t j = 0, last;

        for (int64_t i = 0; i < w->n; i++) {
                const struct held *h = w->records[i];
                uint64_t latest = latest_ns(h);

                if (latest < reached_ns)
                        continue;
                reached_ns = latest;
                while (j < w->m && w->launches[j]->record.cpu_enter_ns <= latest)
                        j++;
                if (j == w->m &&
                    (q->closed || !w->all_launches || !launches_known(p, h) || launches_due(p, h)))
                        return;
                last = j ? w->group_last[j - 1] : -1;
                if (last - i < w->high)
                        w->high = last - i;
        }
}

/*
 * No record is of a launch that had ended; and one that had has its record, if none is
 * missing, and none is in the lane of a later number of its context.
 */
static void bound_by_end(struct window *w, const struct lane *lane)
{
        const struct correlated_process *p = lane->process;
        int64_t j = 0, first;

        for (int64_t i = 0; i < w->n; i++) {
                while (j < w->m && w->launches[j]->ended_by_ns &&
                       w->launches[j]->ended_by_ns < earliest_ns(w->records[i]))
                        j++;
                first = j < w->m ? w->group_first[j] : j;
                if (j > 0 && first - i > w->low)
                        w->low = first - i;
        }
        while (j < w->m && w->launches[j]->ended_by_ns &&
               w->launches[j]->ended_by_ns + RING_SLACK_NS < p->newest_ns)
                j++;
        if (w->all_records && j > 0 && j - w->n > w->low &&
            (lane_of_process(lane) || !tag_followed(w->launches[0]->context, lane->tag)))
                w->low = j - w->n;
}

/* Can the record be of this launch, or one that may have changed places with it? */
static bool pair_possible(struct window *w, const struct held *h, int64_t j, bool ids)
{
        if (j >= w->firm)
                return true;
        for (int64_t k = w->group_first[j]; k <= w->group_last[j]; k++) {
                if (w->looks++ >= LOOKS_MAX)
                        return true;
                if (ids ? ids_verdict(w->launches[k], h->gridid, NULL) != ID_IMPOSSIBLE
                        : record_fits(h, w->launches[k]))
                        return true;
        }
        return false;
}

static bool possible(struct window *w, int64_t shift)
{
        int64_t first = shift < 0 ? -shift : 0, end = w->m - shift < w->n ? w->m - shift : w->n;
        int64_t step = (end - first) / IDS_LOOKS + 1;

        for (int64_t i = first; i < end; i++)
                if (!pair_possible(w, w->records[i], i + shift, false))
                        return false;
        for (int64_t i = first; i < end; i += step)
                if (!pair_possible(w, w->records[i], i + shift, true))
                        return false;
        return true;
}

/* So many pairs of a kernel each do not fit by chance. */
static bool telling(const struct window *w, int64_t shift)
{
        int64_t first = shift < 0 ? -shift : 0;
        int64_t end = w->firm - shift < w->n ? w->firm - shift : w->n;

        return end - first >= TELLING;
}

static struct shifts find(struct window *w, const struct lane *lane, const struct queue *q,
                          uint32_t lack, uint32_t exceed)
{
        /* Where none is passed over, the kernels of those behind do not matter. */
        struct shifts found = {.sure = w->sure && (w->told || lack == 0), .records = w->n};

        /* Which of these a record is of is no more than ordered. */
        found.open = w->m > 0 && w->firm == 0;
        if (found.open)
                w->firm = w->m;

        /*
         * That all records are of launches that do not wait is taken for excluded when many fit,
         * where no more records can exclude it. Launches come in rounds, so it is no proof where
         * some were passed over on a guess.
         */
        bool chance = lack == UINT32_MAX || exceed == UINT32_MAX || !found.sure, tells = false;

        w->low = -(exceed < w->n ? (int64_t)exceed : w->n);
        w->high = lack < w->m ? (int64_t)lack : w->m;
        bound_by_entry(w, lane->process, q);
        bound_by_end(w, lane);
        /* On a guess one with a pair that tells something comes before one without. */
        for (int64_t shift = w->high; shift >= w->low && (found.count < 2 || !tells); shift--) {
                bool pairs = w->m > 0 && shift < w->m && -shift < w->n;
                bool firm = pairs && shift < w->firm;

                if (!possible(w, shift))
                        continue;
                if (found.count && !firm && chance && telling(w, found.shift)) {
                        found.sure &= !q->guess_ns;
                        continue;
                }
                if (found.count && !tells && chance && telling(w, shift)) {
                        found.sure &= !q->guess_ns;
                        found.count = 0;
                }
                if (found.count == 0 || (pairs && !found.pairs) || (firm && !tells)) {
                        found.shift = shift;
                        found.pairs = pairs;
                        found.ends = shift < 0 || (shift > 0 && shift == w->m && w->hole);
                        tells = firm;
                }
                found.count += found.count < 2;
        }
        return found;
}

/* Some of a group have lost their records, and more calls may turn out to belong to it. */
static bool group_open(const struct window *w, const struct shifts *found)
{
        int64_t shift = found->shift;

        return shift > 0 && shift < w->m && w->group_first[shift] != shift &&
               w->group_last[shift] == w->m - 1;
}

struct shifts shifts_find(const struct lane *lane, const struct queue *q, uint32_t lack,
                          uint32_t exceed)
{
        struct correlator *c = lane->process->correlator;
        struct window *w = c->window;
        struct shifts found;

        fill_launches(w, lane, q);
        fill_records(w, lane, q, WINDOW_RECORDS);
        group(w);
        w->looks = (unsigned int)(w->n + w->m);
        found = find(w, lane, q, lack, exceed);
        if (found.count == 1 && group_open(w, &found))
                found.count = 2;
        c->looks += w->looks;
        return found;
}

struct shifts shifts_guess(const struct lane *lane, const struct queue *q)
{
        struct correlator *c = lane->process->correlator;
        struct window *w = c->window;
        struct shifts found = {0};

        fill_launches(w, lane, q);
        group(w);
        w->looks = (unsigned int)w->m;
        for (int64_t max = GUESS_RECORDS; max >= GUESS_LEAST && !found.pairs; max /= 2) {
                fill_records(w, lane, q, max);
                if (w->n < GUESS_LEAST)
                        break;
                found = find(w, lane, q, UINT32_MAX, UINT32_MAX);
        }
        found.sure = false;
        c->looks += w->looks;
        return found;
}
