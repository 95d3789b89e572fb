/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Moving and advising on memory of another process, on a made-up driver: what is
 * refused and why, what is clipped, what is undone, and a journal that is killed
 * at every write, sync, rename and call of the driver.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/undo_journal.h"
#include "driver/uvm_ops.h"
#include "unit/test.h"
#include "unit/uvm_fake.h"
#include "util/macro.h"

#define MIB  (1ULL << 20)
#define PATH "uvm_ops_test.journal"

static const uint8_t boot[16] = {0xb0};
static const uint8_t other_boot[16] = {0xb1};
static uint64_t free_bytes;
static int free_error;

static int get_free(void *data, const uint8_t gpu[16], uint64_t *ret_bytes)
{
        CHECK(data == &free_bytes && memcmp(gpu, fake_gpu_uuid, 16) == 0);
        *ret_bytes = free_bytes;
        return free_error;
}

struct world {
        struct undo_journal *journal;
        struct uvm_ops *ops;
        struct uvm_allocations allocations;
};

static void open_world(struct world *w)
{
        const struct uvm_ops_options o = {.bytes_per_call = 8 * MIB,
                                          .reserve_bytes = MIB,
                                          .free_bytes = get_free,
                                          .data = &free_bytes};

        *w = (struct world){0};
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &w->journal), 0);
        CHECK_EQ(uvm_ops_new(&fake_system, w->journal, &o, &w->ops), 0);
        CHECK_EQ(uvm_allocations_add(&w->allocations, FAKE_BASE, 4 * MIB, 1), 0);
        CHECK_EQ(uvm_allocations_add(&w->allocations, FAKE_BASE + 4 * MIB, 4 * MIB, 1), 0);
        /* After a hole: not page-aligned at either end. */
        CHECK_EQ(uvm_allocations_add(&w->allocations, FAKE_BASE + 12 * MIB + 100, 10000, 1), 0);
}

static void close_world(struct world *w)
{
        uvm_ops_free(w->ops);
        undo_journal_free(w->journal);
        uvm_allocations_done(&w->allocations);
}

static void begin(struct world *w)
{
        unlink(PATH);
        uvm_fake_reset();
        free_bytes = 100 * MIB;
        free_error = 0;
        open_world(w);
}

static void end(struct world *w)
{
        close_world(w);
        CHECK_EQ(fake->open_files, 0);
        CHECK(access(PATH ".new", F_OK) < 0);
        unlink(PATH);
}

static struct uvm_request ask(enum uvm_op op, uint64_t offset, uint64_t bytes, bool to_cpu)
{
        struct uvm_request q = {.op = op,
                                .pid = FAKE_PID,
                                .start_ticks = FAKE_TICKS,
                                .address = FAKE_BASE + offset,
                                .bytes = bytes,
                                .to_cpu = to_cpu,
                                .owner = "test"};

        memcpy(q.gpu, fake_gpu_uuid, 16);
        return q;
}

/* Plan and run; the plan's error or the run's. */
static enum uvm_op_error do_it(struct world *w, struct uvm_request q, struct uvm_outcome *out)
{
        struct uvm_plan plan;
        enum uvm_op_error e = uvm_ops_plan(w->ops, &w->allocations, &q, &plan);

        if (e != UVM_OP_OK)
                return e;
        uvm_ops_run(w->ops, &plan, out);
        return out->error;
}

static size_t in_force(struct world *w)
{
        struct undo_entry e;

        return undo_journal_list(w->journal, &e, 1);
}

/* ---- migrating ---- */

static uint64_t resident_bytes(uint8_t processor)
{
        uint64_t n = 0;

        for (size_t i = 0; i < FAKE_PAGES; i++)
                n += fake->pages[i].resident == processor;
        return n * FAKE_PAGE;
}

static void test_migrate(void)
{
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 4 * MIB, false), &out), UVM_OP_OK);
        CHECK(out.bytes == 4 * MIB && out.pieces == 1 && !out.clipped);
        CHECK_EQ(resident_bytes(FAKE_GPU), 4 * MIB);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, MIB, MIB, true), &out), UVM_OP_OK);
        CHECK_EQ(resident_bytes(FAKE_GPU), 3 * MIB);
        /* Over both allocations and the hole: two pieces, and the limit of a call. */
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 16 * MIB, false), &out), UVM_OP_OK);
        CHECK(out.bytes == 8 * MIB && out.pieces == 2 && out.clipped);
        CHECK_EQ(resident_bytes(FAKE_GPU), 8 * MIB);
        CHECK_EQ(fake->pages[8 * MIB / FAKE_PAGE].resident, 0);
        CHECK_EQ(in_force(&w), 0);
        end(&w);
}

