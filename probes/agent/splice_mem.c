/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The copy of a memory probe for one site:
 *
 *      NOP                     what the site's instruction waits for, and predicates
 *      P2R  saved, PR
 *      BSSY Bn, end
 *      @!p BRA end             where the site stands under @p
 *      address = base + offset
 *      the program             its EXITs are branches to the end
 * end: BSYNC Bn                and what the program has not finished
 *      R2P  PR, saved
 *      the site's instruction
 *      BRA  behind the site
 *
 * Of several programs each but the last has a BSSY and a BSYNC of its own around it. Those
 * that a program has itself get other barriers.
 *
 * Lanes that come to the site together leave it together. The programs' registers are
 * above the kernel's own, so that nothing has to be saved but predicates. As part of a
 * warp runs while another part is elsewhere in the kernel, or in another copy, uniform
 * registers are as at exits (splice_uniform.c): none that the kernel names, and none that
 * holds two values.
 *
 * The address is what the site's own instruction is about to read: what it waits for is
 * all that must be waited for, and loads of the kernel that are on their way stay there.
 * The programs tell their own by scoreboards that no load of the kernel uses, where there
 * are such. A copy waits for all of its own before it ends, as the next one uses the same
 * registers.
 */
#include <string.h>

#include "../device/device_abi.h"
#include "access.h"
#include "encode.h"
#include "splice_mem.h"
#include "track.h"

#define EXTRA_REGISTERS 4 /* the address, an even pair; the predicates; up to a multiple of 4 */
#define QUAD            4
#define COPIES_MAX      (1u << 16) /* instructions of all copies of a kernel */

/* Around the programs, without the guard and the address. */
#define INSTRS_BEFORE 3
#define INSTRS_BEHIND 4

static bool is_guarded(const struct instr *i)
{
        return instr_predicate(i) != INSTR_ALWAYS;
}

/* Where an access finds its address, and the instructions that make it where it is a sum. */
struct address {
        uint32_t low, high; /* registers */
        struct instr sum[2];
        uint32_t count;
};

static void add_sum(struct address *a, struct instr i)
{
        a->sum[a->count++] = i;
}

static struct address make_address(const struct arch *a, const struct access *s, uint32_t pair)
{
        struct address to = {.low = pair, .high = s->is_wide ? pair + 1 : INSTR_R_ZERO};

        if (s->is_wide && s->base == INSTR_R_ZERO) {
                add_sum(&to, encode_add(a, pair, INSTR_R_ZERO, s->offset));
                add_sum(&to, encode_add(a, pair + 1, INSTR_R_ZERO, s->offset < 0 ? -1 : 0));
        } else if (s->is_wide && s->offset) {
                add_sum(&to, encode_add_low(a, pair, s->base, s->offset));
                add_sum(&to, encode_add_high(a, pair + 1, s->base + 1U, s->offset));
        } else if (s->ur != INSTR_UR_ZERO) {
                add_sum(&to, encode_add_uniform(a, pair, s->base, s->ur));
                if (s->offset)
                        add_sum(&to, encode_add(a, pair, pair, s->offset));
        } else if (s->offset) {
                add_sum(&to, encode_add(a, pair, s->base, s->offset));
        } else {
                to.low = s->base;
                to.high = s->is_wide ? s->base + 1U : INSTR_R_ZERO;
        }
        return to;
}

/* Where the last instruction of a probe is an EXIT, the end follows anyway. */
static uint32_t probe_count(const struct probe_code *p)
{
        struct instr last = instr_load(p->exit.code, p->exit.count - 1);

        return p->exit.count - (arch_role(p->arch, &last) == ARCH_EXIT);
}

/* The site's instruction and its address. */
struct site {
        struct instr instr;
        struct access access;
        struct address address;
};

static struct site read_site(const struct mem_plan *plan, const struct instr *i)
{
        struct site s = {.instr = *i};

        access_read(plan->arch, i, &s.access);
        s.address = make_address(plan->arch, &s.access, plan->address);
        return s;
}

