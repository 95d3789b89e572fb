/* SPDX-License-Identifier: Apache-2.0 */

/* What goes in comes out: rows, filters, paging, statistics, processes, ledgers. */
#include <errno.h>

#include "unit/store_helpers.h"

#define ROWS_MAX 20000

struct seen {
        size_t count;
        uint64_t ids[ROWS_MAX];
        struct store_launch last;
        char kernel[4096], comm[64], cgroup[64], boot_id[64];
        bool kernel_known;
        size_t stop_after;
};

static struct seen seen;

static int see(void *data, const struct store_launch *l)
{
        CHECK(seen.count < ROWS_MAX);
        CHECK(seen.count == 0 || l->record.launch_id > seen.ids[seen.count - 1]);
        seen.ids[seen.count++] = l->record.launch_id;
        seen.last = *l;
        seen.kernel_known = l->kernel != NULL;
        snprintf(seen.kernel, sizeof(seen.kernel), "%s", l->kernel ? l->kernel : "");
        snprintf(seen.comm, sizeof(seen.comm), "%s", l->comm);
        snprintf(seen.cgroup, sizeof(seen.cgroup), "%s", l->cgroup);
        snprintf(seen.boot_id, sizeof(seen.boot_id), "%s", l->boot_id);
        return seen.stop_after && seen.count >= seen.stop_after;
}

static struct store_reader *new_reader(void)
{
        struct store_reader *r;

        CHECK_EQ(store_reader_new(test_path, &r), 0);
        return r;
}

static size_t query(struct store_filter f)
{
        struct store_reader *r = new_reader();

        seen = (struct seen){.stop_after = seen.stop_after};
        CHECK_EQ(store_query_launches(r, &f, 10000, see, NULL), 0);
        CHECK_STR(store_reader_error(r), "");
        store_reader_free(r);
        return seen.count;
}

/* ---- rows ---- */

static void check_same(const struct launch_record *a, const struct launch_record *b)
{
        struct launch_record x = *a, y = *b;

        x.kernel_name = y.kernel_name = 0;
        /* Up to the last field: what follows is padding. */
        CHECK(memcmp(&x, &y, offsetof(struct launch_record, end) + sizeof(x.end)) == 0);
}

static void full_row_comes_back(void)
{
        struct launch_record r;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        CHECK_EQ(o.next_launch_id, 1);
        CHECK_EQ(o.next_process_key, 1);
        put_process(&o, 1, 4711, 1000, "app");
        r = full_record(1, 1, name_of(&o, "add"), 5000000000ULL);
        put_record(&o, &r);
        flush(&o);
        CHECK_EQ(query(any_launch()), 1);
        check_same(&seen.last.record, &r);
        CHECK_STR(seen.kernel, "add");
        CHECK_STR(seen.comm, "app");
        CHECK_STR(seen.cgroup, "/user.slice");
        CHECK_EQ(strlen(seen.boot_id), 36);
        CHECK_EQ(seen.last.pid, 4711);
        CHECK_EQ(seen.last.uid, 1000);
        CHECK_EQ(seen.last.start_ticks, 1000 + 4711);
        CHECK_EQ(collect(&o, 1).stored, 1);
        CHECK_EQ(collect(&o, 1).stored, 0);
        close_store(&o);
}

static void unknown_is_null_and_never_zero(void)
{
        static const uint16_t bits[] = {
                LAUNCH_HAS_GPU_START, LAUNCH_HAS_GPU_END,     LAUNCH_HAS_GRIDID,
                LAUNCH_HAS_SMID,      LAUNCH_HAS_CLOCK_ERROR, LAUNCH_HAS_GPU,
                LAUNCH_HAS_CONTEXT,   LAUNCH_HAS_GEOMETRY,    LAUNCH_HAS_QUEUE_OTHERS};
        static const char *const columns[] = {"gpu_start", "gpu_end",        "gridid",
                                              "smid",      "clock_error_ns", "gpu",
                                              "context",   "grid_x",         "queue_others"};
        struct opened o;
        char sql[160];

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
                struct launch_record r = {.launch_id = i + 1, .process_key = 1};

                /* Known, with the value 0, beside everything else unknown. */
                r.has = bits[i];
                r.cpu_enter_ns = r.cpu_return_ns = 7;
                if (r.has == LAUNCH_HAS_GPU_START)
                        r.gpu_start_ns = 7;
                if (r.has == LAUNCH_HAS_GPU_END)
                        r.gpu_end_ns = 7;
                put_record(&o, &r);
                flush(&o);
                CHECK_EQ(query(any_launch()), i + 1);
                check_same(&seen.last.record, &r);
                CHECK(!seen.kernel_known);
                snprintf(sql, sizeof(sql), "SELECT count(*) FROM launch WHERE %s IS NOT NULL",
                         columns[i]);
                CHECK_EQ(sql_int(test_path, sql), 1);
        }
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE kernel IS NULL"), 9);
        close_store(&o);
}

