/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "device/flow.h"
#include "device/flow_stack.h"
#include "device/flow_step.h"
#include "device/insn.h"

struct flow {
        const struct compile_job *job;
        struct flow_state **blocks; /* state at the start of each block that is reached */
        bool *starts;               /* where blocks start by the shape of the program */
        bool *labels;
        size_t *work; /* blocks to walk again; at most one entry each */
        bool *queued;
        size_t work_count;
        bool stack_in_memory;
};

static bool state_join(struct flow_state *into, const struct flow_state *from)
{
        bool changed = false;

        for (unsigned r = 0; r < FLOW_REGISTERS; r++)
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
                f->blocks[i] = malloc(sizeof(*state));
                if (!f->blocks[i])
                        return -ENOMEM;
                *f->blocks[i] = *state;
                queue(f, i);
        } else if (state_join(f->blocks[i], state)) {
                queue(f, i);
        }
        return 0;
}

static int check_target(const struct compile_job *job, size_t i, struct refusal *r)
{
        int64_t target = insn_target(job->insns, i);

        if (target < 0 || target >= (int64_t)job->count)
                return refuse(r, i, "a jump leads out of the program");
        return 0;
}

/* Mark jump targets and what follows branches. */
static int mark_starts(struct flow *f, struct refusal *r)
{
        const struct compile_job *job = f->job;

        f->starts[0] = true;
        for (size_t i = 0; i < job->count; i += insn_is_wide(&job->insns[i]) ? 2 : 1) {
                const struct bpf_insn *insn = &job->insns[i];
                int error;

                if (insn_is_wide(insn) && i + 1 >= job->count)
                        return refuse(r, i, "the program ends inside an instruction");
                if (!insn_is_goto(insn) && !insn_is_branch(insn))
                        continue;
                error = check_target(job, i, r);
                if (error)
                        return error;
                f->starts[insn_target(job->insns, i)] = true;
                if (insn_is_branch(insn) && i + 1 < job->count)
                        f->starts[i + 1] = true;
        }
        return 0;
}

static int jump(struct flow *f, size_t i, const struct flow_state *state)
{
        size_t target = (size_t)insn_target(f->job->insns, i);

        f->labels[target] = true;
        return reach(f, target, state);
}

/* Follow a branch both ways as far as they are possible. */
static int walk_branch(struct flow *f, size_t i, const struct flow_state *state, struct refusal *r)
{
        struct flow_state taken = *state, not_taken = *state;
        int error = flow_check_branch(f->job, i, state, r);
        enum flow_branch known;

        if (error)
                return error;
        known = flow_decide(f->job, i, state);
        if (i + 1 >= f->job->count)
                return refuse(r, i, "the program runs off its end");
        if (known != FLOW_NOT_TAKEN && flow_refine(f->job, i, true, &taken)) {
                error = jump(f, i, &taken);
                if (error)
                        return error;
        }
        if (known != FLOW_TAKEN && flow_refine(f->job, i, false, &not_taken))
                return reach(f, i + 1, &not_taken);
        return 0;
}

/* Walk the block at `start` to its end and hand its state on. */
static int walk(struct flow *f, size_t start, struct refusal *r)
{
        const struct compile_job *job = f->job;
        struct flow_state state = *f->blocks[start];

        for (size_t i = start; i < job->count;) {
                const struct bpf_insn *insn = &job->insns[i];
                int error;

                if (insn_is_exit(insn))
                        return 0;
                if (insn_is_goto(insn))
                        return jump(f, i, &state);
                if (insn_is_branch(insn))
                        return walk_branch(f, i, &state, r);
                error = flow_step(job, i, &state, r);
                if (error)
                        return error;
                f->stack_in_memory |= flow_stack_is_unknown(job, i, &state);
                i += insn_is_wide(insn) ? 2 : 1;
                if (i < job->count && f->starts[i])
                        return reach(f, i, &state);
        }
        return refuse(r, job->count - 1, "the program runs off its end");
}

static int walk_all(struct flow *f, struct refusal *r)
{
        struct flow_state first = {};
        int error;

        first.regs[BPF_REG_1] = (struct value){.kind = VALUE_CONTEXT};
        first.regs[BPF_REG_10] = (struct value){.kind = VALUE_STACK};
        error = reach(f, 0, &first);
        while (!error && f->work_count) {
                size_t i = f->work[--f->work_count];

                f->queued[i] = false;
                error = walk(f, i, r);
        }
        return error;
}

static int flow_allocate(struct flow *f)
{
        size_t n = f->job->count;

        f->blocks = calloc(n, sizeof(*f->blocks));
        f->starts = calloc(n, sizeof(*f->starts));
        f->labels = calloc(n, sizeof(*f->labels));
        f->work = calloc(n, sizeof(*f->work));
        f->queued = calloc(n, sizeof(*f->queued));
        return f->blocks && f->starts && f->labels && f->work && f->queued ? 0 : -ENOMEM;
}

/* Whether paths that meet disagree about a stack address: then it must be a real address. */
static bool stack_addresses_differ(const struct flow *f)
{
        for (size_t i = 0; i < f->job->count; i++) {
                if (!f->blocks[i])
                        continue;
                for (unsigned r = 0; r < FLOW_REGISTERS; r++) {
                        const struct value *v = &f->blocks[i]->regs[r];

                        if (v->kind == VALUE_STACK && !tnum_is_const(v->num))
                                return true;
                }
        }
        return false;
}

int flow_new(const struct compile_job *job, struct refusal *ret_refusal, struct flow **ret_flow)
{
        struct flow *f;
        int error;

        if (job->count == 0 || job->count > COMPILE_MAX_INSNS)
                return refuse(ret_refusal, 0, "the program has %zu instructions, not 1 to %d",
                              job->count, COMPILE_MAX_INSNS);
        f = calloc(1, sizeof(*f));
        if (!f)
                return -ENOMEM;
        f->job = job;
        error = flow_allocate(f);
        if (!error)
                error = mark_starts(f, ret_refusal);
        if (!error)
                error = walk_all(f, ret_refusal);
        if (error) {
                flow_free(f);
                return error;
        }
        f->stack_in_memory |= stack_addresses_differ(f);
        *ret_flow = f;
        return 0;
}

struct flow *flow_free(struct flow *f)
{
        if (!f)
                return NULL;
        if (f->blocks)
                for (size_t i = 0; i < f->job->count; i++)
                        free(f->blocks[i]);
        free(f->blocks);
        free(f->starts);
        free(f->labels);
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

bool flow_stack_in_memory(const struct flow *f)
{
        return f->stack_in_memory;
}
