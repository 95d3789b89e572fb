/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One kernel. Appended code:
 *
 *      entry sequences (probe, WARPSYNC), each going on with the next wherever it
 *      ends; the last with the displaced first instruction and a BRA to the second.
 *      Or, where there is one, and it starts by asking for the block's index, with
 *      the kernel's first instructions behind the question, so that most blocks wait
 *      for the answer and for what the kernel asks at once
 *      exit sequences; the EXITs of each but the last are branches to the next
 *      for each access of memory a copy of the programs there (splice_mem.c)
 *      BRA to itself, NOPs up to a multiple of 128 bytes
 *
 * The first instruction becomes a branch to the first of these, every EXIT one to
 * the first exit sequence, under the predicates it had, every access one to its copy.
 *
 * A sequence at an exit sends its leader one way and the others another. A program behind
 * it that asks for the active lanes would see parts of them, and run once for each. So
 * the set is taken before the first one, into a register above all that the programs use.
 * Only where one asks more of the lanes does each before it stand between a BSSY and a
 * BSYNC, if the kernel leaves a barrier for that.
 */
#include <string.h>

#include "encode.h"
#include "splice_kernel.h"
#include "track.h"

#define SECTION_UNIT 8 /* instructions; sections are padded to 128 bytes */
#define WARP         32
#define SM_THREADS   2048 /* at a time on a multiprocessor, of any architecture */
#define EARLY_MAX    16   /* instructions of a kernel in its entry sequence */

static uint32_t registers_taken(const struct arch *a, uint32_t registers)
{
        uint32_t unit = a->register_unit;

        return (registers + unit - 1) / unit * unit;
}

/*
 * Whether the kernel can still be launched with its largest block when it needs
 * the probe's registers. Up to 64, any block fits.
 */
static bool registers_fit(const struct arch *a, uint32_t before, uint32_t probe, uint32_t threads)
{
        uint32_t warps = (threads + WARP - 1) / WARP;

        return probe <= before || registers_taken(a, probe) * warps * WARP <= a->block_registers;
}

/* Reasons that hold for both probes. */
static const char *refuse_kernel(const struct arch *a, const struct kernel_site *site,
                                 const struct limits *l, size_t size)
{
        if (site->shares_section)
                return "several kernels share its code";
        if (!site->regcount_offset)
                return "its register count is not given";
        if (!site->info || l->broken)
                return "its attributes cannot be read";
        if (l->param_base && l->param_base != a->parameters)
                return "its parameters are laid out in an unknown way";
        if (size % INSTR_BYTES || size < 2 * INSTR_BYTES || size > 1u << 30)
                return "its code is no sequence of instructions";
        return NULL;
}

/*
 * Whether a multiprocessor still holds as many blocks as the kernel was compiled for. Who
 * gives that number in the launch bounds may start so many without asking, blocks that wait
 * for each other; in PTX the compiler keeps to it, with the program in it. Few registers
 * leave room for all threads there can be.
 */
static bool bounds_hold(const struct arch *a, uint32_t before, uint32_t bound, uint32_t probe)
{
        return probe <= before || probe <= bound ||
               registers_taken(a, probe) * SM_THREADS <= a->block_registers;
}

static const char *refuse_probe(const struct arch *a, const struct kernel_site *site,
                                const struct limits *l, const struct scan *s, uint32_t registers,
                                uint32_t *ret_detail)
{
        *ret_detail = registers;
        if (registers > INSTR_REGISTERS ||
            !registers_fit(a, site->registers, registers, l->threads))
                return "the probe's registers would make its largest block too big";
        if (!bounds_hold(a, site->registers, l->registers, registers))
                return "its launch bounds leave fewer registers than the probe needs";
        if (s->registers_min < INSTR_REGISTERS && registers > site->registers)
                return "it moves registers between warps and has too few for the probe";
        *ret_detail = 0;
        return NULL;
}

