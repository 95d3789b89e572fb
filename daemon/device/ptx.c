/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "device/flow_step.h"
#include "device/insn.h"
#include "device/ptx.h"

unsigned ptx_wide(struct ptx_writer *w)
{
        return w->wides++;
}

unsigned ptx_word(struct ptx_writer *w)
{
        return w->words++;
}

unsigned ptx_predicate(struct ptx_writer *w)
{
        return w->predicates++;
}

const char *ptx_uniform(const struct ptx_writer *w)
{
        return w->job->scope == DEVICE_SCOPE_THREAD ? "" : ".uni";
}

bool ptx_exists(const struct ptx_writer *w, const struct value *v)
{
        if (v->kind == VALUE_STACK)
                return w->stack_in_memory;
        return v->kind == VALUE_NUMBER || v->kind == VALUE_ELEMENT;
}

void ptx_blur_word(struct ptx_writer *w, unsigned word)
{
        if (w->job->where != DEVICE_EXIT)
                return;
        w->uses_zero = true;
        ptx_line(w, "shf.l.wrap.b32 %%w%u, %%w%u, %%w%u, %%z", word, word, word);
}

void ptx_blur_wide(struct ptx_writer *w, unsigned wide)
{
        if (w->job->where == DEVICE_EXIT)
                ptx_blur_address(w, wide);
}

void ptx_blur_address(struct ptx_writer *w, unsigned wide)
{
        w->uses_zero = true;
        ptx_line(w, "or.b64 %%d%u, %%d%u, %%zl", wide, wide);
}

/* Jumps */

static const char *comparison(uint8_t op)
{
        switch (op) {
        case BPF_JEQ:
                return "eq.u";
        case BPF_JNE:
        case BPF_JSET:
                return "ne.u";
        case BPF_JLT:
                return "lt.u";
        case BPF_JLE:
                return "le.u";
        case BPF_JGT:
                return "gt.u";
        case BPF_JGE:
                return "ge.u";
        case BPF_JSLT:
                return "lt.s";
        case BPF_JSLE:
                return "le.s";
        case BPF_JSGT:
                return "gt.s";
        case BPF_JSGE:
                return "ge.s";
        }
        return NULL;
}

/* The condition of a branch in a new predicate. */
static unsigned write_condition64(struct ptx_writer *w, const struct bpf_insn *insn)
{
        struct ptx_operand b = ptx_operand64(w, insn);
        unsigned p = ptx_predicate(w), t;

        if (BPF_OP(insn->code) != BPF_JSET) {
                ptx_line(w, "setp.%s64 %%p%u, %%b%u, %s", comparison(BPF_OP(insn->code)), p,
                         insn->dst_reg, b.text);
                return p;
        }
        t = ptx_wide(w);
        ptx_line(w, "and.b64 %%d%u, %%b%u, %s", t, insn->dst_reg, b.text);
        ptx_line(w, "setp.ne.u64 %%p%u, %%d%u, 0", p, t);
        return p;
}

static unsigned write_condition32(struct ptx_writer *w, const struct bpf_insn *insn)
{
        unsigned a = ptx_low_half(w, insn->dst_reg), p = ptx_predicate(w);
        struct ptx_operand b = ptx_operand32(w, insn);

        if (BPF_OP(insn->code) == BPF_JSET) {
                ptx_line(w, "and.b32 %%w%u, %%w%u, %s", a, a, b.text);
                ptx_line(w, "setp.ne.u32 %%p%u, %%w%u, 0", p, a);
        } else {
                ptx_line(w, "setp.%s32 %%p%u, %%w%u, %s", comparison(BPF_OP(insn->code)), p, a,
                         b.text);
        }
        return p;
}

/* The first instruction at or after i that can be reached; the count when there is none. */
static size_t next_reached(const struct ptx_writer *w, size_t i)
{
        while (i < w->job->count && !flow_block(w->flow, i))
                i++;
        return i;
}

/* Go to instruction `target` from the end of the block at i. */
static void write_goto(struct ptx_writer *w, size_t i, size_t target)
{
        if (next_reached(w, i + 1) != target)
                ptx_line(w, "bra%s G@U@_%zu", ptx_uniform(w), target);
}

