/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../device/device_abi.h"
#include "fragment.h"
#include "ptx_inject.h"
#include "ptx_parse.h"
#include "text.h"

/* Names that a fragment finds the address under; nothing that a compiler makes. */
#define ADDRESS     "%gpuobs_address"
#define ADDRESS_LOW "%gpuobs_address_low"

#define PLACES_MAX 2048 /* of one kernel: each becomes dozens of instructions */

struct writer {
        const char *text;
        size_t copied; /* of the input */
        struct text out;
        unsigned unique; /* numbers insertion points */
        const struct ptx_probes *probes;
};

static void copy_to(struct writer *w, size_t end)
{
        text_add(&w->out, w->text + w->copied, end - w->copied);
        w->copied = end;
}

/* The descriptor's address lies below the parameters: it is read through the first one's name. */
static void name_queue(const struct writer *w, const struct ptx_entry *e, struct text *ret_source)
{
        if (!w->probes->layout || !e->parameter_bytes)
                return;
        text_add(ret_source, "[", 1);
        text_add(ret_source, w->text + e->parameter, e->parameter_bytes);
        text_print(ret_source, "+%" PRId32 "]", w->probes->layout->queue_offset);
}

/* access, which may be NULL: the fragment is one for accesses of memory. */
static void put_fragment(struct writer *w, const char *fragment, const struct ptx_entry *e,
                         uint32_t kernel_id, const struct ptx_access *access)
{
        const struct grid_layout *layout = w->probes->layout;
        struct text queue = {0};
        char kernel[16], label[16], word[16];
        struct fragment_values values = {.label = label,
                                         .kernel = kernel,
                                         .context = FRAGMENT_LOAD_ZERO,
                                         .queue = FRAGMENT_LOAD_ZERO};

        snprintf(kernel, sizeof(kernel), "%" PRIu32, kernel_id);
        snprintf(label, sizeof(label), "%u", w->unique++);
        if (access) {
                snprintf(word, sizeof(word), "%d",
                         DEVICE_ACCESS(access->size, access->kind, access->space));
                values.access = word;
                values.address = ADDRESS;
        }
        if (layout)
                values.context.source = layout->context;
        name_queue(w, e, &queue);
        if (queue.bytes)
                values.queue = (struct fragment_load){"ld.param.u32", queue.bytes};
        text_add(&w->out, "\n", 1);
        fragment_expand(&w->out, fragment, &values);
        text_add(&w->out, "\n", 1);
        w->out.failed |= queue.failed;
        text_done(&queue);
}

/* `@!p bra over;` for what stands under `@p`. */
static void put_way_around(struct writer *w, bool negated, size_t predicate, size_t predicate_bytes,
                           unsigned label)
{
        text_print(&w->out, "@%s", negated ? "" : "!");
        text_add(&w->out, w->text + predicate, predicate_bytes);
        text_print(&w->out, " bra $gpuobs_over_%u;", label);
}

/* `@p ret;` becomes `@!p bra over; fragment; ret; over:` */
static void put_end(struct writer *w, const struct ptx_entry *e, const struct ptx_end *end,
                    uint32_t kernel_id)
{
        unsigned label = w->unique;

        copy_to(w, end->start);
        if (end->predicated)
                put_way_around(w, end->negated, end->predicate, end->predicate_bytes, label);
        put_fragment(w, w->probes->exit, e, kernel_id, NULL);
        w->copied = end->instruction;
        copy_to(w, end->end);
        if (end->predicated)
                text_print(&w->out, "\n$gpuobs_over_%u:\n", label);
}

/* The address of an access in the register for it, with the words of the application. */
static void put_address(struct writer *w, const struct ptx_access *a)
{
        const char *type = a->is_narrow ? "32" : "64", *to = a->is_narrow ? ADDRESS_LOW : ADDRESS;

        text_print(&w->out, "mov.u%s %s, ", type, to);
        text_add(&w->out, w->text + a->base, a->base_bytes);
        text_print(&w->out, ";");
        if (a->offset_bytes) {
                text_print(&w->out, "add.s%s %s, %s, ", type, to, to);
                text_add(&w->out, w->text + a->offset, a->offset_bytes);
                text_print(&w->out, ";");
        }
        if (a->is_narrow)
                text_print(&w->out, "cvt.u64.u32 %s, %s;", ADDRESS, ADDRESS_LOW);
}

/*
 * `@p ld ...` becomes `@!p bra over; { address; fragment } over: @p ld ...`. The address is
 * taken outside of the fragment's braces, whose registers may have the application's names.
 */
static void put_place(struct writer *w, const struct ptx_entry *e, const struct ptx_place *place,
                      uint32_t kernel_id)
{
        unsigned label = w->unique;

        copy_to(w, place->start);
        if (place->predicated)
                put_way_around(w, place->negated, place->predicate, place->predicate_bytes, label);
        text_print(&w->out, "{.reg .b64 %s;.reg .b32 %s;", ADDRESS, ADDRESS_LOW);
        put_address(w, &place->access);
        put_fragment(w, w->probes->mem, e, kernel_id, &place->access);
        text_print(&w->out, "}\n");
        if (place->predicated)
                text_print(&w->out, "$gpuobs_over_%u:\n", label);
}

