/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How many grid ids lie between those of two launches on a device? Its launches
 * take one each, in the order in which the calls run, of which only this much is
 * known: a call that had returned before another was entered was before it. So
 * between a and b lie at least those entered after a's return that returned
 * before b's entry, and at most those entered before b's return that returned
 * after a's entry; with the copies and sets that may have taken some.
 *
 * Both counts are differences of places in a context's launches by order of
 * entry: how many were entered before a time, and how many of the first ones had
 * all returned by then. Where an unknown number may have been taken (launches not
 * seen, code being loaded) there is no upper bound.
 */
#include "correlate/join.h"

#include <stdlib.h>

#define HISTORY_FIRST 256
#define HISTORY_MAX   65536
#define NEAR          64            /* ids on each side */
#define RETURN_SLACK  NSEC_PER_MSEC /* events come in order of return, nearly */

static bool history_reserve(struct id_history *h)
{
        size_t size = h->size ? 4 * h->size : HISTORY_FIRST;
        uint64_t *enter_ns, *reach_ns;

        if (h->count < h->size || h->size == HISTORY_MAX)
                return true;
        enter_ns = calloc(size, sizeof(*enter_ns));
        reach_ns = calloc(size, sizeof(*reach_ns));
        if (!enter_ns || !reach_ns) {
                free(enter_ns);
                free(reach_ns);
                return false;
        }
        for (uint64_t i = 0; i < h->count; i++) {
                enter_ns[i & (size - 1)] = h->enter_ns[i & (h->size - 1)];
                reach_ns[i & (size - 1)] = h->reach_ns[i & (h->size - 1)];
        }
        free(h->enter_ns);
        free(h->reach_ns);
        h->enter_ns = enter_ns;
        h->reach_ns = reach_ns;
        h->size = size;
        return true;
}

static uint64_t at_least(uint64_t ns, uint64_t least_ns)
{
        return ns > least_ns ? ns : least_ns;
}

void ids_taken(struct context *c, const struct launch *l)
{
        struct id_history *h = &c->ids;
        uint64_t enter_ns = l->record.cpu_enter_ns, reach_ns = launch_return_ns(l);
        uint64_t last = h->count - 1;

        if (!history_reserve(h)) {
                ids_loosen(c, enter_ns);
                return;
        }
        if (h->count) {
                enter_ns = at_least(enter_ns, h->enter_ns[last & (h->size - 1)]);
                reach_ns = at_least(reach_ns, h->reach_ns[last & (h->size - 1)]);
        }
        h->enter_ns[h->count & (h->size - 1)] = enter_ns;
        h->reach_ns[h->count & (h->size - 1)] = reach_ns;
        h->count++;
}

void ids_optional(struct correlated_process *p, uint64_t enter_ns, uint64_t return_ns, uint32_t ids)
{
        if (!p->optional)
                p->optional = calloc(OPTIONAL_MAX, sizeof(*p->optional));
        if (p->optional)
                p->optional[p->optional_count % OPTIONAL_MAX] =
                        (struct optional_id){enter_ns, return_ns, ids};
        p->optional_count++;
}

void ids_loosen(struct context *c, uint64_t at_ns)
{
        c->ids.loosened_ns = at_least(at_ns, c->ids.loosened_ns);
}

void ids_done(struct context *c)
{
        free(c->ids.enter_ns);
        free(c->ids.reach_ns);
}

static uint64_t oldest(const struct id_history *h)
{
        return h->count > h->size ? h->count - h->size : 0;
}

/* Number of the first one for which array[number] > ns (or, or_at: >= ns). */
static uint64_t first_after(const struct id_history *h, const uint64_t *array, uint64_t ns,
                            bool or_at)
{
        uint64_t low = oldest(h), high = h->count;

        while (low < high) {
                uint64_t middle = low + (high - low) / 2, at = array[middle & (h->size - 1)];

                if (at > ns || (or_at && at == ns))
                        high = middle;
                else
                        low = middle + 1;
        }
        return low;
}

/* Those entered before ns. */
static uint64_t entered(const struct id_history *h, uint64_t ns)
{
        return first_after(h, h->enter_ns, ns, true);
}

/* The first ones, all of which had returned at ns. */
static uint64_t returned(const struct id_history *h, uint64_t ns)
{
        return first_after(h, h->reach_ns, ns, false);
}

/* At most so many ids were taken by what may or may not have; UINT64_MAX: not known. */
static uint64_t optional_between(const struct correlated_process *p, uint64_t from_ns,
                                 uint64_t to_ns)
{
        uint64_t ids = 0, i = p->optional_count;

        for (; i-- > 0;) {
                const struct optional_id *o;

                if (!p->optional || p->optional_count - i > OPTIONAL_MAX)
                        return UINT64_MAX;
                o = &p->optional[i % OPTIONAL_MAX];
                if (o->return_ns + RETURN_SLACK <= from_ns)
                        break;
                if (o->return_ns > from_ns && o->enter_ns < to_ns)
                        ids += o->ids;
        }
        return ids;
}

