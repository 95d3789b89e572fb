/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/uvm_fake.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit/bytes.h"
#include "unit/test.h"

#define PIDFD    200
#define TOOLS_FD 201
#define DUP      300 /* duplicates: this and the target's number */

/* The process's descriptors: a file that is no UVM any more, the one that ties, the memory. */
#define FD_OTHER  3
#define FD_TIE    5
#define FD_MEMORY 8

struct uvm_fake *fake;
const uint8_t fake_cpu_uuid[16] = {0xa6, 0x5e, 0x0f, 0x4e, 0xd7, 0xd4, 0x7b, 0xa2,
                                   0x50, 0x47, 0x41, 0x2c, 0x14, 0x2a, 0x77, 0x73};
const uint8_t fake_gpu_uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

/* ---- bytes ---- */

/* ---- failing and dying ---- */

static bool fails(void)
{
        if (++fake->calls != fake->fail_at)
                return false;
        errno = EIO;
        return true;
}

void uvm_fake_step(void)
{
        if (fake->deaths_left && --fake->deaths_left == 0)
                kill(getpid(), SIGKILL);
}

/* ---- files and processes ---- */

static int fake_open(const char *path, int flags)
{
        (void)flags;
        CHECK_STR(path, "/dev/nvidia-uvm-tools");
        if (fails())
                return -1;
        fake->open_files++;
        return TOOLS_FD;
}

static int fake_close(int fd)
{
        CHECK(fd == PIDFD || fd == TOOLS_FD || fd >= DUP);
        fake->open_files--;
        if (fd == TOOLS_FD)
                fake->queue = NULL;
        return 0;
}

static int fake_pidfd_open(pid_t pid)
{
        if (fails())
                return -1;
        if (pid != FAKE_PID || !fake->alive) {
                errno = ESRCH;
                return -1;
        }
        fake->open_files++;
        return PIDFD;
}

static int fake_pidfd_getfd(int pidfd, int fd)
{
        CHECK_EQ(pidfd, PIDFD);
        if (fails())
                return -1;
        if (!fake->alive) {
                errno = ESRCH;
                return -1;
        }
        fake->open_files++;
        return DUP + fd;
}

static int fake_pidfd_alive(int pidfd)
{
        CHECK_EQ(pidfd, PIDFD);
        return fake->alive;
}

static int fake_start_ticks(pid_t pid, uint64_t *ret_ticks)
{
        if (pid != FAKE_PID || !fake->alive)
                return -ENOENT;
        *ret_ticks = fake->ticks;
        return 0;
}

static int fake_list_fds(pid_t pid, int *ret_fds, size_t max)
{
        CHECK(pid == FAKE_PID && max >= 3);
        ret_fds[0] = FD_OTHER;
        ret_fds[1] = FD_TIE;
        ret_fds[2] = FD_MEMORY;
        return 3;
}

static int fake_is_uvm(int fd)
{
        return fd == DUP + FD_TIE || fd == DUP + FD_MEMORY;
}

/* ---- ioctls ---- */

static uint8_t processor(const uint8_t *uuid)
{
        if (memcmp(uuid, fake_cpu_uuid, 16) == 0)
                return 0;
        return memcmp(uuid, fake_gpu_uuid, 16) == 0 ? FAKE_GPU : FAKE_NONE;
}

/* The pages of a range, or NULL with the status that the driver gives. */
static struct fake_page *pages_of(uint64_t address, uint64_t bytes, uint32_t *ret_status)
{
        uint64_t first = (address - FAKE_BASE) / FAKE_PAGE;

        *ret_status = 0x1e;
        if (address % FAKE_PAGE || bytes % FAKE_PAGE || bytes == 0 || address < FAKE_BASE ||
            address - FAKE_BASE >= FAKE_BYTES || bytes > FAKE_BYTES - (address - FAKE_BASE))
                return NULL;
        for (uint64_t i = 0; i < bytes / FAKE_PAGE; i++)
                if (!fake->pages[first + i].managed)
                        return NULL;
        *ret_status = 0;
        return &fake->pages[first];
}

