/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which kernels lie in the fatbin containers of the programs and libraries that are
 * mapped into this process: to find what an image was loaded from that was loaded
 * before anybody watched. Made once; costs the unpacking of every container that fits
 * the devices, about a second for PyTorch, and kept. Not thread-safe.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct found_index;

/* sm: 10 * major + minor. Stops after timeout_ms with what it has. NULL: no memory. */
struct found_index *found_index_new(uint32_t sm, unsigned timeout_ms);

struct found_image {
        const void *container; /* in a mapping of a file */
        size_t bytes;
};

/*
 * The container that has exactly these kernels; complete: all the image has are named,
 * else there may be more. NULL and *ret_image; or a constant phrase: none, or several
 * that differ.
 */
const char *found_index_look_up(const struct found_index *f, const char *const *names, size_t count,
                                bool complete, struct found_image *ret_image);

/*
 * Where fatbins lie in an ELF file: offset and size of each section of them. The number
 * of sections, at most max; -errno. Any file may be given.
 */
struct found_section {
        uint64_t offset, bytes;
};
int found_sections(int fd, struct found_section *ret_sections, size_t max);

/*
 * Names of the kernels of machine code or PTX, each passed to add() with its hash
 * (images.h). False: not understood, or add() said so.
 */
bool found_kernels(const void *bytes, size_t size, bool is_ptx,
                   bool (*add)(void *data, uint64_t name), void *data);
