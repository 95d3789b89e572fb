/* SPDX-License-Identifier: Apache-2.0 */

/* The typed calls of gpuobs_api.h, generated from the schema. */
#include "client.h"

const char *gpuobs_version(void)
{
        return GPUOBS_VERSION;
}

/* ---- the application's callback, with its own type ---- */

#define M(name, method, params, result, privilege, stream, doc)                                    \
        static void deliver_##name(struct gpuobs_call *call, int error, const void *object)        \
        {                                                                                          \
                call->fn.name(call->data, error, object);                                          \
        }
GPUOBS_METHODS(M)
#undef M

/* ---- calls ---- */

#define ASYNC(function, name, params_)                                                             \
        int function(struct gpuobs *g, const struct gpuobs_##params_ *params,                      \
                     gpuobs_##name##_fn *callback, void *data, struct gpuobs_call **ret_call)      \
        {                                                                                          \
                struct gpuobs_call *call;                                                          \
                int r = client_start(g, METHOD_##name, params, &call);                             \
                                                                                                   \
                if (r < 0)                                                                         \
                        return r;                                                                  \
                call->deliver = deliver_##name;                                                    \
                call->data = data;                                                                 \
                call->fn.name = callback;                                                          \
                if (ret_call)                                                                      \
                        *ret_call = call;                                                          \
                return 0;                                                                          \
        }

#define SYNC(name, params_, result_)                                                               \
        int gpuobs_##name(struct gpuobs *g, const struct gpuobs_##params_ *params,                 \
                          struct gpuobs_##result_ **ret_result)                                    \
        {                                                                                          \
                void *object;                                                                      \
                int r = client_call(g, METHOD_##name, params, &object);                            \
                                                                                                   \
                if (r == 0)                                                                        \
                        *ret_result = object;                                                      \
                return r;                                                                          \
        }

#define CALLS_true(name, params, result) ASYNC(gpuobs_##name, name, params)
#define CALLS_false(name, params, result)                                                          \
        SYNC(name, params, result)                                                                 \
        ASYNC(gpuobs_##name##_async, name, params)

#define M(name, method, params, result, privilege, stream, doc) CALLS_##stream(name, params, result)
GPUOBS_METHODS(M)
#undef M

/* ---- results and texts ---- */

#define M(name, method, params, result_, privilege, stream, doc)                                   \
        struct gpuobs_##result_ *gpuobs_##result_##_free(struct gpuobs_##result_ *result)          \
        {                                                                                          \
                client_object_free(result);                                                        \
                return NULL;                                                                       \
        }
GPUOBS_METHODS(M)
#undef M

#define E(name, doc)                                                                               \
        const char *gpuobs_##name##_text(enum gpuobs_##name value)                                 \
        {                                                                                          \
                return schema_enum_text(#name, (uint32_t)value);                                   \
        }
GPUOBS_ENUMS(E)
#undef E
