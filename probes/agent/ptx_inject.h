/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Puts probes into PTX text: the entry fragment at the start of every .entry
 * body, the exit fragment before everything that ends a thread there, the mem fragment
 * before everything that accesses memory. Fragments
 * are as agent_abi.h says, with map addresses already in place; what differs from
 * kernel to kernel is filled in here. A kernel without parameters cannot tell the
 * descriptor of its launch: 0.
 *
 * A kernel whose exits cannot all be seen (a device function executes `exit`)
 * gets no exit probe and says why. Where kernels access memory, the mem fragment goes
 * in front of the instruction, under its predicate; accesses without an address for each
 * thread (tensors, bulk copies, textures) and those of device functions have none. Text that is not
 * understood is refused.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grid_layout.h"

struct ptx_probes {
        const char *entry;                /* NULL: none */
        const char *exit;                 /* NULL: none */
        const char *mem;                  /* NULL: none */
        const struct grid_layout *layout; /* NULL: not to be relied on */
};

struct ptx_kernel {
        char *name;
        uint32_t kernel_id; /* first_kernel_id, +1, ... in order of the text */
        bool entry;         /* the probe is in */
        bool exit;
        uint32_t accesses;       /* instructions with a probe */
        uint32_t other_accesses; /* that access memory and have none */
        const char *refusal;     /* constant; why one of them is not, or NULL */
        const char *mem_refusal; /* constant; why some accesses have no probe, or NULL */
};

struct ptx_result {
        char *text;   /* NUL-terminated */
        size_t bytes; /* without the NUL */
        struct ptx_kernel *kernels;
        size_t kernel_count;
};

/*
 * 0; -ENOMEM; -EINVAL text that is not understood; -ENOTSUP a form we do not
 * handle. On failure *ret_reason (may be NULL) is a constant sentence. Any thread.
 */
int ptx_inject(const char *text, size_t size, const struct ptx_probes *probes,
               uint32_t first_kernel_id, struct ptx_result **ret_result, const char **ret_reason);
struct ptx_result *ptx_result_free(struct ptx_result *r);
