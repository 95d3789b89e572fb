/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "image_memory.h"

#define HUGE_PAGE ((uintptr_t)2 << 20)

/*
 * malloc(), not posix_memalign(): an application's own allocator may lack that one,
 * and free() would be given what it does not know.
 */
void *image_alloc(size_t bytes)
{
        uint8_t *memory = malloc(bytes ?: 1);
        uintptr_t start, end;

        if (!memory)
                return NULL;
        start = ((uintptr_t)memory + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
        end = ((uintptr_t)memory + bytes) & ~(HUGE_PAGE - 1);
        /* A wish: what does not lie in whole huge pages, or on other kernels, is paged as ever. */
        if (start < end)
                madvise((void *)start, end - start, MADV_HUGEPAGE);
        return memory;
}
