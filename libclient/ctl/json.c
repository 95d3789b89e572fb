/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <inttypes.h>
#include <stdio.h>

static void put_object(const struct schema_struct *s, const void *object);

void json_put_text(const char *text)
{
        putchar('"');
        for (const unsigned char *c = (const unsigned char *)text; c && *c; c++) {
                if (*c == '"' || *c == '\\')
                        printf("\\%c", *c);
                else if (*c < 0x20 || *c == 0x7f)
                        printf("\\u%04x", *c);
                else
                        putchar(*c);
        }
        putchar('"');
}

static void put_list(const struct schema_field *f, const void *object)
{
        const char *list = *(const char *const *)((const char *)object + f->offset);
        size_t n = *(const size_t *)((const char *)object + f->beside);

        putchar('[');
        for (size_t i = 0; i < n; i++) {
                if (i)
                        putchar(',');
                put_object(f->of, list + i * f->of->size);
        }
        putchar(']');
}

/* Base64, as JSON has no bytes. */
static void put_bytes(const struct schema_field *f, const void *object)
{
        static const char digits[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const unsigned char *b = *(const unsigned char *const *)((const char *)object + f->offset);
        size_t n = *(const size_t *)((const char *)object + f->beside);

        putchar('"');
        for (size_t i = 0; i < n; i += 3) {
                uint32_t three = (uint32_t)b[i] << 16 | (i + 1 < n ? (uint32_t)b[i + 1] << 8 : 0) |
                                 (i + 2 < n ? b[i + 2] : 0);

                putchar(digits[three >> 18]);
                putchar(digits[three >> 12 & 63]);
                putchar(i + 1 < n ? digits[three >> 6 & 63] : '=');
                putchar(i + 2 < n ? digits[three & 63] : '=');
        }
        putchar('"');
}

static void put_value(const struct schema_field *f, const void *object)
{
        const void *member = (const char *)object + f->offset;
        const uint32_t *dims = member;

        switch (f->kind) {
        case SCHEMA_u64:
                printf("%" PRIu64, *(const uint64_t *)member);
                break;
        case SCHEMA_u32:
                printf("%" PRIu32, *(const uint32_t *)member);
                break;
        case SCHEMA_i64:
                printf("%" PRId64, *(const int64_t *)member);
                break;
        case SCHEMA_flag:
                printf("%s", *(const bool *)member ? "true" : "false");
                break;
        case SCHEMA_text:
                json_put_text(*(const char *const *)member);
                break;
        case SCHEMA_bytes:
                put_bytes(f, object);
                break;
        case SCHEMA_dim3:
                printf("[%" PRIu32 ",%" PRIu32 ",%" PRIu32 "]", dims[0], dims[1], dims[2]);
                break;
        case SCHEMA_choice:
                json_put_text(schema_enum_text(f->of_name, *(const uint32_t *)member));
                break;
        case SCHEMA_object:
                put_object(f->of, member);
                break;
        case SCHEMA_list:
                put_list(f, object);
                break;
        case SCHEMA_KINDS:
                break;
        }
}

static void put_members(const struct schema_struct *s, const void *object, const char *before)
{
        for (uint32_t i = 0; i < s->count; i++) {
                if (!schema_present(&s->fields[i], object))
                        continue;
                printf("%s\"%s\":", before, s->fields[i].name);
                put_value(&s->fields[i], object);
                before = ",";
        }
}

static void put_object(const struct schema_struct *s, const void *object)
{
        putchar('{');
        put_members(s, object, "");
        putchar('}');
}

void json_print(const struct schema_struct *s, const void *object)
{
        put_object(s, object);
        putchar('\n');
}

void json_print_of(const char *name, const char *text, const struct schema_struct *s,
                   const void *object)
{
        printf("{\"%s\":", name);
        json_put_text(text);
        put_members(s, object, ",");
        printf("}\n");
}
