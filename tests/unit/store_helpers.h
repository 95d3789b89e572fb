/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the store's tests share: a directory of their own, a store in it, records to put. */
#include <ftw.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "store/store.h"
#include "unit/test.h"
#include "util/intern.h"
#include "util/ledger.h"
#include "util/time.h"

static char test_directory[64];
static char test_path[96];

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
        return remove(path);
}

static inline void remove_test_directory(void)
{
        nftw(test_directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

/* A fresh, empty directory; test_path is the database in it. */
static inline void new_test_directory(void)
{
        static bool registered;

        if (registered)
                remove_test_directory();
        else
                atexit(remove_test_directory);
        registered = true;
        strcpy(test_directory, "/tmp/gpuobs-store.XXXXXX");
        CHECK(mkdtemp(test_directory));
        snprintf(test_path, sizeof(test_path), "%s/launches.db", test_directory);
}

struct opened {
        struct store *store;
        struct intern *names;
        char error[160];
        uint64_t next_launch_id;
        uint64_t next_process_key;
};

static inline int try_open(struct opened *o, const struct store_options *options)
{
        struct store_options with_path = *options;

        *o = (struct opened){.names = intern_new()};
        CHECK(o->names);
        if (!with_path.path)
                with_path.path = test_path;
        return store_open(&with_path, o->names, o->error, sizeof(o->error), &o->store,
                          &o->next_launch_id, &o->next_process_key);
}

static inline void open_with(struct opened *o, const struct store_options *options)
{
        CHECK_EQ(try_open(o, options), 0);
        CHECK_STR(o->error, "");
}

static inline void open_plain(struct opened *o)
{
        open_with(o, &(struct store_options){.commit_interval_ms = 20});
}

static inline void close_store(struct opened *o)
{
        o->store = store_free(o->store);
        o->names = intern_free(o->names);
}

static inline void flush(struct opened *o)
{
        CHECK_EQ(store_flush(o->store, 20 * NSEC_PER_SEC), 0);
}

static inline uint64_t name_of(struct opened *o, const char *text)
{
        return intern_id(o->names, text, strlen(text));
}

static inline void put_process(struct opened *o, uint64_t key, uint32_t pid, uint32_t uid,
                               const char *comm)
{
        struct process_info p = {.process_key = key,
                                 .pid = pid,
                                 .uid = uid,
                                 .start_ticks = 1000 + pid,
                                 .started_realtime_ns = 1700000000ULL * NSEC_PER_SEC,
                                 .exe = "/usr/bin/app",
                                 .cgroup = "/user.slice"};

        snprintf(p.comm, sizeof(p.comm), "%s", comm);
        CHECK_EQ(store_put_process(o->store, &p), 0);
}

/* Everything known; the times are a fixed distance apart. */
static inline struct launch_record full_record(uint64_t id, uint64_t process_key, uint64_t kernel,
                                               uint64_t enter_ns)
{
        return (struct launch_record){
                .launch_id = id,
                .process_key = process_key,
                .kernel_name = kernel,
                .context = 0xfffffff000000001ULL,
                .stream = 0x7f0000001000ULL,
                .graph_exec = 0x1234,
                .cpu_enter_ns = enter_ns,
                .cpu_return_ns = enter_ns + 3000,
                .gpu_start_ns = enter_ns + 9000,
                .gpu_end_ns = enter_ns + 10000,
                .gridid = id,
                .queue_others_ns = 2500,
                .tid = 77,
                .gpu = 0,
                .grid_x = 10,
                .grid_y = 2,
                .grid_z = 1,
                .block_x = 128,
                .block_y = 1,
                .block_z = 4,
                .shared_bytes = 49152,
                .result = 0,
                .clock_error_ns = 480,
                .smid = 131,
                .has = LAUNCH_HAS_GPU_START | LAUNCH_HAS_GPU_END | LAUNCH_HAS_GRIDID |
                       LAUNCH_HAS_SMID | LAUNCH_HAS_CLOCK_ERROR | LAUNCH_HAS_GPU |
                       LAUNCH_HAS_CONTEXT | LAUNCH_HAS_GEOMETRY | LAUNCH_HAS_QUEUE_OTHERS |
                       (kernel ? LAUNCH_HAS_KERNEL : 0),
                .match = MATCH_EXACT,
                .end = END_MEASURED,
        };
}

static inline void put_record(struct opened *o, const struct launch_record *r)
{
        CHECK_EQ(store_put_launches(o->store, r, 1), 1);
}

/* n records with consecutive ids from `first` on, a microsecond apart; waits for room. */
static inline void put_many(struct opened *o, uint64_t first, uint64_t n, uint64_t process_key,
                            uint64_t kernel)
{
        for (uint64_t i = 0; i < n; i++) {
                struct launch_record r = full_record(first + i, process_key, kernel,
                                                     NSEC_PER_SEC + (first + i) * 1000);

                while (store_put_launches(o->store, &r, 1) == 0)
                        usleep(1000);
        }
}

/* The one process with that key's outcome, collected until now. */
static inline struct store_outcome collect(struct opened *o, uint64_t key)
{
        struct store_outcome out[16], sum = {.process_key = key};
        size_t n;

        do {
                n = store_collect(o->store, out, 16);
                for (size_t i = 0; i < n; i++) {
                        if (out[i].process_key != key)
                                continue;
                        sum.stored += out[i].stored;
                        sum.failed += out[i].failed;
                }
        } while (n == 16);
        return sum;
}

static inline struct store_filter any_launch(void)
{
        return (struct store_filter){.uid = UINT32_MAX, .gpu = STORE_ANY_GPU, .limit = 10000};
}

/* Run SQL on the test's database through a connection of its own; the first column of the first
 * row. */
static inline int64_t sql_int(const char *path, const char *sql)
{
        sqlite3_stmt *stmt;
        int64_t value = -1;
        sqlite3 *db;
        int rc;

        CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
        sqlite3_busy_timeout(db, 5000);
        rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
        if (rc != SQLITE_OK)
                fprintf(stderr, "%s: %s\n", sql, sqlite3_errmsg(db));
        CHECK_EQ(rc, SQLITE_OK);
        if (sqlite3_step(stmt) == SQLITE_ROW)
                value = sqlite3_column_int64(stmt, 0);
        CHECK_EQ(sqlite3_finalize(stmt), SQLITE_OK);
        sqlite3_close(db);
        return value;
}

static inline void sql_run(const char *path, const char *sql)
{
        char *error = NULL;
        sqlite3 *db;

        CHECK_EQ(sqlite3_open(path, &db), SQLITE_OK);
        sqlite3_busy_timeout(db, 5000);
        if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
                fprintf(stderr, "%s: %s\n", sql, error);
        CHECK(!error);
        sqlite3_close(db);
}
