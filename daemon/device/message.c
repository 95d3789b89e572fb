/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_abi.h"
#include "device/message.h"
#include "util/macro.h"

#define WIDTH_MAX 64 /* of a conversion, and its precision */
#define SPEC_MAX  32

struct message {
        char *format;
        unsigned arguments;
};

struct messages {
        struct message list[MESSAGES_MAX];
        size_t count;
};

/* One conversion of a format. */
struct conversion {
        size_t bytes;        /* of its text, from the % on */
        char kind;           /* d i u x X o c, or % */
        bool wide;           /* 64 bits */
        char spec[SPEC_MAX]; /* for printf, with ll where it is a number */
};

static size_t count_digits(const char *text, unsigned *ret_number)
{
        size_t n = 0;

        *ret_number = 0;
        while (isdigit((unsigned char)text[n]) && n < 4)
                *ret_number = 10 * *ret_number + (unsigned)(text[n++] - '0');
        return n;
}

/* Flags, width and precision, from behind the %. False: too wide. */
static bool read_shape(const char *text, size_t *ret_bytes)
{
        size_t n = strspn(text, "-+ #0");
        unsigned width, precision = 0;

        n += count_digits(text + n, &width);
        if (text[n] == '.') {
                n++;
                n += count_digits(text + n, &precision);
        }
        *ret_bytes = n;
        return n < SPEC_MAX - 8 && width <= WIDTH_MAX && precision <= WIDTH_MAX;
}

/* Read the conversion at a %. Returns a phrase that says what is wrong, NULL nothing. */
static const char *read_conversion(const char *text, struct conversion *ret)
{
        size_t shape, length;

        if (!read_shape(text + 1, &shape))
                return "a conversion of a message is too wide";
        length = strspn(text + 1 + shape, "l");
        ret->kind = text[1 + shape + length];
        ret->wide = length > 0;
        ret->bytes = 2 + shape + length;
        if (ret->kind == 's')
                return "a message with %s: there are no strings on a GPU, only numbers";
        if (ret->kind == 'p')
                return "a message with %p: an address means nothing outside the GPU; print a "
                       "number with %llx";
        if (length > 2 || !ret->kind || !strchr("diuxXoc%", ret->kind) ||
            (ret->kind == '%' && ret->bytes != 2))
                return "a message with a conversion that is not one of d i u x X o c";
        snprintf(ret->spec, sizeof(ret->spec), "%%%.*s%s%c", (int)shape, text + 1,
                 ret->kind == 'c' ? "" : "ll", ret->kind);
        return NULL;
}

static const char *check_format(const char *format, unsigned *ret_arguments)
{
        unsigned arguments = 0;

        for (const char *p = format; *p;) {
                struct conversion c;
                const char *wrong;

                if (*p != '%') {
                        p++;
                        continue;
                }
                wrong = read_conversion(p, &c);
                if (wrong)
                        return wrong;
                arguments += c.kind != '%';
                p += c.bytes;
        }
        *ret_arguments = arguments;
        return arguments > DEVICE_PRINT_ARGUMENTS ? "a message with too many arguments" : NULL;
}

struct messages *messages_new(void)
{
        return calloc(1, sizeof(struct messages));
}

struct messages *messages_free(struct messages *m)
{
        if (!m)
                return NULL;
        for (size_t i = 0; i < m->count; i++)
                free(m->list[i].format);
        free(m);
        return NULL;
}

size_t messages_count(const struct messages *m)
{
        return m->count;
}

static bool is_text(const char *format, size_t bytes)
{
        return bytes && memchr(format, 0, bytes) == format + bytes - 1;
}

static int fail(const char *phrase, char *reason, size_t size)
{
        snprintf(reason, size, "%s", phrase);
        return -EINVAL;
}

static const struct message *find(const struct messages *m, const char *format)
{
        for (size_t i = 0; i < m->count; i++)
                if (!strcmp(m->list[i].format, format))
                        return &m->list[i];
        return NULL;
}

int messages_add(struct messages *m, const char *format, size_t bytes, char *reason,
                 size_t reason_size, unsigned *ret_number, unsigned *ret_arguments)
{
        const struct message *known;
        const char *wrong;
        unsigned arguments;

        if (!is_text(format, bytes) || bytes > MESSAGE_BYTES_MAX)
                return fail("the format of a message is no text, or too long", reason, reason_size);
        known = find(m, format);
        if (!known) {
                wrong = check_format(format, &arguments);
                if (!wrong && m->count == MESSAGES_MAX)
                        wrong = "more different messages than an object may have";
                if (wrong)
                        return fail(wrong, reason, reason_size);
                m->list[m->count] = (struct message){strdup(format), arguments};
                if (!m->list[m->count].format)
                        return -ENOMEM;
                known = &m->list[m->count++];
        }
        *ret_number = (unsigned)(known - m->list);
        *ret_arguments = known->arguments;
        return 0;
}

unsigned messages_find(const struct messages *m, const char *format, size_t bytes,
                       unsigned *ret_arguments)
{
        const struct message *known = is_text(format, bytes) ? find(m, format) : NULL;

        *ret_arguments = known ? known->arguments : 0;
        return known ? (unsigned)(known - m->list) : 0;
}

/* Text */

struct output {
        char *text;
        size_t size, used;
};

static void put(struct output *o, char c)
{
        if (o->used + 1 < o->size)
                o->text[o->used++] = (unsigned char)c < ' ' || c == 0x7f ? ' ' : c;
}

static void put_number(struct output *o, const struct conversion *c, uint64_t value)
{
        char text[2 * WIDTH_MAX + 32];
        bool is_signed = c->kind == 'd' || c->kind == 'i';

        if (c->kind == 'c')
                snprintf(text, sizeof(text), c->spec, (int)(value & 0x7f));
        else if (!c->wide && is_signed)
                snprintf(text, sizeof(text), c->spec, (long long)(int32_t)value);
        else
                snprintf(text, sizeof(text), c->spec,
                         c->wide ? (unsigned long long)value : (unsigned long long)(uint32_t)value);
        for (const char *p = text; *p; p++)
                put(o, *p);
}

int messages_print(const struct messages *m, unsigned number, const void *arguments, size_t count,
                   char *ret_text, size_t size)
{
        const uint64_t *next = arguments;
        struct output o = {ret_text, size, 0};
        struct conversion c;

        if (number >= m->count || m->list[number].arguments != count || !size)
                return -EINVAL;
        for (const char *p = m->list[number].format; *p;) {
                if (*p != '%' || read_conversion(p, &c)) {
                        put(&o, *p++);
                        continue;
                }
                if (c.kind == '%')
                        put(&o, '%');
                else
                        put_number(&o, &c, *next++);
                p += c.bytes;
        }
        while (o.used && o.text[o.used - 1] == ' ')
                o.used--;
        o.text[o.used] = 0;
        return 0;
}
