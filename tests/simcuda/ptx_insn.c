/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Instructions: opcode, modifiers, operands. Every modifier must be taken by
 * the opcode's parser; one that is left over makes the load fail.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx_alu.h"
#include "ptx_mem.h"
#include "ptx_parse.h"
#include "ptx_warp.h"

#define MAX_MODIFIERS 16
#define MAX_OPERANDS  8

/* An opcode with its modifiers. */
struct mnemonic {
        const struct ptx_token *opcode;
        const struct ptx_token *modifiers[MAX_MODIFIERS];
        bool taken[MAX_MODIFIERS];
        unsigned count;
};

static bool take(struct mnemonic *m, const char *name)
{
        for (unsigned i = 0; i < m->count; i++) {
                if (!m->taken[i] && ptx_token_is(m->modifiers[i], name)) {
                        m->taken[i] = true;
                        return true;
                }
        }
        return false;
}

/* Modifiers that do not change what we compute. */
static void ignore(struct mnemonic *m, const char *const *names)
{
        for (; *names; names++)
                take(m, *names);
}

/* The first type among the modifiers that are left. */
static enum ptx_type take_type(struct mnemonic *m)
{
        for (unsigned i = 0; i < m->count; i++) {
                enum ptx_type type = m->taken[i] ? PTX_NONE : ptx_type_find(m->modifiers[i]);

                if (type) {
                        m->taken[i] = true;
                        return type;
                }
        }
        return PTX_NONE;
}

/* The first of some names among the modifiers, as its index, or -1. */
static int take_one(struct mnemonic *m, const char *const *names)
{
        for (int i = 0; names[i]; i++) {
                if (take(m, names[i]))
                        return i;
        }
        return -1;
}

static int check_all_taken(struct ptx_parser *p, const struct mnemonic *m)
{
        for (unsigned i = 0; i < m->count; i++) {
                if (!m->taken[i])
                        return ptx_fail(p, "unsupported modifier '.%.*s' of '%.*s'",
                                        (int)m->modifiers[i]->length, m->modifiers[i]->text,
                                        (int)m->opcode->length, m->opcode->text);
        }
        return 0;
}

static enum ptx_type wider(enum ptx_type type)
{
        switch (type) {
        case PTX_U16:
                return PTX_U32;
        case PTX_S16:
                return PTX_S32;
        case PTX_U32:
                return PTX_U64;
        case PTX_S32:
                return PTX_S64;
        default:
                return PTX_NONE;
        }
}

static int carry_register(struct ptx_parser *p, int32_t *ret_reg)
{
        if (p->carry < 0) {
                int r = ptx_register_new(p, &p->carry);

                if (r < 0)
                        return r;
        }
        *ret_reg = p->carry;
        return 0;
}

static int parse_destination(struct ptx_parser *p, enum ptx_type type, bool widening,
                             int32_t *ret_reg)
{
        struct ptx_operand o;
        int r = ptx_operand_parse(p, &o);

        if (r == 0)
                r = ptx_operand_destination(p, &o, type, widening, ret_reg);
        ptx_operand_done(&o);
        return r;
}

static int parse_source(struct ptx_parser *p, enum ptx_type type, bool widening, int32_t *ret_ref)
{
        struct ptx_operand o;
        int r = ptx_operand_parse(p, &o);

        if (r == 0)
                r = ptx_operand_source(p, &o, type, widening, ret_ref);
        ptx_operand_done(&o);
        return r;
}

/* A comma, then a source. */
static int next_source(struct ptx_parser *p, enum ptx_type type, bool widening, int32_t *ret_ref)
{
        int r = ptx_expect(p, ',');

        return r < 0 ? r : parse_source(p, type, widening, ret_ref);
}

/* A predicate that may be written !p; the result is a register or an immediate. */
static int parse_predicate(struct ptx_parser *p, int32_t *ret_ref, bool *ret_inverted)
{
        struct ptx_operand o;
        int r = ptx_operand_parse(p, &o);

        if (r < 0) {
                ptx_operand_done(&o);
                return r;
        }
        *ret_inverted = o.inverted;
        o.inverted = false;
        r = ptx_operand_source(p, &o, PTX_PRED, false, ret_ref);
        ptx_operand_done(&o);
        return r;
}

/* A comma, then a predicate; !p becomes a register with the opposite. */
static int next_predicate(struct ptx_parser *p, int32_t *ret_ref)
{
        struct ptx_insn negate = {.fn = ptx_op_not_pred,
                                  .dst2 = -1,
                                  .guard = PTX_NO_GUARD,
                                  .kind = PTX_KIND_ALU,
                                  .vec = 1,
                                  .line = ptx_peek(p)->line};
        bool inverted = false;
        int r = ptx_expect(p, ',');

        if (r == 0)
                r = parse_predicate(p, ret_ref, &inverted);
        if (r < 0 || !inverted)
                return r;
        negate.src[0] = *ret_ref;
        r = ptx_register_new(p, &negate.dst);
        *ret_ref = negate.dst;
        return r < 0 ? r : ptx_emit(p, &negate);
}

