/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sums per minute: they outlive the launches, kernels.stats counts with them as
 * if the launches were there, and they have limits of their own.
 */
#include <errno.h>

#include "store/histogram.h"
#include "unit/store_helpers.h"

#define MINUTE   (60 * NSEC_PER_SEC)
#define PATIENCE (20 * NSEC_PER_SEC)

/* ---- histograms ---- */

/* Every value is found again within a sixteenth. */
static void histogram_keeps_the_size_of_values(void)
{
        uint64_t seed = 5;

        for (int i = 0; i < 20000; i++) {
                uint64_t value = i < 100 ? (uint64_t)i : test_random(&seed) >> (i % 64), found;
                struct histogram h = {0};

                CHECK_EQ(histogram_add(&h, value), 0);
                CHECK(h.first < HISTOGRAM_BUCKETS);
                found = histogram_value(&h, 1);
                CHECK((found > value ? found - value : value - found) <= value / 16);
                histogram_done(&h);
        }
}

static void histograms_add_up(void)
{
        struct histogram a = {0}, b = {0};
        uint8_t bytes[HISTOGRAM_BYTES_MAX];
        size_t size;

        for (uint64_t v = 1000; v < 2000; v++)
                CHECK_EQ(histogram_add(v % 2 ? &a : &b, v * (v % 2 ? 1 : 1000)), 0);
        size = histogram_encode(&b, bytes);
        CHECK(size > 0 && size < 100);
        CHECK_EQ(histogram_merge(&a, bytes, size), 0);
        CHECK(histogram_value(&a, 1) < 1100);
        CHECK(histogram_value(&a, 500) < 2100);
        CHECK(histogram_value(&a, 501) > 900000);
        CHECK(histogram_value(&a, 1000) > 1800000);
        CHECK_EQ(histogram_value(&a, 1001), 0);
        CHECK_EQ(histogram_merge(&a, "\xff\xff\xff", 3), -EBADMSG);
        CHECK_EQ(histogram_merge(&a, bytes, size - 1), -EBADMSG);
        CHECK_EQ(histogram_value(&a, 1001), 0); /* nothing was added */
        histogram_done(&a);
        histogram_done(&b);
}

/* ---- statistics ---- */

static struct store_kernel_stats stats[8];
static char stats_names[8][32];
static size_t stats_count;

static int see_stats(void *data, const struct store_kernel_stats *k)
{
        CHECK(stats_count < 8);
        snprintf(stats_names[stats_count], sizeof(stats_names[0]), "%s",
                 k->kernel ? k->kernel : "(null)");
        stats[stats_count++] = *k;
        return 0;
}

/* Returns rows_from_ns. */
static uint64_t query(const struct store_filter *f)
{
        struct store_reader *r;
        uint64_t rows_from_ns;

        stats_count = 0;
        CHECK_EQ(store_reader_new(test_path, &r), 0);
        CHECK_EQ(store_query_kernels(r, f, 10000, see_stats, NULL, &rows_from_ns), 0);
        store_reader_free(r);
        return rows_from_ns;
}

static void put_one(struct opened *o, uint64_t id, uint64_t process, uint64_t kernel,
                    uint64_t enter_ns, uint64_t execution_ns)
{
        struct launch_record r = full_record(id, process, kernel, enter_ns);

        r.gpu_end_ns = r.gpu_start_ns + execution_ns;
        while (store_put_launches(o->store, &r, 1) == 0)
                usleep(1000);
}

static uint64_t prune(struct opened *o, uint64_t older_than_ns, bool sums)
{
        uint64_t deleted;

        CHECK_EQ(store_prune(o->store, older_than_ns, sums, PATIENCE, &deleted), 0);
        return deleted;
}

/* Within a part of it. */
static void check_near(uint64_t value, uint64_t expected, uint64_t part)
{
        uint64_t distance = value > expected ? value - expected : expected - value;

        if (distance > expected / part) {
                fprintf(stderr, "%" PRIu64 " is not near %" PRIu64 "\n", value, expected);
                exit(1);
        }
}

static void check_same(const struct store_spread *sum, const struct store_spread *rows)
{
        CHECK_EQ(sum->count, rows->count);
        CHECK_EQ(sum->total_ns, rows->total_ns);
        CHECK_EQ(sum->min_ns, rows->min_ns);
        CHECK_EQ(sum->avg_ns, rows->avg_ns);
        CHECK_EQ(sum->max_ns, rows->max_ns);
        check_near(sum->p50_ns, rows->p50_ns, 15);
        check_near(sum->p95_ns, rows->p95_ns, 15);
        check_near(sum->p99_ns, rows->p99_ns, 15);
}

