/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <string.h>

#include "codec.h"

static bool key_is(const struct wire_token *t, const char *name)
{
        return t->n == strlen(name) && !memcmp(t->bytes, name, t->n);
}

/* ---- decoding ---- */

static int fault(struct codec_fault *f, const char *field, const char *why)
{
        f->field = field;
        f->why = why;
        return -EBADMSG;
}

/* The bytes of the value at the reader, which is passed over. */
static int take_value(struct wire_reader *r, struct wire_reader *ret_value)
{
        const uint8_t *start = r->at;

        if (wire_skip(r) < 0)
                return -EBADMSG;
        *ret_value = (struct wire_reader){start, r->at};
        return 0;
}

static int take_uint(struct wire_reader *r, uint64_t *ret_value)
{
        struct wire_token t;

        if (wire_next(r, &t) < 0 || t.type != WIRE_UINT)
                return -EBADMSG;
        *ret_value = t.u;
        return 0;
}

static int request_member(struct wire_reader *r, struct codec_request *req,
                          struct codec_fault *ret_fault)
{
        struct wire_token key, t;

        if (wire_next(r, &key) < 0 || key.type != WIRE_TEXT)
                return fault(ret_fault, "", "has a key that is not a text");
        if (key_is(&key, "id")) {
                if (take_uint(r, &req->id) < 0)
                        return fault(ret_fault, "id", "is not an unsigned integer");
                req->has_id = true;
                return 0;
        }
        if (key_is(&key, "method")) {
                if (wire_next(r, &t) < 0 || t.type != WIRE_TEXT)
                        return fault(ret_fault, "method", "is not a text");
                req->method = t.bytes;
                req->method_length = t.n;
                return 0;
        }
        if (key_is(&key, "params"))
                return take_value(r, &req->params);
        return wire_skip(r);
}

int codec_request_decode(const void *frame, size_t size, struct codec_request *ret_request,
                         struct codec_fault *ret_fault)
{
        struct wire_reader r = {frame, (const uint8_t *)frame + size};
        struct wire_token t;
        int error = 0, e;

        *ret_request = (struct codec_request){0};
        if (wire_next(&r, &t) < 0 || t.type != WIRE_MAP)
                return fault(ret_fault, "", "is not a map");
        /* A wrong type is remembered, not the end: the id may still come. */
        for (uint32_t i = 0; i < t.n; i++) {
                const uint8_t *member = r.at;

                e = request_member(&r, ret_request, ret_fault);
                if (e < 0) {
                        error = e;
                        r.at = member;
                        if (wire_skip(&r) < 0 || wire_skip(&r) < 0)
                                return e;
                }
        }
        if (error)
                return error;
        if (!ret_request->has_id)
                return fault(ret_fault, "id", "is missing");
        if (!ret_request->method)
                return fault(ret_fault, "method", "is missing");
        return 0;
}

static int take_text(struct wire_reader *r, struct codec_arena *arena, const char **ret_text)
{
        struct wire_token t;
        char *copy;

        if (wire_next(r, &t) < 0 || t.type != WIRE_TEXT)
                return -EBADMSG;
        copy = codec_arena_alloc(arena, (size_t)t.n + 1);
        if (!copy)
                return -ENOMEM;
        memcpy(copy, t.bytes, t.n);
        *ret_text = copy;
        return 0;
}

/* {code, number, message, detail}; the code says which, the number is for others. */
static int take_error(struct wire_reader *r, struct codec_arena *arena, struct codec_answer *a)
{
        struct wire_token head, key;
        const char *code = NULL;
        int e;

        if (wire_next(r, &head) < 0 || head.type != WIRE_MAP)
                return -EBADMSG;
        for (uint32_t i = 0; i < head.n; i++) {
                if (wire_next(r, &key) < 0 || key.type != WIRE_TEXT)
                        return -EBADMSG;
                if (key_is(&key, "code"))
                        e = take_text(r, arena, &code);
                else if (key_is(&key, "message"))
                        e = take_text(r, arena, &a->message);
                else if (key_is(&key, "detail"))
                        e = take_text(r, arena, &a->detail);
                else
                        e = wire_skip(r);
                if (e < 0)
                        return e;
        }
        if (!code || !a->message)
                return -EBADMSG;
        a->error = schema_find_error(code, strlen(code));
        if (!a->error)
                a->error = schema_error(GPUOBS_ERROR_INTERNAL);
        a->is_error = true;
        return 0;
}

