/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The schema as tables: what the codec, the JSON output and `describe` walk. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpuobs_api.h"
#include "schema.h"

enum schema_kind {
        SCHEMA_u64,
        SCHEMA_u32,
        SCHEMA_i64,
        SCHEMA_flag,
        SCHEMA_text,
        SCHEMA_bytes,
        SCHEMA_dim3,
        SCHEMA_choice,
        SCHEMA_object,
        SCHEMA_list,
        SCHEMA_KINDS
};
extern const char *const schema_kind_names[SCHEMA_KINDS];

struct schema_value {
        const char *name;
        const char *doc;
};

struct schema_enum {
        const char *name;
        const char *doc;
        const struct schema_value *values;
        uint32_t count;
};

struct schema_field {
        const char *name;
        uint32_t name_length;
        const char *unit;
        const char *doc;
        const char *of_name;               /* enum or struct it is made of, NULL none */
        const struct schema_struct *of;    /* object, list */
        const struct schema_enum *of_enum; /* choice */
        enum schema_kind kind;
        bool may;        /* may be absent */
        uint16_t offset; /* of the member */
        uint16_t beside; /* object, number: of has_NAME when may; list: of n_NAME */
};

struct schema_struct {
        const char *name;
        const char *doc;
        const struct schema_field *fields;
        uint32_t count;
        uint32_t size; /* of the C struct */
};

enum schema_method_id {
#define M(name, method, params, result, privilege, stream, doc) METHOD_##name,
        GPUOBS_METHODS(M)
#undef M
                METHOD_COUNT
};

struct schema_method {
        const char *name; /* on the wire */
        const char *doc;
        const struct schema_struct *params;
        const struct schema_struct *result;
        enum gpuobs_privilege privilege;
        bool stream;
};

struct schema_error {
        const char *code;
        const char *doc;
        const char *error_name; /* its name, e.g. "EINVAL" */
        uint32_t number;        /* enum gpuobs_error_number */
        int error;              /* errno the library returns */
};

extern const struct schema_enum schema_enums[];
extern const size_t schema_enum_count;
extern const struct schema_struct schema_structs[];
extern const size_t schema_struct_count;
extern const struct schema_method schema_methods[METHOD_COUNT];
extern const struct schema_error schema_errors[];
extern const size_t schema_error_count;

enum schema_struct_id {
#define S(name, doc) STRUCT_##name,
        GPUOBS_STRUCTS(S)
#undef S
                STRUCT_COUNT
};

/* The struct's table: SCHEMA_OF(launch). */
#define SCHEMA_OF(name) (&schema_structs[STRUCT_##name])

/* NULL when there is none. The name need not end with a NUL. */
const struct schema_method *schema_find_method(const char *name, size_t length);
const struct schema_error *schema_find_error(const char *code, size_t length);
/* The entry of a number; that of `internal` for an unknown one. */
const struct schema_error *schema_error(enum gpuobs_error_number number);

/* The text of an enum's value; "?" for a value it does not have. */
const char *schema_enum_text(const char *enum_name, uint32_t value);

/* Whether an object has the field: absent ones are left out everywhere. */
bool schema_present(const struct schema_field *f, const void *object);
