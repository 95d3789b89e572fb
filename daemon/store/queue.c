/* SPDX-License-Identifier: Apache-2.0 */
#include "store/queue.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "util/macro.h"

struct queue_chunk {
        struct queue_entry entries[QUEUE_CHUNK_RECORDS];
};

/*
 * Chunks come from mmap rather than malloc, so that memory really goes back to
 * the system after a burst, whatever else was allocated meanwhile.
 */
static struct queue_chunk *chunk_new(void)
{
        void *p = mmap(NULL, sizeof(struct queue_chunk), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

static struct queue_chunk *chunk_free(struct queue_chunk *c)
{
        if (c)
                munmap(c, sizeof(*c));
        return NULL;
}

static struct queue_chunk **slot_of(const struct record_queue *q, uint64_t position)
{
        return &q->chunks[position / QUEUE_CHUNK_RECORDS % q->chunk_count];
}

int queue_init(struct record_queue *q, uint32_t limit)
{
        /* Two more than the records need: neither end has to lie on a chunk's border. */
        *q = (struct record_queue){.limit = limit, .chunk_count = limit / QUEUE_CHUNK_RECORDS + 2};
        q->chunks = calloc(q->chunk_count, sizeof(*q->chunks));
        return q->chunks ? 0 : -ENOMEM;
}

void queue_done(struct record_queue *q)
{
        for (uint32_t i = 0; q->chunks && i < q->chunk_count; i++)
                chunk_free(q->chunks[i]);
        chunk_free(q->spare);
        free(q->chunks);
        *q = (struct record_queue){0};
}

struct queue_entry *queue_push(struct record_queue *q)
{
        struct queue_chunk **slot = slot_of(q, q->tail);

        if (queue_length(q) >= q->limit)
                return NULL;
        if (!*slot)
                *slot = q->spare ? TAKE_PTR(q->spare) : chunk_new();
        if (!*slot)
                return NULL;
        return &(*slot)->entries[q->tail++ % QUEUE_CHUNK_RECORDS];
}

struct queue_entry *queue_at(const struct record_queue *q, uint64_t position)
{
        return &(*slot_of(q, position))->entries[position % QUEUE_CHUNK_RECORDS];
}

/* One chunk is kept, so that a steady trickle does not map and unmap all the time. */
static void retire(struct record_queue *q, struct queue_chunk **slot)
{
        if (q->spare)
                *slot = chunk_free(*slot);
        else
                q->spare = TAKE_PTR(*slot);
}

void queue_pop(struct record_queue *q, uint64_t n)
{
        uint64_t end = q->head + n;

        for (uint64_t p = q->head / QUEUE_CHUNK_RECORDS; p < end / QUEUE_CHUNK_RECORDS; p++)
                retire(q, slot_of(q, p * QUEUE_CHUNK_RECORDS));
        q->head = end;
}
