/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Launch records in SQLite (WAL). One writer thread owns the writing connection
 * and commits batches; any thread may query through its own read connection
 * (struct store_reader).
 *
 * Boots. Times in the database are CLOCK_MONOTONIC ns of the boot their process
 * ran in, so times of different boots cannot be compared. Queries therefore
 * show the running boot only, unless store_filter.all_boots is set; launch ids
 * and process keys grow across boots, so a cursor stays valid.
 *
 * Durability. A committed record survives kill -9 of the daemon at once, and a
 * loss of power from the next checkpoint on (5 s at most; synchronous=NORMAL). The
 * file is never damaged by either.
 *
 * What is lost so while the daemon runs on (a file system that turned read-only and
 * was mounted anew) is counted: store_outcome.vanished.
 *
 * Trouble. When the database refuses (disk full, read-only, locked, I/O error)
 * records wait in the queue, the writer tries again from 0.1 s to 2 s apart,
 * and store_put_launches() takes less once the queue is full. Damage found
 * while running has the same effect as at opening: moved aside, begun anew.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/intern.h"
#include "util/launch_record.h"
#include "util/managed_second.h"

struct store;
struct store_reader;
struct ledger;

struct store_options {
        const char *path; /* database file; its directory must exist */
        /*
         * Database + WAL: the oldest launches go first. 0 = no limit; less than 8 MiB = 8 MiB.
         * The log grows beyond it by what is written while one query runs.
         */
        uint64_t max_bytes;
        uint64_t max_age_s;          /* launches older than this go; 0 = no limit */
        uint64_t max_sums_age_s;     /* and sums per minute; 0 = no limit */
        uint32_t queue_records;      /* that may wait; 0 = 65536, which take 10 MiB when full */
        uint32_t commit_interval_ms; /* a record waits at most this long; 0 = 500 */
        const char *boot_id;         /* NULL = the running system's; tests */
};

/* What the writer did since the last call of store_collect(), per process. */
struct store_outcome {
        uint64_t process_key;
        uint64_t stored;
        uint64_t failed; /* refused by the database: disk full, read-only, corrupt */
        /*
         * Told to be stored before, and not there when the database came back: the file
         * system gave up what it had not written yet.
         */
        uint64_t vanished;
};

struct store_status {
        uint64_t bytes;    /* database file + WAL */
        uint64_t launches; /* rows, as of the last commit */
        uint64_t queued;   /* records waiting */
        bool failing;      /* the last attempt to write failed; it will be repeated */
        char error[160];   /* why, as a sentence a person can act on; "" when fine */
};

/*
 * Open or create the database, migrate the schema, start the writer thread.
 * names: the daemon's string table; the main thread writes it, the writer reads
 * ids it was handed. ret_next_launch_id / ret_next_process_key: first unused ids.
 * A corrupt file is moved aside (PATH.corrupt-TIME) and a new one begun, said in
 * status.error. Returns 0 or -errno with a sentence in error[] (caller's buffer):
 * -ENOENT, -ENOTDIR, -EISDIR for an impossible path, -EMEDIUMTYPE for a file of
 * another program, -EPROTONOSUPPORT for a database of a newer one, -ENOMEM.
 * Trouble that may pass (full, read-only, locked, I/O error) is no failure: 0
 * with the sentence in error[] and status.failing set; the ids then start far
 * above those of any earlier run, and records wait. error[] is "" when all is well.
 */
int store_open(const struct store_options *options, const struct intern *names, char *error,
               size_t error_size, struct store **ret_store, uint64_t *ret_next_launch_id,
               uint64_t *ret_next_process_key);

/* Commit what is queued if the database lets us, stop the thread, close. NULL is fine. */
struct store *store_free(struct store *s);

/*
 * Main thread. A process must be put before its launches; again when something
 * about it changed (exec). Copies what it is given. 0, -ENOMEM, or -ENOBUFS when
 * thousands wait already because the database refuses: put it again later.
 */
