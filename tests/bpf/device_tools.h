/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the tests of device programs share. */
#include <stddef.h>
#include <stdint.h>

/* The bytes of a file, NULL when it cannot be read; free() them. */
char *device_read_file(const char *path, size_t *ret_bytes);

/*
 * A fragment made into a kernel without parameters called `name`, with a module
 * head when `head` is not 0: @U@ becomes 0, @K@ kernel_id, @Mn@ maps[n].
 * A NUL-terminated text to free().
 */
char *device_make_kernel(const char *fragment, const char *name, const char *kernel_id,
                         const uint64_t *maps, int head);
