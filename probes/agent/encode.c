/* SPDX-License-Identifier: Apache-2.0 */
#include "encode.h"

/* With these in fields D, A and B; a number of 32 bits takes the room of B as well. */
static struct instr fill(struct instr i, uint32_t d, uint32_t a, uint32_t b)
{
        i.lo |= (uint64_t)d << 16 | (uint64_t)a << 24 | (uint64_t)b << 32;
        return i;
}

struct instr encode_exit_to_branch(const struct arch *a, const struct instr *exit, int64_t bytes)
{
        const uint64_t opcode = INSTR_OPCODES - 1, stall = 0xfULL << INSTR_STALL_SHIFT;
        struct instr bra = a->makes.bra;
        struct instr i = {(exit->lo & INSTR_GUARD) | (bra.lo & opcode), exit->hi};

        /* The assembler lets fewer cycles pass behind an EXIT than behind any BRA. */
        if (instr_stall(&i) < instr_stall(&bra))
                i.hi = (i.hi & ~stall) | (bra.hi & stall);
        arch_set_relative_target(a, &i, bytes);
        return i;
}

struct instr encode_bra(const struct arch *a, int64_t bytes)
{
        struct instr i = a->makes.bra;

        arch_set_relative_target(a, &i, bytes);
        return i;
}

struct instr encode_bssy(const struct arch *a, uint32_t barrier, int64_t bytes)
{
        struct instr i = fill(a->makes.bssy, barrier, 0, 0);

        arch_set_relative_target(a, &i, bytes);
        return i;
}

struct instr encode_bsync(const struct arch *a, uint32_t barrier, uint32_t waits)
{
        struct instr i = fill(a->makes.bsync, barrier, 0, 0);

        instr_add_waits(&i, waits);
        return i;
}

struct instr encode_warpsync(const struct arch *a, uint32_t waits)
{
        struct instr i = a->makes.warpsync;

        instr_add_waits(&i, waits);
        return i;
}

struct instr encode_break(const struct arch *a, uint32_t barrier)
{
        return fill(a->makes.brk, barrier, 0, 0);
}

struct instr encode_nop(const struct arch *a)
{
        return a->makes.nop;
}

struct instr encode_nop_like(const struct arch *a, const struct instr *i)
{
        const uint64_t control =
                0x1fULL << INSTR_STALL_SHIFT | 0x3fULL << 52; /* and yield, waits */
        struct instr nop = a->makes.nop;

        nop.hi = (nop.hi & ~control) | (i->hi & control);
        return nop;
}

struct instr encode_wait(const struct arch *a, uint32_t scoreboards)
{
        struct instr i = a->makes.wait;

        instr_add_waits(&i, scoreboards);
        return i;
}

struct instr encode_mov(const struct arch *a, uint32_t reg, uint32_t value)
{
        return fill(a->makes.mov_number, reg, 0, value);
}

struct instr encode_umov(const struct arch *a, uint32_t ur, uint32_t value)
{
        return fill(a->makes.umov_number, ur, 0, value);
}

struct instr encode_vote_lanes(const struct arch *a, uint32_t reg)
{
        return fill(a->makes.vote_lanes, reg, 0, 0);
}

struct instr encode_move_like(const struct arch *a, const struct instr *i, uint32_t source)
{
        const uint64_t kept = 0xfff000; /* guard and destination */
        struct instr mov = fill(a->makes.mov_register, 0, 0, source);

        return (struct instr){(i->lo & kept) | (mov.lo & ~kept),
                              (i->hi & ~INSTR_OPERANDS_HI) | (mov.hi & INSTR_OPERANDS_HI)};
}

struct instr encode_mov_register(const struct arch *a, uint32_t reg, uint32_t from)
{
        return fill(a->makes.mov_register, reg, 0, from);
}

struct instr encode_add(const struct arch *a, uint32_t reg, uint32_t ra, int32_t value)
{
        return fill(a->makes.add, reg, ra, (uint32_t)value);
}

struct instr encode_add_low(const struct arch *a, uint32_t reg, uint32_t ra, int32_t value)
{
        return fill(a->makes.add_low, reg, ra, (uint32_t)value);
}

/* The upper half of the value is its sign. */
struct instr encode_add_high(const struct arch *a, uint32_t reg, uint32_t ra, int32_t value)
{
        return fill(a->makes.add_high, reg, ra, value < 0 ? UINT32_MAX : 0);
}

struct instr encode_add_uniform(const struct arch *a, uint32_t reg, uint32_t ra, uint32_t ur)
{
        return fill(a->makes.add_uniform, reg, ra, ur);
}

struct instr encode_save_predicates(const struct arch *a, uint32_t reg)
{
        return fill(a->makes.save_predicates, reg, 0, 0);
}

struct instr encode_load_predicates(const struct arch *a, uint32_t reg)
{
        return fill(a->makes.load_predicates, 0, reg, 0);
}
