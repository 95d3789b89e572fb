/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A full disk, a read-only one, a lock that somebody holds, a file that is taken
 * away: the store says what is wrong, keeps the records, never makes the caller
 * wait, and goes on by itself when it can.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "unit/store_helpers.h"

#define MIB         (1ULL << 20)
#define PATIENCE_MS 15000

static void mount_small(unsigned mib)
{
        char options[32];

        new_test_directory();
        snprintf(options, sizeof(options), "size=%um", mib);
        CHECK_EQ(mount("tmpfs", test_directory, "tmpfs", 0, options), 0);
}

static void unmount(void)
{
        CHECK_EQ(umount2(test_directory, MNT_DETACH), 0);
}

static void remount(bool read_only)
{
        unsigned long flags = MS_REMOUNT | (read_only ? MS_RDONLY : 0);

        CHECK_EQ(mount(NULL, test_directory, NULL, flags, NULL), 0);
}

/* Fill the file system but for `leave` bytes. */
static void fill_disk(uint64_t leave)
{
        static char block[4096];
        char path[160];
        int fd;

        snprintf(path, sizeof(path), "%s/filler", test_directory);
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        while (write(fd, block, sizeof(block)) > 0)
                ;
        CHECK_EQ(errno, ENOSPC);
        CHECK_EQ(ftruncate(fd, lseek(fd, 0, SEEK_END) - (off_t)leave), 0);
        close(fd);
}

static void free_disk(void)
{
        char path[160];

        snprintf(path, sizeof(path), "%s/filler", test_directory);
        CHECK_EQ(unlink(path), 0);
}

/* Until the store fails, or works; its status then. */
static struct store_status wait_for(struct opened *o, bool failing)
{
        struct store_status status;

        for (int i = 0; i < PATIENCE_MS / 10; i++) {
                store_get_status(o->store, &status);
                if (status.failing == failing)
                        break;
                usleep(10000);
        }
        if (status.error[0])
                printf("   \"%s\"\n", status.error);
        CHECK_EQ(status.failing, failing);
        return status;
}

/*
 * Puts one after the other until one is refused or n are in. Who waits for the disk or for a lock
 * waits each time; what else the machine does holds up one or two.
 */
static uint64_t put_without_waiting(struct opened *o, uint64_t first, uint64_t n)
{
        uint64_t i, slow = 0;

        for (i = 0; i < n; i++) {
                struct launch_record r = full_record(first + i, 1, name_of(o, "kernel"), 1000 + i);
                uint64_t start = now_ns(), took;
                size_t taken = store_put_launches(o->store, &r, 1);

                took = now_ns() - start;
                slow += took >= NSEC_PER_SEC / 2;
                if (taken == 0)
                        break;
        }
        CHECK(slow <= 2);
        return i;
}

static void check_all_stored(struct opened *o, uint64_t rows)
{
        struct store_outcome outcome;

        CHECK_EQ(store_flush(o->store, PATIENCE_MS * NSEC_PER_MSEC), 0);
        outcome = collect(o, 1);
        CHECK_EQ(outcome.stored, rows);
        CHECK_EQ(outcome.failed, 0);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), rows);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launches WHERE kernel = 'kernel' AND"
                                    " comm = 'app'"),
                 rows);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
}

static void full_disk_keeps_records_until_there_is_room(void)
{
        struct store_options options = {.queue_records = 20000, .commit_interval_ms = 20};
        struct ledger ledger = {.produced = 5};
        struct store_status status;
        uint64_t put = 0, more;
        struct opened o;

        mount_small(12);
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        put += put_without_waiting(&o, 1, 1000);
        flush(&o);
        fill_disk(64 << 10);
        /* More than fits: the queue fills, then refuses. */
        for (int i = 0; i < 1000; i++) {
                more = put_without_waiting(&o, put + 1, 2000);
                put += more;
                if (more < 2000)
                        break;
                usleep(1000);
        }
        CHECK(more < 2000);
        status = wait_for(&o, true);
        CHECK(strstr(status.error, "no space"));
        /* A writer that slept while the queue was filled may have found room for some. */
        put += put_without_waiting(&o, put + 1, 20000);
        store_get_status(o.store, &status);
        CHECK_EQ(status.queued, 20000);
        CHECK_EQ(store_put_ledger(o.store, 1, &ledger), 0);
        CHECK_EQ(store_flush(o.store, 100 * NSEC_PER_MSEC), -ETIMEDOUT);
        free_disk();
        wait_for(&o, false);
        check_all_stored(&o, put);
        CHECK_EQ(sql_int(test_path, "SELECT value FROM ledger WHERE counter = 'produced'"), 5);
        close_store(&o);
        unmount();
}

