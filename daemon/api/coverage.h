/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the agent of one process did to each image and kernel: the coverage
 * list. Texts are interned. Bounded, and every step of it takes constant time,
 * since the process says what goes in.
 */
#include <stddef.h>
#include <stdint.h>

#include "agent/agent_abi.h"
#include "util/intern.h"

#define COVERAGE_IMAGES_MAX     65536 /* also the highest image_id: agents count from 1 */
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
        uint32_t first_kernel; /* its kernels: a chain of positions in coverage.kernels, plus 1; */
        uint32_t last_kernel;  /* 0 none */
        uint32_t told_again;   /* the next of them that is expected to be told anew; 0 none */
        uint8_t is_library;
        uint8_t is_ptx;
        uint8_t launches; /* kernels, on the device */
};

struct covered_kernel {
        uint32_t kernel_id;
        uint32_t image_id;
        uint64_t name;   /* interned */
        uint64_t reason; /* interned, 0 none */
        uint32_t next;   /* of the image, as first_kernel */
        uint32_t accesses_probed;
        uint32_t accesses; /* AGENT_ACCESSES_UNKNOWN: not known */
        uint8_t entry;     /* enum agent_probe_how */
        uint8_t exit;
};

struct coverage {
        struct covered_image *images; /* in the order they were reported */
        size_t image_count;
        uint32_t *by_id; /* image_id: position in images plus 1, 0 none */
        size_t id_count; /* entries of by_id */
        struct covered_kernel *kernels;
        size_t kernel_count;
        uint32_t entry_count; /* of the kernels, those probed at entry */
        uint32_t exit_count;
        size_t text_bytes;
};

void coverage_done(struct coverage *c);

/*
 * Returns the image kept, or NULL when it is left out, to be counted by the
 * caller: too many, an id that is taken or impossible, or no memory. The same image
 * (id and handle) may be told again when other programs were put in: then its kernels
 * may be, too, with the same ids in the same order.
 */
const struct covered_image *coverage_add_image(struct coverage *c, struct intern *names,
                                               const struct agent_image *image);

/* The same for a kernel; one of an unknown image is left out too. */
const struct covered_kernel *coverage_add_kernel(struct coverage *c, struct intern *names,
                                                 uint32_t image_id, const struct agent_kernel *k,
                                                 const char *name, const char *reason);

/* NULL when there is none. */
const struct covered_image *coverage_image(const struct coverage *c, uint32_t image_id);

/* The image with the next higher id, from after = 0; NULL at the end. */
const struct covered_image *coverage_next_image(const struct coverage *c, uint32_t after);

/* Each kernel of an image in the order they were reported, from NULL; NULL at the end. */
const struct covered_kernel *coverage_next_kernel(const struct coverage *c,
                                                  const struct covered_image *image,
                                                  const struct covered_kernel *previous);
