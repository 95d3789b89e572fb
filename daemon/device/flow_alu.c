/* SPDX-License-Identifier: Apache-2.0 */

/* What arithmetic does to a flow state: known bits of numbers, distances of addresses. */
#include "device/flow_span.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

static int64_t shift_amount(struct tnum b, unsigned width)
{
        return tnum_is_const(b) ? (int64_t)(b.value & (width - 1)) : -1;
}

static struct tnum divide(uint8_t op, struct tnum a, struct tnum b)
{
        if (!tnum_is_const(a) || !tnum_is_const(b)) {
                /* A remainder by a power of two is a mask: keys are often made this way. */
                if (op == BPF_MOD && tnum_is_const(b) && b.value && !(b.value & (b.value - 1)))
                        return tnum_and(a, tnum_const(b.value - 1));
                return TNUM_UNKNOWN;
        }
        if (op == BPF_DIV)
                return tnum_const(b.value ? a.value / b.value : 0);
        return tnum_const(b.value ? a.value % b.value : a.value);
}

/* What is known of the result; operands of 32-bit operations come zero-extended. */
static struct tnum number_result(uint8_t op, unsigned width, struct tnum a, struct tnum b)
{
        int64_t shift = shift_amount(b, width);

        switch (op) {
        case BPF_ADD:
                return tnum_add(a, b);
        case BPF_SUB:
                return tnum_sub(a, b);
        case BPF_MUL:
                return tnum_mul(a, b);
        case BPF_DIV:
        case BPF_MOD:
                return divide(op, a, b);
        case BPF_AND:
                return tnum_and(a, b);
        case BPF_OR:
                return tnum_or(a, b);
        case BPF_XOR:
                return tnum_xor(a, b);
        case BPF_NEG:
                return tnum_sub(tnum_const(0), a);
        case BPF_MOV:
                return b;
        case BPF_LSH:
                return shift < 0 ? TNUM_UNKNOWN : tnum_lsh(a, (unsigned)shift);
        case BPF_RSH:
                return shift < 0 ? TNUM_UNKNOWN : tnum_rsh(a, (unsigned)shift);
        }
        return TNUM_UNKNOWN;
}

static bool known_offset(const struct code_insn *insn)
{
        bool wide = BPF_CLASS(insn->code) == BPF_ALU64;

        switch (BPF_OP(insn->code)) {
        case BPF_DIV:
        case BPF_MOD:
                return insn->off == 0 || insn->off == INSN_SIGNED;
        case BPF_MOV:
                if (!insn_uses_register(insn->code))
                        return insn->off == 0;
                return insn->off == 0 || insn->off == 8 || insn->off == 16 ||
                       (wide && insn->off == 32);
        }
        return insn->off == 0;
}

static bool known_operation(const struct code_insn *insn)
{
        switch (BPF_OP(insn->code)) {
        case BPF_ADD:
        case BPF_SUB:
        case BPF_MUL:
        case BPF_DIV:
        case BPF_MOD:
        case BPF_AND:
        case BPF_OR:
        case BPF_XOR:
        case BPF_NEG:
        case BPF_MOV:
        case BPF_LSH:
        case BPF_RSH:
        case BPF_ARSH:
                return known_offset(insn);
        case BPF_END:
                /* The 64-bit class swaps whatever the order of the host. */
                return (BPF_CLASS(insn->code) == BPF_ALU || BPF_SRC(insn->code) == BPF_TO_LE) &&
                       insn->off == 0 && (insn->imm == 16 || insn->imm == 32 || insn->imm == 64);
        }
        return false;
}

/* Address arithmetic: moves, additions and subtractions of 64 bits; *ret_done when it was that. */
static int step_address(const struct code *code, size_t i, struct flow_state *state,
                        struct refusal *r, bool *ret_done)
{
        const struct code_insn *insn = &code->insns[i];
        struct value *dst = &state->regs[insn->dst], src = flow_operand(code, i, state);
        uint8_t op = BPF_OP(insn->code);
        bool wide = BPF_CLASS(insn->code) == BPF_ALU64;

