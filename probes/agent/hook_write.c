/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Changing five bytes of code in a running process.
 *
 * First choice is /proc/self/mem: the kernel writes to the private copy of the
 * page and the mapping stays what it was. Making the mapping writable instead,
 * even for a moment, would have two costs: a uprobe registered in that moment
 * skips writable mappings and would be missing for good, and other threads
 * running code of the same page need it executable throughout.
 *
 * Where the kernel forbids that, the mapping is made writable and the eight
 * bytes from the patch on are exchanged in one locked instruction. It is
 * refused if they straddle a cache line, where the store would not be seen as
 * one. A page that a uprobe replaces at the same moment may swallow the write:
 * so it is checked, and tried again.
 *
 * Neither way helps a thread that stands between the displaced instructions.
 * The functions hooked here cannot have been entered successfully: the hooks are
 * written inside the process's first cuInit, before which they return at once.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hook.h"
#include "memory_map.h"

#define CACHE_LINE 64
#define WORD       8
#define TRIES      3
#define INT3       0xcc

static bool is_there(const uint8_t *at, const uint8_t *bytes, size_t size)
{
        const volatile uint8_t *p = at;

        for (size_t i = 0; i < size; i++)
                if (p[i] != bytes[i])
                        return false;
        return true;
}

static bool write_by_kernel(uint8_t *at, const uint8_t *patch, size_t size)
{
        int fd = open("/proc/self/mem", O_WRONLY | O_CLOEXEC);
        bool written = false;

        if (fd < 0)
                return false;
        for (int i = 0; i < TRIES && !written; i++)
                written = pwrite(fd, patch, size, (off_t)(uintptr_t)at) == (ssize_t)size &&
                          is_there(at, patch, size);
        close(fd);
        return written;
}

/* One locked exchange of the eight bytes from `at` on; the last three keep their value. */
static void exchange(uint8_t *at, const uint8_t *patch)
{
        uint64_t old, new;
        uint8_t done;

        memcpy(&old, at, WORD);
        do { /* NOLINT(bugprone-infinite-loop): the assembler sets done */
                new = old;
                memcpy(&new, patch, HOOK_PATCH_BYTES);
                __asm__ volatile("lock cmpxchgq %3, %1\n\tsete %0"
                                 : "=q"(done), "+m"(*(uint8_t(*)[WORD])at), "+a"(old)
                                 : "r"(new)
                                 : "cc", "memory");
        } while (!done);
}

static const char *write_by_exchange(uint8_t *at, const uint8_t *patch)
{
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        uintptr_t start = (uintptr_t)at & ~(page - 1);
        uintptr_t end = ((uintptr_t)at + WORD + page - 1) & ~(page - 1);
        bool written = false;

        if ((uintptr_t)at % CACHE_LINE > CACHE_LINE - WORD)
                return "the function's start is not aligned";
        if (mprotect((void *)start, end - start, PROT_READ | PROT_WRITE | PROT_EXEC) < 0)
                return "this system does not let code be changed";
        for (int i = 0; i < TRIES && !written; i++) {
                exchange(at, patch);
                written = is_there(at, patch, HOOK_PATCH_BYTES);
        }
        if (mprotect((void *)start, end - start, PROT_READ | PROT_EXEC) < 0 || !written)
                return "the code could not be changed";
        return NULL;
}

const char *hook_write(uint8_t *at, const uint8_t expected[HOOK_PATCH_BYTES],
                       const uint8_t patch[HOOK_PATCH_BYTES])
{
        struct memory_mapping m;

        if (!is_there(at, expected, HOOK_PATCH_BYTES))
                return "something else has changed the function";
        if (memory_mapping_find((uintptr_t)at, &m) < 0 || !m.executable || m.writable)
                return "the function is not in a read-only code mapping";
        if (write_by_kernel(at, patch, HOOK_PATCH_BYTES))
                return NULL;
        return write_by_exchange(at, patch);
}

bool hook_remove_breakpoint(uint8_t *function)
{
        static const uint8_t long_nop[] = {0x0f, 0x1f, 0x44, 0x00, 0x00};
        const volatile uint8_t *first = function;
        uint8_t original[sizeof(long_nop)];

        if (*first != INT3)
                return true;
        if (memory_file_bytes((uintptr_t)function, original, sizeof(original)) !=
                    (ssize_t)sizeof(original) ||
            original[0] == INT3)
                return false;
        /* Newer kernels put a call there, in steps in which the breakpoint has a part. */
        if (memcmp(original, long_nop, sizeof(long_nop)) == 0)
                return false;
        return write_by_kernel(function, original, 1);
}
