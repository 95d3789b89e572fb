/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Channel groups of other processes: against made-up processes and a made-up RM
 * (structs spelled out as bytes), and the checks of who it is against real ones.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "driver/tsg.h"
#include "unit/test.h"
#include "util/proc_stat.h"

#define PIDFD 50
#define FD    60

static struct {
        int open_files;
        uint64_t ticks;   /* of the process that has the pid */
        bool dead, other; /* the process has ended; its fd is another file */
        int getfd_errno;
        uint32_t status;
        uint64_t timeslice;
        uint64_t rounding; /* what RM says is less by this */
        unsigned char preempt[8];
        uint32_t command, client, object;
        bool short_uuid;
        bool no_subdevice;
        int files; /* the group's is the last of them: 9 and up; 0: 9 alone */
} fake;

static int fake_close(int fd)
{
        CHECK(fd == PIDFD || fd == FD);
        fake.open_files--;
        return 0;
}

/* From a group to its device, from that to a subdevice, from that to the UUID. */
static bool gpu_ioctl(char *p, uint32_t size)
{
        uint32_t words[2];

        memcpy(words, p, sizeof(words));
        switch (fake.command) {
        case 0xd02:
                CHECK_EQ(size, 16);
                CHECK(fake.object == fake.client && words[0] == 0x5c000010);
                memcpy(p + 8, &(uint64_t){words[1] == 1 ? 0x5c000001 : 0xa06c}, 8);
                return true;
        case 0x800293:
                CHECK_EQ(size, 8);
                CHECK(fake.object == 0x5c000001 && words[0] == 0);
                memcpy(p + 4, &(uint32_t){0x5c000002}, 4);
                return true;
        case 0x2080014a:
                CHECK_EQ(size, 268);
                CHECK(fake.object == 0x5c000002 && words[0] == 0 && words[1] == 2);
                memcpy(p + 8, &(uint32_t){fake.short_uuid ? 15 : 16}, 4);
                memcpy(p + 12, "0123456789abcdef", 16);
                return true;
        }
        return false;
}

/* NVOS54: client, object, command at 0, 4, 8; parameters at 16; size at 24; status at 28. */
static int fake_ioctl(int fd, unsigned long request, void *argument)
{
        char *a = argument, *p;
        uint32_t size;

        CHECK_EQ(fd, FD);
        CHECK_EQ(request, 0xc020462a);
        memcpy(&fake.client, a, 4);
        memcpy(&fake.object, a + 4, 4);
        memcpy(&fake.command, a + 8, 4);
        memcpy(&p, a + 16, 8);
        memcpy(&size, a + 24, 4);
        if (fake.no_subdevice && fake.command == 0x800293)
                fake.status = 0x57;
        memcpy(a + 28, &fake.status, 4);
        if (fake.status)
                return 0;
        switch (fake.command) {
        case 0xa06c0103:
                CHECK_EQ(size, 8);
                memcpy(&fake.timeslice, p, 8);
                fake.timeslice -= fake.rounding;
                return 0;
        case 0xa06c0104:
                CHECK_EQ(size, 8);
                memcpy(p, &fake.timeslice, 8);
                return 0;
        case 0xa06c0105:
                CHECK_EQ(size, 8);
                memcpy(fake.preempt, p, 8);
                return 0;
        case 0xa06c0106:
                CHECK_EQ(size, 4);
                memcpy(p, &(uint32_t){17}, 4);
                return 0;
        }
        if (gpu_ioctl(p, size))
                return 0;
        CHECK(false);
        return -1;
}

static const struct rm_system fake_rm = {.close = fake_close, .ioctl = fake_ioctl};

static int fake_pidfd_open(pid_t pid)
{
        CHECK_EQ(pid, 4000);
        fake.open_files++;
        return PIDFD;
}

static int fake_pidfd_getfd(int pidfd, int fd)
{
        CHECK_EQ(pidfd, PIDFD);
        CHECK(fd == 9 || (fd > 9 && fd < 9 + fake.files));
        if (fake.files && fd == 9) {
                errno = EBADF;
                return -1;
        }
        fake.status = fake.files && fd < 8 + fake.files ? 0x23 : 0;
        if (fake.getfd_errno) {
                errno = fake.getfd_errno;
                return -1;
        }
        fake.open_files++;
        return FD;
}

