/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Orders of policies carried out: the worker's thread, and the actuator on a
 * made-up driver: managed memory (uvm_fake.h) and channel groups whose time slices
 * survive a child that is killed at every step.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "policy/driver_actuator.h"
#include "policy/worker.h"
#include "unit/test.h"
#include "unit/uvm_fake.h"
#include "util/macro.h"
#include "util/time.h"

#define MIB    (1ull << 20)
#define PATH   "policy_actuator_test.journal"
#define GROUPS 2
#define MANY   (ACTUATOR_GROUPS_MAX + 3)

static const uint8_t boot[16] = {0xb0};

/* ---- channel groups of the made-up process ---- */

struct groups {
        uint64_t slice_us[MANY];
        unsigned sets, preempts;
        bool gone[MANY];
        bool failing[MANY];
        uint64_t least_us;  /* shorter slices become this */
        size_t noted_first; /* in the journal when the first slice was set */
};

static struct groups *groups; /* shared with children that are killed */
static uint32_t opened;       /* the group tsg calls are about: its handle */

static struct undo_journal *journal; /* of the world there is */

static size_t noted(void)
{
        struct undo_entry entry;

        return undo_journal_list(journal, &entry, 1);
}

static int tsg_fake_close(int fd)
{
        return 0;
}

/* NVOS54: object and command at 4 and 8, parameters at 16, status at 28. */
static int tsg_fake_ioctl(int fd, unsigned long request, void *argument)
{
        char *a = argument, *p;
        uint32_t object, command, status = 0;

        memcpy(&object, a + 4, 4);
        memcpy(&command, a + 8, 4);
        memcpy(&p, a + 16, 8);
        if (command == 0xd02)
                memcpy(&object, p, 4); /* asked of its client */
        if (fd == 1003) {
                memcpy(a + 28, &(uint32_t){0x23}, 4); /* NV_ERR_INVALID_CLIENT */
                return 0;
        }
        CHECK(object >= 1 && object <= MANY);
        opened = object;
        if (groups->gone[object - 1]) {
                status = 0x57; /* NV_ERR_OBJECT_NOT_FOUND */
        } else if (groups->failing[object - 1]) {
                status = 0xffff; /* NV_ERR_GENERIC */
        } else if (command == 0xa06c0103) {
                uvm_fake_step();
                if (!groups->sets)
                        groups->noted_first = noted();
                memcpy(&groups->slice_us[object - 1], p, 8);
                if (groups->slice_us[object - 1] < groups->least_us)
                        groups->slice_us[object - 1] = groups->least_us;
                groups->sets++;
        } else if (command == 0xa06c0104) {
                memcpy(p, &groups->slice_us[object - 1], 8);
        } else if (command == 0xa06c0105) {
                groups->preempts++;
        }
        memcpy(a + 28, &status, 4);
        return 0;
}

static void (*when_opened)(
        void); /* once: in the worker's thread, before it is known what to note */

#define OTHER_PID                                                                                  \
        (FAKE_PID + 1) /* that it does not return from calls about while the gate is shut */

static pthread_mutex_t other_gate = PTHREAD_MUTEX_INITIALIZER;

static int tsg_fake_pidfd_open(pid_t pid)
{
        void (*call)(void) = when_opened;

        when_opened = NULL;
        if (call)
                call();
        if (pid == OTHER_PID) {
                pthread_mutex_lock(&other_gate);
                pthread_mutex_unlock(&other_gate);
                return 1000;
        }
        CHECK_EQ(pid, FAKE_PID);
        return 1000;
}

static int group_fd; /* what the file that knows the groups is open as; 3 is another */

static int tsg_fake_getfd(int pidfd, int fd)
{
        if (fd == group_fd || fd == 3)
                return 1000 + fd;
        errno = EBADF;
        return -1;
}

static int tsg_fake_list(pid_t pid, int *ret_fds, size_t max)
{
        ret_fds[0] = 3;
        ret_fds[1] = group_fd;
        return 2;
}

static int tsg_fake_ticks(pid_t pid, uint64_t *ret_ticks)
{
        *ret_ticks = fake->ticks;
        return 0;
}

static bool tsg_fake_alive(int pidfd)
{
        return fake->alive;
}

static bool tsg_fake_control(int fd)
{
        return true;
}

static const struct rm_system tsg_rm = {.close = tsg_fake_close, .ioctl = tsg_fake_ioctl};
static const struct tsg_system tsg_fake = {.rm = &tsg_rm,
                                           .pidfd_open = tsg_fake_pidfd_open,
                                           .pidfd_getfd = tsg_fake_getfd,
                                           .start_ticks = tsg_fake_ticks,
                                           .is_alive = tsg_fake_alive,
                                           .is_control = tsg_fake_control,
                                           .list_controls = tsg_fake_list};

/* ---- a world ---- */

struct world {
        struct undo_journal *journal;
        struct uvm_ops *uvm;
        struct uvm_allocations allocations;
        struct driver_actuator_options options;
        struct policy_worker *worker;
        struct policy_result last;
        size_t results;
        bool known; /* the daemon knows the process */
        uint32_t group_count;
        uint64_t own_us[MANY]; /* what the process was seen to set */
        uint32_t client;       /* of its groups */
};

static uint64_t free_bytes;

static int get_free(void *data, const uint8_t gpu[16], uint64_t *ret_bytes)
{
        *ret_bytes = free_bytes;
        return 0;
}

static int find_process(void *data, uint32_t pid, uint64_t start_ticks,
                        struct actuator_process *ret_process)
{
        struct world *w = data;

        if (!w->known || pid != FAKE_PID || start_ticks != FAKE_TICKS)
                return -ESRCH;
        *ret_process = (struct actuator_process){.allocations = &w->allocations};
        for (uint32_t i = 0; i < w->group_count; i++) {
                const struct tsg_target group = {.pid = FAKE_PID,
                                                 .start_ticks = FAKE_TICKS,
                                                 .fd = 9,
                                                 .client = w->client,
                                                 .object = i + 1,
                                                 .slice_us = w->own_us[i]};

                CHECK_EQ(actuator_process_add(ret_process, &group), 0);
        }
        return 0;
}

