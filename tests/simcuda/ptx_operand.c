/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx_parse.h"

static uint64_t f64_to_f32_bits(uint64_t bits)
{
        double d;
        float f;
        uint32_t result;

        memcpy(&d, &bits, sizeof(d));
        f = (float)d;
        memcpy(&result, &f, sizeof(result));
        return result;
}

/* A special register's name may have a component: %tid . x */
static bool find_special(struct ptx_parser *p, struct ptx_operand *operand)
{
        const struct ptx_token *word = ptx_peek(p), *dot = word + 1;
        char name[64];
        bool with_dot = dot->kind == PTX_TOKEN_DOT && dot->text == word->text + word->length + 1;
        int n = snprintf(name, sizeof(name), "%.*s%s%.*s", (int)word->length, word->text,
                         with_dot ? "." : "", with_dot ? (int)dot->length : 0, dot->text);

        if (n < 0 || (size_t)n >= sizeof(name) ||
            !ptx_special_find(name, &operand->special, &operand->type))
                return false;
        operand->kind = PTX_OPERAND_SPECIAL;
        p->at += with_dot ? 2 : 1;
        return true;
}

static int parse_symbol(struct ptx_parser *p, struct ptx_operand *operand)
{
        const struct ptx_token *word = ptx_peek(p);
        struct ptx_symbol *symbol = ptx_symbol_find(p, word);

        if (!symbol && find_special(p, operand))
                return 0;
        if (!symbol)
                return ptx_fail(p, "unknown symbol or unsupported special register '%.*s'",
                                (int)word->length, word->text);
        p->at++;
        operand->symbol = symbol;
        if (symbol->kind == PTX_SYMBOL_REGISTER) {
                operand->kind = PTX_OPERAND_REGISTER;
                operand->reg = symbol->reg;
                operand->type = symbol->type;
                return 0;
        }
        if (symbol->kind != PTX_SYMBOL_VARIABLE)
                return ptx_fail(p, "the address of '%.*s' is not supported here", (int)word->length,
                                word->text);
        operand->kind = PTX_OPERAND_ADDRESS;
        if (ptx_at_punct(p, '+') && ptx_peek(p)[1].kind == PTX_TOKEN_INT) {
                operand->value = ptx_peek(p)[1].value;
                p->at += 2;
        }
        return 0;
}

static int parse_number(struct ptx_parser *p, struct ptx_operand *operand, bool negative)
{
        const struct ptx_token *token = ptx_peek(p);
        uint64_t sign = 0;

        if (token->kind == PTX_TOKEN_INT) {
                operand->kind = PTX_OPERAND_INTEGER;
                operand->value = negative ? 0 - token->value : token->value;
        } else {
                operand->exact = strchr("fFdD", token->text[1]) != NULL;
                if (operand->exact && negative)
                        return ptx_fail(p, "a number written as bits cannot have a sign");
                operand->kind = token->kind == PTX_TOKEN_F32 ? PTX_OPERAND_F32 : PTX_OPERAND_F64;
                if (negative)
                        sign = token->kind == PTX_TOKEN_F32 ? 1ULL << 31 : 1ULL << 63;
                operand->value = token->value ^ sign;
        }
        p->at++;
        return 0;
}

static int parse_vector(struct ptx_parser *p, struct ptx_operand *operand)
{
        int r;

        operand->kind = PTX_OPERAND_VECTOR;
        operand->elements = calloc(PTX_VECTOR_MAX, sizeof(*operand->elements));
        if (!operand->elements)
                return -ENOMEM;
        p->at++;
        do {
                if (operand->count == PTX_VECTOR_MAX || ptx_at_punct(p, '{'))
                        return ptx_fail(p, "vector operand is too long or nested");
                r = ptx_operand_parse(p, &operand->elements[operand->count++]);
                if (r < 0)
                        return r;
        } while (ptx_accept(p, ','));
        return ptx_expect(p, '}');
}

static bool is_number(const struct ptx_token *token)
{
        return token->kind == PTX_TOKEN_INT || token->kind == PTX_TOKEN_F32 ||
               token->kind == PTX_TOKEN_F64;
}

