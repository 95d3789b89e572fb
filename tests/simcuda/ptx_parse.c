/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Modules, declarations, scopes and functions. Two passes: the first places
 * globals and notes where functions and kernels are, the second decodes the
 * kernels. A call is decoded by decoding the function's body in place, with its
 * parameters bound to the caller's; so there is no call stack, and recursion is
 * refused.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "ptx_alu.h"
#include "ptx_parse.h"

#define MAX_DEPTH       24
#define MAX_CODE        (1u << 20)
#define MAX_SPACE_BYTES (1u << 24)
#define DATA_ALIGN      256

int ptx_grow(void *array, size_t count, size_t element_bytes)
{
        void **where = array;
        void *more;

        if (count & (count - 1))
                return 0;
        more = realloc(*where, (count ? 2 * count : 1) * element_bytes);
        if (!more)
                return -ENOMEM;
        *where = more;
        return 0;
}

int ptx_fail(struct ptx_parser *p, const char *format, ...)
{
        va_list args;
        int n;

        if (!p->log || !p->log_bytes || p->log[0])
                return -EINVAL;
        n = snprintf(p->log, p->log_bytes, "line %u: ", ptx_peek(p)->line);
        if (n < 0 || (size_t)n >= p->log_bytes)
                return -EINVAL;
        va_start(args, format);
        vsnprintf(p->log + n, p->log_bytes - (size_t)n, format, args);
        va_end(args);
        return -EINVAL;
}

bool ptx_accept(struct ptx_parser *p, char c)
{
        if (!ptx_at_punct(p, c))
                return false;
        p->at++;
        return true;
}

bool ptx_accept_dot(struct ptx_parser *p, const char *name)
{
        if (!ptx_at_dot(p, name))
                return false;
        p->at++;
        return true;
}

int ptx_expect(struct ptx_parser *p, char c)
{
        const struct ptx_token *token = ptx_peek(p);

        if (ptx_accept(p, c))
                return 0;
        if (token->kind == PTX_TOKEN_END)
                return ptx_fail(p, "'%c' was expected, but the text ends", c);
        return ptx_fail(p, "'%c' was expected, not '%.*s'", c, (int)token->length, token->text);
}

enum ptx_type ptx_type_find(const struct ptx_token *token)
{
        static const char *const names[PTX_TYPE_COUNT] = {
                [PTX_PRED] = "pred", [PTX_B8] = "b8",   [PTX_B16] = "b16", [PTX_B32] = "b32",
                [PTX_B64] = "b64",   [PTX_U8] = "u8",   [PTX_U16] = "u16", [PTX_U32] = "u32",
                [PTX_U64] = "u64",   [PTX_S8] = "s8",   [PTX_S16] = "s16", [PTX_S32] = "s32",
                [PTX_S64] = "s64",   [PTX_F32] = "f32", [PTX_F64] = "f64",
        };

        for (int type = PTX_PRED; type < PTX_TYPE_COUNT; type++) {
                if (ptx_token_is(token, names[type]))
                        return (enum ptx_type)type;
        }
        return PTX_NONE;
}

/* ---- the kernel under construction ---- */

int ptx_register_new(struct ptx_parser *p, int32_t *ret_reg)
{
        if (p->entry->register_count >= MAX_CODE)
                return ptx_fail(p, "too many registers");
        *ret_reg = (int32_t)p->entry->register_count++;
        return 0;
}

int ptx_imm(struct ptx_parser *p, uint64_t value, int32_t *ret_ref)
{
        struct ptx_entry *e = p->entry;
        int r = ptx_grow(&e->imms, e->imm_count, sizeof(*e->imms));

        if (r < 0)
                return r;
        e->imms[e->imm_count] = value;
        *ret_ref = ~(int32_t)e->imm_count++;
        return 0;
}

int ptx_vector(struct ptx_parser *p, const int32_t *refs, unsigned count, int32_t *ret_index)
{
        struct ptx_entry *e = p->entry;
        int32_t first = (int32_t)e->vector_count;

        for (unsigned i = 0; i < count; i++) {
                int r = ptx_grow(&e->vectors, e->vector_count, sizeof(*e->vectors));

                if (r < 0)
                        return r;
                e->vectors[e->vector_count++] = refs[i];
        }
        *ret_index = first;
        return 0;
}

int ptx_emit(struct ptx_parser *p, const struct ptx_insn *insn)
{
        struct ptx_entry *e = p->entry;
        int r;

        if (e->code_count >= MAX_CODE)
                return ptx_fail(p, "the kernel is too long");
        r = ptx_grow(&e->code, e->code_count, sizeof(*e->code));
        if (r < 0)
                return r;
        e->code[e->code_count++] = *insn;
        return 0;
}

int ptx_fixup_add(struct ptx_parser *p, enum ptx_fixup_kind kind, size_t at,
                  const struct ptx_token *label)
{
        struct ptx_scope *s = p->scope;
        int r = ptx_grow(&s->fixups, s->fixup_count, sizeof(*s->fixups));

        if (r < 0)
                return r;
        s->fixups[s->fixup_count++] = (struct ptx_fixup){kind, at, label};
        return 0;
}

int ptx_dynamic_imm(struct ptx_parser *p, uint64_t value, int32_t *ret_ref)
{
        int r = ptx_grow(&p->dynamic_uses, p->dynamic_count, sizeof(*p->dynamic_uses));

        if (r < 0)
                return r;
        p->dynamic_uses[p->dynamic_count++] = p->entry->imm_count;
        return ptx_imm(p, value, ret_ref);
}

static int allocate(struct ptx_parser *p, uint64_t *space_bytes, uint64_t bytes, uint32_t align,
                    uint64_t *ret_offset)
{
        uint64_t at = (*space_bytes + align - 1) & ~((uint64_t)align - 1);

        if (bytes > MAX_SPACE_BYTES || at + bytes > MAX_SPACE_BYTES)
                return ptx_fail(p, "variables need too much memory");
        *ret_offset = at;
        *space_bytes = at + bytes;
        return 0;
}

int ptx_variable_address(struct ptx_parser *p, struct ptx_symbol *symbol, uint64_t *ret_address)
{
        if (symbol->space == PTX_GLOBAL) {
                if (!symbol->defined)
                        return ptx_fail(p, "unresolved variable '%.*s'", (int)symbol->name_bytes,
                                        symbol->name);
                *ret_address = (uint64_t)p->module->data + symbol->offset;
                return 0;
        }
        if (symbol->space == PTX_SHARED && !symbol->dynamic &&
            symbol->placed_in != p->entry_number) {
                int r = allocate(p, &p->shared_bytes, symbol->bytes, symbol->align,
                                 &symbol->offset);

                if (r < 0)
                        return r;
                symbol->placed_in = p->entry_number;
        }
        *ret_address = symbol->offset;
        return 0;
}

/* ---- scopes ---- */

static struct ptx_symbol *find_in(struct ptx_scope *scope, const char *name, size_t bytes)
{
        struct ptx_symbol *symbol;

        HASH_FIND(hh, scope->symbols, name, bytes, symbol);
        return symbol;
}

int ptx_symbol_add(struct ptx_parser *p, struct ptx_scope *scope, const struct ptx_token *name,
                   enum ptx_symbol_kind kind, struct ptx_symbol **ret_symbol)
{
        struct ptx_symbol *symbol;

