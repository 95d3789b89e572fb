/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the functions of PTX text reach, from the words they are made of: a function
 * whose body names a variable of the module, or another function, may reach it. Names
 * of registers and labels that happen to be the same only make it refuse more.
 */
#include <errno.h>
#include <string.h>

#include "image_state.h"
#include "ptx_lex.h"

struct reader {
        struct ptx_lexer lexer;
        struct ptx_token token;
        struct image_state *state;
};

static void advance(struct reader *r)
{
        r->token = ptx_next(&r->lexer);
}

static bool at(const struct reader *r, const char *word)
{
        return ptx_is(&r->lexer, &r->token, word);
}

static bool at_end(const struct reader *r)
{
        return r->token.kind == PTX_END || r->token.kind == PTX_BAD;
}

static const char *text_of(const struct reader *r)
{
        return r->lexer.text + r->token.start;
}

/* A word that can name something: no directive, number or register. */
static bool at_name(const struct reader *r)
{
        char c = r->token.kind == PTX_WORD ? *text_of(r) : '.';

        return c != '.' && c != '%' && (c < '0' || c > '9');
}

static int named(struct reader *r)
{
        return image_state_function(r->state, text_of(r), r->token.size);
}

/* From an opening bracket to behind its closing one. */
static void skip_brackets(struct reader *r, const char *open, const char *close)
{
        int depth = 0;

        do {
                depth += at(r, open) ? 1 : at(r, close) ? -1 : 0;
                advance(r);
        } while (depth > 0 && !at_end(r));
}

/* Names in a declaration stand before "=" or "[", or end it. A variable is a node that is state. */
static int take_variable(struct reader *r)
{
        int variable;

        if (image_state_is_literal(text_of(r), r->token.size))
                return 0;
        variable = named(r);
        return variable < 0
                       ? variable
                       : image_state_reaches(r->state, variable, "uses the module's variable %.*s",
                                             r->token.size < 80 ? (int)r->token.size : 80,
                                             text_of(r));
}

static int read_variables(struct reader *r)
{
        int error = 0;

        while (!error && !at_end(r) && !at(r, ";")) {
                if (at(r, "("))
                        skip_brackets(r, "(", ")");
                else if (at(r, "["))
                        skip_brackets(r, "[", "]");
                else if (at(r, "{"))
                        skip_brackets(r, "{", "}");
                else if (at(r, "=")) {
                        advance(r);
                        if (!at(r, "{"))
                                advance(r);
                } else {
                        if (at_name(r))
                                error = take_variable(r);
                        advance(r);
                }
        }
        return error;
}

static int read_body(struct reader *r, int function)
{
        int depth = 0, error = 0;

        do {
                if (at(r, "{"))
                        depth++;
                else if (at(r, "}"))
                        depth--;
                else if (at_name(r)) {
                        int other = named(r);

                        error = other < 0 ? other : image_state_calls(r->state, function, other);
                }
                advance(r);
        } while (!error && depth > 0 && !at_end(r));
        return error;
}

/* A function that is only declared is the driver's, or of another image. */
static int read_declared(struct reader *r, int function, const char *name, size_t length)
{
        if (image_state_is_builtin(name, length))
                return 0;
        return image_state_reaches(r->state, function, "uses %.*s, which is not in the image",
                                   length < 80 ? (int)length : 80, name);
}

static int read_function(struct reader *r)
{
        const char *name;
        size_t length;
        int function;

        advance(r);
        if (at(r, "("))
                skip_brackets(r, "(", ")"); /* what it returns */
        if (!at_name(r))
                return -EINVAL;
        name = text_of(r);
        length = r->token.size;
        function = named(r);
        if (function < 0)
                return function;
        while (!at_end(r) && !at(r, "{") && !at(r, ";"))
                advance(r);
        return at(r, "{") ? read_body(r, function) : read_declared(r, function, name, length);
}

int image_state_add_ptx(struct image_state *s, const char *text, size_t size)
{
        struct reader r = {.lexer = {.text = text, .size = size}, .state = s};
        int error = 0;

        advance(&r);
        while (!error && !at_end(&r)) {
                if (at(&r, ".entry") || at(&r, ".func"))
                        error = read_function(&r);
                else if (at(&r, ".global") || at(&r, ".const") || at(&r, ".tex"))
                        error = read_variables(&r);
                else if (at(&r, "{"))
                        skip_brackets(&r, "{", "}");
                else
                        advance(&r);
        }
        return error ? error : r.token.kind == PTX_BAD ? -EINVAL : 0;
}
