/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The ioctl programs on real system calls. There is no NVIDIA device here, so the
 * filter is given /dev/null and /dev/zero in its place: they refuse every
 * request, but what eBPF reads of it is the same. Arguments are spelled out as
 * bytes at offsets, not with structs of the code under test.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe/driver_probes.h"
#include "probe/proc_devices.h"
#include "unit/test.h"
#include "util/time.h"

#define RM_ALLOC_48   0xc030462b
#define RM_ALLOC_32   0xc020462b
#define RM_CONTROL    0xc020462a
#define RM_FREE       0xc0104629
#define RM_MAP_MEMORY 0xc038464e
#define RM_WRAPPED    0xc01046d3
#define RM_UNKNOWN    0xc00846ee

#define DEVICES   "driver_ioctl_test.devices"
#define DIRECTORY "driver_ioctl_test.pts"

static const struct driver_device_range ranges[] = {
        {1, 3, 3, DRIVER_DEVICE_RM},  /* /dev/null */
        {1, 5, 5, DRIVER_DEVICE_UVM}, /* /dev/zero */
        {0},
};

static struct driver_probes *probes;
static int null_fd, zero_fd;

static struct {
        struct driver_call_event events[4096];
        size_t count;
        uint32_t tgid;
} seen;

static void put32(void *at, size_t offset, uint32_t v)
{
        memcpy((char *)at + offset, &v, 4);
}

static void put64(void *at, size_t offset, uint64_t v)
{
        memcpy((char *)at + offset, &v, 8);
}

static void on_call(void *data, const struct driver_call_event *e)
{
        if (e->tgid == seen.tgid && seen.count < sizeof(seen.events) / sizeof(seen.events[0]))
                seen.events[seen.count++] = *e;
}

static void collect(uint32_t tgid)
{
        seen.count = 0;
        seen.tgid = tgid;
        while (driver_probes_poll(probes, 1000, on_call, NULL) > 0)
                ;
}

/* One call and the one event of it. */
static struct driver_call_event call(int fd, unsigned long request, void *argument)
{
        uint64_t before;

        collect((uint32_t)getpid());
        before = now_ns();
        CHECK_EQ(ioctl(fd, request, argument), -1);
        CHECK_EQ(errno, ENOTTY);
        collect((uint32_t)getpid());
        CHECK_EQ(seen.count, 1);
        CHECK(seen.events[0].enter_ns >= before);
        CHECK(seen.events[0].duration_ns > 0 && seen.events[0].duration_ns < now_ns() - before);
        CHECK(seen.events[0].enter_ns + seen.events[0].duration_ns <= now_ns());
        CHECK_EQ(seen.events[0].result, -ENOTTY);
        CHECK_EQ(seen.events[0].tid, (uint32_t)gettid());
        CHECK_EQ(seen.events[0].fd, fd);
        return seen.events[0];
}

static struct driver_call_event alloc(uint32_t class, void *parameters, size_t size)
{
        char a[48] = {0};

        put32(a, 0, 0xc1d00001);
        put32(a, 4, 0x5c000001);
        put32(a, 8, 0x5c000002);
        put32(a, 12, class);
        put64(a, 16, (uint64_t)(uintptr_t)parameters);
        if (size == 48)
                put32(a, 40, 0x1a);
        else
                put32(a, 28, 0x1b);
        return call(null_fd, size == 48 ? RM_ALLOC_48 : RM_ALLOC_32, a);
}

static void allocations_are_read(void)
{
        struct driver_call_event e = alloc(0xc86f, NULL, 48);

        CHECK_EQ(e.device, DRIVER_DEVICE_RM);
        CHECK_EQ(e.minor, 3);
        CHECK_EQ(e.request, RM_ALLOC_48);
        CHECK_EQ(e.client, 0xc1d00001);
        CHECK_EQ(e.parent, 0x5c000001);
        CHECK_EQ(e.object, 0x5c000002);
        CHECK_EQ(e.what, 0xc86f);
        CHECK_EQ(e.status, 0x1a);
        CHECK_EQ(e.has, DRIVER_HAS_ARGUMENT | DRIVER_HAS_STATUS);
        e = alloc(0xc86f, NULL, 32);
        CHECK_EQ(e.status, 0x1b);
}

