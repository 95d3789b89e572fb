/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Images that were loaded before the agent came: known by a handle of theirs that is
 * launched. The driver names their kernels; the bytes are looked for in the files that
 * are mapped. What was loaded from memory that is gone (kernels compiled at run time)
 * is not found, and says so in the coverage list.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "found_index.h"
#include "replace_internal.h"

#define LOOK_MS     10000
#define KERNELS_MAX 65536

/* What the driver has of an image. */
struct listing {
        cuda_handle *handles;
        const char **names; /* the driver's memory */
        unsigned count;
        bool complete; /* all of them */
};

static void listing_done(struct listing *l)
{
        free(l->handles);
        free(l->names);
}

static int count_of(const struct replace_slot *s, cuda_handle parent, unsigned *ret_count)
{
        const struct cuda_api *api = registry.api;

        if (s->kind == REPLACE_KERNEL)
                return api->library_kernel_count && api->library_kernels
                               ? api->library_kernel_count(ret_count, parent)
                               : CUDA_NOT_SUPPORTED;
        return api->module_function_count && api->module_functions
                       ? api->module_function_count(ret_count, parent)
                       : CUDA_NOT_SUPPORTED;
}

static bool name_handle(const struct replace_slot *like, cuda_handle handle, const char **ret_name)
{
        const struct replace_slot s = {.handle = (uintptr_t)handle, .kind = like->kind};

        *ret_name = replace_driver_name(&s);
        return *ret_name != NULL;
}

static bool list_all(const struct replace_slot *s, cuda_handle parent, struct listing *l)
{
        const struct cuda_api *api = registry.api;
        int r;

        l->handles = calloc(l->count, sizeof(*l->handles));
        l->names = calloc(l->count, sizeof(*l->names));
        if (!l->handles || !l->names)
                return false;
        r = s->kind == REPLACE_KERNEL ? api->library_kernels(l->handles, l->count, parent)
                                      : api->module_functions(l->handles, l->count, parent);
        for (unsigned i = 0; r == CUDA_OK && i < l->count; i++)
                if (!name_handle(s, l->handles[i], &l->names[i]))
                        return false;
        return r == CUDA_OK;
}

/* In the context the handle was met in. Falls back to the one kernel that is known. */
static void list(const struct replace_slot *s, cuda_handle parent, const char *name,
                 struct listing *ret_listing)
{
        cuda_handle context = (cuda_handle)(uintptr_t)s->context, popped;
        struct listing l = {0};
        bool pushed = context && registry.api->context_push(context) == CUDA_OK;

        if (count_of(s, parent, &l.count) == CUDA_OK && l.count && l.count <= KERNELS_MAX)
                l.complete = list_all(s, parent, &l);
        if (pushed)
                registry.api->context_pop(&popped);
        if (!l.complete) {
                listing_done(&l);
                l = (struct listing){.names = calloc(1, sizeof(*l.names))};
                l.count = l.names ? 1 : 0;
                if (l.names)
                        l.names[0] = name;
        }
        *ret_listing = l;
}

static const char *find_origin(const struct listing *l, struct image_origin *ret_origin)
{
        static struct found_index *index;
        struct found_image found;
        const char *why;

        if (!index)
                index = found_index_new(registry.plan.sm, LOOK_MS);
        if (!index)
                return "out of memory";
        why = found_index_look_up(index, l->names, l->count, l->complete, &found);
        if (why)
                *ret_origin = (struct image_origin){.missing = why};
        else
                image_origin_refer(found.container, found.bytes, ret_origin);
        return why;
}

/* Its kernels as the driver names them, none of them probed. */
static void report_missing(struct image *image, const struct listing *l, const char *why)
{
        struct wire_kernel *kernels = calloc(l->count ?: 1, sizeof(*kernels));
        struct agent_image m = {
                .image_id = image->image_id,
                .status = AGENT_IMAGE_ORIGINAL,
                .kernel_count = l->count,
                .handle = (uint64_t)(uintptr_t)image->handle,
                .is_library = image->library,
        };
        uint32_t first = registry.plan.number_kernels(l->count);

        for (unsigned i = 0; kernels && i < l->count; i++)
                kernels[i] = (struct wire_kernel){
                        .name = l->names[i], .kernel_id = first + i, .reason = why};
        if (kernels && first && image_set_kernels(image, kernels, l->count)) {
                snprintf(m.reason, sizeof(m.reason), "%s", why);
                if (wire_send(registry.wire, AGENT_IMAGE, &m, sizeof(m)) == 0)
                        wire_kernels(registry.wire, image->image_id, kernels, l->count);
        }
        free(kernels);
}

/* The daemon may not have seen these handles being given out. */
static void tell_functions(const struct image *image, const struct listing *l)
{
        for (unsigned i = 0; l->complete && i < l->count; i++)
                wire_function(registry.wire, (uintptr_t)l->handles[i], (uintptr_t)image->handle,
                              l->names[i]);
}

/* What is launched next of it is known at once. */
static void publish_handles(const struct replace_slot *s, struct image *image,
                            const struct listing *l)
{
        for (unsigned i = 0; l->complete && i < l->count; i++) {
                struct replace_slot *other = replace_find(l->handles[i]);
                ssize_t kernel = image_kernel_find(image, l->names[i]);

                if (!other)
                        other = replace_note(l->handles[i], s->kind,
                                             (cuda_handle)(uintptr_t)s->context);
                if (!other || kernel < 0)
                        continue;
                other->kind = s->kind;
                other->image = image;
                other->kernel = (uint32_t)kernel;
                replace_publish(other);
        }
}

struct image *replace_find_image(const struct replace_slot *s, cuda_handle parent, const char *name)
{
        struct image *image = calloc(1, sizeof(*image));
        struct listing l;
        const char *why;

        if (!image)
                return NULL;
        list(s, parent, name, &l);
        image->image_id = registry.plan.number_image();
        image->handle = parent;
        image->library = s->kind == REPLACE_KERNEL;
        image->context = image->library ? NULL : (cuda_handle)(uintptr_t)s->context;
        why = find_origin(&l, &image->origin);
        image->next = registry.images;
        registry.images = image;
        if (why)
                report_missing(image, &l, why);
        image->wanted = why ? registry.plan.generation : 0;
        if (!why)
                replace_image(image);
        tell_functions(image, &l);
        publish_handles(s, image, &l);
        listing_done(&l);
        return image;
}
