/* SPDX-License-Identifier: Apache-2.0 */

/* How far memory can be read, asked in both ways there are; memory for images. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/image_memory.h"
#include "agent/memory_map.h"
#include "unit/test.h"

#define PAGE 4096u

/* Readable, read-only (a mapping of its own), not readable, readable, nothing. */
static uint8_t *make_pages(void)
{
        uint8_t *at =
                mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        CHECK(at != MAP_FAILED);
        CHECK_EQ(mprotect(at + PAGE, PAGE, PROT_READ), 0);
        CHECK_EQ(mprotect(at + 2 * PAGE, PAGE, PROT_NONE), 0);
        CHECK_EQ(munmap(at + 4 * PAGE, PAGE), 0);
        return at;
}

static void readable(void)
{
        uint8_t *at = make_pages();

        CHECK_EQ(memory_readable_bytes(at, SIZE_MAX), 2 * PAGE);
        CHECK_EQ(memory_readable_bytes(at + 100, SIZE_MAX), 2 * PAGE - 100);
        CHECK_EQ(memory_readable_bytes(at + 2 * PAGE - 1, SIZE_MAX), 1);
        CHECK_EQ(memory_readable_bytes(at + 2 * PAGE, SIZE_MAX), 0);
        CHECK_EQ(memory_readable_bytes(at + 3 * PAGE, SIZE_MAX), PAGE);
        CHECK_EQ(memory_readable_bytes(at + 4 * PAGE, SIZE_MAX), 0);
        CHECK_EQ(memory_readable_bytes((void *)8, SIZE_MAX), 0);
        /* Whole mappings, no more of them than it takes. */
        CHECK_EQ(memory_readable_bytes(at, 1), PAGE);
        CHECK_EQ(memory_readable_bytes(at + 100, PAGE - 100), PAGE - 100);
        CHECK_EQ(memory_readable_bytes(at + 100, PAGE), 2 * PAGE - 100);
        CHECK_EQ(memory_readable_bytes(at + 2 * PAGE, 1), 0);
        munmap(at, 4 * PAGE);
}

static bool count_same(void *data, const struct memory_mapping *m)
{
        struct memory_mapping found;
        unsigned *same = data;

        /* The stack grows, and what is not the process's own cannot be asked for. */
        if (m->path[0] == '[')
                return true;
        memset(&found, 0xff, sizeof(found));
        CHECK_EQ(memory_mapping_find(m->start, &found), 0);
        CHECK_STR(found.path, m->path);
        CHECK_EQ(found.start, m->start);
        CHECK_EQ(found.end, m->end);
        CHECK_EQ(found.offset, m->offset);
        CHECK_EQ(found.inode, m->inode);
        CHECK_EQ(found.device_major, m->device_major);
        CHECK_EQ(found.device_minor, m->device_minor);
        CHECK_EQ(found.readable, m->readable);
        CHECK_EQ(found.writable, m->writable);
        CHECK_EQ(found.executable, m->executable);
        CHECK_EQ(memory_mapping_find(m->end - 1, &found), 0);
        CHECK_EQ(found.start, m->start);
        (*same)++;
        return true;
}

/* One mapping by its address is what the list of all has, of memory, files and a file that is gone.
 */
static void found(void)
{
        char name[] = "/tmp/gpuobs-mapping-XXXXXX";
        uint8_t *pages = make_pages(), *gone;
        struct memory_mapping m;
        unsigned same = 0;
        int fd = mkstemp(name);

        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, 3 * PAGE), 0);
        gone = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE, fd, PAGE);
        CHECK(gone != MAP_FAILED);
        CHECK_EQ(unlink(name), 0);
        CHECK_EQ(memory_mapping_find((uintptr_t)gone + PAGE, &m), 0);
        CHECK(strstr(m.path, " (deleted)"));
        CHECK_EQ(m.offset, PAGE);
        CHECK_EQ(memory_mapping_find((uintptr_t)(pages + 4 * PAGE), &m), -ENOENT);
        CHECK_EQ(memory_mapping_find((uintptr_t)memory_mapping_find, &m), 0);
        CHECK(m.executable && m.inode && !m.writable);
        memory_mappings_each(count_same, &same);
        CHECK(same > 5);
        munmap(gone, 2 * PAGE);
        munmap(pages, 4 * PAGE);
        close(fd);
}

