/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The format of instructions: what all architectures that there is a table of (arch.h)
 * have in common.
 *
 * An instruction is 16 bytes. lo[11:0] opcode, whose upper three bits are the form of its
 * operands in arithmetic, lo[14:12] predicate (7: always), lo[15] its negation; general
 * registers in fields D lo[23:16], A lo[31:24], B lo[39:32], C hi[7:0]; hi[44:41] stall
 * cycles, hi[45] 0 = yield, hi[48:46] scoreboard signalled when the result is there,
 * hi[51:49] scoreboard signalled when the sources have been read (7: none), hi[57:52]
 * scoreboards to wait for, hi[61:58] operand reuse.
 *
 * Pure functions, no state.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INSTR_BYTES         16
#define INSTR_OPCODES       4096
#define INSTR_BARRIERS      16 /* convergence barriers B0.. */
#define INSTR_SCOREBOARDS   6
#define INSTR_NO_SCOREBOARD 7 /* in the two scoreboard fields */
#define INSTR_WAIT_ALL      0x3fu
#define INSTR_ALWAYS        7 /* predicate */
#define INSTR_NEVER         0xf
#define INSTR_UR_ZERO       63 /* URZ */
#define INSTR_R_ZERO        255
#define INSTR_REGISTERS     255 /* at most, of a thread */

#define INSTR_GUARD         0xf000ULL    /* predicate and negation, in lo */
#define INSTR_PREDICATE_NOT 0x8000u      /* in lo */
#define INSTR_UR_PRESENT    (1ULL << 27) /* in hi, outside the uniform datapath */
#define INSTR_STALL_SHIFT   41           /* in hi; what is below is operands */
#define INSTR_OPERANDS_HI   ((1ULL << INSTR_STALL_SHIFT) - 1)

/* Forms of arithmetic: what the second and the third operand are when they are no registers. */
enum instr_form {
        INSTR_FORM_REGISTERS = 1,
        INSTR_FORM_NUMBER_C = 2,
        INSTR_FORM_CONSTANT_C = 3,
        INSTR_FORM_NUMBER_B = 4,
        INSTR_FORM_CONSTANT_B = 5,
        INSTR_FORM_UNIFORM_B = 6,
        INSTR_FORM_UNIFORM_C = 7,
};

/* Fields that may hold a uniform register. */
#define INSTR_UR_D   0x01 /* lo[21:16] */
#define INSTR_UR_A   0x02 /* lo[29:24] */
#define INSTR_UR_B   0x04 /* lo[37:32] */
#define INSTR_UR_C   0x08 /* hi[5:0] */
#define INSTR_UR_E   0x10 /* lo[45:40] */
#define INSTR_UR_ALL (INSTR_UR_D | INSTR_UR_A | INSTR_UR_B | INSTR_UR_C | INSTR_UR_E)

/* Field C of a comparison that does not go on with what another has found of lower halves. */
#define INSTR_COMPARES_ALONE 0x70

struct instr {
        uint64_t lo, hi;
};

static inline uint32_t instr_opcode(const struct instr *i)
{
        return (uint32_t)(i->lo & 0xfff);
}

static inline uint32_t instr_form(const struct instr *i)
{
        return instr_opcode(i) >> 9;
}

static inline uint32_t instr_predicate(const struct instr *i)
{
        return (uint32_t)(i->lo >> 12) & 0xf; /* INSTR_ALWAYS ... */
}

static inline uint32_t instr_register_d(const struct instr *i)
{
        return (uint32_t)(i->lo >> 16) & 0xff;
}

static inline uint32_t instr_register_a(const struct instr *i)
{
        return (uint32_t)(i->lo >> 24) & 0xff;
}

static inline uint32_t instr_register_b(const struct instr *i)
{
        return (uint32_t)(i->lo >> 32) & 0xff;
}

static inline uint32_t instr_register_c(const struct instr *i)
{
        return (uint32_t)i->hi & 0xff;
}

/* The number (of 32 bits) that stands in place of the second or third operand. */
static inline uint32_t instr_number(const struct instr *i)
{
        return (uint32_t)(i->lo >> 32);
}

/* The special register that S2R and S2UR read. */
static inline uint32_t instr_special(const struct instr *i)
{
        return (uint32_t)(i->hi >> 8) & 0xff;
}

/* Predicates that an instruction writes besides its result; 7: none. */
static inline uint32_t instr_predicate_written(const struct instr *i)
{
        return (uint32_t)(i->hi >> 17) & 7;
}

static inline uint32_t instr_second_predicate_written(const struct instr *i)
{
        return (uint32_t)(i->hi >> 20) & 7;
}

/* The predicate that is an operand, with its negation. */
static inline uint32_t instr_predicate_read(const struct instr *i)
{
        return (uint32_t)(i->hi >> 23) & 0xf;
}

/* Of flow: it is taken by whoever comes to it. */
static inline bool instr_is_always(const struct instr *i)
{
        return instr_predicate(i) == INSTR_ALWAYS && instr_predicate_read(i) == INSTR_ALWAYS;
}

static inline unsigned instr_ur_shift(uint8_t field)
{
        switch (field) {
        case INSTR_UR_D:
                return 16;
        case INSTR_UR_A:
                return 24;
        case INSTR_UR_B:
                return 32;
        case INSTR_UR_E:
                return 40;
        default:
                return 0; /* C, in hi */
        }
}

static inline uint32_t instr_ur_get(const struct instr *i, uint8_t field)
{
        return (uint32_t)((field == INSTR_UR_C ? i->hi : i->lo) >> instr_ur_shift(field)) & 63;
}

