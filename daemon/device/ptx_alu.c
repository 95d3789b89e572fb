/* SPDX-License-Identifier: Apache-2.0 */

/* Arithmetic. eBPF's rules where PTX has others: division by zero, shift amounts. */
#include <inttypes.h>

#include "device/insn.h"
#include "device/ptx.h"

struct ptx_operand ptx_operand64(struct ptx_writer *w, const struct code_insn *insn)
{
        struct ptx_operand o;

        if (insn_uses_register(insn->code))
                snprintf(o.text, sizeof(o.text), "%%b%u", insn->src);
        else
                snprintf(o.text, sizeof(o.text), "%d", insn->imm);
        return o;
}

struct ptx_operand ptx_operand32(struct ptx_writer *w, const struct code_insn *insn)
{
        struct ptx_operand o;

        if (insn_uses_register(insn->code))
                snprintf(o.text, sizeof(o.text), "%%w%u", ptx_low_half(w, insn->src));
        else
                snprintf(o.text, sizeof(o.text), "%d", insn->imm);
        return o;
}

unsigned ptx_low_half(struct ptx_writer *w, unsigned reg)
{
        unsigned t = ptx_word(w);

        ptx_line(w, "cvt.u32.u64 %%w%u, %%b%u", t, reg);
        return t;
}

/*
 * NVIDIA's compiler (ptxas 13.0, driver 580.159.04) adds INT32_MAX where the negative of
 * it is to be added, when the sum becomes a VIADD. So it must not see that a number is
 * one of these two.
 */
static bool is_misread(uint64_t number)
{
        return (uint32_t)number == 0x7fffffff || (uint32_t)number == 0x80000001;
}

static struct ptx_operand hidden(struct ptx_writer *w, const struct code_insn *insn, unsigned width)
{
        struct ptx_operand o;
        unsigned t = width == 64 ? ptx_wide(w) : ptx_word(w);
        char kind = width == 64 ? 'd' : 'w';

        w->uses_zero = true;
        ptx_line(w, "mov.b%u %%%c%u, %d", width, kind, t, insn->imm);
        ptx_line(w, "or.b%u %%%c%u, %%%c%u, %s", width, kind, t, kind, t,
                 width == 64 ? "%zl" : "%z");
        snprintf(o.text, sizeof(o.text), "%%%c%u", kind, t);
        return o;
}

/* The second operand of an operation that is no shift. */
static struct ptx_operand other_operand(struct ptx_writer *w, const struct code_insn *insn,
                                        unsigned width)
{
        uint8_t op = BPF_OP(insn->code);

        if ((op == BPF_ADD || op == BPF_SUB) && !insn_uses_register(insn->code) &&
            is_misread((uint64_t)(int64_t)insn->imm))
                return hidden(w, insn, width);
        return width == 64 ? ptx_operand64(w, insn) : ptx_operand32(w, insn);
}

static void move_constant(struct ptx_writer *w, unsigned reg, uint64_t number)
{
        ptx_line(w, "mov.b64 %%b%u, 0x%" PRIx64, reg, number);
        if (!is_misread(number) && !is_misread(number >> 32))
                return;
        w->uses_zero = true;
        ptx_line(w, "or.b64 %%b%u, %%b%u, %%zl", reg, reg);
}

/* The PTX name of an operation that means the same in both, with its type but for the width. */
static const char *simple_name(uint8_t op)
{
        switch (op) {
        case BPF_ADD:
                return "add.s";
        case BPF_SUB:
                return "sub.s";
        case BPF_MUL:
                return "mul.lo.s";
        case BPF_AND:
                return "and.b";
        case BPF_OR:
                return "or.b";
        case BPF_XOR:
                return "xor.b";
        case BPF_LSH:
                return "shl.b";
        case BPF_RSH:
                return "shr.u";
        case BPF_ARSH:
                return "shr.s";
        }
        return NULL;
}

static bool is_shift(uint8_t op)
{
        return op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH;
}

