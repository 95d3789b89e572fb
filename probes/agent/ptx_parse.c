/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"
#include "ptx_parse.h"

struct parser {
        struct ptx_lexer lexer;
        struct ptx_token token; /* the current one */
        size_t statement_end;   /* behind the semicolon of the last statement skipped */
        struct ptx_registers registers;
        struct ptx_module module;
        const char *reason;
        int error;
};

static bool fail(struct parser *p, int error, const char *reason)
{
        if (!p->error) {
                p->error = error;
                p->reason = reason;
        }
        return false;
}

static void advance(struct parser *p)
{
        p->token = ptx_next(&p->lexer);
        if (p->token.kind == PTX_BAD)
                fail(p, -EINVAL, "the PTX has an unfinished comment or string");
}

static bool is(const struct parser *p, const char *word)
{
        return p->token.kind != PTX_STRING && ptx_is(&p->lexer, &p->token, word);
}

static bool at_end(const struct parser *p)
{
        return p->error || p->token.kind == PTX_END;
}

/* Is this opcode the word itself or the word with modifiers? */
static bool opcode_is(const struct parser *p, const char *word)
{
        size_t n = strlen(word);

        return p->token.kind == PTX_WORD && ptx_starts(&p->lexer, &p->token, word) &&
               (p->token.size == n || p->lexer.text[p->token.start + n] == '.');
}

static void skip_line(struct parser *p)
{
        do
                advance(p);
        while (!at_end(p) && !p->token.new_line);
}

/* From an opening brace to behind its closing one. */
static bool skip_braces(struct parser *p)
{
        size_t depth = 0;

        while (!at_end(p)) {
                depth += is(p, "{");
                if (is(p, "}") && --depth == 0) {
                        advance(p);
                        return !p->error;
                }
                advance(p);
        }
        return fail(p, -EINVAL, "the PTX has an unclosed brace");
}

/* To behind the semicolon of a statement; braces within are operands or initialisers. */
static bool skip_statement(struct parser *p)
{
        while (!at_end(p)) {
                if (is(p, ";")) {
                        p->statement_end = p->token.start + 1;
                        advance(p);
                        return !p->error;
                }
                if (is(p, "}"))
                        break;
                if (is(p, "{")) {
                        if (!skip_braces(p))
                                return false;
                } else {
                        advance(p);
                }
        }
        return fail(p, -EINVAL, "the PTX has a statement without an end");
}

static bool grow(struct parser *p, void **array, size_t count, size_t size)
{
        void *bigger;

        /* Doubles at powers of two, so that no separate capacity is kept. */
        if (count && (count & (count - 1)))
                return true;
        bigger = reallocarray(*array, count ? count * 2 : 1, size);
        if (!bigger)
                return fail(p, -ENOMEM, "out of memory");
        *array = bigger;
        return true;
}

static bool add_end(struct parser *p, struct ptx_entry *e, const struct ptx_end *end)
{
        if (!grow(p, (void **)&e->ends, e->end_count, sizeof(*end)))
                return false;
        e->ends[e->end_count++] = *end;
        return true;
}

/* What a statement in a body was, as far as it matters to what follows. */
enum statement {
        STATEMENT_DECLARATION, /* the entry probe goes behind these */
        STATEMENT_NOTHING,     /* .loc and the like */
        STATEMENT_OTHER,
        STATEMENT_LEAVES, /* control does not go on to the next statement */
};

static enum statement parse_directive(struct parser *p, size_t depth)
{
        static const char *const declarations[] = {".reg", ".local", ".shared", ".param"};

        if (is(p, ".reg") && !ptx_registers_add(&p->registers, p->lexer, depth))
                fail(p, -ENOMEM, "out of memory");
        if (is(p, ".loc") || is(p, ".file")) {
                skip_line(p);
                return STATEMENT_NOTHING;
        }
        for (size_t i = 0; i < sizeof(declarations) / sizeof(declarations[0]); i++)
                if (opcode_is(p, declarations[i])) {
                        skip_statement(p);
                        return STATEMENT_DECLARATION;
                }
        skip_statement(p);
        return STATEMENT_OTHER;
}

static bool parse_predicate(struct parser *p, struct ptx_end *end)
{
        end->predicated = true;
        advance(p);
        if (is(p, "!")) {
                end->negated = true;
                advance(p);
        }
        if (p->token.kind != PTX_WORD)
                return fail(p, -EINVAL, "the PTX has a predicate without a register");
        end->predicate = p->token.start;
        end->predicate_bytes = p->token.size;
        advance(p);
        if (p->token.kind != PTX_WORD)
                return fail(p, -EINVAL, "the PTX has a predicate without an instruction");
        return true;
}

