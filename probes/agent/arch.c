/* SPDX-License-Identifier: Apache-2.0 */
#include "arch.h"

/* A distance of a branch has this many bits above those in lo[23:16]: lo[63:34], hi[17:0]. */
#define TARGET_BITS   48
#define TARGET_LO     30
#define TARGET_HI     0x3ffffULL
#define TARGET_SHIFT  34
#define TARGET_UNIT   4 /* bytes */
#define STACK_POINTER 1 /* R1 */

/* The distance in a branch, in units. */
static int64_t branch_offset(const struct arch *a, const struct instr *i)
{
        unsigned low = a->branch_low_bits, unused = 64 - TARGET_BITS - low;
        uint64_t v = (i->lo >> 16 & ((1ULL << low) - 1)) | i->lo >> TARGET_SHIFT << low |
                     (i->hi & TARGET_HI) << (TARGET_LO + low);

        return (int64_t)(v << unused) >> unused;
}

bool arch_relative_target(const struct arch *a, const struct instr *i, int64_t *ret_bytes)
{
        if (arch_has(a, i, ARCH_BRANCH_TARGET)) {
                *ret_bytes = branch_offset(a, i) * TARGET_UNIT + INSTR_BYTES;
                return true;
        }
        if (arch_role(a, i) == ARCH_BSSY) {
                *ret_bytes = (int64_t)(int32_t)(i->lo >> 32) + INSTR_BYTES;
                return true;
        }
        return false;
}

void arch_set_relative_target(const struct arch *a, struct instr *i, int64_t bytes)
{
        unsigned low = a->branch_low_bits;
        uint64_t low_mask = (1ULL << low) - 1, below = (1ULL << TARGET_SHIFT) - 1;
        int64_t from_next = bytes - INSTR_BYTES;
        uint64_t v = (uint64_t)(from_next / TARGET_UNIT) & ((1ULL << (TARGET_BITS + low)) - 1);

        if (arch_role(a, i) == ARCH_BSSY) {
                i->lo = (i->lo & 0xffffffff) | (uint64_t)(uint32_t)from_next << 32;
                return;
        }
        i->lo = (i->lo & below & ~(low_mask << 16)) | (v & low_mask) << 16 |
                v >> low << TARGET_SHIFT;
        i->hi = (i->hi & ~TARGET_HI) | v >> (TARGET_LO + low);
}

bool arch_loads_stack_pointer(const struct arch *a, const struct instr *i)
{
        return arch_role(a, i) == ARCH_LDC && instr_register_d(i) == STACK_POINTER &&
               instr_register_a(i) == INSTR_R_ZERO && instr_constant_bank(i) == 0 &&
               instr_constant_offset(i) == a->stack_pointer;
}

bool arch_votes(const struct arch *a, const struct instr *i)
{
        return arch_role(a, i) == ARCH_VOTE;
}

bool arch_votes_lanes(const struct arch *a, const struct instr *i)
{
        return arch_votes(a, i) && !(i->lo >> 24) &&
               !((i->hi ^ a->makes.vote_lanes.hi) & INSTR_OPERANDS_HI);
}

uint32_t arch_barriers(const struct arch *a, const struct instr *i)
{
        uint32_t barriers = 0;

        if (arch_has(a, i, ARCH_BARRIER_D))
                barriers |= 1u << instr_barrier(i);
        if (arch_has(a, i, ARCH_BARRIER_A))
                barriers |= 1u << (i->lo >> 24 & 0xf);
        return barriers;
}

bool arch_predicate_late(const struct arch *a, const struct instr *i)
{
        return arch_has(a, i, ARCH_PREDICATE_LATE) || (arch_has(a, i, ARCH_PREDICATE_LATE_IF) &&
                                                       instr_predicate_written(i) != INSTR_ALWAYS);
}

/* False: there is no such register. */
static bool move_field(uint64_t *word, unsigned shift, uint32_t base)
{
        uint32_t reg = (uint32_t)(*word >> shift) & 0xff;

        if (reg == INSTR_R_ZERO)
                return true;
        *word = (*word & ~(0xffULL << shift)) | (uint64_t)(reg + base) << shift;
        return reg + base < INSTR_R_ZERO;
}

bool arch_move_registers(const struct arch *a, struct instr *i, uint32_t base)
{
        uint8_t fields = a->ops[instr_opcode(i)].registers;

        return (fields & ARCH_MOVABLE) && (!(fields & ARCH_R_A) || move_field(&i->lo, 24, base)) &&
               (!(fields & ARCH_R_B) || move_field(&i->lo, 32, base)) &&
               (!(fields & ARCH_R_C) || move_field(&i->hi, 0, base)) &&
               (!(fields & ARCH_R_D) || move_field(&i->lo, 16, base));
}