static const char *refuse_entry(const struct kernel_site *site, const struct limits *l,
                                const struct scan *s, const struct probe_code *p,
                                const uint8_t *code, uint32_t *ret_detail)
{
        struct instr first = instr_load(code, 0);
        const struct arch_op *op = arch_op(p->arch, &first);

        *ret_detail = instr_opcode(&first);
        if (!op)
                return "its first instruction is not known";
        if (op->properties & ARCH_CONTROL)
                return "its first instruction is control flow";
        *ret_detail = 0;
        if (site->relocated == 0)
                return "its first instruction is relocated";
        if (s->jumps_to_start)
                return "it jumps to its first instruction";
        if (l->listed == 0)
                return "an attribute names its first instruction";
        return refuse_probe(p->arch, site, l, s, p->registers, ret_detail);
}

/* Pairs of uniform registers that no instruction in reach names. */
static bool choose_uniform(const struct probe_code *p, uint64_t used, uint8_t *ret_ur)
{
        uint32_t slot = 0;

        for (uint32_t ur = INSTR_UR_ZERO - 3; slot < p->ur_slots; ur -= 2) {
                if (!(used >> ur & 3))
                        ret_ur[slot++] = (uint8_t)ur;
                if (ur == 0)
                        break;
        }
        return slot == p->ur_slots;
}

/* Uniform registers that belong to programs which are in the chain already. */
static uint64_t ur_of_chain(const struct probe_chain *chain)
{
        uint64_t used = 0;

        for (uint32_t n = 0; n < chain->count; n++)
                for (uint32_t slot = 0; slot < chain->probes[n].code->ur_slots; slot++)
                        used |= 3ULL << chain->probes[n].ur[slot];
        return used;
}

static bool needs_lanes(const struct kernel_plan *plan, const struct probe_code *next)
{
        return plan->lanes_register || (plan->exit.count && next->exit_asks_lanes);
}

static bool needs_exit_barrier(const struct kernel_plan *plan, const struct probe_code *next)
{
        return plan->exit_barrier != INSTR_BARRIERS || (plan->exit.count && next->exit_votes);
}

static uint32_t own_barriers(const struct probe_chain *chain)
{
        uint32_t used = 0;

        for (uint32_t n = 0; n < chain->count; n++)
                for (uint32_t own = chain->probes[n].code->exit_barriers; own; own &= own - 1)
                        used |= 1u << chain->probes[n].barriers[__builtin_ctz(own)];
        return used;
}

/*
 * Where lanes meet behind each program at exits that is not the last, with one more: the
 * highest barrier that is not in `used`. INSTR_BARRIERS: there is none, or no need.
 */
static uint32_t choose_exit_barrier(const struct kernel_plan *plan, const struct probe_code *next,
                                    uint32_t used)
{
        uint32_t b = INSTR_BARRIERS;

        if (plan->exit_barrier != INSTR_BARRIERS || !needs_exit_barrier(plan, next))
                return plan->exit_barrier;
        used |= own_barriers(&plan->exit);
        while (b && (used >> (b - 1) & 1))
                b--;
        return b ? b - 1 : INSTR_BARRIERS;
}

/* Uniform registers and barriers for one more program at exits. NULL, or why there are none. */
static const char *choose_for_exit(const struct kernel_site *site, const struct scan *s,
                                   const struct image_functions *f, const struct kernel_plan *plan,
                                   struct planned_probe *planned)
{
        const struct probe_code *p = planned->code;
        uint64_t used = s->ur_used | ur_of_chain(&plan->exit) | ur_of_chain(&plan->mem.chain);
        uint32_t barriers = s->barriers_used;
        bool meet = needs_exit_barrier(plan, p);