/* PTX clamps shift amounts, eBPF takes them modulo the width. */
static struct ptx_operand shift_operand(struct ptx_writer *w, const struct code_insn *insn,
                                        unsigned width)
{
        struct ptx_operand o;
        unsigned t;

        if (!insn_uses_register(insn->code)) {
                snprintf(o.text, sizeof(o.text), "%u", (unsigned)insn->imm & (width - 1));
                return o;
        }
        t = ptx_low_half(w, insn->src);
        ptx_line(w, "and.b32 %%w%u, %%w%u, %u", t, t, width - 1);
        snprintf(o.text, sizeof(o.text), "%%w%u", t);
        return o;
}

void ptx_extend_sign(struct ptx_writer *w, unsigned reg, unsigned bits)
{
        ptx_line(w, "shl.b64 %%b%u, %%b%u, %u", reg, reg, 64 - bits);
        ptx_line(w, "shr.s64 %%b%u, %%b%u, %u", reg, reg, 64 - bits);
}

static bool is_division(const struct code_insn *insn)
{
        return BPF_OP(insn->code) == BPF_DIV;
}

/* Unsigned division of word a by word b, in place of a. b = 0 gives 0, and a as remainder. */
static void divide_words(struct ptx_writer *w, bool division, unsigned a, unsigned b)
{
        unsigned d = ptx_word(w), p = ptx_predicate(w);

        ptx_line(w, "setp.eq.u32 %%p%u, %%w%u, 0", p, b);
        ptx_line(w, "selp.b32 %%w%u, 1, %%w%u, %%p%u", d, b, p);
        ptx_line(w, "%s.u32 %%w%u, %%w%u, %%w%u", division ? "div" : "rem", d, a, d);
        if (division)
                ptx_line(w, "selp.b32 %%w%u, 0, %%w%u, %%p%u", a, d, p);
        else
                ptx_line(w, "selp.b32 %%w%u, %%w%u, %%w%u, %%p%u", a, a, d, p);
}

/* Replace a word by its absolute value (of the smallest number: 2^31); p: it was negative. */
static void take_sign32(struct ptx_writer *w, unsigned a, unsigned p)
{
        ptx_line(w, "setp.lt.s32 %%p%u, %%w%u, 0", p, a);
        ptx_line(w, "@%%p%u neg.s32 %%w%u, %%w%u", p, a, a);
}

/*
 * Signed division goes by absolute values, so that the smallest number divided by
 * -1 wraps as eBPF wants. A quotient is negative when the signs differ, a
 * remainder when the dividend is.
 */
static void divide_signed_words(struct ptx_writer *w, bool division, unsigned a, unsigned b)
{
        unsigned negative = ptx_predicate(w), divisor = ptx_predicate(w), copy = ptx_word(w);

        ptx_line(w, "mov.b32 %%w%u, %%w%u", copy, b);
        take_sign32(w, a, negative);
        take_sign32(w, copy, divisor);
        divide_words(w, division, a, copy);
        if (division)
                ptx_line(w, "xor.pred %%p%u, %%p%u, %%p%u", negative, negative, divisor);
        ptx_line(w, "@%%p%u neg.s32 %%w%u, %%w%u", negative, a, a);
}

/* 32-bit division in place of word a. */
static void divide32(struct ptx_writer *w, const struct code_insn *insn, unsigned a)
{
        bool division = is_division(insn);
        struct ptx_operand b;
        unsigned t;

        if (!insn_uses_register(insn->code) && insn->off != INSN_SIGNED) {
                if (insn->imm)
                        ptx_line(w, "%s.u32 %%w%u, %%w%u, %u", division ? "div" : "rem", a, a,
                                 (unsigned)insn->imm);
                else if (division)
                        ptx_line(w, "mov.b32 %%w%u, 0", a);
                return;
        }
        b = ptx_operand32(w, insn);
        t = ptx_word(w);
        ptx_line(w, "mov.b32 %%w%u, %s", t, b.text);
        if (insn->off == INSN_SIGNED)
                divide_signed_words(w, division, a, t);
        else
                divide_words(w, division, a, t);
}

