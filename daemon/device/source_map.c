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

/* Byte offset of a function in its section, from the symbol table. */
static int function_offset(const struct source_map *m, Elf_Scn *in, const char *name,
                           uint64_t *ret_offset)
{
        Elf_Scn *table = find_section(m, ".symtab");
        Elf_Data *data = table ? elf_getdata(table, NULL) : NULL;
        GElf_Shdr header;
        GElf_Sym symbol;

        if (!data || !in || !gelf_getshdr(table, &header))
                return -ENOENT;
        for (int i = 0; gelf_getsym(data, i, &symbol); i++) {
                const char *found = elf_strptr(m->elf, header.sh_link, symbol.st_name);

                if (GELF_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_shndx == elf_ndxscn(in) &&
                    found && !strcmp(found, name)) {
                        *ret_offset = symbol.st_value;
                        return 0;
                }
        }
        return -ENOENT;
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
                    size_t insn, char *position, size_t position_size, char *text, size_t text_size)
{
        const struct line_section *lines = section_lines(m, section);
        const char *file, *line, *slash;
        struct line_position found;
        uint64_t offset;

        if (!lines || function_offset(m, find_section(m, section), program, &offset))
                return -ENOENT;
        offset += insn * sizeof(struct bpf_insn);
        if (line_table_find(&m->lines, lines, (uint32_t)offset, &found) || found.line == 0)
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
