/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the splicer has to be told of an architecture: one table of its instructions, a row
 * for each opcode, and a few numbers. All the rest of the splicer knows instructions by
 * what their rows say. The tables stand in arch_smXX.c; docs/new-architecture.md tells what
 * one more takes.
 *
 * Pure functions, no state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "grid_layout.h"
#include "instr.h"

/* Properties of an opcode. */
#define ARCH_KNOWN             0x000001u
#define ARCH_CONTROL           0x000002u /* changes the flow, or means another thing elsewhere */
#define ARCH_UNIFORM           0x000004u /* uniform datapath: registers are uniform registers */
#define ARCH_RESULT_LATE       0x000008u /* writes field D's register at an unknown time */
#define ARCH_SOURCE_LATE       0x000010u /* reads registers at an unknown time */
#define ARCH_IN_ORDER          0x000020u /* results of this opcode arrive in the order of issue */
#define ARCH_NOT_IN_PROBE      0x000040u /* stack, block-wide or launch effects */
#define ARCH_PECULIAR          0x000080u /* says what no other does: see scan_peculiar() */
#define ARCH_BRANCH_TARGET     0x000100u /* names a place as a branch does */
#define ARCH_BARRIER_D         0x000200u /* a convergence barrier in lo[19:16] */
#define ARCH_BARRIER_A         0x000400u /* in lo[27:24] */
#define ARCH_PREDICATE_LATE    0x000800u /* writes a predicate at an unknown time */
#define ARCH_PREDICATE_LATE_IF 0x001000u /* so, where instr_predicate_written() says one */
#define ARCH_PREDICATE         0x002000u /* may write instr_predicate_written() */
#define ARCH_SECOND_PREDICATE  0x004000u /* and instr_second_predicate_written() */
/* Computes from nothing but constants and what was computed before: may be executed twice. */
#define ARCH_REPEATABLE 0x008000u
/* Uniform datapath, without a predicate written: the same for every lane at any time. */
#define ARCH_SAME_FOR_ALL   0x010000u
#define ARCH_UR_TO_NUMBER   0x020000u /* a number may take its uniform register's place */
#define ARCH_ADDS_NUMBER    0x040000u /* its result is A * C + number */
#define ARCH_NO_DESTINATION 0x080000u /* field D is none */
#define ARCH_BRIEF          0x100000u /* uniform datapath: a probe may use the result at once */
#define ARCH_TOGETHER       0x200000u /* depends on which lanes execute it at once */

/* Opcodes that the splicer looks for, or tells apart. */
enum arch_role {
        ARCH_NONE,
        ARCH_BRA,
        ARCH_EXIT,
        ARCH_BSSY,
        ARCH_BSYNC,
        ARCH_BREAK,
        ARCH_WARPSYNC,
        ARCH_ENDCOLLECT,
        ARCH_BRX,
        ARCH_CALL_RELATIVE, /* the place stands in it */
        ARCH_CALL_ABSOLUTE,
        ARCH_CALL_REGISTER, /* of either kind, by a register */
        ARCH_NOP,
        ARCH_YIELD,
        ARCH_LDC,
        ARCH_ULDC,
        ARCH_ULDC_INDEXED,
        ARCH_MOV_NUMBER,
        ARCH_S2R,
        ARCH_S2UR,
        ARCH_VOTE,
        ARCH_DEPBAR,
        ARCH_USETMAXREG,
        ARCH_ISETP,
        ARCH_LOP3,
};

/* Fields that hold general registers; ARCH_MOVABLE: it is known which. */
#define ARCH_R_D     0x01
#define ARCH_R_A     0x02
#define ARCH_R_B     0x04
#define ARCH_R_C     0x08
#define ARCH_MOVABLE 0x80

/* How the size of an access is said: always in hi[12:9], without bits that mean another thing. */
enum access_size {
        ACCESS_SIZE_PLAIN,   /* hi[11:9] */
        ACCESS_SIZE_INTEGER, /* of integer atomics */
        ACCESS_SIZE_COMPARE, /* of compare-and-swap */
        ACCESS_SIZE_FLOAT,   /* of atomics on floating-point numbers and vectors of them */
        ACCESS_SIZE_WORD,    /* always 4 */
};

/* Where the distance from the base stands. */
enum access_offset {
        ACCESS_OFFSET_24, /* lo[63:40] */
        ACCESS_OFFSET_32, /* lo[63:32] */
        ACCESS_OFFSET_12, /* lo[43:32] */
};

/* What a uniform register is where hi[27] says that there is one. */
enum access_uniform {
        ACCESS_UR_NEVER,     /* such a form has not been seen */
        ACCESS_UR_ADDED_B,   /* added to the address; in field B */
        ACCESS_UR_ADDED_C,   /* in field C */
        ACCESS_UR_DESC_B,    /* a descriptor where hi[12] is set, else added; in field B */
        ACCESS_UR_DESC_C,    /* in field C */
        ACCESS_UR_COPY_C,    /* the same, but what else is said stands elsewhere */
        ACCESS_UR_DESC_ATOM, /* in field C, and it is hi[7] that says so */
        ACCESS_UR_DESC_RED,
};

#define ACCESS_NOT_UNDERSTOOD 0xff /* in place of a kind */

/* How an opcode accesses memory. kind 0: it does not. */
struct arch_access {
        uint8_t kind;         /* enum gpuobs_access_kind */
        uint8_t space;        /* enum gpuobs_space */
        uint8_t size;         /* enum access_size */
        uint8_t offset;       /* enum access_offset */
        uint8_t uniform;      /* enum access_uniform */
        uint8_t offset_alone; /* enum access_offset, without uniform register */
};