/*
 * Unsigned 64-bit division of one temporary by another, in place of the first, bit
 * by bit: the assembler's own would be a call, which cannot be spliced into machine
 * code. Dividing by 0 this way leaves the dividend as remainder, as eBPF wants; the
 * quotient is set to 0.
 */
static void divide_wides(struct ptx_writer *w, size_t i, bool division, unsigned a,
                         unsigned divisor)
{
        unsigned rest = ptx_wide(w), t = ptx_wide(w), n = ptx_word(w);
        unsigned carry = ptx_predicate(w), fits = ptx_predicate(w), more = ptx_predicate(w);

        ptx_line(w, "mov.b64 %%d%u, 0", rest);
        ptx_line(w, "mov.b32 %%w%u, 64", n);
        if (w->job->where != DEVICE_ENTRY) {
                ptx_loosen(w, 'd', a);
                ptx_loosen(w, 'w', n);
        }
        text_add(&w->body, "G@U@_div%zu:\n", i);
        ptx_line(w, "setp.lt.s64 %%p%u, %%d%u, 0", carry, rest);
        ptx_line(w, "shr.u64 %%d%u, %%d%u, 63", t, a);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, 1", rest, rest);
        ptx_line(w, "or.b64 %%d%u, %%d%u, %%d%u", rest, rest, t);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, 1", a, a);
        ptx_line(w, "setp.ge.u64 %%p%u, %%d%u, %%d%u", fits, rest, divisor);
        ptx_line(w, "or.pred %%p%u, %%p%u, %%p%u", fits, fits, carry);
        ptx_line(w, "@%%p%u sub.s64 %%d%u, %%d%u, %%d%u", fits, rest, rest, divisor);
        ptx_line(w, "@%%p%u or.b64 %%d%u, %%d%u, 1", fits, a, a);
        ptx_line(w, "sub.s32 %%w%u, %%w%u, 1", n, n);
        ptx_line(w, "setp.ne.u32 %%p%u, %%w%u, 0", more, n);
        ptx_line(w, "@%%p%u bra%s G@U@_div%zu", more, ptx_uniform(w), i);
        w->costs[w->insn].instructions += 63 * 12; /* 12 lines, 64 times */
        if (!division) {
                ptx_line(w, "mov.b64 %%d%u, %%d%u", a, rest);
                return;
        }
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", carry, divisor);
        ptx_line(w, "selp.b64 %%d%u, 0, %%d%u, %%p%u", a, a, carry);
}

static void take_sign64(struct ptx_writer *w, unsigned a, unsigned p)
{
        ptx_line(w, "setp.lt.s64 %%p%u, %%d%u, 0", p, a);
        ptx_line(w, "@%%p%u neg.s64 %%d%u, %%d%u", p, a, a);
}

static void divide_signed_wides(struct ptx_writer *w, size_t i, bool division, unsigned a,
                                unsigned divisor)
{
        unsigned negative = ptx_predicate(w), other = ptx_predicate(w);

        take_sign64(w, a, negative);
        take_sign64(w, divisor, other);
        divide_wides(w, i, division, a, divisor);
        if (division)
                ptx_line(w, "xor.pred %%p%u, %%p%u, %%p%u", negative, negative, other);
        ptx_line(w, "@%%p%u neg.s64 %%d%u, %%d%u", negative, a, a);
}