/* The process's GPU is number 0; number 1 is one it does not use. */
static int find_gpu(void *data, uint32_t number, uint8_t ret_uuid[16])
{
        if (number > 1)
                return -ENODEV;
        memcpy(ret_uuid, fake_gpu_uuid, 16);
        ret_uuid[0] ^= (uint8_t)(number * 0xff);
        return 0;
}

static void open_world(struct world *w)
{
        const struct uvm_ops_options o = {
                .bytes_per_call = 8 * MIB, .reserve_bytes = MIB, .free_bytes = get_free};

        *w = (struct world){.known = true, .group_count = GROUPS, .client = 0xc1d00001};
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &w->journal), 0);
        journal = w->journal;
        CHECK_EQ(uvm_ops_new(&fake_system, w->journal, &o, &w->uvm), 0);
        CHECK_EQ(uvm_allocations_add(&w->allocations, FAKE_BASE, FAKE_BYTES, 1), 0);
        w->options = (struct driver_actuator_options){.uvm = w->uvm,
                                                      .journal = w->journal,
                                                      .tsg = &tsg_fake,
                                                      .process = find_process,
                                                      .gpu = find_gpu,
                                                      .data = w};
        CHECK_EQ(policy_worker_new(&driver_actuator_ops, &w->options, WORKER_LIMIT_NS, &w->worker),
                 0);
}

static void close_world(struct world *w)
{
        policy_worker_free(w->worker);
        uvm_ops_free(w->uvm);
        undo_journal_free(w->journal);
        uvm_allocations_done(&w->allocations);
}

static void begin(struct world *w)
{
        unlink(PATH);
        uvm_fake_reset();
        *groups = (struct groups){.slice_us = {2048, 2048}};
        group_fd = 9;
        free_bytes = 100 * MIB;
        open_world(w);
}

static void on_result(void *data, const struct policy_result *result)
{
        struct world *w = data;

        w->last = *result;
        w->results++;
}

static int perform(struct world *w, struct policy_action action, bool undo)
{
        static uint64_t id;
        struct policy_order order = {.id = ++id,
                                     .pid = FAKE_PID,
                                     .start_ticks = FAKE_TICKS,
                                     .undo = undo,
                                     .owner = "test",
                                     .action = action};

        CHECK(policy_worker_submit(w->worker, &order));
        policy_worker_flush(w->worker, on_result, w);
        CHECK_EQ(w->last.id, id);
        return w->last.error;
}

static const struct fake_page *page(uint64_t offset)
{
        return &fake->pages[offset / FAKE_PAGE];
}

/* ---- memory ---- */

static void test_memory(void)
{
        struct world w;

        begin(&w);
        CHECK_EQ(perform(&w, (struct policy_action){1, 0, 1, FAKE_BASE, 4 * MIB, 0}, false), 0);
        CHECK_EQ(w.last.bytes, 4 * MIB);
        CHECK_EQ(page(0)->resident, FAKE_GPU);
        CHECK_EQ(page(4 * MIB)->resident, 0);
        CHECK_EQ(perform(&w, (struct policy_action){1, POLICY_HOST, 1, FAKE_BASE, MIB, 0}, false),
                 0);
        CHECK_EQ(page(0)->resident, 0);
        CHECK_EQ(page(2 * MIB)->resident, FAKE_GPU);

        /* Advice, and all of it taken back. */
        CHECK_EQ(perform(&w, (struct policy_action){3, 0, 1, FAKE_BASE, MIB, 0}, false), 0);
        CHECK_EQ(perform(&w, (struct policy_action){4, 0, 1, FAKE_BASE, MIB, 1}, false), 0);
        CHECK_EQ(page(0)->preferred, FAKE_GPU);
        CHECK(page(0)->accessed_by);
        CHECK_EQ(perform(&w, (struct policy_action){3, POLICY_NOWHERE, 1, FAKE_BASE, MIB, 0}, true),
                 0);
        CHECK_EQ(perform(&w, (struct policy_action){4, 0, 1, FAKE_BASE, MIB, 0}, true), 0);
        CHECK_EQ(uvm_fake_advised_pages(), 0);

        free_bytes = MIB + 100;
        CHECK_EQ(perform(&w, (struct policy_action){1, 0, 1, FAKE_BASE, 4 * MIB, 0}, false),
                 -ENOSPC);
        CHECK_EQ(w.last.bytes, 0);
        CHECK_EQ(perform(&w, (struct policy_action){1, 0, 1, 4096, MIB, 0}, false), -EFAULT);
        close_world(&w);
}

/* Advice that is given again and again is in the journal once, which has room for no more. */
static void test_advice_again(void)
{
        struct undo_entry other = {.kind = UNDO_TIME_SLICE, .pid = FAKE_PID}, e[2];
        struct world w;
        uint64_t id;

        begin(&w);
        for (size_t i = 0; i < UNDO_ENTRIES_MAX - 2; i++)
                CHECK_EQ(undo_journal_add(w.journal, &other, &id), 0);
        for (int i = 0; i < 5; i++) {
                CHECK_EQ(perform(&w, (struct policy_action){3, 0, 1, FAKE_BASE, MIB, 0}, false), 0);
                CHECK_EQ(perform(&w, (struct policy_action){4, 0, 1, FAKE_BASE, MIB, 1}, false), 0);
        }
        CHECK_EQ(perform(&w, (struct policy_action){5, 0, 1, FAKE_BASE, MIB, 1}, false), -EIO);
        CHECK_EQ(undo_journal_list(w.journal, e, ARRAY_SIZE(e)), UNDO_ENTRIES_MAX);
        CHECK_EQ(perform(&w, (struct policy_action){3, POLICY_NOWHERE, 1, FAKE_BASE, MIB, 0}, true),
                 0);
        CHECK_EQ(perform(&w, (struct policy_action){4, 0, 1, FAKE_BASE, MIB, 0}, true), 0);
        CHECK_EQ(uvm_fake_advised_pages(), 0);
        CHECK_EQ(undo_journal_list(w.journal, e, ARRAY_SIZE(e)), UNDO_ENTRIES_MAX - 2);

        /* Another place for the same memory is undone by the same entry, more memory is not. */
        CHECK_EQ(perform(&w, (struct policy_action){3, 0, 1, FAKE_BASE, MIB, 0}, false), 0);
        CHECK_EQ(perform(&w, (struct policy_action){3, POLICY_HOST, 1, FAKE_BASE, MIB, 0}, false),
                 0);
        CHECK_EQ(perform(&w, (struct policy_action){3, 0, 1, FAKE_BASE, 2 * MIB, 0}, false), 0);
        CHECK_EQ(undo_journal_list(w.journal, e, ARRAY_SIZE(e)), UNDO_ENTRIES_MAX);
        close_world(&w);
}

