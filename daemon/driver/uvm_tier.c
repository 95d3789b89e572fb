/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_tier.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES 4096u

struct uvm_tier {
        uint64_t sequence; /* the last given */
        struct uvm_tier_time points[UVM_POINT_COUNT];
        struct uvm_tier_picks picks;
        size_t gpu_count, process_count;
        struct uvm_tier_gpu gpus[UVM_TIER_GPUS];
        struct uvm_tier_process processes[UVM_TIER_PROCESSES]; /* [0]: not known */
        struct uvm_tier_event events[UVM_TIER_EVENTS];         /* by sequence, modulo */
};

struct uvm_tier *uvm_tier_new(void)
{
        struct uvm_tier *t = calloc(1, sizeof(*t));

        if (t)
                t->process_count = 1;
        return t;
}

struct uvm_tier *uvm_tier_free(struct uvm_tier *t)
{
        free(t);
        return NULL;
}

static void add_time(struct uvm_tier_time *t, const struct uvm_probe_event *e)
{
        t->count++;
        t->failed += e->status != 0;
        t->total_ns += e->duration_ns;
        if (e->duration_ns > t->max_ns)
                t->max_ns = e->duration_ns;
}

/* ---- decisions ---- */

unsigned uvm_tier_pages(const struct uvm_probe_event *e)
{
        unsigned n = 0;

        /* The driver leaves pages in a hint that it does not act on. */
        if (!(e->has & UVM_PROBE_HAS_HINT) || !(e->has & UVM_PROBE_HAS_PROCESSOR) ||
            e->chosen != e->processor)
                return 0;
        for (size_t i = 0; i < UVM_PROBE_PAGES / 64; i++)
                n += (unsigned)__builtin_popcountll(e->pages[i]);
        return n;
}

bool uvm_tier_span(const struct uvm_probe_event *e, uint64_t *ret_start, uint64_t *ret_bytes)
{
        unsigned first = UVM_PROBE_PAGES, last = 0;

        if (!(e->has & UVM_PROBE_HAS_BLOCK) || !uvm_tier_pages(e))
                return false;
        for (unsigned i = 0; i < UVM_PROBE_PAGES / 64; i++) {
                if (!e->pages[i])
                        continue;
                if (first == UVM_PROBE_PAGES)
                        first = 64 * i + (unsigned)__builtin_ctzll(e->pages[i]);
                last = 64 * i + 63 - (unsigned)__builtin_clzll(e->pages[i]);
        }
        *ret_start = e->start + (uint64_t)first * PAGE_BYTES;
        *ret_bytes = (uint64_t)(last - first + 1) * PAGE_BYTES;
        return true;
}

/* ---- by GPU ---- */

static struct uvm_tier_gpu *gpu_of(struct uvm_tier *t, const struct uvm_probe_event *e)
{
        if (!(e->has & UVM_PROBE_HAS_UUID))
                return NULL;
        for (size_t i = 0; i < t->gpu_count; i++)
                if (memcmp(t->gpus[i].uuid, e->uuid, sizeof(e->uuid)) == 0)
                        return &t->gpus[i];
        if (t->gpu_count == UVM_TIER_GPUS)
                return NULL;
        memcpy(t->gpus[t->gpu_count].uuid, e->uuid, sizeof(e->uuid));
        return &t->gpus[t->gpu_count++];
}

static void add_to_gpu(struct uvm_tier_gpu *g, const struct uvm_probe_event *e)
{
        if (e->point == UVM_POINT_EVICT)
                g->evicted++;
        if (e->point != UVM_POINT_BATCH)
                return;
        add_time(&g->batches, e);
        g->faults += e->faults;
        g->distinct += e->distinct;
        g->duplicates += e->duplicates;
        if (e->faults > g->largest)
                g->largest = e->faults;
}

/* ---- by process ---- */

