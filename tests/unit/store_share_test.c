/* SPDX-License-Identifier: Apache-2.0 */

/* Shares of the GPUs in the database: in, added up, and gone with their time. */
#include <errno.h>

#include "unit/store_helpers.h"

#define SECOND NSEC_PER_SEC

static struct store_share_sum sums[32];
static char comms[32][32];
static size_t sum_count;

static int see(void *data, const struct store_share_sum *s)
{
        CHECK(sum_count < 32);
        snprintf(comms[sum_count], sizeof(comms[0]), "%s", s->comm ? s->comm : "");
        sums[sum_count++] = *s;
        return 0;
}

static void query(struct store_filter f)
{
        struct store_reader *r;

        CHECK_EQ(store_reader_new(test_path, &r), 0);
        sum_count = 0;
        CHECK_EQ(store_query_shares(r, &f, 10000, see, NULL), 0);
        store_reader_free(r);
}

static struct store_share engine_at(uint64_t second, uint32_t gpu)
{
        return (struct store_share){.start_ns = second * SECOND,
                                    .span_ns = SECOND,
                                    .gpu = gpu,
                                    .mig_gpu = 255,
                                    .mig_compute = 255,
                                    .of_engine = true,
                                    .slices = 4,
                                    .active_ns = 800,
                                    .switch_ns = 50,
                                    .idle_ns = 100,
                                    .unknown_ns = 50,
                                    .lost = 1};
}

static struct store_share context_at(uint64_t second, uint32_t gpu, uint64_t process,
                                     uint32_t context, uint64_t active)
{
        return (struct store_share){.start_ns = second * SECOND,
                                    .span_ns = SECOND,
                                    .gpu = gpu,
                                    .mig_gpu = 255,
                                    .mig_compute = 255,
                                    .process_key = process,
                                    .context = STORE_CONTEXT_GROUP | context,
                                    .slices = 2,
                                    .active_ns = active,
                                    .longest_ns = active / 2 + second};
}

static void put_second(struct opened *o, uint64_t second)
{
        const struct store_share rows[] = {
                engine_at(second, 0),
                context_at(second, 0, 1, 71, 500),
                context_at(second, 0, 2, 72, 300),
                engine_at(second, 1),
                context_at(second, 1, 2, 73, 900),
                context_at(second, 1, 0, 74, 10),
        };

        CHECK_EQ(store_put_shares(o->store, rows, 6), 0);
}

static void open_filled(struct opened *o)
{
        new_test_directory();
        open_plain(o);
        put_process(o, 1, 101, 1000, "one");
        put_process(o, 2, 102, 2000, "two");
        for (uint64_t second = 10; second < 20; second++)
                put_second(o, second);
        flush(o);
}

static void seconds_are_added_up(void)
{
        struct opened o;

        open_filled(&o);
        query(any_launch());
        CHECK_EQ(sum_count, 6);
        CHECK(sums[0].share.of_engine && sums[0].share.gpu == 0);
        CHECK_EQ(sums[0].share.span_ns, 10 * SECOND);
        CHECK_EQ(sums[0].share.start_ns, 10 * SECOND);
        CHECK_EQ(sums[0].end_ns, 20 * SECOND);
        CHECK_EQ(sums[0].share.active_ns, 8000);
        CHECK_EQ(sums[0].share.switch_ns, 500);
        CHECK_EQ(sums[0].share.idle_ns, 1000);
        CHECK_EQ(sums[0].share.unknown_ns, 500);
        CHECK_EQ(sums[0].share.lost, 10);
        CHECK_EQ(sums[0].share.slices, 40);
        CHECK_EQ(sums[0].share.mig_gpu, 255);
        CHECK_EQ(sums[1].pid, 101);
        CHECK_STR(comms[1], "one");
        CHECK_EQ(sums[1].share.context, STORE_CONTEXT_GROUP | 71);
        CHECK_EQ(sums[1].share.active_ns, 5000);
        CHECK_EQ(sums[1].share.longest_ns, 250 + 19);
        CHECK_EQ(sums[2].pid, 102);
        CHECK_EQ(sums[5].share.process_key, 0);
        CHECK_STR(comms[5], "");
        close_store(&o);
}

static void filters_select(void)
{
        struct store_filter f = any_launch();
        struct opened o;

        open_filled(&o);
        f.since_ns = 12 * SECOND;
        f.until_ns = 15 * SECOND;
        query(f);
        CHECK_EQ(sums[0].share.span_ns, 3 * SECOND);
        f.gpu = 1;
        query(f);
        CHECK_EQ(sum_count, 3);
        f = any_launch();
        f.pid = 101;
        query(f);
        CHECK_EQ(sum_count, 3); /* both engines, and the process on one */
        f = any_launch();
        f.uid = 2000;
        query(f);
        CHECK_EQ(sum_count, 4);
        for (size_t i = 0; i < sum_count; i++)
                CHECK(sums[i].share.of_engine || sums[i].pid == 102);
        f = any_launch();
        f.limit = 2;
        query(f);
        CHECK_EQ(sum_count, 2);
        close_store(&o);
}

