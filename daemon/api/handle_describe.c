/* SPDX-License-Identifier: Apache-2.0 */
#include "api/handlers.h"
#include "api/internal.h"

static const char *or_null(const char *text)
{
        return text && *text ? text : NULL;
}

static bool describe_fields(struct codec_arena *a, const struct schema_struct *s,
                            struct gpuobs_struct_info *info)
{
        info->n_fields = s->count;
        info->fields = codec_arena_alloc(a, (s->count + 1) * sizeof(*info->fields));
        if (!info->fields)
                return false;
        for (uint32_t i = 0; i < s->count; i++) {
                const struct schema_field *f = &s->fields[i];

                info->fields[i] = (struct gpuobs_field_info){
                        .name = f->name,
                        .kind = schema_kind_names[f->kind],
                        .of = f->of_name,
                        .optional = f->may,
                        .unit = or_null(f->unit),
                        .doc = f->doc,
                };
        }
        return true;
}

static bool describe_structs(struct codec_arena *a, struct gpuobs_description *d)
{
        d->n_structs = schema_struct_count;
        d->structs = codec_arena_alloc(a, schema_struct_count * sizeof(*d->structs));
        for (size_t i = 0; d->structs && i < schema_struct_count; i++) {
                d->structs[i].name = schema_structs[i].name;
                d->structs[i].doc = schema_structs[i].doc;
                if (!describe_fields(a, &schema_structs[i], &d->structs[i]))
                        return false;
        }
        return d->structs;
}

static bool describe_values(struct codec_arena *a, const struct schema_enum *e,
                            struct gpuobs_enum_info *info)
{
        info->n_values = e->count;
        info->values = codec_arena_alloc(a, e->count * sizeof(*info->values));
        for (uint32_t i = 0; info->values && i < e->count; i++) {
                info->values[i].name = e->values[i].name;
                info->values[i].doc = e->values[i].doc;
        }
        return info->values;
}

static bool describe_enums(struct codec_arena *a, struct gpuobs_description *d)
{
        d->n_enums = schema_enum_count;
        d->enums = codec_arena_alloc(a, schema_enum_count * sizeof(*d->enums));
        for (size_t i = 0; d->enums && i < schema_enum_count; i++) {
                d->enums[i].name = schema_enums[i].name;
                d->enums[i].doc = schema_enums[i].doc;
                if (!describe_values(a, &schema_enums[i], &d->enums[i]))
                        return false;
        }
        return d->enums;
}

static bool describe_methods(struct codec_arena *a, struct gpuobs_description *d)
{
        d->n_methods = METHOD_COUNT;
        d->methods = codec_arena_alloc(a, METHOD_COUNT * sizeof(*d->methods));
        for (size_t i = 0; d->methods && i < METHOD_COUNT; i++) {
                const struct schema_method *m = &schema_methods[i];

                d->methods[i] = (struct gpuobs_method_info){
                        .name = m->name,
                        .params = m->params->name,
                        .result = m->result->name,
                        .privilege = m->privilege,
                        .stream = m->stream,
                        .doc = m->doc,
                };
        }
        return d->methods;
}

static bool describe_errors(struct codec_arena *a, struct gpuobs_description *d)
{
        d->n_errors = schema_error_count;
        d->errors = codec_arena_alloc(a, schema_error_count * sizeof(*d->errors));
        for (size_t i = 0; d->errors && i < schema_error_count; i++) {
                d->errors[i].code = schema_errors[i].code;
                d->errors[i].number = schema_errors[i].number;
                d->errors[i].doc = schema_errors[i].doc;
        }
        return d->errors;
}

void api_handle_describe(struct api_call *call, const struct gpuobs_describe_params *params)
{
        struct gpuobs_description d = {.api_version = GPUOBS_API_VERSION,
                                       .daemon_version = GPUOBS_VERSION};
        struct codec_arena *a = &call->arena;

        if (!describe_methods(a, &d) || !describe_structs(a, &d) || !describe_enums(a, &d) ||
            !describe_errors(a, &d))
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_reply(call, &d, NULL, 0);
}
