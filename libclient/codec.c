/* SPDX-License-Identifier: Apache-2.0 */
#include "codec.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

/* ---- arena ---- */

#define CHUNK_BYTES 4096

struct codec_chunk {
        struct codec_chunk *next;
        size_t used;
        size_t room;
        alignas(max_align_t) char data[];
};

static struct codec_chunk *chunk_new(size_t room)
{
        struct codec_chunk *c = malloc(sizeof(*c) + room);

        if (c)
                *c = (struct codec_chunk){.room = room};
        return c;
}

void *codec_arena_alloc(struct codec_arena *a, size_t size)
{
        struct codec_chunk *c = a->chunks;
        void *p;

        size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
        if (!c || c->room - c->used < size) {
                c = chunk_new(size > CHUNK_BYTES ? size : CHUNK_BYTES);
                if (!c)
                        return NULL;
                c->next = a->chunks;
                a->chunks = c;
        }
        p = c->data + c->used;
        c->used += size;
        return memset(p, 0, size);
}

void *codec_arena_copy(struct codec_arena *a, const void *bytes, size_t size)
{
        char *copy = codec_arena_alloc(a, size + 1);

        return copy && size ? memcpy(copy, bytes, size) : copy;
}

void codec_arena_done(struct codec_arena *a)
{
        struct codec_chunk *next;

        for (struct codec_chunk *c = a->chunks; c; c = next) {
                next = c->next;
                free(c);
        }
        a->chunks = NULL;
}

/* ---- decoding ---- */

struct decoder {
        struct wire_reader *reader;
        struct codec_arena *arena;
        struct codec_fault *fault;
};

static int decode_struct(struct decoder *d, const struct schema_struct *s, void *object);

static int refuse(struct decoder *d, const char *field, const char *why)
{
        d->fault->field = field;
        d->fault->why = why;
        return -EBADMSG;
}

static int decode_text(struct decoder *d, const struct schema_field *f, const char **ret_text)
{
        struct wire_token t;
        char *copy;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_TEXT)
                return refuse(d, f->name, "is not a text");
        copy = codec_arena_copy(d->arena, t.bytes, t.n);
        if (!copy)
                return -ENOMEM;
        *ret_text = copy;
        return 0;
}

static int decode_bytes(struct decoder *d, const struct schema_field *f, const void **ret_bytes,
                        size_t *ret_size)
{
        struct wire_token t;
        void *copy;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_BYTES)
                return refuse(d, f->name, "is not a byte string");
        copy = codec_arena_copy(d->arena, t.bytes, t.n);
        if (!copy)
                return -ENOMEM;
        *ret_bytes = copy;
        *ret_size = t.n;
        return 0;
}

static int decode_uint(struct decoder *d, const struct schema_field *f, uint64_t max,
                       uint64_t *ret_value)
{
        struct wire_token t;

        if (wire_next(d->reader, &t) < 0 || (t.type != WIRE_UINT && t.type != WIRE_INT))
                return refuse(d, f->name, "is not an integer");
        if (t.type == WIRE_INT || t.u > max)
                return refuse(d, f->name, "is out of range");
        *ret_value = t.u;
        return 0;
}

static int decode_u32(struct decoder *d, const struct schema_field *f, uint32_t *ret_value)
{
        uint64_t v;
        int r = decode_uint(d, f, UINT32_MAX, &v);

        if (r == 0)
                *ret_value = (uint32_t)v;
        return r;
}

static int decode_i64(struct decoder *d, const struct schema_field *f, int64_t *ret_value)
{
        struct wire_token t;

        if (wire_next(d->reader, &t) < 0 || (t.type != WIRE_UINT && t.type != WIRE_INT))
                return refuse(d, f->name, "is not an integer");
        if (t.type == WIRE_UINT && t.u > INT64_MAX)
                return refuse(d, f->name, "is out of range");
        *ret_value = t.type == WIRE_UINT ? (int64_t)t.u : t.i;
        return 0;
}

static int decode_flag(struct decoder *d, const struct schema_field *f, bool *ret_value)
{
        struct wire_token t;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_FLAG)
                return refuse(d, f->name, "is not true or false");
        *ret_value = t.flag;
        return 0;
}

static int decode_dim3(struct decoder *d, const struct schema_field *f, uint32_t *ret_dims)
{
        struct wire_token t;
        int r = 0;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_ARRAY || t.n != 3)
                return refuse(d, f->name, "is not an array of three integers");
        for (int i = 0; i < 3 && r == 0; i++)
                r = decode_u32(d, f, &ret_dims[i]);
        return r;
}

