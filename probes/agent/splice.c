/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The image: find every kernel and what the tables say about it, plan each, build
 * the new file once with all new sizes, then write code, attributes, symbols and
 * register counts into it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "image_memory.h"
#include "splice.h"
#include "splice_kernel.h"

#define NO_KERNEL UINT32_MAX

struct splicer {
        const struct arch *arch;
        struct cubin cubin;
        const struct probe_list *probes;
        struct probe_outcome *outcomes; /* of all kernels, the result's in the end */
        struct image_functions functions;
        struct kernel_site *sites; /* one per kernel */
        struct kernel_plan *plans;
        struct code_marks marks;
        size_t count;
        uint32_t *kernel_of_section; /* by section: its kernel or NO_KERNEL */
        uint32_t info_section;       /* .nv.info; 0 none */
        uint64_t *sizes, *offsets;   /* by section, for the new image */
};

static int fail(int error, const char *why, const char **ret_reason)
{
        if (ret_reason)
                *ret_reason = why;
        return error;
}

static void splicer_done(struct splicer *s)
{
        cubin_done(&s->cubin);
        for (size_t k = 0; k < s->count && s->plans; k++)
                kernel_plan_done(&s->plans[k]);
        marks_done(&s->marks);
        free(s->sites);
        free(s->plans);
        free(s->outcomes);
        free(s->kernel_of_section);
        free(s->sizes);
        free(s->offsets);
}

static bool is_kernel_symbol(const struct cubin *c, const Elf64_Sym *s)
{
        return ELF64_ST_TYPE(s->st_info) == STT_FUNC && (s->st_other & CUBIN_KERNEL_FLAG) &&
               s->st_shndx && s->st_shndx < c->header.e_shnum &&
               (c->sections[s->st_shndx].sh_flags & SHF_EXECINSTR);
}

static const char *refuse_image(const struct cubin *c)
{
        if (!arch_find(c->sm))
                return "no instruction table for its architecture";
        if (c->header.e_type != ET_EXEC)
                return "machine code that is not linked yet";
        if (!c->symtab)
                return "an image without symbols";
        for (size_t i = 1; i < c->header.e_shnum; i++) {
                const char *name = cubin_section_name(c, i);

                if (c->sections[i].sh_addr)
                        return "an image with fixed addresses";
                if (strstr(name, "merc"))
                        return "an image with a second form of its code";
        }
        return NULL;
}

static int find_kernels(struct splicer *s)
{
        const struct cubin *c = &s->cubin;
        Elf64_Sym sym;
        size_t n = 0;

        for (size_t i = 0; i < c->symbol_count; i++) {
                cubin_symbol(c, i, &sym);
                n += is_kernel_symbol(c, &sym);
        }
        s->sites = calloc(n + 1, sizeof(*s->sites));
        s->plans = calloc(n + 1, sizeof(*s->plans));
        s->outcomes = calloc(n * s->probes->count + 1, sizeof(*s->outcomes));
        if (!s->sites || !s->plans || !s->outcomes)
                return -ENOMEM;
        for (size_t i = 0; i < c->symbol_count && s->count < n; i++) {
                struct kernel_site *site = &s->sites[s->count];
                uint32_t *owner;

                cubin_symbol(c, i, &sym);
                if (!is_kernel_symbol(c, &sym))
                        continue;
                owner = &s->kernel_of_section[sym.st_shndx];
                site->symbol = (uint32_t)i;
                site->text = sym.st_shndx;
                site->relocated = UINT32_MAX;
                /* A kernel in the middle of a section is as good as two in it. */
                site->shares_section = *owner != NO_KERNEL || sym.st_value != 0;
                if (*owner != NO_KERNEL)
                        s->sites[*owner].shares_section = true;
                else
                        *owner = (uint32_t)s->count;
                s->count++;
        }
        return 0;
}

/* The kernel whose code is section `section`, or NULL. */
static struct kernel_site *site_of(struct splicer *s, uint64_t section)
{
        uint32_t k = section < s->cubin.header.e_shnum ? s->kernel_of_section[section] : NO_KERNEL;

        return k == NO_KERNEL ? NULL : &s->sites[k];
}

static void note_regcount(struct splicer *s, const struct cubin_attribute *a)
{
        struct kernel_site *site;
        uint32_t v[2];
        Elf64_Sym sym;

        memcpy(v, a->data, 8);
        if (v[0] >= s->cubin.symbol_count)
                return;
        cubin_symbol(&s->cubin, v[0], &sym);
        site = site_of(s, sym.st_shndx);
        if (site && site->symbol == v[0] && v[1] <= 255) {
                site->regcount_offset = a->offset + 8;
                site->registers = v[1];
        }
}

static void find_regcounts(struct splicer *s)
{
        struct cubin_attribute a;
        size_t size, offset = 0;
        const uint8_t *bytes = cubin_section_bytes(&s->cubin, s->info_section, &size);

        while (cubin_next_attribute(bytes, size, &offset, &a) > 0) {
                if (a.id == CUBIN_REGCOUNT && a.data && a.value == 8)
                        note_regcount(s, &a);
        }
}

