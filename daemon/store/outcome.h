/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Counts of stored and refused records per process. */
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

struct outcome_entry;

struct outcome_table {
        struct outcome_entry *by_key;
        struct outcome_entry *last; /* records come in runs of one process */
};

/* 0 or -ENOMEM. */
int outcome_add(struct outcome_table *t, uint64_t process_key, uint64_t stored, uint64_t failed);

/* The same for what had been counted as stored. */
int outcome_vanish(struct outcome_table *t, uint64_t process_key, uint64_t vanished);

/* The process's entry, NULL when there is none. */
const struct store_outcome *outcome_find(struct outcome_table *t, uint64_t process_key);

/* Add everything in `from` to `to` and empty `from`; entries move, so it needs no memory. */
void outcome_merge(struct outcome_table *to, struct outcome_table *from);

/* Take up to max entries out of the table. */
size_t outcome_take(struct outcome_table *t, struct store_outcome *out, size_t max);

/* Each entry in turn, from NULL; NULL at the end. */
const struct store_outcome *outcome_next(const struct outcome_table *t,
                                         const struct store_outcome *previous);

void outcome_clear(struct outcome_table *t);
