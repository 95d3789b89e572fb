/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../device/device_abi.h"
#include "fatbin.h"
#include "image_memory.h"
#include "memory_map.h"
#include "rewrite.h"

static void explain(struct rewrite *r, const char *format, va_list args)
{
        image_memory_free(r->image);
        r->image = NULL;
        r->image_bytes = 0;
        vsnprintf(r->reason, sizeof(r->reason), format, args);
}

static __attribute__((format(printf, 2, 3))) void refuse(struct rewrite *r, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        explain(r, format, args);
        va_end(args);
}

void rewrite_refuse(struct rewrite *r, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        explain(r, format, args);
        va_end(args);
        for (size_t i = 0; i < r->kernel_count; i++) {
                struct wire_kernel *k = &r->kernels[i];

                k->entry = k->exit = AGENT_PROBE_NONE;
                k->programs = 0;
                k->accesses_probed = 0;
                free((char *)(uintptr_t)k->reason);
                k->reason = strdup(r->reason);
        }
}

void rewrite_done(struct rewrite *r)
{
        for (size_t i = 0; i < r->kernel_count; i++) {
                free((char *)(uintptr_t)r->kernels[i].name);
                free((char *)(uintptr_t)r->kernels[i].reason);
        }
        free(r->kernels);
        image_memory_free(r->image);
        *r = (struct rewrite){0};
}

static bool add_kernel(struct rewrite *r, const struct wire_kernel *k)
{
        struct wire_kernel copy = *k, *kernels;

        kernels = reallocarray(r->kernels, r->kernel_count + 1, sizeof(*kernels));
        if (!kernels)
                return false;
        r->kernels = kernels;
        copy.name = strdup(k->name);
        copy.reason = k->reason ? strdup(k->reason) : NULL;
        if (!copy.name || (k->reason && !copy.reason)) {
                free((char *)(uintptr_t)copy.name);
                return false;
        }
        r->kernels[r->kernel_count++] = copy;
        return true;
}

/* The container behind a wrapper, if the wrapper can be read. */
static const void *unwrap(const void *image, size_t *size, bool *ret_linked)
{
        const size_t head = offsetof(struct fatbin_wrapper, objects);
        struct fatbin_wrapper wrapper;

        /* PTX may be shorter than a wrapper: its first byte tells that it is none. */
        if (*size < head || *(const uint8_t *)image != (FATBIN_WRAPPER_MAGIC & 0xff))
                return image;
        memcpy(&wrapper, image, head);
        if (wrapper.magic != FATBIN_WRAPPER_MAGIC)
                return image;
        *ret_linked = wrapper.version == FATBIN_WRAPPER_LINKED;
        *size = memory_readable_bytes(wrapper.container, SIZE_MAX);
        return wrapper.container;
}

static int recognise(const void *image, size_t size, struct fatbin *ret_fatbin)
{
        bool linked = false;
        int r;

        if (!size) {
                size = memory_readable_bytes(image, SIZE_MAX);
                image = unwrap(image, &size, &linked);
        }
        r = fatbin_open_bytes(image, size, ret_fatbin);
        if (r == 0)
                ret_fatbin->linked |= linked;
        return r;
}

int rewrite_extent(const void *image, size_t size, const void **ret_bytes, size_t *ret_size,
                   bool *ret_linked)
{
        struct fatbin f;
        int r = recognise(image, size, &f);

        if (r < 0)
                return r;
        *ret_bytes = f.bytes;
        *ret_size = f.size;
        *ret_linked = f.linked;
        return 0;
}

/* "entry: why (0x7); NAME: why", of all programs that were refused; NULL when there is none. */
static const char *list_refusals(const struct probe_list *list,
                                 const struct probe_outcome *outcomes, char *buffer, size_t size)
{
        size_t used = 0;

        for (size_t i = 0; i < list->count && used < size; i++) {
                const struct probe_outcome *o = &outcomes[i];

                if (!o->refusal)
                        continue;
                used += (size_t)snprintf(buffer + used, size - used, "%s%s: %s", used ? "; " : "",
                                         list->programs[i].label, o->refusal);
                if (o->detail && used < size)
                        used += (size_t)snprintf(buffer + used, size - used, " (0x%x)", o->detail);
        }
        return used ? buffer : NULL;
}