static int fake_start_ticks(pid_t pid, uint64_t *ret_ticks)
{
        *ret_ticks = fake.ticks;
        return 0;
}

static bool fake_is_alive(int pidfd)
{
        return !fake.dead;
}

static int fake_list_controls(pid_t pid, int *ret_fds, size_t max)
{
        for (int i = 1; i < fake.files && i <= (int)max; i++)
                ret_fds[i - 1] = 9 + i;
        return fake.files ? fake.files - 1 : 0;
}

static bool fake_is_control(int fd)
{
        return !fake.other;
}

static const struct tsg_system fake_system = {
        .rm = &fake_rm,
        .pidfd_open = fake_pidfd_open,
        .pidfd_getfd = fake_pidfd_getfd,
        .start_ticks = fake_start_ticks,
        .is_alive = fake_is_alive,
        .is_control = fake_is_control,
        .list_controls = fake_list_controls,
};
static const struct tsg_target target = {
        .pid = 4000, .start_ticks = 123, .fd = 9, .client = 0xc1d00001, .object = 0x5c000010};

static struct tsg *open_fake(void)
{
        struct tsg *t;

        memset(&fake, 0, sizeof(fake));
        fake.ticks = 123;
        fake.timeslice = 2048;
        CHECK_EQ(tsg_open(&fake_system, &target, &t), 0);
        CHECK_EQ(fake.open_files, 1);
        return t;
}

static void close_fake(struct tsg *t)
{
        tsg_close(t);
        CHECK_EQ(fake.open_files, 0);
}

static void time_slices_are_set_and_read_back(void)
{
        struct tsg *t = open_fake();
        uint64_t us = 0;

        CHECK_EQ(tsg_get_timeslice(t, &us), 0);
        CHECK_EQ(us, 2048);
        CHECK_EQ(tsg_set_timeslice(t, 8000, &us), 0);
        CHECK_EQ(us, 8000);
        CHECK_EQ(fake.timeslice, 8000);
        CHECK_EQ(fake.client, 0xc1d00001);
        CHECK_EQ(fake.object, 0x5c000010);
        CHECK_EQ(tsg_set_timeslice(t, 0, &us), -EINVAL);
        fake.rounding = 1;
        CHECK_EQ(tsg_set_timeslice(t, 500, &us), -EPROTO);
        CHECK_EQ(us, 499);
        close_fake(t);
}

static void groups_are_preempted_and_named(void)
{
        static const unsigned char at_once[8] = {0}, waiting[8] = {1, 1, 0, 0, 0xe8, 3, 0, 0};
        struct tsg *t = open_fake();
        uint32_t id;

        CHECK_EQ(tsg_preempt(t, 1000), 0);
        CHECK(memcmp(fake.preempt, waiting, 8) == 0);
        CHECK_EQ(tsg_preempt(t, 0), 0);
        CHECK(memcmp(fake.preempt, at_once, 8) == 0);
        CHECK_EQ(tsg_preempt(t, 1000001), -EINVAL);
        CHECK_EQ(tsg_get_id(t, &id), 0);
        CHECK_EQ(id, 17);
        close_fake(t);
}

static void the_gpu_is_told(void)
{
        struct tsg *t = open_fake();
        uint8_t uuid[16] = {0};

        CHECK_EQ(tsg_get_gpu(t, uuid), 0);
        CHECK(memcmp(uuid, "0123456789abcdef", 16) == 0);
        memset(uuid, 7, sizeof(uuid));
        fake.short_uuid = true;
        CHECK_EQ(tsg_get_gpu(t, uuid), -EPROTO);
        fake.no_subdevice = true;
        CHECK_EQ(tsg_get_gpu(t, uuid), -ENODATA); /* the group itself is there */
        fake.status = 0x57;
        CHECK_EQ(tsg_get_gpu(t, uuid), -ENOENT);
        CHECK_EQ(uuid[15], 7);
        close_fake(t);
}

