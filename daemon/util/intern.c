/* SPDX-License-Identifier: Apache-2.0 */
#include "util/intern.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* Entries live in fixed blocks so that a text's address never changes as the table grows. */
#define BLOCK_ENTRIES 1024
#define BLOCKS_MAX    4096

struct entry {
        UT_hash_handle hh;
        uint64_t id;
        char text[];
};

struct intern {
        struct entry *by_text;
        struct entry **blocks[BLOCKS_MAX];
        uint64_t count;
};

struct intern *intern_new(void)
{
        return calloc(1, sizeof(struct intern));
}

struct intern *intern_free(struct intern *t)
{
        struct entry *e, *next;

        if (!t)
                return NULL;
        HASH_ITER (hh, t->by_text, e, next) {
                HASH_DEL(t->by_text, e);
                free(e);
        }
        for (size_t i = 0; i < BLOCKS_MAX && t->blocks[i]; i++)
                free(t->blocks[i]);
        free(t);
        return NULL;
}

static struct entry **slot_of(struct intern *t, uint64_t id)
{
        uint64_t block = (id - 1) / BLOCK_ENTRIES;

        if (block >= BLOCKS_MAX)
                return NULL;
        if (!t->blocks[block])
                t->blocks[block] = calloc(BLOCK_ENTRIES, sizeof(struct entry *));
        return t->blocks[block] ? &t->blocks[block][(id - 1) % BLOCK_ENTRIES] : NULL;
}

uint64_t intern_id(struct intern *t, const char *text, size_t length)
{
        struct entry *e, **slot;

        HASH_FIND(hh, t->by_text, text, length, e);
        if (e)
                return e->id;

        slot = slot_of(t, t->count + 1);
        e = slot ? malloc(sizeof(*e) + length + 1) : NULL;
        if (!e)
                return 0;
        memcpy(e->text, text, length);
        e->text[length] = '\0';
        e->id = ++t->count;
        *slot = e;
        HASH_ADD_KEYPTR(hh, t->by_text, e->text, length, e);
        return e->id;
}

const char *intern_text(const struct intern *t, uint64_t id)
{
        if (id == 0 || id > t->count)
                return "";
        return t->blocks[(id - 1) / BLOCK_ENTRIES][(id - 1) % BLOCK_ENTRIES]->text;
}

uint64_t intern_count(const struct intern *t)
{
        return t->count;
}
