/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The undo journal on disks that fail: whoever opens it next finds what was noted, and nothing of
 * what could not be. Writes that fail at every step, half a record, a file that may not grow, and,
 * as root, a file system that is full.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/undo_journal.h"
#include "unit/test.h"
#include "util/macro.h"

#define PATH   "undo_journal_test.journal"
#define RECORD 128

static const uint8_t boot[16] = {0xb0};

/* ---- a disk that fails ---- */

static struct {
        int calls, fail_at; /* the fail_at-th call fails, and those after it; 0: none */
        bool half;          /* of what a failing write writes */
        bool keeps;         /* truncating fails, too */
} disk;

static bool fails(void)
{
        return disk.fail_at && ++disk.calls >= disk.fail_at;
}

static ssize_t failing_write(int fd, const void *bytes, size_t size)
{
        if (!fails())
                return write(fd, bytes, size);
        if (disk.half)
                return write(fd, bytes, size / 2);
        errno = ENOSPC;
        return -1;
}

static int failing_sync(int fd)
{
        errno = EIO;
        return fails() ? -1 : fdatasync(fd);
}

static int failing_truncate(int fd, off_t size)
{
        errno = EIO;
        return disk.keeps ? -1 : ftruncate(fd, size);
}

static const struct undo_io io = {.write = failing_write,
                                  .sync = failing_sync,
                                  .truncate = failing_truncate,
                                  .rename = rename,
                                  .unlink = unlink,
                                  .lock = flock};

/* ---- what the tests say ---- */

static struct undo_journal *open_at(const char *path)
{
        struct undo_journal *j;

        CHECK_EQ(undo_journal_open(&io, path, boot, &j), 0);
        return j;
}

static struct undo_journal *begin(void)
{
        unlink(PATH);
        memset(&disk, 0, sizeof(disk));
        return open_at(PATH);
}

static int add(struct undo_journal *j, uint64_t first, size_t n)
{
        struct undo_entry e[64] = {0};
        size_t added = 0;

        for (size_t i = 0; i < n; i++)
                e[i] = (struct undo_entry){
                        .kind = UNDO_TIME_SLICE, .pid = 1, .start_ticks = first + i};
        return undo_journal_add_all(j, e, n, &added);
}

/* These and no others, by start_ticks from first on. */
static void check_has(struct undo_journal *j, uint64_t first, size_t n)
{
        struct undo_entry e[64];

        CHECK_EQ(undo_journal_list(j, e, ARRAY_SIZE(e)), n);
        for (size_t i = 0; i < n; i++)
                CHECK_EQ(e[i].start_ticks, first + i);
}

static off_t size_of(const char *path)
{
        struct stat st;

        CHECK_EQ(stat(path, &st), 0);
        return st.st_size;
}

/* As the next daemon finds it, with a disk that works. */
static void check_next(struct undo_journal *j, uint64_t first, size_t n)
{
        memset(&disk, 0, sizeof(disk));
        undo_journal_free(j);
        j = open_at(PATH);
        CHECK_EQ(undo_journal_damaged(j), 0);
        check_has(j, first, n);
        undo_journal_free(j);
}

/* ---- tests ---- */

/* Four of a batch, the write of any of which, or the wait for the disk, fails. */
static void test_batch_fails(void)
{
        for (int half = 0; half < 2; half++)
                for (int at = 1; at <= 5; at++) {
                        struct undo_journal *j = begin();
                        struct undo_failures f;

                        CHECK_EQ(add(j, 10, 3), 0);
                        disk.half = half;
                        disk.calls = 0;
                        disk.fail_at = at;
                        CHECK(add(j, 20, 4) < 0);
                        check_has(j, 10, 3);
                        CHECK_EQ(size_of(PATH), 3 * RECORD);
                        undo_journal_failures(j, &f);
                        CHECK_EQ(f.entries, 4);
                        CHECK_EQ(f.left, 0);
                        CHECK_EQ(f.error, at < 5 ? -ENOSPC : -EIO);
                        check_next(j, 10, 3);
                }
}

/* It goes on when the disk does. */
static void test_goes_on(void)
{
        for (int at = 1; at <= 5; at++) {
                struct undo_journal *j = begin();

                CHECK_EQ(add(j, 10, 2), 0);
                disk.calls = 0;
                disk.half = at % 2;
                disk.fail_at = at;
                CHECK(add(j, 20, 4) < 0);
                CHECK(add(j, 30, 1) < 0);
                disk.fail_at = 0;
                CHECK_EQ(add(j, 12, 5), 0);
                check_has(j, 10, 7);
                CHECK_EQ(size_of(PATH), 7 * RECORD);
                check_next(j, 10, 7);
        }
}

/* Records that cannot be taken out either are said to be left, until the file can be begun anew. */
static void test_cannot_be_taken_out(void)
{
        struct undo_journal *j = begin();
        struct undo_failures f;

        CHECK_EQ(add(j, 10, 1), 0);
        disk.calls = 0;
        disk.fail_at = 4;
        disk.keeps = true;
        CHECK_EQ(add(j, 20, 4), -ENOSPC);
        check_has(j, 10, 1);
        undo_journal_failures(j, &f);
        CHECK_EQ(f.left, 3);
        disk.fail_at = 0;
        CHECK_EQ(add(j, 11, 1), 0);
        check_next(j, 10, 2);
}