int store_put_process(struct store *s, const struct process_info *process);

/*
 * Main thread; never blocks on the disk. Copies up to n records; returns how
 * many were taken (less than n when the queue is full: the caller counts the
 * rest as lost).
 */
size_t store_put_launches(struct store *s, const struct launch_record *records, size_t n);

/*
 * Main thread, once a second or so for every live process: its counters, kept
 * beside its records. They are totals: the latest replaces what was there.
 * Errors as above.
 */
int store_put_ledger(struct store *s, uint64_t process_key, const struct ledger *ledger);

/* store_share.context is the handle of a channel group; else the driver's number of a channel. */
#define STORE_CONTEXT_GROUP (1ULL << 32)

/* One second of a GPU's engine, or of a context on it; see correlate/slices.h. */
struct store_share {
        uint64_t start_ns, span_ns;   /* CLOCK_MONOTONIC */
        uint32_t gpu;                 /* minor number */
        uint8_t mig_gpu, mig_compute; /* 255 without MIG */
        bool of_engine;
        uint64_t process_key; /* of a context: 0 not known */
        uint64_t context;     /* of a context */
        uint32_t slices;      /* begun; of an engine: switches */
        uint64_t active_ns;
        uint64_t longest_ns;                     /* of a context */
        uint64_t switch_ns, idle_ns, unknown_ns; /* of an engine */
        uint64_t lost;
};

/* Main thread. All of them or none. Errors as above. */
int store_put_shares(struct store *s, const struct store_share *shares, size_t n);

/*
 * Main thread. A second of a process's managed memory; kept as long as launches, and
 * at most an eighth of the limit of size. 0, -ENOMEM, -ENOBUFS: tens of thousands wait.
 */
int store_put_managed(struct store *s, const struct managed_second *second);

/*
 * Main thread. Outcomes since the last call into out[max]; returns the number
 * written (call again while it equals max).
 */
size_t store_collect(struct store *s, struct store_outcome *out, size_t max);

/* Any thread. */
void store_get_status(struct store *s, struct store_status *ret_status);

/*
 * Any thread. Wait until everything put before the call is committed, or refused
 * for good; -ETIMEDOUT. At shutdown: collect outcomes and put the last ledgers
 * after it.
 */
int store_flush(struct store *s, uint64_t timeout_ns);

/* Any thread. Other limits from now on, as in store_options. */
void store_set_limits(struct store *s, uint64_t max_bytes, uint64_t max_age_s,
                      uint64_t max_sums_age_s);

/*
 * Any thread. Delete launches older than an age, in whole segments: a launch that
 * shares one with a younger one stays. sums: the sums per minute of that age as
 * well. Waits for the writer: 0, -ETIMEDOUT (what has been deleted or is under way
 * is gone, the rest stays), or -EBUSY when another thread does the same.
 */
int store_prune(struct store *s, uint64_t older_than_ns, bool sums, uint64_t timeout_ns,
                uint64_t *ret_deleted);

/* ---- reading: any thread, one reader per thread at a time ---- */

/*
 * The writer never waits for a reader, nor a reader for the writer. A reader
 * notices when the file was replaced. -ENOENT when there is no database (yet),
 * -EPROTONOSUPPORT when its schema is not ours, -EBADMSG when it is damaged.
 */
int store_reader_new(const char *path, struct store_reader **ret_reader);

struct store_reader *store_reader_free(struct store_reader *r);

/* Why the last call failed, as a sentence; "" when it did not. */
const char *store_reader_error(const struct store_reader *r);

#define STORE_ANY_GPU UINT32_MAX