/* Ends and accesses in the order of the text. */
static void put_body(struct writer *w, const struct ptx_entry *e, const struct ptx_kernel *k)
{
        size_t ends = k->exit ? e->end_count : 0, places = k->accesses, end = 0, place = 0;

        while (end < ends || place < places)
                if (place == places || (end < ends && e->ends[end].start < e->places[place].start))
                        put_end(w, e, &e->ends[end++], k->kernel_id);
                else
                        put_place(w, e, &e->places[place++], k->kernel_id);
}

static void put_kernel(struct writer *w, const struct ptx_entry *e, const struct ptx_kernel *k)
{
        copy_to(w, e->body);
        if (k->entry)
                put_fragment(w, w->probes->entry, e, k->kernel_id, NULL);
        put_body(w, e, k);
        copy_to(w, e->close);
        if (k->exit && e->falls_off)
                put_fragment(w, w->probes->exit, e, k->kernel_id, NULL);
}

static void describe_accesses(const struct ptx_module *m, const struct ptx_entry *e,
                              struct ptx_kernel *k)
{
        k->accesses = (uint32_t)e->place_count;
        k->other_accesses = (uint32_t)e->other_accesses;
        if (e->place_count > PLACES_MAX) {
                k->other_accesses += k->accesses;
                k->accesses = 0;
                k->mem_refusal = "mem: it accesses memory at too many places";
        } else if (e->other_accesses) {
                k->mem_refusal = "mem: some accesses have no address for each thread";
        } else if (m->function_accesses) {
                k->mem_refusal = "mem: a device function of the image accesses memory";
        }
}

static int describe(const char *text, const struct ptx_module *m, const struct ptx_probes *probes,
                    uint32_t first_kernel_id, struct ptx_result *r)
{
        r->kernels = calloc(m->entry_count ?: 1, sizeof(*r->kernels));
        if (!r->kernels)
                return -ENOMEM;
        for (size_t i = 0; i < m->entry_count; i++) {
                struct ptx_kernel *k = &r->kernels[i];

                k->name = strndup(text + m->entries[i].name, m->entries[i].name_bytes);
                if (!k->name)
                        return -ENOMEM;
                r->kernel_count++;
                k->kernel_id = first_kernel_id + (uint32_t)i;
                k->entry = probes->entry != NULL;
                k->exit = probes->exit != NULL && !m->function_exits;
                if (probes->exit && !k->exit)
                        k->refusal = "exit: a device function of the image executes exit";
                if (probes->mem)
                        describe_accesses(m, &m->entries[i], k);
        }
        return 0;
}

static int rewrite(const char *text, size_t size, const struct ptx_module *m,
                   const struct ptx_probes *probes, struct ptx_result *r)
{
        struct writer w = {.text = text, .probes = probes};

        for (size_t i = 0; i < m->entry_count; i++)
                put_kernel(&w, &m->entries[i], &r->kernels[i]);
        copy_to(&w, size);
        if (w.out.failed) {
                text_done(&w.out);
                return -ENOMEM;
        }
        r->text = w.out.bytes;
        r->bytes = w.out.size;
        return 0;
}

/* The same with fragments in the words of an old text. */
static int rewrite_old(const char *text, size_t size, const struct ptx_module *m,
                       const struct ptx_probes *probes, struct ptx_result *r)
{
        char *entry = probes->entry ? ptx_dialect_lower(&m->dialect, probes->entry) : NULL;
        char *exit = probes->exit ? ptx_dialect_lower(&m->dialect, probes->exit) : NULL;
        char *mem = probes->mem ? ptx_dialect_lower(&m->dialect, probes->mem) : NULL;
        struct ptx_probes lowered = {
                .entry = entry, .exit = exit, .mem = mem, .layout = probes->layout};
        int error = -ENOMEM;

        if (!entry == !probes->entry && !exit == !probes->exit && !mem == !probes->mem)
                error = rewrite(text, size, m, &lowered, r);
        free(entry);
        free(exit);
        free(mem);
        return error;
}

int ptx_inject(const char *text, size_t size, const struct ptx_probes *probes,
               uint32_t first_kernel_id, struct ptx_result **ret_result, const char **ret_reason)
{
        const char *reason = "out of memory";
        struct ptx_module module = {0};
        struct ptx_result *result = NULL;
        int r;

        r = ptx_parse(text, size, &module, &reason);
        if (r == 0 && module.bits32) {
                r = -ENOTSUP;
                reason = "PTX with 32-bit addresses";
        }
        if (r == 0) {
                result = calloc(1, sizeof(*result));
                r = result ? describe(text, &module, probes, first_kernel_id, result) : -ENOMEM;
        }
        if (r == 0)
                r = ptx_dialect_is_old(&module.dialect)
                            ? rewrite_old(text, size, &module, probes, result)
                            : rewrite(text, size, &module, probes, result);
        ptx_module_done(&module);
        if (r < 0) {
                ptx_result_free(result);
                if (ret_reason)
                        *ret_reason = reason;
                return r;
        }
        *ret_result = result;
        return 0;
}

struct ptx_result *ptx_result_free(struct ptx_result *r)
{
        if (!r)
                return NULL;
        for (size_t i = 0; i < r->kernel_count; i++)
                free(r->kernels[i].name);
        free(r->kernels);
        free(r->text);
        free(r);
        return NULL;
}