/* The driver fails: some of the advice may hold, and is set back. It refuses: nothing does. */
static void test_advice_fails(void)
{
        const struct policy_action prefer = {3, 0, 1, FAKE_BASE, MIB, 0};
        struct undo_entry e;
        struct world w;

        begin(&w);
        fake->next_status = 0xffff; /* NV_ERR_GENERIC */
        CHECK_EQ(perform(&w, prefer, false), -EREMOTEIO);
        CHECK(w.last.in_part);
        CHECK_EQ(undo_journal_list(w.journal, &e, 1), 1);
        CHECK_EQ(perform(&w, (struct policy_action){3, POLICY_NOWHERE, 1, FAKE_BASE, MIB, 0}, true),
                 0);
        CHECK_EQ(undo_journal_list(w.journal, &e, 1), 0);
        fake->next_status = 0x1f; /* NV_ERR_INVALID_ARGUMENT */
        CHECK_EQ(perform(&w, prefer, false), -EREMOTEIO);
        CHECK(!w.last.in_part);
        CHECK_EQ(undo_journal_list(w.journal, &e, 1), 0);
        fake->next_status = 0xffff;
        CHECK_EQ(perform(&w, (struct policy_action){1, 0, 1, FAKE_BASE, MIB, 0}, false),
                 -EREMOTEIO);
        CHECK(!w.last.in_part); /* where memory lies is no setting */
        close_world(&w);
}

static void test_gone(void)
{
        const struct policy_action migrate = {1, 0, 1, FAKE_BASE, MIB, 0};
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct world w;

        begin(&w);
        fake->ticks++; /* the pid is another process's by now */
        CHECK_EQ(perform(&w, migrate, false), -ESRCH);
        CHECK_EQ(perform(&w, slice, false), -ESRCH);
        fake->ticks--;
        fake->alive = false;
        CHECK_EQ(perform(&w, migrate, false), -ESRCH);
        CHECK_EQ(perform(&w, slice, false), -ESRCH);
        w.known = false;
        CHECK_EQ(perform(&w, migrate, false), -ESRCH);
        CHECK_EQ(groups->sets, 0);
        CHECK_EQ(perform(&w, (struct policy_action){8, 0, 1, 0, 0, 2}, false), -EOPNOTSUPP);
        close_world(&w);
}

/* ---- time slices ---- */

static size_t journal_count(struct world *w)
{
        struct undo_entry entries[8];

        return undo_journal_list(w->journal, entries, ARRAY_SIZE(entries));
}

static void test_slices(void)
{
        struct world w;

        begin(&w);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 8000}, false), 0);
        CHECK_EQ(w.last.before, 2048);
        CHECK_EQ(groups->slice_us[0], 8000);
        CHECK_EQ(groups->slice_us[1], 8000);
        CHECK_EQ(journal_count(&w), 2);
        for (uint64_t us = 1000; us < 1020; us++)
                CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, us}, false), 0);
        CHECK_EQ(w.last.before, 1018);
        CHECK_EQ(journal_count(&w), 2); /* what was before the first time is enough */
        CHECK_EQ(perform(&w, (struct policy_action){7, 0, 1, 0, 0, 0}, false), 0);
        CHECK_EQ(groups->preempts, 2);

        groups->gone[1] = true;
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 500}, false), 0);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 2048}, true), 0);
        CHECK_EQ(groups->slice_us[0], 2048);
        CHECK_EQ(journal_count(&w), 0);
        groups->gone[0] = true;
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 500}, false), -ENOENT);
        close_world(&w);
}

/* One group refuses: what the others got is in force, set back with them, and it is counted. */
static void test_slice_in_part(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct world w;

        for (int failing = 0; failing < GROUPS; failing++) {
                begin(&w);
                groups->failing[failing] = true;
                CHECK_EQ(perform(&w, slice, false), 0);
                CHECK_EQ(w.last.missed, 1);
                CHECK_EQ(groups->slice_us[!failing], 8000);
                CHECK_EQ(groups->slice_us[failing], 2048);
                CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 2048}, true), 0);
                CHECK_EQ(groups->slice_us[!failing], 2048);

                /* One that has gone is not missed; nor does it hide that the other failed. */
                groups->gone[!failing] = true;
                CHECK_EQ(perform(&w, slice, false), -EIO);
                CHECK_EQ(w.last.missed, 0);
                groups->failing[failing] = false;
                CHECK_EQ(perform(&w, slice, false), 0);
                CHECK_EQ(w.last.missed, 0);
                close_world(&w);
        }
}

/* Processes and groups that have gone leave nothing behind; a journal that is full is no GPU that
 * is.
 */
static void test_slices_of_what_has_gone(void)
{
        struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct undo_entry e = {.kind = UNDO_TIME_SLICE,
                               .pid = FAKE_PID,
                               .start_ticks = FAKE_TICKS,
                               .values = {1, GROUPS + 1, 2048, 9}};
        struct undo_entry all[8];
        struct world w;
        uint64_t id;

        begin(&w);
        CHECK_EQ(perform(&w, slice, false), 0);
        driver_actuator_forget(&w.options, FAKE_PID, FAKE_TICKS + 1);
        CHECK_EQ(journal_count(&w), GROUPS);
        driver_actuator_forget(&w.options, FAKE_PID, FAKE_TICKS);
        CHECK_EQ(journal_count(&w), 0);

        while (undo_journal_add(w.journal, &e, &id) == 0)
                ;
        CHECK_EQ(undo_journal_list(w.journal, all, ARRAY_SIZE(all)), UNDO_ENTRIES_MAX);
        slice.value = 4000;
        CHECK_EQ(perform(&w, slice, false), -EIO);
        CHECK_EQ(groups->slice_us[0], 8000);
        groups->gone[GROUPS] = true;
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(groups->slice_us[0], 4000);
        CHECK_EQ(journal_count(&w), GROUPS);
        close_world(&w);
}

