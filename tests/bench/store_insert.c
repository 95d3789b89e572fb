/* SPDX-License-Identifier: Apache-2.0 */

/*
 * How fast the writer stores launches, and what a row costs on disk; then how
 * long the queries take on that database.
 *
 *     store_insert [ROWS [DIRECTORY]]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "store/store.h"
#include "unit/test.h"
#include "util/time.h"

#define BATCH   256
#define KERNELS 200

struct names {
        struct intern *table;
        uint64_t ids[KERNELS];
};

static void make_names(struct names *n)
{
        char text[160];

        n->table = intern_new();
        for (int i = 0; i < KERNELS; i++) {
                int length = snprintf(text, sizeof(text),
                                      "void at::native::vectorized_elementwise_kernel<%d, "
                                      "at::native::FillFunctor<float>, std::array<char*, 1ul>>",
                                      i);

                n->ids[i] = intern_id(n->table, text, (size_t)length);
        }
}

/* A launch as a busy PyTorch process makes it: handles of 48 bits, everything known. */
static void make_record(struct launch_record *r, uint64_t id, const struct names *n,
                        uint64_t *random)
{
        uint64_t x = test_random(random);
        uint64_t enter = 86400 * NSEC_PER_SEC + id * 8000 + x % 1000;

        *r = (struct launch_record){
                .launch_id = id,
                .process_key = 1,
                .kernel_name = n->ids[x % KERNELS],
                .context = 0x555555a01230,
                .stream = 0x555556b04560 + (x % 4) * 0x1000,
                .cpu_enter_ns = enter,
                .cpu_return_ns = enter + 2000 + x % 3000,
                .gpu_start_ns = enter + 6000 + x % 200000,
                .gpu_end_ns = enter + 6000 + x % 200000 + 1500 + (x >> 20) % 90000,
                .gridid = id,
                .tid = 48123,
                .grid_x = 1 + x % 4096,
                .grid_y = 1,
                .grid_z = 1,
                .block_x = 128,
                .block_y = 1,
                .block_z = 1,
                .clock_error_ns = 612,
                .smid = x % 132,
                .has = 0x1ff,
                .match = MATCH_EXACT,
                .end = END_MEASURED,
        };
}

static void feed(struct store *s, const struct names *n, uint64_t rows)
{
        struct launch_record records[BATCH];
        uint64_t random = 1, id = 1;

        while (id <= rows) {
                size_t count = 0, done = 0;

                for (; count < BATCH && id <= rows; count++, id++)
                        make_record(&records[count], id, n, &random);
                while (done < count) {
                        size_t taken = store_put_launches(s, records + done, count - done);

                        if (taken == 0)
                                usleep(1000);
                        done += taken;
                }
        }
}

static int count_row(void *data, const struct store_launch *l)
{
        ++*(uint64_t *)data;
        return 0;
}

static int count_kernel(void *data, const struct store_kernel_stats *k)
{
        ++*(uint64_t *)data;
        return 0;
}

static void time_launches(struct store_reader *r, const char *what, const struct store_filter *f)
{
        uint64_t rows = 0, start = now_ns();

        CHECK_EQ(store_query_launches(r, f, 0, count_row, &rows), 0);
        printf("%-28s %8.1f ms  %" PRIu64 " rows\n", what, (double)(now_ns() - start) / 1e6, rows);
}

static void time_queries(const char *path, uint64_t rows)
{
        uint64_t rows_from_ns;
        struct store_filter f = {.uid = UINT32_MAX, .gpu = STORE_ANY_GPU, .limit = 1000};
        struct store_reader *r;
        uint64_t n = 0, start;

        CHECK_EQ(store_reader_new(path, &r), 0);
        time_launches(r, "first 1000", &f);
        f.newest = true;
        time_launches(r, "newest 1000", &f);
        f.pid = 4711;
        time_launches(r, "newest 1000 of a pid", &f);
        f.pid = 1;
        time_launches(r, "of a pid not there", &f);
        f.pid = 0;
        f.since_ns = 86400 * NSEC_PER_SEC + rows / 2 * 8000;
        f.newest = false;
        time_launches(r, "1000 from the middle on", &f);
        f.since_ns = 0;
        f.kernel_glob = "*kernel<7,*";
        time_launches(r, "1000 of one kernel of 200", &f);
        f.kernel_glob = NULL;
        start = now_ns();
        CHECK_EQ(store_query_kernels(r, &f, 0, count_kernel, &n, &rows_from_ns), 0);
        printf("%-28s %8.1f ms  %" PRIu64 " kernels\n", "kernel statistics over all",
               (double)(now_ns() - start) / 1e6, n);
        store_reader_free(r);
}

int main(int argc, char **argv)
{
        uint64_t rows = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
        const char *directory = argc > 2 ? argv[2] : "/tmp";
        struct process_info process = {.process_key = 1, .pid = 4711, .comm = "bench"};
        struct store_options options = {0};
        struct store_status status;
        char path[256], error[160], log[300];
        uint64_t id, key, start, ns;
        struct rusage usage;
        struct names names;
        struct store *s;

        snprintf(path, sizeof(path), "%s/store_insert.%d.db", directory, getpid());
        options.path = path;
        make_names(&names);
        CHECK_EQ(store_open(&options, names.table, error, sizeof(error), &s, &id, &key), 0);
        CHECK_EQ(store_put_process(s, &process), 0);
        start = now_ns();
        feed(s, &names, rows);
        CHECK_EQ(store_flush(s, 600 * NSEC_PER_SEC), 0);
        ns = now_ns() - start;
        store_free(s);
        getrusage(RUSAGE_SELF, &usage);
        printf("%" PRIu64 " rows in %.2f s: %.0f rows/s\n", rows, (double)ns / 1e9,
               (double)rows * 1e9 / (double)ns);
        CHECK_EQ(store_open(&options, names.table, error, sizeof(error), &s, &id, &key), 0);
        usleep(50000);
        store_get_status(s, &status);
        CHECK_EQ(status.launches, rows);
        printf("%.1f bytes per row; peak RSS %ld KiB; CPU %.2f s user, %.2f s system\n",
               (double)status.bytes / (double)rows, usage.ru_maxrss,
               (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6,
               (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6);
        time_queries(path, rows);
        store_free(s);
        intern_free(names.table);
        unlink(path);
        snprintf(log, sizeof(log), "%s-wal", path);
        unlink(log);
        snprintf(log, sizeof(log), "%s-shm", path);
        unlink(log);
        return 0;
}