struct bounds {
        uint64_t low, high;
};

/* Ids from a's to b's, if a was before b; false: nothing is known. */
static bool ids_between(const struct launch *l, const struct anchor *a, const struct anchor *b,
                        struct bounds *ret)
{
        const struct correlated_process *p = l->context->process;
        const struct context *c, *next;
        uint64_t optional;

        *ret = (struct bounds){1, 0};
        HASH_ITER (hh, p->contexts, c, next) {
                const struct id_history *h = &c->ids;
                uint64_t from, to;

                if (!same_device(c, l->context) && context_device(c) != DEVICE_UNKNOWN)
                        continue;
                if (h->loosened_ns >= a->enter_ns || c->known_until_ns < b->return_ns)
                        ret->high = UINT64_MAX;
                if (!h->count)
                        continue;
                if (oldest(h) && h->enter_ns[oldest(h) & (h->size - 1)] >= a->enter_ns)
                        return false;
                from = entered(h, a->return_ns);
                to = returned(h, b->enter_ns);
                if (to > from && same_device(c, l->context))
                        ret->low += to - from;
                if (ret->high != UINT64_MAX)
                        ret->high += entered(h, b->return_ns) - returned(h, a->enter_ns);
        }
        optional = optional_between(p, a->enter_ns, b->return_ns);
        if (ret->high == UINT64_MAX || optional == UINT64_MAX)
                ret->high = UINT64_MAX;
        else
                ret->high += optional - 1; /* a is among them */
        return true;
}

/* ---- proven ids ---- */

/* NULL: it is not known what the context has its device in common with. */
static struct device *device_of(const struct launch *l)
{
        return device_get(l->context->process, context_device(l->context));
}

void ids_anchor(struct launch *l)
{
        struct anchor own = {l->record.gridid, l->record.cpu_enter_ns, launch_return_ns(l),
                             l->record.tid};
        struct device *d = device_of(l);

        if (!d)
                return;
        if (d->proven)
                d->proven[own.id % PROVEN_MAX] = own;
        if (!d->anchor.id || d->anchor.enter_ns <= own.enter_ns)
                d->anchor = own;
}

static bool is_before(const struct anchor *a, const struct anchor *b)
{
        return a->return_ns <= b->enter_ns || (a->tid == b->tid && a->enter_ns < b->enter_ns);
}

/* other: NULL, or of no id, when there is none. */
static enum id_verdict judge(const struct launch *l, const struct anchor *own,
                             const struct anchor *other)
{
        const struct anchor *a, *b;
        struct bounds between;

        if (!other || !other->id)
                return ID_POSSIBLE;
        if (other->id == own->id)
                return ID_IMPOSSIBLE;
        a = is_before(own, other) ? own : other;
        b = a == own ? other : own;
        if (!is_before(a, b))
                return ID_POSSIBLE;
        if (a->id > b->id)
                return ID_IMPOSSIBLE;
        if (!ids_between(l, a, b, &between))
                return ID_POSSIBLE;
        if (b->id - a->id < between.low || b->id - a->id > between.high)
                return ID_IMPOSSIBLE;
        return between.low == between.high ? ID_PROVEN : ID_POSSIBLE;
}

static const struct anchor *proven(const struct device *d, uint64_t id)
{
        const struct anchor *a = &d->proven[id % PROVEN_MAX];

        return a->id == id ? a : NULL;
}

struct neighbours ids_neighbours(struct device *d, uint64_t id)
{
        struct neighbours n = {NULL, NULL};

        if (!d->proven)
                d->proven = calloc(PROVEN_MAX, sizeof(*d->proven));
        if (!d->proven)
                return n;
        for (uint64_t i = 1; i <= NEAR && i < id && !n.lower; i++)
                n.lower = proven(d, id - i);
        for (uint64_t i = 1; i <= NEAR && !n.higher; i++)
                n.higher = proven(d, id + i);
        return n;
}

bool ids_enclosed(const struct neighbours *n)
{
        return n->lower && n->higher && n->higher->id - n->lower->id == 2;
}

enum id_verdict ids_verdict(const struct launch *l, uint64_t id, const struct neighbours *n)
{
        struct anchor own = {id, l->record.cpu_enter_ns, launch_return_ns(l), l->record.tid};
        const struct device *d = device_of(l);
        enum id_verdict lower = judge(l, &own, n ? n->lower : NULL);
        enum id_verdict higher = judge(l, &own, n ? n->higher : NULL);

        if (lower == ID_IMPOSSIBLE || higher == ID_IMPOSSIBLE ||
            judge(l, &own, d ? &d->anchor : NULL) == ID_IMPOSSIBLE)
                return ID_IMPOSSIBLE;
        if (l->ids != 1 || l->optional_id)
                return ID_POSSIBLE;
        if (n && ids_enclosed(n) && is_before(n->lower, &own) && is_before(&own, n->higher))
                return ID_PROVEN;
        return lower == ID_PROVEN || higher == ID_PROVEN ? ID_PROVEN : ID_POSSIBLE;
}