struct arch_op {
        uint32_t properties; /* ARCH_KNOWN ...; 0: unknown */
        uint8_t role;        /* enum arch_role */
        uint8_t registers;   /* ARCH_R_*; 0: it cannot be given others */
        uint8_t ur;          /* INSTR_UR_* fields that hold uniform registers */
        uint8_t ur_written;  /* of those, written */
        uint8_t ur_pairs;    /* of those, pairs of registers, where it is not a late operand */
        uint8_t ur_count;    /* consecutive registers an operand may stand for */
        struct arch_access access;
};

/*
 * Instructions that the splicer makes, with nothing in the fields that it fills in: their
 * control bits are as the assembler writes them, and the stalls of all but jumps long enough
 * that the result is there for the next instruction.
 */
struct arch_makes {
        struct instr bra, bssy, bsync, brk, warpsync, nop;
        struct instr wait;                             /* NOP behind all of fixed latency */
        struct instr mov_number, umov_number;          /* in D, from the number */
        struct instr mov_register;                     /* in D, from B */
        struct instr vote_lanes;                       /* in D, the set of active lanes */
        struct instr add;                              /* D = A + number */
        struct instr add_low, add_high;                /* with a carry out to P0, in from P0 */
        struct instr add_uniform;                      /* D = A + UR in B */
        struct instr save_predicates, load_predicates; /* in D from all; all from A */
};

struct arch {
        uint32_t sm; /* 10 * major + minor */
        struct arch_makes makes;
        uint8_t branch_low_bits; /* so many low bits of a branch's distance are in lo[23:16] */
        uint8_t waitable_after;  /* stall cycles of one that a scoreboard tells of, before one waits
                                  */

        /* Bytes in constant bank 0. */
        uint16_t stack_pointer; /* what kernels load their first register R1 from */
        uint16_t environment;   /* %envreg0, in PTX; the others follow */
        uint16_t parameters;
        struct grid_layout grid; /* the same for those who write PTX */

        /* Special registers. */
        uint8_t ctaid_x, ctaid_z; /* and y between them */
        uint8_t lanemask_le, lanemask_gt, lanemask_ge;

        /* General registers. */
        uint8_t register_unit;    /* a warp gets multiples of so many for a thread */
        uint8_t registers_kept;   /* of a kernel's count; no instruction may name them */
        uint32_t block_registers; /* of all threads of a block, at most */

        struct arch_op ops[INSTR_OPCODES]; /* by opcode */
};

/* NULL: there is no table of the architecture, and its machine code is left alone. */
const struct arch *arch_find(uint32_t sm);

/* The table's row; NULL when the opcode is not known. */
static inline const struct arch_op *arch_op(const struct arch *a, const struct instr *i)
{
        const struct arch_op *op = &a->ops[instr_opcode(i)];

        return op->properties & ARCH_KNOWN ? op : NULL;
}

static inline bool arch_has(const struct arch *a, const struct instr *i, uint32_t properties)
{
        return a->ops[instr_opcode(i)].properties & properties;
}

static inline enum arch_role arch_role(const struct arch *a, const struct instr *i)
{
        return (enum arch_role)a->ops[instr_opcode(i)].role;
}

/* Fields of this very instruction that hold uniform registers. Unknown opcode: all. */
static inline uint8_t arch_ur_fields(const struct arch *a, const struct instr *i)
{
        const struct arch_op *op = arch_op(a, i);

        if (!op)
                return INSTR_UR_ALL;
        if (!(op->properties & ARCH_UNIFORM) && !(i->hi & INSTR_UR_PRESENT))
                return 0;
        return op->ur;
}

/* Bit u set: the instruction may read or write uniform register u. */
static inline uint64_t arch_ur_mask(const struct arch *a, const struct instr *i)
{
        const struct arch_op *op = arch_op(a, i);

        return instr_ur_named(i, arch_ur_fields(a, i), op ? op->ur_count : 8);
}

/*
 * Whether the instruction jumps, calls or names a place relative to itself, and
 * that place, as a signed number of bytes from the instruction's own address.
 */
bool arch_relative_target(const struct arch *a, const struct instr *i, int64_t *ret_bytes);
/* Make it name another place. Only where arch_relative_target() is true. */
void arch_set_relative_target(const struct arch *a, struct instr *i, int64_t bytes);

/* The load of the stack pointer: the first instruction of nearly every kernel. */
bool arch_loads_stack_pointer(const struct arch *a, const struct instr *i);

/* Whether an instruction votes; and whether it only asks for the set of active lanes. */
bool arch_votes(const struct arch *a, const struct instr *i);
bool arch_votes_lanes(const struct arch *a, const struct instr *i);

/* Bit b set: the instruction names convergence barrier b. */
uint32_t arch_barriers(const struct arch *a, const struct instr *i);

/*
 * Whether the instruction may write a predicate at an unknown time, so that predicates
 * can only be saved when its scoreboard has been waited for.
 */
bool arch_predicate_late(const struct arch *a, const struct instr *i);

/*
 * Add `base` to the number of each general register an instruction names. False: the
 * instruction is not known well enough, or there is no such register; it is then not to
 * be used.
 */
bool arch_move_registers(const struct arch *a, struct instr *i, uint32_t base);

/* The tables. */
extern const struct arch arch_sm90;