        if ((p->ur_slots || p->exit_barriers || meet) && (site->calls_out || s->calls_indirect)) {
                if (f->calls_unknown)
                        return "it may call code outside the image";
                if (f->unknown_opcode)
                        return "it may call a function with an unknown instruction";
                used |= f->ur_used;
                barriers |= f->barriers_used;
        }
        if (!choose_uniform(p, used, planned->ur))
                return "it leaves no uniform register free";
        if (meet) {
                uint32_t barrier = choose_exit_barrier(plan, p, barriers);

                if (barrier == INSTR_BARRIERS)
                        return "it leaves no convergence barrier free";
                barriers |= 1u << barrier;
        }
        if (!planned_choose_barriers(planned, barriers))
                return "it leaves no convergence barrier free";
        return NULL;
}

static const char *refuse_exit(const struct kernel_site *site, const struct limits *l,
                               const struct scan *s, const struct image_functions *f,
                               const struct kernel_plan *plan, struct planned_probe *planned,
                               uint32_t *ret_detail)
{
        const struct probe_code *p = planned->code;
        uint32_t registers = chain_registers(&plan->exit, p) + needs_lanes(plan, p);
        const char *why;

        if (p->exit_refusal) {
                *ret_detail = p->exit_detail;
                return p->exit_refusal;
        }
        if (s->unknown) {
                *ret_detail = s->unknown_opcode;
                return "it has an unknown instruction";
        }
        if (s->exits == 0)
                return "it has no EXIT";
        if (s->has_odd_exit) {
                *ret_detail = (uint32_t)s->odd_exit;
                return "it has an EXIT with modifiers";
        }
        if (site->relocated_exit)
                return "an EXIT is relocated";
        if (registers > s->registers_min) {
                *ret_detail = s->registers_min;
                return "it gives away registers the probe needs";
        }
        if (f->ends_threads && (site->calls_out || s->calls_indirect))
                return "it may call a function that ends threads";
        why = choose_for_exit(site, s, f, plan, planned);
        if (why)
                return why;
        return refuse_probe(p->arch, site, l, s, registers, ret_detail);
}

/*
 * Whether an instruction can be executed twice, and so before the probe as well as
 * behind it: it computes something from nothing but constants and what was computed
 * before, waits for nothing and touches no predicate.
 */
static bool can_be_early(const struct arch *a, const struct instr *i)
{
        return instr_predicate(i) == INSTR_ALWAYS && !instr_waits(i) &&
               arch_has(a, i, ARCH_REPEATABLE) &&
               (!arch_has(a, i, ARCH_PREDICATE) || instr_predicate_written(i) == INSTR_ALWAYS);
}

/* How many of the kernel's first instructions the entry sequence takes in. */
static uint32_t count_early(const struct kernel_site *site, const struct limits *l,
                            const struct probe_code *p, const uint8_t *code, uint32_t count)
{
        uint32_t n = 0, most = EARLY_MAX;

        if (!p->entry.asks_first)
                return 0;
        most = site->relocated < most ? site->relocated : most;
        most = l->listed / INSTR_BYTES < most ? l->listed / INSTR_BYTES : most;
        most = count - 1 < most ? count - 1 : most;
        while (n < most) {
                struct instr i = instr_load(code, n);

                if (!can_be_early(p->arch, &i))
                        break;
                n++;
        }
        return n;
}

/* What is known of a kernel when programs are decided on. */
struct kernel_facts {
        const struct arch *arch;
        const struct cubin *cubin;
        const struct kernel_site *site;
        const struct image_functions *functions;
        struct limits limits;
        struct scan scan;
        struct mem_facts mem; /* of its loads only once accesses were looked for */
        const uint8_t *code;
        const char *refusal; /* for whatever program */
};

