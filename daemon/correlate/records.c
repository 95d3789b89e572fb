/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Device records as they come. A start goes into its lane, an end to its launch
 * among those that run, by grid id, queue and kernel; or it waits for it.
 */
#include "correlate/join.h"

#include <errno.h>
#include <stdlib.h>

#include "device/device_abi.h"

#define ENDS_FIRST 1024
#define ENDS_STEPS 4096 /* ends looked at in a tick */
#define IDS_AHEAD  65536
/* An agent numbers kernels in order, and tells of them before they can be launched. */
#define KERNEL_IDS_AHEAD   65536
#define KERNEL_PATIENCE_NS (100 * NSEC_PER_MSEC)

void record_drop(struct correlated_process *p, struct held *h)
{
        p->ledger->lost[kernel_is_nested(p, h->kernel) ? LOSS_device_record_nested
                                                       : LOSS_device_record_unmatched]++;
        p->held_count--;
        free(h);
}

int record_resolve(struct correlated_process *p, struct held *h, uint32_t device)
{
        if (record_convert(p, h, device) == -EAGAIN && !record_aged(p, h, CLOCK_PATIENCE_NS))
                return -EAGAIN;
        if (h->kernel)
                return 0;
        return record_aged(p, h, KERNEL_PATIENCE_NS) ? -ENOENT : -EAGAIN;
}

/* ---- ends that wait ---- */

static struct held **ends_slot(const struct correlated_process *p, uint64_t gridid)
{
        return &p->ends_table[gridid & (p->ends_size - 1)];
}

static bool ends_reserve(struct correlated_process *p)
{
        size_t size = p->ends_size ? 4 * p->ends_size : ENDS_FIRST;
        struct held **table, *h;

        if (p->ends_count < p->ends_size)
                return true;
        table = calloc(size, sizeof(*table));
        if (!table)
                return p->ends_size > 0;
        free(p->ends_table);
        p->ends_table = table;
        p->ends_size = size;
        TAILQ_FOREACH(h, &p->ends, in_list)
        {
                h->hash_next = *ends_slot(p, h->gridid);
                *ends_slot(p, h->gridid) = h;
        }
        return true;
}

static void end_add(struct correlated_process *p, struct held *h)
{
        if (!ends_reserve(p)) {
                record_drop(p, h);
                return;
        }
        h->hash_next = *ends_slot(p, h->gridid);
        *ends_slot(p, h->gridid) = h;
        TAILQ_INSERT_TAIL(&p->ends, h, in_list);
        p->ends_count++;
}

static void end_remove(struct correlated_process *p, struct held *h)
{
        struct held **at = ends_slot(p, h->gridid);

        while (*at != h)
                at = &(*at)->hash_next;
        *at = h->hash_next;
        TAILQ_REMOVE(&p->ends, h, in_list);
        p->ends_count--;
}

static void end_use(struct correlated_process *p, struct held *h, struct launch *l)
{
        (void)record_convert(p, h, context_device(l->context));
        launch_ended(l, h);
        p->held_count--;
        free(h);
}

/* The earliest of its ends: a node's replays have the same id. */
static struct held *end_find(struct correlated_process *p, const struct launch *l)
{
        struct held *h = p->ends_count ? *ends_slot(p, l->record.gridid) : NULL, *best = NULL;

        for (; h; h = h->hash_next)
                if (end_fits(h, l) && (!best || h->time_ns < best->time_ns))
                        best = h;
        return best;
}

void record_take(struct correlated_process *p, struct held *h, struct launch *l)
{
        bool exit_probed = h->kernel->exit_probed;

        launch_started(l, h);
        p->held_count--;
        free(h);
        if (!exit_probed || l->state != STATE_RUNNING)
                return;
        h = end_find(p, l);
        if (!h)
                return;
        end_remove(p, h);
        end_use(p, h, l);
}

/* ---- arrival ---- */

/* What takes ids: launches, seen or lost, and others now and then. */
static uint64_t takers(const struct correlated_process *p)
{
        return 2 * p->ledger->produced + p->optional_count + p->gap;
}

void records_matched(const struct context *c, const struct held *h)
{
        struct correlated_process *p = c->process;
        struct device *d = device_get(p, context_device(c));

        if (!d || h->gridid <= d->top_id)
                return;
        d->top_id = h->gridid;
        d->top_takers = takers(p) - p->pending_count;
}

static bool credible(struct correlated_process *p, const struct held *h)
{
        const struct device *d = device_get(p, tag_device(p, h->tag));

        return !d || !d->top_id || h->gridid <= d->top_id + takers(p) - d->top_takers + IDS_AHEAD;
}

static void tag_seen(struct correlated_process *p, const struct held *h)
{
        struct tag *tag = &p->tags[h->tag];

        if (!h->tag || h->tag >= CONTEXTS_MAX)
                return;
        if (!tag->first_ns || h->time_ns < tag->first_ns)
                tag->first_ns = h->time_ns;
        if (h->time_ns > tag->last_ns)
                tag->last_ns = h->time_ns;
}

