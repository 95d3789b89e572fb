/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the kernels of images/mem_kernels.cu must do to memory, instruction by
 * instruction and thread by thread, and what programs that count must find.
 */
#include <stdint.h>

#include "bpf/device_mem.h"

#define MODEL_THREADS 256 /* of a block */

/* Where the kernel works. Shared and local memory begin at 0 here, elsewhere on the device. */
struct model_run {
        uint64_t in, out; /* addresses of the arrays */
        const uint32_t *in_words;
        uint32_t n;
        uint32_t blocks;
};

struct model_kernel {
        const char *name;
        /* Add what its accesses are to the counts. */
        void (*tell)(const struct model_run *r, struct mem_counts counts[MEM_ENTRIES]);
};

extern const struct model_kernel model_kernels[];
extern const unsigned model_kernel_count;
