/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A probe is compiled as a kernel of its own and must become a guest in another.
 * What that takes:
 *
 *  - Its EXITs at an entry become branches to the end, where the warp comes
 *    together again (WARPSYNC): a kernel may start with a barrier for whole warps, and
 *    results were silently wrong without this. All lanes of the warp are there, so it
 *    takes no convergence barrier.
 *  - Nothing may be in flight when the kernel's code goes on: track_all().
 *  - The stack pointer is not loaded: a probe has no stack.
 *  - At an exit the thread's own registers are dead, but uniform registers and
 *    convergence barriers belong to the warp, of which other lanes may go on, or may
 *    be in another exit at the same time. So the sequence must use only those that the
 *    kernel never names. What it keeps in uniform registers is the same for all
 *    lanes at all times, so that it does not matter who wrote it last, or is
 *    used up before others get their turn (splice_uniform.c). Lanes of a probe that
 *    asks nothing of others need not meet: it has no barriers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "splice_body.h"
#include "splice_probe.h"
#include "track.h"

static int fail(int error, const char *why, const char **ret_reason)
{
        if (ret_reason)
                *ret_reason = why;
        return error;
}

/* The body and WARPSYNC; in front of it a way out for whole warps, where there is one. */
static int make_entry(struct body *b, struct probe_code *code, uint32_t *new_index)
{
        int r = body_emit_entry(b, &code->entry, new_index);

        if (r == 0)
                track_all(code->arch, code->entry.code, code->entry.count, false);
        return r;
}

/*
 * The body as it is. Convergence barriers are the kernel's: left out, or where lanes have to
 * meet replaced by such as the kernel does not use.
 */
static int make_exit(struct body *b, struct probe_code *code, uint32_t *new_index)
{
        struct probe_sequence *seq = &code->exit;
        struct instr first;
        int r = body_emit_exit(b, seq, new_index);

        if (r < 0)
                return r;
        first = instr_load(seq->code, 0);
        instr_add_waits(&first, INSTR_WAIT_ALL);
        instr_store(seq->code, 0, first);
        return 0;
}

static const char *check_exit(const struct probe_code *code, const struct body *b,
                              uint32_t *ret_detail)
{
        if (!body_ends(b))
                return "the probe does not end with its last instruction";
        if (!body_meets_plainly(b))
                return "the probe's lanes meet in an unknown way";
        for (uint32_t k = 0; k < code->exit.count; k++) {
                struct instr i = instr_load(code->exit.code, k);
                enum arch_role role = arch_role(code->arch, &i);
                int64_t bytes;

                if (role == ARCH_WARPSYNC) {
                        *ret_detail = instr_opcode(&i);
                        return "the probe waits for other lanes";
                }
                if (role == ARCH_BRA && arch_relative_target(code->arch, &i, &bytes) &&
                    bytes == instr_distance(k, 0))
                        return "the probe begins with a loop";
        }
        return NULL;
}

/* Attributes that list instructions: known ones are carried over into the kernel. */
static struct probe_list_attribute *new_list(struct probe_sequence *seq, uint8_t id)
{
        for (size_t k = 0; k < PROBE_LISTS; k++) {
                if (!seq->lists[k].id) {
                        seq->lists[k].id = id;
                        seq->lists[k].is_offset = id != CUBIN_COOP_GROUP_REGIDS;
                        return &seq->lists[k];
                }
        }
        return NULL;
}

static int add_list(struct probe_sequence *seq, const struct cubin_attribute *a,
                    const uint32_t *new_index, uint32_t body_count)
{
        struct probe_list_attribute *list = new_list(seq, a->id);
        uint32_t count = a->value / 4;

        if (!list || a->value % 4)
                return -EINVAL;
        list->values = calloc(count + 1, sizeof(*list->values));
        if (!list->values)
                return -ENOMEM;
        list->count = count;
        for (uint32_t k = 0; k < count; k++) {
                uint32_t v;

                memcpy(&v, a->data + 4 * k, 4);
                if (list->is_offset) {
                        if (v % INSTR_BYTES || v / INSTR_BYTES >= body_count)
                                return -EINVAL;
                        v = new_index[v / INSTR_BYTES];
                }
                list->values[k] = v;
        }
        return 0;
}

