/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What store.c (any thread, under the lock) and writer.c (the writer thread) share. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/managed.h"
#include "store/outcome.h"
#include "store/queue.h"
#include "store/shares.h"
#include "store/store.h"
#include "store/writer.h"

#define INBOX_MAX 16384 /* processes, and ledgers, that may wait */

struct process_put {
        struct process_put *next;
        struct process_info *info;
};

struct ledger_put {
        UT_hash_handle hh;
        uint64_t process_key;
        struct ledger ledger;
};

/* Small things on their way to the writer. */
struct store_inbox {
        struct process_put *processes, **processes_end; /* in the order they came */
        size_t process_count;
        struct ledger_put *ledgers; /* latest per process */
        struct managed_queue managed;
        struct share_list shares;
};

struct store_limits {
        uint64_t max_bytes, max_age_s, max_sums_age_s;
        bool changed; /* the writer has not taken them */
};

/* What store_prune() asks of the writer. */
struct store_prune {
        bool wanted;     /* somebody waits */
        uint64_t number; /* of the order: the one before may have been given up */
        bool sums;
        uint64_t older_than_ns;
        uint64_t deleted;
};

struct store {
        pthread_mutex_t lock;
        pthread_cond_t wake; /* the writer: something to do */
        pthread_cond_t done; /* store_flush, store_prune: something was done */

        /* Under the lock. */
        struct record_queue queue;
        struct store_inbox inbox;
        struct outcome_table outcomes;
        struct store_status status;
        uint64_t pending_since_ns; /* when the oldest thing the writer has not taken came; 0 = none
                                    */
        uint64_t inbox_puts;       /* processes and ledgers put so far */
        uint64_t inbox_done;       /* of them committed */
        uint32_t flushers;         /* threads in store_flush() */
        struct store_limits limits;
        struct store_prune prune;
        bool stop;

        /* Fixed after store_open(). */
        const struct intern *names;
        uint64_t commit_interval_ns;
        pthread_t thread;
        bool thread_started;

        /* Of the writer thread. */
        struct writer writer;
};

/* Id of the running boot. 0 or -errno. */
int store_boot_id(char *buffer, size_t size);