/* What became of the programs at one kernel; adds that to what is known of it. */
static bool add_outcomes(struct rewrite *r, struct wire_kernel w, enum agent_probe_how how,
                         const struct probe_list *list, const struct probe_outcome *outcomes)
{
        char reason[REWRITE_REASON_BYTES];

        w.reason = list_refusals(list, outcomes, reason, sizeof(reason));
        for (size_t i = 0; i < list->count; i++) {
                const struct probe_program *p = &list->programs[i];
                bool in = outcomes[i].in;

                if (!p->times) {
                        w.programs += in;
                        w.refused += outcomes[i].refusal != NULL;
                } else if (in && p->where == AGENT_PROGRAM_ENTRY) {
                        w.entry = how;
                } else if (in && p->where == AGENT_PROGRAM_EXIT) {
                        w.exit = how;
                }
        }
        return add_kernel(r, &w);
}

static bool add_spliced(struct rewrite *r, const struct probe_list *list,
                        const struct splice_result *s)
{
        for (size_t i = 0; i < s->kernel_count; i++) {
                const struct splice_kernel *k = &s->kernels[i];

                const struct wire_kernel w = {.name = k->name,
                                              .kernel_id = k->kernel_id,
                                              .accesses_known = k->accesses_known,
                                              .accesses_probed = k->accesses,
                                              .accesses = k->accesses + k->other_accesses};

                if (!add_outcomes(r, w, AGENT_PROBE_SASS, list, k->outcomes))
                        return false;
        }
        return true;
}

struct spliced {
        struct splice_result *result[FATBIN_CANDIDATES_MAX];
        size_t count;
};

static void spliced_done(struct spliced *s)
{
        for (size_t i = 0; i < s->count; i++)
                splice_result_free(s->result[i]);
}

/* Give ids to the kernels of an image, as far as a record has room for them. */
static bool take_ids(struct rewrite *r, size_t count, uint32_t *next_kernel_id)
{
        if (count > DEVICE_KERNEL_ID_MAX + 1 - *next_kernel_id) {
                refuse(r, "the process has more kernels than can be told apart");
                return false;
        }
        *next_kernel_id += (uint32_t)count;
        return true;
}

static bool splice_one(struct rewrite *r, const struct fatbin_entry *e,
                       const struct rewrite_probes *probes, uint32_t *next_kernel_id,
                       struct spliced *all)
{
        struct splice_result *result = NULL;
        const char *why = "out of memory";
        void *cubin = NULL;
        size_t size = 0;
        int error;

        error = fatbin_unpack(e, &cubin, &size);
        if (error < 0) {
                refuse(r, "the machine code cannot be unpacked: %s", strerror(-error));
                return false;
        }
        r->chosen_bytes += size;
        error = splice_image(cubin, size, &probes->list, *next_kernel_id, &result, &why);
        image_memory_free(cubin);
        if (error < 0) {
                refuse(r, "machine code: %s", why);
                return false;
        }
        all->result[all->count++] = result;
        r->launches |= result->launches;
        if (!take_ids(r, result->kernel_count, next_kernel_id))
                return false;
        if (!add_spliced(r, &probes->list, result)) {
                refuse(r, "out of memory");
                return false;
        }
        return true;
}

/* One candidate goes to the driver bare, several in a container of their own. */
static void take_spliced(struct rewrite *r, const struct fatbin *f,
                         const struct fatbin_entry *entries, struct spliced *all)
{
        struct fatbin_part parts[FATBIN_CANDIDATES_MAX];
        size_t probed = 0;
        int error;

        for (size_t i = 0; i < all->count; i++) {
                probed += all->result[i]->in_count;
                parts[i] = (struct fatbin_part){.like = &entries[i],
                                                .bytes = all->result[i]->image,
                                                .size = all->result[i]->image_bytes};
        }
        if (!probed) {
                refuse(r, r->kernel_count ? "no kernel of the image can be probed"
                                          : "the image has no kernel");
        } else if (all->count == 1) {
                r->image = all->result[0]->image;
                r->image_bytes = all->result[0]->image_bytes;
                all->result[0]->image = NULL;
        } else {
                error = fatbin_repack(f, parts, all->count, &r->image, &r->image_bytes);
                if (error < 0)
                        refuse(r, "the image cannot be packed again: %s", strerror(-error));
        }
}

static bool has_code(const struct probe_list *list)
{
        for (size_t i = 0; i < list->count; i++)
                if (list->programs[i].code)
                        return true;
        return false;
}

