/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "sm90_track.h"
#include "splice_body.h"

#define KERNEL_ID_CONSTANT 0xbc /* %envreg31 */
#define QUEUE_STAND_IN     0xac /* %envreg27 */
#define NO_INDEX           UINT32_MAX
#define PREDICATE_TRUE     7

static int fail(int error, const char *why, const char **ret_reason)
{
        if (ret_reason)
                *ret_reason = why;
        return error;
}

static uint32_t field(uint64_t word, unsigned shift, uint32_t mask)
{
        return (uint32_t)(word >> shift) & mask;
}

static bool is_constant_load(const struct sm90_instr *i)
{
        return sm90_opcode(i) == SM90_LDC || sm90_opcode(i) == SM90_ULDC;
}

/* Operand forms 3 and 5 of arithmetic have a constant operand. */
static bool reads_constant(const struct sm90_instr *i)
{
        uint32_t form = sm90_opcode(i) >> 8;

        return is_constant_load(i) || form == 0x6 || form == 0xa;
}

static bool loads_word(const struct sm90_instr *i, uint32_t offset)
{
        return is_constant_load(i) && sm90_constant_bank(i) == 0 &&
               sm90_constant_offset(i) == offset && field(i->hi, 9, 7) == 4; /* 32 bits */
}

static bool loads_kernel_id(const struct sm90_instr *i)
{
        return loads_word(i, KERNEL_ID_CONSTANT);
}

/* Whether a constant operand may take in the word at `offset`: one of up to 16 aligned bytes. */
static bool touches_word(const struct sm90_instr *i, uint32_t offset)
{
        return sm90_constant_offset(i) / 16 == offset / 16 && sm90_constant_offset(i) <= offset;
}

static bool is_tail(const struct sm90_instr *i)
{
        int64_t bytes;

        return sm90_opcode(i) == SM90_NOP ||
               (sm90_opcode(i) == SM90_BRA && sm90_relative_target(i, &bytes) && bytes == 0);
}

int body_load(const uint8_t *code, size_t bytes, struct body *b, const char **ret_reason)
{
        size_t count = bytes / SM90_INSTR_BYTES;

        if (bytes % SM90_INSTR_BYTES || count > PROBE_INSTR_MAX)
                return fail(-EINVAL, "the probe is too long", ret_reason);
        b->at = calloc(count + 1, sizeof(*b->at));
        b->keep = calloc(count + 1, sizeof(*b->keep));
        b->takes_id = calloc(count + 1, sizeof(*b->takes_id));
        if (!b->at || !b->keep || !b->takes_id)
                return fail(-ENOMEM, "out of memory", ret_reason);
        for (size_t k = 0; k < count; k++) {
                b->at[k] = sm90_load(code, k);
                b->keep[k] = true;
        }
        while (count && is_tail(&b->at[count - 1]))
                count--;
        b->count = (uint32_t)count;
        return count ? 0 : fail(-EINVAL, "the probe is empty", ret_reason);
}

void body_done(struct body *b)
{
        free(b->at);
        free(b->keep);
        free(b->takes_id);
        *b = (struct body){0};
}

/* A WARPSYNC that names no place has the next instruction as its target. */
static bool is_plain_warpsync(const struct sm90_instr *i)
{
        uint32_t opcode = sm90_opcode(i);
        int64_t bytes;

        return (opcode == SM90_WARPSYNC || opcode == SM90_WARPSYNC_REG) &&
               sm90_relative_target(i, &bytes) && bytes == SM90_INSTR_BYTES;
}

/* Where a jump goes; the end of the body counts as inside. False: it is no jump, or leaves. */
static bool jump_target(const struct body *b, uint32_t at, uint32_t *ret_index)
{
        int64_t bytes, target;

        if (is_plain_warpsync(&b->at[at]) || !sm90_relative_target(&b->at[at], &bytes))
                return false;
        target = (int64_t)at * SM90_INSTR_BYTES + bytes;
        if (target < 0 || target % SM90_INSTR_BYTES || target / SM90_INSTR_BYTES > b->count)
                return false;
        *ret_index = (uint32_t)(target / SM90_INSTR_BYTES);
        return true;
}

