/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Uniform registers of an exit probe. Each value the sequence keeps in one gets a
 * slot: an aligned pair of registers that the splicer chooses per kernel. That is
 * only right if every mention belongs to exactly one value, whatever way led to it, and
 * if the value is
 *  - the same for every lane of the warp whenever it is computed (constants, block
 *    indices, arithmetic on those). In a loop it may be made again, as it is the same
 *    again; what counts rounds is another value each time, and refused. Or
 *  - brief: written and read in one stretch that no flow enters, leaves or interrupts.
 *    Parts of a warp take turns only where there is flow: the assembler itself keeps
 *    different values of two branches in the same register so.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "splice_probe.h"

#define NO_SLOT 0xff /* nothing, or not the same on all ways */
#define NOT_YET 0xfe /* no way led there so far */

/* The slots of what the registers hold. */
struct holds {
        uint8_t slot[INSTR_UR_ZERO + 1];
};

struct tracker {
        struct probe_code *code;
        struct holds *before;            /* by instruction; owned */
        uint8_t *made;                   /* by instruction: the slot it writes; owned */
        bool *target;                    /* by instruction: jumped to; owned */
        bool changed;                    /* in this round */
        uint8_t written[PROBE_UR_SLOTS]; /* halves written, by bit */
        bool brief[PROBE_UR_SLOTS];
        uint32_t stretch[PROBE_UR_SLOTS]; /* of a brief one: the last it is in */
};

static void tracker_done(struct tracker *t)
{
        free(t->before);
        free(t->made);
        free(t->target);
}

static void set_all(struct holds *h, uint8_t slot)
{
        memset(h->slot, slot, sizeof(h->slot));
}

static bool jump_target(const struct tracker *t, uint32_t k, const struct instr *i,
                        uint32_t *ret_target)
{
        int64_t bytes;

        if (arch_role(t->code->arch, i) != ARCH_BRA ||
            !arch_relative_target(t->code->arch, i, &bytes))
                return false;
        *ret_target = (uint32_t)(k + bytes / INSTR_BYTES);
        return true;
}

static int tracker_init(struct tracker *t, struct probe_code *code)
{
        size_t count = code->exit.count + 1UL; /* the end can be jumped to */

        *t = (struct tracker){.code = code};
        t->before = calloc(count, sizeof(*t->before));
        t->made = calloc(count, sizeof(*t->made));
        t->target = calloc(count, sizeof(*t->target));
        if (!t->before || !t->made || !t->target)
                return -ENOMEM;
        for (size_t k = 0; k < count; k++) {
                set_all(&t->before[k], k ? NOT_YET : NO_SLOT);
                t->made[k] = NO_SLOT;
        }
        for (uint32_t k = 0; k < code->exit.count; k++) {
                struct instr i = instr_load(code->exit.code, k);
                uint32_t target;

                if (jump_target(t, k, &i, &target))
                        t->target[target] = true;
        }
        return 0;
}

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

/* The stretch an instruction is in, by where it begins. */
static uint32_t stretch_of(const struct tracker *t, uint32_t k)
{
        while (k && !t->target[k]) {
                struct instr last = instr_load(t->code->exit.code, k - 1);

                if (arch_has(t->code->arch, &last, ARCH_CONTROL))
                        break;
                k--;
        }
        return k;
}

/* Brief values do not outlive their stretch. */
static void drop_brief(const struct tracker *t, struct holds *h)
{
        for (size_t u = 0; u < sizeof(h->slot); u++)
                if (h->slot[u] < PROBE_UR_SLOTS && t->brief[h->slot[u]])
                        h->slot[u] = NO_SLOT;
}

static int check_read(const struct tracker *t, const struct holds *h, const struct instr *i,
                      uint8_t field)
{
        uint32_t ur = instr_ur_get(i, field);
        uint8_t slot = h->slot[ur];

        if (ur == INSTR_UR_ZERO)
                return 0;
        if (slot >= PROBE_UR_SLOTS)
                return -EINVAL;
        if (is_pair(t->code->arch, i, field) && ((ur & 1) || h->slot[ur + 1] != slot))
                return -EINVAL;
        return 0;
}

static bool reads_brief(const struct tracker *t, const struct holds *h, const struct instr *i)
{
        uint8_t fields =
                arch_ur_fields(t->code->arch, i) & (uint8_t)~arch_op(t->code->arch, i)->ur_written;

        for (uint8_t f = INSTR_UR_D; f <= INSTR_UR_E; f <<= 1) {
                uint8_t slot = h->slot[instr_ur_get(i, f)];

                if ((fields & f) && slot < PROBE_UR_SLOTS && t->brief[slot])
                        return true;
        }
        return false;
}

/* A slot of brief values that an earlier stretch is done with, or a new one. */
static uint8_t new_slot(struct tracker *t, bool brief, uint32_t stretch)
{
        uint32_t slot = t->code->ur_slots;

        for (uint32_t s = 0; s < slot && brief; s++)
                if (t->brief[s] && t->stretch[s] != stretch) {
                        t->written[s] = 0;
                        return (uint8_t)s;
                }
        if (slot == PROBE_UR_SLOTS)
                return NO_SLOT;
        t->code->ur_slots++;
        return (uint8_t)slot;
}

/* The slot for a value written to ur: a half that completes a pair joins it. */
static uint8_t slot_for_write(struct tracker *t, const struct holds *h, uint32_t k, uint32_t ur,
                              bool pair, bool brief)
{
        uint8_t other = h->slot[ur ^ 1];
        uint32_t stretch = brief ? stretch_of(t, k) : 0;
        uint8_t slot;

        if (!pair && other < PROBE_UR_SLOTS && t->brief[other] == brief &&
            !(t->written[other] & 1u << (ur & 1)))
                return other;
        slot = new_slot(t, brief, stretch);
        if (slot != NO_SLOT) {
                t->brief[slot] = brief;
                t->stretch[slot] = stretch;
        }
        return slot;
}