static void rewrite_code(struct rewrite *r, const struct fatbin *f,
                         const struct fatbin_entry *entries, size_t count,
                         const struct rewrite_probes *probes, uint32_t *next_kernel_id)
{
        struct spliced all = {0};
        bool good = true;

        if (!has_code(&probes->list)) {
                refuse(r, "machine code: %s",
                       probes->list.count ? probes->list.programs[0].code_refusal
                                          : "there are no programs");
                return;
        }
        for (size_t i = 0; i < count && good; i++)
                good = splice_one(r, &entries[i], probes, next_kernel_id, &all);
        if (good)
                take_spliced(r, f, entries, &all);
        spliced_done(&all);
}

static bool add_injected(struct rewrite *r, const struct probe_list *list,
                         const struct ptx_result *p)
{
        for (size_t i = 0; i < p->kernel_count; i++) {
                const struct ptx_kernel *k = &p->kernels[i];

                const struct wire_kernel w = {.name = k->name,
                                              .kernel_id = k->kernel_id,
                                              .accesses_known = k->accesses_known,
                                              .accesses_probed = k->accesses,
                                              .accesses = k->accesses + k->other_accesses};

                if (!add_outcomes(r, w, AGENT_PROBE_PTX, list, k->outcomes))
                        return false;
        }
        return true;
}

static void take_text(struct rewrite *r, const struct ptx_result *p)
{
        r->image = image_memory_alloc(p->bytes + 1);
        if (!r->image) {
                refuse(r, "out of memory");
                return;
        }
        memcpy(r->image, p->text, p->bytes + 1);
        r->image_bytes = p->bytes;
}

static void take_injected(struct rewrite *r, const struct probe_list *list, struct ptx_result *p,
                          uint32_t *next_kernel_id)
{
        if (!take_ids(r, p->kernel_count, next_kernel_id))
                return;
        if (!add_injected(r, list, p)) {
                refuse(r, "out of memory");
        } else if (!p->kernel_count) {
                refuse(r, "the image has no kernel");
        } else if (!p->in_count) {
                refuse(r, "no kernel of the image can be probed");
        } else {
                take_text(r, p);
        }
}

static void rewrite_ptx(struct rewrite *r, const struct fatbin_entry *entry,
                        const struct rewrite_probes *probes, uint32_t *next_kernel_id)
{
        const struct ptx_probes ptx = {.list = probes->list, .layout = probes->layout};
        struct ptx_result *result = NULL;
        const char *why = NULL;
        void *text = NULL;
        size_t size = 0;
        int error;

        r->is_ptx = true;
        error = fatbin_unpack(entry, &text, &size);
        if (error < 0) {
                refuse(r, "the PTX cannot be unpacked: %s", strerror(-error));
                return;
        }
        /* Containers count the NUL, or several, as part of the text. */
        size = strnlen(text, size);
        r->chosen_bytes = size;
        error = ptx_inject(text, size, &ptx, *next_kernel_id, &result, &why);
        image_memory_free(text);
        if (error < 0) {
                refuse(r, "%s", why);
                return;
        }
        take_injected(r, &probes->list, result, next_kernel_id);
        ptx_result_free(result);
}

void rewrite_image(const void *image, size_t size, const struct rewrite_probes *probes,
                   uint32_t *next_kernel_id, struct rewrite *ret_rewrite)
{
        struct fatbin_entry entries[FATBIN_CANDIDATES_MAX];
        struct rewrite r = {0};
        struct fatbin f;
        int n;

        if (recognise(image, size, &f) < 0) {
                refuse(&r, "neither a fatbin nor a cubin nor PTX");
                *ret_rewrite = r;
                return;
        }
        /* What a rule leaves alone is not even unpacked. */
        if (probe_image_exclusion(&probes->list)) {
                refuse(&r, "%s (probe_rules)", probe_image_exclusion(&probes->list));
                *ret_rewrite = r;
                return;
        }
        n = fatbin_choose(&f, probes->sm, entries, FATBIN_CANDIDATES_MAX);
        if (n == -ENOENT)
                refuse(&r, "nothing in the image is for sm_%u", probes->sm);
        else if (n == -ENOBUFS)
                refuse(&r, "too many candidates for sm_%u in the image", probes->sm);
        else if (n < 0)
                refuse(&r, "the image is broken");
        else if (entries[0].kind == FATBIN_KIND_ELF)
                rewrite_code(&r, &f, entries, (size_t)n, probes, next_kernel_id);
        else if (n > 1)
                refuse(&r, "several PTX texts for one architecture");
        else
                rewrite_ptx(&r, &entries[0], probes, next_kernel_id);
        *ret_rewrite = r;
}