static void parameters_of_allocations_are_read(void)
{
        char p[512] = {0};
        struct driver_call_event e;

        put32(p, 0, 3);               /* instance of a device */
        put32(p, 12, 9);              /* engine of a channel group */
        put64(p, 64, 0x123456789000); /* size of memory */
        put32(p, 128, 1);             /* engine of a channel */
        put32(p, 132, 77);            /* its id */
        e = alloc(0x80, p, 48);
        CHECK_EQ(e.has & DRIVER_HAS_DETAIL, DRIVER_HAS_DETAIL);
        CHECK_EQ(e.detail, 3);
        e = alloc(0xa06c, p, 48);
        CHECK_EQ(e.has & DRIVER_HAS_DETAIL, DRIVER_HAS_DETAIL);
        CHECK_EQ(e.detail, 9);
        e = alloc(0x40, p, 48);
        CHECK_EQ(e.has & DRIVER_HAS_BYTES, DRIVER_HAS_BYTES);
        CHECK(e.bytes == 0x123456789000);
        e = alloc(0xc86f, p, 48);
        CHECK_EQ(e.has & DRIVER_HAS_CONTEXT_ID, DRIVER_HAS_CONTEXT_ID);
        CHECK_EQ(e.detail, 1);
        CHECK_EQ(e.context_id, 77);
        e = alloc(0xcbc0, p, 48); /* a class that is not looked into */
        CHECK_EQ(e.has, DRIVER_HAS_ARGUMENT | DRIVER_HAS_STATUS);
        CHECK_EQ(e.detail, 0);
}

static void controls_and_frees_are_read(void)
{
        char a[56] = {0}, slice[8];
        struct driver_call_event e;

        put32(a, 0, 1);
        put32(a, 4, 2);
        put32(a, 8, 0xa06c0103);
        put64(a, 16, (uint64_t)(uintptr_t)slice);
        put32(a, 28, 0x56);
        put64(slice, 0, 2048);
        e = call(null_fd, RM_CONTROL, a);
        CHECK_EQ(e.client, 1);
        CHECK_EQ(e.object, 2);
        CHECK_EQ(e.what, 0xa06c0103);
        CHECK_EQ(e.status, 0x56);
        CHECK_EQ(e.has & DRIVER_HAS_DETAIL, DRIVER_HAS_DETAIL);
        CHECK_EQ(e.detail, 2048);
        put64(slice, 0, 1ull << 32);
        CHECK_EQ(call(null_fd, RM_CONTROL, a).has & DRIVER_HAS_DETAIL, 0);
        put64(a, 16, 0);
        e = call(null_fd, RM_CONTROL, a);
        CHECK_EQ(e.has, DRIVER_HAS_ARGUMENT | DRIVER_HAS_STATUS);
        put32(a, 8, 3);
        put32(a, 12, 0x57);
        e = call(null_fd, RM_FREE, a);
        CHECK_EQ(e.parent, 2);
        CHECK_EQ(e.object, 3);
        CHECK_EQ(e.status, 0x57);
        put32(a, 40, 0x58);
        e = call(null_fd, RM_MAP_MEMORY, a);
        CHECK_EQ(e.status, 0x58);
        CHECK_EQ(e.has, DRIVER_HAS_STATUS);
}

static void wrapped_requests_are_unwrapped(void)
{
        char inner[32] = {0}, a[16];
        struct driver_call_event e;

        put32(inner, 8, 0x20800101);
        put32(inner, 28, 0x22);
        put32(a, 0, 0x2a);
        put32(a, 4, sizeof(inner));
        put64(a, 8, (uint64_t)(uintptr_t)inner);
        e = call(null_fd, RM_WRAPPED, a);
        CHECK_EQ(e.request & 0xff, 0x2a);
        CHECK_EQ(e.what, 0x20800101);
        CHECK_EQ(e.status, 0x22);
}

static void unified_memory_is_read(void)
{
        char a[80] = {0};
        struct driver_call_event e;

        put32(a, 72, 0x1f);
        e = call(zero_fd, 51, a);
        CHECK_EQ(e.device, DRIVER_DEVICE_UVM);
        CHECK_EQ(e.request, 51);
        CHECK_EQ(e.status, 0x1f);
        e = call(zero_fd, 200, a); /* not known: only that it was made */
        CHECK_EQ(e.request, 200);
        CHECK_EQ(e.has, 0);
        put32(a, 8, 0x2a);
        e = call(zero_fd, 0x30000001, a);
        CHECK_EQ(e.status, 0x2a);
}

