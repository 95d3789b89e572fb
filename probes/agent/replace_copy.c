/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The copy of one image: rewritten from what the image was loaded from, loaded beside
 * it, for those of its kernels that may run from a copy. Kernels keep their ids, so
 * what records say of a kernel does not change; the daemon is told anew what is in each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "fatbin.h"
#include "image_memory.h"
#include "memory_map.h"
#include "launches.h"
#include "replace_internal.h"

static void rewrite_again(struct image *image, const void *bytes, struct rewrite *ret_rewrite)
{
        /* Made again for a container whose wrapper told something. */
        const struct fatbin_wrapper wrapper = {FATBIN_WRAPPER_MAGIC, FATBIN_WRAPPER_LINKED, bytes,
                                               NULL};
        const struct replace_plan *plan = &registry.plan;
        bool wrap = image->origin.linked;
        char buffer[AGENT_PATH_MAX];
        const char *path;

        path = image->path
                       ?: memory_file_path(image->origin.copy ? NULL : image->origin.where, buffer,
                                           sizeof(buffer));
        plan->rewrite(wrap ? (const void *)&wrapper : bytes, wrap ? 0 : image->origin.bytes, path,
                      image->library, &image->options, image->first_kernel_id, ret_rewrite);
}

/* The same kernels in the same order as before, or for the first time. */
static bool match_kernels(struct image *image, const struct rewrite *r)
{
        if (!image->first_kernel_id)
                return image_set_kernels(image, r->kernels, r->kernel_count);
        if (image->kernel_count != r->kernel_count)
                return false;
        for (size_t i = 0; i < r->kernel_count; i++)
                if (image->kernels[i].name != image_name(r->kernels[i].name))
                        return false;
        return true;
}

/* ---- which kernels may run from it ---- */

static int add_candidate(struct image_state *state, const struct fatbin_entry *entry)
{
        void *bytes = NULL;
        size_t size = 0;
        int r = fatbin_unpack(entry, &bytes, &size);

        if (r == 0)
                r = entry->kind == FATBIN_KIND_ELF
                            ? image_state_add_cubin(state, bytes, size)
                            : image_state_add_ptx(state, bytes, strnlen(bytes, size));
        image_memory_free(bytes);
        return r;
}

static struct image_state *read_state(const void *bytes, size_t size, bool linked)
{
        struct image_state *state = image_state_new();
        struct fatbin_entry entries[FATBIN_CANDIDATES_MAX];
        struct fatbin f;
        int n = -1;

        if (state && fatbin_open_bytes(bytes, size, &f) == 0) {
                f.linked |= linked;
                n = fatbin_choose(&f, registry.plan.sm, entries, FATBIN_CANDIDATES_MAX);
        }
        for (int i = 0; i < n; i++)
                if (add_candidate(state, &entries[i]) < 0)
                        n = -1;
        if (state && n <= 0)
                image_state_refuse_all(state, "what it reaches cannot be told");
        return state;
}

/* The kernel stays as it was loaded: say so, and why. */
static void keep_original(const struct image_kernel *k, bool is_ptx, const char *why,
                          struct wire_kernel *kernel)
{
        char reason[REWRITE_REASON_BYTES];

        snprintf(reason, sizeof(reason), "stays as it was loaded: %s", why);
        if (!k->loaded_probed)
                kernel->entry = AGENT_PROBE_NONE;
        else
                kernel->entry = is_ptx ? AGENT_PROBE_PTX : AGENT_PROBE_SASS;
        kernel->exit = k->loaded_probed ? kernel->exit : AGENT_PROBE_NONE;
        kernel->programs = 0;
        kernel->accesses_probed = 0;
        free((char *)(uintptr_t)kernel->reason);
        kernel->reason = strdup(reason);
}

/* How many kernels may run from the copy. */
static size_t choose_kernels(struct image *image, struct image_state *state, struct rewrite *r)
{
        size_t count = 0;

        for (size_t i = 0; i < image->kernel_count; i++) {
                struct image_kernel *k = &image->kernels[i];
                const char *why =
                        state ? image_state_refusal(state, r->kernels[i].name) : "out of memory";

                k->copied = !why;
                k->copy_probed = r->kernels[i].entry != AGENT_PROBE_NONE;
                count += k->copied;
                if (why)
                        keep_original(k, r->is_ptx, why, &r->kernels[i]);
        }
        return count;
}

static void keep_all(struct image *image, struct rewrite *r, const char *why)
{
        for (size_t i = 0; i < image->kernel_count && i < r->kernel_count; i++) {
                image->kernels[i].copied = false;
                keep_original(&image->kernels[i], r->is_ptx, why, &r->kernels[i]);
        }
}

/* ---- loading it ---- */

