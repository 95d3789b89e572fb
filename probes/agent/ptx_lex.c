/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "ptx_lex.h"

static bool word_char(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '$' || c == '%' || c == '.';
}

static bool at(const struct ptx_lexer *l, size_t i, const char *two)
{
        return i + 1 < l->size && l->text[i] == two[0] && l->text[i + 1] == two[1];
}

/* Skip white space and comments. False when a comment has no end. */
static bool skip_blank(struct ptx_lexer *l, bool *new_line)
{
        while (l->at < l->size) {
                char c = l->text[l->at];

                if (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '\f' || c == '\v') {
                        *new_line |= c == '\n';
                        l->at++;
                } else if (at(l, l->at, "//")) {
                        while (l->at < l->size && l->text[l->at] != '\n')
                                l->at++;
                } else if (at(l, l->at, "/*")) {
                        l->at += 2;
                        while (l->at < l->size && !at(l, l->at, "*/"))
                                l->at++;
                        if (l->at >= l->size)
                                return false;
                        l->at += 2;
                } else {
                        return true;
                }
        }
        return true;
}

static enum ptx_token_kind take_string(struct ptx_lexer *l)
{
        for (l->at++; l->at < l->size; l->at++) {
                if (l->text[l->at] == '\\')
                        l->at++;
                else if (l->text[l->at] == '"') {
                        l->at++;
                        return PTX_STRING;
                }
        }
        l->at = l->size;
        return PTX_BAD;
}

/* ".shared::cta" is one word; "label:" is a word and a colon. */
static enum ptx_token_kind take_word(struct ptx_lexer *l)
{
        while (l->at < l->size) {
                if (word_char(l->text[l->at]))
                        l->at++;
                else if (at(l, l->at, "::") && l->at + 2 < l->size && word_char(l->text[l->at + 2]))
                        l->at += 2;
                else
                        break;
        }
        return PTX_WORD;
}

struct ptx_token ptx_next(struct ptx_lexer *l)
{
        struct ptx_token t = {.new_line = l->at == 0};

        if (!skip_blank(l, &t.new_line)) {
                t.kind = PTX_BAD;
                t.start = l->size;
                return t;
        }
        t.start = l->at;
        if (l->at >= l->size) {
                t.kind = PTX_END;
        } else if (l->text[l->at] == '\0') {
                t.kind = PTX_BAD;
        } else if (l->text[l->at] == '"') {
                t.kind = take_string(l);
        } else if (word_char(l->text[l->at])) {
                t.kind = take_word(l);
        } else {
                l->at++;
                t.kind = PTX_PUNCTUATION;
        }
        t.size = l->at - t.start;
        return t;
}

bool ptx_is(const struct ptx_lexer *l, const struct ptx_token *t, const char *word)
{
        return t->size == strlen(word) && memcmp(l->text + t->start, word, t->size) == 0;
}

bool ptx_starts(const struct ptx_lexer *l, const struct ptx_token *t, const char *prefix)
{
        size_t n = strlen(prefix);

        return t->size >= n && memcmp(l->text + t->start, prefix, n) == 0;
}
