/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * First-in first-out of launch records between the main thread and the writer,
 * in chunks that exist only while they hold records: an idle daemon pays for
 * none. Positions count records from the start of the queue and never go back.
 * The owner's lock guards every call; queue_at() of a position that has been
 * pushed and not popped may be read without it.
 */
#include <stddef.h>
#include <stdint.h>

#include "util/launch_record.h"

#define QUEUE_CHUNK_RECORDS 1024

struct queue_entry {
        struct launch_record record;
        const char *kernel; /* text of record.kernel_name in the daemon's string table */
};

struct queue_chunk;

struct record_queue {
        struct queue_chunk **chunks; /* ring of chunk_count pointers */
        uint32_t chunk_count;
        uint32_t limit; /* records */
        uint64_t head;  /* position of the oldest record */
        uint64_t tail;  /* position of the next push */
        struct queue_chunk *spare;
};

/* limit: records that may wait. 0 or -ENOMEM. */
int queue_init(struct record_queue *q, uint32_t limit);
void queue_done(struct record_queue *q);

/* NULL when full or out of memory, else the new entry, to be filled before the lock is released. */
struct queue_entry *queue_push(struct record_queue *q);

struct queue_entry *queue_at(const struct record_queue *q, uint64_t position);

/* Forget the n oldest. */
void queue_pop(struct record_queue *q, uint64_t n);

static inline uint64_t queue_length(const struct record_queue *q)
{
        return q->tail - q->head;
}