/* Why no program can be at the kernel's accesses. */
static const char *refuse_accesses(const struct kernel_facts *f, const struct probe_code *p,
                                   uint32_t *ret_detail)
{
        bool calls = f->site->calls_out || f->scan.calls_indirect;

        if (p->exit_refusal) {
                *ret_detail = p->exit_detail;
                return p->exit_refusal;
        }
        if (f->scan.unknown) {
                *ret_detail = f->scan.unknown_opcode;
                return "it has an unknown instruction";
        }
        if (f->scan.registers_min < INSTR_REGISTERS)
                return "it moves registers between warps";
        if (calls && f->functions->calls_unknown)
                return "it may call code outside the image";
        if (calls && f->functions->unknown_opcode)
                return "it may call a function with an unknown instruction";
        return NULL;
}

static const char *refuse_mem(const struct kernel_facts *f, const struct kernel_plan *plan,
                              struct planned_probe *planned, uint32_t *ret_detail)
{
        bool calls = f->site->calls_out || f->scan.calls_indirect;
        uint64_t used = f->scan.ur_used | ur_of_chain(&plan->exit) | ur_of_chain(&plan->mem.chain);
        const struct probe_code *p = planned->code;
        const char *why = refuse_accesses(f, p, ret_detail);

        if (why)
                return why;
        if (calls)
                used |= f->functions->ur_used;
        if (!choose_uniform(p, used, planned->ur))
                return "it leaves no uniform register free";
        why = mem_refuse(&plan->mem, &f->mem, p, f->code, ret_detail);
        if (why)
                return why;
        return refuse_probe(f->arch, f->site, &f->limits, &f->scan,
                            mem_registers(&plan->mem, &f->mem, p), ret_detail);
}

/* Find the accesses, once; what it says holds for programs that are in as well. */
static const char *look_for_accesses(struct kernel_facts *f, struct kernel_plan *plan)
{
        if (plan->mem.looked)
                return NULL;
        if (sites_find(f->arch, f->cubin, f->site->text, f->site->info, &plan->mem.sites) < 0)
                return "out of memory";
        scan_loads(f->arch, f->code, plan->count, &f->mem);
        plan->mem.looked = true;
        return NULL;
}

/* Whether lanes meet behind the k-th program at exits. */
static bool meets_behind(const struct kernel_plan *plan, uint32_t k)
{
        return plan->exit_barrier != INSTR_BARRIERS && k + 1 < plan->exit.count;
}

static void lay_out(const struct kernel_facts *f, struct kernel_plan *plan)
{
        uint32_t n = plan->count;

        if (!kernel_changes(plan)) {
                plan->new_count = n;
                return;
        }
        for (uint32_t k = 0; k < plan->entry.count; k++) {
                struct planned_probe *p = &plan->entry.probes[k];

                p->at = n;
                n += p->code->entry.count + p->early;
        }
        plan->exit_at = n;
        n += plan->lanes_register != 0;
        for (uint32_t k = 0; k < plan->exit.count; k++) {
                bool meet = meets_behind(plan, k);

                plan->exit.probes[k].at = n + meet;
                n += plan->exit.probes[k].code->exit.count + (meet ? 2 : 0);
        }
        if (plan->mem.chain.count) {
                mem_lay_out(&plan->mem, &f->mem, f->code);
                plan->mem_at = n;
                n += plan->mem.instructions;
        }
        n++; /* the branch to itself */
        plan->new_count = (n + SECTION_UNIT - 1) / SECTION_UNIT * SECTION_UNIT;
}

static const char *refuse_at(struct kernel_facts *f, struct kernel_plan *plan,
                             const struct probe_program *program, struct planned_probe *planned,
                             uint32_t *ret_detail)
{
        const char *why;

        if (f->refusal)
                return f->refusal;
        if (!program->code)
                return program->code_refusal ?: "there is no machine code of it";
        if (program->code->arch != f->arch)
                return "the program is compiled for another architecture";
        switch (program->where) {
        case AGENT_PROGRAM_ENTRY:
                return plan->entry.count == SPLICE_CHAIN_MAX
                               ? "too many programs at its entry"
                               : refuse_entry(f->site, &f->limits, &f->scan, program->code, f->code,
                                              ret_detail);
        case AGENT_PROGRAM_EXIT:
                return plan->exit.count == SPLICE_CHAIN_MAX
                               ? "too many programs at its exits"
                               : refuse_exit(f->site, &f->limits, &f->scan, f->functions, plan,
                                             planned, ret_detail);
        case AGENT_PROGRAM_MEM:
                why = look_for_accesses(f, plan);
                return why || !plan->mem.sites.count ? why
                                                     : refuse_mem(f, plan, planned, ret_detail);
        default:
                return "no such place is known in machine code";
        }
}

