/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent.h"
#include "monotonic.h"
#include "replace_internal.h"

#define UNLOAD_WAIT_MS 5000

struct replace_registry registry = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool registry_lock(void)
{
        struct timespec until = monotonic_in_ms(REPLACE_LOCK_WAIT_MS);

        return pthread_mutex_clocklock(&registry.lock, CLOCK_MONOTONIC, &until) == 0;
}

void registry_unlock(void)
{
        pthread_mutex_unlock(&registry.lock);
}

static cuda_handle current_context(void)
{
        return cuda_current_context(registry.api);
}

int replace_open(const struct cuda_api *api, struct wire *wire)
{
        registry.api = api;
        registry.wire = wire;
        if (!replace_table_open(current_context, replace_wake))
                return -ENOMEM;
        registry.open = true;
        return 0;
}

/* ---- images come and go ---- */

static bool take_kernels(struct image *image, const struct rewrite *r)
{
        if (!image_set_kernels(image, r->kernels, r->kernel_count))
                return false;
        for (size_t i = 0; i < r->kernel_count; i++)
                image->kernels[i].loaded_probed =
                        r->image && r->kernels[i].entry != AGENT_PROBE_NONE;
        return true;
}

static struct image *image_new(const struct replace_loaded *l)
{
        struct image *image = calloc(1, sizeof(*image));

        if (!image)
                return NULL;
        image->image_id = l->image_id;
        image->handle = l->handle;
        image->library = l->library;
        image->context = l->library ? NULL : current_context();
        image->generation = image->wanted = l->generation;
        image_options_take(l->option_count, l->options, l->values, &image->options);
        image_origin_take(l->image, l->size, &registry.copied, &image->origin);
        image->path = l->path[0] ? strdup(l->path) : NULL;
        if (!take_kernels(image, l->rewrite)) {
                image_free(image, &registry.copied);
                return NULL;
        }
        return image;
}

void replace_loaded(const struct replace_loaded *l)
{
        struct image *image;

        if (!registry.open || !registry_lock())
                return;
        image = image_new(l);
        if (image) {
                image->next = registry.images;
                registry.images = image;
                /* Programs have come since it was rewritten: the worker sees to it. */
                if (registry.plan.rewrite && registry.plan.generation != image->wanted)
                        replace_wake();
        }
        registry_unlock();
}

/* Launches go to what the application named, and somebody looks again if it comes back. */
static void forget_slot(struct replace_slot *s)
{
        s->image = NULL;
        __atomic_store_n(&s->instead, 0, __ATOMIC_SEQ_CST);
        __atomic_store_n(&s->state, REPLACE_GONE, __ATOMIC_RELEASE);
}

static void forget_slots(const struct image *image)
{
        struct replace_slot *s;
        uint32_t at = 0;

        while ((s = replace_next(&at)))
                if (s->image == image)
                        forget_slot(s);
}

void replace_retire(const struct image_copy *copy)
{
        struct image_copy *old = copy->handle ? malloc(sizeof(*old)) : NULL;

        if (!old)
                return; /* without memory it stays loaded, which does no harm */
        *old = *copy;
        old->next = registry.retired;
        registry.retired = old;
        replace_wake();
}

static void unlink_image(struct image **at)
{
        struct image *image = *at;

        *at = image->next;
        forget_slots(image);
        replace_retire(&image->copy);
        image_free(image, &registry.copied);
}

void replace_unloaded(cuda_handle handle)
{
        if (!registry.open || !registry_lock())
                return;
        for (struct image **at = &registry.images; *at; at = &(*at)->next)
                if ((*at)->handle == handle) {
                        unlink_image(at);
                        break;
                }
        registry_unlock();
}

/* Copies of modules died with it; a library's lives on. */
static void forget_copies(cuda_handle context)
{
        for (struct image_copy **at = &registry.retired; *at;) {
                struct image_copy *copy = *at;

                if (copy->library || copy->context != context) {
                        at = &copy->next;
                        continue;
                }
                *at = copy->next;
                free(copy);
        }
}

void replace_context_gone(cuda_handle context)
{
        struct replace_slot *s;
        uint32_t at = 0;

        if (!registry.open || !context || !registry_lock())
                return;
        while ((s = replace_next(&at)))
                if (s->context == (uintptr_t)context && s->kind != REPLACE_KERNEL)
                        forget_slot(s);
        for (struct image **i = &registry.images; *i;) {
                if ((*i)->library || (*i)->context != context) {
                        i = &(*i)->next;
                        continue;
                }
                (*i)->copy = (struct image_copy){0};
                unlink_image(i);
        }
        forget_copies(context);
        registry_unlock();
}

/* ---- what launches run ---- */

static uint64_t original(const struct replace_slot *s, const struct image_kernel *k)
{
        return s->handle | (k && !k->loaded_probed ? REPLACE_UNPROBED | REPLACE_BARE : 0);
}

