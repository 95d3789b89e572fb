/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Fixtures that are cubins. */
#include <stdio.h>
#include <string.h>

#include "agent/cubin.h"
#include "unit/test.h"
#include "unit/test_file.h"

/* A file of a directory of fixtures; the caller frees it. */
static inline uint8_t *test_load(const char *directory, const char *name, size_t *ret_size)
{
        char path[4096];

        snprintf(path, sizeof(path), "%s/%s", directory, name);
        return test_read_file(path, ret_size);
}

/* The code of a kernel: two words for each of *ret_count instructions, in the cubin's memory. */
static inline const uint64_t *test_kernel_code(const struct cubin *c, const char *kernel,
                                               size_t *ret_count)
{
        char name[512];
        size_t size;

        snprintf(name, sizeof(name), ".text.%s", kernel);
        for (size_t i = 1; i < c->header.e_shnum; i++) {
                if (strcmp(cubin_section_name(c, i), name) != 0)
                        continue;
                const uint64_t *code = (const void *)cubin_section_bytes(c, i, &size);

                *ret_count = size / 16;
                return code;
        }
        CHECK(!"no such section");
        return NULL;
}
