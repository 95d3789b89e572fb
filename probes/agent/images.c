/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "images.h"
#include "memory_map.h"
#include "rewrite.h"

#define READ_MAX ((size_t)1 << 30)

/* CUjit_option: numbers that say how to compile. */
static bool option_is_kept(int option)
{
        switch (option) {
        case 0:  /* MAX_REGISTERS */
        case 7:  /* OPTIMIZATION_LEVEL */
        case 8:  /* TARGET_FROM_CUCONTEXT */
        case 9:  /* TARGET */
        case 10: /* FALLBACK_STRATEGY */
        case 11: /* GENERATE_DEBUG_INFO */
        case 13: /* GENERATE_LINE_INFO */
        case 14: /* CACHE_MODE */
        case 16: /* FAST_COMPILE */
                return true;
        default:
                return false;
        }
}

/* ... and those that only ask for messages and times. */
static bool option_is_report(int option)
{
        return (option >= 1 && option <= 6) || option == 12; /* THREADS_PER_BLOCK .. LOG_VERBOSE */
}

void image_options_take(unsigned count, const int *options, void *const *values,
                        struct image_options *ret_options)
{
        struct image_options o = {0};

        if (count && options && values) {
                o.options = calloc(count, sizeof(*o.options));
                o.values = calloc(count, sizeof(*o.values));
                if (!o.options || !o.values)
                        o.refusal = "out of memory";
        }
        for (unsigned i = 0; o.values && !o.refusal && i < count; i++) {
                if (option_is_kept(options[i])) {
                        o.options[o.count] = options[i];
                        o.values[o.count++] = values[i];
                } else if (!option_is_report(options[i])) {
                        o.refusal = "loaded with an option that a second copy cannot have";
                }
        }
        *ret_options = o;
}

void image_options_done(struct image_options *o)
{
        free(o->options);
        free(o->values);
        *o = (struct image_options){0};
}

/* A mapping of a file that nobody writes to, which holds all of it. */
static bool stays(const void *where, size_t bytes)
{
        struct memory_mapping m;

        return memory_mapping_find((uintptr_t)where, &m) == 0 && m.inode && !m.writable &&
               m.end - (uintptr_t)where >= bytes;
}

void image_origin_refer(const void *where, size_t bytes, struct image_origin *ret_origin)
{
        *ret_origin = (struct image_origin){.where = where, .bytes = bytes};
}

void image_origin_take(const void *image, size_t size, size_t *copied,
                       struct image_origin *ret_origin)
{
        struct image_origin o = {0};

        if (rewrite_extent(image, size, &o.where, &o.bytes, &o.linked) < 0) {
                o = (struct image_origin){.missing = "what it was loaded from is not understood"};
        } else if (!size && stays(o.where, o.bytes)) {
                /* by reference */
        } else if (o.bytes > IMAGES_COPIED_MAX - *copied) {
                o = (struct image_origin){.missing = "no room to keep what it was loaded from"};
        } else {
                o.copy = malloc(o.bytes + 1);
                if (o.copy) {
                        memcpy(o.copy, o.where, o.bytes);
                        ((char *)o.copy)[o.bytes] = '\0';
                        *copied += o.bytes;
                } else {
                        o.missing = "no memory to keep what it was loaded from";
                }
                o.where = o.copy;
        }
        *ret_origin = o;
}

void image_origin_done(struct image_origin *o, size_t *copied)
{
        if (o->copy)
                *copied -= o->bytes;
        free(o->copy);
        *o = (struct image_origin){0};
}

/* A library may have been closed without a word: the kernel says so instead of a fault. */
static int read_mapping(const void *where, size_t bytes, void *to)
{
        struct iovec local = {to, bytes}, remote = {(void *)(uintptr_t)where, bytes};
        ssize_t n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);

        return n == (ssize_t)bytes ? 0 : -EFAULT;
}

int image_origin_read(const struct image_origin *o, void **ret_bytes)
{
        char *bytes;
        int r = 0;

        if (o->missing || !o->where || o->bytes > READ_MAX)
                return -ENOENT;
        bytes = malloc(o->bytes + 1);
        if (!bytes)
                return -ENOMEM;
        if (o->copy)
                memcpy(bytes, o->copy, o->bytes);
        else
                r = read_mapping(o->where, o->bytes, bytes);
        if (r < 0) {
                free(bytes);
                return r;
        }
        bytes[o->bytes] = '\0';
        *ret_bytes = bytes;
        return 0;
}

struct image *images_find(struct image *images, cuda_handle handle)
{
        while (images && images->handle != handle)
                images = images->next;
        return images;
}

void image_free(struct image *image, size_t *copied)
{
        image_origin_done(&image->origin, copied);
        image_options_done(&image->options);
        free(image->path);
        free(image->kernels);
        free(image);
}

uint64_t image_name(const char *name)
{
        uint64_t h = 14695981039346656037ull;

        for (; *name; name++)
                h = (h ^ (unsigned char)*name) * 1099511628211ull;
        return h;
}

bool image_set_kernels(struct image *image, const struct wire_kernel *kernels, size_t count)
{
        free(image->kernels);
        image->kernels = calloc(count ?: 1, sizeof(*image->kernels));
        image->kernel_count = image->kernels ? count : 0;
        image->first_kernel_id = image->kernel_count ? kernels[0].kernel_id : 0;
        for (size_t i = 0; i < image->kernel_count; i++)
                image->kernels[i].name = image_name(kernels[i].name);
        return image->kernels != NULL;
}

bool image_is_probed(const struct image *image)
{
        for (size_t i = 0; i < image->kernel_count; i++)
                if (image->kernels[i].loaded_probed)
                        return true;
        return false;
}

ssize_t image_kernel_find(const struct image *image, const char *name)
{
        uint64_t hash = image_name(name);

        for (size_t i = 0; i < image->kernel_count; i++)
                if (image->kernels[i].name == hash)
                        return (ssize_t)i;
        return -1;
}