/* The copy's function for a handle, or NULL. */
static cuda_handle copy_function(const struct replace_slot *s, const char *name)
{
        const struct cuda_api *api = registry.api;
        const struct image_copy *copy = &s->image->copy;
        cuda_handle function = NULL, kernel = NULL, popped;

        if (!copy->library)
                return api->module_get_function(&function, copy->handle, name) == CUDA_OK ? function
                                                                                          : NULL;
        if (api->library_get_kernel(&kernel, copy->handle, name) != CUDA_OK)
                return NULL;
        if (s->kind == REPLACE_KERNEL)
                return kernel;
        /* A function is one context's. */
        if (!s->context || !api->kernel_get_function ||
            api->context_push((cuda_handle)(uintptr_t)s->context) != CUDA_OK)
                return NULL;
        if (api->kernel_get_function(&function, kernel) != CUDA_OK)
                function = NULL;
        api->context_pop(&popped);
        return function;
}

void replace_publish(struct replace_slot *s)
{
        struct image *image = s->image;
        const struct image_kernel *k =
                s->kernel < image->kernel_count ? &image->kernels[s->kernel] : NULL;
        uint64_t instead = original(s, k);
        cuda_handle copy = NULL;
        const char *name;

        if (k && k->copied && image->copy.handle && (name = replace_driver_name(s))) {
                copy = copy_function(s, name);
                if (copy && replace_copy_attributes(s, copy))
                        instead = (uintptr_t)copy | (k->copy_probed ? 0 : REPLACE_UNPROBED) |
                                  (instead & REPLACE_BARE);
                else
                        copy = NULL;
        }
        __atomic_store_n(&s->instead, instead, __ATOMIC_SEQ_CST);
        __atomic_store_n(&s->state, REPLACE_KNOWN, __ATOMIC_RELEASE);
        /* What the application set meanwhile went to the original alone. */
        if (copy)
                replace_copy_attributes(s, copy);
}

void replace_publish_all(struct image *image)
{
        struct replace_slot *s;
        uint32_t at = 0;

        while ((s = replace_next(&at)))
                if (s->image == image)
                        replace_publish(s);
}

/* ---- all of them ---- */

void replace_update_active(void)
{
        const struct image *image = registry.images;

        while (image && !image->copy.handle)
                image = image->next;
        replace_set_active(image || registry.earlier);
}

void replace_find_earlier(void)
{
        if (!registry.open || !registry_lock())
                return;
        registry.earlier = true;
        (void)replace_start_worker();
        replace_set_new_unprobed(true);
        replace_update_active();
        registry_unlock();
}

void replace_all(const struct replace_plan *plan)
{
        struct image *image;
        bool more = true;

        if (!registry.open || !registry_lock())
                return;
        registry.plan = *plan;
        (void)replace_start_worker();
        if (plan->rewrite)
                replace_resolve_all();
        registry_unlock();
        /* The lock is given up between images, for who loads and unloads meanwhile. */
        while (more && registry_lock()) {
                for (image = registry.images; image; image = image->next)
                        if (image->wanted != registry.plan.generation)
                                break;
                more = image != NULL;
                if (image)
                        replace_image(image);
                replace_update_active();
                registry_unlock();
        }
}

bool replace_lives(uint32_t generation)
{
        bool lives;

        if (!registry.open)
                return true; /* nobody knows what is loaded */
        if (!registry_lock())
                return true;
        lives = registry.unloading == generation;
        for (const struct image *i = registry.images; i && !lives; i = i->next)
                lives = i->generation == generation ||
                        (i->copy.handle && i->copy.generation == generation);
        for (const struct image_copy *r = registry.retired; r && !lives; r = r->next)
                lives = r->generation == generation;
        registry_unlock();
        return lives;
}

/* Still to be unloaded, or not to be at all. */
static unsigned count_retired(bool kept)
{
        unsigned count = 0;

        for (const struct image_copy *c = registry.retired; c; c = c->next)
                count += c->kept == kept;
        return count + (!kept && registry.unloading);
}

static void wait_for_unloading(void)
{
        struct timespec nap = {.tv_nsec = 10000000};
        bool more = true;

        for (unsigned ms = 0; more && ms < UNLOAD_WAIT_MS && registry_lock(); ms += 10) {
                more = count_retired(false) > 0;
                registry_unlock();
                if (more)
                        nanosleep(&nap, NULL);
        }
}

/* All that is known: what is found when the agent comes again is looked for again. */
static void forget_all(unsigned *ret_rewritten)
{
        struct replace_slot *s;
        uint32_t at = 0;

        while ((s = replace_next(&at)))
                forget_slot(s);
        *ret_rewritten = 0;
        while (registry.images) {
                *ret_rewritten += image_is_probed(registry.images);
                unlink_image(&registry.images);
        }
}

void replace_run_originals(void)
{
        const struct replace_plan nothing = {0};

        replace_all(&nothing);
}

void replace_nothing(unsigned *ret_rewritten, unsigned *ret_kept)
{
        *ret_rewritten = *ret_kept = 0;
        replace_run_originals();
        if (!registry.open || !registry_lock())
                return;
        registry.earlier = false;
        replace_set_new_unprobed(false);
        replace_set_active(false);
        forget_all(ret_rewritten);
        registry_unlock();
        replace_wake();
        wait_for_unloading();
        if (registry_lock()) {
                *ret_kept = count_retired(true) + count_retired(false);
                replace_stop_worker();
                registry_unlock();
                replace_wake();
        }
}