static void set_page(struct fake_page *p, unsigned long request, uint8_t who)
{
        switch (request) {
        case 42:
                p->preferred = who;
                break;
        case 43:
                p->preferred = FAKE_NONE;
                break;
        case 44:
                p->duplicated = 1;
                break;
        case 45:
                p->duplicated = 0;
                break;
        case 46:
                p->accessed_by = (uint8_t)(p->accessed_by | 1u << who);
                break;
        case 47:
                p->accessed_by = (uint8_t)(p->accessed_by & ~(1u << who));
                break;
        case 51:
                p->resident = who;
                break;
        case 80:
                p->discarded = 1;
                break;
        default:
                CHECK(false);
        }
}

/* The driver goes from page to page: who dies in the middle leaves a part done. */
static uint32_t on_range(unsigned long request, void *a, bool has_processor)
{
        uint8_t who = has_processor ? processor((uint8_t *)a + 16) : 0;
        uint64_t bytes = get64(a, 8);
        uint32_t status = fake->next_status;
        struct fake_page *pages;

        fake->next_status = 0;
        if (status)
                return status;
        if (who == FAKE_NONE)
                return 0x26;
        pages = pages_of(get64(a, 0), bytes, &status);
        if (!pages)
                return status;
        uvm_fake_step();
        for (uint64_t i = 0; i < bytes / FAKE_PAGE; i++) {
                if (i == bytes / FAKE_PAGE / 2)
                        uvm_fake_step();
                set_page(&pages[i], request, who);
        }
        uvm_fake_step();
        return 0;
}

static uint32_t tools_init(void *a)
{
        CHECK_EQ(get32(a, 44), DUP + FD_MEMORY);
        fake->queue = (uint8_t *)(uintptr_t)get64(a, 0);
        fake->entries = (uint32_t)get64(a, 8);
        fake->control = (uint8_t *)(uintptr_t)get64(a, 16);
        return 0;
}

static uint32_t uuid_table(void *a)
{
        uint8_t *table = (uint8_t *)(uintptr_t)get64(a, 0);

        memset(table, 0, 33 * 16);
        memcpy(table, fake_cpu_uuid, 16);
        memcpy(table + 16 * FAKE_GPU, fake_gpu_uuid, 16);
        return 0;
}

static int tools_ioctl(unsigned long request, void *a)
{
        switch (request) {
        case 56:
                put32(a, 48, tools_init(a));
                return 0;
        case 57:
                fake->threshold = get32(a, 0);
                put32(a, 4, 0);
                return 0;
        case 58:
                CHECK(fake->queue);
                fake->enabled |= get64(a, 0);
                put32(a, 8, 0);
                return 0;
        default:
                errno = EINVAL;
                return -1;
        }
}

static int memory_ioctl(unsigned long request, void *a)
{
        switch (request) {
        case 42:
                put32(a, 36, on_range(request, a, true));
                return 0;
        case 43:
        case 44:
        case 45:
                put32(a, 16, on_range(request, a, false));
                return 0;
        case 46:
        case 47:
                put32(a, 32, on_range(request, a, true));
                return 0;
        case 51:
                CHECK_EQ(get64(a, 40), 0); /* no semaphore */
                put32(a, 72, on_range(request, a, true));
                return 0;
        case 64:
                put32(a, 8, uuid_table(a));
                return 0;
        case 67:
                put32(a, 0, 0);
                return 0;
        case 80:
                CHECK_EQ(get64(a, 16), 1);
                put32(a, 24, on_range(request, a, false));
                return 0;
        default:
                errno = EINVAL;
                return -1;
        }
}

static int fake_ioctl(int fd, unsigned long request, void *a)
{
        if (fails())
                return -1;
        CHECK(request < 128);
        fake->ioctls[request]++;
        if (fd == TOOLS_FD)
                return tools_ioctl(request, a);
        if (fd == DUP + FD_TIE) {
                put32(a, request == 64 ? 8 : 0, 0x16);
                return 0;
        }
        CHECK_EQ(fd, DUP + FD_MEMORY);
        if (request == 80 && fake->no_discard) {
                errno = EINVAL;
                return -1;
        }
        return memory_ioctl(request, a);
}

static uint64_t fake_monotonic(void)
{
        return fake->monotonic_ns;
}

const struct uvm_system fake_system = {
        .open = fake_open,
        .close = fake_close,
        .ioctl = fake_ioctl,
        .pidfd_open = fake_pidfd_open,
        .pidfd_getfd = fake_pidfd_getfd,
        .pidfd_alive = fake_pidfd_alive,
        .start_ticks = fake_start_ticks,
        .list_fds = fake_list_fds,
        .is_uvm = fake_is_uvm,
        .monotonic_ns = fake_monotonic,
};