static void write_branch(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        const struct bpf_insn *insn = &w->job->insns[i];
        size_t target = (size_t)insn_target(w->job->insns, i);
        unsigned p;

        switch (flow_decide(w->job, i, before)) {
        case FLOW_TAKEN:
                write_goto(w, i, target);
                return;
        case FLOW_NOT_TAKEN:
                return;
        case FLOW_EITHER:
                break;
        }
        p = insn_is_64bit(insn) ? write_condition64(w, insn) : write_condition32(w, insn);
        ptx_line(w, "@%%p%u bra%s G@U@_%zu", p, ptx_uniform(w), target);
}

static void write_exit(struct ptx_writer *w, size_t i)
{
        if (next_reached(w, i + 1) < w->job->count)
                ptx_line(w, "bra%s G@U@_end", ptx_uniform(w));
}

/* Body */

static void write_comment(struct ptx_writer *w, size_t i)
{
        const char *line = w->job->line ? w->job->line(w->job->line_data, i) : NULL;

        if (line)
                text_add(&w->body, "\t// %s\n", line);
}

/* Write one instruction that is no jump, and step the state over it. */
static void write_plain(struct ptx_writer *w, size_t i, struct flow_state *state)
{
        const struct bpf_insn *insn = &w->job->insns[i];
        struct flow_state before = *state;
        struct refusal ignored;

        flow_step(w->job, i, state, &ignored);
        if (insn_is_wide(insn) || insn_is_alu(insn))
                ptx_alu(w, i, &before, state);
        else if (insn_is_load(insn))
                ptx_load(w, i, &before, state);
        else if (insn_is_store(insn))
                ptx_store(w, i, &before);
        else if (insn_is_atomic(insn))
                ptx_atomic(w, i, &before);
        else if (insn_is_call(insn))
                ptx_call(w, i, &before);
}

static void write_insn(struct ptx_writer *w, size_t i, struct flow_state *state)
{
        const struct bpf_insn *insn = &w->job->insns[i];

        if (insn_is_jump_class(insn) && !insn_is_call(insn))
                ptx_flush(w);
        if (insn_is_exit(insn))
                write_exit(w, i);
        else if (insn_is_goto(insn))
                write_goto(w, i, (size_t)insn_target(w->job->insns, i));
        else if (insn_is_branch(insn))
                write_branch(w, i, state);
        else
                write_plain(w, i, state);
}

static void write_body(struct ptx_writer *w)
{
        const struct bpf_insn *insns = w->job->insns;
        struct flow_state state;
        bool reached = false;

        for (size_t i = 0; i < w->job->count; i += insn_is_wide(&insns[i]) ? 2 : 1) {
                if (flow_block(w->flow, i)) {
                        ptx_flush(w);
                        state = *flow_block(w->flow, i);
                        reached = true;
                }
                if (!reached)
                        continue;
                if (flow_is_label(w->flow, i))
                        text_add(&w->body, "G@U@_%zu:\n", i);
                write_comment(w, i);
                write_insn(w, i, &state);
                if (insn_is_jump_class(&insns[i]) && !insn_is_call(&insns[i]))
                        reached = false;
        }
}

/* Leader election */

/* Leave unless every one of the special registers is 0. Their OR goes into %z. */
static void write_zero_test(struct text *t, const char *const *registers, size_t count,
                            unsigned predicate)
{
        text_add(t, "\tmov.u32 %%zt, %s;\n", registers[0]);
        for (size_t i = 1; i < count; i++) {
                text_add(t, "\tmov.u32 %%zu, %s;\n", registers[i]);
                text_add(t, "\tor.b32 %%zt, %%zt, %%zu;\n");
        }
        text_add(t, "\tsetp.ne.u32 %%zp%u, %%zt, 0;\n", predicate);
        text_add(t, "\t@%%zp%u bra G@U@_end;\n", predicate);
        text_add(t, "\tor.b32 %%z, %%z, %%zt;\n");
}

/*
 * Most threads fail the first test, so it reads one register only; the rest is
 * read by the few that pass.
 */
static void write_leader_grid(struct text *t)
{
        static const char *const first[] = {"%ctaid.x"};
        static const char *const blocks[] = {"%ctaid.y", "%ctaid.z"};
        static const char *const threads[] = {"%tid.x", "%tid.y", "%tid.z"};

        text_add(t, "\tmov.u32 %%z, 0;\n");
        write_zero_test(t, first, ARRAY_SIZE(first), 0);
        write_zero_test(t, blocks, ARRAY_SIZE(blocks), 1);
        write_zero_test(t, threads, ARRAY_SIZE(threads), 2);
}