static inline void instr_ur_set(struct instr *i, uint8_t field, uint32_t ur)
{
        uint64_t *word = field == INSTR_UR_C ? &i->hi : &i->lo;

        *word = (*word & ~(63ULL << instr_ur_shift(field))) |
                ((uint64_t)ur << instr_ur_shift(field));
}

/* The registers from the one that stands in a field on; without branches, for long loops. */
static inline uint64_t instr_ur_run(uint64_t run, uint8_t fields, uint8_t field, uint64_t ur)
{
        return (run & -(uint64_t)((fields & field) != 0)) << (ur & 63);
}

/* Bit u set: a field of `fields` names u, or one of the count - 1 registers before it. */
static inline uint64_t instr_ur_named(const struct instr *i, uint8_t fields, uint32_t count)
{
        uint64_t run = (1ULL << count) - 1;
        uint64_t mask = instr_ur_run(run, fields, INSTR_UR_D, i->lo >> 16) |
                        instr_ur_run(run, fields, INSTR_UR_A, i->lo >> 24) |
                        instr_ur_run(run, fields, INSTR_UR_B, i->lo >> 32) |
                        instr_ur_run(run, fields, INSTR_UR_E, i->lo >> 40) |
                        instr_ur_run(run, fields, INSTR_UR_C, i->hi);

        /* URZ is the highest: no run that starts there reaches another register. */
        return mask & ~(1ULL << INSTR_UR_ZERO);
}

static inline struct instr instr_load(const uint8_t *code, size_t index)
{
        struct instr i;

        memcpy(&i, code + index * INSTR_BYTES, sizeof(i));
        return i;
}

static inline void instr_store(uint8_t *code, size_t index, struct instr i)
{
        memcpy(code + index * INSTR_BYTES, &i, sizeof(i));
}

/* Give an instruction another number. */
static inline void instr_set_number(uint8_t *code, size_t index, uint32_t number)
{
        struct instr i = instr_load(code, index);

        i.lo = (i.lo & 0xffffffff) | (uint64_t)number << 32;
        instr_store(code, index, i);
}

/* Bytes from one instruction to another. */
static inline int64_t instr_distance(uint32_t from, uint32_t to)
{
        return ((int64_t)to - (int64_t)from) * INSTR_BYTES;
}

static inline uint32_t instr_stall(const struct instr *i)
{
        return (uint32_t)(i->hi >> INSTR_STALL_SHIFT) & 0xf;
}

static inline void instr_set_stall(struct instr *i, uint32_t cycles)
{
        i->hi = (i->hi & ~(0xfULL << INSTR_STALL_SHIFT)) | (uint64_t)cycles << INSTR_STALL_SHIFT;
}

static inline uint32_t instr_result_scoreboard(const struct instr *i)
{
        return (uint32_t)(i->hi >> 46) & 7;
}

static inline uint32_t instr_source_scoreboard(const struct instr *i)
{
        return (uint32_t)(i->hi >> 49) & 7;
}

static inline uint32_t instr_waits(const struct instr *i)
{
        return (uint32_t)(i->hi >> 52) & 0x3f;
}

static inline void instr_set_result_scoreboard(struct instr *i, uint32_t scoreboard)
{
        i->hi = (i->hi & ~(7ULL << 46)) | (uint64_t)scoreboard << 46;
}

static inline void instr_set_source_scoreboard(struct instr *i, uint32_t scoreboard)
{
        i->hi = (i->hi & ~(7ULL << 49)) | (uint64_t)scoreboard << 49;
}

static inline void instr_set_waits(struct instr *i, uint32_t mask)
{
        i->hi = (i->hi & ~(0x3fULL << 52)) | (uint64_t)mask << 52;
}

static inline void instr_add_waits(struct instr *i, uint32_t mask)
{
        i->hi |= (uint64_t)mask << 52;
}

/* Operand reuse is a hint for the next instruction in the original order. */
static inline void instr_drop_reuse(struct instr *i)
{
        i->hi &= ~(0xfULL << 58);
}

/* Constant bank and byte offset of an operand in constant memory. */
static inline uint32_t instr_constant_bank(const struct instr *i)
{
        return (uint32_t)(i->lo >> 54) & 0x1f;
}

static inline uint32_t instr_constant_offset(const struct instr *i)
{
        return (uint32_t)(i->lo >> 40 & 0x3fff) * 4;
}

/* Make it another word; offset is a multiple of 4 below 65,536. */
static inline void instr_set_constant_offset(struct instr *i, uint32_t offset)
{
        i->lo = (i->lo & ~(0x3fffULL << 40)) | (uint64_t)(offset / 4) << 40;
}

/* What LDC and ULDC read; INSTR_LOAD_32 ... */
#define INSTR_LOAD_32 4
#define INSTR_LOAD_64 5
static inline uint32_t instr_load_size(const struct instr *i)
{
        return (uint32_t)(i->hi >> 9) & 7;
}

/* The convergence barrier of a BSSY, BSYNC or BREAK. */
static inline uint32_t instr_barrier(const struct instr *i)
{
        return (uint32_t)(i->lo >> 16) & 0xf;
}

static inline void instr_set_barrier(struct instr *i, uint32_t barrier)
{
        i->lo = (i->lo & ~(0xfULL << 16)) | (uint64_t)barrier << 16;
}

/* EXIT without modifiers but its predicates, so that a branch can stand in for it. */
static inline bool instr_exit_is_plain(const struct instr *i)
{
        /* hi[25:23] is a second predicate, hi[26] negates it; a branch has the same there. */
        const uint64_t second_predicate = 0xfULL << 23;

        return i->lo >> 16 == 0 && ((i->hi & INSTR_OPERANDS_HI) & ~second_predicate) == 0;
}