static int append(struct probe_sequence *seq, uint8_t id, uint32_t value)
{
        struct probe_list_attribute *list = NULL;
        uint32_t *values;

        for (size_t k = 0; k < PROBE_LISTS && !list; k++)
                if (seq->lists[k].id == id)
                        list = &seq->lists[k];
        if (!list)
                list = new_list(seq, id);
        values = list ? realloc(list->values, (list->count + 1UL) * sizeof(*values)) : NULL;
        if (!values)
                return -ENOMEM;
        values[list->count++] = value;
        list->values = values;
        return 0;
}

/* The WARPSYNC behind the body, as the compiler notes its own: of all lanes, by no register. */
static int note_meeting(struct probe_sequence *seq)
{
        int r = append(seq, CUBIN_COOP_GROUP_OFFSETS, seq->count - SPLICE_RETURN_INSTRS - 1);

        return r < 0 ? r : append(seq, CUBIN_COOP_GROUP_REGIDS, UINT32_MAX);
}

enum attribute_use {
        ATTRIBUTE_IGNORED,
        ATTRIBUTE_LIST,
        ATTRIBUTE_REFUSED,
};

static enum attribute_use attribute_use(const struct cubin_attribute *a)
{
        switch (a->id) {
        case CUBIN_S2RCTAID_OFFSETS:
        case CUBIN_COOP_GROUP_OFFSETS:
        case CUBIN_COOP_GROUP_REGIDS:
        case CUBIN_WARP_WIDE_OFFSETS:
                return ATTRIBUTE_LIST;
        case CUBIN_EXIT_OFFSETS: /* found from the code */
        case CUBIN_CRS_STACK_SIZE:
        case CUBIN_SW_WAR:
        case CUBIN_API_VERSION:
                return ATTRIBUTE_IGNORED;
        case CUBIN_KPARAM_INFO:
        case CUBIN_PARAM_CBANK:
                return ATTRIBUTE_REFUSED;
        default:
                /* Without data it cannot point into the code. */
                return a->format == CUBIN_FORMAT_SIZED ? ATTRIBUTE_REFUSED : ATTRIBUTE_IGNORED;
        }
}

static int read_attributes(const struct cubin *c, size_t info, struct probe_code *code,
                           struct probe_sequence *seq, const uint32_t *new_index,
                           uint32_t body_count, const char **ret_reason)
{
        struct cubin_attribute a;
        size_t size, offset = 0;
        const uint8_t *bytes = cubin_section_bytes(c, info, &size);
        int r;

        if (!info)
                return 0;
        while ((r = cubin_next_attribute(bytes, size, &offset, &a)) > 0) {
                if (a.id == CUBIN_CTAIDZ_USED)
                        code->uses_ctaid_z = true;
                switch (attribute_use(&a)) {
                case ATTRIBUTE_LIST:
                        r = add_list(seq, &a, new_index, body_count);
                        if (r < 0)
                                return fail(r, "the probe's instruction lists are broken",
                                            ret_reason);
                        break;
                case ATTRIBUTE_REFUSED:
                        return fail(-EINVAL, "the probe has parameters or an unknown attribute",
                                    ret_reason);
                case ATTRIBUTE_IGNORED:
                        break;
                }
        }
        return r < 0 ? fail(-EINVAL, "the probe's attributes are broken", ret_reason) : 0;
}

/* The one kernel of the cubin. */
struct found {
        size_t symbol, text, info;
};

static int find_kernel(const struct cubin *c, struct found *ret_found, const char **ret_reason)
{
        struct found f = {0};
        size_t kernels = 0;

        for (size_t i = 0; i < c->symbol_count; i++) {
                Elf64_Sym s;

                cubin_symbol(c, i, &s);
                if (ELF64_ST_TYPE(s.st_info) == STT_FUNC && (s.st_other & CUBIN_KERNEL_FLAG) &&
                    s.st_shndx && s.st_shndx < c->header.e_shnum) {
                        kernels++;
                        f.symbol = i;
                        f.text = s.st_shndx;
                } else if (ELF64_ST_TYPE(s.st_info) == STT_FUNC) {
                        return fail(-EINVAL, "the probe has functions", ret_reason);
                }
        }
        if (kernels != 1)
                return fail(-EINVAL, "the probe's image does not hold one kernel", ret_reason);
        for (size_t i = 1; i < c->header.e_shnum; i++) {
                const Elf64_Shdr *s = &c->sections[i];

                if ((s->sh_type == SHT_REL || s->sh_type == SHT_RELA) && s->sh_size &&
                    s->sh_info == f.text)
                        return fail(-EINVAL, "the probe refers to symbols", ret_reason);
                if (s->sh_type == CUBIN_INFO_TYPE && s->sh_info == f.text &&
                    strncmp(cubin_section_name(c, i), ".nv.info.", 9) == 0)
                        f.info = i;
        }
        *ret_found = f;
        return 0;
}

