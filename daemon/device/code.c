/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#include "device/code.h"
#include "device/insn.h"

/* A place in the list where the way back from a function leads. */
#define RETURN_TARGET UINT32_MAX

enum mark {
        MARK_NONE = 0, /* second half of a 64-bit constant */
        MARK_INSN,
        MARK_FUNCTION,
};

struct builder {
        const struct compile_job *job;
        struct code *code;
        uint8_t *marks; /* enum mark, for each instruction of the program */
        size_t room;
        uint32_t caller; /* of what is being added */
        struct refusal *refusal;
};

static int64_t jump_target(const struct bpf_insn *insns, size_t i)
{
        bool in_imm = insns[i].code == (BPF_JMP32 | BPF_JA) || insn_is_call(insns[i].code);

        return (int64_t)i + 1 + (in_imm ? insns[i].imm : insns[i].off);
}

static bool is_own_call(const struct bpf_insn *insn)
{
        return insn_is_call(insn->code) && insn->src_reg == BPF_PSEUDO_CALL;
}

static int mark_insns(struct builder *b)
{
        const struct bpf_insn *insns = b->job->insns;

        for (size_t i = 0; i < b->job->count; i++) {
                b->marks[i] = MARK_INSN;
                if (insns[i].dst_reg > BPF_REG_10 || insns[i].src_reg > BPF_REG_10)
                        return refuse(b->refusal, i, "unknown register");
                if (!insn_is_wide(insns[i].code))
                        continue;
                if (++i >= b->job->count)
                        return refuse(b->refusal, i - 1, "the program ends inside an instruction");
        }
        return 0;
}

static bool is_insn(const struct builder *b, int64_t at)
{
        return at >= 0 && at < (int64_t)b->job->count && b->marks[at] != MARK_NONE;
}

static int mark_functions(struct builder *b)
{
        const struct bpf_insn *insns = b->job->insns;

        b->marks[0] = MARK_FUNCTION;
        for (size_t i = 0; i < b->job->count; i++) {
                if (b->marks[i] == MARK_NONE || !is_own_call(&insns[i]))
                        continue;
                if (!is_insn(b, jump_target(insns, i)))
                        return refuse(b->refusal, i, "a call leads out of the program");
                b->marks[jump_target(insns, i)] = MARK_FUNCTION;
        }
        return 0;
}

/* The number of the helper that the function at `start` stands for, 0 when it is no stand-in. */
static unsigned intrinsic_number(const struct builder *b, size_t start)
{
        const struct bpf_insn *insn = &b->job->insns[start];
        uint64_t value;

        if (!insn_is_wide(insn->code) || insn->src_reg != 0 || insn->dst_reg != BPF_REG_0)
                return 0;
        value = (uint32_t)insn[0].imm | (uint64_t)(uint32_t)insn[1].imm << 32;
        return value > CODE_MARK && value - CODE_MARK <= 0xffff ? (unsigned)(value - CODE_MARK) : 0;
}

/* Elsewhere a mark would be an ordinary constant, and the stand-in taken for the helper. */
static int check_marks(struct builder *b)
{
        for (size_t i = 0; i < b->job->count; i++)
                if (b->marks[i] == MARK_INSN && intrinsic_number(b, i))
                        return refuse(b->refusal, i,
                                      "the mark of a helper of the GPU is not at the beginning of "
                                      "a function");
        return 0;
}

static size_t function_end(const struct builder *b, size_t start)
{
        size_t end = start + 1;

        while (end < b->job->count && b->marks[end] != MARK_FUNCTION)
                end++;
        return end;
}

static uint8_t frame_register(uint8_t reg, unsigned frame)
{
        return (uint8_t)(reg < BPF_REG_6 ? reg : reg + 5 * frame);
}

/* A new instruction at the end of the list, made from instruction i of the program. */
static int add(struct builder *b, enum code_kind kind, size_t i, unsigned frame,
               struct code_insn **ret_insn)
{
        const struct bpf_insn *from = &b->job->insns[i];
        bool keeps_src = insn_is_wide(from->code) || insn_is_call(from->code);
        struct code *c = b->code;

        if (c->count == CODE_MAX_INSNS)
                return refuse(b->refusal, i,
                              "the program has more than %d instructions with its functions put "
                              "in place of their calls",
                              CODE_MAX_INSNS);
        if (c->count == b->room) {
                size_t room = b->room ? 2 * b->room : 256;
                struct code_insn *insns = reallocarray(c->insns, room, sizeof(*insns));

                if (!insns)
                        return -ENOMEM;
                c->insns = insns;
                b->room = room;
        }
        *ret_insn = &c->insns[c->count++];
        **ret_insn = (struct code_insn){
                .kind = (uint8_t)kind,
                .code = from->code,
                .dst = frame_register(from->dst_reg, frame),
                .src = keeps_src ? from->src_reg : frame_register(from->src_reg, frame),
                .frame = (uint8_t)frame,
                .off = from->off,
                .imm = from->imm,
                .origin = (uint32_t)i,
                .caller = b->caller,
        };
        if (insn_is_wide(from->code))
                (*ret_insn)->imm_high = from[1].imm;
        if (frame >= c->frames)
                c->frames = frame + 1;
        return 0;
}

static int expand(struct builder *b, size_t start, unsigned frame);