static void extreme_values_come_back(void)
{
        struct launch_record r;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, UINT32_MAX, UINT32_MAX - 1, "0123456789abcdef");
        memset(&r, 0xff, sizeof(r));
        r.launch_id = 1;
        r.process_key = 1;
        r.kernel_name = name_of(&o, "k");
        r.has = 0x1ff;
        put_record(&o, &r);
        r.launch_id = 2;
        r.cpu_enter_ns = UINT64_MAX; /* the others lie before it */
        r.cpu_return_ns = 0;
        r.gpu_start_ns = 1;
        r.gpu_end_ns = 0;
        put_record(&o, &r);
        flush(&o);
        CHECK_EQ(query(any_launch()), 2);
        CHECK_EQ(seen.last.record.cpu_enter_ns, UINT64_MAX);
        CHECK_EQ(seen.last.record.cpu_return_ns, 0);
        CHECK_EQ(seen.last.record.gpu_start_ns, 1);
        CHECK_EQ(seen.last.record.stream, UINT64_MAX);
        CHECK_EQ(seen.last.record.grid_x, UINT32_MAX);
        CHECK_EQ(seen.last.record.smid, UINT16_MAX);
        CHECK_EQ(seen.last.record.match, UINT8_MAX);
        CHECK_EQ(seen.last.pid, UINT32_MAX);
        CHECK_STR(seen.comm, "0123456789abcde");
        close_store(&o);
}

static void names_of_all_kinds(void)
{
        static char big[2049];
        const char *const names[] = {"it's; DROP TABLE launch; --\"`",
                                     "k\xc3\xa9rnel_\xe6\xa0\xb8_\xf0\x9f\x9a\x80",
                                     "bad\xff\xfeutf8",
                                     "void f<int, (char)37>(T*[])",
                                     "%s%n?1:name",
                                     big};
        size_t n = sizeof(names) / sizeof(names[0]);
        struct opened o;

        memset(big, 'x', sizeof(big) - 1);
        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "a'b\"c\xc3\xa9");
        for (size_t i = 0; i < n; i++) {
                struct launch_record r = full_record(i + 1, 1, name_of(&o, names[i]), 1000 + i);

                put_record(&o, &r);
                flush(&o);
                CHECK_EQ(query(any_launch()), i + 1);
                CHECK_STR(seen.kernel, names[i]);
                CHECK_STR(seen.comm, "a'b\"c\xc3\xa9");
        }
        /* The same names in another run get the same rows. */
        close_store(&o);
        open_plain(&o);
        CHECK_EQ(o.next_launch_id, n + 1);
        CHECK_EQ(o.next_process_key, 2);
        for (size_t i = n; i-- > 0;) {
                struct launch_record r = full_record(2 * n - i, 1, name_of(&o, names[i]), 1000 + i);

                put_record(&o, &r);
        }
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name"), n);
        CHECK_EQ(query(any_launch()), 2 * n);
        CHECK_STR(seen.kernel, names[0]);
        close_store(&o);
}

static void rows_of_unknown_processes_are_kept(void)
{
        struct launch_record r = full_record(1, 99, 0, 1000);
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_record(&o, &r);
        flush(&o);
        CHECK_EQ(query(any_launch()), 1);
        CHECK_STR(seen.comm, "");
        CHECK_EQ(collect(&o, 99).stored, 1);
        close_store(&o);
}

static void ids_that_do_not_grow_are_refused(void)
{
        struct launch_record r = full_record(10, 1, 0, 1000);
        struct store_outcome outcome;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_record(&o, &r);
        put_record(&o, &r);
        r.launch_id = 9;
        put_record(&o, &r);
        r.launch_id = UINT64_MAX;
        put_record(&o, &r);
        r.launch_id = 11;
        put_record(&o, &r);
        flush(&o);
        outcome = collect(&o, 1);
        CHECK_EQ(outcome.stored, 2);
        CHECK_EQ(outcome.failed, 3);
        CHECK_EQ(query(any_launch()), 2);
        close_store(&o);
}

