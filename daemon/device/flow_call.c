/* SPDX-License-Identifier: Apache-2.0 */

/* What calls do to a flow state: helpers, and functions of the program put in place of calls. */
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

#define HELPER_NAME(name) [BPF_FUNC_##name] = #name
static const char *const helper_names[] = {__BPF_FUNC_MAPPER(HELPER_NAME)};
#undef HELPER_NAME

static int refuse_helper(size_t i, const struct code_insn *insn, struct refusal *r)
{
        if (insn->src != 0)
                return refuse(r, i, "kernel functions cannot be called on a GPU");
        if (insn->imm > 0 && (size_t)insn->imm < ARRAY_SIZE(helper_names) &&
            helper_names[insn->imm])
                return refuse(r, i, "helper bpf_%s() is not available on a GPU",
                              helper_names[insn->imm]);
        return refuse(r, i, "helper %d is not available on a GPU", insn->imm);
}

static int check_warp_wide(const struct code *code, size_t i, struct refusal *r)
{
        if (code->job->scope != DEVICE_SCOPE_THREAD)
                return refuse(r, i,
                              "a helper for whole warps in a program that one thread runs; its "
                              "scope must be .thread");
        if (code->divergent[i])
                return refuse(r, i,
                              "a helper for whole warps where lanes of a warp may have gone "
                              "different ways: it would wait for those that do not come");
        return 0;
}

/* A helper that gives a number of `bytes` bytes. */
static void set_result(struct flow_state *state, unsigned bytes, bool varying)
{
        state->regs[BPF_REG_0] = value_number(tnum_of_size(bytes));
        state->regs[BPF_REG_0].taint.varying = varying;
}

static int step_warp_wide(const struct code *code, size_t i, struct flow_state *state,
                          struct refusal *r)
{
        if (state->regs[BPF_REG_1].kind != VALUE_NUMBER)
                return refuse(r, i, "%s is used as a number", value_name(&state->regs[BPF_REG_1]));
        set_result(state, 4, false);
        return check_warp_wide(code, i, r);
}

static int step_count(size_t i, struct flow_state *state, struct refusal *r)
{
        const struct value *v = &state->regs[BPF_REG_1];

        if (v->kind != VALUE_NUMBER)
                return refuse(r, i, "%s is used as a number", value_name(v));
        state->regs[BPF_REG_0] = (struct value){
                .kind = VALUE_NUMBER, .taint = v->taint, .num = {.mask = 0x7f}, /* 0 to 64 */
        };
        return 0;
}

static int step_access(const struct code *code, size_t i, struct flow_state *state,
                       struct refusal *r)
{
        if (code->job->where != DEVICE_MEM)
                return refuse(r, i, "what a warp accesses is known in gpu/mem programs only");
        state->regs[BPF_REG_0] = (struct value){
                .kind = VALUE_NUMBER, .num = {.mask = 0x3f}, /* 1 to 32 */
        };
        return 0;
}

static int step_helper(const struct code *code, size_t i, struct flow_state *state,
                       struct refusal *r)
{
        const struct code_insn *insn = &code->insns[i];

        if (insn->src != 0)
                return refuse_helper(i, insn, r);
        if (insn_is_warp_wide(insn->imm))
                return step_warp_wide(code, i, state, r);
        if (insn_is_ring(insn->imm))
                return flow_step_ring(code, i, state, r);
        if (insn_is_print(insn->imm))
                return flow_step_print(code, i, state, r);
        switch (insn->imm) {
        case INSN_HELPER_MAP_LOOKUP:
        case INSN_HELPER_MAP_UPDATE:
        case INSN_HELPER_MAP_DELETE:
                return flow_step_map(code, i, state, r);
        case INSN_HELPER_GET_PRANDOM_U32:
                set_result(state, 4, true);
                return 0;
        case INSN_HELPER_KTIME_GET_NS:
                set_result(state, 8, true);
                return 0;
        case INSN_HELPER_GET_SMP_PROCESSOR_ID:
                set_result(state, 4, false);
                return 0;
        case INSN_HELPER_BITS:
        case INSN_HELPER_ONES:
                return step_count(i, state, r);
        case INSN_HELPER_SECTORS:
        case INSN_HELPER_LINES:
                return step_access(code, i, state, r);
        }
        return refuse_helper(i, insn, r);
}

int flow_step_call(const struct code *code, size_t i, struct flow_state *state, struct refusal *r)
{
        int error = step_helper(code, i, state, r);

        for (unsigned reg = BPF_REG_1; reg <= BPF_REG_5; reg++)
                state->regs[reg] = (struct value){};
        return error;
}

void flow_step_enter(const struct code *code, size_t i, struct flow_state *state)
{
        unsigned frame = code->insns[i].frame, fp = code_frame_pointer(frame);
        int64_t end = -(int64_t)frame * CODE_FRAME_BYTES;

        for (unsigned reg = fp - 4; reg < fp; reg++)
                state->regs[reg] = (struct value){};
        state->regs[fp] = (struct value){.kind = VALUE_STACK,
                                         .area = (uint8_t)FLOW_FRAME(frame),
                                         .num = tnum_const((uint64_t)end)};
        flow_stack_forget(state, end - CODE_FRAME_BYTES, end);
}

void flow_step_return(const struct code *code, size_t i, struct flow_state *state)
{
        unsigned fp = code_frame_pointer(code->insns[i].frame + 1);

        for (unsigned reg = BPF_REG_1; reg <= BPF_REG_5; reg++)
                state->regs[reg] = (struct value){};
        for (unsigned reg = fp - 4; reg <= fp; reg++)
                state->regs[reg] = (struct value){};
}
