/* SPDX-License-Identifier: Apache-2.0 */

/* The limits of size and age hold while launches come in, and the file really shrinks. */
#include <errno.h>
#include <pthread.h>

#include "unit/store_helpers.h"

#define MIB (1ULL << 20)

static uint64_t size_of(const char *suffix)
{
        struct stat st;
        char path[160];

        snprintf(path, sizeof(path), "%s%s", test_path, suffix);
        return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static uint64_t disk_bytes(void)
{
        return size_of("") + size_of("-wal");
}

/* ---- size ---- */

struct watch {
        uint64_t max_bytes;
        bool stop;
};

static void *watch_size(void *data)
{
        struct watch *w = data;

        while (!__atomic_load_n(&w->stop, __ATOMIC_RELAXED)) {
                uint64_t bytes = disk_bytes();

                if (bytes > w->max_bytes)
                        w->max_bytes = bytes;
                usleep(2000);
        }
        return NULL;
}

/* What the last batch brought over the limit goes: the same number is there and said, twice in a
 * row. */
static uint64_t wait_until_settled(struct opened *o)
{
        uint64_t rows = 0, before = 1;
        struct store_status status;

        for (int i = 0; i < 60; i++) {
                sleep(1);
                store_get_status(o->store, &status);
                before = rows;
                rows = (uint64_t)sql_int(test_path, "SELECT count(*) FROM launch");
                if (rows && rows == before && status.launches == rows)
                        break;
        }
        CHECK(!status.failing);
        CHECK_EQ(rows, before);
        CHECK_EQ(status.launches, rows);
        return rows;
}

static uint64_t load_under_limit(uint64_t limit, uint64_t rows)
{
        struct store_options options = {.max_bytes = limit};
        struct watch watch = {0};
        uint64_t start, took, kept;
        pthread_t thread;
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        CHECK_EQ(pthread_create(&thread, NULL, watch_size, &watch), 0);
        start = now_ns();
        put_many(&o, 1, rows, 1, name_of(&o, "kernel"));
        flush(&o);
        took = now_ns() - start;
        __atomic_store_n(&watch.stop, true, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        printf("   limit %" PRIu64 " KiB, most seen %" PRIu64 " KiB, %.0f rows/s\n", limit >> 10,
               watch.max_bytes >> 10, (double)rows * 1e9 / (double)took);
        CHECK_EQ(collect(&o, 1).stored, rows);
        kept = wait_until_settled(&o);
        close_store(&o);

        CHECK(watch.max_bytes <= limit);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), kept);
        /* The newest are kept, without a hole, and the room is used. */
        CHECK_EQ(sql_int(test_path, "SELECT max(launch_id) FROM launch"), rows);
        CHECK_EQ(sql_int(test_path, "SELECT min(launch_id) FROM launch"), rows - kept + 1);
        CHECK(size_of("") > limit / 2);
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM segment"), kept);
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM segment_process"), kept);
        return kept;
}

static void size_limit_holds_under_load(void)
{
        CHECK(load_under_limit(8 * MIB, 600000) > 40000);
        CHECK(load_under_limit(32 * MIB, 1200000) > 200000);
}

/* Opened with a smaller limit than before, the file gives its space back. */
static void file_shrinks_to_a_new_limit(void)
{
        struct store_options options = {.max_bytes = 8 * MIB};
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 500000, 1, name_of(&o, "kernel"));
        close_store(&o);
        CHECK(disk_bytes() > 30 * MIB);
        open_with(&o, &options);
        for (int i = 0; i < 300 && disk_bytes() > 8 * MIB; i++)
                usleep(100000);
        CHECK(disk_bytes() <= 8 * MIB);
        close_store(&o);
        CHECK(size_of("") <= 8 * MIB);
        CHECK_EQ(sql_int(test_path, "SELECT max(launch_id) FROM launch"), 500000);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
}

/* ---- age ---- */

static void wait_for_rows(struct opened *o, uint64_t rows)
{
        struct store_status status;

        for (int i = 0; i < 1000; i++) {
                store_get_status(o->store, &status);
                if (status.launches == rows)
                        return;
                usleep(50000);
        }
        CHECK_EQ(status.launches, rows);
}