        if (find_in(scope, name->text, name->length))
                return ptx_fail(p, "'%.*s' is defined twice", (int)name->length, name->text);
        symbol = calloc(1, sizeof(*symbol));
        if (!symbol)
                return -ENOMEM;
        symbol->name = name->text;
        symbol->name_bytes = name->length;
        symbol->kind = kind;
        symbol->next_allocated = p->allocated;
        p->allocated = symbol;
        HASH_ADD_KEYPTR(hh, scope->symbols, symbol->name, symbol->name_bytes, symbol);
        *ret_symbol = symbol;
        return 0;
}

/* The number at the end of a name, and how long the name is without it. */
static bool split_number(const struct ptx_token *name, uint32_t *ret_prefix, uint64_t *ret_number)
{
        uint32_t prefix = name->length;
        uint64_t number = 0;

        while (prefix && name->text[prefix - 1] >= '0' && name->text[prefix - 1] <= '9')
                prefix--;
        if (prefix == name->length || prefix == 0 || name->length - prefix > 9)
                return false;
        if (name->text[prefix] == '0' && name->length - prefix > 1)
                return false;
        for (uint32_t i = prefix; i < name->length; i++)
                number = number * 10 + (uint64_t)(name->text[i] - '0');
        *ret_prefix = prefix;
        *ret_number = number;
        return true;
}

/* A register of a range in this scope, created on first use. */
static struct ptx_symbol *find_in_range(struct ptx_parser *p, struct ptx_scope *scope,
                                        const struct ptx_token *name)
{
        struct ptx_symbol *range, *symbol;
        uint32_t prefix;
        uint64_t number;

        if (!split_number(name, &prefix, &number))
                return NULL;
        range = find_in(scope, name->text, prefix);
        if (!range || range->kind != PTX_SYMBOL_RANGE || number >= range->count)
                return NULL;
        if (ptx_symbol_add(p, scope, name, PTX_SYMBOL_REGISTER, &symbol) < 0)
                return NULL;
        symbol->type = range->type;
        return ptx_register_new(p, &symbol->reg) < 0 ? NULL : symbol;
}

struct ptx_symbol *ptx_symbol_find(struct ptx_parser *p, const struct ptx_token *name)
{
        for (struct ptx_scope *scope = p->scope; scope; scope = scope->parent) {
                struct ptx_symbol *symbol = find_in(scope, name->text, name->length);

                if (symbol && symbol->kind != PTX_SYMBOL_RANGE)
                        return symbol;
                symbol = find_in_range(p, scope, name);
                if (symbol)
                        return symbol;
        }
        return NULL;
}

static int open_scope(struct ptx_parser *p, struct ptx_scope *parent, bool is_function)
{
        struct ptx_scope *scope = calloc(1, sizeof(*scope));

        if (!scope)
                return -ENOMEM;
        scope->parent = parent;
        scope->is_function = is_function;
        p->scope = scope;
        return 0;
}

static void scope_free(struct ptx_scope *scope)
{
        HASH_CLEAR(hh, scope->symbols);
        free(scope->fixups);
        free(scope);
}

static void apply_fixup(struct ptx_parser *p, const struct ptx_fixup *fixup, uint32_t target)
{
        if (fixup->kind == PTX_FIXUP_BRANCH)
                p->entry->code[fixup->at].offset = target;
        else
                p->entry->vectors[fixup->at] = (int32_t)target;
}

/* Resolve the branches of a scope that ends; those to outer labels move outwards. */
static int close_scope(struct ptx_parser *p, struct ptx_scope *back_to)
{
        struct ptx_scope *scope = p->scope;
        int r = 0;

        p->scope = back_to;
        for (size_t i = 0; i < scope->fixup_count && r == 0; i++) {
                const struct ptx_fixup *fixup = &scope->fixups[i];
                const struct ptx_token *name = fixup->label;
                struct ptx_symbol *label = find_in(scope, name->text, name->length);

                if (label && label->kind == PTX_SYMBOL_LABEL)
                        apply_fixup(p, fixup, label->target);
                else if (scope->is_function)
                        r = ptx_fail(p, "label '%.*s' (used in line %u) is not defined",
                                     (int)name->length, name->text, name->line);
                else
                        r = ptx_fixup_add(p, fixup->kind, fixup->at, name);
        }
        scope_free(scope);
        return r;
}

/* ---- variables ---- */

struct declaration {
        enum ptx_space space;
        bool is_register;
        bool is_const;
        bool is_param;
        bool is_extern;
        enum ptx_type type;
        uint32_t vec;
        uint32_t align;
        bool is_pointer; /* .ptr on a parameter */
};

static int parse_uint(struct ptx_parser *p, uint64_t limit, uint64_t *ret_value)
{
        const struct ptx_token *token = ptx_peek(p);

        if (token->kind != PTX_TOKEN_INT || token->value > limit)
                return ptx_fail(p, "a number up to %llu was expected", (unsigned long long)limit);
        *ret_value = token->value;
        p->at++;
        return 0;
}

static int parse_align(struct ptx_parser *p, uint32_t *ret_align)
{
        uint64_t align = 0;
        int r = parse_uint(p, DATA_ALIGN, &align);

        if (r < 0)
                return r;
        if (align == 0 || (align & (align - 1)))
                return ptx_fail(p, "an alignment must be a power of two");
        *ret_align = (uint32_t)align;
        return 0;
}

/* The attributes of a parameter that is a pointer say nothing that we need. */
static int parse_pointer_attributes(struct ptx_parser *p)
{
        uint32_t ignored;

        while (ptx_accept_dot(p, "global") || ptx_accept_dot(p, "const") ||
               ptx_accept_dot(p, "shared") || ptx_accept_dot(p, "local"))
                ;
        return ptx_accept_dot(p, "align") ? parse_align(p, &ignored) : 0;
}

/* .align, .v2/.v4, .type, .ptr … between the space and the name. */
static int parse_attributes(struct ptx_parser *p, struct declaration *d)
{
        int r = 0;

        d->vec = 1;
        while (r == 0 && ptx_peek(p)->kind == PTX_TOKEN_DOT) {
                if (ptx_accept_dot(p, "align")) {
                        r = parse_align(p, &d->align);
                } else if (ptx_accept_dot(p, "v2")) {
                        d->vec = 2;
                } else if (ptx_accept_dot(p, "v4")) {
                        d->vec = 4;
                } else if (d->type && ptx_accept_dot(p, "ptr")) {
                        r = parse_pointer_attributes(p);
                } else if (!d->type && ptx_type_find(ptx_peek(p))) {
                        d->type = ptx_type_find(ptx_peek(p));
                        p->at++;
                } else {
                        r = ptx_fail(p, "unsupported attribute '.%.*s'", (int)ptx_peek(p)->length,
                                     ptx_peek(p)->text);
                }
        }
        if (r == 0 && !d->type)
                r = ptx_fail(p, "a type was expected");
        if (r == 0 && d->type == PTX_PRED && !d->is_register)
                r = ptx_fail(p, "a predicate cannot be in memory");
        return r;
}

/* [n][m]…: number of elements; 0 when the first is empty. */
static int parse_dimensions(struct ptx_parser *p, uint64_t *ret_count)
{
        uint64_t count = 1, n;
        int r;

        while (ptx_accept(p, '[')) {
                n = 0;
                if (!ptx_at_punct(p, ']')) {
                        r = parse_uint(p, MAX_SPACE_BYTES, &n);
                        if (r < 0)
                                return r;
                }
                count *= n;
                if (count > MAX_SPACE_BYTES)
                        return ptx_fail(p, "the array is too large");
                r = ptx_expect(p, ']');
                if (r < 0)
                        return r;
        }
        *ret_count = count;
        return 0;
}