static int decode_choice(struct decoder *d, const struct schema_field *f, uint32_t *ret_value)
{
        struct wire_token t;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_TEXT)
                return refuse(d, f->name, "is not a text");
        for (uint32_t i = 0; i < f->of_enum->count; i++) {
                const char *name = f->of_enum->values[i].name;

                if (strlen(name) == t.n && !memcmp(name, t.bytes, t.n)) {
                        *ret_value = i;
                        return 0;
                }
        }
        return refuse(d, f->name, "has a value that is not known");
}

/* Room for one more element: doubles as elements turn out to be there. */
static int grow_list(struct decoder *d, const struct schema_struct *of, void **list, size_t count,
                     size_t *room)
{
        size_t more = *room ? *room * 2 : 4;
        void *grown;

        if (count < *room)
                return 0;
        grown = codec_arena_alloc(d->arena, more * of->size);
        if (!grown)
                return -ENOMEM;
        if (count)
                memcpy(grown, *list, count * of->size);
        *list = grown;
        *room = more;
        return 0;
}

static int decode_list(struct decoder *d, const struct schema_field *f, void **ret_list,
                       size_t *ret_count)
{
        struct wire_token t;
        size_t room = 0;
        int r = 0;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_ARRAY)
                return refuse(d, f->name, "is not an array");
        for (uint32_t i = 0; i < t.n && r == 0; i++) {
                r = grow_list(d, f->of, ret_list, i, &room);
                if (r == 0)
                        r = decode_struct(d, f->of, (char *)*ret_list + i * f->of->size);
                if (r == 0)
                        *ret_count = i + 1;
        }
        return r;
}

static int decode_field(struct decoder *d, const struct schema_field *f, void *object)
{
        void *member = (char *)object + f->offset, *beside = (char *)object + f->beside;
        int r = 0;

        switch (f->kind) {
        case SCHEMA_u64:
                r = decode_uint(d, f, UINT64_MAX, member);
                break;
        case SCHEMA_u32:
                r = decode_u32(d, f, member);
                break;
        case SCHEMA_i64:
                r = decode_i64(d, f, member);
                break;
        case SCHEMA_flag:
                r = decode_flag(d, f, member);
                break;
        case SCHEMA_text:
                return decode_text(d, f, member);
        case SCHEMA_bytes:
                return decode_bytes(d, f, member, beside);
        case SCHEMA_dim3:
                r = decode_dim3(d, f, member);
                break;
        case SCHEMA_choice:
                r = decode_choice(d, f, member);
                break;
        case SCHEMA_object:
                r = decode_struct(d, f->of, member);
                break;
        case SCHEMA_list:
                return decode_list(d, f, member, beside);
        case SCHEMA_KINDS:
                return refuse(d, f->name, "has no kind");
        }
        if (r == 0 && f->may)
                *(bool *)beside = true;
        return r;
}

/* The field of a key; guess is tried first, since senders keep the order of the schema. */
static const struct schema_field *find_field(const struct schema_struct *s,
                                             const struct wire_token *key, uint32_t guess)
{
        for (uint32_t i = 0; i < s->count; i++) {
                const struct schema_field *f = &s->fields[(guess + i) % s->count];

                if (f->name_length == key->n && !memcmp(f->name, key->bytes, key->n))
                        return f;
        }
        return NULL;
}

static int decode_member(struct decoder *d, const struct schema_struct *s, void *object,
                         uint32_t *next, uint64_t *seen)
{
        const struct schema_field *f;
        struct wire_token key;

        if (wire_next(d->reader, &key) < 0 || key.type != WIRE_TEXT)
                return refuse(d, "", "has a key that is not a text");
        f = find_field(s, &key, *next);
        if (!f)
                return wire_skip(d->reader) < 0 ? refuse(d, "", "is cut short") : 0;
        *next = (uint32_t)(f - s->fields) + 1;
        *seen |= 1ULL << (f - s->fields);
        return decode_field(d, f, object);
}

