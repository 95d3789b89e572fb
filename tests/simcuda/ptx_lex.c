/* SPDX-License-Identifier: Apache-2.0 */
#include "ptx_lex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
        const char *at;
        const char *end;
        uint32_t line;
        struct ptx_token *tokens;
        size_t count;
        size_t capacity;
};

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

static bool is_word_start(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%';
}

static bool is_word(char c)
{
        return (is_word_start(c) && c != '%') || is_digit(c);
}

static int hex_value(char c)
{
        if (is_digit(c))
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

static char peek(const struct lexer *lex, size_t ahead)
{
        return lex->at + ahead < lex->end ? lex->at[ahead] : '\0';
}

static struct ptx_token *add(struct lexer *lex, enum ptx_token_kind kind)
{
        if (lex->count == lex->capacity) {
                size_t capacity = lex->capacity ? 2 * lex->capacity : 256;
                struct ptx_token *tokens = realloc(lex->tokens, capacity * sizeof(*lex->tokens));

                if (!tokens)
                        return NULL;
                lex->tokens = tokens;
                lex->capacity = capacity;
        }
        lex->tokens[lex->count] =
                (struct ptx_token){.kind = kind, .line = lex->line, .text = lex->at};
        return &lex->tokens[lex->count++];
}

/* Spaces and comments; -EINVAL for a comment that never ends. */
static int skip_blank(struct lexer *lex)
{
        while (lex->at < lex->end && *lex->at) {
                char c = *lex->at;

                if ((unsigned char)c >= 0x80)
                        return -EINVAL; /* not in comments either */

                if (c == '\n') {
                        lex->line++;
                        lex->at++;
                } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
                        lex->at++;
                } else if (c == '/' && peek(lex, 1) == '/') {
                        while (lex->at<lex->end && * lex->at> 0 && *lex->at != '\n')
                                lex->at++;
                } else if (c == '/' && peek(lex, 1) == '*') {
                        lex->at += 2;
                        while (!(peek(lex, 0) == '*' && peek(lex, 1) == '/')) {
                                if (lex->at >= lex->end || *lex->at <= 0)
                                        return -EINVAL;
                                lex->line += *lex->at++ == '\n';
                        }
                        lex->at += 2;
                } else {
                        break;
                }
        }
        return 0;
}

/* 0f or 0d and exactly `digits` hexadecimal digits. */
static int lex_float_bits(struct lexer *lex, enum ptx_token_kind kind, unsigned digits)
{
        struct ptx_token *token = add(lex, kind);

        if (!token)
                return -ENOMEM;
        lex->at += 2;
        for (unsigned i = 0; i < digits; i++) {
                int v = hex_value(peek(lex, 0));

                if (v < 0)
                        return -EINVAL;
                token->value = token->value << 4 | (uint64_t)v;
                lex->at++;
        }
        return is_word(peek(lex, 0)) ? -EINVAL : 0;
}

static bool is_decimal_float(const struct lexer *lex)
{
        size_t i = 0;

        while (is_digit(peek(lex, i)))
                i++;
        return peek(lex, i) == '.' || peek(lex, i) == 'e' || peek(lex, i) == 'E';
}

static int lex_decimal_float(struct lexer *lex)
{
        struct ptx_token *token = add(lex, PTX_TOKEN_F64);
        char copy[64], *stop;
        size_t n = 0;
        double value;

        if (!token)
                return -ENOMEM;
        while (n < sizeof(copy) - 1 && (is_word(peek(lex, n)) || peek(lex, n) == '.' ||
                                        (n && (peek(lex, n) == '-' || peek(lex, n) == '+') &&
                                         (copy[n - 1] == 'e' || copy[n - 1] == 'E')))) {
                copy[n] = peek(lex, n);
                n++;
        }
        copy[n] = '\0';
        value = strtod(copy, &stop);
        if (*stop)
                return -EINVAL;
        memcpy(&token->value, &value, sizeof(value));
        lex->at += n;
        return 0;
}