static int declare_register(struct ptx_parser *p, const struct declaration *d,
                            const struct ptx_token *name)
{
        struct ptx_symbol *symbol;
        uint64_t count = 0;
        int r = ptx_symbol_add(p, p->scope, name, PTX_SYMBOL_REGISTER, &symbol);

        if (r < 0)
                return r;
        symbol->type = d->type;
        if (d->vec != 1)
                return ptx_fail(p, "vector registers are not supported");
        if (!ptx_accept(p, '<'))
                return ptx_register_new(p, &symbol->reg);
        symbol->kind = PTX_SYMBOL_RANGE;
        r = parse_uint(p, MAX_CODE, &count);
        if (r < 0)
                return r;
        symbol->count = (uint32_t)count;
        return ptx_expect(p, '>');
}

static int reserve_data(struct ptx_parser *p, uint64_t bytes, uint32_t align, uint64_t *ret_offset)
{
        uint64_t used = p->data_bytes;
        int r = allocate(p, &used, bytes, align, ret_offset);

        if (r < 0)
                return r;
        if (used > p->data_capacity) {
                size_t capacity = used < 4096 ? 4096 : 2 * used;
                uint8_t *data = realloc(p->data, capacity);

                if (!data)
                        return -ENOMEM;
                memset(data + p->data_capacity, 0, capacity - p->data_capacity);
                p->data = data;
                p->data_capacity = capacity;
        }
        p->data_bytes = used;
        return 0;
}

static int add_relocation(struct ptx_parser *p, uint64_t at, uint64_t value, unsigned bytes)
{
        int r = ptx_grow(&p->relocations, p->relocation_count, sizeof(*p->relocations));

        if (r < 0)
                return r;
        if (bytes != 8)
                return ptx_fail(p, "an address needs 64 bits");
        p->relocations[p->relocation_count++] = (struct ptx_relocation){at, value, bytes};
        return 0;
}

/* The address of a variable, or generic(variable), with an optional displacement. */
static int parse_initial_address(struct ptx_parser *p, uint64_t at, unsigned bytes)
{
        const struct ptx_token *name = ptx_peek(p);
        bool wrapped = ptx_token_is(name, "generic") && name[1].kind == PTX_TOKEN_PUNCT &&
                       name[1].punct == '(';
        struct ptx_symbol *symbol;
        uint64_t displacement = 0;
        int r;

        if (wrapped) {
                p->at += 2;
                name = ptx_peek(p);
        }
        symbol = ptx_symbol_find(p, name);
        if (!symbol || symbol->kind != PTX_SYMBOL_VARIABLE || symbol->space != PTX_GLOBAL)
                return ptx_fail(p, "'%.*s' is not a global variable", (int)name->length,
                                name->text);
        p->at++;
        if (wrapped) {
                r = ptx_expect(p, ')');
                if (r < 0)
                        return r;
        }
        if (ptx_accept(p, '+')) {
                r = parse_uint(p, MAX_SPACE_BYTES, &displacement);
                if (r < 0)
                        return r;
        }
        return add_relocation(p, at, symbol->offset + displacement, bytes);
}

static int parse_initial_value(struct ptx_parser *p, enum ptx_type type, uint64_t at)
{
        bool negative = ptx_accept(p, '-');
        const struct ptx_token *token = ptx_peek(p);
        unsigned bytes = ptx_type_bytes(type);
        uint64_t value = token->value;
        double d;
        float f;

        if (token->kind == PTX_TOKEN_WORD && !negative)
                return parse_initial_address(p, at, bytes);
        switch (token->kind) {
        case PTX_TOKEN_INT:
                if (ptx_type_float(type))
                        return ptx_fail(p, "a floating-point number was expected");
                value = negative ? 0 - value : value;
                break;
        case PTX_TOKEN_F32:
                if (bytes != 4)
                        return ptx_fail(p, "a 32-bit number does not fit");
                value ^= negative ? 1ULL << 31 : 0;
                break;
        case PTX_TOKEN_F64:
                memcpy(&d, &value, sizeof(d));
                d = negative ? -d : d;
                f = (float)d;
                memcpy(&value, &d, sizeof(d));
                if (bytes == 4) {
                        value = 0;
                        memcpy(&value, &f, sizeof(f));
                } else if (bytes != 8) {
                        return ptx_fail(p, "a floating-point number does not fit");
                }
                break;
        default:
                return ptx_fail(p, "an initial value was expected");
        }
        memcpy(p->data + at, &value, bytes);
        p->at++;
        return 0;
}

/* value, or nested braces of values in memory order. */
static int parse_initializer(struct ptx_parser *p, const struct declaration *d, uint64_t start,
                             uint64_t end, unsigned depth, uint64_t *at)
{
        unsigned bytes = ptx_type_bytes(d->type);
        int r;

        if (!ptx_accept(p, '{')) {
                if (*at + bytes > end)
                        return ptx_fail(p, "too many initial values");
                r = parse_initial_value(p, d->type, *at);
                *at += bytes;
                return r;
        }
        if (depth > 8)
                return ptx_fail(p, "initial values are nested too deeply");
        if (ptx_accept(p, '}'))
                return 0;
        do {
                r = parse_initializer(p, d, start, end, depth + 1, at);
                if (r < 0)
                        return r;
        } while (ptx_accept(p, ','));
        return ptx_expect(p, '}');
}

/* How many elements follow in braces, for an array declared with []. */
static uint64_t count_initializers(const struct ptx_parser *p)
{
        uint64_t commas = 0;
        unsigned depth = 0;

        for (size_t i = p->at; p->tokens[i].kind != PTX_TOKEN_END; i++) {
                const struct ptx_token *token = &p->tokens[i];

                if (token->kind != PTX_TOKEN_PUNCT)
                        continue;
                if (token->punct == '{')
                        depth++;
                else if (token->punct == '}' && --depth == 0)
                        return commas + 1;
                else if (token->punct == ',')
                        commas++;
                else if (token->punct == ';')
                        break;
        }
        return 0;
}

static int define_global(struct ptx_parser *p, const struct declaration *d,
                         struct ptx_symbol *symbol, uint64_t count)
{
        uint64_t at;
        int r;

        if (count == 0 && ptx_at_punct(p, '=')) {
                count = count_initializers(p) / d->vec;
                symbol->bytes = count * d->vec * ptx_type_bytes(d->type);
        }
        if (count == 0)
                return ptx_fail(p, "the array has no size");
        r = reserve_data(p, symbol->bytes, symbol->align, &symbol->offset);
        if (r < 0)
                return r;
        symbol->defined = true;
        at = symbol->offset;
        if (!ptx_accept(p, '='))
                return 0;
        return parse_initializer(p, d, symbol->offset, symbol->offset + symbol->bytes, 0, &at);
}

/* Shared memory declared in a function is one place however often the function is put in. */
static int define_shared(struct ptx_parser *p, struct ptx_symbol *symbol, size_t token,
                         uint64_t count)
{
        int r;

        symbol->defined = true;
        if (count == 0) {
                symbol->dynamic = true;
                return 0;
        }
        if (!p->entry)
                return 0; /* placed in each kernel that uses it */
        symbol->placed_in = p->entry_number;
        for (size_t i = 0; i < p->shared_count; i++) {
                if (p->shared_places[i].token == token) {
                        symbol->offset = p->shared_places[i].offset;
                        return 0;
                }
        }
        r = allocate(p, &p->shared_bytes, symbol->bytes, symbol->align, &symbol->offset);
        if (r < 0)
                return r;
        r = ptx_grow(&p->shared_places, p->shared_count, sizeof(*p->shared_places));
        if (r < 0)
                return r;
        p->shared_places[p->shared_count++] = (struct ptx_shared_place){token, symbol->offset};
        return 0;
}

