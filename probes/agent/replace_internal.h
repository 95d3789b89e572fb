/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files replace_*.c. */
#include <pthread.h>

#include "image_state.h"
#include "replace_image.h"

#define REPLACE_LOCK_WAIT_MS 10000

struct replace_registry {
        pthread_mutex_t lock;
        const struct cuda_api *api;
        struct wire *wire;
        bool open;
        struct image *images;
        struct image_copy *retired; /* to be unloaded by the worker */
        uint32_t unloading;         /* generation of the one it has taken out; 0 none */
        size_t copied;              /* bytes */
        struct replace_plan plan;
        bool earlier; /* images may have been loaded before the agent came */
};
extern struct replace_registry registry;

/* False: not within the time. What needs it then is left undone. */
bool registry_lock(void);
void registry_unlock(void);

/* Look the table up while anything but the originals runs, or may have to. With the lock. */
void replace_update_active(void);

/* Bring an image to what the plan wants, and tell the daemon. With the lock. */
void replace_image(struct image *image);
/* What launches of a handle of a known image are to run now. With the lock. */
void replace_publish(struct replace_slot *s);
/* ... of all handles of an image. */
void replace_publish_all(struct image *image);
/* A copy that launches are not given any more: it is unloaded when nothing runs of it. */
void replace_retire(const struct image_copy *copy);

/* Look up handles that are new. With the lock. */
void replace_resolve_all(void);

/* Look up one, without looking for images that are not known. Takes the lock. */
void replace_resolve_known(struct replace_slot *s);

/*
 * The image of a handle that was loaded before the agent came: found, and brought to what
 * the plan wants, or noted as not found. parent: its library or module; name: of the
 * kernel. NULL: no memory. With the lock.
 */
struct image *replace_find_image(const struct replace_slot *s, cuda_handle parent,
                                 const char *name);

/* What the driver calls the handle's kernel; NULL: it does not say. The driver's memory. */
const char *replace_driver_name(const struct replace_slot *s);

/* A copy's function gets what was set for the original's: sizes, limits. False: it cannot. */
bool replace_copy_attributes(const struct replace_slot *s, cuda_handle copy);

/* The thread that resolves and unloads: start it, once, with the lock; 0 or -errno. */
int replace_start_worker(void);
/* It ends when it has nothing to do; with the lock, and replace_wake() after it. */
void replace_stop_worker(void);
/* It has something to do. Any thread, never blocks. */
void replace_wake(void);