static void write_leader_block(struct text *t)
{
        static const char *const first[] = {"%tid.x"};
        static const char *const rest[] = {"%tid.y", "%tid.z"};

        text_add(t, "\tmov.u32 %%z, 0;\n");
        write_zero_test(t, first, ARRAY_SIZE(first), 0);
        write_zero_test(t, rest, ARRAY_SIZE(rest), 1);
}

/* The lowest active lane: no active lane is below it. */
static void write_leader_warp(struct text *t)
{
        text_add(t, "\tmov.u32 %%zt, %%lanemask_lt;\n");
        text_add(t, "\tactivemask.b32 %%zu;\n");
        text_add(t, "\tand.b32 %%z, %%zt, %%zu;\n");
        text_add(t, "\tsetp.ne.u32 %%zp0, %%z, 0;\n");
        text_add(t, "\t@%%zp0 bra G@U@_end;\n");
}

/* Everybody runs; a lane is never below itself, which the assembler does not know. */
static void write_leader_thread(struct text *t)
{
        text_add(t, "\tmov.u32 %%zt, %%lanemask_lt;\n");
        text_add(t, "\tmov.u32 %%zu, %%lanemask_eq;\n");
        text_add(t, "\tand.b32 %%z, %%zt, %%zu;\n");
}

static void write_leader(struct text *t, enum device_scope scope)
{
        switch (scope) {
        case DEVICE_SCOPE_GRID:
                write_leader_grid(t);
                break;
        case DEVICE_SCOPE_BLOCK:
                write_leader_block(t);
                break;
        case DEVICE_SCOPE_WARP:
                write_leader_warp(t);
                break;
        case DEVICE_SCOPE_THREAD:
                write_leader_thread(t);
                break;
        }
}

/* Fragment */

static void write_declarations(const struct ptx_writer *w, struct text *t)
{
        text_add(t, "\t.reg .pred %%zp<3>;\n\t.reg .b32 %%z, %%zt, %%zu;\n\t.reg .b64 %%zl;\n");
        text_add(t, "\t.reg .b64 %%b<11>;\n");
        if (w->wides)
                text_add(t, "\t.reg .b64 %%d<%u>;\n", w->wides);
        if (w->words)
                text_add(t, "\t.reg .b32 %%w<%u>;\n", w->words);
        if (w->predicates)
                text_add(t, "\t.reg .pred %%p<%u>;\n", w->predicates);
        if (w->slots)
                text_add(t, "\t.reg .b64 %%s<64>;\n");
        if (w->uses_active_mask)
                text_add(t, "\t.reg .b32 %%am;\n");
        if (w->stack_in_memory)
                text_add(t, "\t.local .align 8 .b8 gpuobs_stack@U@[%d];\n", FLOW_STACK_BYTES);
}

static void write_start(const struct ptx_writer *w, struct text *t)
{
        if (w->uses_active_mask)
                text_add(t, "\tactivemask.b32 %%am;\n");
        if (w->job->scope != DEVICE_SCOPE_THREAD || w->uses_zero)
                write_leader(t, w->job->scope);
        if (w->uses_zero)
                text_add(t, "\tcvt.u64.u32 %%zl, %%z;\n");
        if (w->stack_in_memory) {
                text_add(t, "\tmov.u64 %%b10, gpuobs_stack@U@;\n");
                text_add(t, "\tadd.s64 %%b10, %%b10, %d;\n", FLOW_STACK_BYTES);
        }
        for (unsigned i = 0; i < 64; i++)
                if (w->slots >> i & 1)
                        text_add(t, "\tmov.b64 %%s%u, 0;\n", i);
}

static int assemble(struct ptx_writer *w, struct text *t)
{
        text_add(t, "{\n");
        write_declarations(w, t);
        write_start(w, t);
        if (w->body.data)
                text_add(t, "%s", w->body.data);
        text_add(t, "G@U@_end:\n}\n");
        return t->failed || w->body.failed ? -ENOMEM : 0;
}

int device_compile(const struct compile_job *job, struct refusal *ret_refusal, struct text *ret_ptx)
{
        struct ptx_writer w = {.job = job};
        struct flow *flow;
        int error = flow_new(job, ret_refusal, &flow);

        if (error)
                return error;
        w.flow = flow;
        w.stack_in_memory = flow_stack_in_memory(flow);
        write_body(&w);
        error = assemble(&w, ret_ptx);
        text_done(&w.body);
        flow_free(flow);
        return error;
}
