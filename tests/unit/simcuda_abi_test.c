/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The exported functions of the simulated driver begin like the real one's:
 * push rbp; mov rbp,rsp, then at least 16 bytes that nothing jumps into, no jump
 * out of the function (tail call), and only cu* names. argv[1]: the library.
 */
#include <Zydis/Zydis.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdbool.h>
#include <unistd.h>

#include "test.h"
#include "test_file.h"

#define QUIET_BYTES 20

struct image {
        uint8_t *bytes;
        size_t size;
        Elf *elf;
};

static void read_image(struct image *image, const char *path)
{
        image->bytes = test_read_file(path, &image->size);
        CHECK(elf_version(EV_CURRENT) != EV_NONE);
        image->elf = elf_memory((char *)image->bytes, image->size);
        CHECK(image->elf != NULL);
}

/* The bytes of a virtual address range. */
static const uint8_t *at_address(const struct image *image, uint64_t address, uint64_t size)
{
        size_t count;

        CHECK_EQ(elf_getphdrnum(image->elf, &count), 0);
        for (size_t i = 0; i < count; i++) {
                GElf_Phdr p;

                CHECK(gelf_getphdr(image->elf, (int)i, &p) != NULL);
                if (p.p_type == PT_LOAD && address >= p.p_vaddr &&
                    address + size <= p.p_vaddr + p.p_filesz)
                        return image->bytes + p.p_offset + (address - p.p_vaddr);
        }
        CHECK(!"the address is in the file");
        return NULL;
}

static void check_instruction(const char *name, const ZydisDecodedInstruction *insn,
                              const ZydisDecodedOperand *operands, uint64_t at, uint64_t start,
                              uint64_t size)
{
        uint64_t target;

        if (insn->meta.category != ZYDIS_CATEGORY_COND_BR &&
            insn->meta.category != ZYDIS_CATEGORY_UNCOND_BR)
                return;
        if (insn->operand_count_visible == 0 || operands[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE)
                return; /* a jump table: targets lie behind it */
        CHECK(ZYAN_SUCCESS(ZydisCalcAbsoluteAddress(insn, &operands[0], at, &target)));
        if (target < start + QUIET_BYTES || target >= start + size || at < start + QUIET_BYTES) {
                fprintf(stderr, "%s+%#" PRIx64 " jumps to %s%+" PRId64 "\n", name, at - start, name,
                        (int64_t)(target - start));
                exit(1);
        }
}

static void check_function(const struct image *image, const char *name, uint64_t start,
                           uint64_t size)
{
        static const uint8_t prologue[] = {0x55, 0x48, 0x89, 0xe5};
        const uint8_t *code = at_address(image, start, size);
        ZydisDecoder decoder;
        ZydisDecodedInstruction insn;
        ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];

        CHECK(size > QUIET_BYTES);
        if (memcmp(code, prologue, sizeof(prologue)) != 0) {
                fprintf(stderr, "%s begins otherwise\n", name);
                exit(1);
        }
        CHECK(ZYAN_SUCCESS(
                ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64)));
        for (uint64_t at = 0; at < size; at += insn.length) {
                CHECK(ZYAN_SUCCESS(
                        ZydisDecoderDecodeFull(&decoder, code + at, size - at, &insn, operands)));
                check_instruction(name, &insn, operands, start + at, start, size);
        }
}

static unsigned check_symbols(const struct image *image, Elf_Scn *section, const GElf_Shdr *header)
{
        Elf_Data *data = elf_getdata(section, NULL);
        unsigned functions = 0;

        CHECK(data != NULL);
        for (size_t i = 0; i < header->sh_size / header->sh_entsize; i++) {
                GElf_Sym symbol;
                const char *name;

                CHECK(gelf_getsym(data, (int)i, &symbol) != NULL);
                if (symbol.st_shndx == SHN_UNDEF || GELF_ST_TYPE(symbol.st_info) == STT_NOTYPE)
                        continue;
                name = elf_strptr(image->elf, header->sh_link, symbol.st_name);
                CHECK(name && strncmp(name, "cu", 2) == 0);
                CHECK_EQ(GELF_ST_TYPE(symbol.st_info), STT_FUNC);
                check_function(image, name, symbol.st_value, symbol.st_size);
                functions++;
        }
        return functions;
}

int main(int argc, char **argv)
{
        struct image image;
        Elf_Scn *section = NULL;
        unsigned functions = 0;

        CHECK(argc == 2);
        read_image(&image, argv[1]);
        while ((section = elf_nextscn(image.elf, section))) {
                GElf_Shdr header;

                CHECK(gelf_getshdr(section, &header) != NULL);
                if (header.sh_type == SHT_DYNSYM)
                        functions += check_symbols(&image, section, &header);
        }
        CHECK(functions > 150);
        printf("ok %u functions\n", functions);
        elf_end(image.elf);
        free(image.bytes);
        return 0;
}