/* ---- filters ---- */

/* 3 processes of 2 users, 4 kernels, 2 GPUs, 30000 rows: several segments. */
#define FILTER_ROWS 30000

static const char *const filter_kernels[4] = {"gemm<float>", "gemm<half>", "softmax", "[odd]*name"};

static void make_filter_row(struct opened *o, uint64_t id, struct launch_record *r)
{
        *r = full_record(id, 1 + id % 3, name_of(o, filter_kernels[id % 4]), id * 1000);
        r->gpu = id % 2;
        if (id % 5 == 0)
                r->has &= (uint16_t)~LAUNCH_HAS_GPU;
}

static void fill_for_filters(struct opened *o)
{
        struct launch_record r;

        new_test_directory();
        open_plain(o);
        put_process(o, 1, 101, 1000, "one");
        put_process(o, 2, 102, 1000, "two");
        put_process(o, 3, 103, 2000, "three");
        for (uint64_t id = 1; id <= FILTER_ROWS; id++) {
                make_filter_row(o, id, &r);
                put_record(o, &r);
        }
        flush(o);
        CHECK(sql_int(test_path, "SELECT count(*) FROM segment") >= 2);
}

static bool matches(const struct store_filter *f, const char *prefix, uint64_t id)
{
        uint64_t key = 1 + id % 3;

        return (!f->since_ns || id * 1000 >= f->since_ns) &&
               (!f->until_ns || id * 1000 < f->until_ns) && (!f->pid || f->pid == 100 + key) &&
               (f->uid == UINT32_MAX || f->uid == (key == 3 ? 2000 : 1000)) &&
               (f->gpu == STORE_ANY_GPU || (id % 5 != 0 && f->gpu == id % 2)) &&
               (!prefix || strncmp(filter_kernels[id % 4], prefix, strlen(prefix)) == 0) &&
               id > f->after_launch_id;
}

/* The same by brute force, paged through to the end. */
static void check_filter(struct store_filter f, const char *prefix)
{
        uint64_t next = f.after_launch_id + 1, total = 0, pages = 0;

        f.limit = 10000;
        while (query(f) > 0) {
                for (size_t i = 0; i < seen.count; i++, next++) {
                        while (next < seen.ids[i])
                                CHECK(!matches(&f, prefix, next++));
                        CHECK(matches(&f, prefix, next));
                }
                total += seen.count;
                f.after_launch_id = seen.ids[seen.count - 1];
                CHECK(++pages < 10);
        }
        for (; next <= FILTER_ROWS; next++)
                CHECK(!matches(&f, prefix, next));
        printf("   %" PRIu64 " rows in %" PRIu64 " pages\n", total, pages);
}

static void filters_select_what_they_say(void)
{
        struct store_filter f = any_launch();
        struct opened o;

        fill_for_filters(&o);
        check_filter(f, NULL);
        f.since_ns = 8000000;
        f.until_ns = 20000000;
        check_filter(f, NULL);
        f.pid = 102;
        check_filter(f, NULL);
        f.gpu = 1;
        check_filter(f, NULL);
        f.kernel_glob = "gemm<*";
        check_filter(f, "gemm<");
        f = any_launch();
        f.uid = 1000;
        check_filter(f, NULL);
        f.uid = 2000;
        check_filter(f, NULL);
        f.pid = 101; /* not that user's */
        CHECK_EQ(query(f), 0);
        f = any_launch();
        f.uid = 0;
        CHECK_EQ(query(f), 0);
        f = any_launch();
        f.gpu = 0;
        check_filter(f, NULL);
        f = any_launch();
        f.kernel_glob = "[[]odd]*";
        check_filter(f, "[odd]");
        f.kernel_glob = "SOFTMAX"; /* GLOB minds the case */
        CHECK_EQ(query(f), 0);
        f.kernel_glob = "";
        CHECK_EQ(query(f), 0);
        f = any_launch();
        f.after_launch_id = 29990;
        check_filter(f, NULL);
        f.after_launch_id = UINT64_MAX;
        CHECK_EQ(query(f), 0);
        f = any_launch();
        f.since_ns = UINT64_MAX;
        CHECK_EQ(query(f), 0);
        f.since_ns = 10;
        f.until_ns = 5;
        CHECK_EQ(query(f), 0);
        close_store(&o);
}

