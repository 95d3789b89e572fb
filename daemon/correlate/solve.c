/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Alignment of a stretch of launches at once, for when no single record says
 * whose it is: after losses, or where something may have taken ids and the same
 * kernel runs again and again.
 *
 * Taken are the launches after one whose id is known, as long as their calls
 * follow one another without overlap. Then only one thing is unknown at each: the
 * offset, how many of the optional takers of ids before it (operations, lost
 * launches) took one. It never shrinks, and grows only where a taker lies. Going
 * forward, keep the set of offsets possible at each launch. An offset falls out
 *   when the record with the id it implies is of another kernel or too early,
 *   when there is no such record though a later launch of the stream has started,
 *   when an operation would have had to take an id that a kernel has.
 * Going backward, keep those that lead to what is possible at the end. A launch
 * with a single offset left has its id, and that is proof, not choice.
 */
#include "correlate/join.h"

#include <stdlib.h>
#include <string.h>

#define ITEMS_MAX          1024
#define OFFSETS_MAX        1024
#define WORDS_MAX          (OFFSETS_MAX / 64)
#define STREAMS_TOLD_APART 64

struct offsets {
        uint64_t words[WORDS_MAX];
};

struct item {
        struct launch *launch; /* NULL: a hole */
        uint64_t position;     /* ids surely taken before it in the stretch */
        uint32_t optional;     /* ids that may have been taken just before it */
        bool owners;           /* ... by something that makes records */
};

struct stretch {
        struct context *context;
        struct held_list *starts; /* in order of ids */
        uint64_t base;            /* id of the launch it starts from */
        size_t count;
        size_t words;
        bool exclusive; /* records with its ids are this context's */
        bool lossless;  /* no start record is missing */
        struct item items[ITEMS_MAX];
        struct offsets possible[ITEMS_MAX];
        uint64_t missing[OFFSETS_MAX]; /* streams with a launch not started, by offset */
        struct stream *streams[STREAMS_TOLD_APART];
        size_t stream_count;
};

struct solver {
        struct stretch stretch;
};

struct solver *solver_new(void)
{
        return malloc(sizeof(struct solver));
}

struct solver *solver_free(struct solver *s)
{
        free(s);
        return NULL;
}

static bool offset_has(const struct offsets *s, uint64_t o)
{
        return s->words[o / 64] >> (o % 64) & 1;
}

static void offset_add(struct offsets *s, uint64_t o)
{
        s->words[o / 64] |= 1ULL << (o % 64);
}

static void offset_remove(struct offsets *s, uint64_t o)
{
        s->words[o / 64] &= ~(1ULL << (o % 64));
}

/* The only one, or -1. */
static int64_t offset_single(const struct stretch *t, const struct offsets *s)
{
        int64_t found = -1;

        for (size_t w = 0; w < t->words; w++) {
                if (!s->words[w])
                        continue;
                if (found >= 0 || s->words[w] & (s->words[w] - 1))
                        return -1;
                found = (int64_t)(64 * w) + __builtin_ctzll(s->words[w]);
        }
        return found;
}

static bool offset_any(const struct stretch *t, const struct offsets *s)
{
        for (size_t w = 0; w < t->words; w++)
                if (s->words[w])
                        return true;
        return false;
}

/* ---- the stretch ---- */

static bool sequential(const struct context *c, const struct launch *l)
{
        return l->reach_before_ns <= l->record.cpu_enter_ns && l->seq <= c->contiguous_seq &&
               l->ops.return_ns <= l->record.cpu_enter_ns;
}

/* The nearest known id before l, and the seq after which the stretch begins. */
static bool stretch_anchor(struct stretch *t, const struct launch *l, uint64_t *ret_seq)
{
        const struct context *c = t->context;
        unsigned int steps = 0;

        for (uint64_t seq = l->seq; seq-- > c->first_seq && steps++ < ITEMS_MAX;) {
                const struct launch *m = window_at(c, seq);

                if (!m)
                        continue;
                if (!sequential(c, m))
                        return false;
                if (m->pinned && !m->soft && m->seq >= c->anchor_from) {
                        t->base = m->record.gridid;
                        *ret_seq = seq;
                        return true;
                }
        }
        if (steps >= ITEMS_MAX || !c->anchor.valid || c->anchor.definite != c->anchor.possible)
                return false;
        t->base = c->anchor.id + c->anchor.definite;
        *ret_seq = c->first_seq - 1;
        return true;
}