static const char *check_control(struct body *b, uint32_t k)
{
        const struct sm90_instr *i = &b->at[k];
        uint32_t target;

        switch (sm90_opcode(i)) {
        case SM90_EXIT:
                return sm90_exit_is_plain(i) ? NULL : "the probe has an EXIT with modifiers";
        case SM90_BSYNC:
                b->barriers |= 1u << field(i->lo, 16, 0xf);
                return NULL;
        case SM90_WARPSYNC:
        case SM90_WARPSYNC_REG:
                return is_plain_warpsync(i) ? NULL : "the probe has a collective section";
        case SM90_BSSY:
                b->barriers |= 1u << field(i->lo, 16, 0xf);
                break;
        case SM90_BRA:
                break;
        default:
                return "the probe calls or jumps in a way that cannot be moved";
        }
        return jump_target(b, k, &target) ? NULL : "the probe jumps out of itself";
}

static const char *check_constant(const struct sm90_instr *i)
{
        if (sm90_constant_bank(i) != 0)
                return "the probe reads a constant bank of its own";
        if (sm90_constant_offset(i) >= SM90_PARAMETERS)
                return "the probe reads kernel parameters";
        if (sm90_constant_offset(i) == KERNEL_ID_CONSTANT && !loads_kernel_id(i))
                return "the probe uses the kernel id in a way that cannot be patched";
        if (touches_word(i, QUEUE_STAND_IN) && !loads_word(i, QUEUE_STAND_IN))
                return "the probe uses the launch's descriptor in a way that cannot be patched";
        if ((sm90_opcode(i) == SM90_LDC && field(i->lo, 24, 0xff) != SM90_R_ZERO) ||
            sm90_opcode(i) == SM90_ULDC_INDEXED)
                return "the probe reads constants by index";
        return NULL;
}

static const char *check_instructions(struct body *b)
{
        for (uint32_t k = 0; k < b->count; k++) {
                const struct sm90_op *op = sm90_op(&b->at[k]);
                const char *why = NULL;

                if (!op)
                        return "the probe has an unknown instruction";
                if (op->properties & SM90_NOT_IN_PROBE)
                        return "the probe uses the stack, shared memory or a block-wide operation";
                if (op->properties & SM90_CONTROL)
                        why = check_control(b, k);
                else if (reads_constant(&b->at[k]))
                        why = check_constant(&b->at[k]);
                if (why)
                        return why;
        }
        return NULL;
}

/* The same with an immediate in place of the uniform register, or opcode 0. */
static struct sm90_instr with_immediate(const struct sm90_instr *i, uint32_t value)
{
        static const uint16_t operations[] = {0x02 /* MOV */, 0x0c /* ISETP */, 0x10 /* IADD3 */,
                                              0x12 /* LOP3 */, 0x24 /* IMAD */};
        struct sm90_instr out = *i;
        uint32_t form = sm90_opcode(i) & 0xe00, operation = sm90_opcode(i) & 0x1ff;
        bool known = false;

        for (size_t k = 0; k < sizeof(operations) / sizeof(operations[0]); k++)
                known |= operation == operations[k];
        /* form 6: second operand, form 7: third; nothing but the register in that half */
        if (!known || (form != 0xc00 && form != 0xe00) || i->lo >> 38)
                return (struct sm90_instr){0};
        out.lo = (i->lo & 0xfffff000) | operation | (form == 0xc00 ? 0x800 : 0x400) |
                 (uint64_t)value << 32;
        out.hi &= ~SM90_UR_PRESENT;
        return out;
}

static bool writes_uniform(const struct sm90_instr *i, uint32_t ur)
{
        return (sm90_op(i)->ur_written & SM90_UR_D) && sm90_ur_get(i, SM90_UR_D) == ur;
}

static bool reads_uniform(const struct sm90_instr *i, uint32_t ur)
{
        uint8_t fields = sm90_ur_fields(i) & (uint8_t)~sm90_op(i)->ur_written;

        for (uint8_t f = SM90_UR_D; f <= SM90_UR_E; f <<= 1) {
                if ((fields & f) && sm90_ur_get(i, f) == ur)
                        return true;
        }
        return false;
}

/*
 * The end of the stretch behind k in which every mention of uniform register ur
 * can become an immediate: the instruction that gives it another value, or the end
 * of the body. NO_INDEX when some mention cannot.
 */
static uint32_t inline_end(const struct body *b, uint32_t k, uint32_t ur)
{
        uint32_t j = k + 1;

        for (; j < b->count; j++) {
                const struct sm90_instr *i = &b->at[j];

                if (!(sm90_ur_mask(i) >> ur & 1))
                        continue;
                if (writes_uniform(i, ur))
                        return reads_uniform(i, ur) ? NO_INDEX : j;
                if (!reads_uniform(i, ur) || !with_immediate(i, 0).lo)
                        return NO_INDEX;
        }
        return j;
}

