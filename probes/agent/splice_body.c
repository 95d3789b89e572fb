/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "encode.h"
#include "splice_body.h"
#include "track.h"

#define NO_INDEX UINT32_MAX

static int fail(int error, const char *why, const char **ret_reason)
{
        if (ret_reason)
                *ret_reason = why;
        return error;
}

/* Where the PTX of probes has the kernel's id and the launch's descriptor from. */
static uint32_t kernel_id_constant(const struct arch *a)
{
        return a->environment + 4 * SPLICE_KERNEL_ID_REGISTER;
}

static uint32_t queue_stand_in(const struct arch *a)
{
        return a->environment + 4 * SPLICE_QUEUE_REGISTER;
}

static bool is_constant_load(const struct arch *a, const struct instr *i)
{
        return arch_role(a, i) == ARCH_LDC || arch_role(a, i) == ARCH_ULDC;
}

static bool reads_constant(const struct arch *a, const struct instr *i)
{
        return is_constant_load(a, i) || instr_form(i) == INSTR_FORM_CONSTANT_B ||
               instr_form(i) == INSTR_FORM_CONSTANT_C;
}

static bool loads_word(const struct arch *a, const struct instr *i, uint32_t offset)
{
        return is_constant_load(a, i) && instr_constant_bank(i) == 0 &&
               instr_constant_offset(i) == offset && instr_load_size(i) == INSTR_LOAD_32;
}

static bool loads_kernel_id(const struct arch *a, const struct instr *i)
{
        return loads_word(a, i, kernel_id_constant(a));
}

/* Whether a constant operand may take in the word at `offset`: one of up to 16 aligned bytes. */
static bool touches_word(const struct instr *i, uint32_t offset)
{
        return instr_constant_offset(i) / 16 == offset / 16 && instr_constant_offset(i) <= offset;
}

static bool is_tail(const struct arch *a, const struct instr *i)
{
        int64_t bytes;

        return arch_role(a, i) == ARCH_NOP ||
               (arch_role(a, i) == ARCH_BRA && arch_relative_target(a, i, &bytes) && bytes == 0);
}

/*
 * A YIELD as a NOP. Behind one another part of the warp may run, where it may come to the
 * convergence barriers that lanes of this one are to meet at, or change uniform registers
 * in which the kernel keeps something about this one (which lanes are active, say, until a
 * load is back). Without, a part that waits for lanes of its own lets those run: measured, for
 * no document says so. Programs wait for nobody else, so that none needs it.
 */
static struct instr without_turn(const struct arch *a, struct instr i)
{
        return arch_role(a, &i) == ARCH_YIELD ? encode_nop_like(a, &i) : i;
}

int body_load(const struct arch *a, const uint8_t *code, size_t bytes, struct body *b,
              const char **ret_reason)
{
        size_t count = bytes / INSTR_BYTES;

        if (bytes % INSTR_BYTES || count > PROBE_INSTR_MAX)
                return fail(-EINVAL, "the probe is too long", ret_reason);
        b->arch = a;
        b->at = calloc(count + 1, sizeof(*b->at));
        b->keep = calloc(count + 1, sizeof(*b->keep));
        b->takes_id = calloc(count + 1, sizeof(*b->takes_id));
        b->open = calloc(count + 1, sizeof(*b->open));
        if (!b->at || !b->keep || !b->takes_id || !b->open)
                return fail(-ENOMEM, "out of memory", ret_reason);
        for (size_t k = 0; k < count; k++) {
                b->at[k] = without_turn(a, instr_load(code, k));
                b->keep[k] = true;
        }
        while (count && is_tail(a, &b->at[count - 1]))
                count--;
        b->count = (uint32_t)count;
        return count ? 0 : fail(-EINVAL, "the probe is empty", ret_reason);
}

void body_done(struct body *b)
{
        free(b->at);
        free(b->keep);
        free(b->takes_id);
        free(b->open);
        *b = (struct body){0};
}

/* A WARPSYNC that names no place has the next instruction as its target. */
static bool is_plain_warpsync(const struct arch *a, const struct instr *i)
{
        int64_t bytes;

        return arch_role(a, i) == ARCH_WARPSYNC && arch_relative_target(a, i, &bytes) &&
               bytes == INSTR_BYTES;
}