/* The program is at some accesses; or at none, and then it is not in. */
static void judge_accesses(const struct mem_sites *sites, struct probe_outcome *o)
{
        if (!sites->others)
                return;
        o->in = sites->count != 0;
        o->refusal = "some accesses have no address for each thread, or are not understood";
        o->detail = sites->others;
}

static struct probe_chain *chain_at(struct kernel_plan *plan, uint32_t where)
{
        switch (where) {
        case AGENT_PROGRAM_ENTRY:
                return &plan->entry;
        case AGENT_PROGRAM_EXIT:
                return &plan->exit;
        default:
                return &plan->mem.chain;
        }
}

/* Those of the kernel, and of all that it may call. */
static uint32_t barriers_of(const struct kernel_facts *f)
{
        bool calls = f->site->calls_out || f->scan.calls_indirect;

        return f->scan.barriers_used | (calls ? f->functions->barriers_used : 0);
}

static void take(const struct kernel_facts *f, struct kernel_plan *plan,
                 const struct probe_program *program, const struct planned_probe *planned)
{
        struct probe_chain *chain = chain_at(plan, program->where);
        uint32_t registers = program->code->registers;

        if (program->where == AGENT_PROGRAM_MEM) {
                if (!plan->mem.sites.count)
                        return;
                registers = mem_registers(&plan->mem, &f->mem, program->code);
        } else if (program->where == AGENT_PROGRAM_EXIT) {
                registers = chain_registers(chain, program->code);
                plan->exit_barrier = choose_exit_barrier(plan, program->code, barriers_of(f));
                /* The register that keeps the lanes is behind all that these name. */
                if (needs_lanes(plan, program->code))
                        plan->lanes_register = registers++ - f->arch->registers_kept;
        }
        chain->probes[chain->count++] = *planned;
        if (registers > plan->registers)
                plan->registers = registers;
}

static void decide(struct kernel_facts *f, const char *name, const struct probe_list *probes,
                   struct probe_outcome *outcomes, struct kernel_plan *plan)
{
        const char *exclusion = probe_exclusion(probes, name);

        for (size_t i = 0; i < probes->count; i++) {
                const struct probe_program *program = &probes->programs[i];
                struct planned_probe planned = {.code = program->code};
                struct probe_outcome *o = &outcomes[i];

                o->wanted = probe_wants(program, name);
                if (!o->wanted)
                        continue;
                o->refusal = exclusion ?: refuse_at(f, plan, program, &planned, &o->detail);
                o->in = !o->refusal;
                if (o->in)
                        take(f, plan, program, &planned);
                if (o->in && program->where == AGENT_PROGRAM_MEM)
                        judge_accesses(&plan->mem.sites, o);
        }
        if (plan->entry.count == 1)
                plan->entry.probes[0].early = count_early(
                        f->site, &f->limits, plan->entry.probes[0].code, f->code, plan->count);
}

static void read_facts(const struct cubin *c, struct code_marks *marks, struct kernel_facts *f,
                       struct kernel_plan *plan)
{
        size_t size;

