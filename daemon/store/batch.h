/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/queue.h"
#include "store/writer.h"

/*
 * One transaction: what is unwritten in the process cache, and n records of the
 * queue from a position on (not popped). 0 with the counts in w->batch, or
 * -errno with nothing changed, in the database or in the writer's memory.
 */
int batch_write(struct writer *w, const struct record_queue *queue, uint64_t from, size_t n);

/* Forget what is known of the database's contents: it is another one now. */
void batch_forget(struct writer *w);
