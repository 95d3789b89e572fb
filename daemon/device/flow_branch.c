/* SPDX-License-Identifier: Apache-2.0 */

/* Branches: which are decided, and what their outcome tells about the operands. */
#include <errno.h>

#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

static enum flow_branch decided(bool taken)
{
        return taken ? FLOW_TAKEN : FLOW_NOT_TAKEN;
}

static enum flow_branch decide_equal(struct tnum a, struct tnum b)
{
        struct tnum both;

        if (!tnum_intersect(a, b, &both))
                return FLOW_NOT_TAKEN;
        return tnum_is_const(a) && tnum_is_const(b) ? FLOW_TAKEN : FLOW_EITHER;
}

static enum flow_branch negate(enum flow_branch b)
{
        return b == FLOW_EITHER ? b : decided(b == FLOW_NOT_TAKEN);
}

/* a < b, unsigned */
static enum flow_branch decide_less(struct tnum a, struct tnum b)
{
        if (tnum_max(a) < tnum_min(b))
                return FLOW_TAKEN;
        return tnum_min(a) >= tnum_max(b) ? FLOW_NOT_TAKEN : FLOW_EITHER;
}

/* The sign bit turned over: signed order becomes unsigned order. */
static struct tnum biased(struct tnum a, bool wide)
{
        return tnum_xor(a, tnum_const(1ULL << (wide ? 63 : 31)));
}

static enum flow_branch decide_set(struct tnum a, struct tnum b)
{
        struct tnum both = tnum_and(a, b);

        if (both.value)
                return FLOW_TAKEN;
        return tnum_max(both) ? FLOW_EITHER : FLOW_NOT_TAKEN;
}

static enum flow_branch decide_numbers(uint8_t op, bool wide, struct tnum a, struct tnum b)
{
        switch (op) {
        case BPF_JSGT:
        case BPF_JSGE:
        case BPF_JSLT:
        case BPF_JSLE:
                /* Sign bits that are not known leave nothing to compare. */
                a = biased(a, wide);
                b = biased(b, wide);
                break;
        }
        switch (op) {
        case BPF_JEQ:
                return decide_equal(a, b);
        case BPF_JNE:
                return negate(decide_equal(a, b));
        case BPF_JSET:
                return decide_set(a, b);
        case BPF_JLT:
        case BPF_JSLT:
                return decide_less(a, b);
        case BPF_JGE:
        case BPF_JSGE:
                return negate(decide_less(a, b));
        case BPF_JGT:
        case BPF_JSGT:
                return decide_less(b, a);
        case BPF_JLE:
        case BPF_JSLE:
                return negate(decide_less(b, a));
        }
        return FLOW_EITHER;
}

static bool is_zero(const struct value *v)
{
        return v->kind == VALUE_NUMBER && tnum_is_const(v->num) && v->num.value == 0;
}

/* A comparison with NULL of an address that a lookup gave, or of one that is never NULL. */
static bool is_null_check(const struct code *code, size_t i, const struct flow_state *state)
{
        const struct code_insn *insn = &code->insns[i];
        struct value b = flow_operand(code, i, state);
        uint8_t op = BPF_OP(insn->code), kind = state->regs[insn->dst].kind;

        return BPF_CLASS(insn->code) == BPF_JMP && (op == BPF_JEQ || op == BPF_JNE) &&
               (kind == VALUE_ELEMENT || kind == VALUE_STACK) && is_zero(&b);
}

enum flow_branch flow_decide(const struct code *code, size_t i, const struct flow_state *state)
{
        const struct code_insn *insn = &code->insns[i];
        struct value b = flow_operand(code, i, state);
        const struct value *a = &state->regs[insn->dst];
        bool wide = BPF_CLASS(insn->code) == BPF_JMP;

        if (is_null_check(code, i, state))
                return a->maybe_null ? FLOW_EITHER : decided(BPF_OP(insn->code) == BPF_JNE);
        if (a->kind != VALUE_NUMBER || b.kind != VALUE_NUMBER)
                return FLOW_EITHER;
        if (wide)
                return decide_numbers(BPF_OP(insn->code), true, a->num, b.num);
        return decide_numbers(BPF_OP(insn->code), false, tnum_low32(a->num), tnum_low32(b.num));
}

int flow_check_branch(const struct code *code, size_t i, const struct flow_state *state,
                      struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        const struct value *a;
        struct value b;

        a = &state->regs[insn->dst];
        b = flow_operand(code, i, state);
        if (a->kind == VALUE_NONE || b.kind == VALUE_NONE)
                return refuse(r, i, "a branch on a register that was never written");
        if (a->kind == VALUE_NUMBER && b.kind == VALUE_NUMBER)
                return 0;
        if (is_null_check(code, i, state))
                return 0;
        if (BPF_CLASS(insn->code) == BPF_JMP && a->kind == VALUE_ELEMENT &&
            b.kind == VALUE_ELEMENT && a->map == b.map)
                return 0;
        return refuse(r, i, "a branch compares an address with something else");
}

/* After a null check: the register is NULL, or it is not. */
static void refine_null(struct value *v, bool null)
{
        if (null)
                *v = value_number(tnum_const(0));
        else
                v->maybe_null = false;
}

/* Values from 0 to max, as far as known bits can say. */
static struct tnum up_to(uint64_t max)
{
        return (struct tnum){0, max ? UINT64_MAX >> __builtin_clzll(max) : 0};
}

/* What holds for a when `a op b` is true, b a constant. */
static struct tnum implied(uint8_t op, uint64_t b)
{
        switch (op) {
        case BPF_JEQ:
                return tnum_const(b);
        case BPF_JLE:
                return up_to(b);
        case BPF_JLT:
                return b ? up_to(b - 1) : TNUM_UNKNOWN;
        }
        return TNUM_UNKNOWN;
}

static uint8_t opposite(uint8_t op)
{
        switch (op) {
        case BPF_JNE:
                return BPF_JEQ;
        case BPF_JGT:
                return BPF_JLE;
        case BPF_JGE:
                return BPF_JLT;
        }
        return BPF_JA; /* says nothing */
}

bool flow_refine(const struct code *code, size_t i, bool taken, struct flow_state *state)
{
        const struct code_insn *insn = &code->insns[i];
        struct value *a = &state->regs[insn->dst], b = flow_operand(code, i, state);
        uint8_t op = BPF_OP(insn->code);
        uint64_t constant = b.num.value;

        if (is_null_check(code, i, state)) {
                refine_null(a, taken == (op == BPF_JEQ));
                return true;
        }
        if (a->kind != VALUE_NUMBER || b.kind != VALUE_NUMBER || !tnum_is_const(b.num))
                return true;
        if (BPF_CLASS(insn->code) == BPF_JMP32) {
                if (tnum_max(a->num) > UINT32_MAX)
                        return true;
                constant = (uint32_t)constant;
        }
        return tnum_intersect(a->num, implied(taken ? op : opposite(op), constant), &a->num);
}
