/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One kernel. Appended code:
 *
 *      entry sequence (BSSY, probe, BSYNC), with the displaced first instruction
 *      and a BRA to the second wherever it ends; or, where it starts by asking for
 *      the block's index, with the kernel's first instructions behind the question,
 *      so that most blocks wait for the answer and for what the kernel asks at once
 *      exit sequence (ends with its own EXITs)
 *      BRA to itself, NOPs up to a multiple of 128 bytes
 *
 * The first instruction becomes a branch to the first of these, every EXIT one to
 * the exit sequence, under the predicates it had.
 */
#include <errno.h>
#include <string.h>

#include "splice_kernel.h"

#define SECTION_UNIT       8     /* instructions; sections are padded to 128 bytes */
#define REGISTERS_PER_UNIT 65536 /* of a multiprocessor, for one block */
#define THREADS_MAX        1024  /* per block */
#define WARP               32
#define REGISTER_GRANULE   8
#define EARLY_MAX          16 /* instructions of a kernel in its entry sequence */

/* What one pass over the code finds. */
struct scan {
        bool unknown;
        uint32_t unknown_opcode;
        uint64_t ur_used;
        uint32_t exits;
        uint64_t odd_exit; /* hi of an EXIT that no branch can stand in for */
        bool has_odd_exit;
        bool jumps_to_start;
        bool calls_indirect;
        uint32_t registers_min; /* the kernel gives registers away down to this; 255 */
};

static void scan_control(struct scan *s, const struct sm90_instr *i, uint32_t k)
{
        int64_t bytes;

        switch (sm90_opcode(i)) {
        case SM90_EXIT:
                s->exits++;
                if (!sm90_exit_is_plain(i)) {
                        s->has_odd_exit = true;
                        s->odd_exit = i->hi;
                }
                break;
        case SM90_CALL_ABS:
        case SM90_CALL_ABS_REG:
                s->calls_indirect = true;
                break;
        default:
                if (sm90_relative_target(i, &bytes) && bytes == -(int64_t)k * SM90_INSTR_BYTES)
                        s->jumps_to_start = true;
        }
}

static struct scan scan_code(const uint8_t *code, uint32_t count)
{
        struct scan s = {.registers_min = 255};

        for (uint32_t k = 0; k < count; k++) {
                struct sm90_instr i = sm90_load(code, k);
                const struct sm90_op *op = sm90_op(&i);

                if (!op) {
                        s.unknown = true;
                        s.unknown_opcode = sm90_opcode(&i);
                } else if (op->properties & SM90_CONTROL) {
                        scan_control(&s, &i, k);
                } else if (sm90_opcode(&i) == SM90_USETMAXREG && i.lo >> 32 < s.registers_min) {
                        s.registers_min = (uint32_t)(i.lo >> 32);
                }
                if (sm90_ur_fields(&i))
                        s.ur_used |= sm90_ur_mask(&i);
        }
        return s;
}

void functions_add(struct image_functions *f, const uint8_t *code, size_t count)
{
        struct scan s = scan_code(code, (uint32_t)count);

        f->ur_used |= s.ur_used;
        f->unknown_opcode |= s.unknown;
        f->ends_threads |= s.exits != 0;
}

/* Facts from the kernel's attributes. */
struct limits {
        bool broken;
        uint32_t listed;  /* offset of the first instruction an attribute names; UINT32_MAX none */
        uint32_t threads; /* most threads of a block */
        uint32_t param_base; /* where parameters start in bank 0; 0 not said */
};

static bool is_offset_list(uint8_t id)
{
        switch (id) {
        case CUBIN_EXIT_OFFSETS:
        case CUBIN_S2RCTAID_OFFSETS:
        case 0x25: /* LD_CACHEMOD_INSTR_OFFSETS */
        case 0x27: /* ATOM_SYS_INSTR_OFFSETS */
        case CUBIN_COOP_GROUP_OFFSETS:
        case 0x2d: /* ATOMF16_EMUL_INSTR_OFFSETS */
        case CUBIN_WARP_WIDE_OFFSETS:
                return true;
        default:
                return false;
        }
}

static uint32_t lowest_listed(const struct cubin_attribute *a)
{
        uint32_t lowest = UINT32_MAX, v;

        for (size_t k = 0; k + 4 <= a->value; k += 4) {
                memcpy(&v, a->data + k, 4);
                lowest = v < lowest ? v : lowest;
        }
        return lowest;
}

