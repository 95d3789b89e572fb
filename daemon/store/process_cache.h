/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the writer knows of the processes put during this run: their rows and
 * ledgers, until written and as long as there is room after that, so that they
 * can be written again into a new file. Bounded: the longest untouched entries
 * with nothing to write go first. Only the writer thread uses it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uthash.h>

#include "util/launch_record.h"
#include "util/ledger.h"

#define PROCESS_CACHE_MAX 4096

struct cached_process {
        UT_hash_handle hh; /* the hash's order is the order of last use */
        uint64_t process_key;
        struct process_info *info; /* NULL when only the ledger is known here */
        struct ledger ledger;      /* latest counters */
        bool has_ledger;
        bool info_written;   /* the database has the row */
        bool ledger_written; /* the database has these counters */
};

struct process_cache {
        struct cached_process *by_key;
        size_t unwritten; /* entries with something to write */
};

/* A copy in one block, texts behind the struct; NULL on no memory. */
struct process_info *process_info_copy(const struct process_info *from);

/* Takes info over (also on failure). 0 or -ENOMEM. */
int process_cache_put(struct process_cache *c, struct process_info *info);
int process_cache_put_ledger(struct process_cache *c, uint64_t process_key,
                             const struct ledger *ledger);

/* NULL when not known; moves the entry to the end of the order. */
struct cached_process *process_cache_use(struct process_cache *c, uint64_t process_key);

/* Without touching the order. */
bool process_cache_knows(struct process_cache *c, uint64_t process_key);

/* Everything in the cache has been committed. */
void process_cache_all_written(struct process_cache *c);

/* The database is another one, or its transaction was undone: write everything again. */
void process_cache_none_written(struct process_cache *c);

void process_cache_clear(struct process_cache *c);
