/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Whose is a handle? Asked of the driver when a handle is new to the table: which
 * library a CUkernel is of, which module a CUfunction, and its name.
 */
#include <stdlib.h>
#include <string.h>

#include "replace_internal.h"

/* CUfunction_attribute: what an application can set. */
static const int attributes[] = {
        8,  /* MAX_DYNAMIC_SHARED_SIZE_BYTES */
        9,  /* PREFERRED_SHARED_MEMORY_CARVEOUT */
        11, /* REQUIRED_CLUSTER_WIDTH */
        12, /* REQUIRED_CLUSTER_HEIGHT */
        13, /* REQUIRED_CLUSTER_DEPTH */
        14, /* NON_PORTABLE_CLUSTER_SIZE_ALLOWED */
        15, /* CLUSTER_SCHEDULING_POLICY_PREFERENCE */
};

static bool copy_function_attribute(int attribute, cuda_handle from, cuda_handle to)
{
        const struct cuda_api *api = registry.api;
        int want = 0, have = 0;

        if (!api->function_get_attribute || !api->function_set_attribute)
                return false;
        if (api->function_get_attribute(&want, attribute, from) != CUDA_OK)
                return true; /* one that this driver does not know */
        if (api->function_get_attribute(&have, attribute, to) == CUDA_OK && have == want)
                return true;
        return api->function_set_attribute(to, attribute, want) == CUDA_OK;
}

/* On each device where the process has a primary context: asking makes none. */
static bool copy_kernel_attribute(int attribute, cuda_handle from, cuda_handle to)
{
        const struct cuda_api *api = registry.api;
        int count = 0, want, have, active;
        unsigned flags;

        if (!api->kernel_get_attribute || !api->kernel_set_attribute || !api->primary_get_state ||
            api->device_get_count(&count) != CUDA_OK)
                return false;
        for (int d = 0; d < count; d++) {
                want = have = active = 0;
                if (api->primary_get_state(d, &flags, &active) != CUDA_OK || !active ||
                    api->kernel_get_attribute(&want, attribute, from, d) != CUDA_OK)
                        continue;
                if (api->kernel_get_attribute(&have, attribute, to, d) == CUDA_OK && have == want)
                        continue;
                if (api->kernel_set_attribute(attribute, want, to, d) != CUDA_OK)
                        return false;
        }
        return true;
}

bool replace_copy_attributes(const struct replace_slot *s, cuda_handle copy)
{
        cuda_handle from = (cuda_handle)(uintptr_t)s->handle;
        bool good = true;

        for (size_t i = 0; good && i < sizeof(attributes) / sizeof(attributes[0]); i++)
                good = s->kind == REPLACE_KERNEL
                               ? copy_kernel_attribute(attributes[i], from, copy)
                               : copy_function_attribute(attributes[i], from, copy);
        return good;
}

/* ---- handles ---- */

static bool library_of(cuda_handle handle, cuda_handle *ret_library)
{
        const struct cuda_api *api = registry.api;

        return api->kernel_get_library && api->kernel_get_library(ret_library, handle) == CUDA_OK;
}

/* A library that the module is of, in some context. */
static struct image *find_by_module(cuda_handle module)
{
        struct image *image = images_find(registry.images, module);
        cuda_handle of;

        if (image)
                return image;
        for (image = registry.images; image; image = image->next)
                if (image->library && registry.api->library_get_module &&
                    registry.api->library_get_module(&of, image->handle) == CUDA_OK && of == module)
                        return image;
        return NULL;
}

/* Its module, in the context the handle was met in. */
static struct image *find_by_function(const struct replace_slot *s, cuda_handle *ret_module)
{
        const struct cuda_api *api = registry.api;
        cuda_handle context = (cuda_handle)(uintptr_t)s->context, popped;
        struct image *image = NULL;

        if (!api->function_get_module ||
            api->function_get_module(ret_module, (cuda_handle)(uintptr_t)s->handle) != CUDA_OK)
                return NULL;
        if (!context || api->context_push(context) != CUDA_OK)
                return images_find(registry.images, *ret_module);
        image = find_by_module(*ret_module);
        api->context_pop(&popped);
        return image;
}

const char *replace_driver_name(const struct replace_slot *s)
{
        const struct cuda_api *api = registry.api;
        cuda_handle handle = (cuda_handle)(uintptr_t)s->handle;
        const char *name = NULL;

        if (s->kind == REPLACE_KERNEL)
                return api->kernel_get_name && api->kernel_get_name(&name, handle) == CUDA_OK
                               ? name
                               : NULL;
        return api->function_get_name && api->function_get_name(&name, handle) == CUDA_OK ? name
                                                                                          : NULL;
}

/* Launched as it is, and not looked at again. */
static void give_up(struct replace_slot *s)
{
        uint64_t flags = registry.earlier ? REPLACE_UNPROBED : 0;

        s->image = NULL;
        __atomic_store_n(&s->instead, s->handle | flags, __ATOMIC_SEQ_CST);
        __atomic_store_n(&s->state, REPLACE_UNKNOWN, __ATOMIC_RELEASE);
}

/* Its image, NULL: it is not among those that are known. */
static struct image *find_known(struct replace_slot *s, cuda_handle *ret_parent)
{
        cuda_handle handle = (cuda_handle)(uintptr_t)s->handle;

        if (s->kind != REPLACE_FUNCTION && library_of(handle, ret_parent)) {
                s->kind = REPLACE_KERNEL;
                return images_find(registry.images, *ret_parent);
        }
        s->kind = REPLACE_FUNCTION;
        return find_by_function(s, ret_parent);
}

/* False: the image has no such kernel. */
static bool settle(struct replace_slot *s, struct image *image, const char *name)
{
        ssize_t kernel = image && name ? image_kernel_find(image, name) : -1;

        if (kernel < 0)
                return false;
        s->image = image;
        s->kernel = (uint32_t)kernel;
        replace_publish(s);
        return true;
}

static void resolve(struct replace_slot *s)
{
        cuda_handle parent = NULL;
        struct image *image = find_known(s, &parent);
        const char *name = replace_driver_name(s);

        if (!image && parent && name && registry.earlier)
                image = replace_find_image(s, parent, name);
        if (!settle(s, image, name))
                give_up(s);
}

void replace_resolve_known(struct replace_slot *s)
{
        cuda_handle parent = NULL;

        if (!registry.open || !registry_lock())
                return;
        if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == REPLACE_NEW)
                (void)settle(s, find_known(s, &parent), replace_driver_name(s));
        registry_unlock();
}

void replace_resolve_all(void)
{
        struct replace_slot *s;
        uint32_t at = 0;

        while ((s = replace_next(&at)))
                if (__atomic_load_n(&s->state, __ATOMIC_ACQUIRE) == REPLACE_NEW)
                        resolve(s);
}
