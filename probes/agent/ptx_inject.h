/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Puts programs into PTX text: those for entries at the start of an .entry body,
 * those for exits before everything that ends a thread there, those for accesses of
 * memory before the instruction, under its predicate. Fragments are as agent_abi.h
 * says, with map addresses already in place; what differs from kernel to kernel is
 * filled in here. A kernel without parameters cannot tell the descriptor of its
 * launch: 0.
 *
 * A kernel whose exits cannot all be seen (a device function executes `exit`) gets no
 * program there and says why. Accesses without an address for each thread (tensors,
 * bulk copies, textures) and those of device functions are left alone; the kernel says
 * so. Text that is not understood is refused.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grid_layout.h"
#include "probe_list.h"

struct ptx_probes {
        struct probe_list list;
        const struct grid_layout *layout; /* NULL: not to be relied on */
};

struct ptx_kernel {
        char *name;
        uint32_t kernel_id;             /* first_kernel_id, +1, ... in order of the text */
        struct probe_outcome *outcomes; /* by position in the list of programs */
        bool accesses_known;            /* a program was wanted at them */
        uint32_t accesses;              /* instructions with programs for accesses */
        uint32_t other_accesses;        /* that access memory and have none */
};

struct ptx_result {
        char *text;   /* NUL-terminated */
        size_t bytes; /* without the NUL */
        struct ptx_kernel *kernels;
        size_t kernel_count;
        size_t in_count; /* programs that are in, over all kernels */
};

/*
 * 0; -ENOMEM; -EINVAL text that is not understood; -ENOTSUP a form we do not
 * handle. On failure *ret_reason (may be NULL) is a constant sentence. Any thread.
 */
int ptx_inject(const char *text, size_t size, const struct ptx_probes *probes,
               uint32_t first_kernel_id, struct ptx_result **ret_result, const char **ret_reason);
struct ptx_result *ptx_result_free(struct ptx_result *r);
