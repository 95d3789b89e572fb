/* SPDX-License-Identifier: Apache-2.0 */
#include <elf.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/encode.h"
#include "agent/splice_probe.h"
#include "cost_hand.h"

#define REGISTERS     8
#define SR_LANE       0
#define SR_CTAID_X    0x25
#define SR_PACKED_TID 0x20 /* x, y and z of the thread in one word */

/* Control halves: a scoreboard for the result; behind it, waiting for that scoreboard. */
#define S2R(reg, special)                                                                          \
        {                                                                                          \
                0x7919 | (reg) << 16, 0x000e240000000000ULL | (special) << 8                       \
        }
#define S2UR4(special)                                                                             \
        {                                                                                          \
                0x00000000000479c3ULL, 0x000e240000000000ULL | (special) << 8                      \
        }
#define IS_NOT_ZERO_R0                                                                             \
        {                                                                                          \
                0x000000ff0000720cULL, 0x001fda0003f05070ULL                                       \
        } /* ISETP P0, R0 */
#define IS_NOT_ZERO_UR4                                                                            \
        {                                                                                          \
                0x00000004ff007c0cULL, 0x001fda000bf05070ULL                                       \
        }
#define IS_NOT_ZERO_R0_2_3                                                                         \
        {                                                                                          \
                0x0000000200007212ULL, 0x001fda000780fe03ULL                                       \
        } /* LOP3 P0 */
#define EXIT_IF_P0                                                                                 \
        {                                                                                          \
                0x000000000000094dULL, 0x000fea0003800000ULL                                       \
        }
#define EXIT_ALWAYS                                                                                \
        {                                                                                          \
                0x000000000000794dULL, 0x000fea0003800000ULL                                       \
        }
#define RETURN                                                                                     \
        {0, 0},                                                                                    \
        {                                                                                          \
                0, 0                                                                               \
        } /* filled in by the splicer */

struct hand {
        struct instr code[8];
        uint32_t count;
        bool entry, early, hasty;
};

/* Entries as the splicer arranges them: the way back of the many, then that of the one. */
static const struct hand hands[] = {
        [COST_ENTRY_DETOUR] = {{RETURN}, 2, .entry = true},
        [COST_ENTRY_S2R] = {{S2R(0, SR_CTAID_X), IS_NOT_ZERO_R0, {0}, RETURN, RETURN},
                            7,
                            .entry = true},
        [COST_ENTRY_S2UR] = {{S2UR4(SR_CTAID_X), IS_NOT_ZERO_UR4, {0}, RETURN, RETURN},
                             7,
                             .entry = true},
        [COST_ENTRY_EARLY] = {{S2UR4(SR_CTAID_X), IS_NOT_ZERO_UR4, {0}, RETURN, RETURN},
                              7,
                              .entry = true,
                              .early = true},
        [COST_EXIT_DETOUR] = {{EXIT_ALWAYS}, 1},
        [COST_EXIT_HASTE] = {{EXIT_ALWAYS}, 1, .hasty = true},
        [COST_EXIT_TID] = {{S2R(0, 0x21), IS_NOT_ZERO_R0, EXIT_IF_P0, EXIT_ALWAYS}, 4},
        [COST_EXIT_TIDS] = {{S2R(0, 0x21), S2R(2, 0x22), S2R(3, 0x23), IS_NOT_ZERO_R0_2_3,
                             EXIT_IF_P0, EXIT_ALWAYS},
                            6},
        [COST_EXIT_PACKED] = {{S2R(0, SR_PACKED_TID), IS_NOT_ZERO_R0, EXIT_IF_P0, EXIT_ALWAYS}, 4},
};

/* Where the ways back are; those who do not take the first jump to the second. */
static void lay_out_entry(const struct hand *h, struct probe_sequence *seq)
{
        struct instr branch = encode_bra(&arch_sm90, 0);

        if (h->count == SPLICE_RETURN_INSTRS) {
                seq->return_at[seq->return_count++] = 0;
                return;
        }
        for (uint32_t at = 3; at < h->count; at += SPLICE_RETURN_INSTRS)
                seq->return_at[seq->return_count++] = at;
        branch.lo = (branch.lo & ~INSTR_GUARD) | INSTR_PREDICATE_NOT; /* P0 */
        arch_set_relative_target(&arch_sm90, &branch,
                                 (int64_t)(seq->return_at[1] - 2) * INSTR_BYTES);
        instr_store(seq->code, 2, branch);
}

struct probe_code *cost_hand_made(enum cost_hand which)
{
        const struct hand *h = &hands[which];
        struct probe_code *code = calloc(1, sizeof(*code));
        struct probe_sequence *seq;

        if (!code)
                return NULL;
        code->arch = &arch_sm90;
        code->registers = REGISTERS;
        seq = h->entry ? &code->entry : &code->exit;
        seq->count = h->count;
        seq->asks_first = h->early;
        seq->code = calloc(h->count, INSTR_BYTES);
        if (!seq->code)
                return probe_code_free(code);
        for (uint32_t k = 0; k < h->count; k++) {
                struct instr i = h->code[k];

                if (k == 0 && !h->entry && !h->hasty)
                        instr_add_waits(&i, INSTR_WAIT_ALL);
                instr_store(seq->code, k, i);
        }
        if (h->entry)
                lay_out_entry(h, seq);
        return code;
}

/* A kernel's symbol and code in an image that splice_image() has accepted. */
struct place {
        Elf64_Sym *symbol;
        uint8_t *code;
};

static int find_kernel(uint8_t *image, const char *kernel, struct place *ret)
{
        const Elf64_Ehdr *header = (const Elf64_Ehdr *)image;
        const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + header->e_shoff);

        for (size_t i = 0; i < header->e_shnum; i++) {
                const Elf64_Shdr *table = &sections[i];
                const char *names = (const char *)image + sections[table->sh_link].sh_offset;
                Elf64_Sym *symbols = (Elf64_Sym *)(image + table->sh_offset);

                if (table->sh_type != SHT_SYMTAB)
                        continue;
                for (size_t k = 0; k < table->sh_size / sizeof(*symbols); k++) {
                        Elf64_Sym *s = &symbols[k];

                        if (ELF64_ST_TYPE(s->st_info) != STT_FUNC ||
                            strcmp(names + s->st_name, kernel) != 0)
                                continue;
                        *ret = (struct place){s, image + sections[s->st_shndx].sh_offset};
                        return 0;
                }
        }
        return -EINVAL;
}

int cost_start_at_end(uint8_t *image, uint8_t *original, const char *kernel)
{
        struct place spliced, plain;
        int r = find_kernel(image, kernel, &spliced);

        if (r == 0)
                r = find_kernel(original, kernel, &plain);
        if (r < 0)
                return r;
        instr_store(spliced.code, 0, instr_load(plain.code, 0));
        spliced.symbol->st_value = plain.symbol->st_size;
        spliced.symbol->st_size -= plain.symbol->st_size;
        return 0;
}

size_t cost_pack_index(uint8_t *image, const char *kernel)
{
        struct place p;
        size_t found = 0;

        if (find_kernel(image, kernel, &p) < 0)
                return 0;
        for (size_t k = 0; k < p.symbol->st_size / INSTR_BYTES; k++) {
                struct instr i = instr_load(p.code, k);

                if (arch_role(&arch_sm90, &i) != ARCH_S2R || instr_special(&i) != SR_LANE)
                        continue;
                i.hi |= SR_PACKED_TID << 8;
                instr_store(p.code, k, i);
                found++;
        }
        return found;
}