/* As those of a server that many clients share: all up to a bound, the rest is counted. */
static void test_many_groups(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct world w;

        begin(&w);
        for (int i = 0; i < MANY; i++)
                groups->slice_us[i] = 2048;
        w.group_count = MANY;
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(w.last.missed, MANY - ACTUATOR_GROUPS_MAX);
        for (int i = 0; i < MANY; i++)
                CHECK_EQ(groups->slice_us[i], i < ACTUATOR_GROUPS_MAX ? 8000 : 2048);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 2048}, true), 0);
        for (int i = 0; i < MANY; i++)
                CHECK_EQ(groups->slice_us[i], 2048);
        CHECK_EQ(journal_count(&w), 0);

        /* Orders that are dropped leave nothing behind. */
        for (uint64_t id = 1; id < 100; id++)
                CHECK(policy_worker_submit(w.worker,
                                           &(struct policy_order){.id = id,
                                                                  .pid = FAKE_PID,
                                                                  .start_ticks = FAKE_TICKS,
                                                                  .action = slice}));
        close_world(&w);
}

/* The driver makes another slice of it than was asked for: that failed, and nothing of it stays. */
static void test_slice_reads_back_another(void)
{
        struct world w;

        begin(&w);
        groups->least_us = 1000;
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 500}, false), -EPROTO);
        CHECK_EQ(groups->slice_us[0], 2048);
        CHECK_EQ(groups->slice_us[1], 2048);
        CHECK_EQ(journal_count(&w), 0);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 8000}, false), 0);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 500}, false), -EPROTO);
        CHECK_EQ(groups->slice_us[0], 8000); /* what was in force still is */
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 2048}, true), 0);
        CHECK_EQ(groups->slice_us[1], 2048);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
}

/* What could not be set back is not set. */
static void test_slice_of_nothing(void)
{
        struct world w;

        begin(&w);
        groups->slice_us[0] = groups->slice_us[1] = 0;
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 8000}, false), -EOPNOTSUPP);
        CHECK_EQ(groups->sets, 0);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
}

/* The process has its file open under another number by now: it is found, and the slice set back.
 */
static void test_other_descriptor(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct world w;

        begin(&w);
        CHECK_EQ(perform(&w, slice, false), 0);
        group_fd = 12;
        CHECK_EQ(perform(&w, slice, false), -EBADF); /* until it is seen to use it */
        CHECK_EQ(journal_count(&w), 2);
        CHECK_EQ(perform(&w, slice, true), 0);
        CHECK_EQ(groups->slice_us[0], 2048);
        CHECK_EQ(groups->slice_us[1], 2048);
        CHECK_EQ(journal_count(&w), 0);
        group_fd = 9;
        CHECK_EQ(perform(&w, slice, false), 0);
        groups->gone[0] = groups->gone[1] = true;
        CHECK_EQ(perform(&w, slice, true), 0);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
}

/* A group comes later, and the process sets slices itself: in force is ours, set back its own. */
static void test_slices_changed(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct world w;

        begin(&w);
        w.group_count = 1;
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(groups->slice_us[1], 2048);
        w.group_count = 2;
        groups->slice_us[1] = 1500; /* as the driver makes it */
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(groups->slice_us[1], 8000);
        CHECK_EQ(journal_count(&w), 2);
        for (uint64_t us = 3000; us < 3010; us++) {
                groups->slice_us[1] = w.own_us[1] = us;
                CHECK_EQ(perform(&w, slice, false), 0);
                CHECK_EQ(groups->slice_us[1], 8000);
                CHECK_EQ(journal_count(&w), 2);
        }
        CHECK_EQ(perform(&w, slice, true), 0);
        CHECK_EQ(groups->slice_us[0], 2048);
        CHECK_EQ(groups->slice_us[1], 3009);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
}

