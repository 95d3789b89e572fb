/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Inside libgpuobs: the connection and its open calls. */
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "codec.h"
#include "gpuobs.h"
#include "schema_tables.h"
#include "wire.h"

/* A decoded result and the memory it lives in. */
struct client_result {
        struct codec_arena arena;
        alignas(max_align_t) char object[];
};

/* NULL is fine. */
void client_result_free(struct client_result *r);
/* Of the pointer that the application holds. */
void client_object_free(const void *object);

struct gpuobs_call {
        struct gpuobs_call *next;
        struct gpuobs *owner;
        uint64_t id;
        enum schema_method_id method;
        uint64_t deadline_ns; /* 0: none */
        bool waited;          /* a synchronous call: result and error are for the waiter */
        bool over;
        bool cancelled;
        int error;
        struct client_result *result;
        /* Runs the application's callback, which has the method's own type. */
        void (*deliver)(struct gpuobs_call *call, int error, const void *result);
        void *data;
        union {
#define M(name, method, params, result, privilege, stream, doc) gpuobs_##name##_fn *name;
                GPUOBS_METHODS(M)
#undef M
        } fn;
};

/*
 * Send a request. *ret_call is in the handle's list; the caller sets deliver,
 * data and fn (or waited) right away.
 */
int client_start(struct gpuobs *g, enum schema_method_id method, const void *params,
                 struct gpuobs_call **ret_call);

/* The whole of a synchronous call; *ret_object is the result's object. */
int client_call(struct gpuobs *g, enum schema_method_id method, const void *params,
                void **ret_object);