/* Whether the stretch behind k up to end can only be entered through k. */
static bool entered_only_at(const struct body *b, uint32_t k, uint32_t end)
{
        for (uint32_t j = 0; j < b->count; j++) {
                uint32_t target;

                if (jump_target(b, j, &target) && target > k && target < end && (j < k || j >= end))
                        return false;
        }
        return true;
}

/*
 * Put the kernel id straight into the instructions that read it from uniform
 * register ur, made at k: one register less that a kernel must leave free. The
 * load's cycles stay, others may count on them. False: not possible.
 */
static bool inline_kernel_id(struct body *b, uint32_t k, uint32_t ur)
{
        uint32_t end = inline_end(b, k, ur);

        if (ur == SM90_UR_ZERO || end == NO_INDEX || !entered_only_at(b, k, end) ||
            sm90_predicate(&b->at[k]) != PREDICATE_TRUE)
                return false;
        for (uint32_t j = k + 1; j < end; j++) {
                if (!reads_uniform(&b->at[j], ur))
                        continue;
                b->at[j] = with_immediate(&b->at[j], 0);
                b->takes_id[j] = true;
        }
        b->at[k] = sm90_nop_like(&b->at[k]);
        return true;
}

/*
 * Make the load of the kernel id a move of a number to be filled in. As a load
 * from memory it was tracked by a scoreboard, maybe also for loads before it: then
 * it cannot be replaced.
 */
static const char *replace_id_load(struct body *b, uint32_t k)
{
        struct sm90_instr *i = &b->at[k], move;
        uint32_t dest = field(i->lo, 16, 0xff);

        if (sm90_opcode(i) == SM90_ULDC) {
                if (inline_kernel_id(b, k, dest & 63))
                        return NULL;
                move = sm90_umov(dest & 63, 0);
        } else {
                for (uint32_t j = 0; j < k; j++) {
                        if (sm90_opcode(&b->at[j]) == SM90_LDC && sm90_untracked(&b->at[j]))
                                return "the kernel id is loaded together with other constants";
                }
                move = sm90_mov(dest, 0);
        }
        move.lo = (move.lo & ~0xf000ULL) | (i->lo & 0xf000);
        sm90_add_waits(&move, sm90_waits(i));
        *i = move;
        b->takes_id[k] = true;
        return NULL;
}

const char *body_prepare(struct body *b)
{
        const char *why = check_instructions(b);

        for (uint32_t k = 0; k < b->count && !why; k++) {
                if (loads_kernel_id(&b->at[k]))
                        why = replace_id_load(b, k);
                else if (loads_word(&b->at[k], QUEUE_STAND_IN))
                        sm90_set_constant_offset(&b->at[k], SM90_DESCRIPTOR);
                else if (sm90_loads_stack_pointer(&b->at[k]))
                        b->keep[k] = false; /* there is no stack */
        }
        return why;
}

static bool is_always(const struct sm90_instr *i)
{
        return sm90_predicate(i) == PREDICATE_TRUE && field(i->hi, 23, 0xf) == PREDICATE_TRUE;
}

bool body_ends(const struct body *b)
{
        const struct sm90_instr *last = &b->at[b->count - 1];

        return (sm90_opcode(last) == SM90_EXIT || sm90_opcode(last) == SM90_BRA) && is_always(last);
}

/*
 * The ways out for whole warps. A probe for the first block only starts by asking for
 * the block's index, first x, then y and z. All lanes of a warp get the same answer, so
 * that no lane has to wait for another: such an exit needs no BSSY and BSYNC, and every
 * other block runs just these few instructions.
 */
struct uniform {
        uint64_t registers[4]; /* by bit: the same for all lanes */
        uint32_t predicates;
};

static bool is_uniform(const struct uniform *u, uint32_t reg)
{
        return reg == SM90_R_ZERO || (u->registers[reg / 64] >> (reg % 64) & 1);
}

static void set_uniform(struct uniform *u, uint32_t reg, bool uniform)
{
        if (uniform)
                u->registers[reg / 64] |= 1ULL << (reg % 64);
        else
                u->registers[reg / 64] &= ~(1ULL << (reg % 64));
}

static void set_predicate(struct uniform *u, uint32_t predicate, bool uniform)
{
        if (uniform)
                u->predicates |= 1u << predicate;
        else
                u->predicates &= ~(1u << predicate);
}

