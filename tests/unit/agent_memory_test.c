/* SPDX-License-Identifier: Apache-2.0 */

/* How far memory can be read, asked in both ways there are; memory for images. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
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

        CHECK_EQ(memory_readable_bytes(at), 2 * PAGE);
        CHECK_EQ(memory_readable_bytes(at + 100), 2 * PAGE - 100);
        CHECK_EQ(memory_readable_bytes(at + 2 * PAGE - 1), 1);
        CHECK_EQ(memory_readable_bytes(at + 2 * PAGE), 0);
        CHECK_EQ(memory_readable_bytes(at + 3 * PAGE), PAGE);
        CHECK_EQ(memory_readable_bytes(at + 4 * PAGE), 0);
        CHECK_EQ(memory_readable_bytes((void *)8), 0);
        munmap(at, 4 * PAGE);
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
        TEST(without_queries);
        TEST(image_memory);
        TEST(image_memory_kept);
        TEST(image_memory_bounded);
        return 0;
}