static void find_info_sections(struct splicer *s)
{
        for (uint32_t i = 1; i < s->cubin.header.e_shnum; i++) {
                const Elf64_Shdr *h = &s->cubin.sections[i];
                const char *name = cubin_section_name(&s->cubin, i);
                struct kernel_site *site = site_of(s, h->sh_info);

                if (strcmp(name, ".nv.info") == 0)
                        s->info_section = i;
                else if (site && h->sh_type == CUBIN_INFO_TYPE &&
                         strncmp(name, ".nv.info.", 9) == 0)
                        site->info = i;
        }
        if (s->info_section)
                find_regcounts(s);
}

static void note_relocation(const struct splicer *s, struct kernel_site *site, uint64_t offset)
{
        size_t size, index = offset / INSTR_BYTES;
        const uint8_t *code = cubin_section_bytes(&s->cubin, site->text, &size);
        struct instr i;

        if (index >= size / INSTR_BYTES)
                return;
        i = instr_load(code, index);
        if (index < site->relocated)
                site->relocated = (uint32_t)index;
        switch (arch_role(s->arch, &i)) {
        case ARCH_EXIT:
                site->relocated_exit = true;
                break;
        case ARCH_CALL_RELATIVE:
        case ARCH_CALL_ABSOLUTE:
        case ARCH_BRA:
                site->calls_out = true;
                break;
        default:
                break;
        }
}

static void find_relocations(struct splicer *s)
{
        for (size_t i = 1; i < s->cubin.header.e_shnum; i++) {
                const Elf64_Shdr *h = &s->cubin.sections[i];
                struct kernel_site *site = site_of(s, h->sh_info);
                size_t size,
                        entry = h->sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
                const uint8_t *bytes;

                if (!site || (h->sh_type != SHT_REL && h->sh_type != SHT_RELA))
                        continue;
                bytes = cubin_section_bytes(&s->cubin, i, &size);
                for (size_t at = 0; at + entry <= size; at += entry) {
                        Elf64_Rel rel;

                        memcpy(&rel, bytes + at, sizeof(rel));
                        note_relocation(s, site, rel.r_offset);
                }
        }
}

/*
 * What calls may reach. A failed assertion never comes back, so what it does with
 * registers does not matter; other functions of the driver are unknown code.
 */
static int find_functions(struct splicer *s)
{
        const struct cubin *c = &s->cubin;

        for (size_t i = 0; i < c->symbol_count; i++) {
                Elf64_Sym sym;

                cubin_symbol(c, i, &sym);
                if (ELF64_ST_TYPE(sym.st_info) == STT_FUNC && sym.st_shndx == SHN_UNDEF &&
                    strcmp(cubin_symbol_name(c, &sym), "__assertfail") != 0)
                        s->functions.calls_unknown = true;
        }
        for (size_t i = 1; i < c->header.e_shnum; i++) {
                size_t size;
                const uint8_t *code = cubin_section_bytes(c, i, &size);

                if (!(c->sections[i].sh_flags & SHF_EXECINSTR) ||
                    s->kernel_of_section[i] != NO_KERNEL)
                        continue;
                if (functions_add(s->arch, &s->functions, code, size / INSTR_BYTES, &s->marks) < 0)
                        return -ENOMEM;
        }
        return 0;
}

static int read_image(struct splicer *s, const char **ret_reason)
{
        size_t n = s->cubin.header.e_shnum;
        const char *why = refuse_image(&s->cubin);

        if (why)
                return fail(-ENOTSUP, why, ret_reason);
        s->arch = arch_find(s->cubin.sm);
        s->kernel_of_section = malloc(n * sizeof(*s->kernel_of_section));
        s->sizes = calloc(n, sizeof(*s->sizes));
        s->offsets = calloc(n, sizeof(*s->offsets));
        if (!s->kernel_of_section || !s->sizes || !s->offsets)
                return fail(-ENOMEM, "out of memory", ret_reason);
        for (size_t i = 0; i < n; i++)
                s->kernel_of_section[i] = NO_KERNEL;
        if (find_kernels(s) < 0)
                return fail(-ENOMEM, "out of memory", ret_reason);
        find_info_sections(s);
        find_relocations(s);
        if (find_functions(s) < 0)
                return fail(-ENOMEM, "out of memory", ret_reason);
        return 0;
}

static void plan_image(struct splicer *s)
{
        for (size_t i = 0; i < s->cubin.header.e_shnum; i++)
                s->sizes[i] = s->cubin.sections[i].sh_size;
        for (size_t k = 0; k < s->count; k++) {
                struct kernel_plan *plan = &s->plans[k];
                const struct kernel_site *site = &s->sites[k];

                kernel_plan(s->arch, &s->cubin, site, &s->functions, s->probes, &s->marks,
                            s->outcomes + k * s->probes->count, plan);
                if (kernel_changes(plan)) {
                        s->sizes[site->text] = (uint64_t)plan->new_count * INSTR_BYTES;
                        s->sizes[site->info] = plan->info_size;
                }
        }
}

