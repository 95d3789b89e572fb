/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The file system of the database turns read-only while it is written, as one
 * does after an error, and is mounted anew later: what was taken is stored, or
 * counted as gone; nothing is in between.
 */
#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/mount.h>

#include "unit/store_helpers.h"

#define PATIENCE_MS 20000

static char disk[80]; /* where it is mounted */

static int shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int shell(const char *format, ...)
{
        char command[512];
        va_list args;

        va_start(args, format);
        vsnprintf(command, sizeof(command), format, args);
        va_end(args);
        return system(command);
}

/* The place below is read-only: nothing can be written there while the disk is away. */
static void make_disk(void)
{
        new_test_directory();
        CHECK_EQ(mount("tmpfs", test_directory, "tmpfs", 0, "size=64m"), 0);
        snprintf(disk, sizeof(disk), "%s/disk", test_directory);
        snprintf(test_path, sizeof(test_path), "%s/launches.db", disk);
        CHECK_EQ(mkdir(disk, 0755), 0);
        if (shell("truncate -s 32M %s/image && mkfs.ext4 -q -F %s/image 2>/dev/null",
                  test_directory, test_directory) != 0)
                test_skip("mkfs.ext4 is not installed");
}

static bool mount_disk(void)
{
        return shell("mount -o loop,errors=remount-ro %s/image %s 2>/dev/null", test_directory,
                     disk) == 0;
}

static void wait_for(struct opened *o, bool failing)
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
}

/* What was taken; the rest the caller would count as lost. */
static uint64_t put(struct opened *o, uint64_t first, uint64_t n)
{
        uint64_t taken = 0;

        for (uint64_t i = 0; i < n; i++) {
                struct launch_record r =
                        full_record(first + i, 1 + i % 2, name_of(o, "kernel"), 1000 + first + i);

                taken += store_put_launches(o->store, &r, 1);
        }
        return taken;
}

static void nothing_is_lost_uncounted(void)
{
        struct store_options options = {.queue_records = 20000, .commit_interval_ms = 20};
        struct store_outcome out[2];
        uint64_t taken, rows;
        struct opened o;

        make_disk();
        if (!mount_disk())
                test_skip("a loop device cannot be mounted here");
        open_with(&o, &options);
        put_process(&o, 1, 1, 0, "one");
        put_process(&o, 2, 2, 0, "two");
        taken = put(&o, 1, 5000);
        flush(&o);
        taken += put(&o, 5001, 3000);
        flush(&o); /* committed, and still in the page cache: the file system gives it up */
        CHECK_EQ(shell("mount -o remount,abort %s 2>/dev/null", disk), 0);
        taken += put(&o, 8001, 3000);
        wait_for(&o, true);
        taken += put(&o, 11001, 3000);
        for (int i = 0; i < PATIENCE_MS / 100 && shell("umount %s 2>/dev/null", disk) != 0; i++)
                usleep(100000);
        CHECK(mount_disk());
        wait_for(&o, false);
        CHECK_EQ(store_flush(o.store, PATIENCE_MS * NSEC_PER_MSEC), 0);
        taken += put(&o, 20001, 1000); /* and it goes on */
        CHECK_EQ(store_flush(o.store, PATIENCE_MS * NSEC_PER_MSEC), 0);

        CHECK_EQ(store_collect(o.store, out, 2), 2);
        rows = (uint64_t)sql_int(test_path, "SELECT count(*) FROM launch");
        printf("   %" PRIu64 " taken, %" PRIu64 " in the database, %" PRIu64 " vanished\n", taken,
               rows, out[0].vanished + out[1].vanished);
        CHECK_EQ(taken, 15000);
        CHECK_EQ(out[0].stored + out[1].stored, taken);
        CHECK_EQ(out[0].failed + out[1].failed, 0);
        CHECK_EQ(rows + out[0].vanished + out[1].vanished, taken);
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM segment"), rows);
        CHECK_EQ(sql_int(test_path, "SELECT sum(launches) FROM minute"), rows);
        close_store(&o);
        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
        CHECK_EQ(shell("umount %s", disk), 0);
        CHECK_EQ(umount2(test_directory, MNT_DETACH), 0);
}

int main(void)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                test_skip("a mount namespace of its own needs root");
        TEST(nothing_is_lost_uncounted);
        return 0;
}