static void read_limit(struct limits *l, const struct cubin_attribute *a)
{
        uint32_t v[3];

        if (!a->data)
                return;
        if ((a->id == CUBIN_MAX_THREADS || a->id == CUBIN_REQNTID) && a->value == 12) {
                uint64_t threads;

                memcpy(v, a->data, 12);
                threads = (uint64_t)v[0] * v[1];
                threads = threads > THREADS_MAX ? THREADS_MAX : threads * v[2];
                if (threads && threads < l->threads)
                        l->threads = (uint32_t)threads;
        } else if (a->id == CUBIN_PARAM_CBANK && a->value == 8) {
                memcpy(v, a->data, 8);
                l->param_base = v[1] & 0xffff;
        } else if (is_offset_list(a->id)) {
                uint32_t lowest = lowest_listed(a);

                l->listed = lowest < l->listed ? lowest : l->listed;
        }
}

static struct limits read_limits(const struct cubin *c, uint32_t info)
{
        struct limits l = {.threads = THREADS_MAX, .listed = UINT32_MAX};
        struct cubin_attribute a;
        size_t size, offset = 0;
        const uint8_t *bytes;
        int r;

        if (!info)
                return l;
        bytes = cubin_section_bytes(c, info, &size);
        while ((r = cubin_next_attribute(bytes, size, &offset, &a)) > 0)
                read_limit(&l, &a);
        l.broken = r < 0;
        return l;
}

/*
 * Whether the kernel can still be launched with its largest block when it needs
 * the probe's registers. Up to 64, any block fits.
 */
static bool registers_fit(uint32_t before, uint32_t probe, uint32_t threads)
{
        uint32_t after = (probe + REGISTER_GRANULE - 1) / REGISTER_GRANULE * REGISTER_GRANULE;
        uint32_t warps = (threads + WARP - 1) / WARP;

        return probe <= before || after * warps * WARP <= REGISTERS_PER_UNIT;
}

/* Reasons that hold for both probes. */
static const char *refuse_kernel(const struct kernel_site *site, const struct limits *l,
                                 size_t size)
{
        if (site->shares_section)
                return "several kernels share its code";
        if (!site->regcount_offset)
                return "its register count is not given";
        if (!site->info || l->broken)
                return "its attributes cannot be read";
        if (l->param_base && l->param_base != 0x210)
                return "its parameters are laid out in an unknown way";
        if (size % SM90_INSTR_BYTES || size < 2 * SM90_INSTR_BYTES || size > 1u << 30)
                return "its code is no sequence of instructions";
        return NULL;
}

static const char *refuse_probe(const struct kernel_site *site, const struct limits *l,
                                const struct scan *s, const struct probe_code *p,
                                uint32_t *ret_detail)
{
        *ret_detail = p->registers;
        if (!registers_fit(site->registers, p->registers, l->threads))
                return "the probe's registers would make its largest block too big";
        if (s->registers_min < 255 && p->registers > site->registers)
                return "it moves registers between warps and has too few for the probe";
        *ret_detail = 0;
        return NULL;
}

static const char *refuse_entry(const struct kernel_site *site, const struct limits *l,
                                const struct scan *s, const struct probe_code *p,
                                const uint8_t *code, uint32_t *ret_detail)
{
        struct sm90_instr first = sm90_load(code, 0);
        const struct sm90_op *op = sm90_op(&first);

        *ret_detail = sm90_opcode(&first);
        if (!op)
                return "its first instruction is not known";
        if (op->properties & SM90_CONTROL)
                return "its first instruction is control flow";
        *ret_detail = 0;
        if (site->relocated == 0)
                return "its first instruction is relocated";
        if (s->jumps_to_start)
                return "it jumps to its first instruction";
        if (l->listed == 0)
                return "an attribute names its first instruction";
        return refuse_probe(site, l, s, p, ret_detail);
}

/* Pairs of uniform registers that no instruction in reach names. */
static bool choose_uniform(const struct probe_code *p, uint64_t used, uint8_t *ret_ur)
{
        uint32_t slot = 0;

        for (uint32_t ur = 60; slot < p->ur_slots; ur -= 2) {
                if (!(used >> ur & 3))
                        ret_ur[slot++] = (uint8_t)ur;
                if (ur == 0)
                        break;
        }
        return slot == p->ur_slots;
}

