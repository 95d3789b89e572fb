/* SPDX-License-Identifier: Apache-2.0 */

/* From a request's frame to its handler, and back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <utlist.h>

#include "api/handlers.h"
#include "api/internal.h"
#include "util/log.h"

/* ---- the handlers, with their types taken off ---- */

#define M(name, method, params_, result, privilege, stream, doc)                                   \
        static void handle_##name(struct api_call *call, const void *params)                       \
        {                                                                                          \
                api_handle_##name(call, params);                                                   \
        }
GPUOBS_METHODS(M)
#undef M

static void (*const handlers[METHOD_COUNT])(struct api_call *call, const void *params) = {
#define M(name, method, params, result, privilege, stream, doc) handle_##name,
        GPUOBS_METHODS(M)
#undef M
};

/* ---- life ---- */

static struct api_call *call_new(struct connection *c, const struct codec_request *request)
{
        struct api_call *call = calloc(1, sizeof(*call));

        if (!call)
                return NULL;
        call->account = quota_take(c->server->quota, c->peer.uid);
        if (!call->account) {
                free(call);
                return NULL;
        }
        call->account->requests++;
        call->server = c->server;
        call->connection = c;
        call->peer = c->peer;
        call->id = request->id;
        DL_APPEND(c->calls, call);
        return call;
}

void api_call_end(struct api_call *call)
{
        if (call->connection)
                DL_DELETE(call->connection->calls, call);
        call->account->requests--;
        quota_drop(call->server->quota, call->account);
        codec_arena_done(&call->arena);
        free(call);
}

void call_abandon(struct api_call *call)
{
        DL_DELETE(call->connection->calls, call);
        call->connection = NULL;
        atomic_store(&call->cancelled, true);
}

/* ---- answers ---- */

static void send_error(struct connection *c, uint64_t id, enum gpuobs_error_number number,
                       const char *message, const char *detail)
{
        struct wire_buffer frame = {0};

        if (codec_error_encode(&frame, id, number, message, detail) < 0) {
                wire_buffer_done(&frame);
                connection_close(c);
                return;
        }
        connection_send(c, &frame);
}

void api_call_fail(struct api_call *call, enum gpuobs_error_number number, const char *message,
                   const char *detail)
{
        struct connection *c = call->connection;
        uint64_t id = call->id;

        if (c)
                send_error(c, id, number, message, detail);
        api_call_end(call);
}

void api_call_fail_param(struct api_call *call, const char *name, const char *why)
{
        char detail[160];

        snprintf(detail, sizeof(detail), "%s %s", name, why);
        api_call_fail(call, GPUOBS_ERROR_BAD_PARAMS, NULL, detail);
}

void api_call_fail_error(struct api_call *call, int error, const char *why)
{
        if (error == -ENOMEM)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_fail(call, GPUOBS_ERROR_BAD_PARAMS, NULL, why);
}

void api_call_reply(struct api_call *call, const void *result, const struct codec_rows *rows,
                    size_t n_rows)
{
        struct connection *c = call->connection;
        struct wire_buffer frame = {0};
        int r;

        if (!c) {
                api_call_end(call);
                return;
        }
        r = codec_result_encode(&frame, call->id, false, call->method->result, result, rows,
                                n_rows);
        if (r < 0 || call->account->bytes + frame.size > call->server->limits.bytes_per_uid) {
                wire_buffer_done(&frame);
                if (r < 0)
                        log_error("API: the answer to %s cannot be encoded: %s", call->method->name,
                                  strerror(-r));
                api_call_fail(call, r < 0 ? GPUOBS_ERROR_INTERNAL : GPUOBS_ERROR_QUOTA_EXCEEDED,
                              NULL, r < 0 ? strerror(-r) : "unread answers");
                return;
        }
        connection_send(c, &frame);
        api_call_end(call);
}

/* ---- what the caller may see ---- */

uint32_t api_call_uid(const struct api_call *call)
{
        return call->peer.privileged ? API_ANY_UID : call->peer.uid;
}

bool api_call_sees(const struct api_call *call, const struct process_info *info)
{
        return call->peer.privileged || (info && info->uid == call->peer.uid);
}

/* ---- requests ---- */

static bool id_in_use(struct connection *c, uint64_t id)
{
        struct api_call *call;

        DL_FOREACH(c->calls, call)
        {
                if (call->id == id)
                        return true;
        }
        return stream_find(c, id);
}

static void refuse_request(struct connection *c, const struct codec_request *request,
                           const struct codec_fault *fault)
{
        char detail[160];

        snprintf(detail, sizeof(detail), "%s %s", *fault->field ? fault->field : "the request",
                 fault->why);
        /* An answer with an id in use would be taken for that of the other request. */
        if (request->has_id && request->id && !id_in_use(c, request->id))
                send_error(c, request->id, GPUOBS_ERROR_BAD_REQUEST, NULL, detail);
        else
                connection_fail(c, GPUOBS_ERROR_BAD_REQUEST, detail);
}

/* The parameters into the call's arena; NULL when the call has been ended. */
static void *decode_params(struct api_call *call, struct wire_reader *params)
{
        static const uint8_t none[] = {0x80}; /* an empty map */
        const struct schema_struct *s = call->method->params;
        void *object = codec_arena_alloc(&call->arena, s->size);
        struct codec_fault fault = {"", ""};
        int r = -ENOMEM;

        if (!params->at)
                *params = (struct wire_reader){none, none + sizeof(none)};
        if (object)
                r = codec_decode(params, s, &call->arena, object, &fault);
        if (r == 0)
                return object;
        if (r == -ENOMEM)
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
        else
                api_call_fail_param(call, fault.field, fault.why);
        return NULL;
}

static void call_run(struct api_call *call, const struct codec_request *request)
{
        struct wire_reader reader = request->params;
        char name[64];
        void *params;

        call->method = schema_find_method(request->method, request->method_length);
        if (!call->method) {
                snprintf(name, sizeof(name), "%.*s", (int)request->method_length, request->method);
                api_call_fail(call, GPUOBS_ERROR_UNKNOWN_METHOD, NULL, name);
                return;
        }
        if (call->method->privilege == GPUOBS_PRIVILEGE_ADMIN && !call->peer.privileged) {
                api_call_fail(call, GPUOBS_ERROR_PERMISSION_DENIED, NULL, NULL);
                return;
        }
        if (call->account->requests > call->server->limits.requests_per_uid) {
                api_call_fail(call, GPUOBS_ERROR_QUOTA_EXCEEDED, NULL, "requests");
                return;
        }
        params = decode_params(call, &reader);
        if (params)
                handlers[call->method - schema_methods](call, params);
}

void call_begin(struct connection *c, const void *frame, size_t size)
{
        struct codec_fault fault = {"", ""};
        struct codec_request request;
        struct api_call *call;
        int r;

        r = codec_request_decode(frame, size, &request, &fault);
        if (r == 0 && request.id == 0) {
                fault = (struct codec_fault){"id", "is 0"};
                r = -EBADMSG;
        }
        if (r == 0 && id_in_use(c, request.id)) {
                fault = (struct codec_fault){"id", "is in use"};
                r = -EBADMSG;
        }
        if (r < 0) {
                refuse_request(c, &request, &fault);
                return;
        }
        call = call_new(c, &request);
        if (!call)
                connection_fail(c, GPUOBS_ERROR_INTERNAL, "out of memory");
        else
                call_run(call, &request);
}
