/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/elf_symbols.h"

#include <elf.h>
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "util/macro.h"

#define VERSION_HIDDEN 0x8000 /* in .gnu.version: not the default version of its symbol */

/* More than any driver's library has; a stranger's must not cost us memory or time. */
#define SECTIONS_MAX      4096
#define SEGMENTS_MAX      256
#define SECTION_BYTES_MAX (16u << 20)

struct symbol_table {
        Elf_Data *symbols;
        Elf_Data *versions; /* NULL when the library has none */
        size_t strings;     /* section of the names */
        size_t count;
};

static void elf_endp(Elf **elf)
{
        if (*elf)
                elf_end(*elf);
}

/* Before libelf allocates what the header asks for. */
static int check_header(int fd)
{
        Elf64_Ehdr header;

        if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) ||
            memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
                return -ENOEXEC;
        if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_type != ET_DYN)
                return -ENOEXEC;
        if (header.e_shnum == 0 || header.e_shnum > SECTIONS_MAX || header.e_phnum > SEGMENTS_MAX)
                return -ENOEXEC;
        return 0;
}

static Elf_Data *section_data(Elf_Scn *section)
{
        GElf_Shdr header;

        if (!section || !gelf_getshdr(section, &header) || header.sh_size > SECTION_BYTES_MAX)
                return NULL;
        return elf_getdata(section, NULL);
}

static int find_symbol_table(Elf *elf, struct symbol_table *ret_table)
{
        struct symbol_table table = {0};
        Elf_Scn *section = NULL;
        GElf_Shdr header;

        while ((section = elf_nextscn(elf, section))) {
                if (!gelf_getshdr(section, &header))
                        return -ENOEXEC;
                if (header.sh_type == SHT_GNU_versym)
                        table.versions = section_data(section);
                if (header.sh_type != SHT_DYNSYM || header.sh_entsize != sizeof(Elf64_Sym))
                        continue;
                table.symbols = section_data(section);
                table.strings = header.sh_link;
                if (table.symbols)
                        table.count = table.symbols->d_size / sizeof(Elf64_Sym);
        }
        if (!table.symbols || !section_data(elf_getscn(elf, table.strings)))
                return -ENOEXEC;
        *ret_table = table;
        return 0;
}

/* The file offset of an address in an executable segment; 0 when it is in none. */
static uint64_t offset_of(Elf *elf, uint64_t address)
{
        size_t i, count;
        GElf_Phdr p;

        if (elf_getphdrnum(elf, &count))
                return 0;
        for (i = 0; i < count; i++) {
                if (!gelf_getphdr(elf, (int)i, &p))
                        return 0;
                if (p.p_type == PT_LOAD && p.p_flags & PF_X && address >= p.p_vaddr &&
                    address - p.p_vaddr < p.p_filesz)
                        return address - p.p_vaddr + p.p_offset;
        }
        return 0;
}

static bool is_default_version(const struct symbol_table *table, size_t i)
{
        GElf_Versym version;

        if (!table->versions || !gelf_getversym(table->versions, (int)i, &version))
                return true;
        return !(version & VERSION_HIDDEN);
}

static void take_symbol(Elf *elf, const struct symbol_table *table, size_t i,
                        const char *const names[], size_t n, uint64_t offsets[])
{
        const char *name;
        GElf_Sym symbol;
        size_t k;

        if (!gelf_getsym(table->symbols, (int)i, &symbol) || symbol.st_shndx == SHN_UNDEF ||
            GELF_ST_TYPE(symbol.st_info) != STT_FUNC)
                return;
        name = elf_strptr(elf, table->strings, symbol.st_name);
        if (!name)
                return;
        for (k = 0; k < n; k++) {
                if (strcmp(name, names[k]) != 0)
                        continue;
                if (!offsets[k] || is_default_version(table, i))
                        offsets[k] = offset_of(elf, symbol.st_value);
                return;
        }
}

int elf_find_functions(int fd, const char *const names[], size_t n, uint64_t ret_offsets[])
{
        _cleanup_(elf_endp) Elf *elf = NULL;
        struct symbol_table table;
        size_t i;
        int r, found = 0;

        if (elf_version(EV_CURRENT) == EV_NONE)
                return -ENOTSUP;
        r = check_header(fd);
        if (r < 0)
                return r;
        /* Read, not mapped: its owner could cut the file short under us. */
        elf = elf_begin(fd, ELF_C_READ, NULL);
        if (!elf || elf_kind(elf) != ELF_K_ELF)
                return -ENOEXEC;
        r = find_symbol_table(elf, &table);
        if (r < 0)
                return r;

        memset(ret_offsets, 0, n * sizeof(*ret_offsets));
        for (i = 0; i < table.count; i++)
                take_symbol(elf, &table, i, names, n, ret_offsets);
        for (i = 0; i < n; i++)
                found += ret_offsets[i] != 0;
        return found;
}