struct store_filter {
        uint64_t since_ns;        /* cpu_enter_ns >= since_ns; 0 = no bound */
        uint64_t until_ns;        /* cpu_enter_ns < until_ns; 0 = no bound */
        uint32_t pid;             /* 0 = any */
        uint32_t uid;             /* only processes of this uid; UINT32_MAX = any */
        uint32_t gpu;             /* STORE_ANY_GPU = any */
        const char *kernel_glob;  /* on the kernel name: * ? [a-z] [^a-z]; NULL = any */
        uint64_t after_launch_id; /* cursor: launch_id > this */
        bool newest;              /* the last `limit` matching rows rather than the first */
        uint32_t limit;           /* rows, 1..10000; -EINVAL else, and for a glob above 1 KiB */
        bool all_boots; /* also launches of earlier boots, whose times mean other clocks */
};

/* One row; texts are valid during the callback only. */
struct store_launch {
        struct launch_record record; /* kernel_name is 0 here: see kernel */
        const char *kernel;          /* NULL when not known */
        const char *comm;            /* "" when the process is not known any more */
        const char *cgroup;          /* "" when not known */
        const char *boot_id;         /* whose clock the times are of */
        uint32_t pid;
        uint32_t uid;
        uint64_t start_ticks;
};

/*
 * Rows in ascending launch_id. The callback returns nonzero to stop (which is
 * success). 0 or -errno; -ETIME after timeout_ms (0 = no limit).
 */
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
        uint64_t summed; /* of them, those whose rows have been deleted: from sums per minute */
        struct store_spread queue;     /* gpu_start - cpu_return, below zero counted as 0 */
        struct store_spread execution; /* gpu_end - gpu_start */
};

/*
 * Per kernel over the filter (its cursor and newest are ignored), by descending
 * total execution; limit rows. Percentiles are exact (nearest rank), computed
 * in a few passes with at most some 16 MiB of memory. -E2BIG above 65536
 * kernels: narrow the filter.
 *
 * Minutes of which launches have been deleted, those before *ret_rows_from_ns (0:
 * none), are counted from sums: whole minutes, where they overlap the filter's
 * times; percentiles of such a kernel are within 1/16. Of the running boot only;
 * with all_boots no sums are used.
 */
int store_query_kernels(struct store_reader *r, const struct store_filter *filter,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_kernel_stats *k), void *data,
                        uint64_t *ret_rows_from_ns);

/*
 * Processes of the running boot that the database knows, live or not, by
 * process_key. launches: rows kept.
 */
int store_query_processes(struct store_reader *r, uint32_t timeout_ms,
                          int (*row)(void *data, const struct process_info *p, uint64_t launches),
                          void *data);

/* Seconds added up: start_ns is the first one's, span_ns their sum. */
struct store_share_sum {
        struct store_share share;
        uint64_t end_ns; /* of the last second */
        uint32_t pid;    /* these of a context whose process is known */
        uint64_t start_ticks;
        const char *comm; /* NULL: not known; valid during the callback */
};

/*
 * Shares of the running boot over the filter (its kernel and cursor are ignored):
 * each engine, then its contexts by descending active time; limit rows. Engines
 * are shown whatever the process and user asked for.
 */
int store_query_shares(struct store_reader *r, const struct store_filter *filter,
                       uint32_t timeout_ms,
                       int (*row)(void *data, const struct store_share_sum *sum), void *data);

/* Seconds of a process's managed memory added up in one step of time. */
struct store_managed_past {
        struct managed_second sum; /* its end_ns is the step's */
        uint64_t start_ns;
        uint32_t seconds; /* in which something happened */
        uint64_t cursor;  /* of this row: a filter's after_launch_id for the rows behind it */
        uint32_t pid;
        uint64_t start_ticks;
        const char *comm; /* valid during the callback */
};

/*
 * Managed memory of the running boot in steps of step_s seconds, over the filter (its
 * GPU and kernel are ignored): by time, then process; limit rows. Steps in which
 * nothing happened have none.
 */
int store_query_managed(struct store_reader *r, const struct store_filter *filter, uint32_t step_s,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_managed_past *past), void *data);

/* Ledgers as last put, of processes of the running boot, by process_key. */
int store_query_ledgers(struct store_reader *r, uint32_t timeout_ms,
                        int (*row)(void *data, uint64_t process_key, const struct ledger *ledger),
                        void *data);