/* A child acts and is killed at the n-th step that leaves a trace. True: it came to its end. */
static bool acts_and_is_killed(struct world *w, int n, void act(struct world *w))
{
        int status;
        pid_t child = fork();

        CHECK(child >= 0);
        if (child == 0) {
                open_world(w);
                fake->deaths_left = n;
                act(w);
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        fake->deaths_left = 0;
        return WIFEXITED(status);
}

/* The next daemon sets everything back: slices are as the process had them. */
static void check_set_back(struct world *w, uint32_t first_us)
{
        struct undo_entry entries[8];
        size_t n;

        open_world(w);
        n = undo_journal_list(w->journal, entries, ARRAY_SIZE(entries));
        for (size_t i = 0; i < n; i++)
                CHECK_EQ(driver_actuator_undo(&w->options, &entries[i]), 0);
        CHECK_EQ(groups->slice_us[0], first_us);
        CHECK_EQ(groups->slice_us[1], 2048);
        CHECK_EQ(journal_count(w), 0);
        close_world(w);
}

static void set_twice(struct world *w)
{
        (void)perform(w, (struct policy_action){6, 0, 1, 0, 0, 8000}, false);
        (void)perform(w, (struct policy_action){6, 0, 1, 0, 0, 300}, false);
}

/* Killed at any step, the next daemon sets everything back. How many steps there are. */
static int kill_at_each_step(void act(struct world *w), uint32_t first_us)
{
        bool finished = false;
        struct world w;
        int n;

        for (n = 1; !finished; n++) {
                begin(&w);
                close_world(&w);
                finished = acts_and_is_killed(&w, n, act);
                check_set_back(&w, first_us);
        }
        return n - 2;
}

static void test_killed(void)
{
        int steps = kill_at_each_step(set_twice, 2048);

        CHECK(steps > 4); /* two notes, four slices at least were steps to die at */
        printf("killed at each of %d steps\n", steps);
}

static const struct policy_action one_slice = {6, 0, 1, 0, 0, 8000};

static void set_again(struct world *w)
{
        w->own_us[0] = 3000;
        (void)perform(w, one_slice, false);
}

/* The same where the process sets a slice after ours: the next daemon sets that one back. */
static void test_killed_after_change(void)
{
        bool finished = false;
        struct world w;
        int n;

        for (n = 1; !finished; n++) {
                begin(&w);
                CHECK_EQ(perform(&w, one_slice, false), 0);
                close_world(&w);
                groups->slice_us[0] = 3000;
                /* As this daemon still has it in its journal. */
                finished = acts_and_is_killed(&w, n, set_again);
                /* Not written down yet: the process's own is still in force. */
                if (groups->slice_us[0] != 3000)
                        check_set_back(&w, 3000);
        }
        CHECK(n > 3); /* the note and a slice at least were steps to die at */
}

/* ---- the worker ---- */

struct slow {
        pthread_mutex_t gate; /* held: nothing is performed */
        uint64_t next_id;     /* results come in order */
        size_t results;
};

static int slow_plan(void *data, const struct policy_order *order, void *plan)
{
        return order->id % 3 ? 0 : -EOPNOTSUPP;
}

static void slow_perform(void *data, const struct policy_order *order, const void *plan,
                         struct policy_result *result)
{
        struct slow *s = data;

        pthread_mutex_lock(&s->gate);
        result->bytes = order->id;
        pthread_mutex_unlock(&s->gate);
}

static const struct policy_worker_ops slow_ops = {.plan = slow_plan, .perform = slow_perform};

static void on_slow(void *data, const struct policy_result *result)
{
        struct slow *s = data;

        CHECK_EQ(result->id, s->next_id++);
        CHECK_EQ(result->error, result->id % 3 ? 0 : -EOPNOTSUPP);
        CHECK_EQ(result->bytes, result->id % 3 ? result->id : 0);
        s->results++;
}

static void test_worker(void)
{
        struct slow s = {.gate = PTHREAD_MUTEX_INITIALIZER, .next_id = 1};
        struct policy_worker *w;
        uint64_t id = 1;

        CHECK_EQ(policy_worker_new(&slow_ops, &s, WORKER_LIMIT_NS, &w), 0);
        pthread_mutex_lock(&s.gate);
        while (policy_worker_submit(w, &(struct policy_order){.id = id}))
                id++;
        CHECK_EQ(id, WORKER_ORDERS_MAX + 1);
        policy_worker_collect(w, on_slow, &s);
        CHECK_EQ(s.results, 0);
        pthread_mutex_unlock(&s.gate);
        policy_worker_flush(w, on_slow, &s);
        CHECK_EQ(s.results, WORKER_ORDERS_MAX);

        /* Ending does not wait for orders that have not begun. */
        pthread_mutex_lock(&s.gate);
        for (int i = 0; i < 100; i++)
                CHECK(policy_worker_submit(w, &(struct policy_order){.id = id++}));
        pthread_mutex_unlock(&s.gate);
        policy_worker_free(w);
        CHECK_EQ(s.results, WORKER_ORDERS_MAX);
}

static void on_hurried(void *data, const struct policy_result *result)
{
        struct slow *s = data;

        s->results += result->error == -ECANCELED;
        s->next_id += result->error == 0;
}

/* At the end only what undoes is still carried out. */
static void test_hurry(void)
{
        struct slow s = {.gate = PTHREAD_MUTEX_INITIALIZER};
        struct policy_worker *w;

        CHECK_EQ(policy_worker_new(&slow_ops, &s, WORKER_LIMIT_NS, &w), 0);
        pthread_mutex_lock(&s.gate);
        for (int i = 0; i < 100; i++)
                CHECK(policy_worker_submit(w, &(struct policy_order){.id = 1, .undo = i >= 90}));
        policy_worker_hurry(w);
        pthread_mutex_unlock(&s.gate);
        policy_worker_flush(w, on_hurried, &s);
        CHECK(s.results >= 89); /* the first may have begun */
        CHECK_EQ(s.results + s.next_id, 100);
        CHECK(s.next_id >= 10);
        policy_worker_free(w);
}

/* ---- calls that do not return ---- */

#define SHORT_NS NSEC_PER_SEC /* longer than whoever does return may be held up */
#define SLOW_ID  500          /* orders from this id on take a while */
#define STUCK_ID 1000         /* those from this one on do not return until they are let go */
#define LATE_ID  2000         /* nor these at once then */

struct sticky {
        pthread_mutex_t gate; /* held: such orders do not return */
        atomic_uint begun, performed, released;
        unsigned done, refused, given_up, late;
};

static int sticky_plan(void *data, const struct policy_order *order, void *plan)
{
        return 0;
}

static void sticky_perform(void *data, const struct policy_order *order, const void *plan,
                           struct policy_result *result)
{
        struct sticky *s = data;

        s->begun++;
        if (order->id >= STUCK_ID) {
                pthread_mutex_lock(&s->gate);
                pthread_mutex_unlock(&s->gate);
        }
        if (order->id >= LATE_ID)
                usleep(SHORT_NS / 5000);
        else if (order->id >= SLOW_ID && order->id < STUCK_ID)
                usleep(SHORT_NS / 2000);
        result->bytes = order->id;
        s->performed++;
}

static void sticky_release(void *data, void *plan)
{
        struct sticky *s = data;

        s->released++;
}

static const struct policy_worker_ops sticky_ops = {
        .plan = sticky_plan, .perform = sticky_perform, .release = sticky_release};

static void on_sticky(void *data, const struct policy_result *result)
{
        struct sticky *s = data;

        if (result->late)
                CHECK(result->error == 0 && result->bytes == result->id);
        else if (result->given_up)
                CHECK(result->error == -EINPROGRESS && result->id >= STUCK_ID);
        s->late += result->late;
        s->given_up += result->given_up;
        s->refused += result->error == -EINPROGRESS && !result->given_up;
        s->done += result->error == 0 && !result->late;
}

static void submit_for(struct policy_worker *w, uint64_t id, uint32_t pid)
{
        CHECK(policy_worker_submit(w, &(struct policy_order){.id = id, .pid = pid}));
}

/* As the daemon does: no flush. */
static void collect_until(struct policy_worker *w, struct sticky *s, const unsigned *counter,
                          unsigned wanted)
{
        for (int i = 0; i < 60000 && *counter < wanted; i++) {
                usleep(1000);
                policy_worker_watch(w);
                policy_worker_collect(w, on_sticky, s);
        }
        CHECK_EQ(*counter, wanted);
}

/* Others go on, orders for the same process are refused; the late result comes, then all goes. */
static void test_stuck(void)
{
        struct sticky s = {.gate = PTHREAD_MUTEX_INITIALIZER};
        struct policy_worker *w;

        CHECK_EQ(policy_worker_new(&sticky_ops, &s, SHORT_NS, &w), 0);
        pthread_mutex_lock(&s.gate);
        submit_for(w, 1, 7);
        submit_for(w, STUCK_ID, 7);
        submit_for(w, 2, 8);
        submit_for(w, 3, 7);
        submit_for(w, 4, 9);
        collect_until(w, &s, &s.done, 3);
        CHECK(s.given_up == 1 && s.refused == 1 && s.late == 0);
        CHECK_EQ(s.released, 4);
        submit_for(w, 5, 7);
        policy_worker_flush(w, on_sticky, &s);
        CHECK_EQ(s.refused, 2);
        CHECK(policy_worker_is_stuck(w, 7, 0));
        CHECK(!policy_worker_is_stuck(w, 8, 0) && !policy_worker_is_stuck(w, 7, 1));
        pthread_mutex_unlock(&s.gate);
        collect_until(w, &s, &s.late, 1);
        CHECK(!policy_worker_is_stuck(w, 7, 0));
        CHECK_EQ(s.released, 6);
        submit_for(w, 6, 7);
        policy_worker_flush(w, on_sticky, &s);
        CHECK_EQ(s.done, 4);
        policy_worker_free(w);
        CHECK_EQ(policy_worker_abandoned(), 0);
}

/* Too many: all is refused at once, until one returns. */
static void test_stuck_often(void)
{
        struct sticky s = {.gate = PTHREAD_MUTEX_INITIALIZER};
        struct policy_worker *w;

        CHECK_EQ(policy_worker_new(&sticky_ops, &s, SHORT_NS, &w), 0);
        pthread_mutex_lock(&s.gate);
        for (uint32_t i = 0; i < WORKER_STUCK_MAX; i++)
                submit_for(w, STUCK_ID + i, i + 1);
        submit_for(w, 1, 100);
        policy_worker_flush(w, on_sticky, &s);
        CHECK(s.given_up == WORKER_STUCK_MAX && s.refused == 1 && s.done == 0);
        submit_for(w, 2, 100);
        policy_worker_collect(w, on_sticky, &s);
        CHECK_EQ(s.refused, 2);
        pthread_mutex_unlock(&s.gate);
        collect_until(w, &s, &s.late, WORKER_STUCK_MAX);
        submit_for(w, 3, 1);
        policy_worker_flush(w, on_sticky, &s);
        CHECK_EQ(s.done, 1);
        policy_worker_free(w);
        CHECK_EQ(s.released, WORKER_STUCK_MAX + 3);
}

/* Ending does not wait, whether the call was given up before or not; and knows when it returns. */
static void test_stuck_at_the_end(void)
{
        for (int before = 0; before < 2; before++) {
                struct sticky s = {.gate = PTHREAD_MUTEX_INITIALIZER};
                struct policy_worker *w;
                uint64_t begun_ns;

                CHECK_EQ(policy_worker_new(&sticky_ops, &s, SHORT_NS, &w), 0);
                pthread_mutex_lock(&s.gate);
                submit_for(w, STUCK_ID, 1);
                submit_for(w, 1, 2);
                if (before)
                        policy_worker_flush(w, on_sticky, &s);
                while (!s.begun)
                        usleep(1000);
                begun_ns = now_ns();
                policy_worker_free(w);
                CHECK(now_ns() - begun_ns < 100 * SHORT_NS);
                CHECK_EQ(policy_worker_abandoned(), 1);
                CHECK_EQ(s.released, 1);
                pthread_mutex_unlock(&s.gate);
                for (int i = 0; i < 60000 && policy_worker_abandoned(); i++)
                        usleep(1000);
                CHECK_EQ(policy_worker_abandoned(), 0);
                CHECK_EQ(s.released, 2);
        }
}

/* A call that was given up returns while the end waits for another. */
static void test_returns_at_the_end(void)
{
        struct sticky s = {.gate = PTHREAD_MUTEX_INITIALIZER};
        struct policy_worker *w;

        CHECK_EQ(policy_worker_new(&sticky_ops, &s, SHORT_NS, &w), 0);
        pthread_mutex_lock(&s.gate);
        submit_for(w, LATE_ID, 1);
        collect_until(w, &s, &s.given_up, 1);
        submit_for(w, SLOW_ID, 2);
        while (s.begun < 2)
                usleep(1000);
        pthread_mutex_unlock(&s.gate);
        policy_worker_free(w);
        for (int i = 0; i < 60000 && policy_worker_abandoned(); i++)
                usleep(1000);
        CHECK_EQ(policy_worker_abandoned(), 0);
        CHECK_EQ(s.released, 2);
}

/* ---- the disk ---- */

/* However many groups: one wait for the disk, before the first is set. */
static void test_one_sync(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct world w;
        unsigned before;

        begin(&w);
        for (int i = 0; i < MANY; i++)
                groups->slice_us[i] = 2048;
        w.group_count = ACTUATOR_GROUPS_MAX;
        before = fake->syncs;
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(fake->syncs - before, 1);
        CHECK_EQ(journal_count(&w), ACTUATOR_GROUPS_MAX);
        CHECK_EQ(groups->noted_first, ACTUATOR_GROUPS_MAX);
        CHECK_EQ(perform(&w, slice, false), 0); /* all is noted */
        CHECK_EQ(fake->syncs - before, 1);
        CHECK_EQ(perform(&w, slice, true), 0);
        close_world(&w);
}

static void order_slice(struct world *w, uint64_t us)
{
        static uint64_t id = 1000000;
        const struct policy_order order = {.id = ++id,
                                           .pid = FAKE_PID,
                                           .start_ticks = FAKE_TICKS,
                                           .owner = "test",
                                           .action = {6, 0, 1, 0, 0, us}};

        CHECK(policy_worker_submit(w->worker, &order));
}

/*
 * A run that sets the slices of many processes, here one whose groups become more: all of it is on
 * the disk at once before the first is set, as far as the process was seen to set its slices.
 */
static void test_one_sync_a_run(void)
{
        struct world w;
        unsigned before;

        begin(&w);
        w.options.notes = actuator_notes_new();
        CHECK(w.options.notes);
        for (int i = 0; i < 64; i++)
                groups->slice_us[i] = w.own_us[i] = 2048;
        before = fake->syncs;
        policy_worker_hold(w.worker, true);
        for (w.group_count = 8; w.group_count <= 64; w.group_count += 8)
                order_slice(&w, 8000 - w.group_count);
        usleep(10000);
        CHECK_EQ(groups->sets, 0);
        CHECK_EQ(fake->syncs, before);
        policy_worker_hold(w.worker, false);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(w.results, 8);
        CHECK_EQ(fake->syncs - before, 1);
        CHECK_EQ(groups->noted_first, 64);
        CHECK_EQ(journal_count(&w), 64);
        w.group_count = 64;
        CHECK_EQ(groups->slice_us[63], 8000 - 64);

        /* What the process sets since takes its place; what has ended is not noted. */
        w.own_us[3] = 3000;
        policy_worker_hold(w.worker, true);
        order_slice(&w, 5000);
        order_slice(&w, 6000);
        policy_worker_hold(w.worker, false);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(fake->syncs - before, 2);
        CHECK_EQ(journal_count(&w), 64);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 2048}, true), 0);
        CHECK_EQ(groups->slice_us[3], 3000);
        CHECK_EQ(groups->slice_us[4], 2048);
        CHECK_EQ(journal_count(&w), 0);
        policy_worker_hold(w.worker, true);
        order_slice(&w, 5000);
        driver_actuator_forget(&w.options, FAKE_PID, FAKE_TICKS);
        fake->alive = false;
        policy_worker_hold(w.worker, false);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(w.last.error, -ESRCH);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
        actuator_notes_free(w.options.notes);
}