/* Sources of a comparison or a logical operation: one and two are registers or uniform. */
static bool sources_uniform(const struct uniform *u, const struct sm90_instr *i)
{
        bool second_is_register = (sm90_opcode(i) & 0xe00) == 0x200;

        return is_uniform(u, field(i->lo, 24, 0xff)) &&
               (!second_is_register || is_uniform(u, field(i->lo, 32, 0xff)));
}

/* Follow one instruction. False: it is none of those that are understood here. */
static bool step_uniform(struct uniform *u, const struct sm90_instr *i)
{
        uint32_t special = field(i->hi, 8, 0xff);
        bool same;

        if (sm90_predicate(i) != PREDICATE_TRUE)
                return false;
        switch (sm90_opcode(i)) {
        case SM90_NOP:
        case SM90_ULDC:
        case SM90_S2UR:
                return true;
        case SM90_S2R:
                set_uniform(u, field(i->lo, 16, 0xff),
                            special >= SM90_SR_CTAID_X && special <= SM90_SR_CTAID_Z);
                return true;
        case 0x20c: /* ISETP; the last byte of an extended one is another */
        case 0x80c:
        case 0xc0c:
                same = sources_uniform(u, i) && field(i->hi, 23, 7) == PREDICATE_TRUE &&
                       field(i->hi, 0, 0xff) == 0x70;
                set_predicate(u, field(i->hi, 17, 7), same);
                set_predicate(u, field(i->hi, 20, 7), same);
                return true;
        case 0x212: /* LOP3 */
        case 0x812:
        case 0xc12:
                same = sources_uniform(u, i) && is_uniform(u, field(i->hi, 0, 0xff)) &&
                       field(i->hi, 23, 7) == PREDICATE_TRUE;
                set_uniform(u, field(i->lo, 16, 0xff), same);
                set_predicate(u, field(i->hi, 17, 7), same);
                return true;
        default:
                return false;
        }
}

static bool is_jumped_into(const struct body *b, uint32_t end)
{
        for (uint32_t k = 0; k < b->count; k++) {
                uint32_t target;

                if (jump_target(b, k, &target) && target <= end)
                        return true;
        }
        return false;
}

static bool leaves_together(const struct body *b, const struct uniform *u, uint32_t k)
{
        const struct sm90_instr *i = &b->at[k];
        uint32_t predicate = sm90_predicate(i);

        return predicate != PREDICATE_TRUE && (u->predicates >> (predicate & 7) & 1) &&
               field(i->hi, 23, 0xf) == PREDICATE_TRUE && !is_jumped_into(b, k);
}

/* The first conditional EXITs as long as all lanes take them together; how many. */
static uint32_t find_warp_exits(const struct body *b, uint32_t exits[static WARP_EXITS_MAX])
{
        struct uniform u = {{0}, 0};
        uint32_t found = 0;

        for (uint32_t k = 0; k < b->count && found < WARP_EXITS_MAX; k++) {
                if (!b->keep[k])
                        continue;
                if (sm90_opcode(&b->at[k]) == SM90_EXIT) {
                        if (!leaves_together(b, &u, k))
                                break;
                        exits[found++] = k;
                } else if (!step_uniform(&u, &b->at[k])) {
                        break;
                }
        }
        return found;
}

/* Bytes from instruction `from` to instruction `to` of a sequence. */
/* Store an instruction of the body at its new place, and note if it takes the id. */
static int emit(const struct body *b, struct probe_sequence *seq, uint32_t k, struct sm90_instr i,
                const uint32_t *new_index)
{
        uint32_t target;

        if (jump_target(b, k, &target))
                sm90_set_relative_target(&i, sm90_distance(new_index[k], new_index[target]));
        if (b->takes_id[k]) {
                if (seq->id_count == PROBE_ID_MAX)
                        return -EINVAL;
                seq->id_at[seq->id_count++] = new_index[k];
        }
        sm90_store(seq->code, new_index[k], i);
        return 0;
}

/* Places of an entry sequence's own instructions. */
struct entry_layout {
        uint32_t warp_exits[WARP_EXITS_MAX]; /* in the body */
        uint32_t warp_exit_count;
        uint32_t bssy, bsync;
        uint32_t barrier;
};

static bool is_warp_exit(const struct entry_layout *l, uint32_t k)
{
        for (uint32_t x = 0; x < l->warp_exit_count; x++) {
                if (l->warp_exits[x] == k)
                        return true;
        }
        return false;
}