/* Where a jump goes; the end of the body counts as inside. False: it is no jump, or leaves. */
static bool jump_target(const struct body *b, uint32_t at, uint32_t *ret_index)
{
        int64_t bytes, target;

        if (is_plain_warpsync(b->arch, &b->at[at]) ||
            !arch_relative_target(b->arch, &b->at[at], &bytes))
                return false;
        target = (int64_t)at * INSTR_BYTES + bytes;
        if (target < 0 || target % INSTR_BYTES || target / INSTR_BYTES > b->count)
                return false;
        *ret_index = (uint32_t)(target / INSTR_BYTES);
        return true;
}

static const char *check_control(struct body *b, uint32_t k)
{
        const struct instr *i = &b->at[k];
        uint32_t target;

        switch (arch_role(b->arch, i)) {
        case ARCH_EXIT:
                return instr_exit_is_plain(i) ? NULL : "the probe has an EXIT with modifiers";
        case ARCH_BSYNC:
        case ARCH_BREAK:
                return NULL;
        case ARCH_WARPSYNC:
                return is_plain_warpsync(b->arch, i) ? NULL : "the probe has a collective section";
        case ARCH_BSSY:
        case ARCH_BRA:
                break;
        default:
                return "the probe calls or jumps in a way that cannot be moved";
        }
        return jump_target(b, k, &target) ? NULL : "the probe jumps out of itself";
}

static const char *check_constant(const struct arch *a, const struct instr *i)
{
        if (instr_constant_bank(i) != 0)
                return "the probe reads a constant bank of its own";
        if (instr_constant_offset(i) >= a->parameters)
                return "the probe reads kernel parameters";
        if (instr_constant_offset(i) == kernel_id_constant(a) && !loads_kernel_id(a, i))
                return "the probe uses the kernel id in a way that cannot be patched";
        if (touches_word(i, queue_stand_in(a)) && !loads_word(a, i, queue_stand_in(a)))
                return "the probe uses the launch's descriptor in a way that cannot be patched";
        if ((arch_role(a, i) == ARCH_LDC && instr_register_a(i) != INSTR_R_ZERO) ||
            arch_role(a, i) == ARCH_ULDC_INDEXED)
                return "the probe reads constants by index";
        return NULL;
}

static const char *check_instructions(struct body *b)
{
        for (uint32_t k = 0; k < b->count; k++) {
                const struct arch_op *op = arch_op(b->arch, &b->at[k]);
                const char *why = NULL;

                if (!op)
                        return "the probe has an unknown instruction";
                if (op->properties & ARCH_NOT_IN_PROBE)
                        return "the probe uses the stack, shared memory or a block-wide operation";
                if (op->properties & ARCH_CONTROL)
                        why = check_control(b, k);
                else if (reads_constant(b->arch, &b->at[k]))
                        why = check_constant(b->arch, &b->at[k]);
                if (why)
                        return why;
        }
        return NULL;
}

/* The same with an immediate in place of the uniform register, or opcode 0. */
static struct instr with_immediate(const struct arch *a, const struct instr *i, uint32_t value)
{
        const uint64_t below = 0xfffff1ff; /* the number, without the form */
        uint64_t form =
                instr_form(i) == INSTR_FORM_UNIFORM_B ? INSTR_FORM_NUMBER_B : INSTR_FORM_NUMBER_C;
        struct instr out = *i;

        if (!arch_has(a, i, ARCH_UR_TO_NUMBER) || i->lo >> 38) /* more than the register there */
                return (struct instr){0};
        out.lo = (i->lo & below) | form << 9 | (uint64_t)value << 32;
        out.hi &= ~INSTR_UR_PRESENT;
        return out;
}

static bool writes_uniform(const struct arch *a, const struct instr *i, uint32_t ur)
{
        return (arch_op(a, i)->ur_written & INSTR_UR_D) && instr_ur_get(i, INSTR_UR_D) == ur;
}

