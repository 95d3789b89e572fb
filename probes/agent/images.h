/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The images the application has loaded, and what they were loaded from. The bytes of
 * an image are kept by reference while they lie in a mapping of a file (the fatbins of
 * programs and libraries do), else as a copy, up to a bound for all of them together.
 *
 * Nothing here locks: the caller (replace_image.c) holds one lock for all of it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cuda_api.h"
#include "wire.h"

#define IMAGES_COPIED_MAX ((size_t)64 << 20) /* bytes of copies, of all images */

/* What an image was loaded from. */
struct image_origin {
        const void *where; /* the container, ELF or text; of the process's mapping, or `copy` */
        size_t bytes;
        void *copy;          /* owned; NULL: by reference */
        bool linked;         /* its wrapper said so (fatbin.h) */
        const char *missing; /* why there is none, a constant phrase; NULL: there is one */
};

/* Options of a load that must be the same for a copy; others (logs) are left out. */
struct image_options {
        int *options;
        void **values;
        unsigned count;
        const char *refusal; /* an option that a copy cannot have; NULL: none */
};

struct image_kernel {
        uint64_t name;      /* its hash, image_name() */
        bool loaded_probed; /* has a start probe as it was loaded */
        bool copied;        /* the copy may run in its place */
        bool copy_probed;
};

/* A copy: loaded beside the image, never known to the application. */
struct image_copy {
        struct image_copy *next; /* of those that are to be unloaded */
        cuda_handle handle;      /* module or library; NULL: none */
        bool library;
        cuda_handle context; /* of a module */
        uint32_t generation; /* of the programs it has */
        bool kept;           /* a graph may have its functions: not to be unloaded */
};

struct image {
        struct image *next;
        uint32_t image_id;
        cuda_handle handle; /* CUmodule or CUlibrary */
        bool library;
        cuda_handle context; /* a module's; NULL for a library */
        uint32_t generation; /* of the programs it was loaded with; 0: none at all */
        uint32_t wanted;     /* generation it was last replaced for */
        struct image_origin origin;
        char *path; /* of the file that holds it; NULL: it lies in a mapping of it, or none */
        struct image_options options;
        uint32_t first_kernel_id; /* 0: no ids given yet */
        struct image_kernel *kernels;
        size_t kernel_count;
        struct image_copy copy;
};

/*
 * What is kept of an image that was given to a load: its extent is read from its
 * headers. `copied` counts the bytes of all copies. Never fails: see `missing`.
 */
void image_origin_take(const void *image, size_t size, size_t *copied,
                       struct image_origin *ret_origin);

/* What lies in a file's mapping and stays there. */
void image_origin_refer(const void *where, size_t bytes, struct image_origin *ret_origin);
void image_origin_done(struct image_origin *o, size_t *copied);

/*
 * The bytes again, malloc'd, with a NUL behind them: safe also when the mapping is
 * gone. 0; -ENOENT there are none (o->missing says why); -EFAULT; -ENOMEM.
 */
int image_origin_read(const struct image_origin *o, void **ret_bytes);

void image_options_take(unsigned count, const int *options, void *const *values,
                        struct image_options *ret_options);
void image_options_done(struct image_options *o);

/* The image, or NULL. */
struct image *images_find(struct image *images, cuda_handle handle);
/* Frees it, but not what the driver has of it. */
void image_free(struct image *image, size_t *copied);

/*
 * The image has these kernels: their names and the first id are taken, and nothing else is
 * known of them. False: no memory, and it has none.
 */
bool image_set_kernels(struct image *image, const struct wire_kernel *kernels, size_t count);

/* Whether a kernel of it has a start probe as it was loaded. */
bool image_is_probed(const struct image *image);

/* Hash of a kernel's name; its place among an image's kernels, -1: there is none. */
uint64_t image_name(const char *name);
ssize_t image_kernel_find(const struct image *image, const char *name);
