/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the splicer must know about sm_90 machine code: which instructions change
 * the flow, which name uniform registers and where, which finish at an unknown
 * time; and how to encode the few that it adds. All knowledge about single
 * opcodes is in one table (sm90.c); another architecture is another table.
 *
 * An instruction is 16 bytes. lo[11:0] opcode, lo[14:12] predicate (7: always),
 * lo[15] its negation; hi[44:41] stall cycles, hi[45] 0 = yield, hi[48:46]
 * scoreboard signalled when the result is there, hi[51:49] scoreboard signalled
 * when the sources have been read (7: none), hi[57:52] scoreboards to wait for,
 * hi[61:58] operand reuse.
 *
 * Pure functions, no state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SM90_INSTR_BYTES 16
#define SM90_BARRIERS    16 /* convergence barriers B0.. */
#define SM90_SCOREBOARDS 6
#define SM90_NO_BARRIER  7  /* in the two scoreboard fields */
#define SM90_UR_ZERO     63 /* URZ */
#define SM90_R_ZERO      255
#define SM90_WAIT_ALL    0x3fu

/* Constant bank 0: what the driver tells a grid (device_abi.h), then the parameters. */
#define SM90_DESCRIPTOR 0x38       /* address of the launch's descriptor, 64 bits */
#define SM90_CONTEXT    "%envreg6" /* number of the context, the word at 0x58 */
#define SM90_PARAMETERS 0x210

#define SM90_PREDICATE_NOT 0x8000u      /* in lo */
#define SM90_UR_PRESENT    (1ULL << 27) /* in hi, outside the uniform datapath */

/* Special registers, hi[15:8] of S2R and S2UR. */
#define SM90_SR_CTAID_X     0x25
#define SM90_SR_CTAID_Z     0x27
#define SM90_SR_LANEMASK_LE 0x3a
#define SM90_SR_LANEMASK_GT 0x3b
#define SM90_SR_LANEMASK_GE 0x3c

struct sm90_instr {
        uint64_t lo, hi;
};

enum sm90_opcode {
        SM90_BSYNC = 0x941,
        SM90_CALL_ABS = 0x943,
        SM90_CALL_ABS_REG = 0x343,
        SM90_CALL_REL = 0x944,
        SM90_CALL_REL_REG = 0x344,
        SM90_BSSY = 0x945,
        SM90_BRA = 0x947,
        SM90_WARPSYNC = 0x948,
        SM90_WARPSYNC_REG = 0x348,
        SM90_BRX = 0x949,
        SM90_BREAK = 0x942,
        SM90_BMOV_OUT = 0x355,
        SM90_BMOV_IN = 0x356,
        SM90_ENDCOLLECT = 0x91b,
        SM90_EXIT = 0x94d,
        SM90_NOP = 0x918,
        SM90_LDC = 0xb82,
        SM90_ULDC = 0xab9,
        SM90_ULDC_INDEXED = 0xabb,
        SM90_MOV_IMM = 0x802,
        SM90_UMOV_IMM = 0x882,
        SM90_S2R = 0x919,
        SM90_S2UR = 0x9c3,
        SM90_CS2R = 0x805,
        SM90_IMAD = 0x224,
        SM90_IMAD_IMM = 0x424,
        SM90_IMAD_UR = 0xc24,
        SM90_MOV = 0x202,
        SM90_VOTE = 0x806,
        SM90_USETMAXREG = 0x9c8,
        SM90_DEPBAR = 0x91a,
};

/* Fields that may hold a uniform register. */
#define SM90_UR_D 0x01 /* lo[21:16] */
#define SM90_UR_A 0x02 /* lo[29:24] */
#define SM90_UR_B 0x04 /* lo[37:32] */
#define SM90_UR_C 0x08 /* hi[5:0] */
#define SM90_UR_E 0x10 /* lo[45:40] */

#define SM90_CONTROL      0x01 /* changes the flow, or means another thing at another address */
#define SM90_UNIFORM      0x02 /* uniform datapath: its register operands are uniform registers */
#define SM90_RESULT_LATE  0x04 /* writes register lo[23:16] at an unknown time */
#define SM90_SOURCE_LATE  0x08 /* reads registers at an unknown time */
#define SM90_IN_ORDER     0x10 /* results of this opcode arrive in the order of issue */
#define SM90_NOT_IN_PROBE 0x20 /* has no place in a probe: stack, block-wide or launch effects */
#define SM90_PECULIAR     0x40 /* says what no other does: of registers, barriers, counted waits */
#define SM90_KNOWN        0x80

struct sm90_op {
        char name[12];
        uint8_t properties; /* SM90_CONTROL ...; 0: unknown */
        uint8_t ur;         /* SM90_UR_* fields that hold uniform registers */
        uint8_t ur_written; /* of those, written */
        uint8_t ur_count;   /* consecutive registers an operand may stand for */
};

