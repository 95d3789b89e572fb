/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

static bool reserve(struct text *t, size_t more)
{
        size_t want = t->size + more + 1, room = t->room ? t->room : 1024;
        char *bytes;

        if (t->failed || more > TEXT_MAX || want > TEXT_MAX) {
                t->failed = true;
                return false;
        }
        if (want <= t->room)
                return true;
        while (room < want)
                room *= 2;
        bytes = realloc(t->bytes, room);
        if (!bytes) {
                t->failed = true;
                return false;
        }
        t->bytes = bytes;
        t->room = room;
        return true;
}

void text_add(struct text *t, const char *bytes, size_t size)
{
        if (!reserve(t, size))
                return;
        if (size)
                memcpy(t->bytes + t->size, bytes, size);
        t->size += size;
        t->bytes[t->size] = '\0';
}

void text_print(struct text *t, const char *format, ...)
{
        char small[256];
        va_list args;
        int n;

        va_start(args, format);
        n = vsnprintf(small, sizeof(small), format, args);
        va_end(args);
        if (n < 0 || (size_t)n >= sizeof(small))
                t->failed = true;
        else
                text_add(t, small, (size_t)n);
}

void text_done(struct text *t)
{
        free(t->bytes);
        *t = (struct text){0};
}
