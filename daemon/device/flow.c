/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/flow.h"
#include "device/flow_diverge.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

/* What the states of a program may take: that of a block has the stacks of all its functions. */
#define STATES_MAX_BYTES (128 << 20)

/* Outcomes of a branch that were found possible. */
enum {
        BRANCH_TAKEN = 1,
        BRANCH_NOT_TAKEN = 2,
        BRANCH_VARIES = 4, /* between lanes */
};

struct flow {
        const struct code *code;
        struct flow_state **blocks; /* state at the start of each block that is reached */
        bool *starts;               /* where blocks start by the shape of the program */
        bool *labels;
        bool *reached;
        uint8_t *branches; /* set of BRANCH_ values */
        size_t *work;      /* blocks to walk again; at most one entry each */
        bool *queued;
        size_t work_count;
        size_t block_count; /* that are reached */
        bool stack_indexed;
};

static size_t state_bytes(unsigned cells)
{
        return sizeof(struct flow_state) + cells * sizeof(struct cell);
}

static struct flow_state *state_new(const struct code *code)
{
        unsigned cells = code_stack_bytes(code) / 4;
        struct flow_state *s = calloc(1, state_bytes(cells));

        if (s)
                s->cells = cells;
        return s;
}

void flow_state_set(struct flow_state *s, const struct flow_state *from)
{
        memcpy(s, from, state_bytes(from->cells));
}

struct flow_state *flow_state_copy(const struct flow_state *s)
{
        struct flow_state *copy = malloc(state_bytes(s->cells));

        if (copy)
                flow_state_set(copy, s);
        return copy;
}

/* What is reserved on one way is so where the ways meet. */
static bool records_join(struct flow_state *into, const struct flow_state *from)
{
        bool changed = false;

        for (unsigned n = 0; n < CODE_RECORDS; n++) {
                if (into->records[n].live || !from->records[n].live)
                        continue;
                into->records[n] = from->records[n];
                changed = true;
        }
        return changed;
}

static bool state_join(struct flow_state *into, const struct flow_state *from)
{
        bool changed = records_join(into, from);

        for (unsigned r = 0; r < CODE_REGISTERS; r++)
                changed |= value_join(&into->regs[r], &from->regs[r]);
        return flow_stack_join(into, from) || changed;
}

static void queue(struct flow *f, size_t i)
{
        if (f->queued[i])
                return;
        f->queued[i] = true;
        f->work[f->work_count++] = i;
}

/* `state` reaches the block at i. */
static int reach(struct flow *f, size_t i, const struct flow_state *state)
{
        if (!f->blocks[i]) {
                if (++f->block_count > STATES_MAX_BYTES / state_bytes(state->cells))
                        return -E2BIG;
                f->blocks[i] = flow_state_copy(state);
                if (!f->blocks[i])
                        return -ENOMEM;
                queue(f, i);
        } else if (state_join(f->blocks[i], state)) {
                queue(f, i);
        }
        return 0;
}

/* Mark jump targets and what follows branches. */
static void mark_starts(struct flow *f)
{
        const struct code *code = f->code;

        f->starts[0] = true;
        for (size_t i = 0; i < code->count; i++) {
                const struct code_insn *insn = &code->insns[i];

                if (insn->kind != CODE_PLAIN ||
                    (!insn_is_goto(insn->code) && !insn_is_branch(insn->code)))
                        continue;
                f->starts[insn->target] = true;
                if (i + 1 < code->count)
                        f->starts[i + 1] = true;
        }
}

static int jump(struct flow *f, size_t i, const struct flow_state *state)
{
        size_t target = f->code->insns[i].target;

        f->labels[target] = true;
        return reach(f, target, state);
}

/* Follow one outcome of a branch, if it is possible. */
static int walk_outcome(struct flow *f, size_t i, bool taken, const struct flow_state *state)
{
        _cleanup_free_ struct flow_state *narrowed = flow_state_copy(state);

        if (!narrowed)
                return -ENOMEM;
        if (!flow_refine(f->code, i, taken, narrowed))
                return 0;
        f->branches[i] |= taken ? BRANCH_TAKEN : BRANCH_NOT_TAKEN;
        return taken ? jump(f, i, narrowed) : reach(f, i + 1, narrowed);
}

/* Follow a branch both ways as far as they are possible. */
static int walk_branch(struct flow *f, size_t i, const struct flow_state *state, struct refusal *r)
{
        int error = flow_check_branch(f->code, i, state, r);
        enum flow_branch known;

        if (error)
                return error;
        known = flow_decide(f->code, i, state);
        if (state->regs[f->code->insns[i].dst].taint.varying ||
            flow_operand(f->code, i, state).taint.varying)
                f->branches[i] |= BRANCH_VARIES;
        if (known != FLOW_NOT_TAKEN)
                error = walk_outcome(f, i, true, state);
        if (!error && known != FLOW_TAKEN)
                error = walk_outcome(f, i, false, state);
        return error;
}

/* Walk the block at `start` to its end and hand its state on. */
static int walk(struct flow *f, size_t start, struct flow_state *state, struct refusal *r)
{
        const struct code *code = f->code;

        for (size_t i = start;;) {
                const struct code_insn *insn = &code->insns[i];
                bool plain = insn->kind == CODE_PLAIN;
                int error;

                f->reached[i] = true;
                if (plain && insn_is_exit(insn->code))
                        return 0;
                if (plain && insn_is_goto(insn->code))
                        return jump(f, i, state);
                if (plain && insn_is_branch(insn->code))
                        return walk_branch(f, i, state, r);
                error = flow_step(code, i, state, r);
                if (error)
                        return error;
                f->stack_indexed |= flow_stack_is_unknown(code, i, state);
                /* A program ends with a jump, or code_init() would have refused it. */
                if (f->starts[++i])
                        return reach(f, i, state);
        }
}

