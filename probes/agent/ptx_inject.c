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
        bool old;        /* the text's PTX is older than the fragments' */
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

/* Set what differs from place to place. The texts live as long as queue and the buffers. */
struct place {
        struct fragment_values values;
        struct text queue;
        char kernel[16], label[24], lanes[32], access[16];
};

static void begin_place(struct writer *w, const struct ptx_entry *e, uint32_t kernel_id,
                        const struct ptx_access *access, struct place *p)
{
        *p = (struct place){.values = {.label = p->label,
                                       .kernel = p->kernel,
                                       .context = FRAGMENT_LOAD_ZERO,
                                       .queue = FRAGMENT_LOAD_ZERO}};
        snprintf(p->kernel, sizeof(p->kernel), "%" PRIu32, kernel_id);
        if (access) {
                snprintf(p->access, sizeof(p->access), "%d",
                         DEVICE_ACCESS(access->size, access->kind, access->space));
                p->values.access = p->access;
                p->values.address = ADDRESS;
        }
        if (w->probes->layout)
                p->values.context.source = w->probes->layout->context;
        name_queue(w, e, &p->queue);
        if (p->queue.bytes)
                p->values.queue = (struct fragment_load){"ld.param.u32", p->queue.bytes};
}

/* Programs behind the first must not ask for the active lanes themselves (fragment.h). */
static void keep_lanes(struct writer *w, struct place *p)
{
        snprintf(p->lanes, sizeof(p->lanes), "%%gpuobs_lanes_%u", w->unique);
        text_print(&w->out, "\n{\n.reg .b32 %s;\n%s %s%s;\n", p->lanes,
                   w->old ? "vote.ballot.b32" : "activemask.b32", p->lanes, w->old ? ", 1" : "");
        p->values.lanes = p->lanes;
}

/*
 * All programs of a kernel that belong at such a place, in their order. access: what is
 * accessed there; NULL where it is no access of memory.
 */
static void put_programs(struct writer *w, uint32_t where, const struct ptx_entry *e,
                         const struct ptx_kernel *k, const struct ptx_access *access)
{
        const struct probe_list *list = &w->probes->list;
        struct place place;
        size_t count = 0;

        for (size_t i = 0; i < list->count; i++)
                count += list->programs[i].where == where && k->outcomes[i].in;
        if (!count)
                return;
        begin_place(w, e, k->kernel_id, access, &place);
        if (count > 1)
                keep_lanes(w, &place);
        for (size_t i = 0; i < list->count; i++) {
                if (list->programs[i].where != where || !k->outcomes[i].in)
                        continue;
                snprintf(place.label, sizeof(place.label), "%u", w->unique++);
                text_add(&w->out, "\n", 1);
                fragment_expand(&w->out, list->programs[i].text, &place.values);
                text_add(&w->out, "\n", 1);
        }
        if (count > 1)
                text_add(&w->out, "}\n", 2);
        w->out.failed |= place.queue.failed;
        text_done(&place.queue);
}

/* `@!p bra over;` for what stands under `@p`. */
static void put_way_around(struct writer *w, bool negated, size_t predicate, size_t predicate_bytes,
                           unsigned label)
{
        text_print(&w->out, "@%s", negated ? "" : "!");
        text_add(&w->out, w->text + predicate, predicate_bytes);
        text_print(&w->out, " bra $gpuobs_over_%u;", label);
}

