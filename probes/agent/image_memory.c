/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "image_memory.h"

#define KEPT_BLOCKS 2                  /* what is unpacked, and what is made of it */
#define KEPT_BYTES  ((size_t)32 << 20) /* of one */
#define FIRM_BYTES  ((size_t)4 << 20)  /* of these, not given to the kernel */
#define MAPPED_MIN  ((size_t)128 << 10)
#define ROUND       ((size_t)64 << 10)

/* In front of the image, which is then aligned as malloc() does. */
struct block {
        _Alignas(16) size_t bytes; /* mapped, with this; 0: from malloc() */
};

static struct block *kept[KEPT_BLOCKS];
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static void unmap(struct block *b)
{
        if (b)
                munmap(b, b->bytes);
}

/* A wish: what does not lie in whole huge pages, or on other kernels, is paged
 * as ever. */
static struct block *map(size_t bytes)
{
        struct block *b =
                mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (b == MAP_FAILED)
                return NULL;
        madvise(b, bytes, MADV_HUGEPAGE);
        b->bytes = bytes;
        return b;
}

/* Pages that are there already stay. On failure the block is as it was. */
static bool enlarge(struct block **b, size_t bytes)
{
        struct block *larger = mremap(*b, (*b)->bytes, bytes, MREMAP_MAYMOVE);

        if (larger == MAP_FAILED)
                return false;
        madvise(larger, bytes, MADV_HUGEPAGE);
        larger->bytes = bytes;
        *b = larger;
        return true;
}

/* Position of the smallest that is large enough, else of the largest; of none
 * when all are out. */
static size_t choose_kept(size_t bytes)
{
        size_t best = 0;

        for (size_t n = 1; n < KEPT_BLOCKS; n++) {
                bool fits = kept[n] && kept[n]->bytes >= bytes;
                bool best_fits = kept[best] && kept[best]->bytes >= bytes;
                bool smaller = kept[n] && kept[best] && kept[n]->bytes < kept[best]->bytes;

                if (!kept[best] || (kept[n] && (best_fits ? fits && smaller : fits || !smaller)))
                        best = n;
        }
        return best;
}

/* Who finds the lock taken does without: it may have been taken when the
 * process forked. */
static struct block *take_kept(size_t bytes)
{
        struct block *b;
        size_t n;

        if (pthread_mutex_trylock(&kept_lock))
                return NULL;
        n = choose_kept(bytes);
        b = kept[n];
        kept[n] = NULL;
        pthread_mutex_unlock(&kept_lock);
        return b;
}

/* What is to be given back instead: the block itself, or a smaller one. */
static struct block *keep(struct block *b)
{
        size_t smallest = 0;
        struct block *out;

        if (b->bytes > KEPT_BYTES || pthread_mutex_trylock(&kept_lock))
                return b;
        for (size_t n = 1; n < KEPT_BLOCKS && kept[smallest]; n++)
                if (!kept[n] || kept[n]->bytes < kept[smallest]->bytes)
                        smallest = n;
        out = b;
        if (!kept[smallest] || kept[smallest]->bytes < b->bytes) {
                out = kept[smallest];
                kept[smallest] = b;
        }
        pthread_mutex_unlock(&kept_lock);
        return out;
}

static struct block *alloc_small(size_t bytes)
{
        struct block *b = malloc(sizeof(*b) + bytes);

        if (b)
                b->bytes = 0;
        return b;
}

static struct block *alloc_large(size_t bytes)
{
        size_t mapped = (sizeof(struct block) + bytes + ROUND - 1) & ~(ROUND - 1);
        struct block *b = take_kept(mapped);

        if (b && b->bytes < mapped && !enlarge(&b, mapped)) {
                unmap(b);
                b = NULL;
        }
        return b ?: map(mapped);
}

void *image_memory_alloc(size_t bytes)
{
        struct block *b = bytes < MAPPED_MIN            ? alloc_small(bytes)
                          : bytes < PTRDIFF_MAX - ROUND ? alloc_large(bytes)
                                                        : NULL;

        return b ? b + 1 : NULL;
}

/* Let the kernel have the pages of the part that is not always kept. */
static bool loosen(struct block *b)
{
        return b->bytes <= FIRM_BYTES ||
               madvise((uint8_t *)b + FIRM_BYTES, b->bytes - FIRM_BYTES, MADV_FREE) == 0;
}

void image_memory_free(void *image)
{
        struct block *b = image ? (struct block *)image - 1 : NULL;

        if (!b)
                return;
        if (!b->bytes)
                free(b);
        else if (b->bytes > KEPT_BYTES || !loosen(b))
                unmap(b);
        else
                unmap(keep(b));
}