static void put_at(struct opened *o, uint64_t first, uint64_t n, uint64_t enter_ns)
{
        for (uint64_t i = 0; i < n; i++) {
                struct launch_record r = full_record(first + i, 1, 0, enter_ns + i);

                while (store_put_launches(o->store, &r, 1) == 0)
                        usleep(1000);
        }
}

static void old_launches_go(void)
{
        struct store_options options = {.max_age_s = 3600};
        struct opened o;

        if (now_ns() < 7200 * NSEC_PER_SEC) /* the clock begins at boot */
                options.max_age_s = now_ns() / NSEC_PER_SEC / 2 + 1;
        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_at(&o, 1, 20000, 1000);
        close_store(&o); /* a new run begins a new segment */
        open_plain(&o);
        put_at(&o, 20001, 10000, now_ns());
        close_store(&o);
        open_with(&o, &options);
        wait_for_rows(&o, 10000);
        CHECK_EQ(sql_int(test_path, "SELECT min(launch_id) FROM launch"), 20001);
        close_store(&o);
}

/* Of former boots by the wall clock, whatever their own clock said. */
static void launches_of_former_boots_go_by_the_wall_clock(void)
{
        struct store_options before = {.boot_id = "a-former-boot"};
        struct store_options options = {.max_age_s = 3600, .max_sums_age_s = 3600};
        struct opened o;

        new_test_directory();
        open_with(&o, &before);
        put_process(&o, 1, 1, 0, "old");
        put_many(&o, 1, 100, 1, name_of(&o, "old_kernel"));
        close_store(&o);
        open_with(&o, &options);
        wait_for_rows(&o, 100);
        sleep(2);
        wait_for_rows(&o, 100);
        close_store(&o);
        sql_run(test_path, "UPDATE segment SET written_realtime_ns = written_realtime_ns - 3700e9");
        sql_run(test_path, "UPDATE period SET written_realtime_ns = written_realtime_ns - 3700e9");
        sql_run(test_path, "UPDATE process SET started_realtime_ns = 1000");
        open_with(&o, &options);
        put_process(&o, 2, 2, 0, "new");
        CHECK_EQ(o.next_launch_id, 101); /* deleted ids are never given again */
        CHECK_EQ(o.next_process_key, 2);
        put_many(&o, 101, 5, 2, name_of(&o, "new_kernel"));
        flush(&o);
        wait_for_rows(&o, 5);
        for (int i = 0; i < 1000; i++) {
                if (sql_int(test_path, "SELECT count(*) FROM process") == 1 &&
                    sql_int(test_path, "SELECT count(*) FROM name") == 1)
                        break;
                usleep(50000);
        }
        /* What only they referred to went with them. */
        CHECK_EQ(sql_int(test_path, "SELECT process_key FROM process"), 2);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name WHERE text = 'new_kernel'"), 1);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name"), 1);
        close_store(&o);
        open_with(&o, &options);
        CHECK_EQ(o.next_launch_id, 106);
        close_store(&o);
}

/* A name whose row was deleted while the daemon ran comes back with its next launch. */
static void names_come_back_after_deletion(void)
{
        struct store_options options = {
                .max_bytes = 8 * MIB, .max_sums_age_s = 1, .commit_interval_ms = 20};
        uint64_t id = 1;
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, id, 10, 1, name_of(&o, "rare"));
        id += 10;
        for (int i = 0; i < 100; i++) {
                put_many(&o, id, 50000, 1, name_of(&o, "common"));
                id += 50000;
                flush(&o);
                if (sql_int(test_path, "SELECT count(*) FROM name") == 1)
                        break;
                usleep(100000);
        }
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name WHERE text = 'rare'"), 0);
        put_many(&o, id, 10, 1, name_of(&o, "rare"));
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE kernel = 'rare'"), 10);
        close_store(&o);
}