static void newest_are_the_last(void)
{
        struct store_filter f = any_launch();
        struct opened o;

        fill_for_filters(&o);
        f.newest = true;
        f.limit = 5;
        CHECK_EQ(query(f), 5);
        CHECK_EQ(seen.ids[0], FILTER_ROWS - 4);
        CHECK_EQ(seen.ids[4], FILTER_ROWS);
        f.pid = 101; /* ids divisible by 3 */
        CHECK_EQ(query(f), 5);
        CHECK_EQ(seen.ids[0], FILTER_ROWS - 12);
        CHECK_EQ(seen.ids[4], FILTER_ROWS);
        f.until_ns = 9001 * 1000;
        CHECK_EQ(query(f), 5);
        CHECK_EQ(seen.ids[4], 9000);
        f.after_launch_id = 8995;
        CHECK_EQ(query(f), 2);
        CHECK_EQ(seen.ids[0], 8997);
        f.after_launch_id = 9000;
        CHECK_EQ(query(f), 0);
        close_store(&o);
}

static void limits_and_stopping(void)
{
        uint64_t rows_from_ns;
        static char pattern[1026];
        struct store_filter f = any_launch();
        struct store_reader *r;
        struct opened o;

        fill_for_filters(&o);
        r = new_reader();
        f.limit = 0;
        CHECK_EQ(store_query_launches(r, &f, 0, see, NULL), -EINVAL);
        CHECK(store_reader_error(r)[0]);
        f.limit = 10001;
        CHECK_EQ(store_query_launches(r, &f, 0, see, NULL), -EINVAL);
        f.limit = 1;
        memset(pattern, '*', sizeof(pattern) - 1);
        f.kernel_glob = pattern;
        CHECK_EQ(store_query_launches(r, &f, 0, see, NULL), -EINVAL);
        CHECK(strstr(store_reader_error(r), "pattern"));
        CHECK_EQ(store_query_kernels(r, &f, 0, NULL, NULL, &rows_from_ns), -EINVAL);
        f.kernel_glob = NULL;
        store_reader_free(r);
        f.limit = 7;
        CHECK_EQ(query(f), 7);
        seen.stop_after = 3;
        CHECK_EQ(query(f), 3);
        seen.stop_after = 0;
        CHECK_EQ(query(f), 7);
        close_store(&o);
}

/* ---- statistics ---- */

static struct store_kernel_stats stats[8];
static char stats_names[8][64];
static size_t stats_count;

static int see_stats(void *data, const struct store_kernel_stats *k)
{
        CHECK(stats_count < 8);
        snprintf(stats_names[stats_count], 64, "%s", k->kernel ? k->kernel : "(null)");
        stats[stats_count++] = *k;
        return 0;
}

static void query_stats(struct store_filter f)
{
        struct store_reader *r = new_reader();
        uint64_t rows_from_ns;

        stats_count = 0;
        CHECK_EQ(store_query_kernels(r, &f, 10000, see_stats, NULL, &rows_from_ns), 0);
        CHECK_EQ(rows_from_ns, 0);
        store_reader_free(r);
}

static void statistics_of_known_distributions(void)
{
        struct store_filter f = any_launch();
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        /* Kernel a: execution 1..1000 us in a scrambled order; queue 0 for every tenth (early). */
        for (uint64_t i = 0; i < 1000; i++) {
                struct launch_record r = full_record(i + 1, 1, name_of(&o, "a"), NSEC_PER_SEC + i);

                r.gpu_start_ns = r.cpu_return_ns + 500;
                if (i % 10 == 0)
                        r.gpu_start_ns = r.cpu_return_ns - 100;
                r.gpu_end_ns = r.gpu_start_ns + (i * 617 % 1000 + 1) * 1000;
                put_record(&o, &r);
        }
        /* Kernel b: only a start; a kernel without name: nothing known. */
        for (uint64_t i = 1000; i < 1003; i++) {
                struct launch_record r = full_record(i + 1, 1, i < 1002 ? name_of(&o, "b") : 0, 5);

                r.has &= (uint16_t)~LAUNCH_HAS_GPU_END;
                if (i == 1002)
                        r.has &= (uint16_t)~LAUNCH_HAS_GPU_START;
                put_record(&o, &r);
        }
        flush(&o);
        query_stats(f);
        CHECK_EQ(stats_count, 3);
        CHECK_STR(stats_names[0], "a");
        CHECK_EQ(stats[0].launches, 1000);
        CHECK_EQ(stats[0].execution.count, 1000);
        CHECK_EQ(stats[0].execution.total_ns, 500500ULL * 1000);
        CHECK_EQ(stats[0].execution.min_ns, 1000);
        CHECK_EQ(stats[0].execution.max_ns, 1000000);
        CHECK_EQ(stats[0].execution.avg_ns, 500500);
        CHECK_EQ(stats[0].execution.p50_ns, 500000);
        CHECK_EQ(stats[0].execution.p95_ns, 950000);
        CHECK_EQ(stats[0].execution.p99_ns, 990000);
        CHECK_EQ(stats[0].queue.min_ns, 0);
        CHECK_EQ(stats[0].queue.p50_ns, 500);
        CHECK_EQ(stats[0].queue.total_ns, 900 * 500);
        CHECK_STR(stats_names[1], "b");
        CHECK_EQ(stats[1].queue.count, 2);
        CHECK_EQ(stats[1].execution.count, 0);
        CHECK_EQ(stats[1].execution.p99_ns, 0);
        CHECK_STR(stats_names[2], "(null)");
        CHECK_EQ(stats[2].launches, 1);
        CHECK_EQ(stats[2].queue.count, 0);

        f.limit = 1;
        f.kernel_glob = "[ab]";
        f.after_launch_id = 100000; /* ignored */
        f.newest = true;
        query_stats(f);
        CHECK_EQ(stats_count, 1);
        CHECK_EQ(stats[0].launches, 1000);
        f.kernel_glob = "nothing";
        query_stats(f);
        CHECK_EQ(stats_count, 0);
        close_store(&o);
}