static pthread_mutex_t own_gate = PTHREAD_MUTEX_INITIALIZER;

static void wait_for_gate(void)
{
        pthread_mutex_lock(&own_gate);
        pthread_mutex_unlock(&own_gate);
}

static void collect_late(struct world *w)
{
        for (int i = 0; i < 5000 && !w->last.late; i++) {
                usleep(1000);
                policy_worker_collect(w->worker, on_result, w);
        }
        CHECK(w->last.late);
}

/*
 * Orders that are refused as the one before does not return were noted with it, or wait to be:
 * setting back what is noted takes that out, too.
 */
static void test_notes_of_what_was_refused(void)
{
        struct policy_order back = {.id = 1,
                                    .pid = FAKE_PID,
                                    .start_ticks = FAKE_TICKS,
                                    .undo = true,
                                    .noted = true,
                                    .owner = "test",
                                    .action = {6, 0, 1, 0, 0, 8000}};
        struct world w;

        begin(&w);
        policy_worker_free(w.worker);
        CHECK_EQ(policy_worker_new(&driver_actuator_ops, &w.options, SHORT_NS, &w.worker), 0);
        w.options.notes = actuator_notes_new();
        CHECK(w.options.notes);
        for (int i = 0; i < 3; i++)
                groups->slice_us[i] = w.own_us[i] = 2048;
        pthread_mutex_lock(&own_gate);
        when_opened = wait_for_gate;
        policy_worker_hold(w.worker, true);
        for (w.group_count = 1; w.group_count <= 2; w.group_count++)
                order_slice(&w, 8000);
        policy_worker_hold(w.worker, false);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(w.last.error, -EINPROGRESS);
        CHECK_EQ(journal_count(&w), 2);
        order_slice(&w, 8000);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(w.results, 3);
        CHECK_EQ(journal_count(&w), 2);
        CHECK_EQ(groups->sets, 0);
        pthread_mutex_unlock(&own_gate);
        collect_late(&w);
        CHECK_EQ(w.last.error, 0);
        CHECK_EQ(groups->slice_us[0], 8000);
        CHECK(policy_worker_submit(w.worker, &back));
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(w.last.error, 0);
        CHECK_EQ(journal_count(&w), 0);
        for (int i = 0; i < 3; i++)
                CHECK_EQ(groups->slice_us[i], 2048);
        w.group_count = 1;
        order_slice(&w, 8000);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(journal_count(&w), 1); /* its own alone */
        close_world(&w);
        actuator_notes_free(w.options.notes);
}

