/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "device/device_abi.h"
#include "device/running_table.h"

/*
 * Starts that were handed out and have not come, for each slot: kernels that run at the same
 * time and have one slot are rare. With more of them the oldest is forgotten, and will be
 * handed out twice.
 */
#define TOLD_MAX 4

/* Which start. */
struct start {
        uint64_t grid, time_ns;
};

struct known {
        struct start seen; /* was in the slot */
        struct start done; /* handed out, or come: what is in the slot is no news if it is this */
        struct start told[TOLD_MAX];
        unsigned next; /* to be forgotten */
};

struct running_table {
        const uint64_t *words; /* of the table */
        struct known known[DEVICE_RUNNING_ENTRIES];
};

static struct start start_of(const struct device_record *r)
{
        return (struct start){r->grid, r->time_ns};
}

static bool is_same(const struct start *a, const struct start *b)
{
        return a->grid == b->grid && a->time_ns == b->time_ns;
}

/* Copy a slot; whether it holds a start. */
static bool read_slot(const struct running_table *t, size_t i, struct device_record *ret_record)
{
        const uint64_t *slot = t->words + i * 4;

        ret_record->check = __atomic_load_n(&slot[3], __ATOMIC_RELAXED);
        if (!ret_record->check)
                return false;
        ret_record->time_ns = __atomic_load_n(&slot[0], __ATOMIC_RELAXED);
        ret_record->grid = __atomic_load_n(&slot[1], __ATOMIC_RELAXED);
        ret_record->who = __atomic_load_n(&slot[2], __ATOMIC_RELAXED);
        return DEVICE_RECORD_TYPE(ret_record) == DEVICE_RECORD_START &&
               device_record_index(ret_record) == DEVICE_RECORD_GRIDID(ret_record);
}

static size_t slot_of(const struct device_record *r)
{
        return DEVICE_PLACE(DEVICE_RECORD_GRIDID(r), DEVICE_RECORD_CONTEXT(r)) %
               DEVICE_RUNNING_ENTRIES;
}

struct running_table *running_table_new(const uint64_t *words)
{
        struct running_table *t = calloc(1, sizeof(*t));
        struct device_record r;

        if (!t)
                return NULL;
        t->words = words + (size_t)DEVICE_RING_ENTRIES * 4;
        for (size_t i = 0; i < DEVICE_RUNNING_ENTRIES; i++)
                if (read_slot(t, i, &r))
                        t->known[i].done = start_of(&r);
        return t;
}

struct running_table *running_table_free(struct running_table *t)
{
        free(t);
        return NULL;
}

static void tell(struct known *k, const struct start *s)
{
        size_t i = 0;

        while (i < TOLD_MAX && k->told[i].grid)
                i++;
        k->told[i < TOLD_MAX ? i : k->next++ % TOLD_MAX] = *s;
}

bool running_table_is_empty(const struct running_table *t)
{
        struct device_record r;

        for (size_t i = 0; i < DEVICE_RUNNING_ENTRIES; i++)
                if (read_slot(t, i, &r))
                        return false;
        return true;
}

void running_table_look(struct running_table *t,
                        bool (*is_due)(void *data, const struct device_record *rec), bool settle,
                        void (*record)(void *data, const struct device_record *rec), void *data)
{
        for (size_t i = 0; i < DEVICE_RUNNING_ENTRIES; i++) {
                struct known *k = &t->known[i];
                struct device_record r;
                struct start s;

                if (!read_slot(t, i, &r) || slot_of(&r) != i)
                        continue;
                s = start_of(&r);
                if (is_same(&s, &k->done))
                        continue;
                if (!is_due(data, &r) && !(settle && is_same(&s, &k->seen))) {
                        if (settle)
                                k->seen = s;
                        continue;
                }
                k->done = s;
                tell(k, &s);
                record(data, &r);
        }
}

static bool is_in_slot(const struct running_table *t, const struct device_record *rec)
{
        struct start s = start_of(rec), in_table;
        struct device_record r;

        if (!read_slot(t, slot_of(rec), &r))
                return false;
        in_table = start_of(&r);
        return is_same(&s, &in_table);
}

/* Whether that is the start of the grid that ended at this time, which is all it left. */
static bool is_of(const struct start *s, const struct device_record *unknown)
{
        return s->grid == DEVICE_RECORD_GRID(DEVICE_RECORD_GRIDID(unknown), DEVICE_RECORD_START,
                                             DEVICE_RECORD_CONTEXT(unknown)) &&
               s->time_ns <= unknown->time_ns;
}

bool running_table_came(struct running_table *t, const struct device_record *rec)
{
        bool unknown = DEVICE_RECORD_TYPE(rec) == DEVICE_RECORD_UNKNOWN_START;
        struct known *k = &t->known[slot_of(rec)];
        struct start s = start_of(rec);

        for (size_t i = 0; i < TOLD_MAX; i++) {
                if (unknown ? !is_of(&k->told[i], rec) : !is_same(&s, &k->told[i]))
                        continue;
                k->told[i] = (struct start){};
                return true;
        }
        if (!unknown && is_in_slot(t, rec))
                k->done = s;
        return false;
}
