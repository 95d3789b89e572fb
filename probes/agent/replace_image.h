/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Fills the table of replace.h: knows the images that are loaded, rewrites them again
 * on demand, loads the result beside them, and gives back what is not wanted any more.
 *
 * One lock for all of it, held while one image is dealt with. No launch takes it.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api.h"
#include "images.h"
#include "replace.h"
#include "rewrite.h"
#include "wire.h"

/* How an image is rewritten: what the agent wants in it now. */
struct replace_plan {
        /*
         * A number of the programs wanted: images that were loaded with the same need no
         * copy. 0: no programs; every image is to run as it came.
         */
        uint32_t generation;
        uint32_t sm; /* of the devices, 10 * major + minor */
        /*
         * Rewrite an image for loading as library or module. first_kernel_id: the id of its
         * first kernel, 0: its kernels have none yet. path: of the file that holds it, "" none.
         * Never fails: see struct rewrite.
         */
        void (*rewrite)(const void *image, size_t size, const char *path, bool library,
                        const struct image_options *options, uint32_t first_kernel_id,
                        struct rewrite *ret_rewrite);
        /* The number of an image that is found, and of its first kernel if it has to stay. */
        uint32_t (*number_image)(void);
        uint32_t (*number_kernels)(size_t count);
};

/* Make everything ready; the worker thread starts when it is first needed. 0 or -errno. */
int replace_open(const struct cuda_api *api, struct wire *wire);

/*
 * The application has loaded an image: keep what it was loaded from. rewrite: what was
 * loaded instead (its image may be NULL: the original was). Any thread.
 */
struct replace_loaded {
        uint32_t image_id;
        cuda_handle handle;
        bool library;
        uint32_t generation; /* of the programs; 0: the original was loaded */
        const void *image;
        size_t size; /* 0: only its headers tell */
        unsigned option_count;
        const int *options;
        void *const *values;
        const char *path; /* of the file that holds it; "": none, or it lies in a mapping of it */
        const struct rewrite *rewrite;
};
void replace_loaded(const struct replace_loaded *l);

/*
 * The driver has given out a CUkernel or CUfunction. Any thread; while handles are looked up
 * it waits for the one lock.
 */
void replace_given(cuda_handle handle, bool is_kernel);

/* The application unloads it, or destroys the context: nothing of it may be launched again. */
void replace_unloaded(cuda_handle handle);
void replace_context_gone(cuda_handle context);

/*
 * From now on run the programs of the plan in every image, those that are loaded and
 * those that are still to be found. When this returns, launches that begin run what is
 * wanted, as far as an image allows; reports of each image have been sent. plan is
 * copied; what it points to has to stay. One thread at a time, not in the launch path.
 */
void replace_all(const struct replace_plan *plan);

/*
 * Images may have been loaded before the agent came: from now on handles that are
 * launched are looked up, and their images found where they lie in mapped files.
 */
void replace_find_earlier(void);

/*
 * Whether code with the programs of a generation may run: it is in an image that is
 * loaded, in its copy, or in one that is not unloaded yet. Any thread.
 */
bool replace_lives(uint32_t generation);

/* Launches run everything as it was loaded from here on; handles are still looked up. */
void replace_run_originals(void);

/*
 * The same, and unload what was loaded beside it, as far as nothing
 * can use it; handles are not looked up any more. Waits for that, a few seconds at most.
 * *ret_rewritten: images that have programs in them as they were loaded; *ret_kept: those
 * loaded beside others that had to stay.
 */
void replace_nothing(unsigned *ret_rewritten, unsigned *ret_kept);
