/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The fields of the contexts of device programs and what they are in PTX. */
#include <stdbool.h>
#include <stdint.h>

#include "device/program.h"

enum context_source {
        CONTEXT_REGISTER, /* a 32-bit special register */
        CONTEXT_GRIDID_LOW,
        CONTEXT_GRIDID_HIGH,
        CONTEXT_KERNEL_ID,
        CONTEXT_ACTIVE_MASK,
        CONTEXT_NUMBER,
        CONTEXT_QUEUE,
        CONTEXT_ADDRESS_LOW,
        CONTEXT_ADDRESS_HIGH,
        CONTEXT_SIZE,
        CONTEXT_KIND,
        CONTEXT_SPACE,
        CONTEXT_LANES,
        CONTEXT_ZERO, /* padding */
};

struct context_word {
        enum context_source source;
        const char *name; /* of the special register */
};

/* Size of the context of programs that run there. */
uint32_t context_bytes(enum device_where where);

/* The 4-byte word at an offset that is a multiple of 4 and inside the context. */
const struct context_word *context_word(uint32_t offset);

/* Whether what `bytes` bytes at an offset hold may differ between the lanes of a warp. */
bool context_varies(uint32_t offset, unsigned bytes);