/* p or p|q as destinations of some type and a predicate. */
static int parse_pair(struct ptx_parser *p, enum ptx_type type, struct ptx_insn *insn)
{
        int r;

        p->sinks_allowed = true;
        r = parse_destination(p, type, false, &insn->dst);
        if (r == 0 && ptx_accept(p, '|'))
                r = parse_destination(p, PTX_PRED, false, &insn->dst2);
        p->sinks_allowed = false;
        return r;
}

static int finish(struct ptx_parser *p, const struct ptx_insn *insn)
{
        int r = ptx_expect(p, ';');

        return r < 0 ? r : ptx_emit(p, insn);
}

/* ---- the table of simple instructions ---- */

static bool is_ignorable(const struct ptx_simple_op *op, const struct ptx_token *modifier)
{
        char padded[32];

        snprintf(padded, sizeof(padded), " %.*s ", (int)modifier->length, modifier->text);
        return strstr(op->ignorable, padded) != NULL;
}

/* Whether the modifiers, without the type and the ignorable ones, spell the variant. */
static bool variant_matches(const struct ptx_simple_op *op, const struct mnemonic *m)
{
        const char *variant = op->variant;
        bool given = op->ignorable[0] != '!';

        for (unsigned i = 0; i < m->count; i++) {
                const struct ptx_token *t = m->modifiers[i];

                if (m->taken[i])
                        continue;
                if (is_ignorable(op, t)) {
                        given = true;
                        continue;
                }
                if (*variant == ' ')
                        variant++;
                if (strncmp(variant, t->text, t->length) != 0 ||
                    (variant[t->length] != '\0' && variant[t->length] != ' '))
                        return false;
                variant += t->length;
        }
        return given && *variant == '\0';
}

static const struct ptx_simple_op *find_simple(const struct mnemonic *m, enum ptx_type type,
                                               bool *ret_known)
{
        *ret_known = false;
        for (size_t i = 0; i < ptx_simple_op_count; i++) {
                const struct ptx_simple_op *op = &ptx_simple_ops[i];

                if (!ptx_token_is(m->opcode, op->name))
                        continue;
                *ret_known = true;
                if (op->type == type && variant_matches(op, m))
                        return op;
        }
        return NULL;
}

static enum ptx_type signature_type(char c, enum ptx_type type)
{
        switch (c) {
        case 't':
                return type;
        case 'w':
                return wider(type);
        case 'u':
                return PTX_B32;
        default:
                return PTX_PRED;
        }
}

static int parse_simple_operands(struct ptx_parser *p, const struct ptx_simple_op *op,
                                 struct ptx_insn *insn)
{
        const char *c = op->signature;
        unsigned n = 0;
        int r = 0;

        if (*c == 'C') {
                r = carry_register(p, &insn->dst2);
                c++;
        }
        if (r == 0)
                r = parse_destination(p, signature_type(*c++, op->type), false, &insn->dst);
        for (; r == 0 && *c && *c != 'c'; c++) {
                enum ptx_type type = signature_type(*c, op->type);

                if (*c == 'p')
                        r = next_predicate(p, &insn->src[n++]);
                else
                        r = next_source(p, type, false, &insn->src[n++]);
        }
        if (r == 0 && *c == 'c')
                r = carry_register(p, &insn->src[n]);
        return r;
}

static int parse_simple(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        enum ptx_type type = take_type(m);
        const struct ptx_simple_op *op;
        bool known;
        int r;

        op = find_simple(m, type, &known);
        if (!op) {
                char text[160] = "";
                size_t n = 0;

                for (unsigned i = 0; i < m->count && n < sizeof(text) - 1; i++)
                        n += (size_t)snprintf(text + n, sizeof(text) - n, ".%.*s",
                                              (int)m->modifiers[i]->length, m->modifiers[i]->text);
                return ptx_fail(p, "unsupported %s '%.*s%s'", known ? "form of" : "instruction",
                                (int)m->opcode->length, m->opcode->text, text);
        }
        insn->fn = op->fn;
        insn->type = (uint8_t)type;
        r = parse_simple_operands(p, op, insn);
        return r < 0 ? r : finish(p, insn);
}

/* ---- mov ---- */

static unsigned vector_bytes(enum ptx_type type, unsigned count)
{
        return count ? ptx_type_bytes(type) / count : 0;
}

static enum ptx_type bits_type(unsigned bytes)
{
        switch (bytes) {
        case 1:
                return PTX_B8;
        case 2:
                return PTX_B16;
        case 4:
                return PTX_B32;
        case 8:
                return PTX_B64;
        default:
                return PTX_NONE;
        }
}

/* References of a vector operand's elements, as sources or destinations. */
static int vector_refs(struct ptx_parser *p, const struct ptx_operand *o, enum ptx_type type,
                       bool widening, bool destination, int32_t *ret_index)
{
        int32_t refs[PTX_VECTOR_MAX];
        int r = 0;

        p->sinks_allowed = true;
        for (unsigned i = 0; i < o->count && r == 0; i++) {
                r = destination
                            ? ptx_operand_destination(p, &o->elements[i], type, widening, &refs[i])
                            : ptx_operand_source(p, &o->elements[i], type, widening, &refs[i]);
        }
        p->sinks_allowed = false;
        return r < 0 ? r : ptx_vector(p, refs, o->count, ret_index);
}

