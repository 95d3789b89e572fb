/* SPDX-License-Identifier: Apache-2.0 */
#include "store/percentile.h"

#include <errno.h>
#include <stdlib.h>

#include "util/macro.h"

#define BUCKETS 1024

static const unsigned percents[PERCENTILES] = {50, 95, 99};

static uint64_t nearest_rank(uint64_t count, unsigned percent)
{
        return count / 100 * percent + (count % 100 * percent + 99) / 100;
}

uint64_t percentiles_rank(uint64_t count, int which)
{
        return nearest_rank(count, percents[which]);
}

/* A range of one value is its own answer. */
static void open_span(struct percentiles *p, struct percentile_span span)
{
        if (span.low != span.high) {
                p->spans[p->span_count++] = span;
                return;
        }
        for (unsigned i = 0; i < span.target_count; i++)
                p->value[span.first_target + i] = span.low;
}

void percentiles_init(struct percentiles *p, uint64_t count, uint64_t min, uint64_t max)
{
        *p = (struct percentiles){0};
        if (count == 0)
                return;
        for (int i = 0; i < PERCENTILES; i++)
                p->rank[i] = percentiles_rank(count, i);
        open_span(p,
                  (struct percentile_span){
                          .low = min, .high = max, .inside = count, .target_count = PERCENTILES});
}

static uint64_t bucket_width(const struct percentile_span *s)
{
        return (s->high - s->low) / BUCKETS + 1;
}

int percentiles_begin_pass(struct percentiles *p, size_t *budget_bytes)
{
        for (unsigned i = 0; i < p->span_count; i++) {
                struct percentile_span *s = &p->spans[i];
                uint64_t entries = s->inside;

                s->filled = 0;
                s->buckets = s->high - s->low > UINT32_MAX || entries > *budget_bytes / 4;
                if (s->buckets)
                        entries = BUCKETS;
                if (entries > *budget_bytes / 4)
                        continue;
                s->data = calloc(entries, sizeof(*s->data));
                if (!s->data)
                        return -ENOMEM;
                *budget_bytes -= entries * sizeof(*s->data);
        }
        return 0;
}

void percentiles_add(struct percentiles *p, uint64_t value)
{
        for (unsigned i = 0; i < p->span_count; i++) {
                struct percentile_span *s = &p->spans[i];

                if (!s->data || value < s->low || value > s->high)
                        continue;
                if (s->buckets)
                        s->data[(value - s->low) / bucket_width(s)]++;
                else if (s->filled < s->inside)
                        s->data[s->filled++] = (uint32_t)(value - s->low);
        }
}

static uint32_t next_random(uint32_t *state)
{
        *state = *state * 1664525 + 1013904223;
        return *state >> 8;
}

static void swap(uint32_t *a, uint32_t *b)
{
        uint32_t t = *a;

        *a = *b;
        *b = t;
}

/*
 * The k-th smallest (from 0) of n values, which are reordered. Quickselect with
 * three ways, for many equal values, and a pivot that input cannot foresee well
 * enough to make it slow.
 */
static uint32_t select_kth(uint32_t *v, size_t n, size_t k, uint32_t seed)
{
        size_t begin = 0, end = n;

        while (end - begin > 1) {
                uint32_t pivot = v[begin + next_random(&seed) % (end - begin)];
                size_t less = begin, i = begin, more = end;

                while (i < more) {
                        if (v[i] < pivot)
                                swap(&v[less++], &v[i++]);
                        else if (v[i] > pivot)
                                swap(&v[i], &v[--more]);
                        else
                                i++;
                }
                if (k < less)
                        end = less;
                else if (k >= more)
                        begin = more;
                else
                        return pivot;
        }
        return v[begin];
}

static void answer_from_values(struct percentiles *p, const struct percentile_span *s)
{
        for (unsigned i = s->first_target; i < s->first_target + s->target_count; i++)
                p->value[i] = s->low + select_kth(s->data, s->filled, p->rank[i] - s->below - 1,
                                                  (uint32_t)(uintptr_t)s->data ^ i);
}

/* The bucket a rank lies in. */
static struct percentile_span bucket_of(const struct percentile_span *s, uint64_t rank)
{
        uint64_t width = bucket_width(s);
        struct percentile_span b = {.low = s->low, .below = s->below, .inside = s->data[0]};
        unsigned i = 0;

        while (i + 1 < BUCKETS && b.below + b.inside < rank) {
                b.below += b.inside;
                b.inside = s->data[++i];
                b.low += width;
        }
        b.high = s->high - b.low < width ? s->high : b.low + width - 1;
        return b;
}

static void narrow(struct percentiles *p, const struct percentile_span *s)
{
        unsigned end = s->first_target + s->target_count;

        for (unsigned i = s->first_target; i < end;) {
                struct percentile_span b = bucket_of(s, p->rank[i]);

                b.first_target = i;
                while (i < end && p->rank[i] <= b.below + b.inside)
                        i++;
                b.target_count = i - b.first_target;
                open_span(p, b);
        }
}

void percentiles_end_pass(struct percentiles *p)
{
        struct percentile_span spans[PERCENTILES];
        unsigned count = p->span_count;

        for (unsigned i = 0; i < count; i++)
                spans[i] = p->spans[i];
        p->span_count = 0;
        for (unsigned i = 0; i < count; i++) {
                if (!spans[i].data)
                        p->spans[p->span_count++] = spans[i];
                else if (spans[i].buckets)
                        narrow(p, &spans[i]);
                else
                        answer_from_values(p, &spans[i]);
                free(spans[i].data);
        }
}

void percentiles_release(struct percentiles *p)
{
        for (unsigned i = 0; i < p->span_count; i++) {
                free(p->spans[i].data);
                p->spans[i].data = NULL;
        }
}
