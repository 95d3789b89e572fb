/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "device/cost.h"
#include "device/flow_step.h"
#include "device/insn.h"
#include "device/ptx.h"

#define SECTOR_SHIFT 5
#define LINE_SHIFT   7

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
                return w->stack_addresses;
        return v->kind == VALUE_NUMBER || v->kind == VALUE_ELEMENT;
}

void ptx_blur_word(struct ptx_writer *w, unsigned word)
{
        if (w->job->where == DEVICE_ENTRY)
                return;
        w->uses_zero = true;
        ptx_line(w, "shf.l.wrap.b32 %%w%u, %%w%u, %%w%u, %%z", word, word, word);
}

void ptx_blur_wide(struct ptx_writer *w, unsigned wide)
{
        if (w->job->where != DEVICE_ENTRY)
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
static unsigned write_condition64(struct ptx_writer *w, const struct code_insn *insn)
{
        struct ptx_operand b = ptx_operand64(w, insn);
        unsigned p = ptx_predicate(w), t;

        if (BPF_OP(insn->code) != BPF_JSET) {
                ptx_line(w, "setp.%s64 %%p%u, %%b%u, %s", comparison(BPF_OP(insn->code)), p,
                         insn->dst, b.text);
                return p;
        }
        t = ptx_wide(w);
        ptx_line(w, "and.b64 %%d%u, %%b%u, %s", t, insn->dst, b.text);
        ptx_line(w, "setp.ne.u64 %%p%u, %%d%u, 0", p, t);
        return p;
}

static unsigned write_condition32(struct ptx_writer *w, const struct code_insn *insn)
{
        unsigned a = ptx_low_half(w, insn->dst), p = ptx_predicate(w);
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
        while (i < w->code->count && !flow_is_reached(w->flow, i))
                i++;
        return i;
}

/* Go to instruction `target` from the end of the block at i. */
static void write_goto(struct ptx_writer *w, size_t i, size_t target)
{
        if (next_reached(w, i + 1) == target)
                return;
        if (target > i)
                ptx_enter_loop(w, target);
        ptx_line(w, "bra%s G@U@_%zu", ptx_uniform(w), target);
}

static void write_branch(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        const struct code_insn *insn = &w->code->insns[i];
        size_t target = insn->target;
        unsigned p;

        switch (flow_decide(w->code, i, before)) {
        case FLOW_TAKEN:
                write_goto(w, i, target);
                return;
        case FLOW_NOT_TAKEN:
                return;
        case FLOW_EITHER:
                break;
        }
        if (target > i)
                ptx_enter_loop(w, target);
        p = insn_is_64bit(insn->code) ? write_condition64(w, insn) : write_condition32(w, insn);
        ptx_line(w, "@%%p%u bra%s G@U@_%zu", p, ptx_uniform(w), target);
}

static void write_exit(struct ptx_writer *w, size_t i)
{
        if (next_reached(w, i + 1) < w->code->count)
                ptx_line(w, "bra%s G@U@_end", ptx_uniform(w));
}

/* Body */

static void write_comment(struct ptx_writer *w, size_t i)
{
        const char *line =
                w->job->line ? w->job->line(w->job->data, w->code->insns[i].origin) : NULL;

        if (line)
                text_add(&w->body, "\t// %s\n", line);
}

/* A function's stack frame begins. */
static void write_enter(struct ptx_writer *w, size_t i)
{
        unsigned fp = code_frame_pointer(w->code->insns[i].frame);

        if (w->stack_addresses)
                ptx_line(w, "sub.s64 %%b%u, %%b%u, %d", fp, fp - 5, CODE_FRAME_BYTES);
}

/* Write one instruction that is no jump, and step the state over it. */
static void write_plain(struct ptx_writer *w, size_t i)
{
        uint8_t opcode = w->code->insns[i].code;
        struct refusal ignored;

        flow_state_set(w->before, w->state);
        flow_step(w->code, i, w->state, &ignored);
        if (w->code->insns[i].kind == CODE_ENTER)
                write_enter(w, i);
        else if (w->code->insns[i].kind == CODE_RETURN)
                return;
        else if (insn_is_wide(opcode) || insn_is_alu(opcode))
                ptx_alu(w, i, w->before, w->state);
        else if (insn_is_load(opcode))
                ptx_load(w, i, w->before, w->state);
        else if (insn_is_store(opcode))
                ptx_store(w, i, w->before);
        else if (insn_is_atomic(opcode))
                ptx_atomic(w, i, w->before);
        else if (insn_is_call(opcode))
                ptx_call(w, i, w->before);
}

static bool is_jump(const struct code_insn *insn)
{
        return insn->kind == CODE_PLAIN && insn_is_jump_class(insn->code) &&
               !insn_is_call(insn->code);
}

static void write_insn(struct ptx_writer *w, size_t i)
{
        const struct code_insn *insn = &w->code->insns[i];

        if (!is_jump(insn)) {
                write_plain(w, i);
                return;
        }
        ptx_flush(w);
        if (insn_is_exit(insn->code))
                write_exit(w, i);
        else if (insn_is_goto(insn->code))
                write_goto(w, i, insn->target);
        else
                write_branch(w, i, w->state);
}

static void write_body(struct ptx_writer *w)
{
        for (size_t i = 0; i < w->code->count; i++) {
                if (!flow_is_reached(w->flow, i))
                        continue;
                if (flow_block(w->flow, i)) {
                        ptx_flush(w);
                        ptx_enter_loop(w, i);
                        flow_state_set(w->state, flow_block(w->flow, i));
                }
                w->insn = i;
                if (flow_is_label(w->flow, i))
                        text_add(&w->body, "G@U@_%zu:\n", i);
                write_comment(w, i);
                write_insn(w, i);
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

/* All at once: the leader, whom the others wait for, would ask for y and z in a second turn. */
static void write_leader_block(struct text *t)
{
        static const char *const threads[] = {"%tid.x", "%tid.y", "%tid.z"};

        text_add(t, "\tmov.u32 %%z, 0;\n");
        write_zero_test(t, threads, ARRAY_SIZE(threads), 0);
}

/*
 * The lowest active lane: no active lane is below it. Elsewhere than at entries the mask must
 * not be in a uniform register: it is rotated by a zero that depends on the lane.
 */
static void write_leader_warp(struct text *t, enum device_where where)
{
        text_add(t, "\tmov.u32 %%zt, %%lanemask_lt;\n");
        text_add(t, "\tactivemask.b32 %%zu;\n");
        if (where != DEVICE_ENTRY) {
                text_add(t, "\tmov.u32 %%z, %%lanemask_eq;\n");
                text_add(t, "\tand.b32 %%z, %%z, %%zt;\n");
                text_add(t, "\tshf.l.wrap.b32 %%zu, %%zu, %%zu, %%z;\n");
        }
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

/* That who goes on has a zero there some assemblers find out: another that they do not. */
static void write_unknown_zero(struct text *t, enum device_where where)
{
        if (where == DEVICE_ENTRY)
                return;
        text_add(t, "\t@O@mov.u32 %%zt, %%lanemask_lt;\n");
        text_add(t, "\t@O@mov.u32 %%zu, %%lanemask_eq;\n");
        text_add(t, "\t@O@and.b32 %%z, %%zt, %%zu;\n");
}

static void write_leader(struct text *t, enum device_where where, enum device_scope scope)
{
        switch (scope) {
        case DEVICE_SCOPE_GRID:
                write_leader_grid(t);
                write_unknown_zero(t, where);
                break;
        case DEVICE_SCOPE_BLOCK:
                write_leader_block(t);
                write_unknown_zero(t, where);
                break;
        case DEVICE_SCOPE_WARP:
                write_leader_warp(t, where);
                write_unknown_zero(t, where);
                break;
        case DEVICE_SCOPE_THREAD:
                write_leader_thread(t);
                break;
        }
}

/* Accesses of memory */

/*
 * How many different pieces of 2^shift bytes the lanes access: as many as there are lanes
 * with none below them that accesses the same. No access reaches over the end of one, as
 * all are aligned and have at most as many bytes as a sector.
 */
static void write_distinct(struct text *t, const char *count, unsigned shift)
{
        text_add(t, "\tshr.u64 %%mt, %%ma, %u;\n", shift);
        text_add(t, "\tmatch.any.sync.b64 %s, %%mt, %%am;\n", count);
        text_add(t, "\tmov.u32 %%zt, %%lanemask_lt;\n");
        text_add(t, "\tand.b32 %s, %s, %%zt;\n", count, count);
        text_add(t, "\tsetp.eq.u32 %%zp2, %s, 0;\n", count);
        text_add(t, "\tvote.sync.ballot.b32 %s, %%zp2, %%am;\n", count);
        text_add(t, "\tpopc.b32 %s, %s;\n", count, count);
}

static void write_access(const struct ptx_writer *w, struct text *t)
{
        if (w->uses_address)
                text_add(t, "\tmov.b64 %%ma, @A@;\n");
        if (w->uses_access)
                text_add(t, "\tmov.u32 %%ms, @S@;\n");
        if (w->uses_sectors)
                write_distinct(t, "%ns", SECTOR_SHIFT);
        if (w->uses_lines)
                write_distinct(t, "%nl", LINE_SHIFT);
}

/* Fragment */

/* One more than the last slot in use. */
static unsigned last_slot(const struct ptx_writer *w)
{
        unsigned n = PTX_SLOTS;

        while (n && !ptx_slot_used(w, n - 1))
                n--;
        return n;
}

static void write_declarations(const struct ptx_writer *w, struct text *t)
{
        text_add(t, "\t.reg .pred %%zp<3>;\n\t.reg .b32 %%z, %%zt, %%zu;\n\t.reg .b64 %%zl;\n");
        text_add(t, "\t.reg .b64 %%b<%u>;\n", code_frame_pointer(w->code->frames - 1) + 1);
        if (w->wides)
                text_add(t, "\t.reg .b64 %%d<%u>;\n", w->wides);
        if (w->words)
                text_add(t, "\t.reg .b32 %%w<%u>;\n", w->words);
        if (w->predicates)
                text_add(t, "\t.reg .pred %%p<%u>;\n", w->predicates);
        if (last_slot(w))
                text_add(t, "\t.reg .b64 %%s<%u>;\n", last_slot(w));
        if (w->uses_active_mask)
                text_add(t, "\t.reg .b32 %%am;\n");
        if (w->uses_address)
                text_add(t, "\t.reg .b64 %%ma;\n");
        if (w->uses_access)
                text_add(t, "\t.reg .b32 %%ms;\n");
        if (w->uses_sectors || w->uses_lines)
                text_add(t, "\t.reg .b32 %%ns, %%nl;\n\t.reg .b64 %%mt;\n");
        if (w->stack_in_memory)
                text_add(t, "\t.local .align 8 .b8 gpuobs_stack@U@[%u];\n",
                         code_stack_bytes(w->code));
}

static void write_start(const struct ptx_writer *w, struct text *t)
{
        if (w->uses_active_mask)
                text_add(t, "\tactivemask.b32 %%am;\n");
        write_access(w, t);
        if (w->job->scope != DEVICE_SCOPE_THREAD || w->uses_zero)
                write_leader(t, w->job->where, w->job->scope);
        if (w->uses_zero)
                text_add(t, "\tcvt.u64.u32 %%zl, %%z;\n");
        if (w->stack_in_memory) {
                text_add(t, "\tmov.u64 %%b10, gpuobs_stack@U@;\n");
                text_add(t, "\tadd.s64 %%b10, %%b10, %u;\n", code_stack_bytes(w->code));
        } else if (w->stack_addresses) {
                text_add(t, "\tmov.u64 %%b10, 0;\n"); /* distances from the end */
        }
        for (unsigned i = 0; i < PTX_SLOTS; i++)
                if (ptx_slot_used(w, i))
                        text_add(t, "\tmov.b64 %%s%u, 0;\n", i);
}

static unsigned count_lines(const struct text *t)
{
        unsigned n = 0;

        for (size_t i = 0; i < t->size; i++)
                n += t->data[i] == '\n';
        return n;
}

static int write_parts(struct ptx_writer *w)
{
        w->state = flow_state_copy(flow_block(w->flow, 0));
        w->before = flow_state_copy(flow_block(w->flow, 0));
        if (!w->state || !w->before)
                return -ENOMEM;
        write_body(w);
        write_start(w, &w->start);
        w->costs[0].instructions += count_lines(&w->start);
        return w->body.failed || w->start.failed ? -ENOMEM : 0;
}

static void drop_parts(struct ptx_writer *w)
{
        text_done(&w->body);
        text_done(&w->start);
        free(w->before);
        free(w->state);
}

/* Once more from the beginning, with the stack in memory. */
static int write_in_memory(struct ptx_writer *w)
{
        drop_parts(w);
        memset(w->costs, 0, w->code->count * sizeof(*w->costs));
        *w = (struct ptx_writer){.job = w->job,
                                 .code = w->code,
                                 .flow = w->flow,
                                 .loops = w->loops,
                                 .stack_addresses = true,
                                 .stack_in_memory = true,
                                 .costs = w->costs};
        return write_parts(w);
}

static int assemble(const struct ptx_writer *w, const struct device_cost *cost, struct text *t)
{
        text_add(t, "{\n");
        if (cost->instructions)
                text_add(t,
                         "\t// at most %" PRIu64 " instructions, %" PRIu64
                         " memory operations, %" PRIu64 " atomics\n",
                         cost->instructions, cost->memory, cost->atomics);
        write_declarations(w, t);
        if (w->start.data)
                text_add(t, "%s", w->start.data);
        if (w->body.data)
                text_add(t, "%s", w->body.data);
        text_add(t, "G@U@_end:\n}\n");
        return t->failed ? -ENOMEM : 0;
}

static bool is_over(const struct device_cost *cost, const struct device_cost *budget)
{
        return cost->instructions > budget->instructions || cost->memory > budget->memory ||
               cost->atomics > budget->atomics;
}

/* Add up the cost and hold it against the budget. */
static int judge_cost(const struct ptx_writer *w, struct refusal *r, struct device_cost *ret_cost)
{
        const struct device_cost *budget = w->job->budget;
        size_t worst;
        int error = cost_bound(w->code, w->flow, w->costs, w->job->verified, ret_cost, &worst);

        if (error == -EOVERFLOW) {
                *ret_cost = (struct device_cost){};
                if (!budget)
                        return 0;
                return refuse(r, worst,
                              "a loop, and the kernel does not say how often it goes round");
        }
        if (error || !budget || !is_over(ret_cost, budget))
                return error;
        return refuse(r, worst,
                      "an event may cost %" PRIu64 " instructions, %" PRIu64
                      " memory operations, %" PRIu64 " atomics, more than its budget of %" PRIu64
                      ", %" PRIu64 ", %" PRIu64 "; most of it here",
                      ret_cost->instructions, ret_cost->memory, ret_cost->atomics,
                      budget->instructions, budget->memory, budget->atomics);
}

static int write_program(struct ptx_writer *w, struct refusal *ret_refusal, struct text *ret_ptx,
                         struct device_cost *ret_cost)
{
        int error;

        w->costs = calloc(w->code->count, sizeof(*w->costs));
        if (!w->costs)
                return -ENOMEM;
        w->stack_addresses = flow_stack_is_indexed(w->flow);
        error = ptx_find_loops(w);
        if (!error)
                error = write_parts(w);
        if (!error && w->stack_is_wide)
                error = write_in_memory(w);
        if (!error)
                error = judge_cost(w, ret_refusal, ret_cost);
        if (!error)
                error = assemble(w, ret_cost, ret_ptx);
        drop_parts(w);
        free(w->costs);
        free(w->loops);
        return error;
}

static int compile(const struct compile_job *job, const struct code *code,
                   struct refusal *ret_refusal, struct text *ret_ptx, struct device_cost *ret_cost)
{
        struct ptx_writer w = {.job = job, .code = code};
        struct flow *flow = NULL;
        int error = flow_new(code, ret_refusal, &flow);

        w.flow = flow;
        if (!error)
                error = write_program(&w, ret_refusal, ret_ptx, ret_cost);
        if (error == -ENOTSUP)
                ret_refusal->insn = code->insns[ret_refusal->insn].origin;
        flow_free(flow);
        return error;
}

int device_compile(const struct compile_job *job, struct refusal *ret_refusal, struct text *ret_ptx,
                   struct device_cost *ret_cost)
{
        struct code code;
        int error = code_init(job, ret_refusal, &code);

        if (error)
                return error;
        error = compile(job, &code, ret_refusal, ret_ptx, ret_cost);
        code_done(&code);
        return error;
}