static int define_variable(struct ptx_parser *p, const struct declaration *d,
                           struct ptx_symbol *symbol, size_t token, uint64_t count)
{
        switch (d->space) {
        case PTX_GLOBAL:
                if (p->entry)
                        return ptx_fail(p, "global variables in functions are not supported");
                return define_global(p, d, symbol, count);
        case PTX_SHARED:
                return define_shared(p, symbol, token, count);
        default:
                if (count == 0)
                        return ptx_fail(p, "the array has no size");
                symbol->defined = true;
                return allocate(p, &p->local_bytes, symbol->bytes, symbol->align, &symbol->offset);
        }
}

/* An earlier extern declaration of the same name, which this one may repeat or define. */
static struct ptx_symbol *find_extern(struct ptx_parser *p, const struct declaration *d,
                                      const struct ptx_token *name)
{
        struct ptx_symbol *symbol = find_in(p->scope, name->text, name->length);

        if (!symbol || symbol->kind != PTX_SYMBOL_VARIABLE || symbol->space != d->space)
                return NULL;
        return !symbol->defined || d->is_extern ? symbol : NULL;
}

static int declare_variable(struct ptx_parser *p, const struct declaration *d,
                            const struct ptx_token *name)
{
        size_t token = (size_t)(name - p->tokens);
        uint32_t natural = ptx_type_bytes(d->type) * d->vec;
        struct ptx_symbol *symbol = find_extern(p, d, name);
        bool known = symbol != NULL;
        uint64_t count;
        int r = parse_dimensions(p, &count);

        if (r < 0)
                return r;
        if (!known) {
                r = ptx_symbol_add(p, p->scope, name, PTX_SYMBOL_VARIABLE, &symbol);
                if (r < 0)
                        return r;
        }
        symbol->type = d->type;
        symbol->is_const = d->is_const;
        symbol->is_param = d->is_param;
        symbol->space = d->space;
        symbol->align = d->align > natural ? d->align : natural;
        symbol->bytes = count * natural;
        if (d->is_extern && (d->space == PTX_GLOBAL || known))
                return 0;
        return define_variable(p, d, symbol, token, count);
}

static int declare_one(struct ptx_parser *p, const struct declaration *d)
{
        const struct ptx_token *name = ptx_peek(p);

        if (name->kind != PTX_TOKEN_WORD)
                return ptx_fail(p, "a name was expected");
        p->at++;
        return d->is_register ? declare_register(p, d, name) : declare_variable(p, d, name);
}

/* Everything after .reg, .global … up to and with the semicolon. */
static int parse_declaration(struct ptx_parser *p, struct declaration *d)
{
        int r = parse_attributes(p, d);

        if (r < 0)
                return r;
        do {
                r = declare_one(p, d);
                if (r < 0)
                        return r;
        } while (ptx_accept(p, ','));
        return ptx_expect(p, ';');
}

/* .reg, .shared …: which kind of declaration a directive begins. */
static bool accept_space(struct ptx_parser *p, struct declaration *d)
{
        if (ptx_accept_dot(p, "reg")) {
                d->is_register = true;
        } else if (ptx_accept_dot(p, "global")) {
                d->space = PTX_GLOBAL;
        } else if (ptx_accept_dot(p, "const")) {
                d->space = PTX_GLOBAL;
                d->is_const = true;
        } else if (ptx_accept_dot(p, "shared")) {
                d->space = PTX_SHARED;
        } else if (ptx_accept_dot(p, "local")) {
                d->space = PTX_LOCAL;
        } else if (ptx_accept_dot(p, "param")) {
                d->space = PTX_LOCAL; /* a call's parameters live in the thread's memory */
                d->is_param = true;
        } else {
                return false;
        }
        return true;
}

/* ---- bodies ---- */

static int parse_block(struct ptx_parser *p);

static int skip_until(struct ptx_parser *p, char c)
{
        while (!ptx_at_punct(p, c)) {
                if (ptx_peek(p)->kind == PTX_TOKEN_END)
                        return ptx_expect(p, c);
                p->at++;
        }
        return 0;
}

/* Debug information: .loc and .file lines run to the end of the line. */
static void skip_line(struct ptx_parser *p)
{
        uint32_t line = ptx_peek(p)->line;

        while (ptx_peek(p)->kind != PTX_TOKEN_END && ptx_peek(p)->line == line)
                p->at++;
}

static int skip_balanced(struct ptx_parser *p, char open, char close)
{
        unsigned depth = 0;

        do {
                if (ptx_peek(p)->kind == PTX_TOKEN_END)
                        return ptx_fail(p, "'%c' was expected, but the text ends", close);
                depth += ptx_at_punct(p, open);
                depth -= ptx_at_punct(p, close);
                p->at++;
        } while (depth);
        return 0;
}

/* table: .branchtargets A, B, C; */
static int parse_branch_targets(struct ptx_parser *p, struct ptx_symbol *table)
{
        int32_t none = -1, index;
        int r;

        table->kind = PTX_SYMBOL_TABLE;
        table->target = (uint32_t)p->entry->vector_count;
        do {
                if (ptx_peek(p)->kind != PTX_TOKEN_WORD)
                        return ptx_fail(p, "a label was expected");
                r = ptx_vector(p, &none, 1, &index);
                if (r == 0)
                        r = ptx_fixup_add(p, PTX_FIXUP_TABLE, (size_t)index, ptx_peek(p));
                if (r < 0)
                        return r;
                p->at++;
                table->count++;
        } while (ptx_accept(p, ','));
        return ptx_expect(p, ';');
}

static int parse_label(struct ptx_parser *p)
{
        struct ptx_symbol *label;
        int r = ptx_symbol_add(p, p->scope, ptx_peek(p), PTX_SYMBOL_LABEL, &label);

        if (r < 0)
                return r;
        label->target = (uint32_t)p->entry->code_count;
        p->at += 2;
        if (ptx_accept_dot(p, "branchtargets"))
                return parse_branch_targets(p, label);
        return 0;
}

static int parse_body_directive(struct ptx_parser *p)
{
        struct declaration d = {0};

        if (ptx_accept_dot(p, "pragma")) /* a hint */
                return skip_until(p, ';');
        if (ptx_at_dot(p, "loc") || ptx_at_dot(p, "file")) {
                skip_line(p);
                return 0;
        }
        if (accept_space(p, &d))
                return parse_declaration(p, &d);
        return ptx_fail(p, "unsupported directive '.%.*s'", (int)ptx_peek(p)->length,
                        ptx_peek(p)->text);
}

static int parse_statement(struct ptx_parser *p)
{
        const struct ptx_token *token = ptx_peek(p);

        if (ptx_accept(p, ';'))
                return 0;
        if (ptx_at_punct(p, '{'))
                return parse_block(p);
        if (token->kind == PTX_TOKEN_DOT)
                return parse_body_directive(p);
        if (token->kind == PTX_TOKEN_WORD && token[1].kind == PTX_TOKEN_PUNCT &&
            token[1].punct == ':')
                return parse_label(p);
        if (token->kind == PTX_TOKEN_WORD || ptx_at_punct(p, '@'))
                return ptx_parse_instruction(p);
        return ptx_fail(p, "an instruction was expected, not '%.*s'", (int)token->length,
                        token->text);
}