void tags_forget(struct correlated_process *p, const struct context *c)
{
        for (size_t i = 0; i < CONTEXTS_MAX; i++)
                if (p->tags[i].index == c->index)
                        p->tags[i] = (struct tag){0};
}

/* Do records tell their queue, and this kernel's? Launches are in other lanes then. */
static void untagged_learn(struct correlated_process *p, const struct held *h)
{
        bool *said = h->queue ? &p->tagged : h->kernel ? &h->kernel->untagged : NULL;

        if (h->queue && h->kernel)
                h->kernel->tagged = true;
        p->untagged |= !h->queue;
        if (!said || *said)
                return;
        *said = true;
        p->identity_generation++;
}

static void start_named(struct correlated_process *p, struct held *h)
{
        untagged_learn(p, h);
        if (h->kernel)
                tag_seen(p, h);
        else
                p->nameless = true;
}

static bool names_due(const struct correlated_process *p)
{
        return p->nameless && p->named_generation != p->identity_generation;
}

void records_named(struct correlated_process *p)
{
        struct lane *lane;
        struct held *h;

        if (!names_due(p))
                return;
        p->nameless = false;
        TAILQ_FOREACH(lane, &p->busy, in_busy)
        TAILQ_FOREACH(h, &lane->records, in_list)
        {
                if (h->kernel)
                        continue;
                h->kernel = kernel_find(p, h->kernel_id);
                start_named(p, h);
        }
        p->named_generation = p->identity_generation;
}

static void start_arrived(struct correlated_process *p, struct held *h)
{
        struct lane *lane;

        lanes_rehome(p);
        lane = credible(p, h) ? lane_get(p, h) : NULL;
        (void)record_resolve(p, h, lane ? lane_device(lane, h) : DEVICE_UNKNOWN);
        if (h->converted && h->cpu_ns - h->error_ns > p->newest_ns)
                p->newest_ns = h->cpu_ns - h->error_ns;
        if (!lane) {
                record_drop(p, h);
                return;
        }
        start_named(p, h);
        lane_add(lane, h);
        if (!names_due(p))
                lane_run(lane, false);
}

static void end_arrived(struct correlated_process *p, struct held *h)
{
        struct launch *l = launch_running(p, h);

        if (l)
                end_use(p, h, l);
        else
                end_add(p, h);
}

void records_put(struct correlated_process *p, const struct device_record *r)
{
        uint8_t type = DEVICE_RECORD_TYPE(r);
        struct held *h;

        if (type == DEVICE_RECORD_TAIL) { /* no end will come: it is inferred like any other */
                p->ledger->lost[LOSS_device_end_unseen]++;
                return;
        }
        if ((type != DEVICE_RECORD_START && type != DEVICE_RECORD_END) ||
            DEVICE_RECORD_GRIDID(r) == 0 ||
            DEVICE_RECORD_KERNEL(r) > p->kernel_id_max + KERNEL_IDS_AHEAD) {
                p->ledger->lost[LOSS_device_record_garbage]++;
                return;
        }
        h = p->held_count < HELD_MAX ? calloc(1, sizeof(*h)) : NULL;
        if (!h) {
                p->ledger->lost[LOSS_device_record_unmatched]++;
                p->gap += type == DEVICE_RECORD_START;
                return;
        }
        *h = (struct held){
                .time_ns = r->time_ns,
                .gridid = DEVICE_RECORD_GRIDID(r),
                .arrived_ns = p->correlator->now_ns,
                .kernel = kernel_find(p, DEVICE_RECORD_KERNEL(r)),
                .kernel_id = DEVICE_RECORD_KERNEL(r),
                .queue = DEVICE_RECORD_QUEUE(r),
                .tag = DEVICE_RECORD_CONTEXT(r),
                .smid = DEVICE_RECORD_SMID(r),
                .gap = p->gap,
                .device = DEVICE_UNKNOWN,
                .tick = p->correlator->ticks,
                .type = type,
        };
        p->held_count++;
        if (type == DEVICE_RECORD_START)
                start_arrived(p, h);
        else
                end_arrived(p, h);
}

void records_gap(struct correlated_process *p, uint64_t lost)
{
        if (!lost)
                return;
        /* The records before the gap were complete: judge them as such. */
        lanes_run(p, false);
        p->gap += lost < UINT32_MAX / 2 ? (uint32_t)lost : UINT32_MAX / 2;
        graph_gap(p);
}

/* ---- time ---- */

void records_tick(struct correlated_process *p, bool last)
{
        unsigned int steps = 0;
        struct held *h, *next;

        for (h = TAILQ_FIRST(&p->ends); h && steps++ < ENDS_STEPS; h = next) {
                struct launch *l = launch_running(p, h);

                next = TAILQ_NEXT(h, in_list);
                if (l) {
                        end_remove(p, h);
                        end_use(p, h, l);
                }
        }
        while ((h = TAILQ_FIRST(&p->ends)) && (last || record_aged(p, h, RECORD_PATIENCE_NS))) {
                end_remove(p, h);
                record_drop(p, h);
        }
}

void records_done(struct correlated_process *p)
{
        records_tick(p, true);
        free(p->ends_table);
}