/* `@p ret;` becomes `@!p bra over; fragments; ret; over:` */
static void put_end(struct writer *w, const struct ptx_entry *e, const struct ptx_end *end,
                    const struct ptx_kernel *k)
{
        unsigned label = w->unique;

        copy_to(w, end->start);
        if (end->predicated)
                put_way_around(w, end->negated, end->predicate, end->predicate_bytes, label);
        put_programs(w, AGENT_PROGRAM_EXIT, e, k, NULL);
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
 * `@p ld ...` becomes `@!p bra over; { address; fragments } over: @p ld ...`. The address is
 * taken outside of the fragments' braces, whose registers may have the application's names.
 */
static void put_access(struct writer *w, const struct ptx_entry *e, const struct ptx_place *place,
                       const struct ptx_kernel *k)
{
        unsigned label = w->unique;

        copy_to(w, place->start);
        if (place->predicated)
                put_way_around(w, place->negated, place->predicate, place->predicate_bytes, label);
        text_print(&w->out, "{.reg .b64 %s;.reg .b32 %s;", ADDRESS, ADDRESS_LOW);
        put_address(w, &place->access);
        put_programs(w, AGENT_PROGRAM_MEM, e, k, &place->access);
        text_print(&w->out, "}\n");
        if (place->predicated)
                text_print(&w->out, "$gpuobs_over_%u:\n", label);
}

static bool has_program(const struct probe_list *list, const struct ptx_kernel *k, uint32_t where)
{
        for (size_t i = 0; i < list->count; i++)
                if (list->programs[i].where == where && k->outcomes[i].in)
                        return true;
        return false;
}

/* Ends and accesses in the order of the text. */
static void put_body(struct writer *w, const struct ptx_entry *e, const struct ptx_kernel *k,
                     bool exits)
{
        size_t ends = exits ? e->end_count : 0, places = k->accesses, end = 0, place = 0;

        while (end < ends || place < places)
                if (place == places || (end < ends && e->ends[end].start < e->places[place].start))
                        put_end(w, e, &e->ends[end++], k);
                else
                        put_access(w, e, &e->places[place++], k);
}

static void put_kernel(struct writer *w, const struct ptx_entry *e, const struct ptx_kernel *k)
{
        bool exits = has_program(&w->probes->list, k, AGENT_PROGRAM_EXIT);

        copy_to(w, e->body);
        put_programs(w, AGENT_PROGRAM_ENTRY, e, k, NULL);
        put_body(w, e, k, exits);
        copy_to(w, e->close);
        if (exits && e->falls_off)
                put_programs(w, AGENT_PROGRAM_EXIT, e, k, NULL);
}

/* A program at accesses may be at some of them. */
static void judge_mem(const struct ptx_module *m, const struct ptx_entry *e,
                      struct probe_outcome *o)
{
        o->in = e->place_count <= PLACES_MAX;
        if (!o->in)
                o->refusal = "it accesses memory at too many places";
        else if (e->other_accesses)
                o->refusal = "some accesses have no address for each thread";
        else if (m->function_accesses)
                o->refusal = "a device function of the image accesses memory";
}

static void judge(const struct ptx_module *m, const struct ptx_entry *e,
                  const struct probe_program *p, struct probe_outcome *o)
{
        switch (p->where) {
        case AGENT_PROGRAM_ENTRY:
                o->in = true;
                break;
        case AGENT_PROGRAM_EXIT:
                o->in = !m->function_exits;
                if (!o->in)
                        o->refusal = "a device function of the image executes exit";
                break;
        case AGENT_PROGRAM_MEM:
                judge_mem(m, e, o);
                break;
        }
}

static void count_accesses(const struct probe_list *list, const struct ptx_entry *e,
                           struct ptx_kernel *k)
{
        bool in = has_program(list, k, AGENT_PROGRAM_MEM);

        k->accesses = in ? (uint32_t)e->place_count : 0;
        k->other_accesses = (uint32_t)(e->other_accesses + e->place_count) - k->accesses;
}

static int describe_kernel(const char *text, const struct ptx_module *m,
                           const struct probe_list *list, size_t entry, struct ptx_result *r)
{
        struct ptx_kernel *k = &r->kernels[entry];
        const char *exclusion;

        k->name = strndup(text + m->entries[entry].name, m->entries[entry].name_bytes);
        k->outcomes = calloc(list->count ?: 1, sizeof(*k->outcomes));
        r->kernel_count++;
        if (!k->name || !k->outcomes)
                return -ENOMEM;
        exclusion = probe_exclusion(list, k->name);
        for (size_t i = 0; i < list->count; i++) {
                k->outcomes[i].wanted = probe_wants(&list->programs[i], k->name);
                if (k->outcomes[i].wanted && exclusion)
                        k->outcomes[i].refusal = exclusion;
                else if (k->outcomes[i].wanted)
                        judge(m, &m->entries[entry], &list->programs[i], &k->outcomes[i]);
                k->accesses_known |= k->outcomes[i].wanted && !exclusion &&
                                     list->programs[i].where == AGENT_PROGRAM_MEM;
                r->in_count += k->outcomes[i].in;
        }
        count_accesses(list, &m->entries[entry], k);
        return 0;
}

static int describe(const char *text, const struct ptx_module *m, const struct probe_list *list,
                    uint32_t first_kernel_id, struct ptx_result *r)
{
        r->kernels = calloc(m->entry_count ?: 1, sizeof(*r->kernels));
        if (!r->kernels)
                return -ENOMEM;
        for (size_t i = 0; i < m->entry_count; i++) {
                r->kernels[i].kernel_id = first_kernel_id + (uint32_t)i;
                if (describe_kernel(text, m, list, i, r) < 0)
                        return -ENOMEM;
        }
        return 0;
}

static int rewrite(const char *text, size_t size, const struct ptx_module *m,
                   const struct ptx_probes *probes, struct ptx_result *r)
{
        struct writer w = {.text = text, .probes = probes, .old = ptx_dialect_is_old(&m->dialect)};

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
        struct probe_program programs[PROBE_LIST_MAX];
        char *texts[PROBE_LIST_MAX] = {NULL};
        struct ptx_probes lowered = {.list = {.programs = programs, .count = probes->list.count},
                                     .layout = probes->layout};
        int error = 0;

        for (size_t i = 0; i < probes->list.count && error == 0; i++) {
                programs[i] = probes->list.programs[i];
                texts[i] = ptx_dialect_lower(&m->dialect, programs[i].text);
                programs[i].text = texts[i];
                error = texts[i] ? 0 : -ENOMEM;
        }
        if (error == 0)
                error = rewrite(text, size, m, &lowered, r);
        for (size_t i = 0; i < probes->list.count; i++)
                free(texts[i]);
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
                r = result ? describe(text, &module, &probes->list, first_kernel_id, result)
                           : -ENOMEM;
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
        for (size_t i = 0; i < r->kernel_count; i++) {
                free(r->kernels[i].name);
                free(r->kernels[i].outcomes);
        }
        free(r->kernels);
        free(r->text);
        free(r);
        return NULL;
}
