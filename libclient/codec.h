/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The API's structs to and from msgpack, by the schema's tables. Also the
 * envelopes: requests {id, method, params} and answers {id, result | error,
 * more}.
 */
#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "schema_tables.h"
#include "wire.h"

/* ---- memory of decoded objects ---- */

/* Everything decoded with one arena is freed at once. Zero-initialise. */
struct codec_arena {
        struct codec_chunk *chunks;
};

/* Zeroed, aligned for any type; NULL on no memory. */
void *codec_arena_alloc(struct codec_arena *a, size_t size);
/* A copy of bytes, with a NUL behind them; NULL on no memory. */
void *codec_arena_copy(struct codec_arena *a, const void *bytes, size_t size);
void codec_arena_done(struct codec_arena *a);

/* ---- structs ---- */

/* What a decoder refused. */
struct codec_fault {
        const char *field; /* a literal: name of the field, or "" */
        const char *why;   /* a literal: a part of a sentence */
};

/*
 * Read one struct at the reader into the C struct ret_object (zeroed first).
 * Texts and lists live in the arena. Lists grow as elements are really there:
 * a claimed length allocates nothing. Unknown keys are passed over. 0; -EBADMSG
 * with *ret_fault; -ENOMEM.
 */
int codec_decode(struct wire_reader *r, const struct schema_struct *s, struct codec_arena *arena,
                 void *ret_object, struct codec_fault *ret_fault);

/* A list that was encoded beforehand, element by element: written in place of the member. */
struct codec_rows {
        const char *field;
        uint32_t count;
        const struct wire_buffer *bytes;
};

/* Write one struct. rows may be NULL. */
void codec_encode(msgpack_packer *pk, const struct schema_struct *s, const void *object,
                  const struct codec_rows *rows, size_t n_rows);

/* ---- envelopes ---- */

struct codec_request {
        uint64_t id;
        bool has_id; /* also set when the rest is at fault, so that the answer can carry it */
        const char *method; /* not NUL-terminated; in the frame */
        uint32_t method_length;
        struct wire_reader params; /* of the params map; empty when there were none */
};

/*
 * The envelope of a request. The frame must have passed wire_check(). 0, or
 * -EBADMSG with a fault; *ret_request is filled as far as it got.
 */
int codec_request_decode(const void *frame, size_t size, struct codec_request *ret_request,
                         struct codec_fault *ret_fault);

struct codec_answer {
        uint64_t id;
        bool more;
        bool is_error;
        struct wire_reader result;        /* of the result map */
        const struct schema_error *error; /* that of `internal` for an unknown code */
        const char *message;              /* in the arena */
        const char *detail;               /* in the arena, NULL absent */
};

/* The same for an answer. 0, -EBADMSG, -ENOMEM. */
int codec_answer_decode(const void *frame, size_t size, struct codec_arena *arena,
                        struct codec_answer *ret_answer);

/* A whole request frame into an empty buffer. params NULL: none. 0, -ENOMEM, -EMSGSIZE. */
int codec_request_encode(struct wire_buffer *b, uint64_t id, enum schema_method_id method,
                         const void *params);

/* A whole answer frame into an empty buffer. 0, -ENOMEM, -EMSGSIZE. */
int codec_result_encode(struct wire_buffer *b, uint64_t id, bool more,
                        const struct schema_struct *s, const void *result,
                        const struct codec_rows *rows, size_t n_rows);
int codec_error_encode(struct wire_buffer *b, uint64_t id, enum gpuobs_error_number number,
                       const char *message, const char *detail);
