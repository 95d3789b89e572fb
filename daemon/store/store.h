/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Launch records in SQLite (WAL). One writer thread owns the writing connection
 * and commits batches; any thread may query through its own read connection
 * (struct store_reader). Times in the database are CLOCK_MONOTONIC ns of the
 * boot named in the process row (boot id), so records of earlier boots stay
 * apart.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/intern.h"
#include "util/launch_record.h"

struct store;
struct store_reader;

struct store_options {
        const char *path;        /* database file; its directory must exist */
        uint64_t max_bytes;      /* database + WAL; oldest launches go first; 0 = no limit */
        uint64_t max_age_s;      /* launches older than this go; 0 = no limit */
        uint32_t queue_records;  /* records that may wait for the writer, default 262144 */
        uint32_t commit_interval_ms; /* at most this long until a record is durable, default 500 */
};

/* What the writer did since the last call of store_collect(), per process. */
struct store_outcome {
        uint64_t process_key;
        uint64_t stored;
        uint64_t failed; /* refused by the database: disk full, read-only, corrupt */
};

struct store_status {
        uint64_t bytes;          /* database file + WAL */
        uint64_t launches;       /* rows (estimate: max id - min id + 1 between retention runs) */
        uint64_t queued;         /* records waiting */
        bool failing;            /* the last commit failed */
        char error[160];         /* why, as a sentence a person can act on; "" when fine */
};

/*
 * Open or create the database, migrate the schema, start the writer thread.
 * names: the daemon's string table; the main thread writes it, the writer reads
 * ids it was handed. ret_next_launch_id / ret_next_process_key: first unused ids.
 * A corrupt file is moved aside (PATH.corrupt-TIME) and a new one begun, said in
 * status.error. Returns 0 or -errno with a sentence in error[] (caller's buffer).
 */
int store_open(const struct store_options *options, const struct intern *names, char *error,
               size_t error_size, struct store **ret_store, uint64_t *ret_next_launch_id,
               uint64_t *ret_next_process_key);

/* Flush what is queued (waits for the commit), stop the thread, close. NULL is fine. */
struct store *store_free(struct store *s);

/* Main thread. A process must be put before its launches. Copies what it is given. */
int store_put_process(struct store *s, const struct process_info *process);

/*
 * Main thread; never blocks on the disk. Copies up to n records; returns how
 * many were taken (less than n when the queue is full: the caller counts the
 * rest as lost).
 */
size_t store_put_launches(struct store *s, const struct launch_record *records, size_t n);

/* Main thread, once a second or so: counters of a process, kept beside its records. */
struct ledger;
int store_put_ledger(struct store *s, uint64_t process_key, const struct ledger *ledger);

/*
 * Main thread. Outcomes since the last call into out[max]; returns the number
 * written (call again while it equals max).
 */
size_t store_collect(struct store *s, struct store_outcome *out, size_t max);

/* Any thread. */
void store_get_status(struct store *s, struct store_status *ret_status);

/* Wait until everything put before the call is committed or has failed; -ETIMEDOUT. Tests, shutdown. */
int store_flush(struct store *s, uint64_t timeout_ns);

/* ---- reading: any thread, one reader per thread at a time ---- */

int store_reader_new(const char *path, struct store_reader **ret_reader);
struct store_reader *store_reader_free(struct store_reader *r);

#define STORE_ANY_GPU UINT32_MAX

struct store_filter {
        uint64_t since_ns;        /* cpu_enter_ns >= since_ns; 0 = no bound */
        uint64_t until_ns;        /* cpu_enter_ns < until_ns; 0 = no bound */
        uint32_t pid;             /* 0 = any */
        uint32_t uid;             /* only processes of this uid; UINT32_MAX = any */
        uint32_t gpu;             /* STORE_ANY_GPU = any */
        const char *kernel_glob;  /* on the kernel name (SQLite GLOB); NULL = any */
        uint64_t after_launch_id; /* cursor: launch_id > this */
        bool newest;              /* the last `limit` matching rows rather than the first */
        uint32_t limit;           /* rows, 1..10000 */
};

/* One row; texts are valid during the callback only. */
struct store_launch {
        struct launch_record record; /* kernel_name is 0 here: see kernel */
        const char *kernel;          /* NULL when not known */
        const char *comm;
        const char *cgroup; /* "" when not known */
        uint32_t pid;
        uint32_t uid;
        uint64_t start_ticks;
};

/* Rows in ascending launch_id. The callback returns nonzero to stop. 0 or -errno; -ETIME after timeout_ms. */
int store_query_launches(struct store_reader *r, const struct store_filter *filter,
                         uint32_t timeout_ms, int (*row)(void *data, const struct store_launch *l),
                         void *data);

struct store_spread {
        uint64_t count; /* of launches where the quantity is known */
        uint64_t total_ns, min_ns, avg_ns, p50_ns, p95_ns, p99_ns, max_ns;
};

struct store_kernel_stats {
        const char *kernel; /* NULL when not known */
        uint64_t launches;
        struct store_spread queue;     /* gpu_start - cpu_return, below zero counted as 0 */
        struct store_spread execution; /* gpu_end - gpu_start */
};

/* Per kernel over the filter (its cursor and newest are ignored), by descending total execution; limit rows. */
int store_query_kernels(struct store_reader *r, const struct store_filter *filter,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_kernel_stats *k), void *data);

/* Processes that have rows, live or not. */
int store_query_processes(struct store_reader *r, uint32_t timeout_ms,
                          int (*row)(void *data, const struct process_info *p, uint64_t launches),
                          void *data);