/* Fill in the launches up to the next whose id is known, or as far as records reach. */
static bool stretch_fill(struct stretch *t, uint64_t after, uint64_t until_ns)
{
        struct context *c = t->context;
        uint64_t position = 0, optional = 0, total = 0;
        bool owners = false;

        t->count = 0;
        for (uint64_t seq = after + 1; seq < window_end(c) && t->count < ITEMS_MAX; seq++) {
                struct launch *l = window_at(c, seq);

                if (seq > c->contiguous_seq || (l && l->record.cpu_enter_ns > until_ns))
                        break;
                if (!l || l->consumes == CONSUMES_MAYBE) {
                        optional++;
                        owners = true;
                        optional += l ? l->ops.possible : 0;
                        continue;
                }
                if (!sequential(c, l))
                        break;
                optional += l->ops.possible;
                position += l->ops.definite;
                optional -= l->ops.definite;
                /* What a graph's instantiation took are its kernels' ids. */
                owners |= l->ops.possible >= UNBOUNDED || l->ops.definite;
                if (l->consumes == CONSUMES_NONE)
                        continue;
                total += optional;
                if (total >= OFFSETS_MAX)
                        break;
                t->items[t->count++] = (struct item){l, position, (uint32_t)optional, owners};
                t->words = total / 64 + 1;
                position++;
                optional = 0;
                owners = false;
                if (l->pinned && !l->soft)
                        break;
        }
        return t->count > 0;
}

