/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What goes round in a loop. At exits and accesses of memory the assembler must not keep it in
 * uniform registers (ptx.h), which it does where a loop begins with numbers that are the same
 * for all lanes. So these get the zero that depends on the lane, on the ways into the
 * loop: going round costs nothing more. It costs the assembler what it knows of the number of
 * rounds, and so its unrolled loops; the agent therefore tries without first (agent_abi.h).
 */
#include <errno.h>
#include <stdlib.h>

#include "device/insn.h"
#include "device/ptx.h"

int ptx_find_loops(struct ptx_writer *w)
{
        if (w->job->where == DEVICE_ENTRY)
                return 0;
        w->loops = calloc(w->code->count + 1, sizeof(*w->loops));
        if (!w->loops)
                return -ENOMEM;
        for (size_t i = 0; i < w->code->count; i++) {
                size_t next[2];
                unsigned n = flow_is_reached(w->flow, i) ? flow_next(w->flow, i, next) : 0;

                while (n--)
                        if (next[n] <= i)
                                w->loops[next[n]] = true;
        }
        return 0;
}

void ptx_loosen(struct ptx_writer *w, char kind, unsigned number)
{
        bool word = kind == 'w';

        w->uses_zero = true;
        ptx_line(w, "@O@or.b%u %%%c%u, %%%c%u, %s", word ? 32 : 64, kind, number, kind, number,
                 word ? "%z" : "%zl");
}

/* Whether a value may be another one in each round. */
static bool may_change(const struct value *v)
{
        return (v->kind == VALUE_NUMBER || v->kind == VALUE_STACK) && !tnum_is_const(v->num);
}

static bool cell_may_change(const struct cell *c, bool used)
{
        switch (c->state) {
        case CELL_BYTES:
                return used;
        case CELL_WORD:
        case CELL_LOW:
                return may_change(&c->value);
        default:
                return false;
        }
}

void ptx_enter_loop(struct ptx_writer *w, size_t target)
{
        const struct flow_state *s = flow_block(w->flow, target);
        unsigned last = PTX_SLOTS;

        if (!w->loops || !w->loops[target])
                return;
        for (unsigned r = 0; r < CODE_REGISTERS; r++)
                if (may_change(&s->regs[r]))
                        ptx_loosen(w, 'b', r);
        for (unsigned c = 0; c < s->cells && !w->stack_in_memory; c++) {
                unsigned slot = flow_slot(-4 * (int64_t)(c + 1));

                if (slot == last || !cell_may_change(&s->stack[c], ptx_slot_used(w, slot)))
                        continue;
                last = slot;
                ptx_use_slot(w, slot);
                ptx_loosen(w, 's', slot);
        }
}
