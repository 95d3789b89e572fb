/* SPDX-License-Identifier: Apache-2.0 */

/* A kernel's attributes after splicing: where its EXITs are, and what programs add to lists. */
#include <errno.h>
#include <string.h>

#include "splice_kernel.h"

/* A buffer that may be absent, to measure. */
struct writer {
        uint8_t *out;
        size_t size;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
        if (w->out)
                memcpy(w->out + w->size, bytes, n);
        w->size += n;
}

static void put_attribute(struct writer *w, uint8_t format, uint8_t id, uint16_t value)
{
        uint8_t head[2] = {format, id};

        put(w, head, 2);
        put(w, &value, 2);
}

static const struct probe_list_attribute *find_list(const struct probe_sequence *seq, uint8_t id)
{
        for (size_t k = 0; k < PROBE_LISTS; k++) {
                if (seq->lists[k].id == id && seq->lists[k].count)
                        return &seq->lists[k];
        }
        return NULL;
}

/* How many numbers the programs of a chain add to the list attribute `id`. */
static uint32_t count_additions(const struct probe_chain *chain, bool entry, uint8_t id)
{
        uint32_t count = 0;

        for (uint32_t n = 0; n < chain->count; n++) {
                const struct probe_code *code = chain->probes[n].code;
                const struct probe_list_attribute *list =
                        find_list(entry ? &code->entry : &code->exit, id);

                count += list ? list->count : 0;
        }
        return count;
}

static void put_additions(struct writer *w, const struct probe_chain *chain, bool entry, uint8_t id)
{
        for (uint32_t n = 0; n < chain->count; n++) {
                const struct planned_probe *p = &chain->probes[n];
                const struct probe_list_attribute *list =
                        find_list(entry ? &p->code->entry : &p->code->exit, id);

                for (uint32_t k = 0; list && k < list->count; k++) {
                        uint32_t v = list->values[k];

                        if (list->is_offset)
                                v = planned_place(p, v) * INSTR_BYTES;
                        put(w, &v, 4);
                }
        }
}

/* The same for the copies at accesses. */
static void put_mem_additions(struct writer *w, const struct kernel_plan *plan, uint8_t id)
{
        for (uint32_t s = 0; s < plan->mem.sites.count; s++) {
                for (uint32_t n = 0; n < plan->mem.chain.count; n++) {
                        const struct probe_list_attribute *list =
                                find_list(&plan->mem.chain.probes[n].code->exit, id);
                        uint32_t begin = plan->mem_at + mem_place(&plan->mem, s, n);

                        for (uint32_t k = 0; list && k < list->count; k++) {
                                uint32_t v = list->values[k];

                                if (list->is_offset)
                                        v = (begin + v) * INSTR_BYTES;
                                put(w, &v, 4);
                        }
                }
        }
}

/* The only EXITs left are those of the last program. */
static void put_exit_offsets(struct writer *w, const struct probe_chain *chain)
{
        const struct planned_probe *last = &chain->probes[chain->count - 1];
        const struct probe_sequence *seq = &last->code->exit;
        const struct arch *a = last->code->arch;
        uint32_t exits = 0;

        for (int pass = 0; pass < 2; pass++) {
                for (uint32_t k = 0; k < seq->count; k++) {
                        struct instr i = instr_load(seq->code, k);
                        uint32_t v = (last->at + k) * INSTR_BYTES;

                        if (arch_role(a, &i) != ARCH_EXIT)
                                continue;
                        if (pass == 0)
                                exits++;
                        else
                                put(w, &v, 4);
                }
                if (pass == 0)
                        put_attribute(w, CUBIN_FORMAT_SIZED, CUBIN_EXIT_OFFSETS,
                                      (uint16_t)(exits * 4));
        }
}

static const uint8_t list_ids[PROBE_LISTS] = {
        CUBIN_S2RCTAID_OFFSETS,
        CUBIN_COOP_GROUP_OFFSETS,
        CUBIN_COOP_GROUP_REGIDS,
        CUBIN_WARP_WIDE_OFFSETS,
};

/* Position of id in list_ids; PROBE_LISTS: it is no list. */
static size_t list_number(uint8_t id)
{
        size_t k = 0;

        while (k < PROBE_LISTS && list_ids[k] != id)
                k++;
        return k;
}

/*
 * The registers belong to the instructions of the list before, one to one. Older assemblers
 * list only these: then it stays at that, rather than that the first of them get the
 * registers of the last.
 */
static bool is_complete(const bool merged[static PROBE_LISTS], size_t k)
{
        return list_ids[k] != CUBIN_COOP_GROUP_REGIDS ||
               !merged[list_number(CUBIN_COOP_GROUP_OFFSETS)];
}

static uint32_t additions_to(const struct kernel_plan *plan, uint8_t id)
{
        return count_additions(&plan->entry, true, id) + count_additions(&plan->exit, false, id) +
               count_additions(&plan->mem.chain, false, id) * plan->mem.sites.count;
}

static void put_merged(struct writer *w, const struct kernel_plan *plan,
                       const struct cubin_attribute *a, uint8_t id)
{
        uint32_t size = a ? a->value : 0, more = 4 * additions_to(plan, id);
        bool fits = size + more <= UINT16_MAX;

        /* Where it does not fit, the driver keeps what it was told before. */
        put_attribute(w, CUBIN_FORMAT_SIZED, id, (uint16_t)(size + (fits ? more : 0)));
        if (a)
                put(w, a->data, a->value);
        if (fits) {
                put_additions(w, &plan->entry, true, id);
                put_additions(w, &plan->exit, false, id);
                put_mem_additions(w, plan, id);
        }
}

static bool uses_ctaid_z(const struct probe_chain *chain)
{
        bool uses = false;

        for (uint32_t n = 0; n < chain->count; n++)
                uses |= chain->probes[n].code->uses_ctaid_z;
        return uses;
}

int64_t kernel_write_info(const struct kernel_plan *plan, const uint8_t *info, size_t size,
                          uint8_t *out)
{
        bool merged[PROBE_LISTS] = {false}, has_ctaid_z = false;
        struct writer w = {.out = out};
        struct cubin_attribute a;
        size_t offset = 0;
        int r;

        while ((r = cubin_next_attribute(info, size, &offset, &a)) > 0) {
                size_t list = a.data ? list_number(a.id) : PROBE_LISTS;

                has_ctaid_z |= a.id == CUBIN_CTAIDZ_USED;
                if (a.id == CUBIN_EXIT_OFFSETS && plan->exit.count) {
                        put_exit_offsets(&w, &plan->exit);
                } else if (list < PROBE_LISTS && !merged[list]) {
                        put_merged(&w, plan, &a, a.id);
                        merged[list] = true;
                } else {
                        put(&w, info + a.offset, a.bytes);
                }
        }
        if (r < 0)
                return -EINVAL;
        for (size_t k = 0; k < PROBE_LISTS; k++)
                if (!merged[k] && additions_to(plan, list_ids[k]) && is_complete(merged, k))
                        put_merged(&w, plan, NULL, list_ids[k]);
        if (!has_ctaid_z && (uses_ctaid_z(&plan->entry) || uses_ctaid_z(&plan->exit) ||
                             uses_ctaid_z(&plan->mem.chain)))
                put_attribute(&w, CUBIN_FORMAT_NONE, CUBIN_CTAIDZ_USED, 0);
        return (int64_t)w.size;
}