/* ---- a journal that may die ---- */

static ssize_t dying_write(int fd, const void *bytes, size_t size)
{
        size_t half = size / 2;

        uvm_fake_step();
        if (fake->deaths_left == 1) {
                /* The next step kills: let half of it have come to the file. */
                CHECK_EQ(write(fd, bytes, half), half);
                uvm_fake_step();
        }
        uvm_fake_step();
        return write(fd, bytes, size);
}

static int dying_sync(int fd)
{
        uvm_fake_step();
        fake->syncs++;
        return fdatasync(fd);
}

static int dying_truncate(int fd, off_t size)
{
        uvm_fake_step();
        return ftruncate(fd, size);
}

static int dying_rename(const char *from, const char *to)
{
        int r;

        uvm_fake_step();
        r = rename(from, to);
        uvm_fake_step();
        return r;
}

const struct undo_io fake_io = {.write = dying_write,
                                .sync = dying_sync,
                                .truncate = dying_truncate,
                                .rename = dying_rename,
                                .unlink = unlink,
                                .lock = flock};

/* ---- for the tests ---- */

void uvm_fake_reset(void)
{
        if (!fake)
                fake = mmap(NULL, sizeof(*fake), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                            -1, 0);
        CHECK(fake != MAP_FAILED);
        memset(fake, 0, sizeof(*fake));
        fake->alive = true;
        fake->ticks = FAKE_TICKS;
        fake->monotonic_ns = 1000000000;
        fake->raw_ns = 900000000;
        for (size_t i = 0; i < FAKE_PAGES; i++)
                fake->pages[i] = (struct fake_page){.managed = 1, .preferred = FAKE_NONE};
}

void uvm_fake_put(const uint8_t entry[64])
{
        uint32_t mask = fake->entries - 1;
        uint32_t get = get32(fake->control, 4) & mask, put = get32(fake->control, 12) & mask;

        if (((fake->entries + get - put) & mask) == 1) {
                put64(fake->control, 16 + entry[0] * 8u,
                      get64(fake->control, 16 + entry[0] * 8u) + 1);
                return;
        }
        memcpy(fake->queue + put * 64u, entry, 64);
        put32(fake->control, 8, (put + 1) & mask);
        put32(fake->control, 12, (put + 1) & mask);
}

void uvm_fake_gpu_fault(uint8_t entry[64], uint64_t address, uint64_t raw_ns)
{
        memset(entry, 0, 64);
        entry[0] = 3;
        entry[1] = 2; /* invalid page table entry */
        entry[2] = 2; /* write */
        entry[3] = FAKE_GPU;
        entry[4] = 5;  /* cluster */
        entry[6] = 77; /* client */
        put64(entry, 8, address);
        put64(entry, 16, raw_ns);
        put64(entry, 24, raw_ns + 7);
        put32(entry, 32, 99); /* batch */
        entry[36] = 1;
}

void uvm_fake_cpu_fault(uint8_t entry[64], uint64_t address, uint64_t raw_ns)
{
        memset(entry, 0, 64);
        entry[0] = 1;
        entry[1] = 1; /* read */
        put32(entry, 4, 3);
        put64(entry, 8, address);
        put64(entry, 16, raw_ns);
        put32(entry, 24, FAKE_PID);
        put32(entry, 28, FAKE_PID + 1);
        put64(entry, 32, 0x401000);
}

void uvm_fake_migration(uint8_t entry[64], uint8_t cause, uint8_t from, uint8_t to,
                        uint64_t address, uint64_t bytes, uint64_t raw_ns)
{
        memset(entry, 0, 64);
        entry[0] = 2;
        entry[1] = cause;
        entry[2] = from;
        entry[3] = to;
        put64(entry, 8, address);
        put64(entry, 16, bytes);
        put64(entry, 24, raw_ns);
        put64(entry, 32, raw_ns + 10);
        put64(entry, 48, raw_ns + 1);
        put64(entry, 56, raw_ns + 9);
}

size_t uvm_fake_advised_pages(void)
{
        size_t n = 0;

        for (size_t i = 0; i < FAKE_PAGES; i++)
                n += fake->pages[i].preferred != FAKE_NONE || fake->pages[i].accessed_by ||
                     fake->pages[i].duplicated;
        return n;
}
