/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>

#include "device/text.h"

static bool text_reserve(struct text *t, size_t more)
{
        size_t capacity = t->capacity ? t->capacity : 1024;
        char *data;

        while (capacity < t->size + more + 1)
                capacity *= 2;
        if (capacity == t->capacity)
                return true;
        data = realloc(t->data, capacity);
        if (!data)
                return false;
        t->data = data;
        t->capacity = capacity;
        return true;
}

void text_add(struct text *t, const char *format, ...)
{
        va_list args;
        int n;

        if (t->failed)
                return;
        va_start(args, format);
        n = vsnprintf(NULL, 0, format, args);
        va_end(args);
        if (n < 0 || !text_reserve(t, (size_t)n)) {
                t->failed = true;
                return;
        }
        va_start(args, format);
        vsnprintf(t->data + t->size, (size_t)n + 1, format, args);
        va_end(args);
        t->size += (size_t)n;
}

void text_done(struct text *t)
{
        free(t->data);
        *t = (struct text){};
}
