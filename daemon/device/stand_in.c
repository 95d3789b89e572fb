/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "device/code.h"
#include "device/insn.h"
#include "device/stand_in.h"
#include "util/macro.h"

DEFINE_CLEANUP(Elf *, elf_end)

static bool has_mark(Elf *elf, const GElf_Sym *symbol)
{
        Elf_Scn *section = elf_getscn(elf, symbol->st_shndx);
        Elf_Data *data = section ? elf_getdata(section, NULL) : NULL;
        struct bpf_insn insns[2];
        uint64_t value;

        if (!data || !data->d_buf || data->d_size < sizeof(insns) ||
            symbol->st_value > data->d_size - sizeof(insns))
                return false;
        memcpy(insns, (const uint8_t *)data->d_buf + symbol->st_value, sizeof(insns));
        value = (uint32_t)insns[0].imm | (uint64_t)(uint32_t)insns[1].imm << 32;
        return insn_is_wide(insns[0].code) && (value & ~UINT64_C(0xffff)) == CODE_MARK;
}

/* libbpf makes hidden functions static ones. */
static bool is_global(const GElf_Sym *symbol)
{
        return GELF_ST_BIND(symbol->st_info) != STB_LOCAL &&
               GELF_ST_VISIBILITY(symbol->st_other) == STV_DEFAULT;
}

static int check_table(Elf *elf, Elf_Scn *table, const GElf_Shdr *header, char *ret_name,
                       size_t name_size)
{
        Elf_Data *data = elf_getdata(table, NULL);
        GElf_Sym symbol;

        for (int i = 0; data && gelf_getsym(data, i, &symbol); i++) {
                const char *name = elf_strptr(elf, header->sh_link, symbol.st_name);

                if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC || is_global(&symbol) ||
                    !has_mark(elf, &symbol))
                        continue;
                snprintf(ret_name, name_size, "%s", name ? name : "?");
                return -EINVAL;
        }
        return 0;
}

int stand_in_check(const void *elf_bytes, size_t size, char *ret_name, size_t name_size)
{
        _cleanup_(elf_endp) Elf *elf = NULL;
        Elf_Scn *section = NULL;
        GElf_Shdr header;

        elf_version(EV_CURRENT);
        elf = elf_memory((char *)elf_bytes, size);
        while (elf && (section = elf_nextscn(elf, section))) {
                int error;

                if (!gelf_getshdr(section, &header) || header.sh_type != SHT_SYMTAB)
                        continue;
                error = check_table(elf, section, &header, ret_name, name_size);
                if (error)
                        return error;
        }
        return 0;
}
