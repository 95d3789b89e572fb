/* SPDX-License-Identifier: Apache-2.0 */
#include "api/coverage.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void coverage_done(struct coverage *c)
{
        free(c->images);
        free(c->kernels);
        *c = (struct coverage){0};
}

/* Room for one more element, doubling from 16; false on no memory or at max. */
static bool grow(void **array, size_t count, size_t max, size_t element)
{
        void *p;

        if (count >= max)
                return false;
        if (count && (count < 16 || (count & (count - 1))))
                return true;
        p = realloc(*array, (count < 16 ? 16 : 2 * count) * element);
        if (!p)
                return false;
        *array = p;
        return true;
}

static uint64_t keep_text(struct coverage *c, struct intern *names, const char *text, size_t length)
{
        if (length == 0 || length > COVERAGE_TEXT_BYTES_MAX - c->text_bytes)
                return 0;
        c->text_bytes += length;
        return intern_id(names, text, length);
}

static struct covered_image *find_image(const struct coverage *c, uint32_t image_id)
{
        /* Agents number images from 1 in the order they report them. */
        if (image_id >= 1 && image_id <= c->image_count &&
            c->images[image_id - 1].image_id == image_id)
                return &c->images[image_id - 1];
        for (size_t i = 0; i < c->image_count; i++)
                if (c->images[i].image_id == image_id)
                        return &c->images[i];
        return NULL;
}

const struct covered_image *coverage_image(const struct coverage *c, uint32_t image_id)
{
        return find_image(c, image_id);
}

void coverage_image_kernels(const struct coverage *c, uint32_t image_id, size_t *ret_first,
                            size_t *ret_end)
{
        const struct covered_image *image = find_image(c, image_id);

        *ret_first = image ? image->first_kernel : 0;
        *ret_end = image ? image->end_kernel : 0;
}

const struct covered_image *coverage_add_image(struct coverage *c, struct intern *names,
                                               const struct agent_image *image)
{
        struct covered_image *i;

        if (!grow((void **)&c->images, c->image_count, COVERAGE_IMAGES_MAX, sizeof(*i))) {
                c->dropped++;
                return NULL;
        }
        i = &c->images[c->image_count++];
        *i = (struct covered_image){
                .image_id = image->image_id,
                .status = image->status,
                .kernel_count = image->kernel_count,
                .rewrite_us = image->rewrite_us,
                .handle = image->handle,
                .bytes = image->bytes,
                .reason = keep_text(c, names, image->reason, strlen(image->reason)),
                .is_library = image->is_library != 0,
                .is_ptx = image->is_ptx != 0,
        };
        return i;
}

const struct covered_kernel *coverage_add_kernel(struct coverage *c, struct intern *names,
                                                 uint32_t image_id, const struct agent_kernel *k,
                                                 const char *name, const char *reason)
{
        struct covered_image *image = find_image(c, image_id);
        struct covered_kernel *kept;

        if (!image ||
            !grow((void **)&c->kernels, c->kernel_count, COVERAGE_KERNELS_MAX, sizeof(*kept))) {
                c->dropped++;
                return NULL;
        }
        if (image->end_kernel == 0)
                image->first_kernel = (uint32_t)c->kernel_count;
        kept = &c->kernels[c->kernel_count++];
        image->end_kernel = (uint32_t)c->kernel_count;
        *kept = (struct covered_kernel){
                .kernel_id = k->kernel_id,
                .image_id = image_id,
                .name = keep_text(c, names, name, k->name_bytes),
                .reason = keep_text(c, names, reason, k->reason_bytes),
                .entry = k->entry,
                .exit = k->exit,
        };
        c->entry_count += k->entry != AGENT_PROBE_NONE;
        c->exit_count += k->exit != AGENT_PROBE_NONE;
        return kept;
}
