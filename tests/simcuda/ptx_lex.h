/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Splits PTX text into tokens that point into it. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ptx_token_kind {
        PTX_TOKEN_END,
        PTX_TOKEN_WORD,   /* identifier or opcode, with its leading % */
        PTX_TOKEN_DOT,    /* .name; text and length are without the dot */
        PTX_TOKEN_INT,    /* value */
        PTX_TOKEN_F32,    /* value: the bits of a float written as 0f… */
        PTX_TOKEN_F64,    /* value: the bits of a double written as 0d… or in decimal */
        PTX_TOKEN_STRING, /* without the quotes */
        PTX_TOKEN_PUNCT,  /* one character, in punct */
};

struct ptx_token {
        enum ptx_token_kind kind;
        uint32_t line;
        uint32_t length;
        char punct;
        const char *text;
        uint64_t value;
};

/*
 * Tokens of a text, ended by one of kind END; the caller frees them. A NUL ends
 * the text. 0, -ENOMEM, or -EINVAL with the line of the offending character.
 */
int ptx_lex(const char *text, size_t bytes, struct ptx_token **ret_tokens, size_t *ret_count,
            uint32_t *ret_bad_line);

/* Whether a token's text is this word. */
bool ptx_token_is(const struct ptx_token *token, const char *word);