/* Registers and stack of the kernel, from .nv.info. */
static int read_resources(const struct cubin *c, size_t symbol, struct probe_code *code,
                          const char **ret_reason)
{
        for (size_t i = 1; i < c->header.e_shnum; i++) {
                struct cubin_attribute a;
                size_t size, offset = 0;
                const uint8_t *bytes = cubin_section_bytes(c, i, &size);
                uint32_t v[2];

                if (strcmp(cubin_section_name(c, i), ".nv.info") != 0)
                        continue;
                while (cubin_next_attribute(bytes, size, &offset, &a) > 0) {
                        if (!a.data || a.value != 8)
                                continue;
                        memcpy(v, a.data, 8);
                        if (v[0] != symbol)
                                continue;
                        if (a.id == CUBIN_REGCOUNT)
                                code->registers = v[1];
                        else if ((a.id == CUBIN_FRAME_SIZE || a.id == CUBIN_MIN_STACK_SIZE) && v[1])
                                return fail(-EINVAL,
                                            "the probe needs a stack: it indexes more than 160 "
                                            "bytes of an array there, or without a known bound",
                                            ret_reason);
                }
        }
        if (!code->registers || code->registers > INSTR_REGISTERS)
                return fail(-EINVAL, "the probe's register count is unknown", ret_reason);
        return 0;
}

static int allocate_sequences(const struct body *b, struct probe_code *code,
                              uint32_t **ret_new_index)
{
        size_t room = ((size_t)b->count + b->breaks + BODY_EXTRA_INSTRS) * INSTR_BYTES;
        uint32_t *new_index = calloc(b->count + 1UL, sizeof(*new_index));

        code->entry.code = calloc(1, room);
        code->exit.code = calloc(1, room);
        if (!new_index || !code->entry.code || !code->exit.code) {
                free(new_index);
                return -ENOMEM;
        }
        *ret_new_index = new_index;
        return 0;
}

/*
 * Behind another program only the question which lanes are active can be answered
 * as if it came first (splice_kernel.c).
 */
static void note_votes(struct probe_code *code)
{
        for (uint32_t k = 0; k < code->exit.count; k++) {
                struct instr i = instr_load(code->exit.code, k);

                code->exit_asks_lanes |= arch_votes(code->arch, &i);
                code->exit_votes |= arch_has(code->arch, &i, ARCH_TOGETHER) &&
                                    !arch_votes_lanes(code->arch, &i);
                code->exit_barriers |= arch_barriers(code->arch, &i);
        }
}

/* Whether it can serve at exits; if not it may still serve at entries. */
static int judge_exit(struct probe_code *code, const struct body *b)
{
        int r;

        code->exit_refusal = check_exit(code, b, &code->exit_detail);
        if (code->exit_refusal)
                return 0;
        note_votes(code);
        r = probe_assign_uniform(code);
        if (r == -EINVAL)
                code->exit_refusal = "the probe's uniform registers depend on the lane";
        return r == -EINVAL ? 0 : r;
}

static int make_sequences(const struct cubin *c, const struct found *f, struct body *b,
                          struct probe_code *code, const char **ret_reason)
{
        uint32_t *new_index;
        const char *why = "out of memory";
        int r = allocate_sequences(b, code, &new_index);

        if (r < 0)
                return fail(r, why, ret_reason);
        r = make_entry(b, code, new_index);
        if (r == 0)
                r = read_attributes(c, f->info, code, &code->entry, new_index, b->count, &why);
        else
                why = "the probe's code cannot be rearranged";
        if (r == 0)
                r = note_meeting(&code->entry);
        if (r == 0) {
                r = make_exit(b, code, new_index);
                why = "the probe's code cannot be rearranged";
        }
        if (r == 0)
                r = read_attributes(c, f->info, code, &code->exit, new_index, b->count, &why);
        if (r == 0)
                r = judge_exit(code, b);
        free(new_index);
        return r < 0 ? fail(r, r == -ENOMEM ? "out of memory" : why, ret_reason) : 0;
}

