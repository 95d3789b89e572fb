/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ptx_dialect.h"
#include "text.h"

/* An instruction, or its beginning, and how to say it where it is not known. */
struct wording {
        unsigned version, target; /* first that know it */
        const char *words;
        const char *older;
        const char *last_operand; /* that the older one has in addition, or NULL */
};

static const struct wording wordings[] = {
        /* Atomics without a scope have that of the GPU. */
        {50, 60, "atom.global.gpu.", "atom.global.", NULL},
        {50, 60, "red.global.gpu.", "red.global.", NULL},
        /* A volatile access is a relaxed one at the scope of the system. */
        {60, 70, "ld.relaxed.gpu.", "ld.volatile.", NULL},
        {60, 70, "ld.relaxed.sys.", "ld.volatile.", NULL},
        {62, 30, "activemask.b32 ", "vote.ballot.b32 ", ", 1"},
};
#define WORDINGS (sizeof(wordings) / sizeof(wordings[0]))

static bool knows(const struct ptx_dialect *d, const struct wording *w)
{
        return (!d->version || d->version >= w->version) && (!d->target || d->target >= w->target);
}

bool ptx_dialect_is_old(const struct ptx_dialect *d)
{
        for (size_t i = 0; i < WORDINGS; i++)
                if (!knows(d, &wordings[i]))
                        return true;
        return false;
}

static const struct wording *find(const struct ptx_dialect *d, const char *at)
{
        for (size_t i = 0; i < WORDINGS; i++)
                if (!knows(d, &wordings[i]) &&
                    strncmp(at, wordings[i].words, strlen(wordings[i].words)) == 0)
                        return &wordings[i];
        return NULL;
}

/* Put the older wording in; where the text behind what it replaced starts. */
static const char *put(struct text *out, const struct wording *w, const char *at)
{
        const char *rest = at + strlen(w->words), *end = strchr(rest, ';');

        text_add(out, w->older, strlen(w->older));
        if (!w->last_operand || !end)
                return rest;
        text_add(out, rest, (size_t)(end - rest));
        text_add(out, w->last_operand, strlen(w->last_operand));
        return end;
}

char *ptx_dialect_lower(const struct ptx_dialect *d, const char *fragment)
{
        const char *start = fragment, *at = fragment;
        struct text out = {0};

        while (*at) {
                /* An instruction follows a blank, a brace, a semicolon: never a word. */
                bool begins = at == fragment || !isalnum((unsigned char)at[-1]);
                const struct wording *w = begins ? find(d, at) : NULL;

                if (!w) {
                        at++;
                        continue;
                }
                text_add(&out, start, (size_t)(at - start));
                start = at = put(&out, w, at);
        }
        text_add(&out, start, (size_t)(at - start));
        if (out.failed) {
                text_done(&out);
                return NULL;
        }
        return out.bytes;
}