static int check_parts(struct ptx_parser *p, enum ptx_type type, const struct ptx_operand *vector)
{
        unsigned bytes = vector_bytes(type, vector->count);

        if (bytes * vector->count == ptx_type_bytes(type) && bits_type(bytes) && bytes > 1)
                return 0;
        return ptx_fail(p, "the vector does not fit the instruction's type");
}

static int move_operands(struct ptx_parser *p, enum ptx_type type, const struct ptx_operand *to,
                         const struct ptx_operand *from, struct ptx_insn *insn)
{
        int r;

        if (to->kind == PTX_OPERAND_VECTOR) {
                r = check_parts(p, type, to);
                insn->fn = ptx_op_unpack;
                insn->vec = (uint8_t)to->count;
                if (r == 0)
                        r = vector_refs(p, to, bits_type(vector_bytes(type, to->count)), false,
                                        true, &insn->dst);
                return r < 0 ? r : ptx_operand_source(p, from, type, false, &insn->src[0]);
        }
        r = ptx_operand_destination(p, to, type, false, &insn->dst);
        if (r < 0)
                return r;
        if (from->kind == PTX_OPERAND_VECTOR) {
                r = check_parts(p, type, from);
                insn->fn = ptx_op_pack;
                insn->vec = (uint8_t)from->count;
                return r < 0 ? r
                             : vector_refs(p, from, bits_type(vector_bytes(type, from->count)),
                                           false, false, &insn->src[1]);
        }
        if (from->kind == PTX_OPERAND_SPECIAL &&
            ptx_special_fits(from->special, from->type, type)) {
                insn->fn = ptx_op_special;
                insn->sub = (uint8_t)from->special;
                return 0;
        }
        insn->fn = ptx_op_move;
        return ptx_operand_source(p, from, type, false, &insn->src[0]);
}

static int parse_mov(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        struct ptx_operand to = {0}, from = {0};
        int r;

        insn->type = (uint8_t)take_type(m);
        p->specials_allowed = true;
        r = insn->type ? check_all_taken(p, m) : ptx_fail(p, "mov needs a type");
        if (r == 0)
                r = ptx_operand_parse(p, &to);
        if (r == 0)
                r = ptx_expect(p, ',');
        if (r == 0)
                r = ptx_operand_parse(p, &from);
        if (r == 0)
                r = move_operands(p, (enum ptx_type)insn->type, &to, &from, insn);
        ptx_operand_done(&to);
        ptx_operand_done(&from);
        return r < 0 ? r : finish(p, insn);
}

/* ---- memory ---- */

static const char *const scope_names[] = {"cta", "gpu", "sys", "cluster", NULL};

/*
 * .relaxed.gpu, .volatile ...: the interpreter's accesses are at least as strong.
 * Orders of memory need a scope, except on atomics, where it has a default.
 */
static int check_ordering(struct ptx_parser *p, struct mnemonic *m)
{
        static const char *const plain[] = {"weak", "volatile", NULL};
        bool atom = ptx_token_is(m->opcode, "atom"), red = ptx_token_is(m->opcode, "red");
        bool store = ptx_token_is(m->opcode, "st"), ordered, scoped;

        ignore(m, plain);
        ordered = take(m, "relaxed") || (!store && !red && take(m, "acquire")) ||
                  ((store || red || atom) && take(m, "release")) || (atom && take(m, "acq_rel"));
        scoped = take_one(m, scope_names) >= 0;
        if (ordered && !scoped && !atom && !red)
                return ptx_fail(p, "a memory order needs a scope");
        if (scoped && !ordered && !atom && !red)
                return ptx_fail(p, "a scope needs a memory order");
        return 0;
}

static void ignore_caching(struct mnemonic *m)
{
        static const char *const names[] = {"nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", NULL};

        ignore(m, names);
        for (unsigned i = 0; i < m->count; i++) {
                const struct ptx_token *t = m->modifiers[i];
                bool hint = t->length > 4 &&
                            (memcmp(t->text, "L1::", 4) == 0 || memcmp(t->text, "L2::", 4) == 0);

                /* L2::cache_hint brings an operand. */
                if (hint && !ptx_token_is(t, "L2::cache_hint"))
                        m->taken[i] = true;
        }
}

static enum ptx_space take_space(struct mnemonic *m)
{
        if (take(m, "global") || take(m, "const"))
                return PTX_GLOBAL;
        if (take(m, "shared") || take(m, "shared::cta"))
                return PTX_SHARED;
        if (take(m, "local"))
                return PTX_LOCAL;
        if (take(m, "param") || take(m, "param::entry") || take(m, "param::func"))
                return PTX_PARAM;
        return PTX_GENERIC;
}

static uint8_t take_vector(struct mnemonic *m)
{
        if (take(m, "v2"))
                return 2;
        return take(m, "v4") ? 4 : 1;
}

