/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Kernels of images that are loaded already, run with other programs in them: the
 * image is rewritten again from its original bytes and loaded beside the first, and
 * launches of a function are given the other image's function in its place.
 *
 * This is what the launch path sees of it: a table from the handles the application
 * launches (CUfunction or CUkernel) to what is launched instead. While nothing is
 * replaced a launch costs one load; else a lookup without a lock, and a count of who
 * is inside, so that an image is not unloaded under a launch. replace_image.h makes
 * what is in the table.
 */
#include <stdbool.h>
#include <stdint.h>

#include "cuda_api.h"

/* 1: the table is to be looked at. Hidden in the library; written by replace_table.c. */
extern uint32_t replace_active;

/* One launch under way. */
struct replace_use {
        cuda_handle function; /* to be launched */
        uint32_t *inside;     /* counted here; NULL: the table was not looked at */
        bool unprobed;        /* known to run without a start probe: no record will come */
        bool bare;            /* the application's own function is known to have none */
};

/* See replace_begin(), replace_again() and replace_end(). */
void replace_look_up(struct replace_use *u, cuda_handle function);
void replace_leave(struct replace_use *u);
bool replace_failed(struct replace_use *u, cuda_handle function, int result);

/*
 * The application launches `function`, or puts it into a graph: u->function is what
 * to take. Every call must be followed by replace_end(). Any thread; never blocks.
 */
static inline void replace_begin(struct replace_use *u, cuda_handle function)
{
        *u = (struct replace_use){.function = function};
        if (__builtin_expect(__atomic_load_n(&replace_active, __ATOMIC_ACQUIRE) != 0, 0))
                replace_look_up(u, function);
}

/*
 * Did the driver refuse the other function, for a reason that the original may not
 * meet (it may need fewer registers)? Then launch the original: u->function is it now.
 */
static inline bool replace_again(struct replace_use *u, cuda_handle function, int result)
{
        return __builtin_expect(result != CUDA_OK && u->function != function, 0) &&
               replace_failed(u, function, result);
}

static inline void replace_end(struct replace_use *u)
{
        if (__builtin_expect(u->inside != NULL, 0))
                replace_leave(u);
}

/* ---- the table, for those who fill it ---- */

#define REPLACE_HANDLES (1u << 16) /* slots; at most half are used */

enum replace_state {
        REPLACE_NEW = 0, /* nobody has looked at it yet */
        REPLACE_KNOWN,   /* its image is known, and perhaps it is replaced */
        REPLACE_UNKNOWN, /* nobody can tell what it is: launched as it is */
        REPLACE_GONE,    /* its image was unloaded; the same address may mean another one later */
};

enum replace_kind {
        REPLACE_ANY = 0, /* CUfunction or CUkernel: not known */
        REPLACE_FUNCTION,
        REPLACE_KERNEL,
};

/* What is kept of a handle. Slots are never given back, but a handle may come again. */
struct image;
struct replace_slot {
        uint64_t handle;  /* 0: free. Taken by exchange */
        uint64_t instead; /* what to launch, and flags below; 0: itself, nothing known */
        uint64_t context; /* current when it was last met for the first time; 0 none */
        uint32_t state;   /* enum replace_state */
        uint32_t kind;    /* enum replace_kind */

        /* The rest belongs to who looks handles up (images.h). */
        uint32_t kernel; /* of the image */
        struct image *image;
};
#define REPLACE_UNPROBED 1ull /* in instead: no start record will come */
#define REPLACE_BARE     2ull /* in instead: nor would one if the handle itself were launched */

/* Make the table. False: no memory. Once; replace_active stays 0. */
bool replace_table_open(cuda_handle (*current_context)(void), void (*wake)(void));

/* Note that a handle exists; its slot, or NULL: no room. Any thread, without a lock. */
struct replace_slot *replace_note(cuda_handle handle, enum replace_kind kind, cuda_handle context);
struct replace_slot *replace_find(cuda_handle handle);

/* The next slot in use at or behind *position, which is moved on; NULL at the end. */
struct replace_slot *replace_next(uint32_t *position);

/* Look the table up from now on, or not any more. */
void replace_set_active(bool active);

/* What a handle that nobody has looked at yet is taken for until then. */
void replace_set_new_unprobed(bool unprobed);

/*
 * Wait until every launch that may have seen the table as it was before the call has
 * returned to its caller. False: not within timeout_ms.
 */
bool replace_wait_for_launches(unsigned timeout_ms);
#define REPLACE_WAIT_MS 1000 /* longer than launches take */

/* A graph is being made: what is launched now, if anything is replaced, may live on in it. */
void replace_graph_seen(void);
bool replace_graphs_seen(void);
