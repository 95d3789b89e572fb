/* SPDX-License-Identifier: Apache-2.0 */
#include "store/histogram.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SUB_BITS 3 /* 8 buckets for each power of two; below 8 each value has its own */
#define SUB      (1u << SUB_BITS)

static uint32_t bucket_of(uint64_t value)
{
        unsigned shift;

        if (value < SUB)
                return (uint32_t)value;
        shift = 63 - (unsigned)__builtin_clzll(value) - SUB_BITS;
        return (shift + 1) * SUB + (uint32_t)(value >> shift & (SUB - 1));
}
_Static_assert(HISTOGRAM_BUCKETS == (63 - SUB_BITS + 1 + 1) * SUB, "a bucket for every value");

static uint64_t middle_of(uint32_t bucket)
{
        unsigned shift;

        if (bucket < SUB)
                return bucket;
        shift = bucket / SUB - 1;
        return ((uint64_t)(SUB + bucket % SUB) << shift) + ((1ULL << shift) >> 1);
}

void histogram_done(struct histogram *h)
{
        free(h->counts);
        *h = (struct histogram){0};
}

/* Room for buckets first to first + count - 1. */
static int reserve(struct histogram *h, uint32_t first, uint32_t count)
{
        uint32_t end = first + count, old_end = h->first + h->count;
        uint64_t *counts;

        if (h->counts && first >= h->first && end <= old_end)
                return 0;
        if (h->counts && h->first < first)
                first = h->first;
        if (h->counts && old_end > end)
                end = old_end;
        counts = calloc(end - first, sizeof(*counts));
        if (!counts)
                return -ENOMEM;
        if (h->counts)
                memcpy(counts + (h->first - first), h->counts, h->count * sizeof(*counts));
        free(h->counts);
        *h = (struct histogram){first, end - first, counts};
        return 0;
}

int histogram_add(struct histogram *h, uint64_t value)
{
        uint32_t bucket = bucket_of(value);
        int r = reserve(h, bucket, 1);

        if (r == 0)
                h->counts[bucket - h->first]++;
        return r;
}

/* ---- bytes ---- */

struct input {
        const uint8_t *at, *end;
};

static int take(struct input *in, uint64_t *ret_value)
{
        uint64_t value = 0;

        for (unsigned shift = 0; shift < 64 && in->at < in->end; shift += 7) {
                uint8_t byte = *in->at++;

                if (shift == 63 && byte > 1)
                        return -EBADMSG;
                value |= (uint64_t)(byte & 0x7f) << shift;
                if (!(byte & 0x80)) {
                        *ret_value = value;
                        return 0;
                }
        }
        return -EBADMSG;
}

static int take_header(struct input *in, uint32_t *ret_first, uint32_t *ret_count)
{
        uint64_t first, count;

        if (take(in, &first) < 0 || take(in, &count) < 0)
                return -EBADMSG;
        if (count < 1 || count > HISTOGRAM_BUCKETS || first > HISTOGRAM_BUCKETS - count)
                return -EBADMSG;
        *ret_first = (uint32_t)first;
        *ret_count = (uint32_t)count;
        return 0;
}

/* Whether exactly n varints follow. */
static int check_counts(struct input in, uint32_t n)
{
        uint64_t value;

        for (uint32_t i = 0; i < n; i++)
                if (take(&in, &value) < 0)
                        return -EBADMSG;
        return in.at == in.end ? 0 : -EBADMSG;
}

int histogram_merge(struct histogram *h, const void *bytes, size_t size)
{
        struct input in = {bytes, (const uint8_t *)bytes + size};
        uint32_t first, count;
        uint64_t value;
        int r;

        if (size == 0)
                return 0;
        r = take_header(&in, &first, &count);
        if (r == 0)
                r = check_counts(in, count);
        if (r == 0)
                r = reserve(h, first, count);
        for (uint32_t i = 0; r == 0 && i < count; i++) {
                r = take(&in, &value);
                h->counts[first + i - h->first] += value;
        }
        return r;
}

static uint8_t *put(uint8_t *out, uint64_t value)
{
        for (; value >= 0x80; value >>= 7)
                *out++ = (uint8_t)(value | 0x80);
        *out++ = (uint8_t)value;
        return out;
}

size_t histogram_encode(const struct histogram *h, uint8_t *out)
{
        uint8_t *start = out;

        if (!h->counts)
                return 0;
        out = put(put(out, h->first), h->count);
        for (uint32_t i = 0; i < h->count; i++)
                out = put(out, h->counts[i]);
        return (size_t)(out - start);
}

uint64_t histogram_value(const struct histogram *h, uint64_t rank)
{
        for (uint32_t i = 0; i < h->count; i++) {
                if (rank <= h->counts[i])
                        return middle_of(h->first + i);
                rank -= h->counts[i];
        }
        return 0;
}