static void test_clip_pages(void)
{
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        /* 100 .. 10100: one whole page of it. The page before belongs to who knows whom. */
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 12 * MIB, MIB, false), &out), UVM_OP_OK);
        CHECK_EQ(out.bytes, FAKE_PAGE);
        CHECK_EQ(fake->pages[12 * MIB / FAKE_PAGE].resident, 0);
        CHECK_EQ(fake->pages[12 * MIB / FAKE_PAGE + 1].resident, FAKE_GPU);
        CHECK_EQ(fake->pages[12 * MIB / FAKE_PAGE + 2].resident, 0);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 1, 4096, false), &out), UVM_OP_TOO_SMALL);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 9 * MIB, MIB, false), &out), UVM_OP_NO_ALLOCATION);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 0, false), &out), UVM_OP_INVALID);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, UINT64_MAX, false), &out), UVM_OP_INVALID);
        CHECK_EQ(do_it(&w, ask(UVM_OP_COUNT, 0, MIB, false), &out), UVM_OP_INVALID);
        end(&w);
}

static void test_room(void)
{
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        free_bytes = 6 * MIB; /* less 1 MiB kept: two blocks of 2 MiB fit */
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 4 * MIB, false), &out), UVM_OP_OK);
        CHECK_EQ(out.bytes, 4 * MIB);
        free_bytes = 4 * MIB;
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 8 * MIB, false), &out), UVM_OP_OK);
        CHECK(out.bytes == 2 * MIB && out.clipped);
        free_bytes = 2 * MIB;
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 4 * MIB, false), &out), UVM_OP_NO_ROOM);
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, 4 * MIB, true), &out), UVM_OP_OK);
        /* Advice is not cut short. */
        free_bytes = 4 * MIB;
        CHECK_EQ(do_it(&w, ask(UVM_OP_PREFER, 0, 4 * MIB, false), &out), UVM_OP_NO_ROOM);
        CHECK_EQ(in_force(&w), 0);
        free_error = -EIO;
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, MIB, false), &out), UVM_OP_NO_FREE_BYTES);
        end(&w);
}

static void test_refusals(void)
{
        struct uvm_request q = ask(UVM_OP_MIGRATE, 0, MIB, false);
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        q.start_ticks++;
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_PROCESS_GONE);
        q.start_ticks--;
        fake->alive = false;
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_PROCESS_GONE);
        fake->alive = true;
        memset(q.gpu, 9, 16);
        q.op = UVM_OP_ACCESSED_BY;
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_UNKNOWN_GPU);
        fake->next_status = 0x51;
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, MIB, false), &out), UVM_OP_NO_ROOM);
        CHECK_EQ(out.status, 0x51);
        fake->next_status = 0x0000ffff;
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, MIB, false), &out), UVM_OP_DRIVER);
        fake->pages[3].managed = 0; /* freed, and we did not hear of it */
        CHECK_EQ(do_it(&w, ask(UVM_OP_MIGRATE, 0, MIB, false), &out), UVM_OP_NO_ALLOCATION);
        fake->no_discard = true;
        CHECK_EQ(do_it(&w, ask(UVM_OP_DISCARD, MIB, MIB, false), &out), UVM_OP_NOT_SUPPORTED);
        fake->no_discard = false;
        CHECK_EQ(do_it(&w, ask(UVM_OP_DISCARD, MIB, MIB, false), &out), UVM_OP_OK);
        CHECK_EQ(fake->pages[MIB / FAKE_PAGE].discarded, 1);
        for (int e = 0; e < UVM_OP_ERROR_COUNT; e++) {
                CHECK(uvm_op_error_text((enum uvm_op_error)e)[0]);
                CHECK_EQ(uvm_op_error_number((enum uvm_op_error)e) == 0, e == UVM_OP_OK);
        }
        end(&w);
}

/* ---- advice ---- */

struct undone {
        size_t undone, gone, failed;
};