static uint32_t instrs_before(const struct site *s)
{
        return INSTRS_BEFORE + is_guarded(&s->instr) + s->address.count;
}

/* Instructions of a program with those around it alone. */
static uint32_t part_count(const struct probe_code *p, bool last)
{
        return probe_count(p) + (last ? 0 : 2);
}

static uint32_t chain_count(const struct probe_chain *chain)
{
        uint32_t n = 0;

        for (uint32_t k = 0; k < chain->count; k++)
                n += part_count(chain->probes[k].code, k + 1 == chain->count);
        return n;
}

/* Registers for what is around the programs, and for these above. */
static void choose_registers(struct mem_plan *plan, const struct mem_facts *facts)
{
        plan->address = (facts->registers + QUAD - 1) / QUAD * QUAD;
        plan->saved = plan->address + 2;
        plan->base = plan->address + EXTRA_REGISTERS;
}

/* INSTR_BARRIERS: there is none. */
static uint32_t find_barrier(uint32_t used)
{
        uint32_t b = 0;

        while (b < INSTR_BARRIERS && (used >> b & 1))
                b++;
        return b;
}

/* Around all programs, around each but the last, within each. False: too few are free. */
static bool choose_barriers(struct mem_plan *plan, const struct mem_facts *facts)
{
        uint32_t used = facts->barriers_used;

        for (uint32_t n = 0; n < 1 + (plan->chain.count > 1); n++) {
                plan->barriers[n] = find_barrier(used);
                if (plan->barriers[n] == INSTR_BARRIERS)
                        return false;
                used |= 1u << plan->barriers[n];
        }
        for (uint32_t k = 0; k < plan->chain.count; k++)
                if (!planned_choose_barriers(&plan->chain.probes[k], used))
                        return false;
        return true;
}

/* Scoreboards, those that tell of the fewest loads of the kernel first. */
static void sort_boards(const struct mem_facts *facts, uint8_t order[INSTR_SCOREBOARDS])
{
        for (uint8_t b = 0; b < INSTR_SCOREBOARDS; b++) {
                uint32_t at = b;

                for (; at && facts->load_boards[order[at - 1]] > facts->load_boards[b]; at--)
                        order[at] = order[at - 1];
                order[at] = b;
        }
}

/* The probe's scoreboards share those of the kernel's that tell of no load, at least one. */
static void choose_boards(const struct mem_facts *facts, struct mem_plan *plan)
{
        uint8_t order[INSTR_SCOREBOARDS];
        uint32_t quiet = 0;

        sort_boards(facts, order);
        while (quiet < INSTR_SCOREBOARDS && !facts->load_boards[order[quiet]])
                quiet++;
        for (uint32_t b = 0; b < INSTR_SCOREBOARDS; b++)
                plan->boards[b] = order[quiet ? b % quiet : 0];
}

/* Whether each instruction of a program can be moved to the registers at base. */
static const char *check_registers(const struct probe_code *p, uint32_t base, uint32_t *ret_detail)
{
        for (uint32_t k = 0; k < probe_count(p); k++) {
                struct instr i = instr_load(p->exit.code, k);

                if (arch_move_registers(p->arch, &i, base))
                        continue;
                *ret_detail = instr_opcode(&i);
                return "the probe has an instruction whose registers cannot be moved";
        }
        return NULL;
}

uint32_t mem_registers(const struct mem_plan *plan, const struct mem_facts *facts,
                       const struct probe_code *next)
{
        struct mem_plan chosen = {0};

        choose_registers(&chosen, facts);
        return chosen.base + chain_registers(&plan->chain, next);
}