/* Three kernels of two processes over ten minutes that lie some time back. */
static uint64_t fill(struct opened *o, uint64_t first_id, uint64_t n)
{
        uint64_t begin = now_ns() / MINUTE * MINUTE - 10 * MINUTE, seed = 3;
        uint64_t kernels[] = {name_of(o, "gemm"), name_of(o, "softmax"), 0};

        for (uint64_t i = 0; i < n; i++)
                put_one(o, first_id + i, 1 + i % 2, kernels[i % 3], begin + i * (9 * MINUTE / n),
                        1000 + test_random(&seed) % 100000);
        flush(o);
        return begin;
}

static void open_two(struct opened *o)
{
        if (now_ns() < 15 * MINUTE)
                test_skip("the machine has been up for less than 15 minutes");
        new_test_directory();
        open_plain(o);
        put_process(o, 1, 11, 100, "one");
        put_process(o, 2, 22, 200, "two");
}

static void statistics_outlive_launches(void)
{
        struct store_filter f = {.uid = UINT32_MAX, .gpu = STORE_ANY_GPU, .limit = 100};
        struct store_kernel_stats before[8];
        struct opened o;

        open_two(&o);
        fill(&o, 1, 30000);
        CHECK_EQ(query(&f), 0);
        CHECK_EQ(stats_count, 3);
        memcpy(before, stats, sizeof(before));
        CHECK_EQ(prune(&o, 0, false), 30000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 0);
        CHECK(query(&f) > 0);
        CHECK_EQ(stats_count, 3);
        for (int i = 0; i < 3; i++) {
                CHECK_EQ(stats[i].launches, 10000);
                CHECK_EQ(stats[i].summed, 10000);
                check_same(&stats[i].execution, &before[i].execution);
                check_same(&stats[i].queue, &before[i].queue);
        }
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM minutes WHERE kernel = 'gemm'"
                                    " AND comm = 'one'"),
                 5000);
        close_store(&o);
}

static void filters_hold_for_sums(void)
{
        struct store_filter f = {.uid = UINT32_MAX, .gpu = STORE_ANY_GPU, .limit = 100};
        struct opened o;
        uint64_t begin;

        open_two(&o);
        begin = fill(&o, 1, 18000); /* 2000 a minute */
        CHECK_EQ(prune(&o, 0, false), 18000);
        f.pid = 22;
        query(&f);
        CHECK_EQ(stats[0].launches + stats[1].launches + stats[2].launches, 9000);
        f.pid = 0;
        f.uid = 100;
        query(&f);
        CHECK_EQ(stats[0].launches + stats[1].launches + stats[2].launches, 9000);
        f.uid = UINT32_MAX;
        f.kernel_glob = "soft*";
        query(&f);
        CHECK_EQ(stats_count, 1);
        CHECK_STR(stats_names[0], "softmax");
        CHECK_EQ(stats[0].launches, 6000);
        f.gpu = 3;
        query(&f);
        CHECK_EQ(stats_count, 0);
        f.gpu = 0;
        /* Minutes count whole, also those the times cut. */
        f.since_ns = begin + 2 * MINUTE + 1;
        f.until_ns = begin + 3 * MINUTE + 1;
        query(&f);
        check_near(stats[0].launches, 2 * 2000 / 3, 100);
        close_store(&o);
}

/* Where part of a minute's launches is deleted, none is counted twice and none left out. */
static void sums_and_rows_join(void)
{
        struct store_filter f = {.uid = UINT32_MAX, .gpu = STORE_ANY_GPU, .limit = 100};
        uint64_t begin, left, kernel;
        struct opened o;

        open_two(&o);
        begin = fill(&o, 1, 30000);
        CHECK(prune(&o, now_ns() - begin - 6 * MINUTE, false) > 0); /* in whole segments */
        kernel = name_of(&o, "gemm");
        put_one(&o, 30001, 1, kernel, now_ns(), 5000);
        put_one(&o, 30002, 1, kernel, begin + 1000, 5000); /* late: of a minute without rows */
        flush(&o);
        left = (uint64_t)sql_int(test_path, "SELECT count(*) FROM launch");
        CHECK(left > 2 && left < 30000);
        CHECK(query(&f) > begin);
        CHECK_EQ(stats_count, 3);
        CHECK_EQ(stats[0].launches + stats[1].launches + stats[2].launches, 30002);
        CHECK(stats[0].summed > 0 && stats[0].summed < stats[0].launches);
        for (int i = 0; i < 3; i++)
                check_near(stats[i].execution.p50_ns, 51000, 10);
        close_store(&o);
}

/* SQLite waits for a second. */
static void wait_until_failing(struct store *s)
{
        struct store_status status = {.failing = false};

        for (int i = 0; i < 1200 && !status.failing; i++) {
                usleep(50000);
                store_get_status(s, &status);
        }
        CHECK(status.failing);
}