/* Write field D: the first time that a way leads there it gets its slot. */
static int write_operand(struct tracker *t, uint32_t k, const struct instr *i, bool brief,
                         struct holds *h)
{
        uint32_t ur = instr_ur_get(i, INSTR_UR_D);
        bool pair = is_pair(t->code->arch, i, INSTR_UR_D);

        if (ur == INSTR_UR_ZERO || (pair && (ur & 1)) || instr_predicate(i) != INSTR_ALWAYS)
                return -EINVAL;
        if (t->made[k] == NO_SLOT) {
                t->made[k] = slot_for_write(t, h, k, ur, pair, brief);
                if (t->made[k] == NO_SLOT)
                        return -EINVAL;
                t->written[t->made[k]] |= (uint8_t)(pair ? 3 : 1u << (ur & 1));
        }
        if (t->brief[t->made[k]] != brief)
                return -EINVAL;
        h->slot[ur] = t->made[k];
        if (pair)
                h->slot[ur + 1] = t->made[k];
        return 0;
}

/* What the registers hold behind an instruction, from what they hold before. */
static int step(struct tracker *t, uint32_t k, const struct instr *i, struct holds *h)
{
        const struct arch *a = t->code->arch;
        uint8_t fields = arch_ur_fields(a, i), written = arch_op(a, i)->ur_written;
        bool brief;

        if (!fields)
                return 0;
        if (arch_has(a, i, ARCH_UNIFORM) && !same_for_all_lanes(a, i) &&
            !arch_has(a, i, ARCH_BRIEF))
                return -EINVAL;
        for (uint8_t f = INSTR_UR_D; f <= INSTR_UR_E; f <<= 1)
                if ((fields & f & ~written) && check_read(t, h, i, f) < 0)
                        return -EINVAL;
        brief = arch_has(a, i, ARCH_BRIEF) || reads_brief(t, h, i);
        return written ? write_operand(t, k, i, brief, h) : 0;
}

/* One more way leads to an instruction. */
static void join(struct tracker *t, uint32_t k, const struct holds *h)
{
        struct holds *to = &t->before[k];

        for (size_t u = 0; u < sizeof(h->slot); u++) {
                uint8_t slot =
                        to->slot[u] == NOT_YET || to->slot[u] == h->slot[u] ? h->slot[u] : NO_SLOT;

                t->changed |= slot != to->slot[u];
                to->slot[u] = slot;
        }
}

/* All instructions that some way led to, in their order. 0; -EINVAL, at *ret_k. */
static int round_of(struct tracker *t, uint32_t *ret_k)
{
        const struct probe_sequence *seq = &t->code->exit;

        for (uint32_t k = 0; k < seq->count; k++) {
                struct instr i = instr_load(seq->code, k);
                enum arch_role role = arch_role(t->code->arch, &i);
                struct holds h = t->before[k];
                uint32_t target;

                if (h.slot[INSTR_UR_ZERO] == NOT_YET)
                        continue;
                *ret_k = k;
                if (t->target[k])
                        drop_brief(t, &h);
                if (step(t, k, &i, &h) < 0)
                        return -EINVAL;
                if (arch_has(t->code->arch, &i, ARCH_CONTROL))
                        drop_brief(t, &h);
                if (jump_target(t, k, &i, &target))
                        join(t, target, &h);
                if ((role != ARCH_BRA && role != ARCH_EXIT) || !instr_is_always(&i))
                        join(t, k + 1, &h);
        }
        return 0;
}

static int note_use(struct probe_code *c, uint32_t instr, uint8_t field, uint32_t ur, uint8_t slot)
{
        struct probe_ur_use *uses = c->ur_uses;

        if ((c->ur_use_count & (c->ur_use_count - 1)) == 0) {
                size_t room = c->ur_use_count ? 2 * c->ur_use_count : 1;

                uses = realloc(uses, room * sizeof(*uses));
                if (!uses)
                        return -ENOMEM;
                c->ur_uses = uses;
        }
        uses[c->ur_use_count++] = (struct probe_ur_use){instr, field, slot, ur & 1};
        return 0;
}

static int note_uses(const struct tracker *t)
{
        struct probe_code *c = t->code;

        for (uint32_t k = 0; k < c->exit.count; k++) {
                struct instr i = instr_load(c->exit.code, k);
                uint8_t fields = arch_ur_fields(c->arch, &i);
                uint8_t written = arch_op(c->arch, &i)->ur_written;

                for (uint8_t f = INSTR_UR_D; f <= INSTR_UR_E; f <<= 1) {
                        uint32_t ur = instr_ur_get(&i, f);
                        uint8_t slot = written & f ? t->made[k] : t->before[k].slot[ur];

                        if (!(fields & f) || ur == INSTR_UR_ZERO)
                                continue;
                        if (slot >= PROBE_UR_SLOTS)
                                return -EINVAL; /* no way leads there */
                        if (note_use(c, k, f, ur, slot) < 0)
                                return -ENOMEM;
                }
        }
        return 0;
}

int probe_assign_uniform(struct probe_code *code)
{
        struct tracker t;
        uint32_t k = 0;
        int r = tracker_init(&t, code);

        do {
                t.changed = false;
                if (r == 0)
                        r = round_of(&t, &k);
        } while (r == 0 && t.changed);
        if (r == 0)
                r = note_uses(&t);
        if (r == -EINVAL) {
                struct instr i = instr_load(code->exit.code, k);

                code->exit_detail = instr_opcode(&i);
        }
        tracker_done(&t);
        return r;
}