/* That something has been undone cannot be written: the next daemon does it again. */
static void test_undone_is_not_written(void)
{
        struct undo_journal *j = begin();
        struct undo_entry e;
        struct undo_failures f;

        CHECK_EQ(add(j, 10, 1), 0);
        CHECK_EQ(undo_journal_list(j, &e, 1), 1);
        disk.calls = 0;
        disk.half = true;
        disk.fail_at = 1;
        CHECK_EQ(undo_journal_done(j, e.id), -ENOSPC);
        check_has(j, 0, 0);
        undo_journal_failures(j, &f);
        CHECK_EQ(f.undone, 1);
        CHECK_EQ(f.entries, 0);
        CHECK_EQ(size_of(PATH), RECORD);
        check_next(j, 10, 1);
}

/* A real file that may not grow: the kernel writes half a record. */
static void test_limited(void)
{
        const struct rlimit most = {3 * RECORD + 50, 3 * RECORD + 50};
        struct undo_journal *j = begin();
        int status;
        pid_t child;

        CHECK_EQ(add(j, 10, 1), 0);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                signal(SIGXFSZ, SIG_IGN);
                CHECK_EQ(setrlimit(RLIMIT_FSIZE, &most), 0);
                CHECK_EQ(add(j, 20, 4), -ENOSPC);
                check_has(j, 10, 1);
                CHECK_EQ(size_of(PATH), RECORD);
                CHECK_EQ(add(j, 11, 1), 0); /* one still goes in */
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        check_next(j, 10, 2);
}

/* Removed while the daemon runs: what is in force is in the next file, before anything is added. */
static void test_removed(void)
{
        struct undo_journal *j = begin(), *other;

        CHECK_EQ(add(j, 10, 2), 0);
        CHECK_EQ(unlink(PATH), 0);
        CHECK_EQ(add(j, 12, 1), 0);
        CHECK_EQ(undo_journal_open(&io, PATH, boot, &other), -EBUSY);
        check_next(j, 10, 3);

        /* Another daemon was faster: this one adds nothing, and leaves that one's alone. */
        j = begin();
        CHECK_EQ(add(j, 10, 2), 0);
        CHECK_EQ(unlink(PATH), 0);
        other = open_at(PATH);
        CHECK_EQ(add(other, 20, 1), 0);
        CHECK_EQ(add(j, 12, 1), -EEXIST);
        CHECK_EQ(add(other, 21, 1), 0);
        check_has(j, 10, 2);
        undo_journal_free(j);
        check_next(other, 20, 2);

        /* When that one has gone, its file with what it left is replaced no more than it was. */
        j = begin();
        CHECK_EQ(unlink(PATH), 0);
        other = open_at(PATH);
        CHECK_EQ(add(other, 20, 1), 0);
        undo_journal_free(other);
        CHECK_EQ(add(j, 12, 1), -EEXIST);
        check_next(j, 20, 1);
}

static size_t fill(const char *path)
{
        static const char block[4096];
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        size_t n = 0;
        ssize_t r;

        CHECK(fd >= 0);
        while ((r = write(fd, block, sizeof(block))) > 0)
                n += (size_t)r;
        CHECK_EQ(errno, ENOSPC);
        close(fd);
        return n;
}

static size_t count_in(struct undo_journal *j)
{
        struct undo_entry e;

        return undo_journal_list(j, &e, 1);
}

/* In a child, in whose mounts there is a small file system. */
static int on_full_disk(void)
{
        struct undo_journal *j;
        size_t before = 0;
        int r = 0;

        if (unshare(CLONE_NEWNS) < 0 || mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/mnt", "tmpfs", 0, "size=64k") < 0)
                return 77;
        j = open_at("/mnt/journal");
        CHECK_EQ(add(j, 10, 1), 0);
        CHECK(fill("/mnt/rest") > 0);
        while (r == 0) {
                before = count_in(j);
                r = add(j, 11, 40); /* a batch of more than a page */
        }
        CHECK_EQ(r, -ENOSPC);
        CHECK_EQ(count_in(j), before);
        CHECK_EQ(size_of("/mnt/journal"), (off_t)before * RECORD);
        undo_journal_free(j);
        CHECK_EQ(unlink("/mnt/rest"), 0);
        j = open_at("/mnt/journal");
        CHECK_EQ(undo_journal_damaged(j), 0);
        CHECK_EQ(count_in(j), before);
        undo_journal_free(j);
        return 0;
}

static void test_full(void)
{
        int status;
        pid_t child = fork();

        CHECK(child >= 0);
        memset(&disk, 0, sizeof(disk));
        if (child == 0)
                _exit(on_full_disk());
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
                printf("no file system can be mounted here: not on a full one\n");
        else
                CHECK_EQ(WEXITSTATUS(status), 0);
}

int main(void)
{
        TEST(test_batch_fails);
        TEST(test_goes_on);
        TEST(test_cannot_be_taken_out);
        TEST(test_undone_is_not_written);
        TEST(test_limited);
        TEST(test_removed);
        TEST(test_full);
        unlink(PATH);
        return 0;
}