static void unknown_and_unreadable_do_no_harm(void)
{
        struct driver_call_event e = call(null_fd, RM_UNKNOWN, NULL);

        CHECK_EQ(e.request, RM_UNKNOWN);
        CHECK_EQ(e.has, 0);
        e = call(null_fd, RM_ALLOC_48, (void *)8);
        CHECK_EQ(e.has, 0);
        e = call(null_fd, RM_WRAPPED, (void *)8);
        CHECK_EQ(e.request, RM_WRAPPED);
        CHECK_EQ(e.has, 0);
}

static void other_files_and_requests_are_passed_over(void)
{
        char a[64] = {0};
        int pipes[2];

        CHECK_EQ(pipe(pipes), 0);
        collect((uint32_t)getpid());
        (void)ioctl(pipes[0], RM_ALLOC_48, a); /* not the driver's file */
        (void)ioctl(-1, RM_ALLOC_48, a);
        (void)ioctl(1 << 30, RM_ALLOC_48, a);
        (void)ioctl(null_fd, 0x5401, a); /* not the driver's request */
        collect((uint32_t)getpid());
        CHECK_EQ(seen.count, 0);
        close(pipes[0]);
        close(pipes[1]);
}

/* A descriptor that came over exec, a duplicate, a path of another mount: only the number counts.
 */
static void any_descriptor_will_do(void)
{
        int copy = fcntl(null_fd, F_DUPFD, 900), fresh = open("/proc/self/fd/900", O_RDWR);
        char a[64] = {0};

        CHECK(copy >= 900 && fresh >= 0);
        call(copy, RM_FREE, a);
        call(fresh, RM_FREE, a);
        close(copy);
        close(fresh);
}

static void *call_often(void *data)
{
        char a[64] = {0};

        for (int i = 0; i < 500; i++)
                (void)ioctl(null_fd, RM_FREE, a);
        return NULL;
}