/* { statements } in the current scope. */
static int parse_statements(struct ptx_parser *p)
{
        int r = ptx_expect(p, '{');

        while (r == 0 && !ptx_accept(p, '}')) {
                if (ptx_peek(p)->kind == PTX_TOKEN_END)
                        return ptx_expect(p, '}');
                r = parse_statement(p);
        }
        return r;
}

static int parse_block(struct ptx_parser *p)
{
        struct ptx_scope *outer = p->scope;
        int r;

        if (p->depth >= MAX_DEPTH)
                return ptx_fail(p, "blocks are nested too deeply");
        r = open_scope(p, outer, false);
        if (r < 0)
                return r;
        p->depth++;
        r = parse_statements(p);
        p->depth--;
        if (r < 0)
                return r;
        return close_scope(p, outer);
}

/* ---- calls ---- */

#define MAX_ARGUMENTS 64

struct argument {
        struct ptx_operand operand;
        const struct ptx_token *token;
};

struct arguments {
        struct argument results[MAX_ARGUMENTS];
        struct argument values[MAX_ARGUMENTS];
        unsigned result_count;
        unsigned value_count;
};

static int parse_arguments(struct ptx_parser *p, struct argument *arguments, unsigned *ret_count)
{
        int r = ptx_expect(p, '(');

        *ret_count = 0;
        if (r < 0 || ptx_accept(p, ')'))
                return r;
        do {
                if (*ret_count == MAX_ARGUMENTS)
                        return ptx_fail(p, "too many arguments");
                arguments[*ret_count].token = ptx_peek(p);
                if (ptx_at_punct(p, '{'))
                        return ptx_fail(p, "a vector cannot be an argument");
                r = ptx_operand_parse(p, &arguments[(*ret_count)++].operand);
                if (r < 0)
                        return r;
        } while (ptx_accept(p, ','));
        return ptx_expect(p, ')');
}

static int emit_move(struct ptx_parser *p, int32_t dst, int32_t src)
{
        struct ptx_insn insn = {
                .dst = dst,
                .dst2 = -1,
                .src = {src},
                .guard = PTX_NO_GUARD,
                .kind = PTX_KIND_ALU,
                .vec = 1,
                .line = ptx_peek(p)->line,
                .fn = ptx_op_move,
        };

        return ptx_emit(p, &insn);
}

/* One formal parameter: bound to the caller's variable, or a register of its own. */
static int bind_formal(struct ptx_parser *p, const struct argument *actual, bool is_result,
                       struct ptx_symbol **ret_symbol)
{
        struct declaration d = {0};
        const struct ptx_token *name;
        struct ptx_symbol *symbol;
        uint64_t count;
        int32_t ref;
        int r;

        if (!accept_space(p, &d))
                return ptx_fail(p, ".reg or .param was expected");
        r = parse_attributes(p, &d);
        if (r < 0)
                return r;
        name = ptx_peek(p);
        if (name->kind != PTX_TOKEN_WORD)
                return ptx_fail(p, "a parameter name was expected");
        p->at++;
        r = ptx_symbol_add(p, p->scope, name,
                           d.is_register ? PTX_SYMBOL_REGISTER : PTX_SYMBOL_VARIABLE, &symbol);
        if (r < 0)
                return r;
        symbol->type = d.type;
        *ret_symbol = symbol;
        if (d.is_register) {
                r = ptx_register_new(p, &symbol->reg);
                if (r < 0 || is_result)
                        return r;
                r = ptx_operand_source(p, &actual->operand, d.type, false, &ref);
                return r < 0 ? r : emit_move(p, symbol->reg, ref);
        }
        r = parse_dimensions(p, &count);
        if (r < 0)
                return r;
        if (actual->operand.kind != PTX_OPERAND_ADDRESS ||
            actual->operand.symbol->space != PTX_LOCAL)
                return ptx_fail(p, "the argument for '%.*s' is not a .param variable",
                                (int)name->length, name->text);
        symbol->space = PTX_LOCAL;
        symbol->is_param = true;
        symbol->defined = true;
        symbol->offset = actual->operand.symbol->offset;
        symbol->bytes = count * d.vec * ptx_type_bytes(d.type);
        if (symbol->bytes > actual->operand.symbol->bytes)
                return ptx_fail(p, "the argument for '%.*s' is too small", (int)name->length,
                                name->text);
        return 0;
}

static int bind_formals(struct ptx_parser *p, size_t token, const struct argument *actuals,
                        unsigned count, struct ptx_symbol **symbols)
{
        unsigned n = 0;
        int r = 0;

        if (token) {
                p->at = token;
                r = ptx_expect(p, '(');
                while (r == 0 && !ptx_accept(p, ')')) {
                        if (n == count)
                                return ptx_fail(p, "the call has too few arguments");
                        r = bind_formal(p, &actuals[n], symbols != NULL,
                                        symbols ? &symbols[n] : &(struct ptx_symbol *){0});
                        n++;
                        if (r == 0 && !ptx_at_punct(p, ')'))
                                r = ptx_expect(p, ',');
                }
        }
        if (r == 0 && n != count)
                return ptx_fail(p, "the call has too many arguments");
        return r;
}