/* The address, checked against and refined by the space that the instruction names. */
static int parse_address(struct ptx_parser *p, struct ptx_insn *insn)
{
        enum ptx_space space = (enum ptx_space)insn->space;
        struct ptx_address a;
        int r = ptx_address_parse(p, &a);

        if (r < 0)
                return r;
        if (a.immediate && space != PTX_LOCAL)
                return ptx_fail(p, "constant addresses are for .local only");
        if (a.named && space == PTX_GENERIC && a.space != PTX_GLOBAL)
                return ptx_fail(p, "a generic access to a variable that is not global");
        if (a.named && space == PTX_PARAM && a.space == PTX_LOCAL)
                insn->space = PTX_LOCAL; /* of a call: in the thread's memory */
        else if (a.named && space != PTX_GENERIC && a.space != space)
                return ptx_fail(p, "the variable is not in the space of the instruction");
        insn->src[0] = a.base;
        insn->offset = a.offset;
        return 0;
}

static int parse_memory_head(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r = check_ordering(p, m);

        if (r < 0)
                return r;
        insn->space = (uint8_t)take_space(m);
        ignore_caching(m);
        insn->vec = take_vector(m);
        insn->type = (uint8_t)take_type(m);
        insn->kind = PTX_KIND_MEMORY;
        if (insn->type == PTX_NONE || insn->type == PTX_PRED)
                return ptx_fail(p, "a memory access needs a type");
        return check_all_taken(p, m);
}

/* The value of a load or store: a register, or a vector of them. */
static int parse_data(struct ptx_parser *p, struct ptx_insn *insn, bool load, int32_t *ret_ref)
{
        enum ptx_type type = (enum ptx_type)insn->type;
        struct ptx_operand o;
        int r = ptx_operand_parse(p, &o);

        if (r == 0 && (o.kind == PTX_OPERAND_VECTOR ? o.count : 1) != insn->vec)
                r = ptx_fail(p, "the vector does not have %u elements", insn->vec);
        if (r == 0 && insn->vec > 1)
                r = vector_refs(p, &o, type, true, load, ret_ref);
        else if (r == 0)
                r = load ? ptx_operand_destination(p, &o, type, true, ret_ref)
                         : ptx_operand_source(p, &o, type, true, ret_ref);
        ptx_operand_done(&o);
        return r;
}

static int parse_ld(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r = parse_memory_head(p, m, insn);

        insn->fn = ptx_op_ld;
        if (r == 0)
                r = parse_data(p, insn, true, &insn->dst);
        if (r == 0)
                r = ptx_expect(p, ',');
        if (r == 0)
                r = parse_address(p, insn);
        return r < 0 ? r : finish(p, insn);
}

static int parse_st(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        struct ptx_insn value = {0};
        int r = parse_memory_head(p, m, insn);

        insn->fn = ptx_op_st;
        if (r == 0)
                r = parse_address(p, insn);
        if (r == 0)
                r = ptx_expect(p, ',');
        value = *insn;
        if (r == 0)
                r = parse_data(p, &value, false, &insn->src[1]);
        return r < 0 ? r : finish(p, insn);
}

/* Which types an atomic operation takes. */
static bool atomic_type_ok(enum ptx_atomic op, enum ptx_type type)
{
        unsigned bytes = ptx_type_bytes(type);

        if (bytes != 4 && bytes != 8)
                return false;
        switch (op) {
        case PTX_ATOM_ADD:
                return !ptx_type_bits(type) && type != PTX_S64;
        case PTX_ATOM_MIN:
        case PTX_ATOM_MAX:
                return !ptx_type_bits(type) && !ptx_type_float(type);
        case PTX_ATOM_INC:
        case PTX_ATOM_DEC:
                return type == PTX_U32;
        default:
                return ptx_type_bits(type);
        }
}

static int parse_atomic(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const ops[] = {"add",  "min", "max", "and", "or", "xor",
                                          "exch", "cas", "inc", "dec", NULL};
        bool has_result = ptx_token_is(m->opcode, "atom");
        int op = take_one(m, ops), r;

        r = parse_memory_head(p, m, insn);
        insn->fn = ptx_op_atom;
        insn->dst = -1;
        if (r == 0 && (op < 0 || insn->vec != 1 || insn->space == PTX_PARAM ||
                       !atomic_type_ok((enum ptx_atomic)op, (enum ptx_type)insn->type)))
                r = ptx_fail(p, "unsupported atomic operation or type");
        insn->sub = (uint8_t)op;
        if (r == 0 && has_result) {
                p->sinks_allowed = true;
                r = parse_destination(p, (enum ptx_type)insn->type, false, &insn->dst);
                if (r == 0)
                        r = ptx_expect(p, ',');
        }
        if (r == 0)
                r = parse_address(p, insn);
        if (r == 0)
                r = next_source(p, (enum ptx_type)insn->type, false, &insn->src[1]);
        if (r == 0 && op == PTX_ATOM_CAS)
                r = next_source(p, (enum ptx_type)insn->type, false, &insn->src[2]);
        return r < 0 ? r : finish(p, insn);
}

static int parse_cvta(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r;

        insn->sub = take(m, "to");
        insn->space = (uint8_t)take_space(m);
        insn->type = (uint8_t)take_type(m);
        insn->fn = ptx_op_cvta;
        if (insn->space == PTX_GENERIC || insn->type != PTX_U64)
                return ptx_fail(p, "cvta needs a space and .u64");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_destination(p, PTX_U64, false, &insn->dst);
        if (r == 0)
                r = next_source(p, PTX_U64, false, &insn->src[0]);
        return r < 0 ? r : finish(p, insn);
}