static void add_process(struct uvm_tier_process *to, const struct uvm_tier_process *from)
{
        to->decisions += from->decisions;
        to->chosen += from->chosen;
        to->pages += from->pages;
        to->evicted += from->evicted;
        for (size_t i = 0; i < UVM_CAUSE_COUNT; i++) {
                to->moves[i].count += from->moves[i].count;
                to->moves[i].failed += from->moves[i].failed;
                to->moves[i].total_ns += from->moves[i].total_ns;
                if (from->moves[i].max_ns > to->moves[i].max_ns)
                        to->moves[i].max_ns = from->moves[i].max_ns;
        }
}

/* The one that was quiet longest makes room, its sums go to those that are not listed. */
static struct uvm_tier_process *make_room(struct uvm_tier *t)
{
        struct uvm_tier_process *oldest = &t->processes[1];

        if (t->process_count < UVM_TIER_PROCESSES)
                return &t->processes[t->process_count++];
        for (size_t i = 2; i < UVM_TIER_PROCESSES; i++)
                if (t->processes[i].last < oldest->last)
                        oldest = &t->processes[i];
        add_process(&t->processes[0], oldest);
        return oldest;
}

static struct uvm_tier_process *process_of(struct uvm_tier *t, uint64_t process_key)
{
        struct uvm_tier_process *p;

        for (size_t i = 0; i < t->process_count; i++)
                if (t->processes[i].process_key == process_key)
                        return &t->processes[i];
        p = make_room(t);
        *p = (struct uvm_tier_process){.process_key = process_key};
        return p;
}

static void add_to_process(struct uvm_tier_process *p, const struct uvm_tier_event *e)
{
        unsigned pages;

        p->last = e->sequence;
        switch (e->probe.point) {
        case UVM_POINT_PREFETCH:
                pages = uvm_tier_pages(&e->probe);
                p->decisions++;
                p->chosen += pages > 0;
                p->pages += pages;
                break;
        case UVM_POINT_EVICT:
                p->evicted++;
                break;
        case UVM_POINT_MOVE:
                add_time(&p->moves[e->cause], &e->probe);
                break;
        default:
                break;
        }
}

/* ---- all ---- */

void uvm_tier_add(struct uvm_tier *t, const struct uvm_tier_event *e)
{
        struct uvm_tier_event *kept = &t->events[(t->sequence + 1) % UVM_TIER_EVENTS];
        struct uvm_tier_gpu *gpu;

        *kept = *e;
        kept->sequence = ++t->sequence;
        add_time(&t->points[e->probe.point], &e->probe);
        gpu = gpu_of(t, &e->probe);
        if (gpu)
                add_to_gpu(gpu, &e->probe);
        if (e->probe.point == UVM_POINT_PICK) {
                t->picks.by_cause[e->cause]++;
                t->picks.by_state[e->state]++;
        } else if (e->probe.point != UVM_POINT_BATCH) {
                add_to_process(process_of(t, e->process_key), kept);
        }
}

struct uvm_tier_time uvm_tier_point(const struct uvm_tier *t, unsigned point)
{
        return t->points[point];
}

struct uvm_tier_picks uvm_tier_picks(const struct uvm_tier *t)
{
        return t->picks;
}

const struct uvm_tier_gpu *uvm_tier_gpu(const struct uvm_tier *t, size_t index)
{
        return index < t->gpu_count ? &t->gpus[index] : NULL;
}

const struct uvm_tier_process *uvm_tier_process(const struct uvm_tier *t, size_t index)
{
        return index < t->process_count ? &t->processes[index] : NULL;
}

const struct uvm_tier_event *uvm_tier_after(const struct uvm_tier *t, uint64_t sequence)
{
        if (sequence >= t->sequence)
                return NULL;
        if (t->sequence - sequence > UVM_TIER_EVENTS)
                sequence = t->sequence - UVM_TIER_EVENTS;
        return &t->events[(sequence + 1) % UVM_TIER_EVENTS];
}
