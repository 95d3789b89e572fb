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

/* An eighth of the smallest limit holds some ten thousand rows. */
static void rows_are_bounded(void)
{
        struct store_options options = {.max_bytes = 8 << 20};
        int64_t newest = 0, kept = 0;
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 33, 0, "app");
        for (uint64_t n = 1; n <= 20000; n++) {
                struct managed_second m = second_of(1, n);

                CHECK_EQ(store_put_managed(o.store, &m), 0);
        }
        flush(&o);
        for (int i = 0; i < 200; i++) {
                kept = sql_int(test_path, "SELECT count(*) FROM managed");
                if (kept < 12000)
                        break;
                usleep(50000);
        }
        CHECK(kept > 5000 && kept < 12000);
        newest = sql_int(test_path, "SELECT max(end_ns) / 1000000000 FROM managed");
        CHECK_EQ(newest, 20000);
        CHECK_EQ(sql_int(test_path, "SELECT min(end_ns) / 1000000000 FROM managed"),
                 20000 - kept + 1);
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
        TEST(rows_are_bounded);
        TEST(what_waits_is_bounded);
        return 0;
}