static int parse_isspacep(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r;

        insn->space = (uint8_t)take_space(m);
        insn->fn = ptx_op_isspacep;
        if (insn->space == PTX_GENERIC || insn->space == PTX_PARAM)
                return ptx_fail(p, "isspacep needs a space");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_destination(p, PTX_PRED, false, &insn->dst);
        if (r == 0)
                r = next_source(p, PTX_U64, false, &insn->src[0]);
        return r < 0 ? r : finish(p, insn);
}

/* prefetch and prefetchu: an address that is not touched. */
static int parse_prefetch(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const levels[] = {"L1", "L2", "L2::evict_last", "L2::evict_normal",
                                             NULL};
        int r;

        insn->space = (uint8_t)take_space(m);
        insn->fn = ptx_op_nothing;
        ignore(m, levels);
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_address(p, insn);
        return r < 0 ? r : finish(p, insn);
}

/* ---- comparison and conversion ---- */

static const char *const compare_names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ", "neu",
                                            "ltu", "leu", "gtu", "geu", "num", "nan", NULL};

/* Unsigned comparisons have names of their own, which mean the same with an unsigned type. */
static int take_compare(struct mnemonic *m, bool *ret_unsigned)
{
        static const char *const unsigned_names[] = {"lo", "ls", "hi", "hs", NULL};
        static const enum ptx_compare same[] = {PTX_LT, PTX_LE, PTX_GT, PTX_GE};
        int op = take_one(m, compare_names);

        *ret_unsigned = false;
        if (op >= 0)
                return op;
        op = take_one(m, unsigned_names);
        *ret_unsigned = op >= 0;
        return op < 0 ? op : (int)same[op];
}

static bool comparable(enum ptx_compare op, enum ptx_type type, bool only_unsigned)
{
        unsigned bytes = ptx_type_bytes(type);

        if (bytes < 2)
                return false;
        if (only_unsigned)
                return type == PTX_U16 || type == PTX_U32 || type == PTX_U64;
        if (ptx_type_bits(type))
                return op == PTX_EQ || op == PTX_NE;
        return ptx_type_float(type) || op < PTX_EQU;
}

/* .eq .and .ftz type; then the destinations are parsed by the caller. */
static int parse_compare_head(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn,
                              bool is_set)
{
        static const char *const bools[] = {"and", "or", "xor", NULL};
        bool only_unsigned;
        int op = take_compare(m, &only_unsigned), combination = take_one(m, bools);

        insn->sub = (uint8_t)op;
        insn->sub2 = (uint8_t)(combination + 1);
        if (is_set)
                insn->type2 = (uint8_t)take_type(m);
        insn->type = (uint8_t)take_type(m);
        if (op < 0 || !comparable((enum ptx_compare)op, (enum ptx_type)insn->type, only_unsigned))
                return ptx_fail(p, "unsupported comparison or type");
        return check_all_taken(p, m);
}

/* The compared values and, with a combination, the predicate. */
static int parse_compare_operands(struct ptx_parser *p, struct ptx_insn *insn)
{
        enum ptx_type type = (enum ptx_type)insn->type;
        int r = next_source(p, type, false, &insn->src[0]);

        if (r == 0)
                r = next_source(p, type, false, &insn->src[1]);
        if (r == 0 && insn->sub2)
                r = next_predicate(p, &insn->src[2]);
        return r;
}

static int parse_setp(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r = parse_compare_head(p, m, insn, false);

        insn->fn = ptx_op_setp;
        if (r == 0)
                r = parse_pair(p, PTX_PRED, insn);
        if (r == 0)
                r = parse_compare_operands(p, insn);
        return r < 0 ? r : finish(p, insn);
}

static int parse_set(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r = parse_compare_head(p, m, insn, true);

        insn->fn = ptx_op_set;
        if (r == 0 && insn->type2 != PTX_U32 && insn->type2 != PTX_S32 && insn->type2 != PTX_F32)
                r = ptx_fail(p, "set gives .u32, .s32 or .f32");
        if (r == 0)
                r = parse_destination(p, (enum ptx_type)insn->type2, false, &insn->dst);
        if (r == 0)
                r = parse_compare_operands(p, insn);
        return r < 0 ? r : finish(p, insn);
}

/* Whether a conversion needs a rounding that was not named, or names one we do not do. */
static bool rounding_ok(enum ptx_type to, enum ptx_type from, int integral, bool nearest)
{
        bool to_float = ptx_type_float(to), from_float = ptx_type_float(from);
        bool narrowing = to_float && from_float && ptx_type_bytes(to) < ptx_type_bytes(from);

        if (from_float && !to_float)
                return integral >= 0 && !nearest;
        if (to_float && !from_float)
                return nearest && integral < 0;
        if (narrowing)
                return nearest && integral < 0;
        return !nearest && (integral < 0 || (to_float && from_float && to == from));
}