int ptx_operand_parse(struct ptx_parser *p, struct ptx_operand *ret_operand)
{
        struct ptx_operand *o = ret_operand;
        bool negative = false;

        *o = (struct ptx_operand){0};
        if (ptx_at_punct(p, '{'))
                return parse_vector(p, o);
        o->inverted = ptx_accept(p, '!');
        while (!o->inverted && ptx_at_punct(p, '-')) {
                negative = !negative;
                p->at++;
        }
        if (!o->inverted && is_number(ptx_peek(p)))
                return parse_number(p, o, negative);
        if (ptx_peek(p)->kind != PTX_TOKEN_WORD || negative)
                return ptx_fail(p, "an operand was expected");
        if (ptx_token_is(ptx_peek(p), "_")) {
                o->kind = PTX_OPERAND_SINK;
                p->at++;
                return 0;
        }
        return parse_symbol(p, o);
}

void ptx_operand_done(struct ptx_operand *operand)
{
        free(operand->elements);
        operand->elements = NULL;
}

/* Whether a register of one type may be used by an instruction of another. */
static bool types_agree(enum ptx_type reg, enum ptx_type type, bool widening)
{
        unsigned have = ptx_type_bytes(reg), want = ptx_type_bytes(type);

        if ((reg == PTX_PRED) != (type == PTX_PRED))
                return false;
        if (have != want && !(widening && have > want))
                return false;
        if (have != want)
                return !ptx_type_float(reg) && !ptx_type_float(type);
        if (ptx_type_bits(reg) || ptx_type_bits(type))
                return true;
        return ptx_type_float(reg) == ptx_type_float(type);
}

static int check_register(struct ptx_parser *p, const struct ptx_operand *operand,
                          enum ptx_type type, bool widening)
{
        if (types_agree(operand->type, type, widening))
                return 0;
        return ptx_fail(p, "register '%.*s' does not fit the instruction's type",
                        (int)operand->symbol->name_bytes, operand->symbol->name);
}

static int special_source(struct ptx_parser *p, const struct ptx_operand *operand,
                          enum ptx_type type, int32_t *ret_ref)
{
        struct ptx_insn insn = {
                .fn = ptx_op_special,
                .dst2 = -1,
                .guard = PTX_NO_GUARD,
                .kind = PTX_KIND_ALU,
                .type = (uint8_t)type,
                .sub = (uint8_t)operand->special,
                .vec = 1,
                .line = ptx_peek(p)->line,
        };
        int r;

        if (!ptx_special_fits(operand->special, operand->type, type))
                return ptx_fail(p, "the special register does not fit the instruction's type");
        if (operand->special != PTX_SR_WARPSIZE && !p->specials_allowed)
                return ptx_fail(p, "only mov and cvt can read special registers");
        r = ptx_register_new(p, &insn.dst);
        if (r < 0)
                return r;
        *ret_ref = insn.dst;
        return ptx_emit(p, &insn);
}

static int address_source(struct ptx_parser *p, const struct ptx_operand *operand,
                          enum ptx_type type, int32_t *ret_ref)
{
        uint64_t address;
        int r = ptx_variable_address(p, operand->symbol, &address);

        if (r < 0)
                return r;
        if (operand->symbol->space == PTX_GLOBAL && ptx_type_bytes(type) != 8)
                return ptx_fail(p, "a global address needs 64 bits");
        if (operand->symbol->is_param && operand->symbol->space == PTX_LOCAL)
                address += PTX_REACHABLE;
        if (operand->symbol->dynamic)
                return ptx_dynamic_imm(p, address + operand->value, ret_ref);
        return ptx_imm(p, address + operand->value, ret_ref);
}

static int immediate_source(struct ptx_parser *p, const struct ptx_operand *operand,
                            enum ptx_type type, int32_t *ret_ref)
{
        unsigned bytes = ptx_type_bytes(type);
        uint64_t value = operand->value;

        if (operand->kind == PTX_OPERAND_INTEGER && ptx_type_float(type))
                return ptx_fail(p, "an integer where a floating-point number is expected");
        if (operand->kind != PTX_OPERAND_INTEGER && !ptx_type_float(type) &&
            !(ptx_type_bits(type) && operand->exact))
                return ptx_fail(p, "a floating-point number where an integer is expected");
        if (operand->kind == PTX_OPERAND_F64 && bytes == 4)
                value = f64_to_f32_bits(value);
        else if (operand->kind != PTX_OPERAND_INTEGER && bytes < 4)
                return ptx_fail(p, "a floating-point number does not fit");
        else if (operand->kind == PTX_OPERAND_F32 && bytes == 8)
                return ptx_fail(p, "a 32-bit floating-point number where 64 bits are expected");
        return ptx_imm(p, ptx_truncate(value, bytes), ret_ref);
}