static struct world *ending;

static void end_process(void)
{
        driver_actuator_forget(&ending->options, FAKE_PID, FAKE_TICKS);
}

/*
 * The process ends, or replaces its program, while its order is carried out: it may be noted after
 * that, as the driver's client lives on in our duplicate. Nothing of it stays; what the program
 * that came in its place has set does.
 */
static void test_ends_while_carried_out(void)
{
        struct world w;

        begin(&w);
        ending = &w;
        w.options.notes = actuator_notes_new();
        w.own_us[0] = 2048; /* noted for all that wait; the other by its order */
        policy_worker_hold(w.worker, true);
        order_slice(&w, 8000);
        order_slice(&w, 6000);
        when_opened = end_process;
        policy_worker_hold(w.worker, false);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK(!when_opened);
        CHECK_EQ(groups->slice_us[1], 6000);
        CHECK_EQ(journal_count(&w), 0);

        /* The next program, whose order waits as the last one of the first is over. */
        policy_worker_hold(w.worker, true);
        order_slice(&w, 5000);
        end_process();
        w.client = 0xc1d00002;
        order_slice(&w, 4000);
        policy_worker_hold(w.worker, false);
        policy_worker_flush(w.worker, on_result, &w);
        CHECK_EQ(journal_count(&w), GROUPS);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 2048}, true), 0);
        CHECK_EQ(journal_count(&w), 0);
        close_world(&w);
        actuator_notes_free(w.options.notes);
}

static void set_held(struct world *w)
{
        w->options.notes = actuator_notes_new();
        w->own_us[0] = w->own_us[1] = 2048;
        policy_worker_hold(w->worker, true);
        order_slice(w, 8000);
        order_slice(w, 300);
        policy_worker_hold(w->worker, false);
        policy_worker_flush(w->worker, on_result, w);
}