        f->limits = read_limits(c, f->site->info);
        f->code = cubin_section_bytes(c, f->site->text, &size);
        f->refusal = refuse_kernel(f->arch, f->site, &f->limits, size);
        if (f->refusal)
                return;
        plan->count = (uint32_t)(size / INSTR_BYTES);
        plan->mark_first = marks->count;
        if (scan_code(f->arch, f->code, plan->count, marks, &f->scan) < 0) {
                f->refusal = "out of memory";
                return;
        }
        plan->mark_count = marks->count - plan->mark_first;
        plan->quiet_scoreboard = f->scan.quiet_scoreboard;
        plan->exits = f->scan.exits;
        f->mem.registers = f->site->registers;
        f->mem.quiet_scoreboard = f->scan.quiet_scoreboard;
        f->mem.barriers_used = barriers_of(f);
}

void kernel_plan(const struct arch *a, const struct cubin *c, const struct kernel_site *site,
                 const struct image_functions *functions, const struct probe_list *probes,
                 struct code_marks *marks, struct probe_outcome *outcomes,
                 struct kernel_plan *ret_plan)
{
        struct kernel_facts facts = {.arch = a, .cubin = c, .site = site, .functions = functions};
        struct kernel_plan plan = {.arch = a,
                                   .registers = site->registers,
                                   .exit_barrier = INSTR_BARRIERS,
                                   .mem = {.arch = a}};
        size_t size = 0;
        const uint8_t *info;
        int64_t new_size;
        Elf64_Sym sym;

        cubin_symbol(c, site->symbol, &sym);
        read_facts(c, marks, &facts, &plan);
        decide(&facts, cubin_symbol_name(c, &sym), probes, outcomes, &plan);
        lay_out(&facts, &plan);
        if (site->info) {
                info = cubin_section_bytes(c, site->info, &size);
                plan.info_size = size;
                if (kernel_changes(&plan)) {
                        new_size = kernel_write_info(&plan, info, size, NULL);
                        plan.info_size = new_size < 0 ? size : (size_t)new_size;
                }
        }
        *ret_plan = plan;
}

void kernel_plan_done(struct kernel_plan *plan)
{
        sites_done(&plan->mem.sites);
}

static uint8_t *instr_at(uint8_t *code, uint32_t index)
{
        return code + (size_t)index * INSTR_BYTES;
}

/* Uniform registers and scoreboards that a few instructions name, by bit. */
static void note_used(const struct arch *a, const uint8_t *code, uint32_t count, uint64_t *ret_ur,
                      uint32_t *ret_boards)
{
        *ret_ur = 0;
        *ret_boards = 0;
        for (uint32_t k = 0; k < count; k++) {
                struct instr i = instr_load(code, k);

                *ret_ur |= arch_ur_mask(a, &i);
                *ret_boards |=
                        1u << instr_result_scoreboard(&i) | 1u << instr_source_scoreboard(&i);
        }
}

/*
 * The question, the kernel's first instructions, the answer. The two instructions of
 * the probe get a uniform register and a scoreboard that those in between do not use.
 * Who goes on into the probe waits for what these have asked for; they are executed
 * again behind it.
 */
static void write_early(const struct planned_probe *p, uint8_t *code)
{
        const struct probe_sequence *seq = &p->code->entry;
        const struct arch *a = p->code->arch;
        uint8_t *own = instr_at(code, p->at + 1);
        struct instr ask = instr_load(seq->code, 0), test = instr_load(seq->code, 1), last, enter;
        uint32_t back = planned_place(p, seq->return_at[0]), in = back + SPLICE_RETURN_INSTRS;
        uint32_t boards, board = 0, ur = INSTR_UR_ZERO - 1;
        uint64_t used;

        memcpy(own, code, (size_t)p->early * INSTR_BYTES);
        track_all(a, own, p->early, false);
        last = instr_load(own, p->early - 1);
        instr_drop_reuse(&last);
        instr_store(own, p->early - 1, last);
        note_used(a, own, p->early, &used, &boards);
        while (used >> ur & 1)
                ur--; /* there are more registers than EARLY_MAX instructions can name */
        while (board < INSTR_SCOREBOARDS - 1 && (boards >> board & 1))
                board++;
        instr_ur_set(&ask, INSTR_UR_D, ur);
        instr_set_result_scoreboard(&ask, board);
        instr_ur_set(&test, INSTR_UR_B, ur);
        instr_set_waits(&test, 1u << board);
        instr_store(code, p->at, ask);
        instr_store(code, planned_place(p, 1), test);
        instr_store(code, back, encode_bra(a, instr_distance(back, p->early)));
        instr_store(code, back + 1, encode_nop(a));
        enter = instr_load(code, in);
        instr_add_waits(&enter, INSTR_WAIT_ALL);
        instr_store(code, in, enter);
}