static const char *refuse_exit(const struct kernel_site *site, const struct limits *l,
                               const struct scan *s, const struct image_functions *f,
                               const struct probe_code *p, struct kernel_plan *plan)
{
        uint64_t used = s->ur_used;

        if (p->exit_refusal) {
                plan->exit_detail = p->exit_detail;
                return p->exit_refusal;
        }
        if (s->unknown) {
                plan->exit_detail = s->unknown_opcode;
                return "it has an unknown instruction";
        }
        if (s->exits == 0)
                return "it has no EXIT";
        if (s->has_odd_exit) {
                plan->exit_detail = (uint32_t)s->odd_exit;
                return "it has an EXIT with modifiers";
        }
        if (site->relocated_exit)
                return "an EXIT is relocated";
        if (p->registers > s->registers_min) {
                plan->exit_detail = s->registers_min;
                return "it gives away registers the probe needs";
        }
        if (f->ends_threads && (site->calls_out || s->calls_indirect))
                return "it may call a function that ends threads";
        if (p->ur_slots && (site->calls_out || s->calls_indirect)) {
                if (f->calls_unknown)
                        return "it may call code outside the image";
                if (f->unknown_opcode)
                        return "it may call a function with an unknown instruction";
                used |= f->ur_used;
        }
        if (!choose_uniform(p, used, plan->ur))
                return "it leaves no uniform register free";
        return refuse_probe(site, l, s, p, &plan->exit_detail);
}

/*
 * Whether an instruction can be executed twice, and so before the probe as well as
 * behind it: it computes something from nothing but constants and what was computed
 * before, waits for nothing and touches no predicate.
 */
static bool can_be_early(const struct sm90_instr *i)
{
        if (sm90_predicate(i) != 7 || sm90_waits(i))
                return false;
        switch (sm90_opcode(i)) {
        case SM90_S2R:
        case SM90_S2UR:
        case SM90_CS2R:
        case SM90_LDC:
        case SM90_ULDC:
        case SM90_MOV_IMM:
        case SM90_UMOV_IMM:
        case SM90_NOP:
                return true;
        case SM90_IMAD:
        case SM90_IMAD_IMM:
        case SM90_IMAD_UR:
                return (i->hi >> 17 & 7) == 7; /* no predicate written */
        default:
                return false;
        }
}

/* How many of the kernel's first instructions the entry sequence takes in. */
static uint32_t count_early(const struct kernel_site *site, const struct limits *l,
                            const struct probe_code *p, const uint8_t *code, uint32_t count)
{
        uint32_t n = 0, most = EARLY_MAX;

        if (!p->entry.asks_first)
                return 0;
        most = site->relocated < most ? site->relocated : most;
        most = l->listed / SM90_INSTR_BYTES < most ? l->listed / SM90_INSTR_BYTES : most;
        most = count - 1 < most ? count - 1 : most;
        while (n < most) {
                struct sm90_instr i = sm90_load(code, n);

                if (!can_be_early(&i))
                        break;
                n++;
        }
        return n;
}

static void lay_out(const struct splice_probes *probes, struct kernel_plan *plan)
{
        uint32_t n = plan->count;

        if (!plan->entry && !plan->exit) {
                plan->new_count = n;
                return;
        }
        if (plan->entry) {
                plan->entry_at = n;
                n += probes->entry->entry.count + plan->early;
        }
        if (plan->exit) {
                plan->exit_at = n;
                n += probes->exit->exit.count;
        }
        n++; /* the branch to itself */
        plan->new_count = (n + SECTION_UNIT - 1) / SECTION_UNIT * SECTION_UNIT;
}

static void decide(const struct cubin *c, const struct kernel_site *site,
                   const struct image_functions *functions, const struct splice_probes *probes,
                   struct kernel_plan *plan)
{
        struct limits l = read_limits(c, site->info);
        size_t size;
        const uint8_t *code = cubin_section_bytes(c, site->text, &size);
        const char *why = refuse_kernel(site, &l, size);
        struct scan s;

        if (why) {
                plan->entry_refusal = plan->exit_refusal = why;
                return;
        }
        plan->count = (uint32_t)(size / SM90_INSTR_BYTES);
        s = scan_code(code, plan->count);
        plan->exits = s.exits;
        plan->entry_refusal =
                probes->entry ? refuse_entry(site, &l, &s, probes->entry, code, &plan->entry_detail)
                              : "there is no entry probe";
        plan->exit_refusal = probes->exit ? refuse_exit(site, &l, &s, functions, probes->exit, plan)
                                          : "there is no exit probe";
        plan->entry = !plan->entry_refusal;
        plan->exit = !plan->exit_refusal;
        if (plan->entry)
                plan->early = count_early(site, &l, probes->entry, code, plan->count);
        if (plan->entry && probes->entry->registers > plan->registers)
                plan->registers = probes->entry->registers;
        if (plan->exit && probes->exit->registers > plan->registers)
                plan->registers = probes->exit->registers;
}