const char *mem_refuse(const struct mem_plan *plan, const struct mem_facts *facts,
                       const struct probe_code *next, const uint8_t *code, uint32_t *ret_detail)
{
        struct mem_plan more = *plan;

        if (plan->chain.count == SPLICE_CHAIN_MAX)
                return "too many programs at its accesses";
        more.chain.probes[more.chain.count++] = (struct planned_probe){.code = next};
        if (!choose_barriers(&more, facts))
                return "it leaves no convergence barrier free";
        if (mem_registers(plan, facts, next) > INSTR_REGISTERS) {
                *ret_detail = facts->registers;
                return "it has too few registers left for the probe";
        }
        mem_lay_out(&more, facts, code);
        if (more.instructions > COPIES_MAX) {
                *ret_detail = plan->sites.count;
                return "it accesses memory at too many places";
        }
        return check_registers(next, more.base, ret_detail);
}

void mem_lay_out(struct mem_plan *plan, const struct mem_facts *facts, const uint8_t *code)
{
        uint32_t total = 0;

        choose_registers(plan, facts);
        choose_barriers(plan, facts);
        plan->predicates_untold = facts->predicates_untold;
        plan->waits = facts->predicate_boards;
        if (facts->predicates_untold)
                plan->waits |= 1u << facts->quiet_scoreboard;
        choose_boards(facts, plan);
        for (uint32_t k = 0; k < plan->sites.count; k++) {
                struct instr i = instr_load(code, plan->sites.at[k]);
                struct site s = read_site(plan, &i);

                plan->sites.place[k] = total + instrs_before(&s);
                total += instrs_before(&s) + chain_count(&plan->chain) + INSTRS_BEHIND;
        }
        plan->instructions = total;
}

uint32_t mem_place(const struct mem_plan *plan, uint32_t s, uint32_t n)
{
        uint32_t at = plan->sites.place[s] + (n + 1 < plan->chain.count); /* its BSSY */

        for (uint32_t k = 0; k < n; k++)
                at += part_count(plan->chain.probes[k].code, false);
        return at;
}

static uint32_t move_board(const struct mem_plan *plan, uint32_t board)
{
        return board < INSTR_SCOREBOARDS ? plan->boards[board] : board;
}

/* The same scoreboards as in the probe, by the names they have in the kernel. */
static void move_boards(const struct mem_plan *plan, struct instr *i)
{
        uint32_t waits = instr_waits(i), moved = 0;

        for (uint32_t b = 0; b < INSTR_SCOREBOARDS; b++)
                if (waits >> b & 1)
                        moved |= 1u << plan->boards[b];
        instr_set_waits(i, moved);
        instr_set_result_scoreboard(i, move_board(plan, instr_result_scoreboard(i)));
        instr_set_source_scoreboard(i, move_board(plan, instr_source_scoreboard(i)));
}

/* What stands in for the address and for what is known of the access, under its predicate. */
static struct instr replace_stand_in(const struct arch *a, const struct site *s,
                                     const struct instr *i)
{
        uint32_t reg = instr_register_d(i), special = instr_special(i);
        struct instr out;

        if (arch_role(a, i) != ARCH_S2R)
                return *i;
        if (special == a->lanemask_ge)
                out = encode_mov_register(a, reg, s->address.low);
        else if (special == a->lanemask_gt)
                out = encode_mov_register(a, reg, s->address.high);
        else if (special == a->lanemask_le)
                out = encode_mov(a, reg,
                                 DEVICE_ACCESS((uint32_t)s->access.size, (uint32_t)s->access.kind,
                                               (uint32_t)s->access.space));
        else
                return *i;
        out.lo = (out.lo & ~INSTR_GUARD) | (i->lo & INSTR_GUARD);
        instr_add_waits(&out, instr_waits(i));
        return out;
}

