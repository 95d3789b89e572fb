/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Bytes on the socket: frames (u32 little-endian length, then one msgpack
 * value), a strict reader that never allocates, and a writer for msgpack-c.
 *
 * Nothing is decoded before wire_check() has accepted the whole frame.
 */
#include <msgpack.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WIRE_LENGTH_BYTES 4

/*
 * Whether the bytes are exactly one msgpack value, with: no more nesting than
 * GPUOBS_DEPTH_MAX, no map of more than GPUOBS_MEMBER_MAX members, texts as map
 * keys and none twice in one map, valid UTF-8 in texts, no extension types, no
 * length beyond the bytes there, nothing after it. 0 or -EBADMSG, then
 * *ret_why (a literal) says which rule was broken.
 */
int wire_check(const void *data, size_t size, const char **ret_why);

/* Whether the bytes are valid UTF-8 (no surrogates, no overlong forms, no NUL). */
bool wire_is_utf8(const char *text, size_t size);

/* ---- reading ---- */

struct wire_reader {
        const uint8_t *at;
        const uint8_t *end;
};

enum wire_type {
        WIRE_NIL,
        WIRE_FLAG,
        WIRE_UINT, /* u */
        WIRE_INT,  /* i, below zero */
        WIRE_FLOAT,
        WIRE_TEXT,  /* bytes, n */
        WIRE_BYTES, /* bytes, n */
        WIRE_ARRAY, /* n elements follow */
        WIRE_MAP,   /* n pairs follow */
};

struct wire_token {
        enum wire_type type;
        uint32_t n;
        union {
                bool flag;
                uint64_t u;
                int64_t i;
                const char *bytes;
        };
};

/* The next token; of arrays and maps only the head. 0, or -EBADMSG at the end or on a bad byte. */
int wire_next(struct wire_reader *r, struct wire_token *ret_token);

/* Pass over one whole value. For bytes that wire_check() has accepted. 0 or -EBADMSG. */
int wire_skip(struct wire_reader *r);

/* ---- writing ---- */

/* Growing bytes. A failed allocation is remembered, so that only the end needs a check. */
struct wire_buffer {
        char *data;
        size_t size;
        size_t room;
        bool failed;
};

void wire_buffer_done(struct wire_buffer *b);
/* A msgpack-c writer: msgpack_packer_init(&pk, buffer, wire_buffer_write). */
int wire_buffer_write(void *buffer, const char *data, size_t size);

/* A text, with every byte that is not UTF-8 replaced by U+FFFD; NULL is written as "". */
void wire_pack_text(msgpack_packer *pk, const char *text);

/* Room for the frame's length; call on an empty buffer. */
void wire_frame_begin(struct wire_buffer *b);
/* Fill in the length. 0; -ENOMEM; -EMSGSIZE when longer than GPUOBS_FRAME_MAX. */
int wire_frame_end(struct wire_buffer *b);

/*
 * Size of the frame at the start of the bytes, without its length. 0; -EAGAIN
 * when the length is not there yet; -EMSGSIZE; -EBADMSG for an empty frame.
 */
int wire_frame_size(const void *data, size_t size, size_t *ret_size);
