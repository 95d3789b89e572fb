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
                uint8_t *memory = image_alloc(sizes[i]);

                CHECK(memory);
                CHECK_EQ((uintptr_t)memory % 8, 0);
                memset(memory, 0xa5, sizes[i]);
                free(memory);
        }
        CHECK(!image_alloc(SIZE_MAX / 2));
}

int main(void)
{
        TEST(readable);
        TEST(without_queries);
        TEST(image_memory);
        return 0;
}