/* The id of a deleted name may be given to another: the first must not be taken for it. */
static void ids_of_deleted_names_are_not_mixed_up(void)
{
        struct store_options options = {.max_age_s = 3600, .max_sums_age_s = 3600};
        struct opened o;
        uint64_t deleted;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 10, 1, name_of(&o, "first"));
        flush(&o);
        CHECK_EQ(store_prune(o.store, 0, true, 10 * NSEC_PER_SEC, &deleted), 0);
        for (int i = 0; i < 1000 && sql_int(test_path, "SELECT count(*) FROM name"); i++)
                usleep(50000);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM name"), 0);
        put_at(&o, 11, 1, now_ns()); /* another segment, of a launch without a name */
        put_many(&o, 12, 10, 1, name_of(&o, "second"));
        put_many(&o, 22, 10, 1, name_of(&o, "first"));
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE kernel = 'second'"), 10);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE kernel = 'first'"), 10);
        close_store(&o);
}

/* ---- while it runs ---- */

static void limits_change_while_running(void)
{
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_many(&o, 1, 300000, 1, name_of(&o, "kernel"));
        flush(&o);
        CHECK(disk_bytes() > 16 * MIB);
        store_set_limits(o.store, 8 * MIB, 0, 0);
        for (int i = 0; i < 300 && disk_bytes() > 8 * MIB; i++)
                usleep(100000);
        CHECK(disk_bytes() <= 8 * MIB);
        put_at(&o, 300001, 10, now_ns());
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT max(launch_id) FROM launch"), 300010);
        close_store(&o);
}

static void pruning_deletes_what_is_old(void)
{
        uint64_t now = now_ns(), deleted;
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_at(&o, 1, 20000, now - 20 * NSEC_PER_SEC);
        flush(&o);
        CHECK_EQ(store_prune(o.store, 3600 * NSEC_PER_SEC, false, 10 * NSEC_PER_SEC, &deleted), 0);
        CHECK_EQ(deleted, 0);
        put_at(&o, 20001, 100, now);
        flush(&o);
        /* Older than ten seconds before the later ones, however long it took to put them. */
        CHECK_EQ(store_prune(o.store, now_ns() - now + 10 * NSEC_PER_SEC, false, 10 * NSEC_PER_SEC,
                             &deleted),
                 0);
        CHECK_EQ(deleted, 20000);
        CHECK_EQ(sql_int(test_path, "SELECT min(launch_id) FROM launch"), 20001);
        /* All of it, and then it goes on. */
        CHECK_EQ(store_prune(o.store, 0, false, 10 * NSEC_PER_SEC, &deleted), 0);
        CHECK_EQ(deleted, 100);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM segment_process"), 0);
        wait_for_rows(&o, 0);
        put_at(&o, 20101, 10, now_ns());
        flush(&o);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 10);
        close_store(&o);
}

/* Nothing can be deleted while another program holds the lock: said after the time given. */
static void pruning_gives_up_in_time(void)
{
        uint64_t deleted, start;
        struct opened o;
        sqlite3 *other;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_at(&o, 1, 100, 1000);
        flush(&o);
        CHECK_EQ(sqlite3_open(test_path, &other), SQLITE_OK);
        CHECK_EQ(sqlite3_busy_timeout(other, 20000), SQLITE_OK);
        CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        start = now_ns();
        CHECK_EQ(store_prune(o.store, 0, false, NSEC_PER_SEC / 2, &deleted), -ETIMEDOUT);
        CHECK(now_ns() - start < 20 * NSEC_PER_SEC);
        CHECK_EQ(deleted, 0);
        CHECK_EQ(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(other);
        CHECK_EQ(store_prune(o.store, 0, false, 10 * NSEC_PER_SEC, &deleted), 0);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 0);
        close_store(&o);
}

int main(void)
{
        TEST(size_limit_holds_under_load);
        TEST(file_shrinks_to_a_new_limit);
        TEST(old_launches_go);
        TEST(launches_of_former_boots_go_by_the_wall_clock);
        TEST(names_come_back_after_deletion);
        TEST(ids_of_deleted_names_are_not_mixed_up);
        TEST(limits_change_while_running);
        TEST(pruning_deletes_what_is_old);
        TEST(pruning_gives_up_in_time);
        return 0;
}