static int extract(const struct cubin *c, struct body *b, struct probe_code *code,
                   const char **ret_reason)
{
        const uint8_t *text;
        struct found f;
        const char *why;
        size_t size;
        int r;

        code->arch = arch_find(c->sm);
        if (!code->arch)
                return fail(-EINVAL, "there is no instruction table for the probe's architecture",
                            ret_reason);
        r = find_kernel(c, &f, ret_reason);
        if (r < 0)
                return r;
        r = read_resources(c, f.symbol, code, ret_reason);
        if (r < 0)
                return r;
        text = cubin_section_bytes(c, f.text, &size);
        r = body_load(code->arch, text, size, b, ret_reason);
        if (r < 0)
                return r;
        why = body_prepare(b);
        if (!why && !body_can_enter(b))
                why = "the probe waits for lanes that may have left it";
        if (why)
                return fail(-EINVAL, why, ret_reason);
        return make_sequences(c, &f, b, code, ret_reason);
}

int probe_code_extract(const void *cubin, size_t size, struct probe_code **ret_code,
                       const char **ret_reason)
{
        struct probe_code *code;
        struct body b = {0};
        struct cubin c;
        int r;

        r = cubin_open(cubin, size, &c, ret_reason);
        if (r < 0)
                return r == -ENOTSUP ? -EINVAL : r;
        code = calloc(1, sizeof(*code));
        if (code)
                r = extract(&c, &b, code, ret_reason);
        else
                r = fail(-ENOMEM, "out of memory", ret_reason);
        body_done(&b);
        cubin_done(&c);
        if (r < 0) {
                probe_code_free(code);
                return r;
        }
        *ret_code = code;
        return 0;
}

static void sequence_done(struct probe_sequence *seq)
{
        free(seq->code);
        for (size_t k = 0; k < PROBE_LISTS; k++)
                free(seq->lists[k].values);
}

struct probe_code *probe_code_free(struct probe_code *code)
{
        if (code) {
                sequence_done(&code->entry);
                sequence_done(&code->exit);
                free(code->ur_uses);
                free(code);
        }
        return NULL;
}

const char *probe_code_exit_refusal(const struct probe_code *code)
{
        return code->exit_refusal;
}

uint32_t probe_code_registers(const struct probe_code *code)
{
        return code->registers;
}

uint32_t probe_code_instructions(const struct probe_code *code)
{
        return code->exit.count;
}

uint32_t chain_registers(const struct probe_chain *chain, const struct probe_code *next)
{
        uint32_t most = next->registers;

        for (uint32_t n = 0; n < chain->count; n++)
                if (chain->probes[n].code->registers > most)
                        most = chain->probes[n].code->registers;
        return most;
}

void sequence_set_id(const struct probe_sequence *seq, uint32_t kernel_id, uint8_t *copy)
{
        for (uint32_t k = 0; k < seq->id_count; k++)
                instr_set_number(copy, seq->id_at[k], kernel_id);
}

bool planned_choose_barriers(struct planned_probe *p, uint32_t used)
{
        uint32_t free_ones = ~used & ((1u << INSTR_BARRIERS) - 1);

        for (uint32_t own = p->code->exit_barriers; own; own &= own - 1) {
                if (!free_ones)
                        return false;
                p->barriers[__builtin_ctz(own)] = (uint8_t)__builtin_ctz(free_ones);
                free_ones &= free_ones - 1;
        }
        return true;
}

static void set_uniform(const struct planned_probe *p, uint8_t *copy)
{
        for (size_t u = 0; u < p->code->ur_use_count; u++) {
                const struct probe_ur_use *use = &p->code->ur_uses[u];
                struct instr i = instr_load(copy, use->instr);

                instr_ur_set(&i, use->field, p->ur[use->slot] + use->half);
                instr_store(copy, use->instr, i);
        }
}

static void set_barriers(const struct planned_probe *p, uint8_t *copy)
{
        for (uint32_t k = 0; k < p->code->exit.count && p->code->exit_barriers; k++) {
                struct instr i = instr_load(copy, k);

                if (!arch_has(p->code->arch, &i, ARCH_BARRIER_D))
                        continue;
                instr_set_barrier(&i, p->barriers[instr_barrier(&i)]);
                instr_store(copy, k, i);
        }
}

void planned_set_chosen(const struct planned_probe *p, uint8_t *copy)
{
        set_uniform(p, copy);
        set_barriers(p, copy);
}