static bool reads_uniform(const struct arch *a, const struct instr *i, uint32_t ur)
{
        uint8_t fields = arch_ur_fields(a, i) & (uint8_t)~arch_op(a, i)->ur_written;

        for (uint8_t f = INSTR_UR_D; f <= INSTR_UR_E; f <<= 1) {
                if ((fields & f) && instr_ur_get(i, f) == ur)
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
                const struct instr *i = &b->at[j];

                if (!(arch_ur_mask(b->arch, i) >> ur & 1))
                        continue;
                if (writes_uniform(b->arch, i, ur))
                        return reads_uniform(b->arch, i, ur) ? NO_INDEX : j;
                if (!reads_uniform(b->arch, i, ur) || !with_immediate(b->arch, i, 0).lo)
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

        if (ur == INSTR_UR_ZERO || end == NO_INDEX || !entered_only_at(b, k, end) ||
            instr_predicate(&b->at[k]) != INSTR_ALWAYS)
                return false;
        for (uint32_t j = k + 1; j < end; j++) {
                if (!reads_uniform(b->arch, &b->at[j], ur))
                        continue;
                b->at[j] = with_immediate(b->arch, &b->at[j], 0);
                b->takes_id[j] = true;
        }
        b->at[k] = encode_nop_like(b->arch, &b->at[k]);
        return true;
}

/*
 * Make the load of the kernel id a move of a number to be filled in. As a load
 * from memory it was tracked by a scoreboard, maybe also for loads before it: then
 * it cannot be replaced.
 */
static const char *replace_id_load(struct body *b, uint32_t k)
{
        const struct arch *a = b->arch;
        struct instr *i = &b->at[k], move;
        uint32_t dest = instr_register_d(i);

        if (arch_role(a, i) == ARCH_ULDC) {
                if (inline_kernel_id(b, k, dest & 63))
                        return NULL;
                move = encode_umov(a, dest & 63, 0);
        } else {
                for (uint32_t j = 0; j < k; j++) {
                        if (arch_role(a, &b->at[j]) == ARCH_LDC && track_untracked(a, &b->at[j]))
                                return "the kernel id is loaded together with other constants";
                }
                move = encode_mov(a, dest, 0);
        }
        move.lo = (move.lo & ~INSTR_GUARD) | (i->lo & INSTR_GUARD);
        instr_add_waits(&move, instr_waits(i));
        *i = move;
        b->takes_id[k] = true;
        return NULL;
}

/* The barriers that the BREAKs right before a branch leave for those who take it. */
static uint16_t left_by_branch(const struct body *b, uint32_t k)
{
        uint16_t left = 0;

        for (uint32_t j = k; j-- > 0;) {
                if (arch_role(b->arch, &b->at[j]) != ARCH_BREAK ||
                    instr_predicate(&b->at[j]) != instr_predicate(&b->at[k]))
                        break;
                left |= (uint16_t)arch_barriers(b->arch, &b->at[j]);
        }
        return left;
}

/* The barriers of who goes on with the next instruction. */
static uint16_t open_behind(const struct body *b, uint32_t k)
{
        uint16_t named = (uint16_t)arch_barriers(b->arch, &b->at[k]);

        switch (arch_role(b->arch, &b->at[k])) {
        case ARCH_BSSY:
                return b->open[k] | named;
        case ARCH_BSYNC:
                return b->open[k] & (uint16_t)~named;
        case ARCH_BREAK:
                return instr_is_always(&b->at[k]) ? b->open[k] & (uint16_t)~named : b->open[k];
        default:
                return b->open[k];
        }
}

/* Follow all ways once more; whether there was something new. */
static bool follow_barriers(struct body *b)
{
        bool changed = false;

        for (uint32_t k = 0; k < b->count; k++) {
                enum arch_role role = arch_role(b->arch, &b->at[k]);
                uint16_t behind = open_behind(b, k), there;
                uint32_t target;

                if ((role != ARCH_BRA && role != ARCH_EXIT) || !instr_is_always(&b->at[k])) {
                        changed |= behind & ~b->open[k + 1];
                        b->open[k + 1] |= behind;
                }
                if (role != ARCH_BRA || !jump_target(b, k, &target))
                        continue;
                there = behind & (uint16_t)~left_by_branch(b, k);
                changed |= there & ~b->open[target];
                b->open[target] |= there;
        }
        return changed;
}

static uint32_t breaks_at(const struct body *b, uint32_t k)
{
        return arch_role(b->arch, &b->at[k]) == ARCH_EXIT ? (uint32_t)__builtin_popcount(b->open[k])
                                                          : 0;
}

/*
 * An EXIT takes the lane out of all barriers. Where it becomes a branch, BREAKs in front of it
 * do: else those who wait there would wait for ever.
 */
static const char *find_breaks(struct body *b)
{
        while (follow_barriers(b))
                ;
        for (uint32_t k = 0; k < b->count; k++) {
                uint32_t breaks = breaks_at(b, k);

                if (breaks && instr_predicate_read(&b->at[k]) != INSTR_ALWAYS)
                        return "the probe leaves a barrier in a way that cannot be moved";
                b->breaks += breaks;
        }
        return NULL;
}

/* There is no stack. Behind others the cycles stay that the load takes. */
static void drop_stack_pointer(struct body *b, uint32_t k)
{
        b->at[k] = encode_nop_like(b->arch, &b->at[k]);
        b->keep[k] = k > 0;
}

const char *body_prepare(struct body *b)
{
        const struct arch *a = b->arch;
        const char *why = check_instructions(b);

        if (!why)
                why = find_breaks(b);

        for (uint32_t k = 0; k < b->count && !why; k++) {
                if (loads_kernel_id(a, &b->at[k]))
                        why = replace_id_load(b, k);
                else if (loads_word(a, &b->at[k], queue_stand_in(a)))
                        instr_set_constant_offset(&b->at[k], (uint32_t)((int32_t)a->parameters +
                                                                        a->grid.queue_offset));
                else if (arch_loads_stack_pointer(a, &b->at[k]))
                        drop_stack_pointer(b, k);
        }
        return why;
}

bool body_ends(const struct body *b)
{
        const struct instr *last = &b->at[b->count - 1];

        return (arch_role(b->arch, last) == ARCH_EXIT || arch_role(b->arch, last) == ARCH_BRA) &&
               instr_is_always(last);
}

/* Whether instruction k can be executed again. */
static bool in_loop(const struct body *b, uint32_t k)
{
        for (uint32_t j = k; j < b->count; j++) {
                uint32_t target;

                if (arch_role(b->arch, &b->at[j]) == ARCH_BRA && jump_target(b, j, &target) &&
                    target <= k)
                        return true;
        }
        return false;
}

/*
 * The first instruction that lanes may come to one by one. Up to there those who entered are
 * together, so that a WARPSYNC waits for nobody.
 */
static uint32_t together_until(const struct body *b)
{
        uint32_t k = 0;

        while (k < b->count && !in_loop(b, k) &&
               (!arch_has(b->arch, &b->at[k], ARCH_CONTROL) ||
                arch_role(b->arch, &b->at[k]) == ARCH_WARPSYNC))
                k++;
        return k;
}

bool body_meets(const struct body *b)
{
        for (uint32_t k = together_until(b); k < b->count; k++)
                if (arch_has(b->arch, &b->at[k], ARCH_TOGETHER))
                        return true;
        return false;
}

bool body_meets_plainly(const struct body *b)
{
        for (uint32_t k = 0; k < b->count; k++) {
                const struct instr *i = &b->at[k], *last;
                uint32_t target;

                if (arch_role(b->arch, i) != ARCH_BSSY)
                        continue;
                if (!jump_target(b, k, &target) || target <= k)
                        return false;
                last = &b->at[target - 1];
                if (arch_role(b->arch, last) != ARCH_BSYNC ||
                    instr_barrier(last) != instr_barrier(i))
                        return false;
        }
        return true;
}

/*
 * The ways out for whole warps. A probe for the first block only starts by asking for
 * the block's index, first x, then y and z. All lanes of a warp get the same answer, so
 * that no lane has to wait for another: such an exit needs no WARPSYNC, and every
 * other block runs just these few instructions.
 */
struct uniform {
        uint64_t registers[4]; /* by bit: the same for all lanes */
        uint32_t predicates;
};

static bool is_uniform(const struct uniform *u, uint32_t reg)
{
        return reg == INSTR_R_ZERO || (u->registers[reg / 64] >> (reg % 64) & 1);
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
static bool sources_uniform(const struct uniform *u, const struct instr *i)
{
        return is_uniform(u, instr_register_a(i)) &&
               (instr_form(i) != INSTR_FORM_REGISTERS || is_uniform(u, instr_register_b(i)));
}

/* Follow one instruction. False: it is none of those that are understood here. */
static bool step_uniform(const struct arch *a, struct uniform *u, const struct instr *i)
{
        uint32_t special = instr_special(i);
        bool same;

        if (instr_predicate(i) != INSTR_ALWAYS)
                return false;
        switch (arch_role(a, i)) {
        case ARCH_NOP:
        case ARCH_ULDC:
        case ARCH_S2UR:
                return true;
        case ARCH_S2R:
                set_uniform(u, instr_register_d(i), special >= a->ctaid_x && special <= a->ctaid_z);
                return true;
        case ARCH_ISETP:
                same = sources_uniform(u, i) && (instr_predicate_read(i) & 7) == INSTR_ALWAYS &&
                       instr_register_c(i) == INSTR_COMPARES_ALONE;
                set_predicate(u, instr_predicate_written(i), same);
                set_predicate(u, instr_second_predicate_written(i), same);
                return true;
        case ARCH_LOP3:
                same = sources_uniform(u, i) && is_uniform(u, instr_register_c(i)) &&
                       (instr_predicate_read(i) & 7) == INSTR_ALWAYS;
                set_uniform(u, instr_register_d(i), same);
                set_predicate(u, instr_predicate_written(i), same);
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
        const struct instr *i = &b->at[k];
        uint32_t predicate = instr_predicate(i);

        return predicate != INSTR_ALWAYS && (u->predicates >> (predicate & 7) & 1) &&
               instr_predicate_read(i) == INSTR_ALWAYS && !is_jumped_into(b, k);
}

/* The first conditional EXITs as long as all lanes take them together; how many. */
static uint32_t find_warp_exits(const struct body *b, uint32_t exits[static WARP_EXITS_MAX])
{
        struct uniform u = {{0}, 0};
        uint32_t found = 0;

        for (uint32_t k = 0; k < b->count && found < WARP_EXITS_MAX; k++) {
                if (!b->keep[k])
                        continue;
                if (arch_role(b->arch, &b->at[k]) == ARCH_EXIT) {
                        if (!leaves_together(b, &u, k))
                                break;
                        exits[found++] = k;
                } else if (!step_uniform(b->arch, &u, &b->at[k])) {
                        break;
                }
        }
        return found;
}

/* Store the BREAKs of an EXIT, under its predicate. Returns the place behind them. */
static uint32_t emit_breaks(const struct body *b, struct probe_sequence *seq, uint32_t k,
                            uint32_t at)
{
        uint32_t open = breaks_at(b, k) ? b->open[k] : 0;

        for (; open; open &= open - 1) {
                struct instr i = encode_break(b->arch, (uint32_t)__builtin_ctz(open));

                i.lo = (i.lo & ~INSTR_GUARD) | (b->at[k].lo & INSTR_GUARD);
                instr_store(seq->code, at++, i);
        }
        return at;
}

/* Store an instruction of the body at a place of the sequence, and note if it takes the id. */
static int emit(const struct body *b, struct probe_sequence *seq, uint32_t k, uint32_t at,
                struct instr i, const uint32_t *new_index)
{
        uint32_t target;

        if (jump_target(b, k, &target))
                arch_set_relative_target(b->arch, &i, instr_distance(at, new_index[target]));
        if (b->takes_id[k]) {
                if (seq->id_count == PROBE_ID_MAX)
                        return -EINVAL;
                seq->id_at[seq->id_count++] = at;
        }
        instr_store(seq->code, at, i);
        return 0;
}

/* Places of an entry sequence's own instructions. */
struct entry_layout {
        uint32_t warp_exits[WARP_EXITS_MAX]; /* in the body */
        uint32_t warp_exit_count;
        uint32_t meeting;
};

static bool is_warp_exit(const struct entry_layout *l, uint32_t k)
{
        for (uint32_t x = 0; x < l->warp_exit_count; x++) {
                if (l->warp_exits[x] == k)
                        return true;
        }
        return false;
}

/*
 * Whether it waits for all lanes of the warp where some may have left: those wait at the end
 * of the sequence, for the others.
 */
static bool waits_for_who_left(const struct body *b, uint32_t k)
{
        struct entry_layout l = {.warp_exit_count = 0};

        if (arch_role(b->arch, &b->at[k]) != ARCH_WARPSYNC ||
            instr_form(&b->at[k]) == INSTR_FORM_REGISTERS)
                return false;
        l.warp_exit_count = find_warp_exits(b, l.warp_exits);
        for (uint32_t j = 0; j < b->count; j++)
                if (arch_role(b->arch, &b->at[j]) == ARCH_EXIT && !is_warp_exit(&l, j) &&
                    (j < k || in_loop(b, k)))
                        return true;
        return false;
}

bool body_can_enter(const struct body *b)
{
        if (!body_meets(b))
                return true;
        for (uint32_t k = 0; k < b->count; k++)
                if (waits_for_who_left(b, k))
                        return false;
        return true;
}

static void lay_out_entry(const struct body *b, uint32_t *new_index, struct entry_layout *l)
{
        bool drop_last = arch_role(b->arch, &b->at[b->count - 1]) == ARCH_EXIT &&
                         instr_is_always(&b->at[b->count - 1]) && /* runs into the end anyway */
                         !breaks_at(b, b->count - 1);
        uint32_t n = 0;

        l->warp_exit_count = find_warp_exits(b, l->warp_exits);
        for (uint32_t k = 0; k < b->count; k++) {
                new_index[k] = n;
                n += breaks_at(b, k);
                n += b->keep[k] && !(drop_last && k == b->count - 1);
                if (is_warp_exit(l, k))
                        n += SPLICE_RETURN_INSTRS;
        }
        new_index[b->count] = l->meeting = n;
}

/* Whether the sequence starts with S2UR and an instruction that waits just for it. */
static bool asks_first(const struct arch *a, const struct probe_sequence *seq)
{
        struct instr ask = instr_load(seq->code, 0), test = instr_load(seq->code, 1);
        uint32_t scoreboard = instr_result_scoreboard(&ask);

        return arch_role(a, &ask) == ARCH_S2UR && instr_predicate(&ask) == INSTR_ALWAYS &&
               scoreboard < INSTR_SCOREBOARDS && !instr_waits(&ask) &&
               instr_waits(&test) == 1u << scoreboard && arch_ur_fields(a, &test) == INSTR_UR_B &&
               instr_ur_get(&test, INSTR_UR_B) == instr_ur_get(&ask, INSTR_UR_D);
}

int body_emit_entry(struct body *b, struct probe_sequence *seq, uint32_t *new_index)
{
        const struct arch *a = b->arch;
        struct entry_layout l;
        int r = 0;

        lay_out_entry(b, new_index, &l);
        for (uint32_t k = 0; k < b->count && r == 0; k++) {
                struct instr i = b->at[k];
                uint32_t at;

                if (!b->keep[k] || new_index[k] == l.meeting)
                        continue;
                at = emit_breaks(b, seq, k, new_index[k]);
                if (is_warp_exit(&l, k)) {
                        /* Those who do not leave jump: leaving is the common case. */
                        i.lo ^= INSTR_PREDICATE_NOT;
                        i = encode_exit_to_branch(a, &i, (SPLICE_RETURN_INSTRS + 1) * INSTR_BYTES);
                        seq->return_at[seq->return_count++] = at + 1;
                } else if (arch_role(a, &i) == ARCH_EXIT) {
                        i = encode_exit_to_branch(a, &i, instr_distance(at, l.meeting));
                } else if (waits_for_who_left(b, k)) {
                        i = encode_nop_like(a, &i);
                }
                r = emit(b, seq, k, at, i, new_index);
        }
        if (r < 0)
                return r;
        seq->asks_first =
                l.warp_exit_count && new_index[l.warp_exits[0]] == 2 && asks_first(a, seq);
        instr_store(seq->code, l.meeting, encode_warpsync(a, INSTR_WAIT_ALL));
        seq->return_at[seq->return_count++] = l.meeting + 1;
        seq->count = l.meeting + 1 + SPLICE_RETURN_INSTRS;
        for (uint32_t k = 0; k < seq->return_count; k++) {
                instr_store(seq->code, seq->return_at[k], encode_nop(a));
                instr_store(seq->code, seq->return_at[k] + 1, encode_nop(a));
        }
        return 0;
}

/* Who does not have to meet others does not need to know of barriers, nor who is with them. */
static bool is_dropped(const struct body *b, uint32_t k, bool meets, uint32_t together)
{
        switch (arch_role(b->arch, &b->at[k])) {
        case ARCH_BSSY:
        case ARCH_BSYNC:
        case ARCH_BREAK:
                return !meets;
        case ARCH_WARPSYNC:
                return !meets || k < together;
        default:
                return false;
        }
}

int body_emit_exit(const struct body *b, struct probe_sequence *seq, uint32_t *new_index)
{
        bool meets = body_meets(b);
        uint32_t together = together_until(b), n = 0;
        int r = 0;

        for (uint32_t k = 0; k < b->count; k++) {
                new_index[k] = n;
                n += b->keep[k] + (meets ? breaks_at(b, k) : 0);
        }
        new_index[b->count] = seq->count = n;
        for (uint32_t k = 0; k < b->count && r == 0; k++) {
                uint32_t at = new_index[k];

                if (!b->keep[k])
                        continue;
                if (meets)
                        at = emit_breaks(b, seq, k, at);
                if (is_dropped(b, k, meets, together))
                        instr_store(seq->code, at, encode_nop_like(b->arch, &b->at[k]));
                else
                        r = emit(b, seq, k, at, b->at[k], new_index);
        }
        return r;
}