static int lay_out_entry(const struct body *b, uint32_t *new_index, struct entry_layout *l)
{
        bool drop_last = sm90_opcode(&b->at[b->count - 1]) == SM90_EXIT &&
                         is_always(&b->at[b->count - 1]); /* runs into the end anyway */
        uint32_t n = 0;

        l->warp_exit_count = find_warp_exits(b, l->warp_exits);
        l->barrier = 0;
        while (l->barrier < SM90_BARRIERS && (b->barriers >> l->barrier & 1))
                l->barrier++;
        if (l->barrier == SM90_BARRIERS)
                return -EINVAL;
        if (!l->warp_exit_count)
                l->bssy = n++;
        for (uint32_t k = 0; k < b->count; k++) {
                new_index[k] = n;
                n += b->keep[k] && !(drop_last && k == b->count - 1);
                if (!is_warp_exit(l, k))
                        continue;
                n += SPLICE_RETURN_INSTRS;
                if (k == l->warp_exits[l->warp_exit_count - 1])
                        l->bssy = n++;
        }
        new_index[b->count] = l->bsync = n;
        return 0;
}

/* Whether the sequence starts with S2UR and an instruction that waits just for it. */
static bool asks_first(const struct probe_sequence *seq)
{
        struct sm90_instr ask = sm90_load(seq->code, 0), test = sm90_load(seq->code, 1);
        uint32_t scoreboard = sm90_result_scoreboard(&ask);

        return sm90_opcode(&ask) == SM90_S2UR && sm90_predicate(&ask) == PREDICATE_TRUE &&
               scoreboard < SM90_SCOREBOARDS && !sm90_waits(&ask) &&
               sm90_waits(&test) == 1u << scoreboard && sm90_ur_fields(&test) == SM90_UR_B &&
               sm90_ur_get(&test, SM90_UR_B) == sm90_ur_get(&ask, SM90_UR_D);
}

int body_emit_entry(struct body *b, struct probe_sequence *seq, uint32_t *new_index)
{
        struct entry_layout l;
        int r = lay_out_entry(b, new_index, &l);

        for (uint32_t k = 0; k < b->count && r == 0; k++) {
                struct sm90_instr i = b->at[k];

                if (!b->keep[k] || new_index[k] == l.bsync)
                        continue;
                if (is_warp_exit(&l, k)) {
                        /* Those who do not leave jump: leaving is the common case. */
                        i.lo ^= SM90_PREDICATE_NOT;
                        i = sm90_exit_to_branch(&i, (SPLICE_RETURN_INSTRS + 1) * SM90_INSTR_BYTES);
                        seq->return_at[seq->return_count++] = new_index[k] + 1;
                } else if (sm90_opcode(&i) == SM90_EXIT) {
                        i = sm90_exit_to_branch(&i, sm90_distance(new_index[k], l.bsync));
                }
                r = emit(b, seq, k, i, new_index);
        }
        if (r < 0)
                return r;
        seq->asks_first = l.warp_exit_count && new_index[l.warp_exits[0]] == 2 && asks_first(seq);
        sm90_store(seq->code, l.bssy, sm90_bssy(l.barrier, sm90_distance(l.bssy, l.bsync + 1)));
        sm90_store(seq->code, l.bsync, sm90_bsync(l.barrier, SM90_WAIT_ALL));
        seq->return_at[seq->return_count++] = l.bsync + 1;
        seq->count = l.bsync + 1 + SPLICE_RETURN_INSTRS;
        for (uint32_t k = 0; k < seq->return_count; k++) {
                sm90_store(seq->code, seq->return_at[k], sm90_nop());
                sm90_store(seq->code, seq->return_at[k] + 1, sm90_nop());
        }
        return 0;
}

int body_emit_exit(const struct body *b, struct probe_sequence *seq, uint32_t *new_index)
{
        uint32_t n = 0;
        int r = 0;

        for (uint32_t k = 0; k < b->count; k++) {
                new_index[k] = n;
                n += b->keep[k];
        }
        new_index[b->count] = seq->count = n;
        for (uint32_t k = 0; k < b->count && r == 0; k++) {
                uint32_t opcode = sm90_opcode(&b->at[k]);

                if (!b->keep[k])
                        continue;
                if (opcode == SM90_BSSY || opcode == SM90_BSYNC)
                        sm90_store(seq->code, new_index[k], sm90_nop_like(&b->at[k]));
                else
                        r = emit(b, seq, k, b->at[k], new_index);
        }
        return r;
}