int ptx_operand_source(struct ptx_parser *p, const struct ptx_operand *operand, enum ptx_type type,
                       bool widening, int32_t *ret_ref)
{
        int r;

        if (operand->inverted)
                return ptx_fail(p, "'!' is not supported here");
        switch (operand->kind) {
        case PTX_OPERAND_REGISTER:
                r = check_register(p, operand, type, widening);
                if (r < 0)
                        return r;
                *ret_ref = operand->reg;
                return 0;
        case PTX_OPERAND_INTEGER:
        case PTX_OPERAND_F32:
        case PTX_OPERAND_F64:
                return immediate_source(p, operand, type, ret_ref);
        case PTX_OPERAND_SPECIAL:
                return special_source(p, operand, type, ret_ref);
        case PTX_OPERAND_ADDRESS:
                return address_source(p, operand, type, ret_ref);
        default:
                return ptx_fail(p, "this operand cannot be read");
        }
}

int ptx_operand_destination(struct ptx_parser *p, const struct ptx_operand *operand,
                            enum ptx_type type, bool widening, int32_t *ret_reg)
{
        int r;

        if (operand->kind == PTX_OPERAND_SINK && !operand->inverted && p->sinks_allowed)
                return ptx_register_new(p, ret_reg);
        if (operand->kind != PTX_OPERAND_REGISTER || operand->inverted)
                return ptx_fail(p, "a register was expected as destination");
        r = check_register(p, operand, type, widening);
        if (r < 0)
                return r;
        *ret_reg = operand->reg;
        return 0;
}

/* +4 or +-4 after the base. */
static int parse_displacement(struct ptx_parser *p, int64_t *ret_value)
{
        bool negative = false;

        if (!ptx_accept(p, '+')) {
                *ret_value = 0;
                return 0;
        }
        while (ptx_accept(p, '-'))
                negative = !negative;
        if (ptx_peek(p)->kind != PTX_TOKEN_INT)
                return ptx_fail(p, "a constant was expected in an address");
        *ret_value = (int64_t)ptx_peek(p)->value;
        if (negative)
                *ret_value = (int64_t)(0 - (uint64_t)*ret_value);
        p->at++;
        return 0;
}

static int address_base(struct ptx_parser *p, const struct ptx_operand *base,
                        struct ptx_address *address)
{
        uint64_t start;
        int r;

        if (base->kind == PTX_OPERAND_REGISTER) {
                if (base->inverted || base->type == PTX_PRED || ptx_type_float(base->type) ||
                    ptx_type_bytes(base->type) < 4)
                        return ptx_fail(p, "an address register must have 32 or 64 bits");
                address->base = base->reg;
                return 0;
        }
        if (base->kind == PTX_OPERAND_ADDRESS) {
                r = ptx_variable_address(p, base->symbol, &start);
                if (r < 0)
                        return r;
                address->named = true;
                address->space = base->symbol->space;
                start += base->value;
                if (base->symbol->dynamic)
                        return ptx_dynamic_imm(p, start, &address->base);
        } else if (base->kind == PTX_OPERAND_INTEGER) {
                address->immediate = true;
                start = base->value;
        } else {
                return ptx_fail(p, "an address was expected");
        }
        return ptx_imm(p, start, &address->base);
}

int ptx_address_parse(struct ptx_parser *p, struct ptx_address *ret_address)
{
        struct ptx_address address = {.space = PTX_GENERIC};
        struct ptx_operand base;
        int r = ptx_expect(p, '[');

        if (r < 0)
                return r;
        if (ptx_at_punct(p, '{'))
                return ptx_fail(p, "a vector cannot be an address");
        r = ptx_operand_parse(p, &base);
        if (r < 0)
                return r;
        r = address_base(p, &base, &address);
        if (r < 0)
                return r;
        r = parse_displacement(p, &address.offset);
        if (r < 0)
                return r;
        r = ptx_expect(p, ']');
        if (r < 0)
                return r;
        *ret_address = address;
        return 0;
}
