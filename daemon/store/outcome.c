/* SPDX-License-Identifier: Apache-2.0 */
#include "store/outcome.h"

#include <errno.h>
#include <stdlib.h>
#include <uthash.h>

#include "util/macro.h"

struct outcome_entry {
        UT_hash_handle hh;
        struct store_outcome outcome;
};

static struct outcome_entry *find(struct outcome_table *t, uint64_t process_key)
{
        struct outcome_entry *e;

        if (t->last && t->last->outcome.process_key == process_key)
                return t->last;
        HASH_FIND(hh, t->by_key, &process_key, sizeof(process_key), e);
        return e;
}

static void insert(struct outcome_table *t, struct outcome_entry *e)
{
        HASH_ADD(hh, t->by_key, outcome.process_key, sizeof(e->outcome.process_key), e);
}

static struct outcome_entry *get(struct outcome_table *t, uint64_t process_key)
{
        struct outcome_entry *e = find(t, process_key);

        if (!e) {
                e = calloc(1, sizeof(*e));
                if (!e)
                        return NULL;
                e->outcome.process_key = process_key;
                insert(t, e);
        }
        t->last = e;
        return e;
}

int outcome_add(struct outcome_table *t, uint64_t process_key, uint64_t stored, uint64_t failed)
{
        struct outcome_entry *e = get(t, process_key);

        if (!e)
                return -ENOMEM;
        e->outcome.stored += stored;
        e->outcome.failed += failed;
        return 0;
}

int outcome_vanish(struct outcome_table *t, uint64_t process_key, uint64_t vanished)
{
        struct outcome_entry *e = get(t, process_key);

        if (!e)
                return -ENOMEM;
        e->outcome.vanished += vanished;
        return 0;
}

const struct store_outcome *outcome_find(struct outcome_table *t, uint64_t process_key)
{
        struct outcome_entry *e = find(t, process_key);

        return e ? &e->outcome : NULL;
}

void outcome_merge(struct outcome_table *to, struct outcome_table *from)
{
        struct outcome_entry *e, *next, *into;

        from->last = NULL;
        HASH_ITER (hh, from->by_key, e, next) {
                HASH_DEL(from->by_key, e);
                into = find(to, e->outcome.process_key);
                if (!into) {
                        insert(to, e);
                        continue;
                }
                into->outcome.stored += e->outcome.stored;
                into->outcome.failed += e->outcome.failed;
                into->outcome.vanished += e->outcome.vanished;
                free(e);
        }
}

size_t outcome_take(struct outcome_table *t, struct store_outcome *out, size_t max)
{
        struct outcome_entry *e, *next;
        size_t n = 0;

        t->last = NULL;
        HASH_ITER (hh, t->by_key, e, next) {
                if (n == max)
                        break;
                out[n++] = e->outcome;
                HASH_DEL(t->by_key, e);
                free(e);
        }
        return n;
}

const struct store_outcome *outcome_next(const struct outcome_table *t,
                                         const struct store_outcome *previous)
{
        struct outcome_entry *e = t->by_key;

        if (previous)
                e = container_of(previous, struct outcome_entry, outcome)->hh.next;
        return e ? &e->outcome : NULL;
}

void outcome_clear(struct outcome_table *t)
{
        struct outcome_entry *e, *next;

        t->last = NULL;
        HASH_ITER (hh, t->by_key, e, next) {
                HASH_DEL(t->by_key, e);
                free(e);
        }
}
