/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the functions of a cubin reach: by relocations of their code; by constant bank
 * 4, where the driver puts addresses, each word told by a relocation of its own; and by
 * constant bank 3, which is the module's __constant__ variables. An instruction whose
 * second source is a constant tells bank and offset in its operand; one that computes
 * the offset may reach every word of the bank.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "cubin.h"
#include "image_state.h"

#define BANK_USER    3
#define BANK_ADDRESS 4
#define LOOK_BACK    64 /* instructions */

struct reader {
        const struct arch *arch;
        const struct cubin *cubin;
        struct image_state *state;
        size_t addresses; /* section of relocations of bank 4, of all functions; 0: none */
};

static bool name_starts(const char *name, const char *prefix)
{
        return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* "X" of ".text.X", else NULL. */
static const char *function_of(const struct cubin *c, size_t section)
{
        const char *name = cubin_section_name(c, section);

        return name_starts(name, ".text.") ? name + strlen(".text.") : NULL;
}

static int reach_section(struct reader *r, int function, size_t section, const char *symbol)
{
        const char *name = cubin_section_name(r->cubin, section), *other;

        other = function_of(r->cubin, section);
        if (other) {
                int n = image_state_function(r->state, other, strlen(other));

                return n < 0 ? n : image_state_calls(r->state, function, n);
        }
        if (name_starts(name, ".nv.shared") || name_starts(name, ".nv.local") ||
            name_starts(name, ".nv.constant0") || name_starts(name, ".nv.constant2"))
                return 0;
        if (name_starts(name, ".nv.global") && image_state_is_literal(symbol, strlen(symbol)))
                return 0;
        return image_state_reaches(r->state, function, "uses the module's variable %.80s",
                                   *symbol ? symbol : name);
}

static int reach_undefined(struct reader *r, int function, const char *name)
{
        if (!*name || image_state_is_builtin(name, strlen(name)) ||
            name_starts(name, ".nv.reservedSmem") || name_starts(name, "__nv_reservedSMEM"))
                return 0;
        if (name_starts(name, "cudaLaunchDevice") || name_starts(name, "cudaGetParameterBuffer") ||
            name_starts(name, "__cudaCDP") || name_starts(name, "cnp"))
                return image_state_reaches(r->state, function, "launches kernels on the device");
        return image_state_reaches(r->state, function, "uses %.80s, which is not in the image",
                                   name);
}

static int reach_symbol(struct reader *r, int function, size_t index)
{
        const char *name;
        Elf64_Sym symbol;

        if (index >= r->cubin->symbol_count)
                return -EINVAL;
        cubin_symbol(r->cubin, index, &symbol);
        name = cubin_symbol_name(r->cubin, &symbol);
        if (symbol.st_shndx == SHN_UNDEF)
                return reach_undefined(r, function, name);
        if (symbol.st_shndx >= r->cubin->header.e_shnum)
                return image_state_reaches(r->state, function, "uses the module's variable %.80s",
                                           name);
        return reach_section(r, function, symbol.st_shndx, name);
}

struct relocation {
        uint64_t offset;
        size_t symbol;
};

/* The i-th entry of a section of relocations; false: there is none. */
static bool relocation_at(const struct cubin *c, size_t section, size_t i,
                          struct relocation *ret_relocation)
{
        size_t entry =
                c->sections[section].sh_type == SHT_RELA ? sizeof(Elf64_Rela) : sizeof(Elf64_Rel);
        const uint8_t *bytes;
        Elf64_Rel rel; /* the head of the other form */
        size_t size;

        bytes = cubin_section_bytes(c, section, &size);
        if (i >= size / entry)
                return false;
        memcpy(&rel, bytes + i * entry, sizeof(rel));
        *ret_relocation = (struct relocation){rel.r_offset, ELF64_R_SYM(rel.r_info)};
        return true;
}

static bool is_relocations(const struct cubin *c, size_t section)
{
        return c->sections[section].sh_type == SHT_RELA || c->sections[section].sh_type == SHT_REL;
}

/* ".text.X" of ".rela.text.X" and ".rel.text.X". */
static const char *relocated(const struct cubin *c, size_t section)
{
        const char *name = cubin_section_name(c, section);

        return name_starts(name, ".rela")  ? name + strlen(".rela")
               : name_starts(name, ".rel") ? name + strlen(".rel")
                                           : "";
}

/* All words of bank 4, or the one at an offset. */
static int reach_addresses(struct reader *r, int function, size_t section, bool all,
                           uint64_t offset)
{
        struct relocation relocation;
        int error = 0;

        for (size_t i = 0; !error && relocation_at(r->cubin, section, i, &relocation); i++)
                if (all || (relocation.offset <= offset && offset < relocation.offset + 8))
                        error = reach_symbol(r, function, relocation.symbol);
        return error;
}

/* Relocations of bank 4 of this function alone, or of all of them; 0: none. */
static size_t address_section(const struct reader *r, const char *function)
{
        for (size_t i = 1; i < r->cubin->header.e_shnum; i++) {
                const char *of = is_relocations(r->cubin, i) ? relocated(r->cubin, i) : "";

                if (name_starts(of, ".nv.constant4.") &&
                    strcmp(of + strlen(".nv.constant4."), function) == 0)
                        return i;
        }
        return r->addresses;
}

/* Can the instruction be reached without the one before it having run? */
static bool is_jumped_to(const struct arch *a, const uint8_t *code, size_t count, size_t from,
                         size_t to)
{
        for (size_t k = 0; k < count; k++) {
                struct instr i = instr_load(code, k);
                int64_t bytes, at;

                if (arch_role(a, &i) == ARCH_BRX)
                        return true;
                if (!arch_relative_target(a, &i, &bytes))
                        continue;
                at = (int64_t)k + bytes / INSTR_BYTES;
                if (at > (int64_t)from && at <= (int64_t)to)
                        return true;
        }
        return false;
}

/* What is said to be its destination is none, a uniform register, or part of a distance. */
static bool writes_none(const struct arch *a, const struct instr *i)
{
        return arch_has(a, i, ARCH_NO_DESTINATION | ARCH_UNIFORM | ARCH_BRANCH_TARGET) ||
               instr_register_d(i) == INSTR_R_ZERO;
}

/* MOV; or 0 * 0 + number, which the assembler likes as well. */
static bool moves_number(const struct arch *a, const struct instr *i)
{
        bool sum = arch_has(a, i, ARCH_ADDS_NUMBER) && instr_register_a(i) == INSTR_R_ZERO &&
                   instr_register_c(i) == INSTR_R_ZERO;

        return instr_predicate(i) == INSTR_ALWAYS && (arch_role(a, i) == ARCH_MOV_NUMBER || sum);
}

static bool is_call(const struct arch *a, const struct instr *i)
{
        enum arch_role role = arch_role(a, i);

        return role == ARCH_CALL_ABSOLUTE || role == ARCH_CALL_RELATIVE ||
               role == ARCH_CALL_REGISTER;
}

/*
 * The number that the register of LDC at k holds: calls of the driver's functions fetch
 * their addresses with an offset that was moved there just before. False: not known.
 */
static bool find_offset(const struct arch *a, const uint8_t *code, size_t count, size_t k,
                        uint32_t reg, uint32_t *ret_offset)
{
        for (size_t n = 1; n <= LOOK_BACK && n <= k; n++) {
                struct instr i = instr_load(code, k - n);
                uint32_t to = instr_register_d(&i);

                if (is_call(a, &i))
                        return false;
                /* Up to four registers from there on may be written. */
                if (writes_none(a, &i) || to > reg || to + 4 <= reg)
                        continue;
                if (!moves_number(a, &i))
                        return false;
                if (to != reg)
                        continue; /* one register, and another one */
                *ret_offset = instr_number(&i);
                return !is_jumped_to(a, code, count, k - n, k);
        }
        return false;
}

/* An operand in bank 4: the word at its offset, or any if that is computed. */
static int read_address(struct reader *r, int function, const uint8_t *code, size_t count, size_t k,
                        size_t addresses)
{
        struct instr i = instr_load(code, k);
        uint32_t offset = instr_constant_offset(&i), reg = instr_register_a(&i), base = 0;
        bool all = arch_role(r->arch, &i) == ARCH_ULDC_INDEXED;

        if (arch_role(r->arch, &i) == ARCH_LDC && reg != INSTR_R_ZERO)
                all = !find_offset(r->arch, code, count, k, reg, &base);
        return reach_addresses(r, function, addresses, all, (uint64_t)base + offset);
}

static int read_code(struct reader *r, int function, const char *name, size_t section)
{
        size_t size, addresses = address_section(r, name);
        const uint8_t *code = cubin_section_bytes(r->cubin, section, &size);
        size_t count = size / INSTR_BYTES;
        int error = 0;

        for (size_t k = 0; !error && k < count; k++) {
                struct instr i = instr_load(code, k);

                if (instr_form(&i) != INSTR_FORM_CONSTANT_B &&
                    instr_form(&i) != INSTR_FORM_CONSTANT_C)
                        continue;
                if (instr_constant_bank(&i) == BANK_USER)
                        error = image_state_reaches(r->state, function,
                                                    "uses the module's __constant__ variables");
                else if (instr_constant_bank(&i) == BANK_ADDRESS && addresses)
                        error = read_address(r, function, code, count, k, addresses);
        }
        return error;
}

/* Relocations of its code and of its own constants, jump tables for example. */
static int read_relocations(struct reader *r, int function, const char *name)
{
        struct relocation relocation;
        int error = 0;

        for (size_t s = 1; !error && s < r->cubin->header.e_shnum; s++) {
                const char *of = is_relocations(r->cubin, s) ? relocated(r->cubin, s) : "";
                const char *own = name_starts(of, ".text.") ? of + strlen(".text.")
                                  : name_starts(of, ".nv.constant2.")
                                          ? of + strlen(".nv.constant2.")
                                          : NULL;

                if (!own || strcmp(own, name) != 0)
                        continue;
                for (size_t i = 0; !error && relocation_at(r->cubin, s, i, &relocation); i++)
                        error = reach_symbol(r, function, relocation.symbol);
        }
        return error;
}

static int read_function(struct reader *r, size_t section)
{
        const char *name = function_of(r->cubin, section);
        int function, error;

        if (!name)
                return 0;
        function = image_state_function(r->state, name, strlen(name));
        if (function < 0)
                return function;
        error = read_relocations(r, function, name);
        return error ? error : read_code(r, function, name, section);
}

static int read_all(struct reader *r)
{
        int error = 0;

        for (size_t i = 1; i < r->cubin->header.e_shnum; i++) {
                const char *name = cubin_section_name(r->cubin, i);

                if (name_starts(name, ".nv.uft") || name_starts(name, ".nv.udt"))
                        image_state_refuse_all(
                                r->state, "the image shares tables of functions with the host");
                if (is_relocations(r->cubin, i) &&
                    strcmp(relocated(r->cubin, i), ".nv.constant4") == 0)
                        r->addresses = i;
        }
        for (size_t i = 1; !error && i < r->cubin->header.e_shnum; i++)
                error = read_function(r, i);
        return error;
}

int image_state_add_cubin(struct image_state *s, const void *bytes, size_t size)
{
        const struct arch *a;
        struct cubin c;
        int error;

        if (cubin_open(bytes, size, &c, NULL) < 0)
                return -EINVAL;
        a = arch_find(c.sm);
        error = a ? read_all(&(struct reader){.arch = a, .cubin = &c, .state = s}) : -EINVAL;
        cubin_done(&c);
        return error;
}