void kernel_plan(const struct cubin *c, const struct kernel_site *site,
                 const struct image_functions *functions, const struct splice_probes *probes,
                 struct kernel_plan *ret_plan)
{
        struct kernel_plan plan = {.registers = site->registers};
        size_t size = 0;
        const uint8_t *info;
        int64_t new_size;

        decide(c, site, functions, probes, &plan);
        lay_out(probes, &plan);
        if (site->info) {
                info = cubin_section_bytes(c, site->info, &size);
                plan.info_size = size;
                if (plan.entry || plan.exit) {
                        new_size = kernel_write_info(&plan, probes, info, size, NULL);
                        plan.info_size = new_size < 0 ? size : (size_t)new_size;
                }
        }
        *ret_plan = plan;
}

static void patch_id(uint8_t *code, uint32_t index, uint32_t kernel_id)
{
        struct sm90_instr i = sm90_load(code, index);

        i.lo = (i.lo & 0xffffffff) | (uint64_t)kernel_id << 32;
        sm90_store(code, index, i);
}

static uint8_t *instr_at(uint8_t *code, uint32_t index)
{
        return code + (size_t)index * SM90_INSTR_BYTES;
}

static int64_t distance(uint32_t from, uint32_t to)
{
        return ((int64_t)to - (int64_t)from) * SM90_INSTR_BYTES;
}

/* Place of an instruction of the entry sequence: the kernel's own come behind the first. */
static uint32_t entry_place(const struct kernel_plan *plan, uint32_t k)
{
        return plan->entry_at + k + (k ? plan->early : 0);
}

/* Uniform registers and scoreboards that a few instructions name, by bit. */
static void note_used(const uint8_t *code, uint32_t count, uint64_t *ret_ur, uint32_t *ret_boards)
{
        *ret_ur = 0;
        *ret_boards = 0;
        for (uint32_t k = 0; k < count; k++) {
                struct sm90_instr i = sm90_load(code, k);

                *ret_ur |= sm90_ur_mask(&i);
                *ret_boards |= 1u << sm90_result_scoreboard(&i) | 1u << sm90_source_scoreboard(&i);
        }
}

/*
 * The question, the kernel's first instructions, the answer. The two instructions of
 * the probe get a uniform register and a scoreboard that those in between do not use.
 * Who goes on into the probe waits for what these have asked for; they are executed
 * again behind it.
 */
static void write_early(const struct kernel_plan *plan, const struct probe_sequence *seq,
                        uint8_t *code)
{
        uint8_t *own = instr_at(code, plan->entry_at + 1);
        struct sm90_instr ask = sm90_load(seq->code, 0), test = sm90_load(seq->code, 1), last,
                          enter;
        uint32_t back = entry_place(plan, seq->return_at[0]), in = back + SPLICE_RETURN_INSTRS;
        uint32_t boards, board = 0, ur = SM90_UR_ZERO - 1;
        uint64_t used;

        memcpy(own, code, (size_t)plan->early * SM90_INSTR_BYTES);
        sm90_track_all(own, plan->early, false);
        last = sm90_load(own, plan->early - 1);
        sm90_drop_reuse(&last);
        sm90_store(own, plan->early - 1, last);
        note_used(own, plan->early, &used, &boards);
        while (used >> ur & 1)
                ur--; /* there are more registers than EARLY_MAX instructions can name */
        while (board < SM90_SCOREBOARDS - 1 && (boards >> board & 1))
                board++;
        sm90_ur_set(&ask, SM90_UR_D, ur);
        sm90_set_result_scoreboard(&ask, board);
        sm90_ur_set(&test, SM90_UR_B, ur);
        sm90_set_waits(&test, 1u << board);
        sm90_store(code, plan->entry_at, ask);
        sm90_store(code, entry_place(plan, 1), test);
        sm90_store(code, back, sm90_bra(distance(back, plan->early)));
        sm90_store(code, back + 1, sm90_nop());
        enter = sm90_load(code, in);
        sm90_add_waits(&enter, SM90_WAIT_ALL);
        sm90_store(code, in, enter);
}

