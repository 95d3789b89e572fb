/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Channel groups that were there before anybody looked: against a made-up process
 * with several files, and a made-up RM that answers as the driver's source says: a client is valid
 * only through the file it was made with, an object only in its client.
 */
#include <errno.h>

#include "driver/calls.h"
#include "driver/group_scan.h"
#include "unit/test.h"
#include "util/macro.h"

#define PID    4000
#define TICKS  123
#define PIDFD  50
#define OWN    60  /* the scanner's own file */
#define DUP    100 /* + descriptor: 5 and 6 are one file, 7 is another */
#define NEWEST 0xc1d00900u

struct made {
        int file;
        uint32_t client, object, parent, class;
};

static const struct made usual[] = {
        {1, 0xc1d00010, 0xc1d00010, 0, 0x41},
        {1, 0xc1d00010, 0x5c000001, 0xc1d00010, 0x80},
        {1, 0xc1d00010, 0x5c000008, 0x5c000001, 0xa06c}, /* kernels */
        {1, 0xc1d00010, 0x5c000009, 0x5c000008, 0xc86f},
        {1, 0xc1d00010, 0x5c00000a, 0x5c000009, 0xcbc0},
        {1, 0xc1d00010, 0x5c00000b, 0x5c000008, 0xc86f},
        {1, 0xc1d00010, 0x5c00ffff, 0x5c000001, 0xa06c}, /* kernels, the last handle there can be */
        {1, 0xc1d00010, 0x5c000021, 0x5c00ffff, 0xc96f},
        {1, 0xc1d00010, 0x5c000022, 0x5c000021, 0xcec0},
        {1, 0xc1d00010, 0x5c000030, 0x5c000001, 0xa06c}, /* copies */
        {1, 0xc1d00010, 0x5c000031, 0x5c000030, 0xc86f},
        {1, 0xc1d00010, 0x5c000032, 0x5c000031, 0xc8b5},
        {1, 0xc1d00011, 0xc1d00011, 0, 0x41}, /* a client without a device */
        {2, 0xc1d00005, 0xc1d00005, 0, 0x41},
        {2, 0xc1d00005, 0x12340001, 0xc1d00005, 0x80},
        {2, 0xc1d00005, 0x12340002, 0x12340001, 0xa06c},
        {2, 0xc1d00005, 0x12340003, 0x12340002, 0xc86f},
        {2, 0xc1d00005, 0x12340004, 0x12340003, 0xcbc0},
        {3, 0xc1d00006, 0xc1d00006, 0, 0x41}, /* another process's file */
        {3, 0xc1d00006, 0x5c000001, 0xc1d00006, 0x80},
};

static struct {
        const struct made *made;
        size_t count;
        uint64_t ticks;
        int open_files;
        uint32_t status; /* of each control */
        uint32_t freed;  /* an object that goes when its class has been asked for */
        bool was_asked;
        int list_error;
        uint32_t newest; /* client; 0: NEWEST */
        int files; /* of the process, all apart: number and descriptor are the same; 0: usual */
} fake;

static int file_of(int fd)
{
        if (fake.files)
                return fd - DUP;
        return fd == DUP + 5 || fd == DUP + 6 ? 1 : fd == DUP + 7 ? 2 : 0;
}

static const struct made *find(int file, uint32_t client, uint32_t object)
{
        for (size_t i = 0; i < fake.count; i++)
                if (fake.made[i].file == file && fake.made[i].client == client &&
                    fake.made[i].object == object)
                        return &fake.made[i];
        return NULL;
}

static uint32_t handle_info(int file, uint32_t client, char *p)
{
        uint32_t object, index;
        const struct made *m;
        uint64_t result;

        memcpy(&object, p, 4);
        memcpy(&index, p + 4, 4);
        m = find(file, client, object);
        if (!m || (object == fake.freed && fake.was_asked))
                return 0x57;
        fake.was_asked = fake.was_asked || object == fake.freed;
        result = index == 1 ? m->parent : m->class;
        memcpy(p + 8, &result, 8);
        return index == 1 || index == 2 ? 0 : 0x1f;
}

