/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An instruction is a site when its address is understood and nothing in the image
 * depends on where it is: neither a relocation nor an attribute names it, and it is not
 * part of a collective section, whose instructions belong together. The first instruction
 * is left to the entry probe.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "splice_sites.h"

struct finder {
        const struct arch *arch;
        const struct cubin *c;
        const uint8_t *code;
        uint32_t count;
        bool *named; /* by instruction */
};

static void name_instruction(struct finder *f, uint64_t offset)
{
        if (offset / INSTR_BYTES < f->count)
                f->named[offset / INSTR_BYTES] = true;
}

static void name_relocated(struct finder *f, uint32_t text)
{
        for (size_t i = 1; i < f->c->header.e_shnum; i++) {
                const Elf64_Shdr *h = &f->c->sections[i];
                size_t size, entry;
                const uint8_t *bytes;

                if (h->sh_info != text || (h->sh_type != SHT_REL && h->sh_type != SHT_RELA))
                        continue;
                entry = h->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
                bytes = cubin_section_bytes(f->c, i, &size);
                for (size_t at = 0; at + entry <= size; at += entry) {
                        Elf64_Rel rel;

                        memcpy(&rel, bytes + at, sizeof(rel));
                        name_instruction(f, rel.r_offset);
                }
        }
}

/* Attributes known to hold sizes and numbers. */
static bool is_number(uint8_t id)
{
        switch (id) {
        case CUBIN_MAX_THREADS:
        case CUBIN_REQNTID:
        case CUBIN_PARAM_CBANK:
        case CUBIN_KPARAM_INFO:
        case CUBIN_FRAME_SIZE:
        case CUBIN_MIN_STACK_SIZE:
        case CUBIN_COOP_GROUP_REGIDS:
        case CUBIN_CRS_STACK_SIZE:
        case CUBIN_SW_WAR:
        case CUBIN_API_VERSION:
                return true;
        default:
                return false;
        }
}

/*
 * What may be offsets of instructions: any aligned number of the other attributes. One
 * that means something else costs a site, no more.
 */
static void name_listed(struct finder *f, uint32_t info)
{
        struct cubin_attribute a;
        size_t size, offset = 0;
        const uint8_t *bytes = cubin_section_bytes(f->c, info, &size);

        while (info && cubin_next_attribute(bytes, size, &offset, &a) > 0) {
                for (size_t k = 0; a.data && !is_number(a.id) && k + 4 <= a.value; k += 4) {
                        uint32_t v;

                        memcpy(&v, a.data + k, 4);
                        if (v % INSTR_BYTES == 0)
                                name_instruction(f, v);
                }
        }
}

/* Everything from a WARPSYNC to the ENDCOLLECT that follows it. */
static void name_collective(struct finder *f)
{
        uint32_t begin = 0;

        for (uint32_t k = 0; k < f->count; k++) {
                struct instr i = instr_load(f->code, k);
                enum arch_role role = arch_role(f->arch, &i);

                if (role == ARCH_WARPSYNC)
                        begin = k;
                for (uint32_t j = begin; role == ARCH_ENDCOLLECT && j < k; j++)
                        f->named[j] = true;
                if (role == ARCH_ENDCOLLECT)
                        begin = k;
        }
}

static void add_sites(const struct finder *f, struct mem_sites *sites)
{
        for (uint32_t k = 0; k < f->count; k++) {
                struct instr i = instr_load(f->code, k);
                struct access a;
                enum access_class class = access_read(f->arch, &i, &a);

                if (class == ACCESS_NONE)
                        continue;
                if (class == ACCESS_OTHER || (a.is_wide && a.ur != INSTR_UR_ZERO) || k == 0 ||
                    f->named[k])
                        sites->others++;
                else
                        sites->at[sites->count++] = k;
        }
}

int sites_find(const struct arch *a, const struct cubin *c, uint32_t text, uint32_t info,
               struct mem_sites *ret_sites)
{
        struct finder f = {.arch = a, .c = c};
        struct mem_sites sites = {0};
        size_t size;

        f.code = cubin_section_bytes(c, text, &size);
        f.count = (uint32_t)(size / INSTR_BYTES);
        f.named = calloc(f.count + 1UL, sizeof(*f.named));
        sites.at = calloc(f.count + 1UL, sizeof(*sites.at));
        sites.place = calloc(f.count + 1UL, sizeof(*sites.place));
        if (!f.named || !sites.at || !sites.place) {
                free(f.named);
                sites_done(&sites);
                return -ENOMEM;
        }
        name_relocated(&f, text);
        name_listed(&f, info);
        name_collective(&f);
        add_sites(&f, &sites);
        free(f.named);
        *ret_sites = sites;
        return 0;
}

void sites_done(struct mem_sites *sites)
{
        free(sites->at);
        free(sites->place);
        *sites = (struct mem_sites){0};
}