static int parse_cvt(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const integral_names[] = {"rni", "rzi", "rmi", "rpi", NULL};
        int integral = take_one(m, integral_names), r;
        bool nearest = take(m, "rn");
        enum ptx_type to, from;

        insn->sub2 = take(m, "sat");
        to = take_type(m);
        from = take_type(m);
        insn->fn = ptx_op_cvt;
        p->specials_allowed = true;
        insn->type = (uint8_t)to;
        insn->type2 = (uint8_t)from;
        insn->sub = (uint8_t)(integral + 1);
        if (!to || !from || to == PTX_PRED || from == PTX_PRED || ptx_type_bits(to) ||
            ptx_type_bits(from))
                return ptx_fail(p, "cvt needs two types");
        r = check_all_taken(p, m);
        if (r == 0 && !rounding_ok(to, from, integral, nearest))
                r = ptx_fail(p, "unsupported rounding of cvt");
        if (r == 0)
                r = parse_destination(p, to, true, &insn->dst);
        if (r == 0)
                r = next_source(p, from, true, &insn->src[0]);
        return r < 0 ? r : finish(p, insn);
}

/* ---- control ---- */

static int parse_bra(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        const struct ptx_token *label = ptx_peek(p);
        int r;

        take(m, "uni");
        insn->kind = PTX_KIND_BRANCH;
        r = check_all_taken(p, m);
        if (r == 0 && label->kind != PTX_TOKEN_WORD)
                r = ptx_fail(p, "a label was expected");
        if (r < 0)
                return r;
        p->at++;
        r = ptx_fixup_add(p, PTX_FIXUP_BRANCH, p->entry->code_count, label);
        return r < 0 ? r : finish(p, insn);
}

static int parse_brx(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        struct ptx_symbol *table;
        int r;

        take(m, "uni");
        insn->kind = PTX_KIND_TABLE;
        if (!take(m, "idx"))
                return ptx_fail(p, "only brx.idx is supported");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_source(p, PTX_U32, false, &insn->src[0]);
        if (r == 0)
                r = ptx_expect(p, ',');
        if (r < 0)
                return r;
        table = ptx_symbol_find(p, ptx_peek(p));
        if (!table || table->kind != PTX_SYMBOL_TABLE)
                return ptx_fail(p, "a table of branch targets was expected");
        p->at++;
        insn->dst = (int32_t)table->target;
        insn->offset = table->count;
        return finish(p, insn);
}

/* In a kernel ret ends the thread; in a function it goes to the function's end. */
static int parse_ret(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        bool in_kernel = p->frame->parent == NULL || ptx_token_is(m->opcode, "exit");
        int r;

        take(m, "uni");
        r = check_all_taken(p, m);
        insn->kind = in_kernel ? PTX_KIND_EXIT : PTX_KIND_BRANCH;
        if (r == 0 && !in_kernel) {
                r = ptx_grow(&p->frame->returns, p->frame->return_count,
                             sizeof(*p->frame->returns));
                if (r == 0)
                        p->frame->returns[p->frame->return_count++] = p->entry->code_count;
        }
        return r < 0 ? r : finish(p, insn);
}

static int parse_call(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r;

        take(m, "uni");
        r = check_all_taken(p, m);
        return r < 0 ? r : ptx_parse_call(p, insn);
}

static int parse_trap(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r = check_all_taken(p, m);

        insn->kind = PTX_KIND_TRAP;
        return r < 0 ? r : finish(p, insn);
}

static int parse_fence(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const orders[] = {"sc", "acq_rel", "acquire", "release", NULL};
        static const char *const levels[] = {"gl", "cta", "sys", NULL};
        bool membar = ptx_token_is(m->opcode, "membar");
        int r;

        if (!membar)
                take_one(m, orders);
        if (take_one(m, membar ? levels : scope_names) < 0)
                return ptx_fail(p, "a fence needs a scope");
        r = check_all_taken(p, m);
        insn->fn = ptx_op_nothing;
        return r < 0 ? r : finish(p, insn);
}

/* Launches of a stream follow each other without overlap here: nothing to wait for. */
static int parse_griddepcontrol(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        bool known = take(m, "wait") || take(m, "launch_dependents");
        int r = known ? check_all_taken(p, m) : ptx_fail(p, "unsupported griddepcontrol");

        insn->fn = ptx_op_nothing;
        return r < 0 ? r : finish(p, insn);
}

static int parse_nanosleep(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r;

        insn->kind = PTX_KIND_YIELD;
        if (take_type(m) != PTX_U32)
                return ptx_fail(p, "nanosleep needs .u32");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_source(p, PTX_U32, false, &insn->src[0]);
        return r < 0 ? r : finish(p, insn);
}

/* bar.warp.sync mask */
static int parse_bar_warp(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r = take(m, "sync") ? check_all_taken(p, m) : ptx_fail(p, "bar.warp needs .sync");

        insn->kind = PTX_KIND_SYNC;
        insn->fn = ptx_op_nothing;
        insn->sync_mask = 0;
        if (r == 0)
                r = parse_source(p, PTX_B32, false, &insn->src[0]);
        return r < 0 ? r : finish(p, insn);
}