/* Wants the class as RM numbers it inside, and tells one child alone. */
static uint32_t child_handle(int file, uint32_t client, char *p)
{
        uint32_t parent, class;

        memcpy(&parent, p, 4);
        memcpy(&class, p + 4, 4);
        CHECK_EQ(class, 0xe0ac20);
        for (size_t i = 0; i < fake.count; i++) {
                const struct made *m = &fake.made[i];

                if (m->file != file || m->client != client || m->parent != parent ||
                    m->class != 0x80)
                        continue;
                memcpy(p + 8, &m->object, 4);
                return 0;
        }
        return 0x57;
}

static uint32_t control(int file, char *a)
{
        uint32_t client, object, command, size;
        char *p;

        memcpy(&client, a, 4);
        memcpy(&object, a + 4, 4);
        memcpy(&command, a + 8, 4);
        memcpy(&p, a + 16, 8);
        memcpy(&size, a + 24, 4);
        if (fake.status)
                return fake.status;
        if (!find(file, client, client))
                return 0x23;
        CHECK_EQ(object, client);
        CHECK_EQ(size, command == 0xd02 ? 16 : 12);
        return command == 0xd02 ? handle_info(file, client, p) : child_handle(file, client, p);
}

static int fake_ioctl(int fd, unsigned long request, void *argument)
{
        uint32_t status = 0, handle = fake.newest ? fake.newest : NEWEST;
        char *a = argument;

        if (request == 0xc030462b) {
                CHECK_EQ(fd, OWN);
                memcpy(a + 8, &handle, 4);
                memcpy(a + 40, &status, 4);
                return 0;
        }
        if (request == 0xc0104629)
                return 0;
        CHECK_EQ(request, 0xc020462a);
        status = control(file_of(fd), a);
        memcpy(a + 28, &status, 4);
        return 0;
}

static int fake_open(const char *path, int flags)
{
        CHECK_STR(path, "/dev/nvidiactl");
        fake.open_files++;
        return OWN;
}

static int fake_close(int fd)
{
        fake.open_files--;
        return 0;
}

static const struct rm_system fake_rm = {
        .open = fake_open, .close = fake_close, .ioctl = fake_ioctl};

static int fake_pidfd_open(pid_t pid)
{
        CHECK_EQ(pid, PID);
        fake.open_files++;
        return PIDFD;
}

static int fake_pidfd_getfd(int pidfd, int fd)
{
        if (fd == 8 && !fake.files) {
                errno = EBADF; /* closed since it was listed */
                return -1;
        }
        fake.open_files++;
        return DUP + fd;
}

static int fake_start_ticks(pid_t pid, uint64_t *ret_ticks)
{
        *ret_ticks = fake.ticks;
        return 0;
}

static bool fake_is_alive(int pidfd)
{
        return true;
}

static bool fake_is_control(int fd)
{
        return fd != DUP + 9 || fake.files; /* another file by now */
}