/* Whether the instruction at the current token accesses memory; `end` is its statement. */
static void note_access(struct parser *p, struct ptx_entry *e, const struct ptx_end *end)
{
        struct ptx_place place = {.start = end->start,
                                  .predicated = end->predicated,
                                  .negated = end->negated,
                                  .predicate = end->predicate,
                                  .predicate_bytes = end->predicate_bytes};
        enum ptx_access_class class =
                ptx_access_read(p->lexer, &p->token, &p->registers, &place.access);

        if (class == PTX_ACCESS_NONE)
                return;
        if (!e)
                p->module.function_accesses = true;
        else if (class == PTX_ACCESS_OTHER)
                e->other_accesses++;
        else if (grow(p, (void **)&e->places, e->place_count, sizeof(place)))
                e->places[e->place_count++] = place;
}

/* An instruction; e is NULL in a .func. */
static enum statement parse_instruction(struct parser *p, struct ptx_entry *e)
{
        struct ptx_end end = {.start = p->token.start};
        bool is_exit, is_ret, leaves;

        if (is(p, "@") && !parse_predicate(p, &end))
                return STATEMENT_OTHER;
        if (p->token.kind != PTX_WORD) {
                fail(p, -EINVAL, "the PTX has something that is not a statement");
                return STATEMENT_OTHER;
        }
        is_exit = opcode_is(p, "exit");
        is_ret = opcode_is(p, "ret");
        leaves = is_exit || is_ret || opcode_is(p, "bra") || opcode_is(p, "trap") ||
                 opcode_is(p, "brx");
        end.instruction = p->token.start;
        note_access(p, e, &end);
        if (is_exit && !e)
                p->module.function_exits = true;
        if (is_exit || is_ret) {
                advance(p);
                if (!is(p, ";"))
                        fail(p, -EINVAL, "the PTX has a ret or exit with operands");
        }
        if (!skip_statement(p))
                return STATEMENT_OTHER;
        if (e && (is_exit || is_ret)) {
                end.end = p->statement_end;
                add_end(p, e, &end);
        }
        return leaves && !end.predicated ? STATEMENT_LEAVES : STATEMENT_OTHER;
}

/* A label: its word is the current token and a colon follows. */
static bool take_label(struct parser *p)
{
        struct ptx_lexer saved_lexer = p->lexer;
        struct ptx_token saved = p->token;

        if (p->token.kind != PTX_WORD)
                return false;
        advance(p);
        if (is(p, ":")) {
                advance(p);
                return true;
        }
        p->lexer = saved_lexer;
        p->token = saved;
        return false;
}

static enum statement parse_statement(struct parser *p, struct ptx_entry *e, size_t depth)
{
        if (is(p, ";")) {
                advance(p);
                return STATEMENT_OTHER;
        }
        if (take_label(p))
                return STATEMENT_OTHER;
        if (p->token.kind == PTX_WORD && ptx_starts(&p->lexer, &p->token, "."))
                return parse_directive(p, depth);
        return parse_instruction(p, e);
}

/* A body; the current token is its opening brace. e is NULL for a .func. */
static bool parse_body(struct parser *p, struct ptx_entry *e)
{
        size_t depth = 1, body = p->token.start + 1, close = 0;
        bool declaring = true, falls_off = true;

        advance(p);
        while (!at_end(p) && depth) {
                if (is(p, "{")) {
                        declaring = false;
                        falls_off = true;
                        depth++;
                        advance(p);
                } else if (is(p, "}")) {
                        close = p->token.start;
                        depth--;
                        ptx_registers_leave(&p->registers, depth);
                        advance(p);
                } else {
                        enum statement s = parse_statement(p, e, depth);

                        if (s == STATEMENT_DECLARATION && declaring && !at_end(p))
                                body = p->token.start;
                        declaring &= s == STATEMENT_DECLARATION || s == STATEMENT_NOTHING;
                        if (s != STATEMENT_NOTHING && s != STATEMENT_DECLARATION)
                                falls_off = s != STATEMENT_LEAVES;
                }
        }
        if (depth)
                return fail(p, -EINVAL, "the PTX has an unclosed body");
        if (e) {
                e->body = body;
                e->close = close;
                e->falls_off = falls_off;
        }
        return !p->error;
}