/* All advice of an owner, NULL: of everybody. */
static void undo(struct world *w, const char *owner, struct undone *ret_undone)
{
        struct undo_entry entries[64];
        size_t n = undo_journal_list(w->journal, entries, ARRAY_SIZE(entries));

        CHECK(n <= ARRAY_SIZE(entries));
        *ret_undone = (struct undone){0};
        for (size_t i = 0; i < n; i++) {
                int r;

                if (!uvm_ops_is_advice(&entries[i]) ||
                    (owner && strcmp(entries[i].owner, owner) != 0))
                        continue;
                r = uvm_ops_undo(w->ops, &entries[i]);
                ret_undone->undone += r == 0;
                ret_undone->gone += r == -ESRCH;
                ret_undone->failed += r < 0 && r != -ESRCH;
        }
}

static void test_advice_and_undo(void)
{
        struct undone undone;
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        CHECK_EQ(do_it(&w, ask(UVM_OP_PREFER, 0, 8 * MIB, true), &out), UVM_OP_OK);
        CHECK_EQ(fake->pages[5].preferred, 0);
        CHECK_EQ(in_force(&w), 2); /* a piece each */
        CHECK_EQ(do_it(&w, ask(UVM_OP_ACCESSED_BY, 0, MIB, false), &out), UVM_OP_OK);
        CHECK_EQ(fake->pages[5].accessed_by, 1 << FAKE_GPU);
        CHECK_EQ(do_it(&w, ask(UVM_OP_DUPLICATE, 0, MIB, false), &out), UVM_OP_OK);
        CHECK_EQ(in_force(&w), 4);
        /* Taken back by request: that entry goes. */
        CHECK_EQ(do_it(&w, ask(UVM_OP_NOT_DUPLICATE, 0, MIB, false), &out), UVM_OP_OK);
        CHECK(in_force(&w) == 3 && fake->pages[5].duplicated == 0);
        undo(&w, "somebody", &undone);
        CHECK(undone.undone == 0 && in_force(&w) == 3);
        undo(&w, "test", &undone);
        CHECK(undone.undone == 3 && undone.failed == 0 && undone.gone == 0);
        CHECK(in_force(&w) == 0 && uvm_fake_advised_pages() == 0);
        end(&w);
}

static void test_others_advice(void)
{
        struct uvm_request q = ask(UVM_OP_PREFER, 0, MIB, true);
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_OK);
        strcpy(q.owner, "another");
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_HELD);
        q.op = UVM_OP_UNPREFER;
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_HELD);
        q = ask(UVM_OP_PREFER, 4 * MIB, MIB, true);
        uvm_allocations_advised(&w.allocations, FAKE_BASE + 4 * MIB, 1);
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_ADVISED);
        q.op = UVM_OP_MIGRATE; /* moves memory, says nothing of it */
        CHECK_EQ(do_it(&w, q, &out), UVM_OP_OK);
        end(&w);
}

/* What an outlived daemon finds: processes gone, memory gone, another boot, a driver that fails. */
static void test_replay(void)
{
        struct undone undone;
        struct uvm_outcome out;
        struct world w;

        begin(&w);
        CHECK_EQ(do_it(&w, ask(UVM_OP_PREFER, 0, 8 * MIB, true), &out), UVM_OP_OK);
        close_world(&w);
        open_world(&w); /* another daemon */
        CHECK_EQ(in_force(&w), 2);
        fake->next_status = 0xffff;
        undo(&w, NULL, &undone);
        CHECK(undone.failed == 1 && undone.undone == 1 && in_force(&w) == 1);
        fake->ticks++; /* the pid is another process's */
        undo(&w, NULL, &undone);
        CHECK(undone.gone == 1 && in_force(&w) == 0);
        CHECK_EQ(uvm_fake_advised_pages(), 4 * MIB / FAKE_PAGE); /* the first one's: untouched */
        fake->ticks--;

        CHECK_EQ(do_it(&w, ask(UVM_OP_PREFER, 0, 4 * MIB, true), &out), UVM_OP_OK);
        fake->pages[1].managed = 0; /* freed meanwhile */
        undo(&w, NULL, &undone);
        CHECK(undone.gone == 1 && in_force(&w) == 0);
        fake->pages[1].managed = 1;

        CHECK_EQ(do_it(&w, ask(UVM_OP_PREFER, 0, 8 * MIB, true), &out), UVM_OP_OK);
        uvm_ops_forget(w.ops, FAKE_PID, FAKE_TICKS + 1, 0, 0);
        CHECK_EQ(in_force(&w), 2);
        uvm_ops_forget(w.ops, FAKE_PID, FAKE_TICKS, FAKE_BASE, 4 * MIB);
        CHECK_EQ(in_force(&w), 1);
        undo_journal_free(w.journal);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, other_boot, &w.journal), 0);
        CHECK_EQ(in_force(&w), 0);
        end(&w);
}