static int take_barrier_mode(struct mnemonic *m)
{
        if (take(m, "sync"))
                return PTX_BARRIER_SYNC;
        if (take(m, "arrive"))
                return PTX_BARRIER_ARRIVE;
        if (!take(m, "red"))
                return -1;
        if (take(m, "popc"))
                return PTX_BARRIER_POPC;
        if (take(m, "and"))
                return PTX_BARRIER_AND;
        return take(m, "or") ? PTX_BARRIER_OR : -1;
}

/* {, threads}, and the predicate of a reduction after it. */
static int parse_barrier_operands(struct ptx_parser *p, struct ptx_insn *insn)
{
        bool reduces = insn->sub >= PTX_BARRIER_POPC, inverted = false;
        bool counted = insn->sub != PTX_BARRIER_ARRIVE;
        struct ptx_operand o = {0};
        int r = parse_source(p, PTX_U32, false, &insn->src[0]);

        if (r == 0 && insn->src[0] < 0 && p->entry->imms[~insn->src[0]] >= PTX_BARRIERS)
                r = ptx_fail(p, "a block has %d barriers", PTX_BARRIERS);
        if (r == 0)
                r = ptx_imm(p, 0, &insn->src[1]);
        while (r == 0 && ptx_accept(p, ',')) {
                size_t at = p->at;

                r = ptx_operand_parse(p, &o);
                ptx_operand_done(&o);
                p->at = at;
                if (r == 0 && reduces && (o.inverted || o.type == PTX_PRED)) {
                        r = parse_predicate(p, &insn->src[2], &inverted);
                        insn->sub2 = inverted;
                        return r;
                }
                if (r == 0)
                        r = parse_source(p, PTX_U32, false, &insn->src[1]);
                counted = true;
        }
        if (r == 0 && !counted)
                r = ptx_fail(p, "bar.arrive needs the number of threads");
        if (r == 0 && reduces)
                r = ptx_fail(p, "a barrier reduction needs a predicate");
        return r;
}

static int parse_barrier(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int mode, r;

        if (take(m, "warp"))
                return parse_bar_warp(p, m, insn);
        take(m, "cta");
        take(m, "aligned");
        mode = take_barrier_mode(m);
        if (mode < 0)
                return ptx_fail(p, "unsupported barrier");
        insn->kind = PTX_KIND_BARRIER;
        insn->sub = (uint8_t)mode;
        insn->type = (uint8_t)(mode >= PTX_BARRIER_POPC ? take_type(m) : PTX_NONE);
        r = check_all_taken(p, m);
        if (r == 0 && mode >= PTX_BARRIER_POPC) {
                enum ptx_type want = mode == PTX_BARRIER_POPC ? PTX_U32 : PTX_PRED;

                if (insn->type != want)
                        return ptx_fail(p, "unsupported type of a barrier reduction");
                r = parse_destination(p, want, false, &insn->dst);
                if (r == 0)
                        r = ptx_expect(p, ',');
        }
        if (r == 0)
                r = parse_barrier_operands(p, insn);
        return r < 0 ? r : finish(p, insn);
}

/* ---- warps ---- */

/* The lanes named by the last operand wait for each other. */
static int parse_lane_mask(struct ptx_parser *p, struct ptx_insn *insn, unsigned index)
{
        insn->kind = PTX_KIND_SYNC;
        insn->sync_mask = index;
        return next_source(p, PTX_B32, false, &insn->src[index]);
}

static int parse_shfl(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const modes[] = {"up", "down", "bfly", "idx", NULL};
        bool sync = take(m, "sync");
        int mode = take_one(m, modes), r;

        insn->sub = (uint8_t)mode;
        insn->fn = ptx_op_shfl;
        if (!sync || mode < 0 || take_type(m) != PTX_B32)
                return ptx_fail(p, "unsupported shfl");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_pair(p, PTX_B32, insn);
        for (unsigned i = 0; i < 3 && r == 0; i++)
                r = next_source(p, PTX_B32, false, &insn->src[i]);
        if (r == 0)
                r = parse_lane_mask(p, insn, 3);
        return r < 0 ? r : finish(p, insn);
}

static int parse_vote(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const modes[] = {"all", "any", "uni", "ballot", NULL};
        bool sync = take(m, "sync"), inverted = false;
        int mode = take_one(m, modes), r;
        enum ptx_type type = take_type(m);

        insn->sub = (uint8_t)mode;
        insn->fn = ptx_op_vote;
        if (!sync || mode < 0 || type != (mode == PTX_VOTE_BALLOT ? PTX_B32 : PTX_PRED))
                return ptx_fail(p, "unsupported vote");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_destination(p, type, false, &insn->dst);
        if (r == 0)
                r = ptx_expect(p, ',');
        if (r == 0)
                r = parse_predicate(p, &insn->src[0], &inverted);
        insn->sub2 = inverted;
        if (r == 0)
                r = parse_lane_mask(p, insn, 1);
        return r < 0 ? r : finish(p, insn);
}

