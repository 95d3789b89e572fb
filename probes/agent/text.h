/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A growing piece of text. The first failure sticks: check once, at the end. */
#include <stdbool.h>
#include <stddef.h>

struct text {
        char *bytes; /* NUL-terminated once anything was added */
        size_t size; /* without the NUL */
        size_t room;
        bool failed; /* out of memory, or more than TEXT_MAX */
};

#define TEXT_MAX ((size_t)1 << 30)

void text_add(struct text *t, const char *bytes, size_t size);
void text_print(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_done(struct text *t);
