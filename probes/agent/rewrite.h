/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * One image the application loads: find what the driver would take out of it,
 * put the probes in, and say what became of each kernel. Knows nothing of the
 * driver's calls; a failure of any kind ends in "load the original" and why.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ptx_inject.h"
#include "splice.h"
#include "wire.h"

#define REWRITE_REASON_BYTES 240

/* What there is to put in. */
struct rewrite_probes {
        uint32_t sm; /* of the devices, 10 * major + minor */
        struct probe_list list;
        const struct grid_layout *layout; /* NULL: not to be relied on */
};

struct rewrite {
        void *image; /* to be loaded instead, for image_memory_free(); NULL: load the original */
        size_t image_bytes; /* PTX: without the NUL */
        bool is_ptx;
        bool launches;               /* machine code that launches kernels */
        size_t chosen_bytes;         /* of what the driver would take, unpacked */
        struct wire_kernel *kernels; /* names and reasons are the rewrite's own */
        size_t kernel_count;
        uint32_t generation;               /* of the list of programs, for who keeps it */
        char reason[REWRITE_REASON_BYTES]; /* why the original is loaded, or "" */
};

/*
 * Look at an image as the driver gets it. size is 0 when only its headers tell
 * (what lies behind it is checked before it is read). *next_kernel_id is advanced
 * over the ids given. Never fails: see ret_rewrite->image.
 */
void rewrite_image(const void *image, size_t size, const struct rewrite_probes *probes,
                   uint32_t *next_kernel_id, struct rewrite *ret_rewrite);

/*
 * Where the bytes of an image lie and how many they are, as its headers say; size as
 * above. A wrapper is followed: *ret_linked is what it says of the container. 0; -EINVAL.
 */
int rewrite_extent(const void *image, size_t size, const void **ret_bytes, size_t *ret_size,
                   bool *ret_linked);

/* The image will not be loaded after all: forget it, no kernel is probed, say why. */
void rewrite_refuse(struct rewrite *r, const char *format, ...)
        __attribute__((format(printf, 2, 3)));
void rewrite_done(struct rewrite *r);