static inline uint32_t sm90_opcode(const struct sm90_instr *i)
{
        return (uint32_t)(i->lo & 0xfff);
}

#define SM90_UR_ALL (SM90_UR_D | SM90_UR_A | SM90_UR_B | SM90_UR_C | SM90_UR_E)

/* By opcode. Here so that loops over hundreds of megabytes of code have it inline. */
extern const struct sm90_op sm90_table[4096];

/* The table's entry; NULL when the opcode is not known. */
static inline const struct sm90_op *sm90_op(const struct sm90_instr *i)
{
        const struct sm90_op *op = &sm90_table[sm90_opcode(i)];

        return op->properties & SM90_KNOWN ? op : NULL;
}

/* Fields of this very instruction that hold uniform registers. Unknown opcode: all. */
static inline uint8_t sm90_ur_fields(const struct sm90_instr *i)
{
        const struct sm90_op *op = sm90_op(i);

        if (!op)
                return SM90_UR_ALL;
        if (!(op->properties & SM90_UNIFORM) && !(i->hi & SM90_UR_PRESENT))
                return 0;
        return op->ur;
}

uint32_t sm90_ur_get(const struct sm90_instr *i, uint8_t field);
void sm90_ur_set(struct sm90_instr *i, uint8_t field, uint32_t ur);

/* The registers from the one that stands in a field on; without branches, for long loops. */
static inline uint64_t sm90_ur_run(uint64_t run, uint8_t fields, uint8_t field, uint64_t ur)
{
        return (run & -(uint64_t)((fields & field) != 0)) << (ur & 63);
}

/* Bit u set: a field of `fields` names u, or one of the count - 1 registers before it. */
static inline uint64_t sm90_ur_named(const struct sm90_instr *i, uint8_t fields, uint32_t count)
{
        uint64_t run = (1ULL << count) - 1;
        uint64_t mask = sm90_ur_run(run, fields, SM90_UR_D, i->lo >> 16) |
                        sm90_ur_run(run, fields, SM90_UR_A, i->lo >> 24) |
                        sm90_ur_run(run, fields, SM90_UR_B, i->lo >> 32) |
                        sm90_ur_run(run, fields, SM90_UR_E, i->lo >> 40) |
                        sm90_ur_run(run, fields, SM90_UR_C, i->hi);

        /* URZ is the highest: no run that starts there reaches another register. */
        return mask & ~(1ULL << SM90_UR_ZERO);
}

/* Bit u set: the instruction may read or write uniform register u. */
static inline uint64_t sm90_ur_mask(const struct sm90_instr *i)
{
        const struct sm90_op *op = sm90_op(i);

        return sm90_ur_named(i, sm90_ur_fields(i), op ? op->ur_count : 8);
}

static inline struct sm90_instr sm90_load(const uint8_t *code, size_t index)
{
        struct sm90_instr i;

        memcpy(&i, code + index * SM90_INSTR_BYTES, sizeof(i));
        return i;
}

static inline void sm90_store(uint8_t *code, size_t index, struct sm90_instr i)
{
        memcpy(code + index * SM90_INSTR_BYTES, &i, sizeof(i));
}

/* The number (of 32 bits) that an instruction has for an operand. */
static inline void sm90_set_number(uint8_t *code, size_t index, uint32_t number)
{
        struct sm90_instr i = sm90_load(code, index);

        i.lo = (i.lo & 0xffffffff) | (uint64_t)number << 32;
        sm90_store(code, index, i);
}

/* Bytes from one instruction to another. */
static inline int64_t sm90_distance(uint32_t from, uint32_t to)
{
        return ((int64_t)to - (int64_t)from) * SM90_INSTR_BYTES;
}

static inline uint32_t sm90_predicate(const struct sm90_instr *i)
{
        return (uint32_t)(i->lo >> 12) & 0xf; /* 7: always */
}

static inline uint32_t sm90_result_scoreboard(const struct sm90_instr *i)
{
        return (uint32_t)(i->hi >> 46) & 7;
}

static inline uint32_t sm90_source_scoreboard(const struct sm90_instr *i)
{
        return (uint32_t)(i->hi >> 49) & 7;
}

static inline uint32_t sm90_waits(const struct sm90_instr *i)
{
        return (uint32_t)(i->hi >> 52) & 0x3f;
}

static inline void sm90_set_result_scoreboard(struct sm90_instr *i, uint32_t scoreboard)
{
        i->hi = (i->hi & ~(7ULL << 46)) | (uint64_t)scoreboard << 46;
}

static inline void sm90_set_waits(struct sm90_instr *i, uint32_t mask)
{
        i->hi = (i->hi & ~(0x3fULL << 52)) | (uint64_t)mask << 52;
}