/* A program's instructions, for one site. Returns the scoreboards they ask to tell. */
static uint32_t write_program(const struct mem_plan *plan, const struct planned_probe *p,
                              uint32_t kernel_id, const struct site *s, uint8_t *copy)
{
        const struct arch *a = plan->arch;
        uint32_t count = probe_count(p->code), boards = 0;

        memcpy(copy, p->code->exit.code, (size_t)count * INSTR_BYTES);
        track_all(a, copy, count, false);
        planned_set_chosen(p, copy);
        sequence_set_id(&p->code->exit, kernel_id, copy);
        for (uint32_t k = 0; k < count; k++) {
                struct instr i = instr_load(copy, k);

                if (k == 0)
                        instr_set_waits(&i, 0); /* at exits it waits for what the kernel began */
                if (arch_role(a, &i) == ARCH_EXIT)
                        i = encode_exit_to_branch(a, &i, instr_distance(k, count));
                arch_move_registers(a, &i, plan->base);
                instr_drop_reuse(&i); /* moves take the place of some that read no operands */
                move_boards(plan, &i);
                i = replace_stand_in(a, s, &i);
                boards |= 1u << instr_result_scoreboard(&i) | 1u << instr_source_scoreboard(&i);
                instr_store(copy, k, i);
        }
        return boards & INSTR_WAIT_ALL;
}

/* All programs, each behind the one before it. The scoreboards the last one asks to tell. */
static uint32_t write_chain(const struct mem_plan *plan, uint32_t kernel_id, const struct site *s,
                            uint32_t at, uint8_t *code)
{
        const struct arch *a = plan->arch;
        uint32_t boards = 0;

        for (uint32_t k = 0; k < plan->chain.count; k++) {
                const struct planned_probe *p = &plan->chain.probes[k];
                uint32_t count = probe_count(p->code), barrier = plan->barriers[1];
                bool last = k + 1 == plan->chain.count;

                if (!last)
                        instr_store(code, at++,
                                    encode_bssy(a, barrier, instr_distance(0, count + 2)));
                boards = write_program(plan, p, kernel_id, s, code + (size_t)at * INSTR_BYTES);
                at += count;
                if (!last)
                        instr_store(code, at++, encode_bsync(a, barrier, boards));
        }
        return boards;
}

static uint32_t write_before(const struct mem_plan *plan, const struct site *s, uint32_t at,
                             uint32_t end, uint8_t *code)
{
        const struct arch *a = plan->arch;
        struct instr guard = encode_bra(a, 0);

        instr_store(code, at++, encode_wait(a, instr_waits(&s->instr) | plan->waits));
        instr_store(code, at++, encode_save_predicates(a, plan->saved));
        instr_store(code, at, encode_bssy(a, plan->barriers[0], instr_distance(at, end + 1)));
        at++;
        if (is_guarded(&s->instr)) {
                guard.lo = (guard.lo & ~INSTR_GUARD) |
                           ((s->instr.lo & INSTR_GUARD) ^ INSTR_PREDICATE_NOT);
                arch_set_relative_target(a, &guard, instr_distance(at, end));
                instr_store(code, at++, guard);
        }
        for (uint32_t k = 0; k < s->address.count; k++)
                instr_store(code, at++, s->address.sum[k]);
        return at;
}

static uint32_t write_behind(const struct mem_plan *plan, const struct site *s, uint32_t site,
                             uint32_t boards, uint32_t at, uint8_t *code)
{
        const struct arch *a = plan->arch;
        struct instr own = s->instr;

        instr_drop_reuse(&own);
        instr_store(code, at++, encode_bsync(a, plan->barriers[0], boards));
        instr_store(code, at++, encode_load_predicates(a, plan->saved));
        instr_store(code, at++, own);
        instr_store(code, at, encode_bra(a, instr_distance(at, site + 1)));
        return at + 1;
}

uint32_t mem_write(const struct mem_plan *plan, uint32_t kernel_id, uint32_t at, uint8_t *code)
{
        uint32_t chain = chain_count(&plan->chain);

        for (uint32_t k = 0; k < plan->sites.count; k++) {
                uint32_t site = plan->sites.at[k], begin, boards;
                struct instr i = instr_load(code, site);
                struct site s = read_site(plan, &i);

                instr_store(code, site, encode_bra(plan->arch, instr_distance(site, at)));
                begin = write_before(plan, &s, at, at + instrs_before(&s) + chain, code);
                boards = write_chain(plan, kernel_id, &s, begin, code);
                at = write_behind(plan, &s, site, boards, begin + chain, code);
        }
        return at;
}