/* ---- the journal ---- */

static struct undo_entry entry(uint64_t n)
{
        return (struct undo_entry){.kind = UNDO_TIME_SLICE,
                                   .pid = 1,
                                   .start_ticks = n,
                                   .values = {n},
                                   .owner = "test"};
}

static void test_journal_is_one_daemons(void)
{
        struct undo_journal *a, *b;

        unlink(PATH);
        uvm_fake_reset();
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &a), 0);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &b), -EBUSY);
        undo_journal_free(a);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &b), 0);
        undo_journal_free(b);
}

/* What the daemon that ends does at the very moment when the next one has opened its file. */
static int lock_late(int fd, int operation)
{
        struct undo_journal *j;
        struct undo_entry e = entry(7);
        uint64_t id;

        if (access(PATH ".other", F_OK) == 0) {
                CHECK_EQ(undo_journal_open(&fake_io, PATH ".other", boot, &j), 0);
                CHECK_EQ(undo_journal_add(j, &e, &id), 0);
                undo_journal_free(j);
                CHECK_EQ(rename(PATH ".other", PATH), 0);
        }
        return flock(fd, operation);
}

static void test_journal_replaced_before_its_lock(void)
{
        const struct undo_io late_io = {.write = write,
                                        .sync = fdatasync,
                                        .truncate = ftruncate,
                                        .rename = rename,
                                        .unlink = unlink,
                                        .lock = lock_late};
        struct undo_journal *j, *other;
        struct undo_entry e;

        uvm_fake_reset();
        for (size_t i = 0; i < 2; i++) {
                unlink(PATH);
                CHECK_EQ(undo_journal_open(&fake_io, i ? PATH : PATH ".other", boot, &j), 0);
                undo_journal_free(j);
        }
        CHECK_EQ(undo_journal_open(&late_io, PATH, boot, &j), 0);
        CHECK_EQ(undo_journal_list(j, &e, 1), 1);
        CHECK_EQ(e.start_ticks, 7);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &other), -EBUSY);
        undo_journal_free(j);
        unlink(PATH);
}

static void test_journal_bounds(void)
{
        struct undo_journal *j;
        struct undo_entry e;
        struct stat st;
        uint64_t id = 0;

        unlink(PATH);
        uvm_fake_reset();
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &j), 0);
        for (uint64_t i = 0; i < 9000; i++) {
                e = entry(i);
                CHECK_EQ(undo_journal_add(j, &e, &id), 0);
                CHECK_EQ(undo_journal_done(j, id), 0);
        }
        CHECK_EQ(undo_journal_done(j, id), -ENOENT);
        CHECK_EQ(stat(PATH, &st), 0);
        CHECK(st.st_size <= 4 * UNDO_ENTRIES_MAX * 128);
        for (uint64_t i = 0; i < UNDO_ENTRIES_MAX; i++) {
                e = entry(i);
                CHECK_EQ(undo_journal_add(j, &e, &id), 0);
        }
        CHECK_EQ(undo_journal_add(j, &e, &id), -ENOSPC);
        e.kind = UNDO_NONE;
        CHECK_EQ(undo_journal_add(j, &e, &id), -EINVAL);
        undo_journal_free(j);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &j), 0);
        CHECK_EQ(undo_journal_list(j, &e, 1), UNDO_ENTRIES_MAX);
        CHECK_EQ(undo_journal_damaged(j), 0);
        CHECK_STR(e.owner, "test");
        undo_journal_free(j);
        unlink(PATH);
}