/* As on a kernel that only has the text. */
static void without_queries(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
        int status;
        pid_t child = fork();

        CHECK(child >= 0);
        if (!child) {
                CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
                CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
                readable();
                found();
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
}

static void image_memory(void)
{
        static const size_t sizes[] = {0, 1, 4096, (2u << 20) - 1, 2u << 20, (5u << 20) + 17};

        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
                uint8_t *memory = image_memory_alloc(sizes[i]);

                CHECK(memory);
                CHECK_EQ((uintptr_t)memory % 8, 0);
                memset(memory, 0xa5, sizes[i]);
                image_memory_free(memory);
        }
        CHECK(!image_memory_alloc(SIZE_MAX / 2));
        image_memory_free(NULL);
}

static uint8_t *fill(size_t bytes)
{
        uint8_t *memory = image_memory_alloc(bytes);

        CHECK(memory);
        memset(memory, 0x5a, bytes);
        return memory;
}

static void *page_of(const uint8_t *memory)
{
        return (void *)((uintptr_t)memory & ~(uintptr_t)(PAGE - 1));
}

/* Pages of `bytes` from the image on that are in memory. */
static size_t resident(const uint8_t *memory, size_t bytes)
{
        static unsigned char in[(32u << 20) / PAGE];
        size_t pages = bytes / PAGE, n = 0;

        CHECK(pages <= sizeof(in));
        CHECK_EQ(mincore(page_of(memory), pages * PAGE, in), 0);
        for (size_t i = 0; i < pages; i++)
                n += in[i] & 1;
        return n;
}

/*
 * What was freed serves the next image of its size, a smaller one, and a larger one. All
 * are larger than what the tests before left.
 */
static void image_memory_kept(void)
{
        const size_t small = 6u << 20, middle = 9u << 20, large = 20u << 20;
        uint8_t *a = fill(small), *b = fill(middle), *c;

        image_memory_free(a);
        image_memory_free(b);
        c = image_memory_alloc(small);
        CHECK(c == a);
        a = image_memory_alloc(small);
        CHECK(a == b);
        image_memory_free(a);
        image_memory_free(c);
        c = image_memory_alloc(middle);
        CHECK(c == b);
        image_memory_free(c);

        /* Grown: some pages are there before they are written, and all can be. */
        c = image_memory_alloc(large);
        CHECK(c);
        CHECK(resident(c, large) >= (4u << 20) / PAGE);
        memset(c, 0x77, large);
        CHECK_EQ(c[0], 0x77);
        CHECK_EQ(c[large - 1], 0x77);
        image_memory_free(c);
}

/* More than two are not kept, nor are the largest ones. */
static void image_memory_bounded(void)
{
        uint8_t *m[4], *huge = fill(40u << 20);
        size_t there = 0;
        unsigned char in;

        for (size_t i = 0; i < 4; i++)
                m[i] = fill(2u << 20);
        for (size_t i = 0; i < 4; i++)
                image_memory_free(m[i]);
        for (size_t i = 0; i < 4; i++)
                there += mincore(page_of(m[i]), 1, &in) == 0;
        CHECK_EQ(there, 2);
        image_memory_free(huge);
        CHECK(mincore(page_of(huge), 1, &in) < 0);
}

int main(void)
{
        TEST(readable);
        TEST(found);
        TEST(without_queries);
        TEST(image_memory);
        TEST(image_memory_kept);
        TEST(image_memory_bounded);
        return 0;
}
