/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Uniform registers of an exit probe. Each value the sequence keeps in one gets a
 * slot: an aligned pair of registers that the splicer chooses per kernel. That is
 * only right if the value is the same for every lane of the warp whenever it is
 * computed (constants, block indices, arithmetic on those), and if every mention
 * belongs to exactly one value.
 */
#include <errno.h>
#include <stdlib.h>

#include "splice_probe.h"

#define NO_SLOT 0xff

/* Where each value is made and last mentioned, and what registers hold now. */
struct tracker {
        uint8_t now[64];                 /* slot a register's value is in */
        uint8_t written[PROBE_UR_SLOTS]; /* halves written, by bit */
        uint32_t made[PROBE_UR_SLOTS];   /* first instruction that writes it */
        uint32_t last[PROBE_UR_SLOTS];
        struct probe_code *code;
};

/* Of the predicates that its opcode may write. */
static bool writes_no_predicate(const struct arch *a, const struct instr *i)
{
        return (!arch_has(a, i, ARCH_PREDICATE) || instr_predicate_written(i) == INSTR_ALWAYS) &&
               (!arch_has(a, i, ARCH_SECOND_PREDICATE) ||
                instr_second_predicate_written(i) == INSTR_ALWAYS);
}

/* Whether the instruction computes the same for every lane at any time. */
static bool same_for_all_lanes(const struct arch *a, const struct instr *i)
{
        uint32_t special = instr_special(i);

        if (arch_role(a, i) == ARCH_S2UR)
                return special >= a->ctaid_x && special <= a->ctaid_z;
        return arch_has(a, i, ARCH_SAME_FOR_ALL) && writes_no_predicate(a, i);
}

/* Whether the operand in this field is a pair of registers. */
static bool is_pair(const struct arch *a, const struct instr *i, uint8_t field)
{
        const struct arch_op *op = arch_op(a, i);

        if (op->role == ARCH_ULDC)
                return instr_load_size(i) == INSTR_LOAD_64;
        /* addresses and descriptors of memory operations */
        if (!(op->properties & ARCH_UNIFORM) &&
            (op->properties & (ARCH_SOURCE_LATE | ARCH_RESULT_LATE)))
                return true;
        return op->ur_pairs & field;
}

static int note_use(struct tracker *t, uint32_t instr, uint8_t field, uint32_t ur, uint8_t slot)
{
        struct probe_code *c = t->code;
        struct probe_ur_use *uses = c->ur_uses;

        if ((c->ur_use_count & (c->ur_use_count - 1)) == 0) {
                size_t room = c->ur_use_count ? 2 * c->ur_use_count : 1;

                uses = realloc(uses, room * sizeof(*uses));
                if (!uses)
                        return -ENOMEM;
                c->ur_uses = uses;
        }
        uses[c->ur_use_count++] = (struct probe_ur_use){instr, field, slot, ur & 1};
        t->last[slot] = instr;
        return 0;
}

static int read_operand(struct tracker *t, uint32_t k, const struct instr *i, uint8_t field)
{
        uint32_t ur = instr_ur_get(i, field);
        uint8_t slot = t->now[ur];

        if (ur == INSTR_UR_ZERO)
                return 0;
        if (slot == NO_SLOT)
                return -EINVAL;
        if (is_pair(t->code->arch, i, field) && ((ur & 1) || t->now[ur + 1] != slot))
                return -EINVAL;
        return note_use(t, k, field, ur, slot);
}

/* The slot for a value written to ur: a half that completes a pair joins it. */
static uint8_t slot_for_write(struct tracker *t, uint32_t ur, bool pair)
{
        uint8_t other = t->now[ur ^ 1];
        uint32_t slot = t->code->ur_slots;

        if (!pair && other != NO_SLOT && !(t->written[other] & 1u << (ur & 1)))
                return other;
        if (slot == PROBE_UR_SLOTS)
                return NO_SLOT;
        t->code->ur_slots++;
        return (uint8_t)slot;
}

static int write_operand(struct tracker *t, uint32_t k, const struct instr *i)
{
        uint32_t ur = instr_ur_get(i, INSTR_UR_D);
        bool pair = is_pair(t->code->arch, i, INSTR_UR_D);
        uint8_t slot;

        if (ur == INSTR_UR_ZERO || (pair && (ur & 1)) || instr_predicate(i) != INSTR_ALWAYS)
                return -EINVAL;
        slot = slot_for_write(t, ur, pair);
        if (slot == NO_SLOT)
                return -EINVAL;
        if (!t->written[slot])
                t->made[slot] = k;
        t->written[slot] |= (uint8_t)(pair ? 3 : 1u << (ur & 1));
        t->now[ur] = slot;
        if (pair)
                t->now[ur + 1] = slot;
        return note_use(t, k, INSTR_UR_D, ur, slot);
}

static int track_instruction(struct tracker *t, uint32_t k, const struct instr *i)
{
        const struct arch *a = t->code->arch;
        uint8_t fields = arch_ur_fields(a, i), written = arch_op(a, i)->ur_written;

        if (!fields)
                return 0;
        if (arch_has(a, i, ARCH_UNIFORM) && !same_for_all_lanes(a, i))
                return -EINVAL;
        for (uint8_t f = INSTR_UR_D; f <= INSTR_UR_E; f <<= 1) {
                if (fields & f & ~written) {
                        int r = read_operand(t, k, i, f);

                        if (r < 0)
                                return r;
                }
        }
        return written ? write_operand(t, k, i) : 0;
}

/* No value may be made on a path that another path jumps over, and be used after both. */
static bool paths_agree(const struct tracker *t, const struct probe_sequence *seq)
{
        const struct arch *a = t->code->arch;

        for (uint32_t k = 0; k < seq->count; k++) {
                struct instr i = instr_load(seq->code, k);
                uint32_t target;
                int64_t bytes;

                if (arch_role(a, &i) != ARCH_BRA || !arch_relative_target(a, &i, &bytes))
                        continue;
                if (bytes <= 0)
                        return false; /* loops: a value could be made twice */
                target = k + (uint32_t)(bytes / INSTR_BYTES);
                for (uint32_t s = 0; s < t->code->ur_slots; s++) {
                        if (t->made[s] > k && t->made[s] < target && t->last[s] >= target)
                                return false;
                }
        }
        return true;
}

int probe_assign_uniform(struct probe_code *code)
{
        const struct probe_sequence *seq = &code->exit;
        struct tracker t = {.code = code};

        for (size_t u = 0; u < sizeof(t.now); u++)
                t.now[u] = NO_SLOT;
        for (uint32_t k = 0; k < seq->count; k++) {
                struct instr i = instr_load(seq->code, k);
                int r = track_instruction(&t, k, &i);

                if (r == -EINVAL)
                        code->exit_detail = instr_opcode(&i);
                if (r < 0)
                        return r;
        }
        if (code->ur_slots && !paths_agree(&t, seq))
                return -EINVAL;
        return 0;
}
