/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which fields of an instruction hold registers, for the instructions that probes are
 * made of. Field A is lo[31:24], B lo[39:32], C hi[7:0], D lo[23:16]. What an opcode does
 * not use is left alone; an opcode that is not here cannot be moved.
 */
#include <stddef.h>

#include "sm90.h"

#define A 1
#define B 2
#define C 4
#define D 8

struct fields {
        uint16_t opcode;
        uint8_t registers;
};

/*
 * Arithmetic by operation, in the form with registers only. In all others the second or
 * third operand is no register, and what is left of the two stands in C, where the
 * operation has a third.
 */
static const struct fields arithmetic[] = {
        {0x002, D | B},                                 /* MOV */
        {0x007, D | A | B},     {0x008, D | A | B},     /* SEL, FSEL */
        {0x00c, A | B},                                 /* ISETP */
        {0x010, D | A | B | C}, {0x011, D | A | B | C}, /* IADD3, LEA */
        {0x012, D | A | B | C}, {0x013, D | B},         /* LOP3, IABS */
        {0x016, D | A | B | C}, {0x017, D | A | B},     /* PRMT, IMNMX */
        {0x019, D | A | B | C}, {0x01a, D | A | B},     /* SHF, SGXT */
        {0x01b, D | A | B},     {0x024, D | A | B | C}, /* BMSK, IMAD */
        {0x025, D | A | B | C}, {0x027, D | A | B | C}, /* IMAD.WIDE, IMAD.HI */
        {0x035, D | A | B | C}, /* HFMA2.MMA, which the driver's compiler moves constants with */
        {0x036, D | A | B},     {0x048, D | A | B}, /* VIADD, VIMNMX */
        {0x100, D | B},         {0x101, D | B},     /* FLO, BREV */
        {0x105, D | B},         {0x106, D | B},     /* F2I, I2F */
        {0x108, D | B},         {0x109, D | B},     /* MUFU, POPC */
};

static const struct fields others[] = {
        {0x919, D},
        {0x805, D},
        {0x806, D},
        {0xb82, D}, /* S2R, CS2R, VOTE, LDC */
        {0x3a1, D | A},
        {0x981, D | A},
        {0x980, D | A}, /* MATCH, LDG, LD */
        {0x986, A | B},
        {0x985, A | B},
        {0x98e, A | B},
        {0x9a6, A | B}, /* STG, ST, REDG */
        {0x9a8, D | A | B},
        {0x9a3, D | A | B},     /* ATOMG */
        {0x3a9, D | A | B | C}, /* ATOMG.CAS */
        {0x803, D | A},
        {0x804, A}, /* P2R, R2P */
        {0x81c, 0},
        {0x918, 0},
        {0x947, 0},
        {0x94d, 0}, /* PLOP3, NOP, BRA, EXIT */
        {0xab9, 0},
        {0x882, 0},
        {0xc82, 0},
        {0x9c3, 0}, /* ULDC, UMOV, S2UR */
        {0x290, 0},
        {0x890, 0},
        {0x292, 0},
        {0x892, 0}, /* UIADD3, ULOP3 */
        {0x291, 0},
        {0x891, 0},
        {0x299, 0},
        {0x899, 0}, /* ULEA, USHF */
        {0x2a4, 0},
        {0x8a4, 0},
        {0x2a5, 0},
        {0x8a5, 0}, /* UIMAD */
};

#define FORM_REGISTERS 1

/* The fields that hold registers; -1: the opcode is not in the tables. */
static int register_fields(uint32_t opcode)
{
        uint32_t form = opcode >> 9;

        for (size_t k = 0; k < sizeof(others) / sizeof(others[0]); k++)
                if (others[k].opcode == opcode)
                        return others[k].registers;
        for (size_t k = 0; k < sizeof(arithmetic) / sizeof(arithmetic[0]); k++)
                if (form && arithmetic[k].opcode == (opcode & 0x1ff))
                        return form == FORM_REGISTERS ? arithmetic[k].registers
                                                      : arithmetic[k].registers & ~B;
        return -1;
}

/* False: there is no such register. */
static bool move_field(uint64_t *word, unsigned shift, uint32_t base)
{
        uint32_t reg = (uint32_t)(*word >> shift) & 0xff;

        if (reg == SM90_R_ZERO)
                return true;
        *word = (*word & ~(0xffULL << shift)) | (uint64_t)(reg + base) << shift;
        return reg + base < SM90_R_ZERO;
}

bool sm90_move_registers(struct sm90_instr *i, uint32_t base)
{
        int fields = register_fields(sm90_opcode(i));

        return fields >= 0 && (!(fields & A) || move_field(&i->lo, 24, base)) &&
               (!(fields & B) || move_field(&i->lo, 32, base)) &&
               (!(fields & C) || move_field(&i->hi, 0, base)) &&
               (!(fields & D) || move_field(&i->lo, 16, base));
}
