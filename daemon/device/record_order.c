/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/record_order.h"
#include "device/running_table.h"

#define WRITE_SLACK_NS UINT64_C(100000)

struct entry {
        struct device_record record;
        size_t place; /* in which it came: decides between equal times */
};

struct record_order {
        struct running_table *running;
        uint64_t lost; /* missing in the ring, not told yet */
        size_t kept;   /* from the last flush */
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

static void add(void *data, const struct device_record *rec)
{
        struct record_order *o = data;

        o->entries[o->count] = (struct entry){.record = *rec, .place = o->count};
        o->count++;
}

static bool is_start(const struct entry *e)
{
        return DEVICE_RECORD_TYPE(&e->record) == DEVICE_RECORD_START;
}

void record_order_put(void *order, const struct device_record *rec)
{
        add(order, rec);
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

                if (!is_start(e) || !running_table_came(o->running, &e->record))
                        o->entries[kept++] = *e;
        }
        o->count = kept;
}

/* The latest time of records of the ring; only of STARTs, or of all. */
static uint64_t last_time(const struct record_order *o, bool starts)
{
        uint64_t last_ns = 0;

        for (size_t i = 0; i < o->count; i++)
                if ((is_start(&o->entries[i]) || !starts) && o->entries[i].record.time_ns > last_ns)
                        last_ns = o->entries[i].record.time_ns;
        return last_ns;
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

/* The others stay. */
static void keep_from(struct record_order *o, size_t first)
{
        o->kept = o->count - first;
        memmove(o->entries, o->entries + first, o->kept * sizeof(o->entries[0]));
        for (size_t i = 0; i < o->kept; i++)
                o->entries[i].place = i;
        o->count = o->kept;
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
        uint64_t until_ns = UINT64_MAX, last_ns;
        size_t i = 0;

        last_ns = last_time(o, all);
        if (!all) {
                last_ns -= last_ns > WRITE_SLACK_NS ? WRITE_SLACK_NS : last_ns;
                until_ns = last_ns;
        }
        drop_told(o);
        running_table_look(o->running, last_ns, look == RECORDS_IDLE, add, o);
        qsort(o->entries, o->count, sizeof(o->entries[0]), by_time);
        for (; i < o->count && o->entries[i].record.time_ns <= until_ns; i++) {
                if (o->lost && is_start(&o->entries[i])) {
                        gap(data, o->lost);
                        told = true;
                }
                record(data, &o->entries[i].record);
        }
        keep_from(o, i);
        if (told)
                o->lost = 0;
}
