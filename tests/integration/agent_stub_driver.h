/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A libcuda that runs nothing: it takes images, remembers them, and answers as
 * the test tells it to. It exists to bring the agent into situations that
 * neither a real driver nor the simulated GPU can be made to produce.
 */
#include <stddef.h>

#define STUB_IMAGE_MAX (1u << 20)

struct stub_state {
        /* What the test wants. */
        int device_count;
        int sm[8];
        int peers; /* devices can reach each other */
        int has_vmm;
        int refuse_rewritten; /* result for images that hold what the agent puts in; 0: take them */
        int refuse_all;       /* result for all images */
        int refuse_link;      /* result of the linker */
        int use_ptxas;  /* link with the toolkit's assembler, so that machine code comes out */
        int shift_host; /* the GPU sees host memory elsewhere */
        int current_is_created; /* the current context is none of the primary ones */
        int no_current;
        int current_device; /* whose primary context is current */
        int gpu_silent;     /* the kernel that asks what grids are told never runs */
        int nested_load;    /* the driver itself loads a module while it loads one */

        /* What happened. */
        int loads; /* calls that reached the driver, nested ones not counted */
        int nested_loads;
        int launches;
        int linked;
        int registered, resets;
        int allocated, mapped, access_count;
        int memset_bytes;
        size_t image_bytes; /* of the last image, PTX only */
        char image[STUB_IMAGE_MAX];
        const void *image_address;
        int image_is_cubin;
        unsigned last_jit_count, last_library_count;
        int last_library_options[8];
};