/* A restart in the middle of a minute, and a write that failed, add to what is there. */
static void sums_go_on(void)
{
        struct store_filter f = {.uid = UINT32_MAX, .gpu = STORE_ANY_GPU, .limit = 100};
        uint64_t at, kernel;
        struct opened o;
        sqlite3 *other;

        open_two(&o);
        at = now_ns() - 5 * MINUTE;
        for (uint64_t run = 0; run < 3; run++) {
                kernel = name_of(&o, "gemm");
                for (uint64_t i = 0; i < 100; i++)
                        put_one(&o, run * 100 + i + 1, 1, kernel, at, 1000);
                close_store(&o);
                open_plain(&o);
        }
        CHECK_EQ(sqlite3_open(test_path, &other), SQLITE_OK);
        CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        kernel = name_of(&o, "gemm");
        put_one(&o, 301, 1, kernel, at, 1000);
        wait_until_failing(o.store);
        CHECK_EQ(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(other);
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT launches FROM minute"), 301);
        CHECK_EQ(sql_int(test_path, "SELECT execution_count FROM minute"), 301);
        CHECK_EQ(sql_int(test_path, "SELECT rows FROM period"), 1);
        CHECK_EQ(prune(&o, 0, false), 301);
        query(&f);
        CHECK_EQ(stats[0].execution.total_ns, 301 * 1000);
        CHECK_EQ(stats[0].execution.p99_ns, 1000); /* never outside of what there was */
        close_store(&o);
}

/* ---- limits ---- */

static void wait_for_count(const char *sql, int64_t expected)
{
        for (int i = 0; i < 1200 && sql_int(test_path, sql) != expected; i++)
                usleep(50000);
        CHECK_EQ(sql_int(test_path, sql), expected);
}

static void old_sums_go(void)
{
        struct opened o;

        open_two(&o);
        fill(&o, 1, 9000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM period"), 9);
        /* Those of the minutes that ended more than five minutes ago. */
        store_set_limits(o.store, 0, 0, 300);
        for (int i = 0; i < 1200 && sql_int(test_path, "SELECT count(*) FROM period") > 5; i++)
                usleep(50000);
        CHECK(sql_int(test_path, "SELECT count(*) FROM period") <= 5);
        CHECK(sql_int(test_path, "SELECT count(*) FROM period") >= 3);
        CHECK_EQ(sql_int(test_path, "SELECT (SELECT count(DISTINCT period) FROM minute) ="
                                    " (SELECT count(*) FROM period)"),
                 1);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 9000);
        CHECK_EQ(prune(&o, 0, true), 9000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM minute"), 0);
        /* What is deleted in the middle of a minute begins anew. */
        put_one(&o, 9001, 1, name_of(&o, "gemm"), now_ns(), 1000);
        flush(&o);
        CHECK_EQ(prune(&o, 0, true), 1);
        put_one(&o, 9002, 1, name_of(&o, "gemm"), now_ns(), 1000);
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM minute"), 1);
        close_store(&o);
}

/* Names and processes stay while there are sums of them, and go with the last. */
static void names_live_as_long_as_sums(void)
{
        struct opened o;

        open_two(&o);
        fill(&o, 1, 900);
        CHECK_EQ(prune(&o, 0, false), 900);
        store_set_limits(o.store, 0, 3600, 3600); /* lets the sweep run */
        usleep(2500000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name"), 2);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM process"), 2);
        CHECK_EQ(prune(&o, 0, true), 0);
        wait_for_count("SELECT count(*) FROM name", 0);
        close_store(&o);
}

/* A process with ever new kernels must not fill the disk with sums, nor push all launches out. */
static void sums_are_bounded_by_size(void)
{
        struct store_options options = {.max_bytes = 8ULL << 20, .commit_interval_ms = 20};
        uint64_t at = now_ns() - 20 * MINUTE;
        struct opened o;
        char name[64];

        if (now_ns() < 25 * MINUTE)
                test_skip("the machine has been up for less than 25 minutes");
        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        for (uint64_t i = 1; i <= 60000; i++) {
                snprintf(name, sizeof(name), "kernel_%" PRIu64, i);
                put_one(&o, i, 1, name_of(&o, name), at + i * (19 * MINUTE / 60000), 1000);
        }
        flush(&o);
        for (int i = 0; i < 1200 && sql_int(test_path, "SELECT count(*) FROM minute") >= 15000; i++)
                usleep(50000);
        CHECK(sql_int(test_path, "SELECT count(*) FROM minute") < 15000);
        CHECK(sql_int(test_path, "SELECT count(*) FROM minute") > 1000);
        CHECK(sql_int(test_path, "SELECT count(*) FROM launch") > 10000);
        CHECK_EQ(sql_int(test_path, "SELECT (SELECT sum(rows) FROM period) ="
                                    " (SELECT count(*) FROM minute)"),
                 1);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
}

int main(void)
{
        TEST(histogram_keeps_the_size_of_values);
        TEST(histograms_add_up);
        TEST(sums_are_bounded_by_size);
        TEST(statistics_outlive_launches);
        TEST(filters_hold_for_sums);
        TEST(sums_and_rows_join);
        TEST(sums_go_on);
        TEST(old_sums_go);
        TEST(names_live_as_long_as_sums);
        return 0;
}
