/* SPDX-License-Identifier: Apache-2.0 */

/* A journal of any bytes: it opens or is refused, and then takes entries and keeps them. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "driver/undo_journal.h"
#include "unit/test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int no_sync(int fd)
{
        (void)fd;
        return 0;
}

/* The real writes, but no waiting for the disk. */
static const struct undo_io io = {.write = write,
                                  .sync = no_sync,
                                  .truncate = ftruncate,
                                  .rename = rename,
                                  .unlink = unlink,
                                  .lock = flock};

static size_t check_entries(struct undo_journal *j)
{
        static struct undo_entry list[UNDO_ENTRIES_MAX];
        size_t n = undo_journal_list(j, list, UNDO_ENTRIES_MAX);

        CHECK(n <= UNDO_ENTRIES_MAX);
        for (size_t i = 0; i < n; i++) {
                CHECK(list[i].kind > UNDO_NONE && list[i].kind < UNDO_KINDS && list[i].pid > 0);
                CHECK(memchr(list[i].owner, '\0', UNDO_OWNER_BYTES));
                for (size_t k = 0; k < i; k++)
                        CHECK(list[k].id != list[i].id);
        }
        return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const struct undo_entry e = {.kind = UNDO_TIME_SLICE, .pid = 1, .owner = "fuzz"};
        char path[64];
        uint8_t boot[16] = {0};
        struct undo_journal *j;
        size_t before;
        uint64_t id;
        int fd, r;

        snprintf(path, sizeof(path), "undo_journal_fuzz.%d", (int)getpid());
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size);
        close(fd);
        r = undo_journal_open(&io, path, boot, &j);
        CHECK(r == 0 || r == -EMEDIUMTYPE);
        if (r == 0) {
                before = check_entries(j);
                CHECK_EQ(undo_journal_add(j, &e, &id), 0);
                undo_journal_free(j);
                CHECK_EQ(undo_journal_open(&io, path, boot, &j), 0);
                CHECK_EQ(check_entries(j), before + 1);
                CHECK_EQ(undo_journal_damaged(j), 0);
                CHECK_EQ(undo_journal_done(j, id), 0);
                undo_journal_free(j);
        }
        unlink(path);
        return 0;
}