/* Closed, but open under another number, which is the last of many. */
static void a_group_is_found_in_any_file(void)
{
        struct tsg *t = open_fake();
        uint64_t us;

        close_fake(t);
        fake.files = 100;
        t = NULL;
        CHECK_EQ(tsg_open_any(&fake_system, &target, &t), 0);
        CHECK_EQ(fake.open_files, 1);
        CHECK_EQ(tsg_get_timeslice(t, &us), 0);
        close_fake(t);
        t = NULL;
        fake.files = 1;
        CHECK_EQ(tsg_open_any(&fake_system, &target, &t), -EBADF);
        fake.dead = true;
        CHECK_EQ(tsg_open_any(&fake_system, &target, &t), -ESRCH);
        CHECK(!t);
        CHECK_EQ(fake.open_files, 0);
}

static void what_rm_says_becomes_an_error(void)
{
        static const struct {
                uint32_t status;
                int error;
        } cases[] = {{0x57, -ENOENT},  {0x33, -ENOENT}, {0x23, -ENOENT}, {0x1b, -EACCES},
                     {0x56, -ENOTSUP}, {0x1f, -EINVAL}, {0x0f, -ENODEV}, {0x65, -ETIMEDOUT},
                     {0x17, -EBUSY},   {0x40, -EIO}};
        struct tsg *t = open_fake();
        uint64_t us = 1;

        for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
                fake.status = cases[i].status;
                CHECK_EQ(tsg_get_timeslice(t, &us), cases[i].error);
                CHECK_EQ(tsg_set_timeslice(t, 100, &us), cases[i].error);
                CHECK_EQ(tsg_preempt(t, 0), cases[i].error);
        }
        CHECK_EQ(us, 1);
        close_fake(t);
}

static void check_refused(int error)
{
        struct tsg *t = NULL;

        CHECK_EQ(tsg_open(&fake_system, &target, &t), error);
        CHECK(!t);
        CHECK_EQ(fake.open_files, 0);
}

static void another_process_is_left_alone(void)
{
        memset(&fake, 0, sizeof(fake));
        fake.ticks = 124; /* the pid was reused */
        check_refused(-ESRCH);
        fake.ticks = 123;
        fake.dead = true;
        check_refused(-ESRCH);
        fake.dead = false;
        fake.getfd_errno = EBADF;
        check_refused(-EBADF);
        fake.getfd_errno = EPERM;
        check_refused(-EPERM);
        fake.getfd_errno = 0;
        fake.other = true; /* the descriptor was reused */
        check_refused(-ENODEV);
}

/* The real system calls, on a child that has /dev/null where nvidiactl should be. */
static void real_processes_are_checked(void)
{
        struct tsg_target t = {.fd = -1};
        struct tsg *tsg = NULL;
        pid_t child;
        int status, null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

        CHECK(null_fd >= 0);
        child = fork();
        if (child == 0) {
                pause();
                _exit(0);
        }
        t.pid = child;
        t.fd = null_fd;
        CHECK_EQ(process_start_ticks(child, &t.start_ticks), 0);
        CHECK_EQ(tsg_open(&tsg_system_default, &t, &tsg), -ENODEV);
        t.start_ticks++;
        CHECK_EQ(tsg_open(&tsg_system_default, &t, &tsg), -ESRCH);
        t.start_ticks--;
        t.fd = 999;
        CHECK_EQ(tsg_open(&tsg_system_default, &t, &tsg), -EBADF);
        t.fd = null_fd;
        kill(child, SIGKILL);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(tsg_open(&tsg_system_default, &t, &tsg), -ESRCH);
        CHECK(!tsg);
        close(null_fd);
}

int main(void)
{
        TEST(time_slices_are_set_and_read_back);
        TEST(groups_are_preempted_and_named);
        TEST(the_gpu_is_told);
        TEST(a_group_is_found_in_any_file);
        TEST(what_rm_says_becomes_an_error);
        TEST(another_process_is_left_alone);
        TEST(real_processes_are_checked);
        return 0;
}