/* Where an entry sequence ends it goes on with the instruction at `next`. */
static void write_return(const struct arch *a, uint8_t *code, uint32_t at, struct instr first,
                         uint32_t next)
{
        instr_store(code, at, first);
        instr_store(code, at + 1, encode_bra(a, instr_distance(at + 1, next)));
}

/* first: what is executed on every way out of the sequence, before it goes on at `next`. */
static void write_entry(const struct planned_probe *p, struct instr first, uint32_t next,
                        uint32_t kernel_id, uint8_t *code)
{
        const struct probe_sequence *seq = &p->code->entry;
        uint8_t *rest = instr_at(code, planned_place(p, 1));

        memcpy(instr_at(code, p->at), seq->code, INSTR_BYTES);
        memcpy(rest, seq->code + INSTR_BYTES, (size_t)(seq->count - 1) * INSTR_BYTES);
        for (uint32_t k = 0; k < seq->id_count; k++)
                instr_set_number(code, planned_place(p, seq->id_at[k]), kernel_id);
        instr_add_waits(&first, INSTR_WAIT_ALL); /* for the probe's own */
        for (uint32_t k = 0; k < seq->return_count; k++)
                write_return(p->code->arch, code, planned_place(p, seq->return_at[k]), first, next);
        if (p->early)
                write_early(p, code);
}

static uint32_t write_entries(const struct kernel_plan *plan, uint32_t kernel_id, uint8_t *code)
{
        const struct arch *a = plan->arch;
        const struct probe_chain *chain = &plan->entry;
        const struct planned_probe *last = &chain->probes[chain->count - 1];
        struct instr first = instr_load(code, 0);

        instr_drop_reuse(&first);
        for (uint32_t n = 0; n + 1 < chain->count; n++)
                write_entry(&chain->probes[n], encode_nop(a), chain->probes[n + 1].at, kernel_id,
                            code);
        write_entry(last, first, 1, kernel_id, code);
        instr_store(code, 0, encode_bra(a, instr_distance(0, chain->probes[0].at)));
        return last->at + last->code->entry.count + last->early;
}

/* An EXIT that is not the thread's last deed. */
static void redirect_exit(const struct arch *a, uint8_t *code, uint32_t at, uint32_t to)
{
        struct instr i = instr_load(code, at);

        if (arch_role(a, &i) == ARCH_EXIT)
                instr_store(code, at, encode_exit_to_branch(a, &i, instr_distance(at, to)));
}

static void write_exit(const struct planned_probe *p, uint32_t kernel_id, uint8_t *code)
{
        const struct probe_sequence *seq = &p->code->exit;
        uint8_t *to = instr_at(code, p->at);

        memcpy(to, seq->code, (size_t)seq->count * INSTR_BYTES);
        sequence_set_id(seq, kernel_id, to);
        planned_set_chosen(p, to);
}

/* Who asks for the active lanes gets those that came to the exit together. */
static void give_lanes(const struct planned_probe *p, uint32_t reg, uint8_t *code)
{
        const struct arch *a = p->code->arch;

        for (uint32_t k = p->at; k < p->at + p->code->exit.count; k++) {
                struct instr i = instr_load(code, k);

                if (arch_votes_lanes(a, &i))
                        instr_store(code, k, encode_move_like(a, &i, reg));
        }
}