static int fake_list_controls(pid_t pid, int *ret_fds, size_t max)
{
        int n = fake.files ? fake.files : 5, first = fake.files ? 1 : 5;

        CHECK(pid == PID && max >= 5);
        for (int i = 0; i < n && i < (int)max; i++)
                ret_fds[i] = first + i;
        return fake.list_error ? fake.list_error : n;
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

static struct group_scan scan;

static int scan_as(const struct made *made, size_t count, uint32_t status)
{
        int r;

        fake.made = made;
        fake.count = count;
        fake.status = status;
        fake.ticks = TICKS;
        r = group_scan(&fake_system, PID, TICKS, &scan);
        CHECK_EQ(fake.open_files, 0);
        return r;
}

static bool has(uint32_t client, uint32_t object, int fd)
{
        for (size_t i = 0; i < scan.count; i++)
                if (scan.objects[i].client == client && scan.objects[i].object == object)
                        return scan.objects[i].fd == fd;
        return false;
}

/* Those of all its files that kernels run in, each once, with their channels. */
static void test_found(void)
{
        memset(&fake, 0, sizeof(fake));
        CHECK_EQ(scan_as(usual, ARRAY_SIZE(usual), 0), 0);
        CHECK_EQ(scan.count, 7);
        CHECK(has(0xc1d00010, 0x5c000008, 5));
        CHECK(has(0xc1d00010, 0x5c000009, 5));
        CHECK(has(0xc1d00010, 0x5c00000b, 5));
        CHECK(has(0xc1d00010, 0x5c00ffff, 5));
        CHECK(has(0xc1d00010, 0x5c000021, 5));
        CHECK(has(0xc1d00005, 0x12340002, 7));
        CHECK(has(0xc1d00005, 0x12340003, 7));
        CHECK(scan.objects[0].class == 0xa06c); /* groups come before their channels */
        CHECK_EQ(scan.files, 2); /* the first of them once, though it has two numbers */
        CHECK_EQ(scan.files_beyond, 0);
        CHECK(scan.asked < 2 * 0x900 + 2 * GROUP_SCAN_HANDLES + 100);
}

/* A client and a group that kernels run in, in a file. */
static size_t make_group(struct made *made, int file, uint32_t client)
{
        const struct made group[] = {{file, client, client, 0, 0x41},
                                     {file, client, 0x5c000001, client, 0x80},
                                     {file, client, 0x5c000008, 0x5c000001, 0xa06c},
                                     {file, client, 0x5c000009, 0x5c000008, 0xc86f},
                                     {file, client, 0x5c00000a, 0x5c000009, 0xcbc0}};

        memcpy(made, group, sizeof(group));
        return ARRAY_SIZE(group);
}

/* Each connection to the driver has one, most of them to map memory: the last is searched as well.
 */
static void test_many_files(void)
{
        struct made made[10];
        size_t n = make_group(made, 1, 0xc1d00010);

        memset(&fake, 0, sizeof(fake));
        n += make_group(made + n, 200, 0xc1d0000f);
        fake.files = 200;
        fake.newest = 0xc1d00012;
        CHECK_EQ(scan_as(made, n, 0), 0);
        CHECK(has(0xc1d00010, 0x5c000008, 1));
        CHECK(has(0xc1d0000f, 0x5c000008, 200));
        CHECK_EQ(scan.files, 200);
        CHECK_EQ(scan.files_beyond, 0);

        /* More than are listed. */
        fake.files = GROUP_SCAN_FILES_MAX + 7;
        CHECK_EQ(scan_as(made, n, 0), 0);
        CHECK_EQ(scan.count, 4);
        CHECK_EQ(scan.files, GROUP_SCAN_FILES_MAX);
        CHECK_EQ(scan.files_beyond, 7);
}

/* Where clients have come and gone a file takes a question for each: not without end. */
static void test_many_questions(void)
{
        struct made made[5];
        size_t n = make_group(made, 1, 0xc1d1fff0);

        memset(&fake, 0, sizeof(fake));
        fake.files = 100;
        fake.newest = 0xc1d20000;
        CHECK_EQ(scan_as(made, n, 0), 0);
        CHECK(has(0xc1d1fff0, 0x5c000008, 1));
        CHECK(scan.asked <= GROUP_SCAN_ASKED_MAX + 2);
        CHECK(scan.files >= GROUP_SCAN_ASKED_MAX / GROUP_SCAN_CLIENTS_MAX - 2);
        CHECK_EQ(scan.files + scan.files_beyond, 100);
}

static void test_not_found(void)
{
        memset(&fake, 0, sizeof(fake));
        CHECK_EQ(scan_as(usual, 0, 0), 0);
        CHECK_EQ(scan.count, 0);
        CHECK_EQ(scan_as(usual, ARRAY_SIZE(usual), 0x56), -ENOTSUP);
        CHECK_EQ(scan_as(usual, ARRAY_SIZE(usual), 0x1b), -EACCES);
        fake.list_error = -ENOENT;
        CHECK_EQ(scan_as(usual, ARRAY_SIZE(usual), 0), -ESRCH);
        fake.list_error = 0;
        fake.ticks = TICKS + 1;
        fake.status = 0;
        CHECK_EQ(group_scan(&fake_system, PID, TICKS, &scan), -ESRCH);
}

/* An object that is freed while it is looked at. */
static void test_freed_meanwhile(void)
{
        memset(&fake, 0, sizeof(fake));
        fake.freed = 0x5c000008;
        CHECK_EQ(scan_as(usual, ARRAY_SIZE(usual), 0), 0);
        CHECK(!has(0xc1d00010, 0x5c000008, 5));
        CHECK(has(0xc1d00010, 0x5c00ffff, 5));
}

/* More than are kept. */
static void test_too_many(void)
{
        static struct made made[3 * GROUP_SCAN_OBJECTS_MAX + 2];
        size_t n = 2;

        memset(&fake, 0, sizeof(fake));
        made[0] = (struct made){1, 0xc1d00010, 0xc1d00010, 0, 0x41};
        made[1] = (struct made){1, 0xc1d00010, 0x5c000000, 0xc1d00010, 0x80};
        for (uint32_t h = 1; n + 2 < ARRAY_SIZE(made); h += 3, n += 3) {
                made[n] = (struct made){1, 0xc1d00010, 0x5c000000 + h, 0x5c000000, 0xa06c};
                made[n + 1] = (struct made){1, 0xc1d00010, 0x5c000001 + h, 0x5c000000 + h, 0xc86f};
                made[n + 2] = (struct made){1, 0xc1d00010, 0x5c000002 + h, 0x5c000001 + h, 0xcbc0};
        }
        CHECK_EQ(scan_as(made, n, 0), 0);
        CHECK(scan.count > GROUP_SCAN_OBJECTS_MAX / 2);
        CHECK_EQ(scan.objects_beyond, n - 2 - GROUP_SCAN_OBJECTS_MAX);
}

/* They become groups like those seen being made; one that was seen stays as it is. */
static void test_taken_in(void)
{
        const struct driver_call_event seen = {.request = 0x2b,
                                               .what = 0xa06c,
                                               .client = 0xc1d00010,
                                               .object = 0x5c000008,
                                               .fd = 33,
                                               .device = DRIVER_DEVICE_RM,
                                               .has = DRIVER_HAS_ARGUMENT};
        const struct driver_call_event freed = {.request = 0x29,
                                                .client = 0xc1d00005,
                                                .object = 0x12340002,
                                                .device = DRIVER_DEVICE_RM,
                                                .has = DRIVER_HAS_ARGUMENT};
        struct calls *c = calls_new();
        struct call_group g;

        memset(&fake, 0, sizeof(fake));
        CHECK_EQ(scan_as(usual, ARRAY_SIZE(usual), 0), 0);
        CHECK(calls_add(c, &seen));
        for (size_t i = 0; i < scan.count; i++)
                CHECK(calls_add_found(c, &scan.objects[i]));
        CHECK_EQ(calls_group_count(c), 3);
        CHECK_EQ(calls_stat_count(c), 1);
        CHECK(calls_group_of(c, &seen, &g));
        CHECK_EQ(g.fd, 33);
        CHECK_EQ(g.channels, 2);
        CHECK(calls_add(c, &freed));
        CHECK_EQ(calls_group_count(c), 2);
        calls_free(c);
}

int main(void)
{
        TEST(test_found);
        TEST(test_many_files);
        TEST(test_many_questions);
        TEST(test_not_found);
        TEST(test_freed_meanwhile);
        TEST(test_too_many);
        TEST(test_taken_in);
        return 0;
}
