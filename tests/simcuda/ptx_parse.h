/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The parser's state: tokens, scopes with their symbols, and the kernel under
 * construction. ptx_parse.c does modules, declarations, scopes and calls;
 * ptx_operand.c operands; ptx_insn.c instructions.
 */
#include <uthash.h>

#include "ptx_ir.h"
#include "ptx_lex.h"
#include "ptx_warp.h"

enum ptx_symbol_kind {
        PTX_SYMBOL_REGISTER,
        PTX_SYMBOL_RANGE, /* name<count>; members become registers when first used */
        PTX_SYMBOL_VARIABLE,
        PTX_SYMBOL_FUNCTION,
        PTX_SYMBOL_ENTRY,
        PTX_SYMBOL_LABEL,
        PTX_SYMBOL_TABLE, /* of branch targets */
};

struct ptx_symbol {
        UT_hash_handle hh;
        struct ptx_symbol *next_allocated;
        const char *name; /* in the text */
        uint32_t name_bytes;
        enum ptx_symbol_kind kind;
        enum ptx_type type;
        int32_t reg;     /* REGISTER */
        uint32_t count;  /* RANGE, TABLE */
        uint32_t target; /* LABEL: instruction; TABLE: index into vectors */
        /* VARIABLE */
        enum ptx_space space;
        bool dynamic; /* shared memory whose size the launch gives */
        bool is_const;
        bool is_param;   /* of a call */
        bool defined;    /* not only declared extern; FUNCTION: has a body */
        uint64_t offset; /* in the module's data, in shared, local or param memory */
        uint64_t bytes;
        uint32_t align;
        uint32_t placed_in; /* module-level shared: number of the entry that has it at offset */
        /* FUNCTION, ENTRY */
        size_t results;    /* token of the results' parenthesis, or 0 */
        size_t formals;    /* token of the parameters' parenthesis, or 0 */
        size_t directives; /* token after the parameters */
        size_t body;       /* token of { */
        bool placed;       /* FUNCTION: some kernel calls it */
};

enum ptx_fixup_kind {
        PTX_FIXUP_BRANCH, /* code[at].offset */
        PTX_FIXUP_TABLE,  /* vectors[at] */
};

/* A use of a label that was not yet defined. */
struct ptx_fixup {
        enum ptx_fixup_kind kind;
        size_t at;
        const struct ptx_token *label;
};

struct ptx_scope {
        struct ptx_scope *parent;
        struct ptx_symbol *symbols; /* hash by name */
        struct ptx_fixup *fixups;
        size_t fixup_count;
        bool is_function; /* labels do not reach beyond it */
};

/* An open function body: where its returns have to go. */
struct ptx_frame {
        struct ptx_frame *parent;
        const struct ptx_symbol *function;
        size_t *returns; /* branches to patch with the function's end */
        size_t return_count;
};

struct ptx_shared_place {
        size_t token; /* of the declaration's name */
        uint64_t offset;
};

struct ptx_relocation {
        uint64_t at;    /* in the module's data */
        uint64_t value; /* offset in the module's data, with addend */
        unsigned bytes;
};

struct ptx_module {
        struct ptx_entry **entries;
        size_t entry_count;
        uint8_t *data;
        size_t data_bytes;
        struct ptx_global *globals;
        size_t global_count;
};

struct ptx_global {
        char *name;
        uint64_t offset;
        uint64_t bytes;
};

struct ptx_parser {
        struct ptx_token *tokens;
        size_t token_count;
        size_t at;
        char *log;
        size_t log_bytes;
        unsigned max_sm;
        struct ptx_module *module;
        struct ptx_symbol *allocated; /* every symbol, to free */
        struct ptx_scope *scope;
        struct ptx_scope *module_scope;
        uint8_t *data; /* the module's data while it grows */
        size_t data_bytes;
        size_t data_capacity;
        struct ptx_relocation *relocations;
        size_t relocation_count;
        /* The kernel under construction. */
        struct ptx_entry *entry;
        uint32_t entry_number; /* from 1 */
        struct ptx_frame *frame;
        unsigned depth;
        uint64_t shared_bytes;
        uint64_t local_bytes;
        int32_t carry;
        bool specials_allowed; /* in the present instruction */
        bool sinks_allowed;
        size_t *dynamic_uses; /* immediates that need the end of static shared memory added */
        size_t dynamic_count;
        struct ptx_shared_place *shared_places;
        size_t shared_count;
};

/*
 * Append to a growing array: its capacity is the next power of two of its count.
 * 0 or -ENOMEM.
 */
