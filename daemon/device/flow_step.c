/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

int refuse(struct refusal *r, size_t insn, const char *format, ...)
{
        va_list args;

        r->insn = insn;
        va_start(args, format);
        vsnprintf(r->reason, sizeof(r->reason), format, args);
        va_end(args);
        return -ENOTSUP;
}

const char *value_name(const struct value *v)
{
        switch (v->kind) {
        case VALUE_NONE:
                return "a register that was never written";
        case VALUE_NUMBER:
                return "a number";
        case VALUE_CONTEXT:
                return "the context pointer";
        case VALUE_STACK:
                return "a stack address";
        case VALUE_MAP:
                return "a map";
        case VALUE_ELEMENT:
                return "the address of a map element";
        }
        return "something that differs between paths";
}

struct value flow_operand(const struct code *code, size_t i, const struct flow_state *state)
{
        const struct code_insn *insn = &code->insns[i];

        if (insn_uses_register(insn->code))
                return state->regs[insn->src];
        return value_number(tnum_const((uint64_t)(int64_t)insn->imm));
}

static int step_wide(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];
        struct value *dst = &state->regs[insn->dst];
        uint32_t offset = (uint32_t)insn->imm_high;

        if (insn->src == 0) {
                *dst = value_number(tnum_const(code_wide_constant(insn)));
                return 0;
        }
        if (insn->src != BPF_PSEUDO_MAP_FD && insn->src != BPF_PSEUDO_MAP_VALUE)
                return refuse(r, i, "the address of a function or of something in the kernel");
        if (insn->imm < 0 || (size_t)insn->imm >= code->job->map_count)
                return refuse(r, i, "reference to an unknown map");
        *dst = (struct value){.kind = VALUE_MAP, .map = (uint8_t)insn->imm};
        if (insn->src == BPF_PSEUDO_MAP_FD)
                return 0;
        if (code->job->maps[insn->imm].type != BPF_MAP_TYPE_ARRAY ||
            offset >= code->job->maps[insn->imm].bytes)
                return refuse(r, i, "the address of a variable that is in no map");
        dst->kind = VALUE_ELEMENT;
        dst->num = tnum_const(offset);
        return 0;
}

static int step_plain(const struct code *code, size_t i, struct flow_state *state,
                      struct refusal *r)
{
        uint8_t opcode = code->insns[i].code;

        if (insn_is_wide(opcode))
                return step_wide(code, i, state, r);
        if (insn_is_alu(opcode))
                return flow_step_alu(code, i, state, r);
        if (insn_is_load(opcode))
                return flow_step_load(code, i, state, r);
        if (insn_is_store(opcode))
                return flow_step_store(code, i, state, r);
        if (insn_is_atomic(opcode))
                return flow_step_atomic(code, i, state, r);
        if (insn_is_call(opcode))
                return flow_step_call(code, i, state, r);
        return refuse(r, i, "unknown instruction 0x%02x", opcode);
}

/* What an instruction sets where lanes are apart is not what other lanes have. */
static void mark_varying(const struct code_insn *insn, struct flow_state *state)
{
        if (insn_is_call(insn->code))
                state->regs[BPF_REG_0].taint.varying = true;
        else if (insn_is_atomic(insn->code))
                state->regs[insn->imm == BPF_CMPXCHG ? BPF_REG_0 : insn->src].taint.varying = true;
        else if (!insn_is_store(insn->code))
                state->regs[insn->dst].taint.varying = true;
}

int flow_step(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        int error;

        switch (code->insns[i].kind) {
        case CODE_ENTER:
                flow_step_enter(code, i, state);
                return 0;
        case CODE_RETURN:
                flow_step_return(code, i, state);
                return 0;
        }
        error = step_plain(code, i, state, r);
        if (!error && code->divergent[i])
                mark_varying(&code->insns[i], state);
        return error;
}

bool flow_stack_is_unknown(const struct code *code, size_t i, const struct flow_state *state)
{
        const struct value *dst = &state->regs[code->insns[i].dst];

        return dst->kind == VALUE_STACK && !tnum_is_const(dst->num);
}
