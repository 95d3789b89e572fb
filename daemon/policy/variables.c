/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/variables.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "policy/object.h"
#include "util/macro.h"

#define SHOWN_MAX 16 /* elements of an array that are shown */

/* A variable as found: an integer, a text, or an array of either. */
struct found {
        const char *name;
        char *memory;
        uint32_t count; /* of elements, 1 for a single one */
        uint32_t size;  /* of an element */
        bool is_text;
        bool is_signed;
        bool is_array;
        const char *tag; /* of POLICY_PARAM, NULL: none */
};

static const char *const sections[] = {".data", ".bss"};

/* ---- types ---- */

static const struct btf_type *plain_type(const struct btf *btf, uint32_t id)
{
        int resolved = btf__resolve_type(btf, id);

        return resolved < 0 ? NULL : btf__type_by_id(btf, (__u32)resolved);
}

static bool is_char(const struct btf *btf, const struct btf_type *t)
{
        return btf_is_int(t) && t->size == 1 &&
               strcmp(btf__name_by_offset(btf, t->name_off), "char") == 0;
}

static bool set_integer(const struct btf_type *t, struct found *f)
{
        if (!btf_is_int(t) || (t->size != 1 && t->size != 2 && t->size != 4 && t->size != 8))
                return false;
        f->size = t->size;
        f->is_signed = btf_int_encoding(t) & BTF_INT_SIGNED;
        return true;
}

/* An array of characters is one text. */
static bool set_element(const struct btf *btf, const struct btf_type *t, struct found *f)
{
        const struct btf_array *array;

        if (!btf_is_array(t))
                return set_integer(t, f);
        array = btf_array(t);
        t = plain_type(btf, array->type);
        f->is_text = t && is_char(btf, t) && array->nelems > 1;
        f->size = array->nelems;
        return f->is_text;
}

static bool set_type(const struct btf *btf, uint32_t id, struct found *f)
{
        const struct btf_type *t = plain_type(btf, id), *element;

        f->count = 1;
        if (!t)
                return false;
        if (!btf_is_array(t))
                return set_integer(t, f);
        element = plain_type(btf, btf_array(t)->type);
        if (!element)
                return false;
        if (is_char(btf, element))
                return set_element(btf, t, f);
        f->count = btf_array(t)->nelems;
        f->is_array = true;
        return f->count && set_element(btf, element, f);
}

/* ---- walking ---- */

static const char *find_tag(const struct btf *btf, uint32_t variable)
{
        uint32_t n = btf__type_cnt(btf);

        for (uint32_t id = 1; id < n; id++) {
                const struct btf_type *t = btf__type_by_id(btf, id);
                const char *tag;

                if (!btf_is_decl_tag(t) || t->type != variable)
                        continue;
                tag = btf__name_by_offset(btf, t->name_off);
                if (strncmp(tag, "param ", 6) == 0)
                        return tag + 6;
        }
        return NULL;
}

static int walk_section(const struct policy_object *o, const char *section,
                        int (*visit)(void *data, const struct found *f), void *data)
{
        const struct btf *btf = bpf_object__btf(policy_object_bpf(o));
        int id = btf ? btf__find_by_name_kind(btf, section, BTF_KIND_DATASEC) : -1;
        const struct btf_type *t = id > 0 ? btf__type_by_id(btf, (__u32)id) : NULL;
        char *memory = policy_object_section(o, section);
        int r = 0;

        for (int i = 0; t && memory && i < btf_vlen(t) && r == 0; i++) {
                const struct btf_var_secinfo *v = btf_var_secinfos(t) + i;
                const struct btf_type *var = btf__type_by_id(btf, v->type);
                struct found f = {.name = btf__name_by_offset(btf, var->name_off),
                                  .memory = memory + v->offset,
                                  .tag = find_tag(btf, v->type)};

                if (set_type(btf, var->type, &f))
                        r = visit(data, &f);
        }
        return r;
}

static int walk(const struct policy_object *o, int (*visit)(void *data, const struct found *f),
                void *data)
{
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(sections) && r == 0; i++)
                r = walk_section(o, sections[i], visit, data);
        return r;
}

/* ---- values ---- */

static int64_t read_number(const struct found *f, uint32_t index)
{
        const void *at = f->memory + (size_t)index * f->size;
        uint64_t n = 0;
        unsigned int unused = 64 - 8 * f->size;

        memcpy(&n, at, f->size); /* little-endian, as eBPF on the machines there are GPUs for */
        return f->is_signed ? (int64_t)(n << unused) >> unused : (int64_t)n;
}

/* One store, so that a program never sees half of a number. */
static void write_number(const struct found *f, uint32_t index, int64_t value)
{
        char *at = f->memory + (size_t)index * f->size;

        switch (f->size) {
        case 1:
                *(volatile uint8_t *)at = (uint8_t)value;
                break;
        case 2:
                *(volatile uint16_t *)at = (uint16_t)value;
                break;
        case 4:
                *(volatile uint32_t *)at = (uint32_t)value;
                break;
        default:
                *(volatile uint64_t *)at = (uint64_t)value;
        }
}

static void show_element(const struct found *f, uint32_t index, char *text, size_t size)
{
        if (f->is_text)
                snprintf(text, size, "%.*s", (int)f->size, f->memory + (size_t)index * f->size);
        else if (f->is_signed)
                snprintf(text, size, "%lld", (long long)read_number(f, index));
        else
                snprintf(text, size, "%llu", (unsigned long long)read_number(f, index));
}