        if (op == BPF_MOV && wide && value_is_address(&src) && insn->off == 0) {
                *dst = src;
                *ret_done = true;
                return 0;
        }
        if (op == BPF_MOV && !value_is_address(&src))
                return 0;
        if (!value_is_address(&src) && !value_is_address(dst))
                return 0;
        if (op == BPF_NEG || op == BPF_END)
                src = value_number(tnum_const(0));
        *ret_done = true;
        if (wide && op == BPF_ADD && dst->kind == VALUE_NUMBER &&
            (src.kind == VALUE_ELEMENT || src.kind == VALUE_STACK)) {
                flow_move_address(&src, dst->num, false);
                *dst = src;
                return 0;
        }
        if (wide && (op == BPF_ADD || op == BPF_SUB) && src.kind == VALUE_NUMBER &&
            (dst->kind == VALUE_ELEMENT || dst->kind == VALUE_STACK ||
             dst->kind == VALUE_CONTEXT)) {
                flow_move_address(dst, src.num, op == BPF_SUB);
                return 0;
        }
        if (wide && op == BPF_SUB && dst->kind == VALUE_ELEMENT && src.kind == VALUE_ELEMENT &&
            dst->map == src.map) {
                *dst = value_number(TNUM_UNKNOWN);
                return 0;
        }
        return refuse(r, i, "%s is used as a number",
                      value_name(value_is_address(dst) && op != BPF_MOV ? dst : &src));
}

/* The number an operation gives; its operands are numbers. */
static struct tnum operate(const struct code_insn *insn, struct tnum a, struct tnum b)
{
        uint8_t op = BPF_OP(insn->code);

        if (op == BPF_END)
                return tnum_of_size((unsigned)insn->imm / 8);
        if (op == BPF_MOV && insn->off)
                b = tnum_extend_sign(b, (unsigned)insn->off);
        if ((op == BPF_DIV || op == BPF_MOD) && insn->off == INSN_SIGNED)
                return TNUM_UNKNOWN;
        if (BPF_CLASS(insn->code) == BPF_ALU64)
                return number_result(op, 64, a, b);
        return number_result(op, 32, tnum_low32(a), tnum_low32(b));
}

/* Whether the operation reads its destination. */
static bool reads_dst(uint8_t op)
{
        return op != BPF_MOV;
}

/* Whether it has a second operand. */
static bool reads_src(uint8_t op)
{
        return op != BPF_NEG && op != BPF_END;
}

int flow_step_alu(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        struct value *dst = &state->regs[insn->dst], src = flow_operand(code, i, state);
        uint8_t op = BPF_OP(insn->code);
        struct taint taint = reads_dst(op) ? dst->taint : (struct taint){};
        bool done = false;
        int error;

        if (!known_operation(insn))
                return refuse(r, i, "unknown arithmetic instruction 0x%02x", insn->code);
        if (reads_dst(op) && dst->kind == VALUE_NONE)
                return refuse(r, i, "r%u is used before it is written",
                              code_register_name(insn->dst));
        if (reads_src(op) && src.kind == VALUE_NONE)
                return refuse(r, i, "r%u is used before it is written",
                              code_register_name(insn->src));
        if (reads_src(op))
                taint = taint_join(taint, src.taint);
        error = step_address(code, i, state, r, &done);
        if (error)
                return error;
        if (!done) {
                *dst = value_number(operate(insn, dst->num, src.num));
                if (BPF_CLASS(insn->code) == BPF_ALU && op != BPF_END)
                        dst->num = tnum_low32(dst->num);
        }
        if (dst->kind == VALUE_NUMBER && tnum_is_const(dst->num))
                taint = (struct taint){};
        dst->taint = taint;
        return 0;
}
