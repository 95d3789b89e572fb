/* SPDX-License-Identifier: Apache-2.0 */
#include <bpf/btf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <string.h>

#include "device/line_table.h"
#include "device/source_map.h"
#include "util/macro.h"

struct source_map {
        Elf *elf;
        const struct btf *btf;
        struct line_table lines;
};

/* The ELF section called `name`; NULL when there is none. */
static Elf_Scn *find_section(const struct source_map *m, const char *name)
{
        size_t names;
        Elf_Scn *section = NULL;

        if (elf_getshdrstrndx(m->elf, &names))
                return NULL;
        while ((section = elf_nextscn(m->elf, section))) {
                GElf_Shdr header;
                const char *found;

                if (!gelf_getshdr(section, &header))
                        continue;
                found = elf_strptr(m->elf, names, header.sh_name);
                if (found && !strcmp(found, name))
                        return section;
        }
        return NULL;
}

static int load_lines(struct source_map *m)
{
        Elf_Scn *section = find_section(m, ".BTF.ext");
        Elf_Data *data = section ? elf_getdata(section, NULL) : NULL;
        int error;

        if (!data || !data->d_buf)
                return 0;
        error = line_table_init(data->d_buf, data->d_size, &m->lines);
        /* Source lines are a courtesy: a program without them is still a program. */
        return error == -EINVAL ? 0 : error;
}

int source_map_new(const void *elf, size_t elf_bytes, const struct btf *btf,
                   struct source_map **ret_map)
{
        struct source_map *m = calloc(1, sizeof(*m));
        int error;

        if (!m)
                return -ENOMEM;
        m->btf = btf;
        elf_version(EV_CURRENT);
        m->elf = elf_memory((char *)elf, elf_bytes);
        if (m->elf && btf) {
                error = load_lines(m);
                if (error) {
                        source_map_free(m);
                        return error;
                }
        }
        *ret_map = m;
        return 0;
}

struct source_map *source_map_free(struct source_map *m)
{
        if (!m)
                return NULL;
        line_table_done(&m->lines);
        elf_end(m->elf);
        free(m);
        return NULL;
}

/* A function in the object file. */
struct place {
        const char *section;
        uint64_t offset; /* bytes into it */
};

/* Function symbols, one after the other: 0, or -ENOENT at the end. */
static int next_function(const struct source_map *m, int *at, GElf_Sym *ret_symbol,
                         const char **ret_name)
{
        Elf_Scn *table = find_section(m, ".symtab");
        Elf_Data *data = table ? elf_getdata(table, NULL) : NULL;
        GElf_Shdr header;

        if (!data || !gelf_getshdr(table, &header))
                return -ENOENT;
        while (gelf_getsym(data, (*at)++, ret_symbol)) {
                *ret_name = elf_strptr(m->elf, header.sh_link, ret_symbol->st_name);
                if (GELF_ST_TYPE(ret_symbol->st_info) == STT_FUNC && *ret_name)
                        return 0;
        }
        return -ENOENT;
}

static const char *section_name(const struct source_map *m, Elf_Scn *section)
{
        GElf_Shdr header;
        size_t names;

        if (elf_getshdrstrndx(m->elf, &names) || !gelf_getshdr(section, &header))
                return NULL;
        return elf_strptr(m->elf, names, header.sh_name);
}

static int find_program(const struct source_map *m, const char *section, const char *program,
                        struct place *ret_place)
{
        Elf_Scn *in = find_section(m, section);
        GElf_Sym symbol;
        const char *name;
        int at = 0;

        while (in && !next_function(m, &at, &symbol, &name)) {
                if (symbol.st_shndx != elf_ndxscn(in) || strcmp(name, program) != 0)
                        continue;
                *ret_place = (struct place){section, symbol.st_value};
                return 0;
        }
        return -ENOENT;
}

/* Whether a function in the file is the one that was loaded: loading changes immediates only. */
static bool is_same(const Elf_Data *data, const GElf_Sym *symbol, const struct bpf_insn *insns,
                    size_t count)
{
        if (!data || !data->d_buf || symbol->st_size != count * sizeof(*insns) ||
            symbol->st_value > data->d_size || symbol->st_size > data->d_size - symbol->st_value)
                return false;
        for (size_t i = 0; i < count; i++) {
                struct bpf_insn insn;

                memcpy(&insn, (const uint8_t *)data->d_buf + symbol->st_value + i * sizeof(insn),
                       sizeof(insn));
                if (insn.code != insns[i].code || insn.dst_reg != insns[i].dst_reg)
                        return false;
        }
        return true;
}

static int find_same(const struct source_map *m, const struct bpf_insn *insns, size_t count,
                     struct place *ret_place)
{
        GElf_Sym symbol;
        const char *name;
        int at = 0;

        while (!next_function(m, &at, &symbol, &name)) {
                Elf_Scn *section = elf_getscn(m->elf, symbol.st_shndx);

                if (!section || !is_same(elf_getdata(section, NULL), &symbol, insns, count))
                        continue;
                *ret_place = (struct place){section_name(m, section), symbol.st_value};
                return ret_place->section ? 0 : -ENOENT;
        }
        return -ENOENT;
}

/* The function that instruction `insn` is in goes from ret_start to before ret_end. */
static void find_function(const struct bpf_insn *insns, size_t count, size_t insn,
                          size_t *ret_start, size_t *ret_end)
{
        *ret_start = 0;
        *ret_end = count;
        for (size_t i = 0; i < count; i++) {
                int64_t target = (int64_t)i + 1 + insns[i].imm;

                if (insns[i].code != (BPF_JMP | BPF_CALL) || insns[i].src_reg != BPF_PSEUDO_CALL ||
                    target < 0)
                        continue;
                if ((size_t)target <= insn && (size_t)target > *ret_start)
                        *ret_start = (size_t)target;
                if ((size_t)target > insn && (size_t)target < *ret_end)
                        *ret_end = (size_t)target;
        }
}

static const struct line_section *section_lines(const struct source_map *m, const char *section)
{
        for (size_t i = 0; i < m->lines.count; i++) {
                const char *name = btf__str_by_offset(m->btf, m->lines.sections[i].name);

                if (name && !strcmp(name, section))
                        return &m->lines.sections[i];
        }
        return NULL;
}

int source_map_find(const struct source_map *m, const char *section, const char *program,
                    const struct bpf_insn *insns, size_t count, size_t insn, char *position,
                    size_t position_size, char *text, size_t text_size)
{
        const char *file, *line, *slash;
        const struct line_section *lines;
        struct line_position found;
        struct place place;
        size_t start, end;

        find_function(insns, count, insn, &start, &end);
        if (start ? find_same(m, insns + start, end - start, &place)
                  : find_program(m, section, program, &place))
                return -ENOENT;
        lines = section_lines(m, place.section);
        if (!lines ||
            line_table_find(&m->lines, lines,
                            (uint32_t)(place.offset + (insn - start) * sizeof(*insns)), &found) ||
            found.line == 0)
                return -ENOENT;
        file = btf__str_by_offset(m->btf, found.file);
        line = btf__str_by_offset(m->btf, found.text);
        if (!file || !line)
                return -ENOENT;
        slash = strrchr(file, '/');
        snprintf(position, position_size, "%s:%u", slash ? slash + 1 : file, found.line);
        snprintf(text, text_size, "%s", line + strspn(line, " \t"));
        return 0;
}
