/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The agent as the hooks see it: one per process, made by InitializeInjection().
 * An image being loaded goes through agent_begin(), the driver's own function
 * with what agent_begin() put in its place (or the original), and agent_end().
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api.h"
#include "rewrite.h"

struct session;

#define AGENT_PATH_MAX 512 /* longer ones are cut */

struct agent_load {
        bool watched; /* agent_end() has something to report */
        bool library;
        uint64_t spent_ns;
        uint32_t image_id;
        bool counted; /* as being loaded */
        struct rewrite rewrite;

        char path[AGENT_PATH_MAX]; /* of the file that holds it, "" none or not asked for */

        /* As the application gave it, for copies; its memory is the caller's until agent_end(). */
        const void *image;
        size_t size;
        unsigned option_count;
        const int *options;
        void *const *values;
};

/*
 * The image that the calling thread hands in next comes from this file; NULL: it lies
 * where the pointer says.
 */
void agent_image_from(const char *path);

/*
 * Look at an image that is about to be loaded (size 0: only its headers tell).
 * Returns with load->rewrite.image set when there is something to load instead.
 * Costs a few instructions when the agent is off, in a forked child, or when the
 * call comes from within the driver or the agent itself. Every call must be
 * followed by agent_end() in the same thread. options/values: the JIT options of
 * the call, for PTX that must be compiled before it can be trusted.
 */
void agent_begin(struct agent_load *load, const void *image, size_t size, bool library,
                 unsigned option_count, const int *options, void *const *values);

/* The driver refused what was to be loaded instead. */
void agent_load_failed(struct agent_load *load, int result);

/* The call is over: result of the driver, handle it gave. Reports and frees. */
void agent_end(struct agent_load *load, int result, cuda_handle handle);

/*
 * The programs wanted have changed: images that are loaded get them, too, as far as
 * replace_image.h can; returns when launches that begin run them. Not in a launch or
 * load; one thread at a time, which is taken for the agent's own meanwhile.
 */
void agent_replace_all(void);

/* Would agent_begin() look at an image now? */
bool agent_watching(void);

/*
 * A device's primary context is about to be destroyed by a reset; a primary
 * context was retained, perhaps brought to life again. Images that outlive a
 * reset must find the maps where they were.
 */
void agent_before_reset(int device);
void agent_retained(int device, cuda_handle context);

/*
 * Take the agent's lock and make the device's primary context current. NULL when
 * nothing is rewritten, or the lock cannot be had; else agent_leave() must follow.
 */
struct session *agent_enter(void);
void agent_leave(void);

/* Whether a session is open, though agent_enter() may have to wait for its context. */
bool agent_is_ready(void);

/* For who holds the lock already. */
struct session *agent_session(void);

/*
 * Free the memory of one object that is gone and that nothing uses any more. False:
 * there is none. Between agent_enter() and agent_leave().
 */
bool agent_sweep(struct session *s, uint64_t *ret_id);

/* The calling thread is the agent's own: nothing it loads will be looked at. */
void agent_own_thread(void);

/* What the calling thread calls in between is the agent's doing, not the application's. */
void agent_aside(void);
void agent_back(void);

/* The driver's functions, hooked ones by their way around the hook. */
const struct cuda_api *agent_api(void);