static void divide64(struct ptx_writer *w, size_t i, const struct code_insn *insn)
{
        unsigned r = insn->dst, a, b;

        if (!insn_uses_register(insn->code) && insn->off != INSN_SIGNED) {
                if (insn->imm)
                        ptx_line(w, "%s.u64 %%b%u, %%b%u, %" PRIu64,
                                 is_division(insn) ? "div" : "rem", r, r,
                                 (uint64_t)(int64_t)insn->imm);
                else if (is_division(insn))
                        ptx_line(w, "mov.b64 %%b%u, 0", r);
                return;
        }
        a = ptx_wide(w);
        b = ptx_wide(w);
        ptx_line(w, "mov.b64 %%d%u, %%b%u", a, r);
        ptx_line(w, "mov.b64 %%d%u, %s", b, ptx_operand64(w, insn).text);
        if (insn->off == INSN_SIGNED)
                divide_signed_wides(w, i, is_division(insn), a, b);
        else
                divide_wides(w, i, is_division(insn), a, b);
        ptx_line(w, "mov.b64 %%b%u, %%d%u", r, a);
}

/* Bytes of a register in network order, as 16, 32 or 64 bits. */
static void swap_bytes(struct ptx_writer *w, const struct code_insn *insn)
{
        unsigned low = ptx_word(w), high = ptx_word(w), r = insn->dst;

        ptx_line(w, "mov.b64 {%%w%u, %%w%u}, %%b%u", low, high, r);
        ptx_line(w, "prmt.b32 %%w%u, %%w%u, 0, %s", low, low,
                 insn->imm == 16 ? "0x4401" : "0x0123");
        if (insn->imm == 64) {
                ptx_line(w, "prmt.b32 %%w%u, %%w%u, 0, 0x0123", high, high);
                ptx_line(w, "mov.b64 %%b%u, {%%w%u, %%w%u}", r, high, low);
        } else {
                ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", r, low);
        }
}

/* Devices are little-endian: to little-endian only cuts off. The 64-bit class always swaps. */
static void write_end(struct ptx_writer *w, const struct code_insn *insn)
{
        if (BPF_SRC(insn->code) == BPF_TO_BE || BPF_CLASS(insn->code) == BPF_ALU64)
                swap_bytes(w, insn);
        else if (insn->imm < 64)
                ptx_line(w, "and.b64 %%b%u, %%b%u, 0x%" PRIx64, insn->dst, insn->dst,
                         (UINT64_C(1) << insn->imm) - 1);
}

static bool fits_32_bits(const struct value *v)
{
        return v->kind == VALUE_NUMBER && tnum_max(v->num) <= UINT32_MAX;
}

/*
 * A product of which one factor has 32 bits at most, written out: left to itself
 * the assembler adds the zero upper parts through uniform registers.
 */
static void multiply_narrow(struct ptx_writer *w, unsigned r, unsigned wide, unsigned narrow)
{
        unsigned low = ptx_word(w), high = ptx_word(w), factor = ptx_low_half(w, narrow);
        unsigned product = ptx_wide(w), top = ptx_word(w), bottom = ptx_word(w);

        ptx_line(w, "mov.b64 {%%w%u, %%w%u}, %%b%u", low, high, wide);
        ptx_line(w, "mul.wide.u32 %%d%u, %%w%u, %%w%u", product, low, factor);
        ptx_line(w, "mov.b64 {%%w%u, %%w%u}, %%d%u", bottom, top, product);
        ptx_line(w, "mad.lo.u32 %%w%u, %%w%u, %%w%u, %%w%u", top, high, factor, top);
        ptx_line(w, "mov.b64 %%b%u, {%%w%u, %%w%u}", r, bottom, top);
}

/* Multiply by a register, in the cheapest form that is known to do. */
static void multiply64(struct ptx_writer *w, const struct code_insn *insn,
                       const struct flow_state *before)
{
        unsigned a = insn->dst, b = insn->src;
        bool narrow_a = fits_32_bits(&before->regs[a]), narrow_b = fits_32_bits(&before->regs[b]);

        if (narrow_a && narrow_b)
                ptx_line(w, "mul.wide.u32 %%b%u, %%w%u, %%w%u", a, ptx_low_half(w, a),
                         ptx_low_half(w, b));
        else if (narrow_a)
                multiply_narrow(w, a, b, a);
        else if (narrow_b)
                multiply_narrow(w, a, a, b);
        else
                ptx_line(w, "mul.lo.s64 %%b%u, %%b%u, %%b%u", a, a, b);
}