static inline void sm90_add_waits(struct sm90_instr *i, uint32_t mask)
{
        i->hi |= (uint64_t)mask << 52;
}

/* Operand reuse is a hint for the next instruction in the original order. */
static inline void sm90_drop_reuse(struct sm90_instr *i)
{
        i->hi &= ~(0xfULL << 58);
}

/*
 * Whether the instruction jumps, calls or names a place relative to itself, and
 * that place, as a signed number of bytes from the instruction's own address.
 */
bool sm90_relative_target(const struct sm90_instr *i, int64_t *ret_bytes);
/* Make it name another place. Only where sm90_relative_target() is true. */
void sm90_set_relative_target(struct sm90_instr *i, int64_t bytes);

/* Constant bank and byte offset of an operand in constant memory. */
static inline uint32_t sm90_constant_bank(const struct sm90_instr *i)
{
        return (uint32_t)(i->lo >> 54) & 0x1f;
}

static inline uint32_t sm90_constant_offset(const struct sm90_instr *i)
{
        return (uint32_t)(i->lo >> 40 & 0x3fff) * 4;
}

/* Make it another word; offset is a multiple of 4 below 65,536. */
static inline void sm90_set_constant_offset(struct sm90_instr *i, uint32_t offset)
{
        i->lo = (i->lo & ~(0x3fffULL << 40)) | (uint64_t)(offset / 4) << 40;
}

/* LDC R1, c[0x0][0x28]: the first instruction of nearly every kernel. */
bool sm90_loads_stack_pointer(const struct sm90_instr *i);

/* EXIT without modifiers but its predicates, so that a BRA can stand in for it. */
bool sm90_exit_is_plain(const struct sm90_instr *i);
/* A BRA that is taken exactly when this EXIT exits, with its waits. */
struct sm90_instr sm90_exit_to_branch(const struct sm90_instr *exit, int64_t bytes);

struct sm90_instr sm90_bra(int64_t bytes);
struct sm90_instr sm90_bssy(uint32_t barrier, int64_t bytes);
struct sm90_instr sm90_bsync(uint32_t barrier, uint32_t waits);
struct sm90_instr sm90_nop(void);
/* A NOP that takes the place of i: as many cycles, the same waits. */
struct sm90_instr sm90_nop_like(const struct sm90_instr *i);
/* MOV Rd, value and UMOV URd, value, with a stall after which the result is there. */
struct sm90_instr sm90_mov(uint32_t reg, uint32_t value);
struct sm90_instr sm90_umov(uint32_t ur, uint32_t value);
/* VOTE.ANY Rd, PT, PT: the set of active lanes, with a stall after which it is there. */
struct sm90_instr sm90_vote_lanes(uint32_t reg);
/* Whether an instruction votes; and whether it only asks for the set of active lanes. */
bool sm90_votes(const struct sm90_instr *i);
bool sm90_votes_lanes(const struct sm90_instr *i);
/* MOV Rd, Rs in place of an instruction with destination Rd: its predicate, cycles and waits. */
struct sm90_instr sm90_move_like(const struct sm90_instr *i, uint32_t source);

/*
 * Moves and sums for code around a probe, each with a stall after which the result is
 * there: Rd = Rs; Rd = Ra + value; the same with a carry into or out of P0; Rd = Ra + UR.
 */
struct sm90_instr sm90_mov_register(uint32_t reg, uint32_t from);
struct sm90_instr sm90_add(uint32_t reg, uint32_t a, int32_t value);
struct sm90_instr sm90_add_low(uint32_t reg, uint32_t a, int32_t value);
struct sm90_instr sm90_add_high(uint32_t reg, uint32_t a, int32_t value);
struct sm90_instr sm90_add_uniform(uint32_t reg, uint32_t a, uint32_t ur);

/* All predicates of the thread to a register, and back. */
struct sm90_instr sm90_save_predicates(uint32_t reg);
struct sm90_instr sm90_load_predicates(uint32_t reg);

/* A NOP that waits for scoreboards and for all results of fixed latency. */
struct sm90_instr sm90_wait(uint32_t scoreboards);

/*
 * Add `base` to the number of each general register an instruction names
 * (sm90_registers.c). False: the instruction is not known well enough, or there is no
 * such register; it is then not to be used.
 */
bool sm90_move_registers(struct sm90_instr *i, uint32_t base);

/* Bit b set: the instruction names convergence barrier b. */
uint32_t sm90_barriers(const struct sm90_instr *i);

/*
 * Whether the instruction may write a predicate at an unknown time, so that predicates
 * can only be saved when its scoreboard has been waited for.
 */
bool sm90_predicate_late(const struct sm90_instr *i);