static void test_killed_in_a_run(void)
{
        CHECK(kill_at_each_step(set_held, 2048) > 4);
}

/* The process sets a slice itself between two orders that wait: the first one knows less. */
static void set_between(struct world *w)
{
        unsigned before = fake->syncs;

        w->options.notes = actuator_notes_new();
        w->own_us[0] = w->own_us[1] = 2048;
        policy_worker_hold(w->worker, true);
        order_slice(w, 8000);
        groups->slice_us[0] = w->own_us[0] = 3000;
        order_slice(w, 300);
        policy_worker_hold(w->worker, false);
        policy_worker_flush(w->worker, on_result, w);
        CHECK_EQ(fake->syncs - before, 1);
}

static void test_killed_after_change_in_a_run(void)
{
        CHECK(kill_at_each_step(set_between, 3000) > 4);
}

/* Some find no room in the journal: these are not set, and missed. */
static void test_journal_fills(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct undo_entry e = {
                .kind = UNDO_UVM_PREFERRED, .pid = FAKE_PID, .start_ticks = FAKE_TICKS};
        struct world w;
        uint64_t id;

        begin(&w);
        for (size_t i = 0; i < UNDO_ENTRIES_MAX - 1; i++)
                CHECK_EQ(undo_journal_add(w.journal, &e, &id), 0);
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(w.last.missed, 1);
        CHECK_EQ(groups->slice_us[0], 8000);
        CHECK_EQ(groups->slice_us[1], 2048);
        close_world(&w);
}

/*
 * ... of another process, from a call about which the driver does not return: one order is given up
 * for it, and those after it leave that process alone.
 */
static void test_journal_is_full_of_what_hangs(void)
{
        const struct policy_action slice = {6, 0, 1, 0, 0, 8000};
        struct undo_entry e = {.kind = UNDO_TIME_SLICE,
                               .pid = OTHER_PID,
                               .start_ticks = FAKE_TICKS,
                               .values = {1, GROUPS + 1, 2048, 9}};
        struct world w;
        uint64_t id;

        begin(&w);
        policy_worker_free(w.worker);
        CHECK_EQ(policy_worker_new(&driver_actuator_ops, &w.options, SHORT_NS, &w.worker), 0);
        for (size_t i = 0; i < UNDO_ENTRIES_MAX - 2; i++)
                CHECK_EQ(undo_journal_add(w.journal, &e, &id), 0);
        e.pid = FAKE_PID;
        e.values[1]++;
        groups->gone[GROUPS + 1] = true;
        for (size_t i = 0; i < 2; i++)
                CHECK_EQ(undo_journal_add(w.journal, &e, &id), 0);

        pthread_mutex_lock(&other_gate);
        CHECK_EQ(perform(&w, slice, false), -EINPROGRESS);
        CHECK(w.last.given_up);
        CHECK(policy_worker_is_stuck(w.worker, OTHER_PID, FAKE_TICKS));
        CHECK(!policy_worker_is_stuck(w.worker, FAKE_PID, FAKE_TICKS));
        CHECK_EQ(groups->sets, 0);
        CHECK_EQ(perform(&w, slice, false), 0);
        CHECK_EQ(w.last.missed, 0); /* what it has freed itself made room */
        CHECK_EQ(groups->slice_us[1], 8000);
        pthread_mutex_unlock(&other_gate);
        collect_late(&w);
        CHECK(!policy_worker_is_stuck(w.worker, OTHER_PID, FAKE_TICKS));
        CHECK_EQ(journal_count(&w), UNDO_ENTRIES_MAX);
        close_world(&w);
}

/* A thread may be in a call when the daemon ends: another has the journal, with all that is in it.
 */
static void test_journal_is_let_go(void)
{
        struct undo_entry e[2] = {
                {.kind = UNDO_TIME_SLICE, .pid = FAKE_PID, .start_ticks = FAKE_TICKS},
                {.kind = UNDO_TIME_SLICE, .pid = FAKE_PID, .start_ticks = FAKE_TICKS}};
        struct undo_journal *other;
        struct world w;
        size_t added = 7;

        begin(&w);
        CHECK_EQ(undo_journal_add_all(w.journal, e, 2, &added), 0);
        CHECK(added == 2 && e[0].id && e[1].id > e[0].id);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &other), -EBUSY);
        undo_journal_shut(w.journal);
        CHECK_EQ(undo_journal_open(&fake_io, PATH, boot, &other), 0);
        CHECK_EQ(undo_journal_list(other, e, 2), 2);
        undo_journal_free(other);
        CHECK_EQ(perform(&w, (struct policy_action){6, 0, 1, 0, 0, 8000}, false), -EIO);
        CHECK_EQ(groups->slice_us[0], 2048); /* what cannot be noted is not set */
        e[1].pid = 0;
        added = 7;
        CHECK_EQ(undo_journal_add_all(w.journal, e, 2, &added), -EINVAL);
        CHECK_EQ(added, 7);
        close_world(&w);
}

int main(void)
{
        groups = mmap(NULL, sizeof(*groups), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        CHECK(groups != MAP_FAILED);
        TEST(test_worker);
        TEST(test_hurry);
        TEST(test_stuck);
        TEST(test_stuck_often);
        TEST(test_stuck_at_the_end);
        TEST(test_returns_at_the_end);
        TEST(test_memory);
        TEST(test_advice_again);
        TEST(test_advice_fails);
        TEST(test_gone);
        TEST(test_slices);
        TEST(test_slice_in_part);
        TEST(test_slices_of_what_has_gone);
        TEST(test_many_groups);
        TEST(test_one_sync);
        TEST(test_one_sync_a_run);
        TEST(test_notes_of_what_was_refused);
        TEST(test_ends_while_carried_out);
        TEST(test_killed_in_a_run);
        TEST(test_killed_after_change_in_a_run);
        TEST(test_journal_fills);
        TEST(test_journal_is_full_of_what_hangs);
        TEST(test_journal_is_let_go);
        TEST(test_slice_reads_back_another);
        TEST(test_slice_of_nothing);
        TEST(test_other_descriptor);
        TEST(test_slices_changed);
        TEST(test_killed);
        TEST(test_killed_after_change);
        unlink(PATH);
        return 0;
}
