/* SPDX-License-Identifier: Apache-2.0 */
#include "schema_tables.h"

#include <errno.h>
#include <string.h>

const char *const schema_kind_names[SCHEMA_KINDS] = {"u64",   "u32",  "i64",    "flag",   "text",
                                                     "bytes", "dim3", "choice", "object", "list"};

/* ---- enums ---- */

#define V(name, doc) {#name, doc},
#define E(name, doc) static const struct schema_value values_##name[] = {GPUOBS_VALUES_##name(V)};
GPUOBS_ENUMS(E)
#undef E
#undef V

enum {
#define E(name, doc) ENUM_##name,
        GPUOBS_ENUMS(E)
#undef E
};

const struct schema_enum schema_enums[] = {
#define E(name, doc) {#name, doc, values_##name, sizeof(values_##name) / sizeof(values_##name[0])},
        GPUOBS_ENUMS(E)
#undef E
};
const size_t schema_enum_count = sizeof(schema_enums) / sizeof(schema_enums[0]);

/* ---- structs ---- */

/* What OF means, and which member lies beside the field's, by kind and presence. */
#define NO_OF(of)     NULL, NULL, NULL
#define STRUCT_OF(of) #of, &schema_structs[STRUCT_##of], NULL
#define ENUM_OF(of)   #of, NULL, &schema_enums[ENUM_##of]
#define OF_u64        NO_OF
#define OF_u32        NO_OF
#define OF_i64        NO_OF
#define OF_flag       NO_OF
#define OF_text       NO_OF
#define OF_bytes      NO_OF
#define OF_dim3       NO_OF
#define OF_choice     ENUM_OF
#define OF_object     STRUCT_OF
#define OF_list       STRUCT_OF

#define BESIDE_must(type, name)  0
#define BESIDE_may(type, name)   offsetof(struct gpuobs_##type, has_##name)
#define NO_BESIDE(presence)      BESIDE_none
#define HAS_BESIDE(presence)     BESIDE_##presence
#define COUNT_BESIDE(presence)   BESIDE_count
#define BESIDE_none(type, name)  0
#define BESIDE_count(type, name) offsetof(struct gpuobs_##type, n_##name)
#define BESIDE_OF_u64            HAS_BESIDE
#define BESIDE_OF_u32            HAS_BESIDE
#define BESIDE_OF_i64            HAS_BESIDE
#define BESIDE_OF_flag           HAS_BESIDE
#define BESIDE_OF_text           NO_BESIDE
#define BESIDE_OF_bytes          COUNT_BESIDE
#define BESIDE_OF_dim3           HAS_BESIDE
#define BESIDE_OF_choice         HAS_BESIDE
#define BESIDE_OF_object         HAS_BESIDE
#define BESIDE_OF_list           COUNT_BESIDE

#define MAY_must false
#define MAY_may  true

#define F(in, kind, presence, name, of, unit, doc)                                                 \
        {#name,                                                                                    \
         sizeof(#name) - 1,                                                                        \
         unit,                                                                                     \
         doc,                                                                                      \
         OF_##kind(of),                                                                            \
         SCHEMA_##kind,                                                                            \
         MAY_##presence,                                                                           \
         offsetof(struct gpuobs_##in, name),                                                       \
         BESIDE_OF_##kind(presence)(in, name)},
#define S(name, doc)                                                                               \
        static const struct schema_field fields_##name[] = {GPUOBS_FIELDS_##name(F, name){0}};
GPUOBS_STRUCTS(S)
#undef S
#undef F

const struct schema_struct schema_structs[] = {
#define S(name, doc)                                                                               \
        {#name, doc, fields_##name, sizeof(fields_##name) / sizeof(fields_##name[0]) - 1,          \
         sizeof(struct gpuobs_##name)},
        GPUOBS_STRUCTS(S)
#undef S
};
const size_t schema_struct_count = STRUCT_COUNT;

/* ---- methods and errors ---- */

const struct schema_method schema_methods[METHOD_COUNT] = {
#define PRIVILEGE_any   GPUOBS_PRIVILEGE_ANY
#define PRIVILEGE_own   GPUOBS_PRIVILEGE_OWN
#define PRIVILEGE_admin GPUOBS_PRIVILEGE_ADMIN
#define M(name, method, params, result, privilege, stream, doc)                                    \
        {method, doc, SCHEMA_OF(params), SCHEMA_OF(result), PRIVILEGE_##privilege, stream},
        GPUOBS_METHODS(M)
#undef M
};

const struct schema_error schema_errors[] = {
#define X(name, number, error, doc) {#name, doc, #error, number, error},
        GPUOBS_ERRORS(X)
#undef X
};
const size_t schema_error_count = sizeof(schema_errors) / sizeof(schema_errors[0]);

const struct schema_method *schema_find_method(const char *name, size_t length)
{
        for (size_t i = 0; i < METHOD_COUNT; i++)
                if (strlen(schema_methods[i].name) == length &&
                    !memcmp(schema_methods[i].name, name, length))
                        return &schema_methods[i];
        return NULL;
}

const struct schema_error *schema_find_error(const char *code, size_t length)
{
        for (size_t i = 0; i < schema_error_count; i++)
                if (strlen(schema_errors[i].code) == length &&
                    !memcmp(schema_errors[i].code, code, length))
                        return &schema_errors[i];
        return NULL;
}

const struct schema_error *schema_error(enum gpuobs_error_number number)
{
        for (size_t i = 0; i < schema_error_count; i++)
                if (schema_errors[i].number == (uint32_t)number)
                        return &schema_errors[i];
        return schema_error(GPUOBS_ERROR_INTERNAL);
}

const char *schema_enum_text(const char *enum_name, uint32_t value)
{
        for (size_t i = 0; i < schema_enum_count; i++)
                if (!strcmp(schema_enums[i].name, enum_name))
                        return value < schema_enums[i].count ? schema_enums[i].values[value].name
                                                             : "?";
        return "?";
}

bool schema_present(const struct schema_field *f, const void *object)
{
        if (!f->may)
                return true;
        if (f->kind == SCHEMA_text)
                return *(const char *const *)((const char *)object + f->offset);
        return *(const bool *)((const char *)object + f->beside);
}