/* First record with an id of at least this. */
static size_t record_from(const struct stretch *t, uint64_t gridid)
{
        size_t low = 0, high = t->starts->count;

        while (low < high) {
                size_t middle = (low + high) / 2;

                if (t->starts->items[middle].gridid < gridid)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

static struct held *record_of(const struct stretch *t, uint64_t gridid)
{
        size_t i = record_from(t, gridid);

        if (i < t->starts->count && t->starts->items[i].gridid == gridid &&
            !t->starts->items[i].taken)
                return &t->starts->items[i];
        return NULL;
}

static uint64_t id_at(const struct stretch *t, const struct item *item, uint64_t offset)
{
        return t->base + 1 + item->position + offset;
}

/* ---- what is possible ---- */

/* May the id just before the item, at this offset, have been taken by something else? */
static bool may_be_foreign(const struct stretch *t, const struct item *item, uint64_t offset)
{
        return item->owners || !t->exclusive || !record_of(t, id_at(t, item, offset));
}

static uint64_t stream_bit(struct stretch *t, struct stream *s)
{
        for (size_t i = 0; i < t->stream_count; i++)
                if (t->streams[i] == s)
                        return 1ULL << i;
        if (!s || t->stream_count == STREAMS_TOLD_APART)
                return 0;
        t->streams[t->stream_count] = s;
        return 1ULL << t->stream_count++;
}

static bool record_fits(const struct stretch *t, const struct item *item, const struct held *h)
{
        struct correlated_process *p = t->context->process;

        return record_may_be(h, item->launch) &&
               !(item->launch->ended_by_ns && h->converted &&
                 h->cpu_ns > item->launch->ended_by_ns + h->error_ns) &&
               function_identity(p, item->launch->function, kernel_find(p, h->kernel_id)) !=
                       IDENTITY_DIFFERS;
}

static bool item_allows(struct stretch *t, const struct item *item, uint64_t offset)
{
        const struct launch *l = item->launch;
        const struct held *h;
        uint64_t bit;

        if (l->pinned)
                return l->soft || l->record.gridid == id_at(t, item, offset);
        h = record_of(t, id_at(t, item, offset));
        if (l->state == STATE_DONE)
                /* Of an unprobed kernel, or given up. */
                return !h || !l->recordless || !t->exclusive;
        if (h && record_fits(t, item, h)) {
                bit = stream_bit(t, l->stream);
                return !(t->lossless && t->missing[offset] & bit);
        }
        if (h && t->exclusive)
                return false;
        bit = stream_bit(t, l->stream);
        t->missing[offset] |= bit;
        return true;
}

/* Offsets after the optional takers before an item, given those before. */
static void spread_forward(struct stretch *t, const struct item *item, struct offsets *s)
{
        uint32_t left[OFFSETS_MAX];
        uint64_t top = t->words * 64;

        if (!item->optional)
                return;
        for (uint64_t o = 0; o < top; o++) {
                left[o] = offset_has(s, o) ? item->optional : 0;
                if (o == 0 || offset_has(s, o - 1) == false || left[o - 1] == 0 ||
                    !may_be_foreign(t, item, o - 1))
                        continue;
                t->missing[o] =
                        offset_has(s, o) ? t->missing[o] & t->missing[o - 1] : t->missing[o - 1];
                offset_add(s, o);
                if (left[o - 1] - 1 > left[o])
                        left[o] = left[o - 1] - 1;
        }
}

static void spread_backward(struct stretch *t, const struct item *item, struct offsets *s)
{
        uint32_t left[OFFSETS_MAX];

        if (!item->optional)
                return;
        for (uint64_t o = t->words * 64; o-- > 0;) {
                bool above = o + 1 < t->words * 64 && offset_has(s, o + 1);

                left[o] = offset_has(s, o) ? item->optional : 0;
                if (!above || left[o + 1] == 0 || !may_be_foreign(t, item, o))
                        continue;
                offset_add(s, o);
                if (left[o + 1] - 1 > left[o])
                        left[o] = left[o + 1] - 1;
        }
}

static void item_filter(struct stretch *t, const struct item *item, struct offsets *s)
{
        for (size_t w = 0; w < t->words; w++)
                for (uint64_t bits = s->words[w]; bits; bits &= bits - 1) {
                        uint64_t o = 64 * w + (uint64_t)__builtin_ctzll(bits);

                        if (!item_allows(t, item, o))
                                offset_remove(s, o);
                }
}

static bool stretch_solve(struct stretch *t)
{
        struct offsets s = {{1}};

        memset(t->missing, 0, t->words * 64 * sizeof(t->missing[0]));
        t->stream_count = 0;
        for (size_t i = 0; i < t->count; i++) {
                spread_forward(t, &t->items[i], &s);
                item_filter(t, &t->items[i], &s);
                if (!offset_any(t, &s))
                        return false;
                t->possible[i] = s;
        }
        for (size_t i = t->count - 1; i > 0; i--) {
                s = t->possible[i];
                spread_backward(t, &t->items[i], &s);
                for (size_t w = 0; w < t->words; w++)
                        t->possible[i - 1].words[w] &= s.words[w];
        }
        return true;
}

static size_t stretch_assign(struct stretch *t)
{
        size_t assigned = 0;

        for (size_t i = 0; i < t->count; i++) {
                const struct item *item = &t->items[i];
                int64_t offset = offset_single(t, &t->possible[i]);
                struct held *h;

                if (offset < 0 || item->launch->state != STATE_WAITING || item->launch->pinned)
                        continue;
                h = record_of(t, id_at(t, item, (uint64_t)offset));
                if (!h || !record_fits(t, item, h))
                        continue;
                h->taken = true;
                record_assign(h, item->launch);
                assigned++;
        }
        return assigned;
}

/* When the last kernel started that can be of the stretch; 0: no record can. */
static uint64_t stretch_until(const struct stretch *t)
{
        uint64_t until_ns = 0;

        for (size_t i = record_from(t, t->base + 1); i < t->starts->count; i++) {
                const struct held *h = &t->starts->items[i];

                if (h->gridid > t->base + ITEMS_MAX + OFFSETS_MAX)
                        break;
                if (!h->converted)
                        return UINT64_MAX;
                if (h->cpu_ns + h->error_ns > until_ns)
                        until_ns = h->cpu_ns + h->error_ns;
        }
        return until_ns;
}

size_t solve_around(struct context *c, const struct launch *l, struct held_list *starts,
                    bool exclusive, uint64_t *ret_end)
{
        struct stretch *t = &c->process->correlator->solver->stretch;
        uint64_t after, until_ns;

        t->context = c;
        t->starts = starts;
        t->exclusive = exclusive;
        t->lossless = c->gap_budget == 0 && c->drop_budget == 0;
        *ret_end = l->seq + 1;
        if (!sequential(c, l) || !stretch_anchor(t, l, &after))
                return 0;
        until_ns = stretch_until(t);
        if (!until_ns || !stretch_fill(t, after, until_ns))
                return 0;
        *ret_end = t->items[t->count - 1].launch->seq + 1;
        return stretch_solve(t) ? stretch_assign(t) : 0;
}