static void alu64(struct ptx_writer *w, size_t i, const struct code_insn *insn,
                  const struct flow_state *before)
{
        uint8_t op = BPF_OP(insn->code);
        unsigned r = insn->dst;

        switch (op) {
        case BPF_MOV:
                ptx_line(w, "mov.b64 %%b%u, %s", r, ptx_operand64(w, insn).text);
                if (insn->off)
                        ptx_extend_sign(w, r, (unsigned)insn->off);
                return;
        case BPF_NEG:
                ptx_line(w, "neg.s64 %%b%u, %%b%u", r, r);
                return;
        case BPF_DIV:
        case BPF_MOD:
                divide64(w, i, insn);
                return;
        case BPF_MUL:
                if (!insn_uses_register(insn->code))
                        break;
                multiply64(w, insn, before);
                return;
        }
        ptx_line(w, "%s64 %%b%u, %%b%u, %s", simple_name(op), r, r,
                 (is_shift(op) ? shift_operand(w, insn, 64) : other_operand(w, insn, 64)).text);
}

/* A byte or half word, its sign extended to 32 bits and those zero-extended. */
static void move_extended32(struct ptx_writer *w, const struct code_insn *insn, const char *word)
{
        unsigned t = ptx_word(w), shift = 32 - (unsigned)insn->off;

        ptx_line(w, "shl.b32 %%w%u, %s, %u", t, word, shift);
        ptx_line(w, "shr.s32 %%w%u, %%w%u, %u", t, t, shift);
        ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", insn->dst, t);
}

static void alu32(struct ptx_writer *w, const struct code_insn *insn)
{
        uint8_t op = BPF_OP(insn->code);
        unsigned a;

        if (op == BPF_MOV) {
                struct ptx_operand b = ptx_operand32(w, insn);

                if (insn_uses_register(insn->code) && insn->off)
                        move_extended32(w, insn, b.text);
                else if (insn_uses_register(insn->code))
                        ptx_line(w, "cvt.u64.u32 %%b%u, %s", insn->dst, b.text);
                else
                        ptx_line(w, "mov.b64 %%b%u, %u", insn->dst, (unsigned)insn->imm);
                return;
        }
        a = ptx_low_half(w, insn->dst);
        if (op == BPF_NEG)
                ptx_line(w, "neg.s32 %%w%u, %%w%u", a, a);
        else if (op == BPF_DIV || op == BPF_MOD)
                divide32(w, insn, a);
        else
                ptx_line(w, "%s32 %%w%u, %%w%u, %s", simple_name(op), a, a,
                         (is_shift(op) ? shift_operand(w, insn, 32) : other_operand(w, insn, 32))
                                 .text);
        ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", insn->dst, a);
}

void ptx_alu(struct ptx_writer *w, size_t i, const struct flow_state *before,
             const struct flow_state *after)
{
        const struct code_insn *insn = &w->code->insns[i];
        const struct value *result = &after->regs[insn->dst];

        if (w->pending.valid && w->pending.base_reg == insn->dst)
                ptx_flush(w);
        if (!ptx_exists(w, result))
                return;
        if (insn_is_wide(insn->code) && result->kind == VALUE_ELEMENT) {
                ptx_line(w, "add.s64 %%b%u, %%d%u, %" PRIu64, insn->dst,
                         ptx_map_base(w, result->map), result->num.value);
                return;
        }
        if (result->kind == VALUE_NUMBER && tnum_is_const(result->num))
                move_constant(w, insn->dst, result->num.value);
        else if (BPF_OP(insn->code) == BPF_END)
                write_end(w, insn);
        else if (BPF_CLASS(insn->code) == BPF_ALU64)
                alu64(w, i, insn, before);
        else
                alu32(w, insn);
}