static uint32_t write_entry(const struct kernel_plan *plan, const struct probe_code *p,
                            uint32_t kernel_id, uint8_t *code)
{
        const struct probe_sequence *seq = &p->entry;
        struct sm90_instr first = sm90_load(code, 0);
        uint8_t *rest = instr_at(code, entry_place(plan, 1));

        memcpy(instr_at(code, plan->entry_at), seq->code, SM90_INSTR_BYTES);
        memcpy(rest, seq->code + SM90_INSTR_BYTES, (size_t)(seq->count - 1) * SM90_INSTR_BYTES);
        for (uint32_t k = 0; k < seq->id_count; k++)
                patch_id(code, entry_place(plan, seq->id_at[k]), kernel_id);
        sm90_drop_reuse(&first);
        sm90_add_waits(&first, SM90_WAIT_ALL); /* for the probe's own, on every way back */
        for (uint32_t k = 0; k < seq->return_count; k++) {
                uint32_t at = entry_place(plan, seq->return_at[k]);

                sm90_store(code, at, first);
                sm90_store(code, at + 1, sm90_bra(distance(at + 1, 1)));
        }
        if (plan->early)
                write_early(plan, seq, code);
        sm90_store(code, 0, sm90_bra(distance(0, plan->entry_at)));
        return plan->entry_at + seq->count + plan->early;
}

static uint32_t write_exit(const struct kernel_plan *plan, const struct probe_code *p,
                           uint32_t kernel_id, uint8_t *code)
{
        uint8_t *seq = instr_at(code, plan->exit_at);

        sm90_track_all(code, plan->count, true);
        for (uint32_t k = 0; k < plan->count; k++) {
                struct sm90_instr i = sm90_load(code, k);

                if (sm90_opcode(&i) == SM90_EXIT)
                        sm90_store(code, k, sm90_exit_to_branch(&i, distance(k, plan->exit_at)));
        }
        memcpy(seq, p->exit.code, (size_t)p->exit.count * SM90_INSTR_BYTES);
        for (uint32_t k = 0; k < p->exit.id_count; k++)
                patch_id(seq, p->exit.id_at[k], kernel_id);
        for (size_t u = 0; u < p->ur_use_count; u++) {
                const struct probe_ur_use *use = &p->ur_uses[u];
                struct sm90_instr i = sm90_load(seq, use->instr);

                sm90_ur_set(&i, use->field, plan->ur[use->slot] + use->half);
                sm90_store(seq, use->instr, i);
        }
        return plan->exit_at + p->exit.count;
}

void kernel_write_code(const struct kernel_plan *plan, const struct splice_probes *probes,
                       uint32_t kernel_id, uint8_t *code)
{
        uint32_t end = plan->count;

        /* The exit first: it edits the instruction that the entry displaces. */
        if (plan->exit)
                end = write_exit(plan, probes->exit, kernel_id, code);
        if (plan->entry) {
                uint32_t entry_end = write_entry(plan, probes->entry, kernel_id, code);

                end = entry_end > end ? entry_end : end;
        }
        sm90_store(code, end++, sm90_bra(0));
        while (end < plan->new_count)
                sm90_store(code, end++, sm90_nop());
}

/* A buffer that may be absent, to measure. */
struct writer {
        uint8_t *out;
        size_t size;
};

static void put(struct writer *w, const void *bytes, size_t n)
{
        if (w->out)
                memcpy(w->out + w->size, bytes, n);
        w->size += n;
}

static void put_attribute(struct writer *w, uint8_t format, uint8_t id, uint16_t value)
{
        uint8_t head[2] = {format, id};

        put(w, head, 2);
        put(w, &value, 2);
}

static const struct probe_list *find_list(const struct probe_sequence *seq, uint8_t id)
{
        for (size_t k = 0; k < PROBE_LISTS; k++) {
                if (seq->lists[k].id == id && seq->lists[k].count)
                        return &seq->lists[k];
        }
        return NULL;
}

/* The values of a list; `entry`: of the entry sequence, else of the exit sequence. */
static void put_list_values(struct writer *w, const struct probe_list *list,
                            const struct kernel_plan *plan, bool entry)
{
        for (uint32_t k = 0; list && k < list->count; k++) {
                uint32_t v = list->values[k];

                if (list->is_offset)
                        v = (entry ? entry_place(plan, v) : plan->exit_at + v) * SM90_INSTR_BYTES;
                put(w, &v, 4);
        }
}