/* Lanes that pass `from` together do so again behind `to`. */
static void write_meeting(const struct kernel_plan *plan, uint32_t from, uint32_t to, uint8_t *code)
{
        const struct arch *a = plan->arch;

        instr_store(code, from, encode_bssy(a, plan->exit_barrier, instr_distance(from, to + 1)));
        instr_store(code, to, encode_bsync(a, plan->exit_barrier, 0));
}

static uint32_t write_exits(const struct kernel_plan *plan, const struct code_marks *marks,
                            uint32_t kernel_id, uint8_t *code)
{
        const struct arch *a = plan->arch;
        const uint32_t *at = marks->at + plan->mark_first;
        const struct probe_chain *chain = &plan->exit;
        const struct planned_probe *last = &chain->probes[chain->count - 1];

        track_marked(a, code, plan->count, at, plan->mark_count, plan->quiet_scoreboard);
        for (size_t n = 0; n < plan->mark_count; n++)
                redirect_exit(a, code, at[n], plan->exit_at);
        if (plan->lanes_register) {
                struct instr lanes = encode_vote_lanes(a, plan->lanes_register);

                instr_add_waits(&lanes, INSTR_WAIT_ALL);
                instr_store(code, plan->exit_at, lanes);
        }
        for (uint32_t n = 0; n < chain->count; n++) {
                const struct planned_probe *p = &chain->probes[n];
                uint32_t count = p->code->exit.count, next = p->at + count;

                write_exit(p, kernel_id, code);
                if (plan->lanes_register)
                        give_lanes(p, plan->lanes_register, code);
                if (p == last)
                        break;
                track_all(a, instr_at(code, p->at), count, true);
                for (uint32_t k = 0; k < count; k++)
                        redirect_exit(a, code, p->at + k, next);
                if (meets_behind(plan, n))
                        write_meeting(plan, p->at - 1, next, code);
        }
        return last->at + last->code->exit.count;
}

static uint32_t boards_told(const struct instr *i)
{
        return (1u << instr_result_scoreboard(i) | 1u << instr_source_scoreboard(i)) &
               INSTR_WAIT_ALL;
}

/*
 * An instruction that waits for what the one right before it asks a scoreboard to tell would
 * find nothing to wait for yet. The assembler lets a second cycle pass where its code does
 * that; here instructions stand next to each other that did not.
 */
static void let_boards_count(const struct arch *a, uint32_t from, uint32_t end, uint8_t *code)
{
        for (uint32_t k = from; k + 1 < end; k++) {
                struct instr i = instr_load(code, k), next = instr_load(code, k + 1);

                if (!(boards_told(&i) & instr_waits(&next)) || instr_stall(&i) >= a->waitable_after)
                        continue;
                instr_set_stall(&i, a->waitable_after);
                instr_store(code, k, i);
        }
}

void kernel_write_code(const struct kernel_plan *plan, const struct code_marks *marks,
                       uint32_t kernel_id, uint8_t *code)
{
        const struct arch *a = plan->arch;
        uint32_t end = plan->count;

        /* The exit first: it edits the instructions that the others displace. */
        if (plan->exit.count)
                end = write_exits(plan, marks, kernel_id, code);
        if (plan->mem.chain.count && plan->mem.predicates_untold)
                track_predicates(a, code, plan->count, plan->quiet_scoreboard);
        if (plan->mem.chain.count)
                end = mem_write(&plan->mem, kernel_id, plan->mem_at, code);
        if (plan->entry.count) {
                uint32_t entry_end = write_entries(plan, kernel_id, code);

                end = entry_end > end ? entry_end : end;
        }
        instr_store(code, end++, encode_bra(a, 0));
        while (end < plan->new_count)
                instr_store(code, end++, encode_nop(a));
        let_boards_count(a, plan->count, end, code);
}