static int expand_call(struct builder *b, size_t i, unsigned frame)
{
        uint32_t enter = (uint32_t)b->code->count, caller = b->caller;
        struct code_insn *insn;
        int error;

        if (frame + 1 == CODE_FRAMES)
                return refuse(b->refusal, i, "calls are nested more than %d deep, or recursive",
                              CODE_FRAMES - 1);
        error = add(b, CODE_ENTER, i, frame + 1, &insn);
        b->caller = enter;
        if (!error)
                error = expand(b, (size_t)jump_target(b->job->insns, i), frame + 1);
        b->caller = caller;
        if (error)
                return error;
        b->code->insns[enter].target = (uint32_t)b->code->count;
        return add(b, CODE_RETURN, i, frame, &insn);
}

static int expand_intrinsic(struct builder *b, size_t i, unsigned frame, unsigned number)
{
        struct code_insn *insn;
        int error = add(b, CODE_PLAIN, i, frame, &insn);

        if (error)
                return error;
        insn->src = 0;
        insn->imm = (int32_t)(CODE_INTRINSIC + number);
        b->code->warp_wide |= insn_is_warp_wide(insn->imm);
        return 0;
}

/* Give a call that reserves a record its own. */
static int number_record(struct builder *b, size_t i, struct code_insn *insn)
{
        if (b->code->records == CODE_RECORDS)
                return refuse(b->refusal, i, "more than %d places that reserve a record",
                              CODE_RECORDS);
        insn->off = (int16_t)b->code->records++;
        return 0;
}

static int expand_insn(struct builder *b, size_t i, unsigned frame)
{
        const struct bpf_insn *from = &b->job->insns[i];
        struct code_insn *insn;
        int error;

        if (is_own_call(from)) {
                unsigned number = intrinsic_number(b, (size_t)jump_target(b->job->insns, i));

                return number ? expand_intrinsic(b, i, frame, number) : expand_call(b, i, frame);
        }
        error = add(b, CODE_PLAIN, i, frame, &insn);
        if (error)
                return error;
        if (insn_is_exit(from->code) && frame > 0) {
                insn->code = BPF_JMP | BPF_JA;
                insn->target = RETURN_TARGET;
        }
        if (insn_is_call(from->code) && from->src_reg == 0 &&
            from->imm == INSN_HELPER_RINGBUF_RESERVE)
                return number_record(b, i, insn);
        return 0;
}

/* Set the jumps of a function whose instruction start + k stands at at[k] of the list. */
static int set_targets(struct builder *b, size_t start, size_t end, const uint32_t *at)
{
        for (size_t i = start; i < end; i++) {
                struct code_insn *insn = &b->code->insns[at[i - start]];
                int64_t target = jump_target(b->job->insns, i);

                if (b->marks[i] == MARK_NONE || insn->kind != CODE_PLAIN)
                        continue;
                if (insn->target == RETURN_TARGET) {
                        insn->target = (uint32_t)b->code->count;
                        continue;
                }
                if (!insn_is_goto(insn->code) && !insn_is_branch(insn->code))
                        continue;
                if (!is_insn(b, target) || target < (int64_t)start || target >= (int64_t)end)
                        return refuse(b->refusal, i, "a jump leads out of the program");
                insn->target = at[target - (int64_t)start];
        }
        return 0;
}

static int check_end(struct builder *b, size_t end)
{
        uint8_t last = b->job->insns[end - 1].code;

        if (b->marks[end - 1] != MARK_NONE && (insn_is_exit(last) || insn_is_goto(last)))
                return 0;
        return refuse(b->refusal, end - 1, "the program runs off its end");
}

/* Write the function that starts at `start`, for a frame. */
static int expand(struct builder *b, size_t start, unsigned frame)
{
        size_t end = function_end(b, start);
        uint32_t *at = calloc(end - start, sizeof(*at));
        int error = at ? check_end(b, end) : -ENOMEM;

        for (size_t i = start; !error && i < end; i++) {
                at[i - start] = (uint32_t)b->code->count;
                if (b->marks[i] != MARK_NONE)
                        error = expand_insn(b, i, frame);
        }
        if (!error)
                error = set_targets(b, start, end, at);
        free(at);
        return error;
}

int code_init(const struct compile_job *job, struct refusal *ret_refusal, struct code *ret_code)
{
        struct code code = {.job = job};
        struct builder b = {
                .job = job, .code = &code, .caller = CODE_NO_CALLER, .refusal = ret_refusal};
        int error;

        if (job->count == 0 || job->count > COMPILE_MAX_INSNS)
                return refuse(ret_refusal, 0, "the program has %zu instructions, not 1 to %d",
                              job->count, COMPILE_MAX_INSNS);
        b.marks = calloc(job->count, 1);
        error = b.marks ? mark_insns(&b) : -ENOMEM;
        if (!error)
                error = mark_functions(&b);
        if (!error)
                error = check_marks(&b);
        if (!error)
                error = expand(&b, 0, 0);
        if (!error) {
                code.divergent = calloc(code.count, sizeof(*code.divergent));
                error = code.divergent ? 0 : -ENOMEM;
        }
        free(b.marks);
        if (error) {
                code_done(&code);
                return error;
        }
        *ret_code = code;
        return 0;
}

void code_done(struct code *c)
{
        free(c->insns);
        free(c->divergent);
        *c = (struct code){};
}
