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
 * Of several programs each but the last has a BSSY and a BSYNC of its own around it.
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
#include "sm90_access.h"
#include "sm90_track.h"
#include "splice_mem.h"

#define EXTRA_REGISTERS  4 /* the address, an even pair; the predicates; up to a multiple of 4 */
#define REGISTERS_MAX    255
#define QUAD             4
#define COPIES_MAX       (1u << 16) /* instructions of all copies of a kernel */
#define PREDICATE_ALWAYS 7

/* Around the programs, without the guard and the address. */
#define INSTRS_BEFORE 3
#define INSTRS_BEHIND 4

static bool is_guarded(const struct sm90_instr *i)
{
        return sm90_predicate(i) != PREDICATE_ALWAYS;
}

/* Where an access finds its address, and the instructions that make it where it is a sum. */
struct address {
        uint32_t low, high; /* registers */
        struct sm90_instr sum[2];
        uint32_t count;
};

static void add_sum(struct address *a, struct sm90_instr i)
{
        a->sum[a->count++] = i;
}

static struct address make_address(const struct sm90_access *s, uint32_t pair)
{
        struct address a = {.low = pair, .high = s->is_wide ? pair + 1 : SM90_R_ZERO};

        if (s->is_wide && s->base == SM90_R_ZERO) {
                add_sum(&a, sm90_add(pair, SM90_R_ZERO, s->offset));
                add_sum(&a, sm90_add(pair + 1, SM90_R_ZERO, s->offset < 0 ? -1 : 0));
        } else if (s->is_wide && s->offset) {
                add_sum(&a, sm90_add_low(pair, s->base, s->offset));
                add_sum(&a, sm90_add_high(pair + 1, s->base + 1U, s->offset));
        } else if (s->ur != SM90_UR_ZERO) {
                add_sum(&a, sm90_add_uniform(pair, s->base, s->ur));
                if (s->offset)
                        add_sum(&a, sm90_add(pair, pair, s->offset));
        } else if (s->offset) {
                add_sum(&a, sm90_add(pair, s->base, s->offset));
        } else {
                a.low = s->base;
                a.high = s->is_wide ? s->base + 1U : SM90_R_ZERO;
        }
        return a;
}

/* Where the last instruction of a probe is an EXIT, the end follows anyway. */
static uint32_t probe_count(const struct probe_code *p)
{
        struct sm90_instr last = sm90_load(p->exit.code, p->exit.count - 1);

        return p->exit.count - (sm90_opcode(&last) == SM90_EXIT);
}

/* The site's instruction and its address. */
struct site {
        struct sm90_instr instr;
        struct sm90_access access;
        struct address address;
};

static struct site read_site(const struct mem_plan *plan, const struct sm90_instr *i)
{
        struct site s = {.instr = *i};