static int lex_integer(struct lexer *lex)
{
        struct ptx_token *token = add(lex, PTX_TOKEN_INT);
        unsigned base = 10, digits = 0;

        if (!token)
                return -ENOMEM;
        if (peek(lex, 0) == '0' && (peek(lex, 1) == 'x' || peek(lex, 1) == 'X')) {
                base = 16;
                lex->at += 2;
        } else if (peek(lex, 0) == '0' && (peek(lex, 1) == 'b' || peek(lex, 1) == 'B')) {
                base = 2;
                lex->at += 2;
        } else if (peek(lex, 0) == '0') {
                base = 8;
        }
        for (;; lex->at++, digits++) {
                int v = hex_value(peek(lex, 0));

                if (v < 0)
                        break;
                if ((unsigned)v >= base || token->value > (UINT64_MAX - (uint64_t)v) / base)
                        return -EINVAL;
                token->value = token->value * base + (uint64_t)v;
        }
        if (digits == 0)
                return -EINVAL;
        if (peek(lex, 0) == 'U')
                lex->at++;
        return is_word(peek(lex, 0)) ? -EINVAL : 0;
}

static int lex_number(struct lexer *lex)
{
        if (peek(lex, 0) == '0' && (peek(lex, 1) == 'f' || peek(lex, 1) == 'F'))
                return lex_float_bits(lex, PTX_TOKEN_F32, 8);
        if (peek(lex, 0) == '0' && (peek(lex, 1) == 'd' || peek(lex, 1) == 'D'))
                return lex_float_bits(lex, PTX_TOKEN_F64, 16);
        if (is_decimal_float(lex))
                return lex_decimal_float(lex);
        return lex_integer(lex);
}

static int lex_word(struct lexer *lex)
{
        struct ptx_token *token = add(lex, PTX_TOKEN_WORD);

        if (!token)
                return -ENOMEM;
        do {
                lex->at++;
        } while (is_word(peek(lex, 0)));
        token->length = (uint32_t)(lex->at - token->text);
        return token->length == 1 && *token->text == '%' ? -EINVAL : 0;
}

static int lex_dot(struct lexer *lex)
{
        struct ptx_token *token = add(lex, PTX_TOKEN_DOT);

        if (!token)
                return -ENOMEM;
        token->text = ++lex->at;
        while (is_word(peek(lex, 0)) || (peek(lex, 0) == ':' && peek(lex, 1) == ':'))
                lex->at += peek(lex, 0) == ':' ? 2 : 1;
        token->length = (uint32_t)(lex->at - token->text);
        return token->length ? 0 : -EINVAL;
}

static int lex_string(struct lexer *lex)
{
        struct ptx_token *token = add(lex, PTX_TOKEN_STRING);

        if (!token)
                return -ENOMEM;
        token->text = ++lex->at;
        while (peek(lex, 0) != '"') {
                if (lex->at >= lex->end || !*lex->at || *lex->at == '\n')
                        return -EINVAL;
                lex->at++;
        }
        token->length = (uint32_t)(lex->at++ - token->text);
        return 0;
}

static int lex_punct(struct lexer *lex)
{
        struct ptx_token *token;

        if (!strchr("{}[]()<>,;:=+-*/&|^~!@?", *lex->at))
                return -EINVAL;
        token = add(lex, PTX_TOKEN_PUNCT);
        if (!token)
                return -ENOMEM;
        token->punct = *lex->at++;
        token->length = 1;
        return 0;
}

static int lex_one(struct lexer *lex)
{
        char c = *lex->at;

        if (is_digit(c))
                return lex_number(lex);
        if (is_word_start(c))
                return lex_word(lex);
        if (c == '.')
                return lex_dot(lex);
        if (c == '"')
                return lex_string(lex);
        return lex_punct(lex);
}

int ptx_lex(const char *text, size_t bytes, struct ptx_token **ret_tokens, size_t *ret_count,
            uint32_t *ret_bad_line)
{
        struct lexer lex = {.at = text, .end = text + bytes, .line = 1};
        int r;

        for (;;) {
                r = skip_blank(&lex);
                if (r < 0 || lex.at >= lex.end || !*lex.at)
                        break;
                r = lex_one(&lex);
                if (r < 0)
                        break;
        }
        if (r == 0 && !add(&lex, PTX_TOKEN_END))
                r = -ENOMEM;
        if (r < 0) {
                free(lex.tokens);
                *ret_bad_line = lex.line;
                return r;
        }
        *ret_tokens = lex.tokens;
        *ret_count = lex.count;
        return 0;
}

bool ptx_token_is(const struct ptx_token *token, const char *word)
{
        return strlen(word) == token->length && memcmp(word, token->text, token->length) == 0;
}
