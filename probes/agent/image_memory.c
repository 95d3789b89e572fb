/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <sys/mman.h>

#include "image_memory.h"

#define HUGE_PAGE ((size_t)2 << 20)

void *image_alloc(size_t bytes)
{
        void *memory;

        if (bytes < HUGE_PAGE)
                return malloc(bytes ?: 1);
        /* What is behind the last whole huge page stays small pages. */
        if (posix_memalign(&memory, HUGE_PAGE, bytes))
                return NULL;
        madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
        return memory;
}