static int decode_struct(struct decoder *d, const struct schema_struct *s, void *object)
{
        struct wire_token t;
        uint64_t seen = 0;
        uint32_t next = 0;
        int r = 0;

        if (wire_next(d->reader, &t) < 0 || t.type != WIRE_MAP)
                return refuse(d, s->name, "is not a map");
        for (uint32_t i = 0; i < t.n && r == 0; i++)
                r = decode_member(d, s, object, &next, &seen);
        for (uint32_t i = 0; i < s->count && r == 0; i++)
                if (!s->fields[i].may && !(seen & 1ULL << i))
                        r = refuse(d, s->fields[i].name, "is missing");
        return r;
}

int codec_decode(struct wire_reader *r, const struct schema_struct *s, struct codec_arena *arena,
                 void *ret_object, struct codec_fault *ret_fault)
{
        struct decoder d = {r, arena, ret_fault};

        memset(ret_object, 0, s->size);
        return decode_struct(&d, s, ret_object);
}

/* ---- encoding ---- */

static void pack_name(msgpack_packer *pk, const char *name)
{
        msgpack_pack_str_with_body(pk, name, strlen(name));
}

static const struct codec_rows *find_rows(const struct schema_field *f,
                                          const struct codec_rows *rows, size_t n_rows)
{
        for (size_t i = 0; i < n_rows; i++)
                if (!strcmp(rows[i].field, f->name))
                        return &rows[i];
        return NULL;
}

static void encode_list(msgpack_packer *pk, const struct schema_field *f, const void *object)
{
        const char *list = *(const char *const *)((const char *)object + f->offset);
        size_t n = *(const size_t *)((const char *)object + f->beside);

        msgpack_pack_array(pk, n);
        for (size_t i = 0; i < n; i++)
                codec_encode(pk, f->of, list + i * f->of->size, NULL, 0);
}

static void encode_bytes(msgpack_packer *pk, const struct schema_field *f, const void *object)
{
        const void *bytes = *(const void *const *)((const char *)object + f->offset);
        size_t n = *(const size_t *)((const char *)object + f->beside);

        msgpack_pack_bin_with_body(pk, bytes, n);
}

static void encode_choice(msgpack_packer *pk, const struct schema_field *f, uint32_t value)
{
        pack_name(pk, f->of_enum->values[value < f->of_enum->count ? value : 0].name);
}

static void encode_field(msgpack_packer *pk, const struct schema_field *f, const void *object)
{
        const void *member = (const char *)object + f->offset;

        switch (f->kind) {
        case SCHEMA_u64:
                msgpack_pack_uint64(pk, *(const uint64_t *)member);
                break;
        case SCHEMA_u32:
                msgpack_pack_uint32(pk, *(const uint32_t *)member);
                break;
        case SCHEMA_i64:
                msgpack_pack_int64(pk, *(const int64_t *)member);
                break;
        case SCHEMA_flag:
                *(const bool *)member ? msgpack_pack_true(pk) : msgpack_pack_false(pk);
                break;
        case SCHEMA_text:
                wire_pack_text(pk, *(const char *const *)member);
                break;
        case SCHEMA_bytes:
                encode_bytes(pk, f, object);
                break;
        case SCHEMA_dim3:
                msgpack_pack_array(pk, 3);
                for (int i = 0; i < 3; i++)
                        msgpack_pack_uint32(pk, ((const uint32_t *)member)[i]);
                break;
        case SCHEMA_choice:
                encode_choice(pk, f, *(const uint32_t *)member);
                break;
        case SCHEMA_object:
                codec_encode(pk, f->of, member, NULL, 0);
                break;
        case SCHEMA_list:
                encode_list(pk, f, object);
                break;
        case SCHEMA_KINDS:
                break;
        }
}

void codec_encode(msgpack_packer *pk, const struct schema_struct *s, const void *object,
                  const struct codec_rows *rows, size_t n_rows)
{
        uint32_t present = 0;

        for (uint32_t i = 0; i < s->count; i++)
                present += schema_present(&s->fields[i], object);
        msgpack_pack_map(pk, present);
        for (uint32_t i = 0; i < s->count; i++) {
                const struct schema_field *f = &s->fields[i];
                const struct codec_rows *given = find_rows(f, rows, n_rows);

                if (!schema_present(f, object))
                        continue;
                msgpack_pack_str_with_body(pk, f->name, f->name_length);
                if (!given) {
                        encode_field(pk, f, object);
                        continue;
                }
                msgpack_pack_array(pk, given->count);
                if (given->bytes->size)
                        pk->callback(pk->data, given->bytes->data, given->bytes->size);
        }
}
