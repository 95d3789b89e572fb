/* SPDX-License-Identifier: Apache-2.0 */
#include "api/coverage.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void coverage_done(struct coverage *c)
{
        free(c->images);
        free(c->by_id);
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
        uint64_t before, id;

        if (length == 0 || length > COVERAGE_TEXT_BYTES_MAX - c->text_bytes)
                return 0;
        before = intern_count(names);
        id = intern_id(names, text, length);
        /* What is there already costs nothing: the same reason may be given again and again. */
        if (intern_count(names) != before)
                c->text_bytes += length;
        return id;
}

static struct covered_image *find_image(const struct coverage *c, uint32_t image_id)
{
        uint32_t position = image_id < c->id_count ? c->by_id[image_id] : 0;

        return position ? &c->images[position - 1] : NULL;
}

const struct covered_image *coverage_image(const struct coverage *c, uint32_t image_id)
{
        return find_image(c, image_id);
}

const struct covered_image *coverage_next_image(const struct coverage *c, uint32_t after)
{
        for (size_t id = (size_t)after + 1; id < c->id_count; id++)
                if (c->by_id[id])
                        return &c->images[c->by_id[id] - 1];
        return NULL;
}

const struct covered_kernel *coverage_next_kernel(const struct coverage *c,
                                                  const struct covered_image *image,
                                                  const struct covered_kernel *previous)
{
        uint32_t position = previous ? previous->next : image->first_kernel;

        return position ? &c->kernels[position - 1] : NULL;
}

/* Room in by_id for an id that nobody has. */
static bool reserve_id(struct coverage *c, uint32_t id)
{
        size_t count = c->id_count ? c->id_count : 16;
        uint32_t *by_id;

        if (id < 1 || id > COVERAGE_IMAGES_MAX || find_image(c, id))
                return false;
        if (id < c->id_count)
                return true;
        while (count <= id)
                count *= 2;
        by_id = realloc(c->by_id, count * sizeof(*by_id));
        if (!by_id)
                return false;
        memset(by_id + c->id_count, 0, (count - c->id_count) * sizeof(*by_id));
        c->by_id = by_id;
        c->id_count = count;
        return true;
}

/* The image is loaded already; what was put into it has changed. */
static const struct covered_image *update_image(struct coverage *c, struct intern *names,
                                                struct covered_image *i,
                                                const struct agent_image *image)
{
        if (i->handle != image->handle || i->is_library != (image->is_library != 0))
                return NULL;
        i->status = image->status;
        i->reason = keep_text(c, names, image->reason, strlen(image->reason));
        i->told_again = i->first_kernel;
        if (image->bytes) {
                i->bytes = image->bytes;
                i->is_ptx = image->is_ptx != 0;
                i->launches = image->launches != 0;
        }
        return i;
}

const struct covered_image *coverage_add_image(struct coverage *c, struct intern *names,
                                               const struct agent_image *image)
{
        struct covered_image *i = find_image(c, image->image_id);

        if (i)
                return update_image(c, names, i, image);
        if (!reserve_id(c, image->image_id) ||
            !grow((void **)&c->images, c->image_count, COVERAGE_IMAGES_MAX, sizeof(*i)))
                return NULL;
        i = &c->images[c->image_count++];
        c->by_id[image->image_id] = (uint32_t)c->image_count;
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
                .launches = image->launches != 0,
        };
        return i;
}

/* The newest kernel becomes its image's last. */
static void chain(struct coverage *c, struct covered_image *image)
{
        uint32_t position = (uint32_t)c->kernel_count;

        if (image->last_kernel)
                c->kernels[image->last_kernel - 1].next = position;
        else
                image->first_kernel = position;
        image->last_kernel = position;
}

static void count_probes(struct coverage *c, const struct covered_kernel *k, int by)
{
        c->entry_count += (uint32_t)(k->entry != AGENT_PROBE_NONE ? by : 0);
        c->exit_count += (uint32_t)(k->exit != AGENT_PROBE_NONE ? by : 0);
}

/* In the order in which they were told at first, so that none has to be looked for. */
static const struct covered_kernel *update_kernel(struct coverage *c, struct intern *names,
                                                  struct covered_image *image,
                                                  const struct agent_kernel *k, const char *reason)
{
        struct covered_kernel *kept = &c->kernels[image->told_again - 1];

        if (kept->kernel_id != k->kernel_id)
                return NULL;
        count_probes(c, kept, -1);
        kept->entry = k->entry;
        kept->exit = k->exit;
        kept->accesses_probed = k->accesses_probed;
        kept->accesses = k->accesses;
        kept->reason = keep_text(c, names, reason, k->reason_bytes);
        count_probes(c, kept, 1);
        image->told_again = kept->next;
        return kept;
}

const struct covered_kernel *coverage_add_kernel(struct coverage *c, struct intern *names,
                                                 uint32_t image_id, const struct agent_kernel *k,
                                                 const char *name, const char *reason)
{
        struct covered_image *image = find_image(c, image_id);
        struct covered_kernel *kept;

        if (image && image->told_again)
                return update_kernel(c, names, image, k, reason);
        if (!image ||
            !grow((void **)&c->kernels, c->kernel_count, COVERAGE_KERNELS_MAX, sizeof(*kept)))
                return NULL;
        kept = &c->kernels[c->kernel_count++];
        *kept = (struct covered_kernel){
                .kernel_id = k->kernel_id,
                .image_id = image_id,
                .name = keep_text(c, names, name, k->name_bytes),
                .reason = keep_text(c, names, reason, k->reason_bytes),
                .entry = k->entry,
                .exit = k->exit,
                .accesses_probed = k->accesses_probed,
                .accesses = k->accesses,
        };
        chain(c, image);
        count_probes(c, kept, 1);
        return kept;
}