static void mig_instances_stay_apart(void)
{
        struct store_share rows[] = {engine_at(1, 0), engine_at(1, 0)};
        struct opened o;

        new_test_directory();
        open_plain(&o);
        rows[0].mig_gpu = 1;
        rows[0].mig_compute = 0;
        rows[1].mig_gpu = 2;
        rows[1].mig_compute = 3;
        CHECK_EQ(store_put_shares(o.store, rows, 2), 0);
        flush(&o);
        query(any_launch());
        CHECK_EQ(sum_count, 2);
        CHECK_EQ(sums[0].share.mig_gpu, 1);
        CHECK_EQ(sums[1].share.mig_gpu, 2);
        CHECK_EQ(sums[1].share.mig_compute, 3);
        close_store(&o);
}

static void other_boots_are_not_shown_and_go(void)
{
        struct store_options before = {.boot_id = "00000000-1111-2222-3333-444444444444"};
        struct store_options limited = {.max_age_s = 3600, .commit_interval_ms = 20};
        struct opened o;

        new_test_directory();
        open_with(&o, &before);
        put_second(&o, 10);
        flush(&o);
        close_store(&o);
        open_with(&o, &limited);
        put_second(&o, now_ns() / SECOND);
        flush(&o);
        query(any_launch());
        CHECK_EQ(sums[0].share.span_ns, SECOND);
        /* No launch of that boot is left: nor are its shares, soon. */
        for (int i = 0; i < 1200 && sql_int(test_path, "SELECT count(*) FROM share") > 6; i++)
                usleep(50000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM share"), 6);
        close_store(&o);
}

static void old_ones_go(void)
{
        struct store_options options = {.max_age_s = 600, .commit_interval_ms = 20};
        uint64_t now = now_ns() / SECOND, old;
        struct opened o;

        if (now < 1000)
                test_skip("the machine has been up for too short a time");
        new_test_directory();
        open_with(&o, &options);
        for (old = 0; old < 100; old++)
                put_second(&o, now - 900 + old);
        put_second(&o, now - 1);
        flush(&o);
        for (int i = 0; i < 1200 && sql_int(test_path, "SELECT count(*) FROM share") > 6; i++)
                usleep(50000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM share"), 6);
        close_store(&o);
}

/* With nothing but shares in the database its size is kept all the same. */
static void size_is_limited(void)
{
        struct store_options options = {.max_bytes = 8ULL << 20, .commit_interval_ms = 20};
        struct store_status status;
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        for (uint64_t second = 1; second <= 60000; second++) {
                put_second(&o, second);
                if (second % 2000 == 0)
                        flush(&o);
        }
        flush(&o);
        for (int i = 0; i < 1200; i++) {
                store_get_status(o.store, &status);
                if (status.bytes <= 9ULL << 20)
                        break;
                usleep(50000);
        }
        CHECK(status.bytes <= 9ULL << 20); /* 17 MiB without a limit; the log is over its own */
        CHECK(sql_int(test_path, "SELECT min(start_ns) FROM share") > (int64_t)(60 * SECOND));
        CHECK_EQ(sql_int(test_path, "SELECT max(start_ns) FROM share"), 60000 * (int64_t)SECOND);
        close_store(&o);
}

static void too_many_waiting_are_refused(void)
{
        struct store_options options = {.commit_interval_ms = 60000};
        static struct store_share rows[1000];
        struct opened o;
        int i, r = 0;

        new_test_directory();
        open_with(&o, &options);
        for (i = 0; i < 1000; i++)
                rows[i] = context_at(5, 0, 1, (uint32_t)i, 1);
        for (i = 0; r == 0 && i < 100; i++)
                r = store_put_shares(o.store, rows, 1000);
        CHECK_EQ(r, -ENOBUFS);
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM share"), 1000);
        CHECK_EQ(store_put_shares(o.store, rows, 1), 0);
        close_store(&o);
}

static void the_view_shows_plain_columns(void)
{
        struct opened o;

        open_filled(&o);
        CHECK_EQ(sql_int(test_path, "SELECT sum(active_ns) FROM shares WHERE comm = 'two'"
                                    " AND mig IS NULL AND gpu = 1"),
                 9000);
        close_store(&o);
}

int main(void)
{
        TEST(seconds_are_added_up);
        TEST(filters_select);
        TEST(mig_instances_stay_apart);
        TEST(other_boots_are_not_shown_and_go);
        TEST(old_ones_go);
        TEST(size_is_limited);
        TEST(too_many_waiting_are_refused);
        TEST(the_view_shows_plain_columns);
        return 0;
}