/* Size of the symbol, register count, and on the older ABI the section's header. */
static void write_tables(const struct splicer *s, size_t k, uint8_t *image)
{
        const struct kernel_site *site = &s->sites[k];
        const struct kernel_plan *plan = &s->plans[k];
        uint64_t size = (uint64_t)plan->new_count * INSTR_BYTES;
        Elf64_Ehdr header;
        uint8_t *at;

        at = image + s->offsets[s->cubin.symtab] + site->symbol * sizeof(Elf64_Sym);
        memcpy(at + offsetof(Elf64_Sym, st_size), &size, sizeof(size));
        memcpy(image + s->offsets[s->info_section] + site->regcount_offset, &plan->registers, 4);
        if (s->cubin.registers_in_section && s->cubin.sections[site->text].sh_info >> 24) {
                uint32_t info = s->cubin.sections[site->text].sh_info & 0xffffff;

                memcpy(&header, image, sizeof(header));
                info |= plan->registers << 24;
                at = image + header.e_shoff + site->text * sizeof(Elf64_Shdr);
                memcpy(at + offsetof(Elf64_Shdr, sh_info), &info, sizeof(info));
        }
}

static void write_kernels(const struct splicer *s, uint32_t first_id, uint8_t *image)
{
        for (size_t k = 0; k < s->count; k++) {
                const struct kernel_site *site = &s->sites[k];
                const struct kernel_plan *plan = &s->plans[k];
                size_t size;
                const uint8_t *info;

                if (!kernel_changes(plan))
                        continue;
                kernel_write_code(plan, &s->marks, first_id + (uint32_t)k,
                                  image + s->offsets[site->text]);
                info = cubin_section_bytes(&s->cubin, site->info, &size);
                kernel_write_info(plan, info, size, image + s->offsets[site->info]);
                write_tables(s, k, image);
        }
}

/* Names live behind the array, in one allocation. */
static int report(const struct splicer *s, uint32_t first_id, struct splice_result *result)
{
        size_t bytes = s->count * sizeof(*result->kernels);
        Elf64_Sym sym;
        char *names;

        for (size_t k = 0; k < s->count; k++) {
                cubin_symbol(&s->cubin, s->sites[k].symbol, &sym);
                bytes += strlen(cubin_symbol_name(&s->cubin, &sym)) + 1;
        }
        result->kernels = calloc(1, bytes + 1);
        if (!result->kernels)
                return -ENOMEM;
        names = (char *)(result->kernels + s->count);
        for (size_t k = 0; k < s->count; k++) {
                const struct kernel_plan *plan = &s->plans[k];

                cubin_symbol(&s->cubin, s->sites[k].symbol, &sym);
                result->kernels[k] = (struct splice_kernel){
                        .name = names,
                        .kernel_id = first_id + (uint32_t)k,
                        .outcomes = s->outcomes + k * s->probes->count,
                        .exits = plan->exit.count ? plan->exits : 0,
                        .accesses_known = plan->mem.looked,
                        .accesses = plan->mem.chain.count ? plan->mem.sites.count : 0,
                        .other_accesses = plan->mem.sites.others +
                                          (plan->mem.chain.count ? 0 : plan->mem.sites.count),
                        .registers_before = s->sites[k].registers,
                        .registers_after = plan->registers,
                };
                names = stpcpy(names, cubin_symbol_name(&s->cubin, &sym)) + 1;
                result->in_count += plan->entry.count + plan->exit.count + plan->mem.chain.count;
        }
        result->kernel_count = s->count;
        result->launches = cubin_launches(&s->cubin);
        return 0;
}

static int splice(struct splicer *s, uint32_t first_id, struct splice_result *result,
                  const char **ret_reason)
{
        int r = read_image(s, ret_reason);

        if (r < 0)
                return r;
        plan_image(s);
        r = cubin_rebuild(&s->cubin, s->sizes, s->offsets, &result->image, &result->image_bytes);
        if (r < 0)
                return fail(r,
                            r == -ENOMEM ? "out of memory" : "an image laid out in an unknown way",
                            ret_reason);
        write_kernels(s, first_id, result->image);
        if (report(s, first_id, result) < 0)
                return fail(-ENOMEM, "out of memory", ret_reason);
        result->outcomes = s->outcomes;
        s->outcomes = NULL;
        return 0;
}

int splice_image(const void *cubin, size_t size, const struct probe_list *probes,
                 uint32_t first_kernel_id, struct splice_result **ret_result,
                 const char **ret_reason)
{
        struct splicer s = {.probes = probes};
        struct splice_result *result;
        int r;

        r = cubin_open(cubin, size, &s.cubin, ret_reason);
        if (r < 0)
                return r;
        result = calloc(1, sizeof(*result));
        r = result ? splice(&s, first_kernel_id, result, ret_reason)
                   : fail(-ENOMEM, "out of memory", ret_reason);
        splicer_done(&s);
        if (r < 0) {
                splice_result_free(result);
                return r;
        }
        *ret_result = result;
        return 0;
}

struct splice_result *splice_result_free(struct splice_result *r)
{
        if (r) {
                image_memory_free(r->image);
                free(r->kernels);
                free(r->outcomes);
                free(r);
        }
        return NULL;
}
