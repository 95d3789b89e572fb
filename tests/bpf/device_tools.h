/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the tests of device programs share. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/program.h"

/* The bytes of a file, NULL when it cannot be read; free() them. */
char *device_read_file(const char *path, size_t *ret_bytes);

/*
 * Load an object for a test, which is skipped where eBPF may not be loaded, and ended with the
 * reason when the object is refused.
 */
struct device_object *device_test_load(const char *path);

/* What the agent would put in, as operands of PTX. */
struct device_values {
        const char *kernel_id;
        const char *context;
        const char *queue;
        const char *address, *access; /* of an access of memory; NULL: it is none */
        const uint64_t *maps;
        bool loosen; /* values are kept out of uniform registers (agent_abi.h) */
};

/*
 * A fragment made into a kernel without parameters called `name`, with a module
 * head when `head` is not 0, all tokens replaced (@U@ by 0). A NUL-terminated
 * text to free().
 */
char *device_make_kernel(const char *fragment, const char *name, const struct device_values *values,
                         int head);