static int count_row(void *data, const struct store_launch *l)
{
        return 0;
}

static int slow_row(void *data, const struct store_launch *l)
{
        usleep(100);
        return 0;
}

static void long_queries_time_out(void)
{
        struct store_filter f = any_launch();
        struct store_reader *r;
        uint64_t start, rows_from_ns;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 400000, 1, name_of(&o, "k"));
        flush(&o);
        r = new_reader();
        start = now_ns();
        CHECK_EQ(store_query_kernels(r, &f, 1, see_stats, NULL, &rows_from_ns), -ETIME);
        CHECK(now_ns() - start < 10 * NSEC_PER_SEC);
        CHECK(strstr(store_reader_error(r), "too long"));
        CHECK_EQ(store_query_launches(r, &f, 5, slow_row, NULL), -ETIME);
        /* and is usable after that */
        f.limit = 10;
        CHECK_EQ(store_query_launches(r, &f, 10000, count_row, NULL), 0);
        CHECK_STR(store_reader_error(r), "");
        store_reader_free(r);
        close_store(&o);
}

/* ---- processes, ledgers, boots ---- */

struct seen_process {
        struct process_info info;
        char exe[64], cgroup[64];
        uint64_t launches;
};
static struct seen_process processes[8];
static size_t process_count;

static int see_process(void *data, const struct process_info *p, uint64_t launches)
{
        struct seen_process *s = &processes[process_count++];

        CHECK(process_count <= 8);
        s->info = *p;
        s->launches = launches;
        snprintf(s->exe, sizeof(s->exe), "%s", p->exe);
        snprintf(s->cgroup, sizeof(s->cgroup), "%s", p->cgroup);
        return 0;
}

static void query_processes(void)
{
        struct store_reader *r = new_reader();

        process_count = 0;
        CHECK_EQ(store_query_processes(r, 1000, see_process, NULL), 0);
        store_reader_free(r);
}

static void processes_with_their_counts(void)
{
        struct process_info bare = {.process_key = 5, .pid = 8, .comm = "bare"};
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 101, 1000, "one");
        put_many(&o, 1, 10000, 1, 0);
        CHECK_EQ(store_put_process(o.store, &bare), 0); /* exe and cgroup NULL */
        put_many(&o, 10001, 1, 5, 0);
        flush(&o);
        put_process(&o, 1, 101, 1000, "renamed");
        put_many(&o, 10002, 2345, 1, 0);
        flush(&o);
        query_processes();
        CHECK_EQ(process_count, 2);
        CHECK_EQ(processes[0].info.process_key, 1);
        CHECK_STR(processes[0].info.comm, "renamed");
        CHECK_EQ(processes[0].info.uid, 1000);
        CHECK_EQ(processes[0].info.started_realtime_ns, 1700000000ULL * NSEC_PER_SEC);
        CHECK_STR(processes[0].exe, "/usr/bin/app");
        CHECK_EQ(processes[0].launches, 12345);
        CHECK_EQ(processes[1].launches, 1);
        CHECK_STR(processes[1].exe, "");
        CHECK_STR(processes[1].cgroup, "");
        close_store(&o);
}