static void full_disk_at_opening(void)
{
        struct store_status status;
        struct opened o;

        mount_small(4);
        fill_disk(0);
        CHECK_EQ(try_open(&o, &(struct store_options){0}), 0);
        CHECK(strstr(o.error, "no space"));
        CHECK(o.next_launch_id > 1ULL << 40);
        CHECK(o.next_launch_id < 1ULL << 53);
        put_process(&o, 1, 1, 0, "app");
        CHECK_EQ(put_without_waiting(&o, o.next_launch_id, 100), 100);
        status = wait_for(&o, true);
        CHECK(strstr(status.error, "no space"));
        free_disk();
        wait_for(&o, false);
        check_all_stored(&o, 100);
        close_store(&o);
        unmount();
}

static void read_only_at_opening(void)
{
        struct store_options options = {.commit_interval_ms = 20};
        struct store_status status;
        struct opened o;

        mount_small(16);
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        put_without_waiting(&o, 1, 100);
        close_store(&o);
        remount(true);
        CHECK_EQ(try_open(&o, &options), 0);
        CHECK(strstr(o.error, "Read-only file system"));
        put_process(&o, 1, 1, 0, "app");
        CHECK_EQ(put_without_waiting(&o, o.next_launch_id, 100), 100);
        status = wait_for(&o, true);
        CHECK(strstr(status.error, "make its directory writable"));
        remount(false);
        wait_for(&o, false);
        CHECK_EQ(store_flush(o.store, PATIENCE_MS * NSEC_PER_MSEC), 0);
        CHECK_EQ(collect(&o, 1).stored, 100);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch"), 200);
        close_store(&o);
        unmount();
}

static void locked_by_another_program(void)
{
        struct store_options options = {.queue_records = 3000, .commit_interval_ms = 20};
        struct store_status status;
        sqlite3 *other;
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        flush(&o);
        CHECK_EQ(sqlite3_open(test_path, &other), SQLITE_OK);
        CHECK_EQ(sqlite3_busy_timeout(other, PATIENCE_MS), SQLITE_OK);
        CHECK_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
        CHECK_EQ(put_without_waiting(&o, 1, 5000), 3000);
        status = wait_for(&o, true);
        CHECK(strstr(status.error, "locked by another program"));
        CHECK_EQ(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(other);
        wait_for(&o, false);
        check_all_stored(&o, 3000);
        close_store(&o);
}

static void file_taken_away(void)
{
        struct store_options options = {.commit_interval_ms = 20};
        struct store_status status;
        char wal[160], shm[160];
        struct opened o;

        new_test_directory();
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        put_without_waiting(&o, 1, 100);
        flush(&o);
        CHECK_EQ(collect(&o, 1).stored, 100);
        snprintf(wal, sizeof(wal), "%s-wal", test_path);
        snprintf(shm, sizeof(shm), "%s-shm", test_path);
        /* The database last: once it is missing the store makes all three again. */
        unlink(wal);
        unlink(shm);
        CHECK_EQ(unlink(test_path), 0);
        for (int i = 0; i < PATIENCE_MS / 10 && access(test_path, F_OK) < 0; i++)
                usleep(10000);
        put_without_waiting(&o, 101, 100);
        check_all_stored(&o, 100);
        store_get_status(o.store, &status);
        CHECK(!status.failing);
        CHECK(strstr(status.error, "removed or replaced"));
        close_store(&o);
}

/* A limit of the process's own, as ulimit or systemd set it. */
static void file_size_limit(void)
{
        struct store_options options = {.commit_interval_ms = 20};
        struct store_status status;
        struct opened o;

        new_test_directory();
        signal(SIGXFSZ, SIG_IGN);
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "app");
        flush(&o);
        {
                struct rlimit small = {512 << 10, RLIM_INFINITY};
                CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        }
        CHECK_EQ(put_without_waiting(&o, 1, 20000), 20000);
        status = wait_for(&o, true);
        CHECK(strstr(status.error, "no space"));
        {
                struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
                CHECK_EQ(setrlimit(RLIMIT_FSIZE, &all), 0);
        }
        wait_for(&o, false);
        check_all_stored(&o, 20000);
        close_store(&o);
}

/* Closing while nothing can be written ends soon, and the database stays whole. */
static void closing_while_failing(void)
{
        struct opened o;
        uint64_t start;

        mount_small(4);
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        put_without_waiting(&o, 1, 100);
        flush(&o);
        fill_disk(0);
        put_without_waiting(&o, 101, 50000);
        wait_for(&o, true);
        start = now_ns();
        close_store(&o);
        CHECK(now_ns() - start < 20 * NSEC_PER_SEC);
        free_disk();
        CHECK(sql_int(test_path, "SELECT count(*) FROM launch") >= 100);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
        unmount();
}

int main(void)
{
        TEST(locked_by_another_program);
        TEST(file_taken_away);
        TEST(file_size_limit);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                test_skip(
                        "a mount namespace of its own needs root: disk full, read-only not tested");
        TEST(full_disk_keeps_records_until_there_is_room);
        TEST(full_disk_at_opening);
        TEST(read_only_at_opening);
        TEST(closing_while_failing);
        return 0;
}