int ptx_grow(void *array, size_t count, size_t element_bytes);

/* Record the first error, with the current line. Returns -EINVAL. */
int ptx_fail(struct ptx_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Tokens. */
static inline const struct ptx_token *ptx_peek(const struct ptx_parser *p)
{
        return &p->tokens[p->at];
}
static inline bool ptx_at_punct(const struct ptx_parser *p, char c)
{
        return ptx_peek(p)->kind == PTX_TOKEN_PUNCT && ptx_peek(p)->punct == c;
}
static inline bool ptx_at_dot(const struct ptx_parser *p, const char *name)
{
        return ptx_peek(p)->kind == PTX_TOKEN_DOT && ptx_token_is(ptx_peek(p), name);
}
bool ptx_accept(struct ptx_parser *p, char c);
bool ptx_accept_dot(struct ptx_parser *p, const char *name);
int ptx_expect(struct ptx_parser *p, char c);

/* A type by its name without the dot; PTX_NONE: not one we know. */
enum ptx_type ptx_type_find(const struct ptx_token *token);

/* Symbols. Lookup goes from the innermost scope outwards; NULL: unknown. */
struct ptx_symbol *ptx_symbol_find(struct ptx_parser *p, const struct ptx_token *name);
int ptx_symbol_add(struct ptx_parser *p, struct ptx_scope *scope, const struct ptx_token *name,
                   enum ptx_symbol_kind kind, struct ptx_symbol **ret_symbol);

/* The kernel under construction. */
int ptx_register_new(struct ptx_parser *p, int32_t *ret_reg);
int ptx_imm(struct ptx_parser *p, uint64_t value, int32_t *ret_ref);
int ptx_vector(struct ptx_parser *p, const int32_t *refs, unsigned count, int32_t *ret_index);
int ptx_emit(struct ptx_parser *p, const struct ptx_insn *insn);
int ptx_fixup_add(struct ptx_parser *p, enum ptx_fixup_kind kind, size_t at,
                  const struct ptx_token *label);
/* An immediate that counts from the end of static shared memory, known when the kernel ends. */
int ptx_dynamic_imm(struct ptx_parser *p, uint64_t value, int32_t *ret_ref);

/* Where a variable lies in its space; places module-level shared variables in the kernel. */
int ptx_variable_address(struct ptx_parser *p, struct ptx_symbol *symbol, uint64_t *ret_address);

/* One instruction with its guard, through the semicolon. */
int ptx_parse_instruction(struct ptx_parser *p);

/* Operands as written. */
enum ptx_operand_kind {
        PTX_OPERAND_REGISTER,
        PTX_OPERAND_INTEGER,
        PTX_OPERAND_F32,
        PTX_OPERAND_F64,
        PTX_OPERAND_SPECIAL,
        PTX_OPERAND_ADDRESS, /* of a variable */
        PTX_OPERAND_VECTOR,
        PTX_OPERAND_SINK, /* _ */
};

#define PTX_VECTOR_MAX 8

struct ptx_operand {
        enum ptx_operand_kind kind;
        enum ptx_type type; /* REGISTER, SPECIAL */
        bool inverted;      /* !p */
        bool exact;         /* F32, F64: written as bits, so fit for untyped instructions */
        int32_t reg;
        uint64_t value;
        enum ptx_special special;
        struct ptx_symbol *symbol;
        unsigned count;
        struct ptx_operand *elements; /* VECTOR; freed by ptx_operand_done */
};

int ptx_operand_parse(struct ptx_parser *p, struct ptx_operand *ret_operand);
void ptx_operand_done(struct ptx_operand *operand);

/*
 * Use an operand: as a source of a type (exact in width unless widening, when the
 * register may be wider), or as a destination. Checks that register and
 * instruction types agree.
 */
int ptx_operand_source(struct ptx_parser *p, const struct ptx_operand *operand, enum ptx_type type,
                       bool widening, int32_t *ret_ref);
int ptx_operand_destination(struct ptx_parser *p, const struct ptx_operand *operand,
                            enum ptx_type type, bool widening, int32_t *ret_reg);

/* [address]: base reference, offset and, when a variable is named, its space. */
struct ptx_address {
        int32_t base;
        int64_t offset;
        bool named;
        bool immediate;
        enum ptx_space space;
};
int ptx_address_parse(struct ptx_parser *p, struct ptx_address *ret_address);

/* call: the target's body is put in place (ptx_parse.c). */
int ptx_parse_call(struct ptx_parser *p, const struct ptx_insn *guard);