/* What the probes add to the list attribute `id`. */
struct additions {
        const struct probe_list *entry, *exit;
        uint32_t count;
};

static struct additions additions_to(const struct kernel_plan *plan,
                                     const struct splice_probes *probes, uint8_t id)
{
        struct additions a = {0};

        if (plan->entry)
                a.entry = find_list(&probes->entry->entry, id);
        if (plan->exit)
                a.exit = find_list(&probes->exit->exit, id);
        a.count = (a.entry ? a.entry->count : 0) + (a.exit ? a.exit->count : 0);
        return a;
}

static void put_exit_offsets(struct writer *w, const struct kernel_plan *plan,
                             const struct probe_sequence *seq)
{
        uint32_t exits = 0;

        for (int pass = 0; pass < 2; pass++) {
                for (uint32_t k = 0; k < seq->count; k++) {
                        struct sm90_instr i = sm90_load(seq->code, k);
                        uint32_t v = (plan->exit_at + k) * SM90_INSTR_BYTES;

                        if (sm90_opcode(&i) != SM90_EXIT)
                                continue;
                        if (pass == 0)
                                exits++;
                        else
                                put(w, &v, 4);
                }
                if (pass == 0)
                        put_attribute(w, CUBIN_FORMAT_SIZED, CUBIN_EXIT_OFFSETS,
                                      (uint16_t)(exits * 4));
        }
}

static const uint8_t list_ids[PROBE_LISTS] = {
        CUBIN_S2RCTAID_OFFSETS,
        CUBIN_COOP_GROUP_OFFSETS,
        CUBIN_COOP_GROUP_REGIDS,
        CUBIN_WARP_WIDE_OFFSETS,
};

/* Position of id in list_ids; PROBE_LISTS: it is no list. */
static size_t list_number(uint8_t id)
{
        size_t k = 0;

        while (k < PROBE_LISTS && list_ids[k] != id)
                k++;
        return k;
}

static void put_merged(struct writer *w, const struct kernel_plan *plan,
                       const struct cubin_attribute *a, uint8_t id, const struct additions *more)
{
        uint32_t size = a ? a->value : 0;
        bool fits = size + 4 * more->count <= UINT16_MAX;

        /* Where it does not fit, the driver keeps what it was told before. */
        put_attribute(w, CUBIN_FORMAT_SIZED, id, (uint16_t)(size + (fits ? 4 * more->count : 0)));
        if (a)
                put(w, a->data, a->value);
        if (fits) {
                put_list_values(w, more->entry, plan, true);
                put_list_values(w, more->exit, plan, false);
        }
}

int64_t kernel_write_info(const struct kernel_plan *plan, const struct splice_probes *probes,
                          const uint8_t *info, size_t size, uint8_t *out)
{
        bool merged[PROBE_LISTS] = {false}, has_ctaid_z = false, wants_ctaid_z;
        struct writer w = {.out = out};
        struct cubin_attribute a;
        size_t offset = 0;
        int r;

        while ((r = cubin_next_attribute(info, size, &offset, &a)) > 0) {
                size_t list = a.data ? list_number(a.id) : PROBE_LISTS;

                has_ctaid_z |= a.id == CUBIN_CTAIDZ_USED;
                if (a.id == CUBIN_EXIT_OFFSETS && plan->exit) {
                        put_exit_offsets(&w, plan, &probes->exit->exit);
                } else if (list < PROBE_LISTS && !merged[list]) {
                        struct additions more = additions_to(plan, probes, a.id);

                        put_merged(&w, plan, &a, a.id, &more);
                        merged[list] = true;
                } else {
                        put(&w, info + a.offset, a.bytes);
                }
        }
        if (r < 0)
                return -EINVAL;
        for (size_t k = 0; k < PROBE_LISTS; k++) {
                struct additions more = additions_to(plan, probes, list_ids[k]);

                if (!merged[k] && more.count)
                        put_merged(&w, plan, NULL, list_ids[k], &more);
        }
        wants_ctaid_z = (plan->entry && probes->entry->uses_ctaid_z) ||
                        (plan->exit && probes->exit->uses_ctaid_z);
        if (wants_ctaid_z && !has_ctaid_z)
                put_attribute(&w, CUBIN_FORMAT_NONE, CUBIN_CTAIDZ_USED, 0);
        return (int64_t)w.size;
}
