/* SPDX-License-Identifier: Apache-2.0 */

/* Seconds of managed memory in the database: whole, beside launches, within limits. */
#include <errno.h>
#include <unistd.h>

#include "store/managed.h"
#include "unit/store_helpers.h"

static struct managed_second second_of(uint64_t process, uint64_t n)
{
        return (struct managed_second){.process_key = process,
                                       .end_ns = n * NSEC_PER_SEC,
                                       .events = 10 * n,
                                       .dropped = n,
                                       .gpu_faults = 2 * n,
                                       .bytes_to_gpu = 65536 * n,
                                       .fatal_faults = 3 * n};
}

static void seconds_are_stored(void)
{
        struct managed_second m;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 33, 0, "app");
        for (uint64_t n = 1; n <= 5; n++) {
                m = second_of(1, n);
                CHECK_EQ(store_put_managed(o.store, &m), 0);
        }
        put_many(&o, 1, 100, 1, name_of(&o, "kernel"));
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM managed WHERE pid = 33"), 5);
        CHECK_EQ(sql_int(test_path, "SELECT sum(events) FROM managed"), 150);
        CHECK_EQ(sql_int(test_path, "SELECT sum(gpu_faults) FROM managed"), 30);
        CHECK_EQ(sql_int(test_path, "SELECT max(bytes_to_gpu) FROM managed"), 5 * 65536);
        CHECK_EQ(sql_int(test_path, "SELECT sum(fatal_faults) FROM managed"), 45);
        CHECK_EQ(sql_int(test_path, "SELECT sum(cpu_faults + evictions) FROM managed"), 0);
        CHECK_EQ(sql_int(test_path, "SELECT dropped FROM managed WHERE end_ns = 4000000000"), 4);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 100);
        close_store(&o);
}

/* ---- added up in steps ---- */

static struct store_managed_past past[16];
static char commands[16][17];
static size_t past_count;

static int see(void *data, const struct store_managed_past *p)
{
        CHECK(past_count < 16);
        snprintf(commands[past_count], sizeof(commands[0]), "%s", p->comm);
        past[past_count++] = *p;
        return 0;
}

static size_t history(struct store_filter f, uint32_t step_s)
{
        struct store_reader *r = NULL;

        past_count = 0;
        CHECK_EQ(store_reader_new(test_path, &r), 0);
        if (!f.limit)
                f.limit = 16;
        CHECK_EQ(store_query_managed(r, &f, step_s, 10000, see, NULL), 0);
        store_reader_free(r);
        return past_count;
}

static void seconds_are_added_up(void)
{
        struct store_filter all = {.uid = UINT32_MAX, .gpu = STORE_ANY_GPU}, f;
        struct managed_second m;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 33, 0, "app");
        put_process(&o, 2, 34, 7, "other");
        for (uint64_t n = 58; n <= 62; n++) {
                m = second_of(1, n);
                CHECK_EQ(store_put_managed(o.store, &m), 0);
        }
        m = second_of(2, 61);
        CHECK_EQ(store_put_managed(o.store, &m), 0);
        flush(&o);

        CHECK_EQ(history(all, 60), 3); /* the second that ends at 60 s is the first minute's */
        CHECK(past[0].start_ns == 0 && past[0].seconds == 3 && past[0].pid == 33);
        CHECK(past[0].sum.gpu_faults == 2 * (58 + 59 + 60) && past[0].sum.dropped == 177);
        CHECK(past[1].start_ns == 60 * NSEC_PER_SEC && past[1].sum.end_ns == 120 * NSEC_PER_SEC);
        CHECK(past[1].seconds == 2 && past[1].sum.events == 1230 && past[1].pid == 33);
        CHECK(past[2].pid == 34 && past[2].sum.fatal_faults == 183);
        CHECK_STR(commands[2], "other");
        CHECK_EQ(history(all, 1), 6);
        CHECK_EQ(history(all, 86400), 2);

        f = all;
        f.uid = 7;
        CHECK(history(f, 60) == 1 && past[0].pid == 34);
        f = all;
        f.pid = 33;
        f.since_ns = 61 * NSEC_PER_SEC;
        CHECK(history(f, 60) == 1 && past[0].seconds == 2);
        f.until_ns = 62 * NSEC_PER_SEC;
        CHECK(history(f, 60) == 1 && past[0].seconds == 1);

        f = all; /* row by row */
        f.limit = 1;
        for (size_t i = 0; i < 3; i++) {
                CHECK_EQ(history(f, 60), 1);
                CHECK_EQ(past[0].pid, i == 2 ? 34 : 33);
                f.after_launch_id = past[0].cursor;
        }
        CHECK_EQ(history(f, 60), 0);
        close_store(&o);
}

/* An eighth of the smallest limit holds some ten thousand rows. */
static void rows_are_bounded(void)
{
        struct store_options options = {.max_bytes = 8 << 20};
        int64_t kept = 0;
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 33, 0, "app");
        for (uint64_t n = 1; n <= 20000; n++) {
                struct managed_second m = second_of(1, n);

                CHECK_EQ(store_put_managed(o.store, &m), 0);
        }
        flush(&o);
        for (int i = 0; i < 1200; i++) {
                kept = sql_int(test_path, "SELECT count(*) FROM managed");
                if (kept < 12000)
                        break;
                usleep(50000);
        }
        CHECK(kept > 5000 && kept < 12000);
        /* The newest, as many as there are by now. */
        CHECK_EQ(sql_int(test_path, "SELECT max(end_ns) / 1000000000 FROM managed"), 20000);
        CHECK_EQ(sql_int(test_path, "SELECT min(end_ns) / 1000000000 + count(*) FROM managed"),
                 20001);
        close_store(&o);
}

static void what_waits_is_bounded(void)
{
        struct managed_queue q = {0}, from = {0};
        struct managed_second m = second_of(1, 1);

        for (int i = 0; i < MANAGED_WAITING_MAX; i++)
                CHECK_EQ(managed_queue_add(&q, &m), 0);
        CHECK_EQ(managed_queue_add(&q, &m), -ENOBUFS);
        m.end_ns = 7;
        CHECK_EQ(managed_queue_add(&from, &m), 0);
        managed_queue_move(&q, &from);
        CHECK_EQ(q.count, MANAGED_WAITING_MAX);
        CHECK_EQ(q.last->second.end_ns, 7);
        CHECK(!from.first && from.count == 0);
        managed_queue_clear(&q);
        CHECK(!q.first && !q.last && q.count == 0);
}

int main(void)
{
        TEST(seconds_are_stored);
        TEST(seconds_are_added_up);
        TEST(rows_are_bounded);
        TEST(what_waits_is_bounded);
        return 0;
}