static int parse_match(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        bool any = take(m, "any"), all = take(m, "all"), sync = take(m, "sync");
        enum ptx_type type = take_type(m);
        int r;

        insn->fn = ptx_op_match;
        insn->sub = all;
        insn->type = (uint8_t)type;
        if (any == all || !sync || (type != PTX_B32 && type != PTX_B64))
                return ptx_fail(p, "unsupported match");
        r = check_all_taken(p, m);
        if (r == 0 && all)
                r = parse_pair(p, PTX_B32, insn);
        else if (r == 0)
                r = parse_destination(p, PTX_B32, false, &insn->dst);
        if (r == 0)
                r = next_source(p, type, false, &insn->src[0]);
        if (r == 0)
                r = parse_lane_mask(p, insn, 1);
        return r < 0 ? r : finish(p, insn);
}

static int parse_redux(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        static const char *const ops[] = {"add", "min", "max", "and", "or", "xor", NULL};
        bool sync = take(m, "sync");
        int op = take_one(m, ops), r;
        enum ptx_type type = take_type(m);

        insn->fn = ptx_op_redux;
        insn->sub = (uint8_t)op;
        insn->type = (uint8_t)type;
        if (!sync || op < 0 ||
            (op >= PTX_REDUX_AND ? type != PTX_B32 : type != PTX_U32 && type != PTX_S32))
                return ptx_fail(p, "unsupported redux");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_destination(p, type, false, &insn->dst);
        if (r == 0)
                r = next_source(p, type, false, &insn->src[0]);
        if (r == 0)
                r = parse_lane_mask(p, insn, 1);
        return r < 0 ? r : finish(p, insn);
}

static int parse_activemask(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        int r;

        insn->fn = ptx_op_activemask;
        if (take_type(m) != PTX_B32)
                return ptx_fail(p, "activemask needs .b32");
        r = check_all_taken(p, m);
        if (r == 0)
                r = parse_destination(p, PTX_B32, false, &insn->dst);
        return r < 0 ? r : finish(p, insn);
}

static int parse_elect(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn)
{
        bool sync = take(m, "sync");
        int r = sync ? check_all_taken(p, m) : ptx_fail(p, "elect needs .sync");

        insn->fn = ptx_op_elect;
        if (r == 0)
                r = parse_pair(p, PTX_B32, insn);
        if (r == 0)
                r = parse_lane_mask(p, insn, 0);
        return r < 0 ? r : finish(p, insn);
}

static const struct {
        const char *name;
        int (*parse)(struct ptx_parser *p, struct mnemonic *m, struct ptx_insn *insn);
} opcodes[] = {
        {"mov", parse_mov},
        {"ld", parse_ld},
        {"ldu", parse_ld},
        {"st", parse_st},
        {"atom", parse_atomic},
        {"red", parse_atomic},
        {"cvta", parse_cvta},
        {"isspacep", parse_isspacep},
        {"prefetch", parse_prefetch},
        {"prefetchu", parse_prefetch},
        {"setp", parse_setp},
        {"set", parse_set},
        {"cvt", parse_cvt},
        {"bra", parse_bra},
        {"brx", parse_brx},
        {"ret", parse_ret},
        {"exit", parse_ret},
        {"call", parse_call},
        {"trap", parse_trap},
        {"membar", parse_fence},
        {"fence", parse_fence},
        {"griddepcontrol", parse_griddepcontrol},
        {"nanosleep", parse_nanosleep},
        {"bar", parse_barrier},
        {"barrier", parse_barrier},
        {"shfl", parse_shfl},
        {"vote", parse_vote},
        {"match", parse_match},
        {"redux", parse_redux},
        {"activemask", parse_activemask},
        {"elect", parse_elect},
};

/* @p or @!p */
static int parse_guard(struct ptx_parser *p, struct ptx_insn *insn)
{
        struct ptx_operand o;
        int r;

        if (!ptx_accept(p, '@'))
                return 0;
        r = ptx_operand_parse(p, &o);
        ptx_operand_done(&o);
        if (r < 0)
                return r;
        if (o.kind != PTX_OPERAND_REGISTER || o.type != PTX_PRED)
                return ptx_fail(p, "a guard must be a predicate register");
        insn->guard = o.reg;
        insn->guard_negated = o.inverted;
        return 0;
}

static int parse_mnemonic(struct ptx_parser *p, struct mnemonic *m)
{
        *m = (struct mnemonic){.opcode = ptx_peek(p)};
        if (m->opcode->kind != PTX_TOKEN_WORD)
                return ptx_fail(p, "an instruction was expected");
        p->at++;
        while (ptx_peek(p)->kind == PTX_TOKEN_DOT) {
                if (m->count == MAX_MODIFIERS)
                        return ptx_fail(p, "too many modifiers");
                m->modifiers[m->count++] = ptx_peek(p);
                p->at++;
        }
        return 0;
}

int ptx_parse_instruction(struct ptx_parser *p)
{
        struct ptx_insn insn = {
                .dst2 = -1,
                .guard = PTX_NO_GUARD,
                .kind = PTX_KIND_ALU,
                .vec = 1,
                .line = ptx_peek(p)->line,
        };
        struct mnemonic m;
        int r = parse_guard(p, &insn);

        p->specials_allowed = false;
        p->sinks_allowed = false;
        if (r == 0)
                r = parse_mnemonic(p, &m);
        if (r < 0)
                return r;
        for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
                if (ptx_token_is(m.opcode, opcodes[i].name))
                        return opcodes[i].parse(p, &m, &insn);
        }
        return parse_simple(p, &m, &insn);
}