static int walk_all(struct flow *f, struct refusal *r)
{
        _cleanup_free_ struct flow_state *state = state_new(f->code);
        int error;

        if (!state)
                return -ENOMEM;
        state->regs[BPF_REG_1] = (struct value){.kind = VALUE_CONTEXT};
        state->regs[BPF_REG_10] = (struct value){.kind = VALUE_STACK, .area = FLOW_FRAME(0)};
        error = reach(f, 0, state);
        while (!error && f->work_count) {
                size_t i = f->work[--f->work_count];

                f->queued[i] = false;
                flow_state_set(state, f->blocks[i]);
                error = walk(f, i, state, r);
        }
        return error;
}

static int flow_allocate(struct flow *f)
{
        size_t n = f->code->count;

        f->blocks = calloc(n, sizeof(*f->blocks));
        f->starts = calloc(n, sizeof(*f->starts));
        f->labels = calloc(n, sizeof(*f->labels));
        f->reached = calloc(n, sizeof(*f->reached));
        f->branches = calloc(n, sizeof(*f->branches));
        f->work = calloc(n, sizeof(*f->work));
        f->queued = calloc(n, sizeof(*f->queued));
        return f->blocks && f->starts && f->labels && f->reached && f->branches && f->work &&
                               f->queued
                       ? 0
                       : -ENOMEM;
}

/* Whether paths that meet disagree about a stack address. */
static bool stack_addresses_differ(const struct flow *f)
{
        for (size_t i = 0; i < f->code->count; i++) {
                if (!f->blocks[i])
                        continue;
                for (unsigned r = 0; r < CODE_REGISTERS; r++) {
                        const struct value *v = &f->blocks[i]->regs[r];

                        if (v->kind == VALUE_STACK && !tnum_is_const(v->num))
                                return true;
                }
        }
        return false;
}

/* Forget what was found, to begin again. */
static void reset(struct flow *f)
{
        size_t n = f->code->count;

        for (size_t i = 0; i < n; i++)
                free(f->blocks[i]);
        memset(f->blocks, 0, n * sizeof(*f->blocks));
        memset(f->labels, 0, n * sizeof(*f->labels));
        memset(f->reached, 0, n * sizeof(*f->reached));
        memset(f->branches, 0, n * sizeof(*f->branches));
        f->block_count = 0;
        f->stack_indexed = false;
}

/* Values set where lanes are apart differ between them, which may part lanes elsewhere. */
static int walk_apart(struct flow *f, struct refusal *r)
{
        bool changed = true;
        int error = 0;

        while (!error && changed) {
                error = flow_find_divergent(f->code, f, &changed);
                if (error || !changed)
                        break;
                reset(f);
                error = walk_all(f, r);
        }
        return error;
}

int flow_new(const struct code *code, struct refusal *ret_refusal, struct flow **ret_flow)
{
        struct flow *f = calloc(1, sizeof(*f));
        int error;

        if (!f)
                return -ENOMEM;
        f->code = code;
        error = flow_allocate(f);
        if (!error) {
                mark_starts(f);
                error = walk_all(f, ret_refusal);
        }
        if (!error && code->warp_wide)
                error = walk_apart(f, ret_refusal);
        if (error) {
                flow_free(f);
                if (error == -E2BIG)
                        return refuse(
                                ret_refusal, 0,
                                "the program has too many branches and functions in functions "
                                "to be followed in %d MiB of memory",
                                STATES_MAX_BYTES >> 20);
                return error;
        }
        f->stack_indexed |= stack_addresses_differ(f);
        *ret_flow = f;
        return 0;
}

struct flow *flow_free(struct flow *f)
{
        if (!f)
                return NULL;
        if (f->blocks)
                for (size_t i = 0; i < f->code->count; i++)
                        free(f->blocks[i]);
        free(f->blocks);
        free(f->starts);
        free(f->labels);
        free(f->reached);
        free(f->branches);
        free(f->work);
        free(f->queued);
        free(f);
        return NULL;
}

const struct flow_state *flow_block(const struct flow *f, size_t i)
{
        return f->blocks[i];
}

bool flow_is_label(const struct flow *f, size_t i)
{
        return f->labels[i];
}

bool flow_is_reached(const struct flow *f, size_t i)
{
        return f->reached[i];
}

unsigned flow_next(const struct flow *f, size_t i, size_t ret_next[2])
{
        const struct code_insn *insn = &f->code->insns[i];
        unsigned n = 0;

        if (insn->kind != CODE_PLAIN || !insn_is_jump_class(insn->code) ||
            insn_is_call(insn->code)) {
                ret_next[n++] = i + 1;
                return n;
        }
        if (insn_is_goto(insn->code) || f->branches[i] & BRANCH_TAKEN)
                ret_next[n++] = insn->target;
        if (f->branches[i] & BRANCH_NOT_TAKEN)
                ret_next[n++] = i + 1;
        return n;
}

bool flow_branch_varies(const struct flow *f, size_t i)
{
        return f->branches[i] == (BRANCH_TAKEN | BRANCH_NOT_TAKEN | BRANCH_VARIES);
}

bool flow_stack_is_indexed(const struct flow *f)
{
        return f->stack_indexed;
}