/* A call that another process makes is seen as its own. */
static void check_call_of_child(void *argument)
{
        pid_t child = fork();
        int status;

        if (child == 0) {
                (void)ioctl(null_fd, RM_FREE, argument);
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        collect((uint32_t)child);
        CHECK_EQ(seen.count, 1);
}

static void threads_and_processes_are_told_apart(void)
{
        pthread_t threads[4];
        char a[64] = {0};

        collect((uint32_t)getpid());
        for (int i = 0; i < 4; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, call_often, NULL), 0);
        for (int i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        collect((uint32_t)getpid());
        CHECK_EQ(seen.count, 2000);
        check_call_of_child(a);
}

/* The smallest ring: what does not fit is counted, to the last one. */
static void losses_are_counted(void)
{
        const struct driver_probes_options options = {.ring_bytes = 4096, .ranges = ranges};
        uint64_t lost[DRIVER_LOSS_COUNT];
        char a[64] = {0};
        const int calls = 1000;

        driver_probes_free(probes);
        CHECK_EQ(driver_probes_new(&options, &probes), 0);
        for (int i = 0; i < calls; i++)
                (void)ioctl(null_fd, RM_FREE, a);
        collect((uint32_t)getpid());
        CHECK_EQ(driver_probes_losses(probes, lost), 0);
        CHECK(lost[DRIVER_LOSS_RING] > 0);
        CHECK(seen.count > 0);
        CHECK_EQ(seen.count + lost[DRIVER_LOSS_RING], (uint64_t)calls);
        CHECK_EQ(lost[DRIVER_LOSS_THREAD], 0);
}

/* The daemon asks the driver a lot; that is not to crowd out what others do. */
static void own_calls_are_left_out(void)
{
        const struct driver_probes_options options = {
                .ring_bytes = 4096, .but_own = true, .ranges = ranges};
        struct driver_probes *others = probes;
        uint64_t lost[DRIVER_LOSS_COUNT];
        char a[64] = {0};

        CHECK_EQ(driver_probes_new(&options, &probes), 0);
        for (int i = 0; i < 1000; i++)
                (void)ioctl(null_fd, RM_FREE, a);
        check_call_of_child(a);
        collect((uint32_t)getpid());
        CHECK_EQ(seen.count, 0);
        CHECK_EQ(driver_probes_losses(probes, lost), 0);
        CHECK_EQ(lost[DRIVER_LOSS_RING], 0);
        driver_probes_free(probes);
        probes = others;
}

static void majors_are_found_in_the_kernels_list(void)
{
        static const char text[] = "Character devices:\n  1 mem\n195 nvidia\n195 nvidiactl\n"
                                   "508 nvidia-uvm\n509 nvidia-caps\n\nBlock devices:\n 42 loop\n";

        CHECK_EQ(proc_devices_parse(text, "nvidia-uvm"), 508);
        CHECK_EQ(proc_devices_parse(text, "nvidia"), 195);
        CHECK_EQ(proc_devices_parse(text, "loop"), 0);
        CHECK_EQ(proc_devices_parse(text, "nvidia-u"), 0);
        CHECK_EQ(proc_devices_parse("", "mem"), 0);
        CHECK_EQ(proc_devices_parse("7 nvidia-uvm", "nvidia-uvm"), 7);
}

static void list_device(const char *line)
{
        FILE *f = fopen(DEVICES, "we");

        CHECK(f);
        CHECK(fprintf(f, "Character devices:\n%s\nBlock devices:\n", line) > 0);
        CHECK_EQ(fclose(f), 0);
}

/* A terminal of our own file system of these: device 136:0. -1: not allowed here. */
static int open_device(void)
{
        int master, fd, unlock = 0;

        if (mkdir(DIRECTORY, 0700) < 0 && errno != EEXIST)
                return -1;
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("devpts", DIRECTORY, "devpts", 0, "ptmxmode=0600") < 0)
                return -1;
        master = open(DIRECTORY "/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
        CHECK(master >= 0 && ioctl(master, TIOCSPTLCK, &unlock) == 0);
        fd = open(DIRECTORY "/0", O_RDWR | O_NOCTTY | O_CLOEXEC);
        CHECK(fd >= 0);
        return fd;
}

static size_t uvm_calls(int fd)
{
        char argument[64] = {0};
        size_t n = 0;

        collect((uint32_t)getpid());
        CHECK_EQ(ioctl(fd, 27, argument), -1);
        collect((uint32_t)getpid());
        for (size_t i = 0; i < seen.count; i++)
                n += seen.events[i].device == DRIVER_DEVICE_UVM;
        return n;
}

/* The module is loaded late, unloaded, and loaded again with another number. */
static void uvm_comes_and_goes(void)
{
        const struct driver_probes_options options = {.devices = DEVICES};
        struct driver_probes *others = probes;
        int fd = open_device();

        if (fd < 0) {
                printf("no right to mount a file system: not tested\n");
                return;
        }
        list_device("136 pts");
        CHECK_EQ(driver_probes_new(&options, &probes), 0);
        CHECK_EQ(driver_probes_find_devices(probes), -ENOENT);
        CHECK_EQ(uvm_calls(fd), 0);
        list_device("508 nvidia-uvm");
        CHECK_EQ(driver_probes_find_devices(probes), 0);
        CHECK_EQ(uvm_calls(fd), 0);
        list_device("136 nvidia-uvm");
        CHECK_EQ(driver_probes_find_devices(probes), 0);
        CHECK_EQ(uvm_calls(fd), 1);
        list_device("136 pts");
        CHECK_EQ(driver_probes_find_devices(probes), -ENOENT);
        CHECK_EQ(uvm_calls(fd), 0);
        driver_probes_free(probes);
        probes = others;
        unlink(DEVICES);
}

int main(void)
{
        const struct driver_probes_options options = {.ranges = ranges};
        int r = driver_probes_new(&options, &probes);

        if (r == -EPERM) {
                printf("no right to load eBPF\n");
                return 77;
        }
        CHECK_EQ(r, 0);
        null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        zero_fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
        CHECK(null_fd >= 0 && zero_fd >= 0);
        TEST(allocations_are_read);
        TEST(parameters_of_allocations_are_read);
        TEST(controls_and_frees_are_read);
        TEST(wrapped_requests_are_unwrapped);
        TEST(unified_memory_is_read);
        TEST(unknown_and_unreadable_do_no_harm);
        TEST(other_files_and_requests_are_passed_over);
        TEST(any_descriptor_will_do);
        TEST(threads_and_processes_are_told_apart);
        TEST(losses_are_counted);
        TEST(own_calls_are_left_out);
        TEST(majors_are_found_in_the_kernels_list);
        TEST(uvm_comes_and_goes);
        driver_probes_free(probes);
        return 0;
}