static int load_module(const struct image *image, const struct rewrite *r, cuda_handle *ret_module)
{
        const struct cuda_api *api = registry.api;
        const struct image_options *o = &image->options;
        cuda_handle popped;
        int result;

        if (!image->context || api->context_push(image->context) != CUDA_OK)
                return CUDA_NOT_SUPPORTED;
        if (o->count && api->module_load_data_ex)
                result = api->module_load_data_ex(ret_module, r->image, o->count, o->options,
                                                  o->values);
        else
                result = api->module_load_data(ret_module, r->image);
        api->context_pop(&popped);
        return result;
}

static int load_library(const struct image *image, const struct rewrite *r,
                        cuda_handle *ret_library)
{
        const struct cuda_api *api = registry.api;
        const struct image_options *o = &image->options;

        if (!api->library_load_data || !api->library_unload || !api->library_get_kernel)
                return CUDA_NOT_SUPPORTED;
        return api->library_load_data(ret_library, r->image, o->count ? o->options : NULL,
                                      o->count ? o->values : NULL, o->count, NULL, NULL, 0);
}

static const char *load_copy(struct image *image, const struct rewrite *r,
                             struct image_copy *ret_copy)
{
        struct image_copy copy = {
                .library = image->library, .context = image->context, .generation = r->generation};
        int result = image->library ? load_library(image, r, &copy.handle)
                                    : load_module(image, r, &copy.handle);

        if (result != CUDA_OK)
                return cuda_error_name(registry.api, result);
        *ret_copy = copy;
        return NULL;
}

/* ---- all of it ---- */

static void report(const struct image *image, const struct rewrite *r, bool copied,
                   const char *reason)
{
        struct agent_image m = {
                .image_id = image->image_id,
                .status = copied ? AGENT_IMAGE_REWRITTEN : AGENT_IMAGE_ORIGINAL,
                .kernel_count = (uint32_t)image->kernel_count,
                .handle = (uint64_t)(uintptr_t)image->handle,
                .bytes = r->chosen_bytes,
                .is_library = image->library,
                .is_ptx = r->is_ptx,
                .launches = r->launches,
        };

        snprintf(m.reason, sizeof(m.reason), "%s", reason ?: "");
        if (copied)
                launches_probed();
        if (wire_send(registry.wire, AGENT_IMAGE, &m, sizeof(m)) == 0 && r->kernel_count)
                wire_kernels(registry.wire, image->image_id, r->kernels, r->kernel_count);
}

static void run_originals(struct image *image)
{
        for (size_t i = 0; i < image->kernel_count; i++)
                image->kernels[i].copied = false;
}

/* What is wanted is what was loaded. r: what the daemon is told, as it was then. */
static void go_back(struct image *image, const struct rewrite *r)
{
        bool probed = image_is_probed(image);

        run_originals(image);
        report(image, r, probed, probed ? NULL : r->reason);
}

/* NULL: a copy is there, in *ret_copy; else why not, and kernels say so, too. */
static const char *make_copy(struct image *image, const void *bytes, struct rewrite *r,
                             struct image_copy *ret_copy)
{
        struct image_state *state;
        const char *why = r->image ? image->options.refusal : r->reason;
        size_t count;

        if (!why) {
                state = read_state(bytes, image->origin.bytes, image->origin.linked);
                count = choose_kernels(image, state, r);
                image_state_free(state);
                if (!count)
                        return "no kernel of it may run from a copy";
                why = load_copy(image, r, ret_copy);
        }
        if (why)
                keep_all(image, r, why);
        return why;
}

static void replace_from(struct image *image, const void *bytes)
{
        struct image_copy copy = {0}, old = image->copy;
        struct rewrite r = {0};
        const char *why;

        rewrite_again(image, bytes, &r);
        if (!match_kernels(image, &r)) {
                rewrite_refuse(&r, "its kernels are not those it had when it was loaded");
                keep_all(image, &r, r.reason);
                report(image, &r, false, r.reason);
        } else if (registry.plan.generation == image->generation) {
                go_back(image, &r);
        } else {
                why = make_copy(image, bytes, &r, &copy);
                report(image, &r, copy.handle != NULL, why);
        }
        image->copy = copy;
        replace_publish_all(image);
        /* Only now nobody begins with the old one. */
        replace_retire(&old);
        rewrite_done(&r);
}

/* Without its bytes an image stays as it is; of its kernels no more is known than before. */
static void stay(struct image *image, const char *why)
{
        const struct rewrite none = {0};

        if (registry.plan.generation == image->generation)
                return;
        report(image, &none, image->copy.handle || image->generation, why);
}

/* Everything as it was before the agent came: nothing has to be rewritten for that. */
static void drop_copy(struct image *image)
{
        struct image_copy old = image->copy;

        image->copy = (struct image_copy){0};
        run_originals(image);
        replace_publish_all(image);
        replace_retire(&old);
}

void replace_image(struct image *image)
{
        void *bytes = NULL;
        int r;

        image->wanted = registry.plan.generation;
        if (!registry.plan.generation) {
                drop_copy(image);
                return;
        }
        r = image_origin_read(&image->origin, &bytes);
        if (r == 0)
                replace_from(image, bytes);
        else
                stay(image, image->origin.missing ?: "what it was loaded from is gone");
        free(bytes);
}