static void show_value(const struct found *f, char *text, size_t size)
{
        size_t used = 0;

        text[0] = '\0';
        for (uint32_t i = 0; i < f->count && i < SHOWN_MAX && used + 2 < size; i++) {
                if (i)
                        text[used++] = ',';
                show_element(f, i, text + used, size - used);
                used += strlen(text + used);
        }
}

/* A tag is "LOW HIGH DOC"; texts have 0 0. */
static void read_tag(const struct found *f, int64_t *ret_low, int64_t *ret_high,
                     const char **ret_doc)
{
        char *end;

        *ret_low = strtoll(f->tag, &end, 0);
        *ret_high = strtoll(end, &end, 0);
        while (*end == ' ')
                end++;
        *ret_doc = end;
}

/* ---- listing ---- */

struct listing {
        int (*row)(void *data, const struct policy_variable *v);
        void *data;
        bool declared; /* which half is being listed */
};

static int list_one(void *data, const struct found *f)
{
        struct listing *l = data;
        struct policy_variable v = {.name = f->name, .doc = "", .declared = f->tag != NULL};
        char kind[16];

        if (v.declared != l->declared)
                return 0;
        if (f->tag)
                read_tag(f, &v.low, &v.high, &v.doc);
        v.bounded = f->tag && !f->is_text;
        snprintf(kind, sizeof(kind), "%c%u", f->is_signed ? 'i' : 'u', 8 * f->size);
        snprintf(v.type, sizeof(v.type), "%s", f->is_text ? "text" : kind);
        if (f->is_array)
                snprintf(v.type + strlen(v.type), sizeof(v.type) - strlen(v.type), "[%u]",
                         f->count);
        show_value(f, v.value, sizeof(v.value));
        return l->row(l->data, &v);
}

void policy_variables(const struct policy_object *o,
                      int (*row)(void *data, const struct policy_variable *v), void *data)
{
        struct listing l = {row, data, true};

        if (walk(o, list_one, &l))
                return;
        l.declared = false;
        (void)walk(o, list_one, &l);
}

/* ---- setting ---- */

struct setting {
        char name[64];
        uint32_t index;
        bool has_index;
        const char *value;
        char *error;
        size_t error_size;
        int result; /* -ENOENT until the variable is met */
};

static int set_text(struct setting *s, const struct found *f)
{
        char *at = f->memory + (size_t)s->index * f->size;
        size_t length = strlen(s->value);

        if (length >= f->size) {
                snprintf(s->error, s->error_size, "%s holds at most %u bytes", s->name,
                         f->size - 1);
                return -EINVAL;
        }
        memset(at, 0, f->size);
        memcpy(at, s->value, length);
        return 0;
}

static bool fits(const struct found *f, int64_t value)
{
        unsigned int bits = 8 * f->size;

        if (bits == 64)
                return true;
        if (f->is_signed)
                return value >= -(1LL << (bits - 1)) && value < 1LL << (bits - 1);
        return value >= 0 && value < 1LL << bits;
}

/* Negative numbers are for signed variables, numbers above INT64_MAX for 64-bit unsigned ones. */
static bool parse_number(const struct found *f, const char *text, int64_t *ret_value)
{
        bool is_negative = text[0] == '-';
        char *end;

        if (!isdigit((unsigned char)text[is_negative ? 1 : 0]) || (is_negative && !f->is_signed))
                return false;
        errno = 0;
        *ret_value = is_negative || f->is_signed ? strtoll(text, &end, 0)
                                                 : (int64_t)strtoull(text, &end, 0);
        return errno == 0 && !*end && fits(f, *ret_value);
}

static int set_number(struct setting *s, const struct found *f)
{
        int64_t value, low, high;
        const char *doc;

        if (!parse_number(f, s->value, &value)) {
                snprintf(s->error, s->error_size, "\"%s\" is not a number that %s holds", s->value,
                         s->name);
                return -EINVAL;
        }
        if (f->tag) {
                read_tag(f, &low, &high, &doc);
                if (value < low || value > high) {
                        snprintf(s->error, s->error_size, "%s is to be %lld to %lld", s->name,
                                 (long long)low, (long long)high);
                        return -ERANGE;
                }
        }
        write_number(f, s->index, value);
        return 0;
}

static int set_one(void *data, const struct found *f)
{
        struct setting *s = data;

        if (strcmp(f->name, s->name) != 0)
                return 0;
        if (s->has_index != f->is_array || s->index >= f->count) {
                if (f->is_array)
                        snprintf(s->error, s->error_size,
                                 "%s is an array: say which, %s[0] to %s[%u]", s->name, s->name,
                                 s->name, f->count - 1);
                else
                        snprintf(s->error, s->error_size, "%s is not an array", s->name);
                s->result = -EINVAL;
        } else {
                s->result = f->is_text ? set_text(s, f) : set_number(s, f);
        }
        return 1;
}

/* "name" or "name[3]". */
static bool parse_name(const char *text, struct setting *s)
{
        size_t length = strcspn(text, "[");
        char *end;

        if (length == 0 || length >= sizeof(s->name))
                return false;
        memcpy(s->name, text, length);
        s->name[length] = '\0';
        if (!text[length])
                return true;
        s->has_index = true;
        if (!isdigit((unsigned char)text[length + 1]))
                return false;
        errno = 0;
        s->index = (uint32_t)strtoul(text + length + 1, &end, 10);
        return errno == 0 && strcmp(end, "]") == 0;
}

int policy_variable_set(struct policy_object *o, const char *name, const char *value, char *error,
                        size_t error_size)
{
        struct setting s = {
                .value = value, .error = error, .error_size = error_size, .result = -ENOENT};

        snprintf(error, error_size, "there is no variable %s", name);
        if (parse_name(name, &s))
                (void)walk(o, set_one, &s);
        return s.result;
}
