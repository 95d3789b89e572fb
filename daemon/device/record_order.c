/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>

#include "device/device_abi.h"
#include "device/record_order.h"
#include "device/running_table.h"

#define WRITE_SLACK_NS UINT64_C(100000)
#define CONTEXTS       256

struct progress;

struct entry {
        struct device_record record;
        size_t place; /* in which it came: decides between equal times */
};

struct record_order {
        struct running_table *running;
        struct progress *until; /* while they are handed out */
        uint64_t lost;          /* missing in the ring, not told yet */
        size_t kept;            /* from the last flush */
        size_t count;
        struct entry entries[RECORD_ORDER_KEPT + RECORD_ORDER_MAX + DEVICE_RUNNING_ENTRIES];
};

/* All is handed out when RECORD_ORDER_MAX have been kept. */
_Static_assert(RECORD_ORDER_KEPT >= 2 * RECORD_ORDER_MAX + DEVICE_RUNNING_ENTRIES, "room for them");

struct record_order *record_order_new(struct running_table *running)
{
        struct record_order *o = calloc(1, sizeof(*o));

        if (o)
                o->running = running;
        return o;
}

struct record_order *record_order_free(struct record_order *o)
{
        free(o);
        return NULL;
}

static bool is_start(const struct entry *e)
{
        return DEVICE_RECORD_TYPE(&e->record) == DEVICE_RECORD_START;
}

void record_order_put(void *order, const struct device_record *rec)
{
        struct record_order *o = order;

        o->entries[o->count] = (struct entry){.record = *rec, .place = o->count};
        o->count++;
}

void record_order_gap(void *order, uint64_t lost)
{
        struct record_order *o = order;

        o->lost += lost;
}

/* Of what came since the last flush, without the starts that were handed out before. */
static void drop_told(struct record_order *o)
{
        size_t kept = o->kept;

        for (size_t i = o->kept; i < o->count; i++) {
                const struct entry *e = &o->entries[i];

                if (!DEVICE_RECORD_OF_START(DEVICE_RECORD_TYPE(&e->record)) ||
                    !running_table_came(o->running, &e->record))
                        o->entries[kept++] = *e;
        }
        o->count = kept;
}

/*
 * To which time the ring has been read, for each context: devices have clocks of their own.
 * Contexts with one number modulo their count share a place.
 */
struct progress {
        uint64_t last_ns[CONTEXTS];
        bool comes[CONTEXTS]; /* there may be more; else what was kept has waited long enough */
};

static size_t context_of(const struct device_record *r)
{
        return DEVICE_RECORD_CONTEXT(r) % CONTEXTS;
}

/* The latest times of records of the ring; only of STARTs, or of all, less the slack. */
static void find_progress(const struct record_order *o, bool all, struct progress *p)
{
        *p = (struct progress){};
        for (size_t i = o->kept; i < o->count && !all; i++)
                p->comes[context_of(&o->entries[i].record)] = true;
        for (size_t i = 0; i < o->count; i++) {
                const struct entry *e = &o->entries[i];
                size_t c = context_of(&e->record);
                uint64_t time_ns = e->record.time_ns;

                if (p->comes[c])
                        time_ns -= time_ns > WRITE_SLACK_NS ? WRITE_SLACK_NS : time_ns;
                if ((is_start(e) || p->comes[c]) && time_ns > p->last_ns[c])
                        p->last_ns[c] = time_ns;
        }
}

static int by_time(const void *a, const void *b)
{
        const struct entry *x = a, *y = b;

        if (x->record.time_ns != y->record.time_ns)
                return x->record.time_ns < y->record.time_ns ? -1 : 1;
        /* A start of the table has a later place than the end of a kernel that took no time. */
        if (is_start(x) != is_start(y))
                return is_start(x) ? -1 : 1;
        return x->place < y->place ? -1 : x->place > y->place;
}

/* Whether the ring has been read to the time of this record. */
static bool is_due(void *data, const struct device_record *r)
{
        const struct record_order *o = data;

        return r->time_ns <= o->until->last_ns[context_of(r)];
}

bool record_order_keeps(const struct record_order *o)
{
        return o->kept > 0;
}

/*
 * A START of the table is handed out when the ring has been read to where it is certain that
 * no earlier one of its stream, or of the same node of a graph, is still to come. Blocks do not
 * come to write in the order in which they took the time.
 */
void record_order_flush(struct record_order *o, enum record_order_look look,
                        void (*record)(void *data, const struct device_record *rec),
                        void (*gap)(void *data, uint64_t lost), void *data)
{
        bool all = look != RECORDS_CAME || o->kept >= RECORD_ORDER_MAX, told = false;
        struct progress progress;
        size_t kept = 0;

        find_progress(o, all, &progress);
        drop_told(o);
        o->until = &progress;
        running_table_look(o->running, is_due, look == RECORDS_IDLE, record_order_put, o);
        qsort(o->entries, o->count, sizeof(o->entries[0]), by_time);
        for (size_t i = 0; i < o->count; i++) {
                const struct entry *e = &o->entries[i];

                if (progress.comes[context_of(&e->record)] && !is_due(o, &e->record)) {
                        o->entries[kept] = *e;
                        o->entries[kept].place = kept;
                        kept++;
                        continue;
                }
                if (o->lost && is_start(e)) {
                        gap(data, o->lost);
                        told = true;
                }
                record(data, &e->record);
        }
        o->until = NULL;
        o->count = o->kept = kept;
        if (told)
                o->lost = 0;
}