static struct ledger ledgers[8];
static size_t ledger_count;

static int see_ledger(void *data, uint64_t process_key, const struct ledger *ledger)
{
        CHECK(process_key < 8);
        ledgers[process_key] = *ledger;
        ledger_count++;
        return 0;
}

static void query_ledgers(void)
{
        struct store_reader *r = new_reader();

        memset(ledgers, 0, sizeof(ledgers));
        ledger_count = 0;
        CHECK_EQ(store_query_ledgers(r, 1000, see_ledger, NULL), 0);
        store_reader_free(r);
}

static void ledgers_replace_and_never_add(void)
{
        struct ledger l = {.produced = 10, .stored = 7};
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "one");
        put_process(&o, 2, 2, 0, "two");
        l.lost[LOSS_cpu_ring_full] = 3;
        CHECK_EQ(store_put_ledger(o.store, 1, &l), 0);
        CHECK_EQ(store_put_ledger(o.store, 2, &l), 0);
        flush(&o);
        l.produced = 20;
        l.stored = 20;
        l.lost[LOSS_cpu_ring_full] = 0;
        l.lost[LOSS_subscriber_slow] = UINT64_MAX;
        CHECK_EQ(store_put_ledger(o.store, 1, &l), 0);
        flush(&o);
        for (int reopened = 0; reopened < 2; reopened++) {
                query_ledgers();
                CHECK_EQ(ledger_count, 2);
                CHECK(memcmp(&ledgers[1], &l, sizeof(l)) == 0);
                CHECK_EQ(ledgers[2].produced, 10);
                CHECK_EQ(ledgers[2].lost[LOSS_cpu_ring_full], 3);
                close_store(&o);
                open_plain(&o);
                CHECK_EQ(store_put_ledger(o.store, 1, &l), 0);
                flush(&o);
        }
        close_store(&o);
}

static void other_boots_stay_apart(void)
{
        struct store_options before = {.boot_id = "00000000-1111-2222-3333-444444444444"};
        struct store_filter f = any_launch();
        struct opened o;

        new_test_directory();
        open_with(&o, &before);
        put_process(&o, 1, 11, 0, "old");
        put_many(&o, 1, 10, 1, name_of(&o, "k"));
        close_store(&o);
        open_plain(&o);
        put_process(&o, 2, 22, 0, "new");
        put_many(&o, 11, 5, 2, name_of(&o, "k"));
        flush(&o);
        CHECK_EQ(query(f), 5);
        query_processes();
        CHECK_EQ(process_count, 1);
        CHECK_STR(processes[0].info.comm, "new");
        query_stats(f);
        CHECK_EQ(stats[0].launches, 5);
        f.all_boots = true;
        query_stats(f);
        CHECK_EQ(stats[0].launches, 15);
        CHECK_EQ(query(f), 15);
        CHECK(strcmp(seen.boot_id, before.boot_id) != 0);
        f.limit = 10;
        CHECK_EQ(query(f), 10);
        CHECK_STR(seen.boot_id, before.boot_id);
        CHECK_STR(seen.comm, "old");
        close_store(&o);
}

static void view_shows_plain_columns(void)
{
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 4711, 0, "app");
        put_many(&o, 1, 3, 1, name_of(&o, "k"));
        flush(&o);
        CHECK_EQ(sql_int(test_path,
                         "SELECT count(*) FROM launches WHERE kernel = 'k' AND pid = 4711"
                         " AND gpu_end_ns - gpu_start_ns = 1000"
                         " AND gpu_start_ns - cpu_return_ns = 6000"
                         " AND match = 'exact' AND end_kind = 'measured'"),
                 3);
        close_store(&o);
}

int main(void)
{
        TEST(full_row_comes_back);
        TEST(unknown_is_null_and_never_zero);
        TEST(extreme_values_come_back);
        TEST(names_of_all_kinds);
        TEST(rows_of_unknown_processes_are_kept);
        TEST(ids_that_do_not_grow_are_refused);
        TEST(filters_select_what_they_say);
        TEST(newest_are_the_last);
        TEST(limits_and_stopping);
        TEST(statistics_of_known_distributions);
        TEST(long_queries_time_out);
        TEST(processes_with_their_counts);
        TEST(ledgers_replace_and_never_add);
        TEST(other_boots_stay_apart);
        TEST(view_shows_plain_columns);
        return 0;
}