/* A bit anywhere in a record spoils that record and no other. */
static void test_journal_damage(void)
{
        for (off_t at = 0; at < 3 * 128; at += 3) {
                struct undo_entry list[4], e;
                struct undo_journal *j;
                uint64_t id;
                uint8_t byte;
                int fd;

                unlink(PATH);
                uvm_fake_reset();
                CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &j), 0);
                for (uint64_t i = 0; i < 3; i++) {
                        e = entry(i);
                        CHECK_EQ(undo_journal_add(j, &e, &id), 0);
                }
                undo_journal_free(j);
                fd = open(PATH, O_RDWR);
                CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
                byte ^= 0x10;
                CHECK_EQ(pwrite(fd, &byte, 1, at), 1);
                CHECK_EQ(pwrite(fd, "torn", 4, 3 * 128), 4);
                close(fd);
                CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &j), 0);
                CHECK_EQ(undo_journal_list(j, list, 4), 2);
                CHECK_EQ(undo_journal_damaged(j), 2);
                for (uint64_t i = 0, k = 0; i < 3; i++)
                        if ((off_t)i != at / 128)
                                CHECK_EQ(list[k++].values[0], i);
                e = entry(9);
                CHECK_EQ(undo_journal_add(j, &e, &id), 0);
                CHECK(id > 2);
                undo_journal_free(j);
                CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &j), 0);
                CHECK_EQ(undo_journal_list(j, list, 4), 3);
                CHECK_EQ(undo_journal_damaged(j), 0);
                undo_journal_free(j);
        }
        unlink(PATH);
}

static void test_foreign_file(void)
{
        char text[300];
        struct undo_journal *j;
        struct stat st;
        FILE *f = fopen(PATH, "w");

        memset(text, 'x', sizeof(text));
        CHECK(f && fwrite(text, sizeof(text), 1, f) == 1);
        fclose(f);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &j), -EMEDIUMTYPE);
        CHECK(stat(PATH, &st) == 0 && st.st_size == sizeof(text));
        unlink(PATH);
        CHECK_EQ(undo_journal_open(&fake_io, "no/such/directory", boot, &j), -ENOENT);
}

/* ---- death ---- */

/* A daemon's life: advice given, some taken back, some undone, more given. */
static void live(void)
{
        struct undone undone;
        struct uvm_outcome out;
        struct world w;

        open_world(&w);
        undo(&w, NULL, &undone);
        (void)do_it(&w, ask(UVM_OP_PREFER, 0, 8 * MIB, true), &out);
        (void)do_it(&w, ask(UVM_OP_ACCESSED_BY, 0, MIB, false), &out);
        (void)do_it(&w, ask(UVM_OP_UNPREFER, 0, 4 * MIB, false), &out);
        (void)do_it(&w, ask(UVM_OP_DUPLICATE, 0, MIB, false), &out);
        undo(&w, "test", &undone);
        (void)do_it(&w, ask(UVM_OP_PREFER, MIB, MIB, false), &out);
        close_world(&w);
}

/* True when the child reached the end. */
static bool live_and_die(int deaths)
{
        int status;
        pid_t pid;

        fflush(NULL);
        fake->deaths_left = deaths;
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                live();
                _exit(0);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        fake->deaths_left = 0;
        CHECK(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
        return WIFEXITED(status);
}

/*
 * Killed at the n-th step, for every n, and killed again at each step of the next
 * life in between: whoever comes after finds everything and sets it back.
 */
static void test_killed_anywhere(void)
{
        int n = 1, steps;

        free_bytes = 100 * MIB;
        for (bool whole = false; !whole; n++) {
                unlink(PATH);
                uvm_fake_reset();
                whole = live_and_die(n);
                for (int again = n % 7 + 1; again < 40; again += 7) {
                        struct undone undone;
                        struct world w;

                        fake->open_files = 0; /* the kernel closes those of the dead */
                        open_world(&w);
                        undo(&w, NULL, &undone);
                        CHECK_EQ(undone.failed, 0);
                        CHECK_EQ(uvm_fake_advised_pages(), 0);
                        CHECK_EQ(in_force(&w), 0);
                        close_world(&w);
                        (void)live_and_die(again);
                }
        }
        steps = n - 2;
        printf("killed at each of %d steps\n", steps);
        CHECK(steps > 40);
        unlink(PATH);
        unlink(PATH ".new");
}

int main(void)
{
        TEST(test_migrate);
        TEST(test_clip_pages);
        TEST(test_room);
        TEST(test_refusals);
        TEST(test_advice_and_undo);
        TEST(test_others_advice);
        TEST(test_replay);
        TEST(test_journal_is_one_daemons);
        TEST(test_journal_replaced_before_its_lock);
        TEST(test_journal_bounds);
        TEST(test_journal_damage);
        TEST(test_foreign_file);
        TEST(test_killed_anywhere);
        return 0;
}
