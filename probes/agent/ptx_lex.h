/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Cuts PTX text into tokens. Comments and white space separate tokens and are
 * not reported; a token knows whether a line break came before it, because a
 * few directives (.version, .loc, ...) end with their line.
 */
#include <stdbool.h>
#include <stddef.h>

enum ptx_token_kind {
        PTX_END = 0,
        PTX_WORD,   /* identifier, opcode, directive, register or number, with its dots and "::" */
        PTX_STRING, /* with its quotes */
        PTX_PUNCTUATION, /* one character */
        PTX_BAD,         /* an unfinished comment or string, or a NUL */
};

struct ptx_token {
        enum ptx_token_kind kind;
        size_t start; /* offset in the text */
        size_t size;
        bool new_line; /* first on its line */
};

struct ptx_lexer {
        const char *text;
        size_t size;
        size_t at;
};

/* The next token; at the end of the text PTX_END again and again. */
struct ptx_token ptx_next(struct ptx_lexer *lexer);

/* Is the token exactly this text? */
bool ptx_is(const struct ptx_lexer *lexer, const struct ptx_token *token, const char *word);

/* Does the token start with this text? */
bool ptx_starts(const struct ptx_lexer *lexer, const struct ptx_token *token, const char *prefix);
