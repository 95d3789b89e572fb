/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The fields of struct gpuobs_kernel_ctx and what they are in PTX. */
#include <stdbool.h>
#include <stdint.h>

enum context_source {
        CONTEXT_REGISTER, /* a 32-bit special register */
        CONTEXT_GRIDID_LOW,
        CONTEXT_GRIDID_HIGH,
        CONTEXT_KERNEL_ID,
        CONTEXT_ACTIVE_MASK,
        CONTEXT_NUMBER,
        CONTEXT_QUEUE,
        CONTEXT_ZERO, /* padding */
};

struct context_word {
        enum context_source source;
        const char *name; /* of the special register */
};

/* The 4-byte word at an offset that is a multiple of 4 and inside the context. */
const struct context_word *context_word(uint32_t offset);

/* Whether what `bytes` bytes at an offset hold may differ between the lanes of a warp. */
bool context_varies(uint32_t offset, unsigned bytes);
