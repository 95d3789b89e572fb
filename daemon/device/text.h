/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A growing string with a sticky out-of-memory flag: append freely, check once. */
#include <stdbool.h>
#include <stddef.h>

#include "util/macro.h"

struct text {
        char *data;  /* NUL-terminated once something was added */
        size_t size; /* without the NUL */
        size_t capacity;
        bool failed;
};

void text_add(struct text *t, const char *format, ...) _printf_(2, 3);

/* Free what the text holds; the struct itself belongs to the caller. */
void text_done(struct text *t);