/* Parameters and directives between a name and its body; false at a mere declaration. */
static bool find_body(struct parser *p)
{
        size_t parentheses = 0;

        while (!at_end(p)) {
                if (!parentheses && is(p, "{"))
                        return true;
                if (!parentheses && is(p, ";")) {
                        advance(p);
                        return false;
                }
                if (is(p, "}")) {
                        fail(p, -EINVAL, "the PTX closes a brace that was not opened");
                        return false;
                }
                parentheses += is(p, "(");
                parentheses -= is(p, ")") && parentheses;
                advance(p);
        }
        fail(p, -EINVAL, "the PTX ends within a function's head");
        return false;
}

/*
 * The name of the first parameter: the last word that is no directive before its
 * dimensions, the next parameter or the end of the list. Reads ahead only.
 */
static void note_first_parameter(const struct parser *p, struct ptx_entry *e)
{
        struct ptx_lexer lexer = p->lexer;

        if (!is(p, "("))
                return;
        for (;;) {
                struct ptx_token t = ptx_next(&lexer);

                if (t.kind != PTX_WORD)
                        return;
                if (lexer.text[t.start] != '.') {
                        e->parameter = t.start;
                        e->parameter_bytes = t.size;
                }
        }
}

static void parse_entry(struct parser *p)
{
        struct ptx_module *m = &p->module;
        struct ptx_entry e = {0};

        advance(p);
        if (p->token.kind != PTX_WORD) {
                fail(p, -EINVAL, "the PTX has a kernel without a name");
                return;
        }
        e.name = p->token.start;
        e.name_bytes = p->token.size;
        advance(p);
        note_first_parameter(p, &e);
        if (!find_body(p))
                return;
        if (!parse_body(p, &e) || !grow(p, (void **)&m->entries, m->entry_count, sizeof(e))) {
                free(e.ends);
                free(e.places);
                return;
        }
        m->entries[m->entry_count++] = e;
}

static void parse_function(struct parser *p)
{
        advance(p);
        if (find_body(p))
                parse_body(p, NULL);
}

static void parse_address_size(struct parser *p)
{
        advance(p);
        p->module.bits32 = is(p, "32");
}

/* The number at *at, which is left behind it; digits that make no sense are left over. */
static unsigned parse_number(const struct parser *p, size_t *at, size_t end)
{
        unsigned n = 0;

        for (; *at < end && p->lexer.text[*at] >= '0' && p->lexer.text[*at] <= '9' && n < 1000;
             (*at)++)
                n = 10 * n + (unsigned)(p->lexer.text[*at] - '0');
        return n;
}

/* .version 8.0 */
static void parse_version(struct parser *p)
{
        size_t at, end;
        unsigned major;

        advance(p);
        at = p->token.start;
        end = at + p->token.size;
        major = parse_number(p, &at, end);
        if (p->token.kind == PTX_WORD && at < end && p->lexer.text[at] == '.') {
                at++;
                p->module.dialect.version = 10 * major + parse_number(p, &at, end);
        }
}

/* .target sm_90a, debug */
static void parse_target(struct parser *p)
{
        size_t at;

        advance(p);
        at = p->token.start + 3;
        if (p->token.kind == PTX_WORD && ptx_starts(&p->lexer, &p->token, "sm_"))
                p->module.dialect.target = parse_number(p, &at, p->token.start + p->token.size);
}

static void parse_module(struct parser *p)
{
        advance(p);
        while (!at_end(p)) {
                if (is(p, ".entry"))
                        parse_entry(p);
                else if (is(p, ".func"))
                        parse_function(p);
                else if (is(p, ".address_size"))
                        parse_address_size(p);
                else if (is(p, ".version"))
                        parse_version(p);
                else if (is(p, ".target"))
                        parse_target(p);
                else if (is(p, "@") || is(p, ".file") || is(p, ".loc"))
                        skip_line(p);
                else if (is(p, "{"))
                        skip_braces(p);
                else if (is(p, "}"))
                        fail(p, -EINVAL, "the PTX closes a brace that was not opened");
                else
                        advance(p);
        }
}

int ptx_parse(const char *text, size_t size, struct ptx_module *ret_module, const char **ret_reason)
{
        struct parser p = {.lexer = {.text = text, .size = size}};

        parse_module(&p);
        ptx_registers_done(&p.registers);
        if (p.error) {
                ptx_module_done(&p.module);
                if (ret_reason)
                        *ret_reason = p.reason;
                return p.error;
        }
        *ret_module = p.module;
        return 0;
}

void ptx_module_done(struct ptx_module *m)
{
        for (size_t i = 0; i < m->entry_count; i++) {
                free(m->entries[i].ends);
                free(m->entries[i].places);
        }
        free(m->entries);
        *m = (struct ptx_module){0};
}
