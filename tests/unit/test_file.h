/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files that tests read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "test.h"

/* The whole of a file that is not empty: ret_size bytes, no more are allocated. The caller frees.
 */
static inline uint8_t *test_read_file(const char *path, size_t *ret_size)
{
        FILE *f = fopen(path, "rb");
        uint8_t *bytes;
        long size;

        CHECK(f && fseek(f, 0, SEEK_END) == 0);
        size = ftell(f);
        CHECK(size > 0);
        rewind(f);
        bytes = malloc((size_t)size);
        CHECK(bytes && fread(bytes, 1, (size_t)size, f) == (size_t)size);
        fclose(f);
        *ret_size = (size_t)size;
        return bytes;
}
