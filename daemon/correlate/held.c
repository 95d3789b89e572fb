/* SPDX-License-Identifier: Apache-2.0 */
#include "correlate/held.h"

#include <stdlib.h>

struct held {
        struct slice_history *history;
        held_put_fn *put;
        held_lose_fn *lose;
        void *data;
        uint64_t gone, settled, added; /* ever: gone <= settled <= added */
        struct launch_record records[HELD_MAX];
        void *owners[HELD_MAX];
};

struct held *held_new(struct slice_history *history, held_put_fn *put, held_lose_fn *lose,
                      void *data)
{
        struct held *h = calloc(1, sizeof(*h));

        if (!h)
                return NULL;
        h->history = history;
        h->put = put;
        h->lose = lose;
        h->data = data;
        return h;
}

struct held *held_free(struct held *h)
{
        free(h);
        return NULL;
}

static bool has_waited(const struct launch_record *r)
{
        return r->has & LAUNCH_HAS_GPU_START && r->gpu_start_ns > r->cpu_return_ns;
}

static void complete(struct held *h, struct launch_record *r)
{
        if (has_waited(r) && slice_history_others(h->history, r->process_key, r->cpu_return_ns,
                                                  r->gpu_start_ns, &r->queue_others_ns))
                r->has |= LAUNCH_HAS_QUEUE_OTHERS;
}

static bool is_ready(const struct held *h, const struct launch_record *r, uint64_t now_ns)
{
        return !has_waited(r) || now_ns > r->gpu_start_ns + HELD_LIMIT_NS ||
               slice_history_reaches(h->history, r->gpu_start_ns);
}

/* In runs that do not wrap around the end, until one is not taken. */
static void let_go(struct held *h)
{
        while (h->gone != h->settled) {
                size_t at = h->gone % HELD_MAX, taken;
                uint64_t n = h->settled - h->gone;

                if (n > HELD_MAX - at)
                        n = HELD_MAX - at;
                taken = h->put(h->data, &h->records[at], &h->owners[at], n);
                h->gone += taken;
                if (taken < n)
                        return;
        }
}

static void lose_oldest(struct held *h)
{
        h->lose(h->data, h->owners[h->gone++ % HELD_MAX]);
}

void held_add(struct held *h, const struct launch_record *record, void *owner)
{
        if (h->added - h->gone == HELD_MAX) {
                h->settled = h->settled > h->gone ? h->settled : h->gone + 1;
                let_go(h);
        }
        if (h->added - h->gone == HELD_MAX)
                lose_oldest(h);
        h->records[h->added % HELD_MAX] = *record;
        h->owners[h->added % HELD_MAX] = owner;
        h->added++;
}

void held_turn(struct held *h, uint64_t now_ns, bool traced)
{
        while (h->settled != h->added) {
                struct launch_record *r = &h->records[h->settled % HELD_MAX];

                if (traced && !is_ready(h, r, now_ns))
                        break;
                complete(h, r);
                h->settled++;
        }
        let_go(h);
}

size_t held_finish(struct held *h)
{
        held_turn(h, UINT64_MAX, false);
        return h->added - h->gone;
}

void held_drop(struct held *h)
{
        h->settled = h->added;
        while (h->gone != h->added)
                lose_oldest(h);
}
