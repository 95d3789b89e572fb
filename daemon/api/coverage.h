/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the agent of one process did to each image and kernel: the coverage
 * list. Texts are interned. Bounded, since the process says what goes in.
 */
#include <stddef.h>
#include <stdint.h>

#include "agent/agent_abi.h"
#include "util/intern.h"

#define COVERAGE_IMAGES_MAX     65536
#define COVERAGE_KERNELS_MAX    131072
#define COVERAGE_TEXT_BYTES_MAX (32u << 20)

struct covered_image {
        uint32_t image_id;
        uint32_t status;       /* enum agent_image_status */
        uint32_t kernel_count; /* as the agent announced it */
        uint32_t rewrite_us;
        uint64_t handle;
        uint64_t bytes;
        uint64_t reason;       /* interned, 0 none */
        uint32_t first_kernel; /* positions of its kernels in coverage.kernels; others may lie */
        uint32_t end_kernel;   /* between them */
        uint8_t is_library;
        uint8_t is_ptx;
};

struct covered_kernel {
        uint32_t kernel_id;
        uint32_t image_id;
        uint64_t name;   /* interned */
        uint64_t reason; /* interned, 0 none */
        uint8_t entry;   /* enum agent_probe_how */
        uint8_t exit;
};

struct coverage {
        struct covered_image *images;
        size_t image_count;
        struct covered_kernel *kernels;
        size_t kernel_count;
        uint32_t entry_count; /* of the kernels, those probed at entry */
        uint32_t exit_count;
        size_t text_bytes;
        uint64_t dropped; /* images and kernels beyond the bounds */
};

void coverage_done(struct coverage *c);

/* Returns the image kept, or NULL when it was dropped (bound or memory). */
const struct covered_image *coverage_add_image(struct coverage *c, struct intern *names,
                                               const struct agent_image *image);

/* The same for a kernel; an unknown image_id is dropped too. */
const struct covered_kernel *coverage_add_kernel(struct coverage *c, struct intern *names,
                                                 uint32_t image_id, const struct agent_kernel *k,
                                                 const char *name, const char *reason);

const struct covered_image *coverage_image(const struct coverage *c, uint32_t image_id);

/* Range of positions in c->kernels outside which no kernel of the image is. */
void coverage_image_kernels(const struct coverage *c, uint32_t image_id, size_t *ret_first,
                            size_t *ret_end);
