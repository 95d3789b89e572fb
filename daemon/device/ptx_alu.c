/* SPDX-License-Identifier: Apache-2.0 */

/* Arithmetic. eBPF's rules where PTX has others: division by zero, shift amounts. */
#include <inttypes.h>

#include "device/insn.h"
#include "device/ptx.h"

struct ptx_operand ptx_operand64(struct ptx_writer *w, const struct bpf_insn *insn)
{
        struct ptx_operand o;

        if (insn_uses_register(insn))
                snprintf(o.text, sizeof(o.text), "%%b%u", insn->src_reg);
        else
                snprintf(o.text, sizeof(o.text), "%d", insn->imm);
        return o;
}

struct ptx_operand ptx_operand32(struct ptx_writer *w, const struct bpf_insn *insn)
{
        struct ptx_operand o;

        if (insn_uses_register(insn))
                snprintf(o.text, sizeof(o.text), "%%w%u", ptx_low_half(w, insn->src_reg));
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
static struct ptx_operand shift_operand(struct ptx_writer *w, const struct bpf_insn *insn,
                                        unsigned width)
{
        struct ptx_operand o;
        unsigned t;

        if (!insn_uses_register(insn)) {
                snprintf(o.text, sizeof(o.text), "%u", (unsigned)insn->imm & (width - 1));
                return o;
        }
        t = ptx_low_half(w, insn->src_reg);
        ptx_line(w, "and.b32 %%w%u, %%w%u, %u", t, t, width - 1);
        snprintf(o.text, sizeof(o.text), "%%w%u", t);
        return o;
}

/* Unsigned 32-bit division in place of word a. */
static void divide32(struct ptx_writer *w, const struct bpf_insn *insn, unsigned a)
{
        bool division = BPF_OP(insn->code) == BPF_DIV;
        const char *name = division ? "div" : "rem";
        struct ptx_operand b;
        unsigned d, p;

        if (!insn_uses_register(insn)) {
                if (insn->imm)
                        ptx_line(w, "%s.u32 %%w%u, %%w%u, %u", name, a, a, (unsigned)insn->imm);
                else if (division)
                        ptx_line(w, "mov.b32 %%w%u, 0", a);
                return;
        }
        b = ptx_operand32(w, insn);
        d = ptx_word(w);
        p = ptx_predicate(w);
        ptx_line(w, "setp.eq.u32 %%p%u, %s, 0", p, b.text);
        ptx_line(w, "selp.b32 %%w%u, 1, %s, %%p%u", d, b.text, p);
        ptx_line(w, "%s.u32 %%w%u, %%w%u, %%w%u", name, d, a, d);
        if (division)
                ptx_line(w, "selp.b32 %%w%u, 0, %%w%u, %%p%u", a, d, p);
        else
                ptx_line(w, "selp.b32 %%w%u, %%w%u, %%w%u, %%p%u", a, a, d, p);
}

/*
 * Unsigned 64-bit division by a register, bit by bit: the assembler's own would
 * be a call, which cannot be spliced into machine code. Dividing by 0 this way
 * leaves the dividend as remainder, as eBPF wants; the quotient is set to 0.
 */
static void divide64_loop(struct ptx_writer *w, size_t i, const struct bpf_insn *insn)
{
        unsigned quotient = ptx_wide(w), rest = ptx_wide(w), t = ptx_wide(w), n = ptx_word(w);
        unsigned divisor = ptx_wide(w);
        unsigned carry = ptx_predicate(w), fits = ptx_predicate(w), more = ptx_predicate(w);

        ptx_line(w, "mov.b64 %%d%u, %%b%u", quotient, insn->dst_reg);
        ptx_line(w, "mov.b64 %%d%u, %%b%u", divisor, insn->src_reg);
        ptx_line(w, "mov.b64 %%d%u, 0", rest);
        ptx_line(w, "mov.b32 %%w%u, 64", n);
        text_add(&w->body, "G@U@_div%zu:\n", i);
        ptx_line(w, "setp.lt.s64 %%p%u, %%d%u, 0", carry, rest);
        ptx_line(w, "shr.u64 %%d%u, %%d%u, 63", t, quotient);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, 1", rest, rest);
        ptx_line(w, "or.b64 %%d%u, %%d%u, %%d%u", rest, rest, t);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, 1", quotient, quotient);
        ptx_line(w, "setp.ge.u64 %%p%u, %%d%u, %%d%u", fits, rest, divisor);
        ptx_line(w, "or.pred %%p%u, %%p%u, %%p%u", fits, fits, carry);
        ptx_line(w, "@%%p%u sub.s64 %%d%u, %%d%u, %%d%u", fits, rest, rest, divisor);
        ptx_line(w, "@%%p%u or.b64 %%d%u, %%d%u, 1", fits, quotient, quotient);
        ptx_line(w, "sub.s32 %%w%u, %%w%u, 1", n, n);
        ptx_line(w, "setp.ne.u32 %%p%u, %%w%u, 0", more, n);
        ptx_line(w, "@%%p%u bra%s G@U@_div%zu", more, ptx_uniform(w), i);
        if (BPF_OP(insn->code) == BPF_MOD) {
                ptx_line(w, "mov.b64 %%b%u, %%d%u", insn->dst_reg, rest);
                return;
        }
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", carry, divisor);
        ptx_line(w, "selp.b64 %%b%u, 0, %%d%u, %%p%u", insn->dst_reg, quotient, carry);
}

static void divide64(struct ptx_writer *w, size_t i, const struct bpf_insn *insn)
{
        bool division = BPF_OP(insn->code) == BPF_DIV;
        unsigned r = insn->dst_reg;

        if (insn_uses_register(insn))
                divide64_loop(w, i, insn);
        else if (insn->imm)
                ptx_line(w, "%s.u64 %%b%u, %%b%u, %" PRIu64, division ? "div" : "rem", r, r,
                         (uint64_t)(int64_t)insn->imm);
        else if (division)
                ptx_line(w, "mov.b64 %%b%u, 0", r);
}

/* Bytes of a register in network order, as 16, 32 or 64 bits. */
static void swap_bytes(struct ptx_writer *w, const struct bpf_insn *insn)
{
        unsigned low = ptx_word(w), high = ptx_word(w), r = insn->dst_reg;

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

/* Devices are little-endian: to little-endian only cuts off. */
static void write_end(struct ptx_writer *w, const struct bpf_insn *insn)
{
        if (BPF_SRC(insn->code) == BPF_TO_BE)
                swap_bytes(w, insn);
        else if (insn->imm < 64)
                ptx_line(w, "and.b64 %%b%u, %%b%u, 0x%" PRIx64, insn->dst_reg, insn->dst_reg,
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
static void multiply64(struct ptx_writer *w, const struct bpf_insn *insn,
                       const struct flow_state *before)
{
        unsigned a = insn->dst_reg, b = insn->src_reg;
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

static void alu64(struct ptx_writer *w, size_t i, const struct bpf_insn *insn,
                  const struct flow_state *before)
{
        uint8_t op = BPF_OP(insn->code);
        unsigned r = insn->dst_reg;

        switch (op) {
        case BPF_MOV:
                ptx_line(w, "mov.b64 %%b%u, %s", r, ptx_operand64(w, insn).text);
                return;
        case BPF_NEG:
                ptx_line(w, "neg.s64 %%b%u, %%b%u", r, r);
                return;
        case BPF_DIV:
        case BPF_MOD:
                divide64(w, i, insn);
                return;
        case BPF_MUL:
                if (!insn_uses_register(insn))
                        break;
                multiply64(w, insn, before);
                return;
        }
        ptx_line(w, "%s64 %%b%u, %%b%u, %s", simple_name(op), r, r,
                 (is_shift(op) ? shift_operand(w, insn, 64) : ptx_operand64(w, insn)).text);
}

static void alu32(struct ptx_writer *w, const struct bpf_insn *insn)
{
        uint8_t op = BPF_OP(insn->code);
        unsigned a;

        if (op == BPF_MOV) {
                struct ptx_operand b = ptx_operand32(w, insn);

                if (insn_uses_register(insn))
                        ptx_line(w, "cvt.u64.u32 %%b%u, %s", insn->dst_reg, b.text);
                else
                        ptx_line(w, "mov.b64 %%b%u, %u", insn->dst_reg, (unsigned)insn->imm);
                return;
        }
        a = ptx_low_half(w, insn->dst_reg);
        if (op == BPF_NEG)
                ptx_line(w, "neg.s32 %%w%u, %%w%u", a, a);
        else if (op == BPF_DIV || op == BPF_MOD)
                divide32(w, insn, a);
        else
                ptx_line(w, "%s32 %%w%u, %%w%u, %s", simple_name(op), a, a,
                         (is_shift(op) ? shift_operand(w, insn, 32) : ptx_operand32(w, insn)).text);
        ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", insn->dst_reg, a);
}

void ptx_alu(struct ptx_writer *w, size_t i, const struct flow_state *before,
             const struct flow_state *after)
{
        const struct bpf_insn *insn = &w->job->insns[i];
        const struct value *result = &after->regs[insn->dst_reg];

        if (w->pending.valid && w->pending.base_reg == insn->dst_reg)
                ptx_flush(w);
        if (!ptx_exists(w, result))
                return;
        if (result->kind == VALUE_NUMBER && tnum_is_const(result->num))
                ptx_line(w, "mov.b64 %%b%u, 0x%" PRIx64, insn->dst_reg, result->num.value);
        else if (BPF_OP(insn->code) == BPF_END)
                write_end(w, insn);
        else if (BPF_CLASS(insn->code) == BPF_ALU64)
                alu64(w, i, insn, before);
        else
                alu32(w, insn);
}