static int answer_member(struct wire_reader *r, struct codec_arena *arena, struct codec_answer *a,
                         bool *has_id)
{
        struct wire_token key, t;

        if (wire_next(r, &key) < 0 || key.type != WIRE_TEXT)
                return -EBADMSG;
        if (key_is(&key, "id")) {
                *has_id = true;
                return take_uint(r, &a->id);
        }
        if (key_is(&key, "more")) {
                if (wire_next(r, &t) < 0 || t.type != WIRE_FLAG)
                        return -EBADMSG;
                a->more = t.flag;
                return 0;
        }
        if (key_is(&key, "result"))
                return take_value(r, &a->result);
        if (key_is(&key, "error"))
                return take_error(r, arena, a);
        return wire_skip(r);
}

int codec_answer_decode(const void *frame, size_t size, struct codec_arena *arena,
                        struct codec_answer *ret_answer)
{
        struct wire_reader r = {frame, (const uint8_t *)frame + size};
        struct codec_answer a = {0};
        bool has_id = false;
        struct wire_token t;
        int e;

        if (wire_next(&r, &t) < 0 || t.type != WIRE_MAP)
                return -EBADMSG;
        for (uint32_t i = 0; i < t.n; i++) {
                e = answer_member(&r, arena, &a, &has_id);
                if (e < 0)
                        return e;
        }
        if (!has_id || a.is_error == (a.result.at != NULL))
                return -EBADMSG;
        *ret_answer = a;
        return 0;
}

/* ---- encoding ---- */

static void pack_name(msgpack_packer *pk, const char *name)
{
        msgpack_pack_str_with_body(pk, name, strlen(name));
}

static void pack_id(msgpack_packer *pk, uint64_t id)
{
        pack_name(pk, "id");
        msgpack_pack_uint64(pk, id);
}

int codec_request_encode(struct wire_buffer *b, uint64_t id, enum schema_method_id method,
                         const void *params)
{
        msgpack_packer pk;

        msgpack_packer_init(&pk, b, wire_buffer_write);
        wire_frame_begin(b);
        msgpack_pack_map(&pk, 3);
        pack_id(&pk, id);
        pack_name(&pk, "method");
        pack_name(&pk, schema_methods[method].name);
        pack_name(&pk, "params");
        if (params)
                codec_encode(&pk, schema_methods[method].params, params, NULL, 0);
        else
                msgpack_pack_map(&pk, 0);
        return wire_frame_end(b);
}

int codec_result_encode(struct wire_buffer *b, uint64_t id, bool more,
                        const struct schema_struct *s, const void *result,
                        const struct codec_rows *rows, size_t n_rows)
{
        msgpack_packer pk;

        msgpack_packer_init(&pk, b, wire_buffer_write);
        wire_frame_begin(b);
        msgpack_pack_map(&pk, more ? 3 : 2);
        pack_id(&pk, id);
        pack_name(&pk, "result");
        codec_encode(&pk, s, result, rows, n_rows);
        if (more) {
                pack_name(&pk, "more");
                msgpack_pack_true(&pk);
        }
        return wire_frame_end(b);
}

int codec_error_encode(struct wire_buffer *b, uint64_t id, enum gpuobs_error_number number,
                       const char *message, const char *detail)
{
        const struct schema_error *e = schema_error(number);
        msgpack_packer pk;

        msgpack_packer_init(&pk, b, wire_buffer_write);
        wire_frame_begin(b);
        msgpack_pack_map(&pk, 2);
        pack_id(&pk, id);
        pack_name(&pk, "error");
        msgpack_pack_map(&pk, detail ? 4 : 3);
        pack_name(&pk, "code");
        pack_name(&pk, e->code);
        pack_name(&pk, "number");
        msgpack_pack_uint32(&pk, e->number);
        pack_name(&pk, "message");
        wire_pack_text(&pk, message ? message : e->doc);
        if (detail) {
                pack_name(&pk, "detail");
                wire_pack_text(&pk, detail);
        }
        return wire_frame_end(b);
}