/* Results in registers go to the caller's registers; those in .param are in place already. */
static int copy_results(struct ptx_parser *p, const struct arguments *args,
                        struct ptx_symbol *const *symbols)
{
        for (unsigned i = 0; i < args->result_count; i++) {
                const struct ptx_operand *to = &args->results[i].operand;
                int32_t dst;
                int r;

                if (symbols[i]->kind != PTX_SYMBOL_REGISTER)
                        continue;
                r = ptx_operand_destination(p, to, symbols[i]->type, false, &dst);
                if (r == 0)
                        r = emit_move(p, dst, symbols[i]->reg);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int check_callable(struct ptx_parser *p, const struct ptx_token *name,
                          const struct ptx_symbol *function)
{
        if (!function || function->kind != PTX_SYMBOL_FUNCTION)
                return ptx_fail(p, "'%.*s' is not a function (indirect calls are not supported)",
                                (int)name->length, name->text);
        if (!function->defined)
                return ptx_fail(p, "unresolved function '%.*s'", (int)name->length, name->text);
        for (const struct ptx_frame *f = p->frame; f; f = f->parent) {
                if (f->function == function)
                        return ptx_fail(p, "recursion is not supported ('%.*s')", (int)name->length,
                                        name->text);
        }
        return p->depth >= MAX_DEPTH ? ptx_fail(p, "calls are nested too deeply") : 0;
}

/* Decode the function's body here; its returns branch to the end. */
static int place_function(struct ptx_parser *p, struct ptx_symbol *function,
                          const struct arguments *args)
{
        struct ptx_scope *outer = p->scope;
        struct ptx_frame frame = {.parent = p->frame, .function = function};
        struct ptx_symbol *results[MAX_ARGUMENTS];
        size_t back = p->at;
        int r = open_scope(p, p->module_scope, true);

        if (r < 0)
                return r;
        function->placed = true;
        p->frame = &frame;
        p->depth++;
        r = bind_formals(p, function->results, args->results, args->result_count, results);
        if (r == 0)
                r = bind_formals(p, function->formals, args->values, args->value_count, NULL);
        if (r == 0) {
                p->at = function->body;
                r = parse_statements(p);
        }
        for (size_t i = 0; r == 0 && i < frame.return_count; i++)
                p->entry->code[frame.returns[i]].offset = (int64_t)p->entry->code_count;
        free(frame.returns);
        p->depth--;
        p->frame = frame.parent;
        if (r < 0) {
                /* Scopes of the function are unwound by the caller of the parser. */
                while (p->scope && p->scope != p->module_scope) {
                        struct ptx_scope *scope = p->scope;

                        p->scope = scope->parent;
                        scope_free(scope);
                }
                p->scope = outer;
                return r;
        }
        r = close_scope(p, outer);
        if (r == 0)
                r = copy_results(p, args, results);
        p->at = back;
        return r;
}

static int parse_call_target(struct ptx_parser *p, struct arguments *args,
                             struct ptx_symbol **ret_function)
{
        const struct ptx_token *name;
        struct ptx_symbol *function;
        int r = 0;

        if (ptx_at_punct(p, '(')) {
                r = parse_arguments(p, args->results, &args->result_count);
                if (r == 0)
                        r = ptx_expect(p, ',');
        }
        if (r < 0)
                return r;
        name = ptx_peek(p);
        function = name->kind == PTX_TOKEN_WORD ? find_in(p->module_scope, name->text, name->length)
                                                : NULL;
        r = check_callable(p, name, function);
        if (r < 0)
                return r;
        p->at++;
        if (ptx_accept(p, ',')) {
                r = parse_arguments(p, args->values, &args->value_count);
                if (r < 0)
                        return r;
        }
        *ret_function = function;
        return ptx_expect(p, ';');
}

int ptx_parse_call(struct ptx_parser *p, const struct ptx_insn *guard)
{
        struct arguments *args = calloc(1, sizeof(*args));
        struct ptx_symbol *function;
        size_t skip = p->entry->code_count;
        int r = args ? parse_call_target(p, args, &function) : -ENOMEM;

        if (r == 0 && guard->guard != PTX_NO_GUARD) {
                struct ptx_insn branch = *guard;

                branch.kind = PTX_KIND_BRANCH;
                branch.guard_negated = !branch.guard_negated;
                skip = p->entry->code_count;
                r = ptx_emit(p, &branch);
        }
        if (r == 0)
                r = place_function(p, function, args);
        if (r == 0 && guard->guard != PTX_NO_GUARD)
                p->entry->code[skip].offset = (int64_t)p->entry->code_count;
        free(args);
        return r;
}

/* ---- kernels ---- */

static int add_param(struct ptx_parser *p, const struct declaration *d, uint64_t count,
                     struct ptx_symbol *symbol)
{
        struct ptx_entry *e = p->entry;
        uint32_t natural = ptx_type_bytes(d->type) * d->vec;
        uint64_t bytes = e->info.param_bytes;
        int r = ptx_grow(&e->params, e->info.param_count, sizeof(*e->params));

        if (r < 0)
                return r;
        symbol->space = PTX_PARAM;
        symbol->defined = true;
        symbol->bytes = count * natural;
        r = allocate(p, &bytes, symbol->bytes, d->align > natural ? d->align : natural,
                     &symbol->offset);
        if (r < 0)
                return r;
        if (count == 0 || bytes > 32764)
                return ptx_fail(p, "the kernel's parameters have no size or are too large");
        e->params[e->info.param_count++] =
                (struct ptx_param_info){(uint32_t)symbol->offset, (uint32_t)symbol->bytes};
        e->info.param_bytes = (uint32_t)bytes;
        return 0;
}

static int parse_params(struct ptx_parser *p)
{
        int r = ptx_expect(p, '(');

        while (r == 0 && !ptx_accept(p, ')')) {
                struct declaration d = {0};
                struct ptx_symbol *symbol;
                uint64_t count;

                if (!ptx_accept_dot(p, "param"))
                        return ptx_fail(p, ".param was expected");
                r = parse_attributes(p, &d);
                if (r < 0)
                        return r;
                if (ptx_peek(p)->kind != PTX_TOKEN_WORD)
                        return ptx_fail(p, "a parameter name was expected");
                r = ptx_symbol_add(p, p->scope, ptx_peek(p), PTX_SYMBOL_VARIABLE, &symbol);
                if (r < 0)
                        return r;
                p->at++;
                r = parse_dimensions(p, &count);
                if (r == 0)
                        r = add_param(p, &d, count, symbol);
                if (r == 0 && !ptx_at_punct(p, ')'))
                        r = ptx_expect(p, ',');
        }
        return r;
}

/* x, y, z of .maxntid or .reqntid; missing ones are 1. */
static int parse_threads(struct ptx_parser *p, bool required)
{
        struct ptx_entry_info *info = &p->entry->info;
        uint64_t n[3] = {1, 1, 1};
        int i = 0, r;

        do {
                r = i < 3 ? parse_uint(p, 1024, &n[i++]) : ptx_fail(p, "too many dimensions");
                if (r < 0)
                        return r;
        } while (ptx_accept(p, ','));
        if (n[0] * n[1] * n[2] == 0 || n[0] * n[1] * n[2] > 1024)
                return ptx_fail(p, "a block has 1 to 1024 threads");
        info->max_threads = (uint32_t)(n[0] * n[1] * n[2]);
        for (i = 0; i < 3 && required; i++)
                info->required[i] = (uint32_t)n[i];
        return 0;
}

static int parse_entry_directives(struct ptx_parser *p)
{
        uint64_t ignored;
        int r = 0;

        while (r == 0 && ptx_peek(p)->kind == PTX_TOKEN_DOT) {
                if (ptx_accept_dot(p, "maxntid"))
                        r = parse_threads(p, false);
                else if (ptx_accept_dot(p, "reqntid"))
                        r = parse_threads(p, true);
                else if (ptx_accept_dot(p, "minnctapersm") || ptx_accept_dot(p, "maxnctapersm") ||
                         ptx_accept_dot(p, "maxnreg"))
                        r = parse_uint(p, 1024, &ignored); /* about speed only */
                else if (ptx_accept_dot(p, "noreturn"))
                        r = 0;
                else if (ptx_accept_dot(p, "pragma"))
                        r = skip_until(p, ';') ?: ptx_expect(p, ';');
                else
                        r = ptx_fail(p, "unsupported kernel directive '.%.*s'",
                                     (int)ptx_peek(p)->length, ptx_peek(p)->text);
        }
        return r;
}

/* The last thing in a kernel is always an exit, so that a run cannot leave the code. */
static int finish_entry(struct ptx_parser *p)
{
        struct ptx_entry *e = p->entry;
        struct ptx_insn exit = {.kind = PTX_KIND_EXIT, .guard = PTX_NO_GUARD, .dst2 = -1, .vec = 1};
        uint64_t dynamic_at = (p->shared_bytes + 15) & ~15ULL;
        int r = ptx_emit(p, &exit);

        if (r < 0)
                return r;
        for (size_t i = 0; i < p->dynamic_count; i++)
                e->imms[p->dynamic_uses[i]] += dynamic_at;
        e->info.shared_bytes = (uint32_t)(p->dynamic_count ? dynamic_at : p->shared_bytes);
        e->info.local_bytes = (uint32_t)((p->local_bytes + 15) & ~15ULL);
        e->info.instructions = (uint32_t)e->code_count;
        /* Text names a register for each value; few of them live at once. */
        e->info.registers = e->register_count / 8 < 255 ? e->register_count / 8 : 255;
        e->info.name = e->name;
        e->info.params = e->params;
        return 0;
}

static int parse_entry_body(struct ptx_parser *p, const struct ptx_symbol *symbol)
{
        int r = 0;

        if (symbol->formals) {
                p->at = symbol->formals;
                r = parse_params(p);
        }
        if (r == 0) {
                p->at = symbol->directives;
                r = parse_entry_directives(p);
        }
        if (r == 0) {
                p->at = symbol->body;
                r = parse_statements(p);
        }
        return r;
}

static struct ptx_entry *entry_free(struct ptx_entry *entry)
{
        if (entry) {
                free(entry->name);
                free(entry->params);
                free(entry->code);
                free(entry->imms);
                free(entry->vectors);
                free(entry);
        }
        return NULL;
}

static int entry_new(struct ptx_parser *p, const struct ptx_symbol *symbol,
                     struct ptx_entry **ret_entry)
{
        struct ptx_module *m = p->module;
        struct ptx_entry *entry = calloc(1, sizeof(*entry));
        int r = -ENOMEM;

        if (entry)
                entry->name = strndup(symbol->name, symbol->name_bytes);
        if (entry && entry->name)
                r = ptx_grow(&m->entries, m->entry_count, sizeof(*m->entries));
        if (r < 0) {
                entry_free(entry);
                return r;
        }
        entry->info.max_threads = 1024;
        m->entries[m->entry_count++] = entry;
        *ret_entry = entry;
        return 0;
}

static void begin_kernel(struct ptx_parser *p)
{
        p->entry_number++;
        p->shared_bytes = 0;
        p->local_bytes = 0;
        p->dynamic_count = 0;
        p->shared_count = 0;
        p->carry = -1;
}

/* The formals of a function that nothing calls, as variables of its own. */
static int declare_formals(struct ptx_parser *p, size_t token)
{
        int r;

        if (!token)
                return 0;
        p->at = token;
        r = ptx_expect(p, '(');
        while (r == 0 && !ptx_accept(p, ')')) {
                struct declaration d = {0};

                if (!accept_space(p, &d))
                        return ptx_fail(p, ".reg or .param was expected");
                r = parse_attributes(p, &d);
                if (r == 0)
                        r = declare_one(p, &d);
                if (r == 0 && !ptx_at_punct(p, ')'))
                        r = ptx_expect(p, ',');
        }
        return r;
}

/* A function that nothing calls must be understood too; its code is thrown away. */
static int check_function(struct ptx_parser *p, const struct ptx_symbol *symbol)
{
        struct ptx_frame outer = {0}, frame = {.parent = &outer, .function = symbol};
        int r;

        p->entry = calloc(1, sizeof(*p->entry));
        if (!p->entry)
                return -ENOMEM;
        begin_kernel(p);
        p->frame = &frame;
        r = open_scope(p, p->module_scope, true);
        if (r == 0)
                r = declare_formals(p, symbol->results);
        if (r == 0)
                r = declare_formals(p, symbol->formals);
        if (r == 0) {
                p->at = symbol->body;
                r = parse_statements(p);
        }
        if (r == 0)
                r = close_scope(p, p->module_scope);
        free(frame.returns);
        p->frame = NULL;
        p->entry = entry_free(p->entry);
        return r;
}

static int parse_entry(struct ptx_parser *p, const struct ptx_symbol *symbol)
{
        struct ptx_frame frame = {.function = symbol};
        int r = entry_new(p, symbol, &p->entry);

        if (r < 0)
                return r;
        begin_kernel(p);
        p->frame = &frame;
        r = open_scope(p, p->module_scope, true);
        if (r == 0)
                r = parse_entry_body(p, symbol);
        if (r == 0)
                r = close_scope(p, p->module_scope);
        p->frame = NULL;
        return r < 0 ? r : finish_entry(p);
}

/* ---- modules ---- */

/* (results) name (params) directives { body } or ; */
static int scan_function(struct ptx_parser *p, enum ptx_symbol_kind kind)
{
        const struct ptx_token *name;
        struct ptx_symbol *symbol;
        size_t results = 0, formals = 0, directives;
        int r = 0;

        if (ptx_at_punct(p, '(')) {
                results = p->at;
                r = skip_balanced(p, '(', ')');
                if (r < 0)
                        return r;
        }
        name = ptx_peek(p);
        if (name->kind != PTX_TOKEN_WORD)
                return ptx_fail(p, "a function name was expected");
        p->at++;
        if (ptx_at_punct(p, '(')) {
                formals = p->at;
                r = skip_balanced(p, '(', ')');
                if (r < 0)
                        return r;
        }
        directives = p->at;
        symbol = find_in(p->module_scope, name->text, name->length);
        if (symbol && (symbol->kind != kind || symbol->defined))
                symbol = NULL; /* adding it reports the clash */
        if (!symbol) {
                r = ptx_symbol_add(p, p->module_scope, name, kind, &symbol);
                if (r < 0)
                        return r;
        }
        while (!ptx_at_punct(p, '{') && !ptx_at_punct(p, ';')) {
                if (ptx_peek(p)->kind == PTX_TOKEN_END)
                        return ptx_expect(p, '{');
                if (ptx_accept_dot(p, "pragma"))
                        r = skip_until(p, ';');
                if (r < 0)
                        return r;
                p->at++;
        }
        if (ptx_accept(p, ';'))
                return 0;
        symbol->results = results;
        symbol->formals = formals;
        symbol->directives = directives;
        symbol->body = p->at;
        symbol->defined = true;
        return skip_balanced(p, '{', '}');
}

static int parse_target(struct ptx_parser *p)
{
        do {
                const struct ptx_token *t = ptx_peek(p);
                unsigned sm = 0;

                if (t->kind != PTX_TOKEN_WORD)
                        return ptx_fail(p, "a target was expected");
                if (t->length > 3 && memcmp(t->text, "sm_", 3) == 0) {
                        for (uint32_t i = 3;
                             i < t->length && t->text[i] >= '0' && t->text[i] <= '9' && sm < 10000;
                             i++)
                                sm = sm * 10 + (unsigned)(t->text[i] - '0');
                        if (p->max_sm && sm > p->max_sm)
                                return ptx_fail(p, "the module is for sm_%u, the device is sm_%u",
                                                sm, p->max_sm);
                } else if (!ptx_token_is(t, "debug") && !ptx_token_is(t, "texmode_unified") &&
                           !ptx_token_is(t, "texmode_independent")) {
                        return ptx_fail(p, "unsupported target '%.*s'", (int)t->length, t->text);
                }
                p->at++;
        } while (ptx_accept(p, ','));
        return 0;
}

static int parse_version(struct ptx_parser *p)
{
        double version;

        if (ptx_peek(p)->kind != PTX_TOKEN_F64)
                return ptx_fail(p, "a version was expected");
        memcpy(&version, &ptx_peek(p)->value, sizeof(version));
        if (version < 2.0 || version >= 10.0)
                return ptx_fail(p, "PTX version %.1f is not supported", version);
        p->at++;
        return 0;
}

static int parse_header(struct ptx_parser *p)
{
        uint64_t bits = 64;
        int r;

        if (!ptx_accept_dot(p, "version"))
                return ptx_fail(p, "PTX begins with .version");
        r = parse_version(p);
        if (r < 0)
                return r;
        if (!ptx_accept_dot(p, "target"))
                return ptx_fail(p, ".target was expected");
        r = parse_target(p);
        if (r == 0 && ptx_accept_dot(p, "address_size"))
                r = parse_uint(p, 64, &bits);
        if (r == 0 && bits != 64)
                return ptx_fail(p, "only 64-bit addresses are supported");
        return r;
}

static bool accept_linkage(struct ptx_parser *p, struct declaration *d)
{
        if (ptx_accept_dot(p, "extern")) {
                d->is_extern = true;
                return true;
        }
        return ptx_accept_dot(p, "visible") || ptx_accept_dot(p, "weak") ||
               ptx_accept_dot(p, "common");
}

static int scan_directive(struct ptx_parser *p)
{
        struct declaration d = {0};

        if (ptx_at_dot(p, "file") || ptx_at_dot(p, "loc")) {
                skip_line(p);
                return 0;
        }
        if (ptx_accept_dot(p, "section")) /* debug information */
                return skip_until(p, '{') ?: skip_balanced(p, '{', '}');
        if (ptx_accept_dot(p, "pragma"))
                return skip_until(p, ';') ?: ptx_expect(p, ';');
        while (accept_linkage(p, &d))
                ;
        if (ptx_accept_dot(p, "entry"))
                return scan_function(p, PTX_SYMBOL_ENTRY);
        if (ptx_accept_dot(p, "func"))
                return scan_function(p, PTX_SYMBOL_FUNCTION);
        if (!ptx_at_dot(p, "reg") && !ptx_at_dot(p, "local") && !ptx_at_dot(p, "param") &&
            accept_space(p, &d))
                return parse_declaration(p, &d);
        return ptx_fail(p, "unsupported directive '%.*s'", (int)ptx_peek(p)->length,
                        ptx_peek(p)->text);
}

static int scan_module(struct ptx_parser *p)
{
        int r = open_scope(p, NULL, true);

        p->module_scope = p->scope;
        if (r == 0)
                r = parse_header(p);
        while (r == 0 && ptx_peek(p)->kind != PTX_TOKEN_END) {
                if (!ptx_accept(p, ';'))
                        r = scan_directive(p);
        }
        return r;
}

/* Give the globals their final place and fill in the addresses among them. */
static int place_data(struct ptx_parser *p)
{
        struct ptx_module *m = p->module;

        if (p->data_bytes == 0)
                return 0;
        m->data_bytes = (p->data_bytes + DATA_ALIGN - 1) & ~(size_t)(DATA_ALIGN - 1);
        m->data = aligned_alloc(DATA_ALIGN, m->data_bytes);
        if (!m->data)
                return -ENOMEM;
        memset(m->data, 0, m->data_bytes);
        memcpy(m->data, p->data, p->data_bytes);
        for (size_t i = 0; i < p->relocation_count; i++) {
                uint64_t address = (uint64_t)m->data + p->relocations[i].value;

                memcpy(m->data + p->relocations[i].at, &address, sizeof(address));
        }
        return 0;
}

static int by_body(struct ptx_symbol *a, struct ptx_symbol *b)
{
        return a->body < b->body ? -1 : a->body > b->body;
}

static int add_global(struct ptx_module *m, const struct ptx_symbol *symbol)
{
        int r = ptx_grow(&m->globals, m->global_count, sizeof(*m->globals));
        char *name = r < 0 ? NULL : strndup(symbol->name, symbol->name_bytes);

        if (!name)
                return -ENOMEM;
        m->globals[m->global_count++] = (struct ptx_global){name, symbol->offset, symbol->bytes};
        return 0;
}

/* The second pass, in the order of the text. */
static int build_module(struct ptx_parser *p)
{
        struct ptx_symbol *symbol, *next;
        int r = place_data(p);

        HASH_SRT(hh, p->module_scope->symbols, by_body);
        HASH_ITER (hh, p->module_scope->symbols, symbol, next) {
                if (r < 0)
                        return r;
                if (symbol->kind == PTX_SYMBOL_ENTRY && symbol->defined)
                        r = parse_entry(p, symbol);
                else if (symbol->kind == PTX_SYMBOL_VARIABLE && symbol->space == PTX_GLOBAL &&
                         symbol->defined)
                        r = add_global(p->module, symbol);
        }
        HASH_ITER (hh, p->module_scope->symbols, symbol, next) {
                if (r == 0 && symbol->kind == PTX_SYMBOL_FUNCTION && symbol->defined &&
                    !symbol->placed)
                        r = check_function(p, symbol);
        }
        return r;
}

static void parser_done(struct ptx_parser *p)
{
        while (p->scope) {
                struct ptx_scope *scope = p->scope;

                p->scope = scope->parent;
                scope_free(scope);
        }
        while (p->allocated) {
                struct ptx_symbol *symbol = p->allocated;

                p->allocated = symbol->next_allocated;
                free(symbol);
        }
        free(p->tokens);
        free(p->data);
        free(p->relocations);
        free(p->dynamic_uses);
        free(p->shared_places);
}

int ptx_module_load(const char *text, size_t bytes, unsigned max_sm, char *log, size_t log_bytes,
                    struct ptx_module **ret_module)
{
        struct ptx_parser p = {.log = log, .log_bytes = log_bytes, .max_sm = max_sm};
        uint32_t bad_line = 0;
        int r;

        if (log && log_bytes)
                log[0] = '\0';
        r = ptx_lex(text, bytes, &p.tokens, &p.token_count, &bad_line);
        if (r < 0) {
                if (r == -EINVAL && log && log_bytes)
                        snprintf(log, log_bytes, "line %u: unexpected character or bad number",
                                 bad_line);
                return r;
        }
        p.module = calloc(1, sizeof(*p.module));
        r = p.module ? scan_module(&p) : -ENOMEM;
        if (r == 0)
                r = build_module(&p);
        parser_done(&p);
        if (r < 0) {
                ptx_module_free(p.module);
                return r;
        }
        *ret_module = p.module;
        return 0;
}

struct ptx_module *ptx_module_free(struct ptx_module *module)
{
        if (!module)
                return NULL;
        for (size_t i = 0; i < module->entry_count; i++)
                entry_free(module->entries[i]);
        for (size_t i = 0; i < module->global_count; i++)
                free(module->globals[i].name);
        free(module->entries);
        free(module->globals);
        free(module->data);
        free(module);
        return NULL;
}

size_t ptx_module_entry_count(const struct ptx_module *module)
{
        return module->entry_count;
}

const struct ptx_entry *ptx_module_entry(const struct ptx_module *module, size_t index)
{
        return index < module->entry_count ? module->entries[index] : NULL;
}

const struct ptx_entry *ptx_module_find_entry(const struct ptx_module *module, const char *name)
{
        for (size_t i = 0; i < module->entry_count; i++) {
                if (strcmp(module->entries[i]->name, name) == 0)
                        return module->entries[i];
        }
        return NULL;
}

int ptx_module_find_global(const struct ptx_module *module, const char *name, void **ret_address,
                           size_t *ret_bytes)
{
        for (size_t i = 0; i < module->global_count; i++) {
                if (strcmp(module->globals[i].name, name) == 0) {
                        *ret_address = module->data + module->globals[i].offset;
                        *ret_bytes = module->globals[i].bytes;
                        return 0;
                }
        }
        return -ENOENT;
}

void *ptx_module_data(const struct ptx_module *module, size_t *ret_bytes)
{
        *ret_bytes = module->data_bytes;
        return module->data;
}

const struct ptx_entry_info *ptx_entry_info(const struct ptx_entry *entry)
{
        return &entry->info;
}
