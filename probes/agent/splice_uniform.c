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

/* hi[19:17], hi[22:20]: uniform predicates written; 7 none. */
static bool writes_no_predicate(const struct sm90_instr *i, bool two)
{
        return (i->hi >> 17 & 7) == 7 && (!two || (i->hi >> 20 & 7) == 7);
}

/* Whether the instruction computes the same for every lane at any time. */
static bool same_for_all_lanes(const struct sm90_instr *i)
{
        uint32_t special = (uint32_t)(i->hi >> 8) & 0xff;

        switch (sm90_opcode(i)) {
        case SM90_ULDC:
        case SM90_UMOV_IMM:
        case 0xc82: /* UMOV */
        case 0x299: /* USHF */
        case 0x899:
                return true;
        case SM90_S2UR:
                return special >= SM90_SR_CTAID_X && special <= SM90_SR_CTAID_Z;
        case 0x290: /* UIADD3 */
        case 0x890:
                return writes_no_predicate(i, true);
        case 0x292: /* ULOP3 */
        case 0x892:
        case 0x291: /* ULEA */
        case 0x891:
        case 0x2a4: /* UIMAD */
        case 0x8a4:
        case 0x2a5: /* UIMAD.WIDE */
        case 0x8a5:
                return writes_no_predicate(i, false);
        default:
                return false;
        }
}

/* Whether the operand in this field is a pair of registers. */
static bool is_pair(const struct sm90_instr *i, uint8_t field)
{
        const struct sm90_op *op = sm90_op(i);

        switch (sm90_opcode(i)) {
        case SM90_ULDC:
                return (i->hi >> 9 & 7) == 5;
        case 0x2a5: /* UIMAD.WIDE: result and addend */
        case 0x8a5:
                return field == SM90_UR_D || field == SM90_UR_C;
        case 0xe25: /* IMAD.WIDE with a uniform addend */
                return true;
        default:
                if (op->properties & SM90_UNIFORM)
                        return false;
                /* addresses and descriptors of memory operations; doubles */
                return (op->properties & (SM90_SOURCE_LATE | SM90_RESULT_LATE)) ||
                       (sm90_opcode(i) & 0xff & ~3u) == 0x28;
        }
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

static int read_operand(struct tracker *t, uint32_t k, const struct sm90_instr *i, uint8_t field)
{
        uint32_t ur = sm90_ur_get(i, field);
        uint8_t slot = t->now[ur];

        if (ur == SM90_UR_ZERO)
                return 0;
        if (slot == NO_SLOT)
                return -EINVAL;
        if (is_pair(i, field) && ((ur & 1) || t->now[ur + 1] != slot))
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

static int write_operand(struct tracker *t, uint32_t k, const struct sm90_instr *i)
{
        uint32_t ur = sm90_ur_get(i, SM90_UR_D);
        bool pair = is_pair(i, SM90_UR_D);
        uint8_t slot;

        if (ur == SM90_UR_ZERO || (pair && (ur & 1)) || sm90_predicate(i) != 7)
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
        return note_use(t, k, SM90_UR_D, ur, slot);
}

static int track_instruction(struct tracker *t, uint32_t k, const struct sm90_instr *i)
{
        uint8_t fields = sm90_ur_fields(i), written = sm90_op(i)->ur_written;

        if (!fields)
                return 0;
        if ((sm90_op(i)->properties & SM90_UNIFORM) && !same_for_all_lanes(i))
                return -EINVAL;
        for (uint8_t f = SM90_UR_D; f <= SM90_UR_E; f <<= 1) {
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
        for (uint32_t k = 0; k < seq->count; k++) {
                struct sm90_instr i = sm90_load(seq->code, k);
                uint32_t target;
                int64_t bytes;

                if (sm90_opcode(&i) != SM90_BRA || !sm90_relative_target(&i, &bytes))
                        continue;
                if (bytes <= 0)
                        return false; /* loops: a value could be made twice */
                target = k + (uint32_t)(bytes / SM90_INSTR_BYTES);
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
                struct sm90_instr i = sm90_load(seq->code, k);
                int r = track_instruction(&t, k, &i);

                if (r == -EINVAL)
                        code->exit_detail = sm90_opcode(&i);
                if (r < 0)
                        return r;
        }
        if (code->ur_slots && !paths_agree(&t, seq))
                return -EINVAL;
        return 0;
}