        sm90_access(i, &s.access);
        s.address = make_address(&s.access, plan->address);
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

/* SM90_BARRIERS: there is none. */
static uint32_t find_barrier(uint32_t used)
{
        uint32_t b = 0;

        while (b < SM90_BARRIERS && (used >> b & 1))
                b++;
        return b;
}

/* Scoreboards, those that tell of the fewest loads of the kernel first. */
static void sort_boards(const struct mem_facts *facts, uint8_t order[SM90_SCOREBOARDS])
{
        for (uint8_t b = 0; b < SM90_SCOREBOARDS; b++) {
                uint32_t at = b;

                for (; at && facts->load_boards[order[at - 1]] > facts->load_boards[b]; at--)
                        order[at] = order[at - 1];
                order[at] = b;
        }
}

/* The probe's scoreboards share those of the kernel's that tell of no load, at least one. */
static void choose_boards(const struct mem_facts *facts, struct mem_plan *plan)
{
        uint8_t order[SM90_SCOREBOARDS];
        uint32_t quiet = 0;

        sort_boards(facts, order);
        while (quiet < SM90_SCOREBOARDS && !facts->load_boards[order[quiet]])
                quiet++;
        for (uint32_t b = 0; b < SM90_SCOREBOARDS; b++)
                plan->boards[b] = order[quiet ? b % quiet : 0];
}

/* Whether each instruction of a program can be moved to the registers at base. */
static const char *check_registers(const struct probe_code *p, uint32_t base, uint32_t *ret_detail)
{
        for (uint32_t k = 0; k < probe_count(p); k++) {
                struct sm90_instr i = sm90_load(p->exit.code, k);

                if (sm90_move_registers(&i, base))
                        continue;
                *ret_detail = sm90_opcode(&i);
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
        uint32_t barrier = find_barrier(facts->barriers_used);
        struct mem_plan more = *plan;

        choose_registers(&more, facts);
        if (plan->chain.count == SPLICE_CHAIN_MAX)
                return "too many programs at its accesses";
        if (barrier == SM90_BARRIERS ||
            (plan->chain.count &&
             find_barrier(facts->barriers_used | 1u << barrier) == SM90_BARRIERS))
                return "it leaves no convergence barrier free";
        if (mem_registers(plan, facts, next) > REGISTERS_MAX) {
                *ret_detail = facts->registers;
                return "it has too few registers left for the probe";
        }
        more.chain.probes[more.chain.count++] = (struct planned_probe){.code = next};
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
        plan->barriers[0] = find_barrier(facts->barriers_used);
        plan->barriers[1] = find_barrier(facts->barriers_used | 1u << plan->barriers[0]);
        plan->waits = facts->predicate_boards;
        choose_boards(facts, plan);
        for (uint32_t k = 0; k < plan->sites.count; k++) {
                struct sm90_instr i = sm90_load(code, plan->sites.at[k]);
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
        return board < SM90_SCOREBOARDS ? plan->boards[board] : board;
}

/* The same scoreboards as in the probe, by the names they have in the kernel. */
static void move_boards(const struct mem_plan *plan, struct sm90_instr *i)
{
        uint32_t waits = sm90_waits(i), moved = 0;

        for (uint32_t b = 0; b < SM90_SCOREBOARDS; b++)
                if (waits >> b & 1)
                        moved |= 1u << plan->boards[b];
        sm90_set_waits(i, moved);
        sm90_set_result_scoreboard(i, move_board(plan, sm90_result_scoreboard(i)));
        i->hi = (i->hi & ~(7ULL << 49)) | (uint64_t)move_board(plan, sm90_source_scoreboard(i))
                                                  << 49;
}

/* What stands in for the address and for what is known of the access, under its predicate. */
static struct sm90_instr replace_stand_in(const struct site *s, const struct sm90_instr *i)
{
        const uint64_t guard = 0xf000;
        uint32_t reg = (uint32_t)(i->lo >> 16) & 0xff, special = (uint32_t)(i->hi >> 8) & 0xff;
        struct sm90_instr out;

        if (sm90_opcode(i) != SM90_S2R)
                return *i;
        switch (special) {
        case SM90_SR_LANEMASK_GE:
                out = sm90_mov_register(reg, s->address.low);
                break;
        case SM90_SR_LANEMASK_GT:
                out = sm90_mov_register(reg, s->address.high);
                break;
        case SM90_SR_LANEMASK_LE:
                out = sm90_mov(reg,
                               DEVICE_ACCESS((uint32_t)s->access.size, (uint32_t)s->access.kind,
                                             (uint32_t)s->access.space));
                break;
        default:
                return *i;
        }
        out.lo = (out.lo & ~guard) | (i->lo & guard);
        sm90_add_waits(&out, sm90_waits(i));
        return out;
}

/* A program's instructions, for one site. Returns the scoreboards they ask to tell. */
static uint32_t write_program(const struct mem_plan *plan, const struct planned_probe *p,
                              uint32_t kernel_id, const struct site *s, uint8_t *copy)
{
        uint32_t count = probe_count(p->code), boards = 0;

        memcpy(copy, p->code->exit.code, (size_t)count * SM90_INSTR_BYTES);
        sm90_track_all(copy, count, false);
        planned_set_uniform(p, copy);
        sequence_set_id(&p->code->exit, kernel_id, copy);
        for (uint32_t k = 0; k < count; k++) {
                struct sm90_instr i = sm90_load(copy, k);

                if (k == 0)
                        sm90_set_waits(&i, 0); /* at exits it waits for what the kernel began */
                if (sm90_opcode(&i) == SM90_EXIT)
                        i = sm90_exit_to_branch(&i, sm90_distance(k, count));
                sm90_move_registers(&i, plan->base);
                sm90_drop_reuse(&i); /* moves take the place of some that read no operands */
                move_boards(plan, &i);
                i = replace_stand_in(s, &i);
                boards |= 1u << sm90_result_scoreboard(&i) | 1u << sm90_source_scoreboard(&i);
                sm90_store(copy, k, i);
        }
        return boards & SM90_WAIT_ALL;
}

/* All programs, each behind the one before it. The scoreboards the last one asks to tell. */
static uint32_t write_chain(const struct mem_plan *plan, uint32_t kernel_id, const struct site *s,
                            uint32_t at, uint8_t *code)
{
        uint32_t boards = 0;

        for (uint32_t k = 0; k < plan->chain.count; k++) {
                const struct planned_probe *p = &plan->chain.probes[k];
                uint32_t count = probe_count(p->code), barrier = plan->barriers[1];
                bool last = k + 1 == plan->chain.count;

                if (!last)
                        sm90_store(code, at++, sm90_bssy(barrier, sm90_distance(0, count + 2)));
                boards = write_program(plan, p, kernel_id, s, code + (size_t)at * SM90_INSTR_BYTES);
                at += count;
                if (!last)
                        sm90_store(code, at++, sm90_bsync(barrier, boards));
        }
        return boards;
}

static uint32_t write_before(const struct mem_plan *plan, const struct site *s, uint32_t at,
                             uint32_t end, uint8_t *code)
{
        struct sm90_instr guard = sm90_bra(0);

        sm90_store(code, at++, sm90_wait(sm90_waits(&s->instr) | plan->waits));
        sm90_store(code, at++, sm90_save_predicates(plan->saved));
        sm90_store(code, at, sm90_bssy(plan->barriers[0], sm90_distance(at, end + 1)));
        at++;
        if (is_guarded(&s->instr)) {
                guard.lo = (guard.lo & ~0xf000ULL) | ((s->instr.lo & 0xf000) ^ SM90_PREDICATE_NOT);
                sm90_set_relative_target(&guard, sm90_distance(at, end));
                sm90_store(code, at++, guard);
        }
        for (uint32_t k = 0; k < s->address.count; k++)
                sm90_store(code, at++, s->address.sum[k]);
        return at;
}

static uint32_t write_behind(const struct mem_plan *plan, const struct site *s, uint32_t site,
                             uint32_t boards, uint32_t at, uint8_t *code)
{
        struct sm90_instr own = s->instr;

        sm90_drop_reuse(&own);
        sm90_store(code, at++, sm90_bsync(plan->barriers[0], boards));
        sm90_store(code, at++, sm90_load_predicates(plan->saved));
        sm90_store(code, at++, own);
        sm90_store(code, at, sm90_bra(sm90_distance(at, site + 1)));
        return at + 1;
}

uint32_t mem_write(const struct mem_plan *plan, uint32_t kernel_id, uint32_t at, uint8_t *code)
{
        uint32_t chain = chain_count(&plan->chain);

        for (uint32_t k = 0; k < plan->sites.count; k++) {
                uint32_t site = plan->sites.at[k], begin, boards;
                struct sm90_instr i = sm90_load(code, site);
                struct site s = read_site(plan, &i);

                sm90_store(code, site, sm90_bra(sm90_distance(site, at)));
                begin = write_before(plan, &s, at, at + instrs_before(&s) + chain, code);
                boards = write_chain(plan, kernel_id, &s, begin, code);
                at = write_behind(plan, &s, site, boards, begin + chain, code);
        }
        return at;
}
