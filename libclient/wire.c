/* SPDX-License-Identifier: Apache-2.0 */

/*
 * msgpack-c's unpacker builds a tree and allocates what an array claims to
 * hold, so reading is done here, on the bytes: each head is checked against the
 * bytes that are left (an element takes at least one), and nothing is allocated.
 */
#include "wire.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "schema.h"

/* ---- UTF-8 ---- */

/* Length of the valid sequence at s (1..4), 0 when there is none. */
static size_t utf8_sequence(const uint8_t *s, size_t left)
{
        uint32_t c, least;
        size_t n;

        if (s[0] < 0x80)
                return s[0] ? 1 : 0;
        if (s[0] >= 0xf5 || s[0] < 0xc2)
                return 0;
        n = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
        if (left < n)
                return 0;
        c = s[0] & (0xffu >> (n + 1));
        for (size_t i = 1; i < n; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                c = c << 6 | (s[i] & 0x3f);
        }
        least = n == 2 ? 0x80 : n == 3 ? 0x800 : 0x10000;
        if (c < least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
                return 0;
        return n;
}

bool wire_is_utf8(const char *text, size_t size)
{
        const uint8_t *s = (const uint8_t *)text;

        for (size_t i = 0; i < size;) {
                size_t n = utf8_sequence(s + i, size - i);

                if (!n)
                        return false;
                i += n;
        }
        return true;
}

/* ---- reading ---- */

static bool take(struct wire_reader *r, size_t n, const uint8_t **ret_bytes)
{
        if ((size_t)(r->end - r->at) < n)
                return false;
        *ret_bytes = r->at;
        r->at += n;
        return true;
}

/* A big-endian unsigned integer of 1, 2, 4 or 8 bytes. */
static bool take_uint(struct wire_reader *r, size_t bytes, uint64_t *ret_value)
{
        const uint8_t *p;
        uint64_t v = 0;

        if (!take(r, bytes, &p))
                return false;
        for (size_t i = 0; i < bytes; i++)
                v = v << 8 | p[i];
        *ret_value = v;
        return true;
}

/* Texts and byte strings: their bytes; arrays and maps: whether so many elements can follow. */
static bool take_content(struct wire_reader *r, struct wire_token *t, uint64_t n)
{
        const uint8_t *p = r->at;
        size_t left = (size_t)(r->end - r->at);

        if (n > left || (t->type == WIRE_MAP && n > left / 2))
                return false;
        t->n = (uint32_t)n;
        if (t->type == WIRE_TEXT || t->type == WIRE_BYTES) {
                r->at += n;
                t->bytes = (const char *)p;
        }
        return true;
}

static bool take_sized(struct wire_reader *r, struct wire_token *t, enum wire_type type,
                       size_t length_bytes)
{
        uint64_t n;

        t->type = type;
        return take_uint(r, length_bytes, &n) && take_content(r, t, n);
}

static bool take_unsigned(struct wire_reader *r, struct wire_token *t, size_t bytes)
{
        t->type = WIRE_UINT;
        return take_uint(r, bytes, &t->u);
}

static bool take_signed(struct wire_reader *r, struct wire_token *t, size_t bytes)
{
        uint64_t v;
        unsigned int shift = 64 - 8 * (unsigned int)bytes;

        if (!take_uint(r, bytes, &v))
                return false;
        t->i = (int64_t)(v << shift) >> shift;
        t->type = t->i < 0 ? WIRE_INT : WIRE_UINT;
        return true;
}

/* The forms 0xc0 to 0xdf. */
static bool take_long_form(struct wire_reader *r, struct wire_token *t, uint8_t head)
{
        uint64_t ignored;

        switch (head) {
        case 0xc0:
                t->type = WIRE_NIL;
                return true;
        case 0xc2:
        case 0xc3:
                t->type = WIRE_FLAG;
                t->flag = head & 1;
                return true;
        case 0xc4:
        case 0xc5:
        case 0xc6:
                return take_sized(r, t, WIRE_BYTES, (size_t)1 << (head - 0xc4));
        case 0xca:
        case 0xcb:
                t->type = WIRE_FLOAT;
                return take_uint(r, head == 0xca ? 4 : 8, &ignored);
        case 0xcc:
        case 0xcd:
        case 0xce:
        case 0xcf:
                return take_unsigned(r, t, (size_t)1 << (head - 0xcc));
        case 0xd0:
        case 0xd1:
        case 0xd2:
        case 0xd3:
                return take_signed(r, t, (size_t)1 << (head - 0xd0));
        case 0xd9:
        case 0xda:
        case 0xdb:
                return take_sized(r, t, WIRE_TEXT, (size_t)1 << (head - 0xd9));
        case 0xdc:
        case 0xdd:
                return take_sized(r, t, WIRE_ARRAY, (size_t)2 << (head - 0xdc));
        case 0xde:
        case 0xdf:
                return take_sized(r, t, WIRE_MAP, (size_t)2 << (head - 0xde));
        default: /* never used (0xc1) or an extension type */
                return false;
        }
}

static bool take_token(struct wire_reader *r, struct wire_token *t)
{
        const uint8_t *head;

        if (!take(r, 1, &head))
                return false;
        if (*head < 0x80) {
                t->type = WIRE_UINT;
                t->u = *head;
                return true;
        }
        if (*head >= 0xe0) {
                t->type = WIRE_INT;
                t->i = (int8_t)*head;
                return true;
        }
        if (*head >= 0xc0)
                return take_long_form(r, t, *head);
        t->type = *head < 0x90 ? WIRE_MAP : *head < 0xa0 ? WIRE_ARRAY : WIRE_TEXT;
        return take_content(r, t, *head < 0xa0 ? *head & 0x0f : *head & 0x1f);
}

int wire_next(struct wire_reader *r, struct wire_token *ret_token)
{
        struct wire_token t = {.type = WIRE_NIL};

        if (!take_token(r, &t))
                return -EBADMSG;
        *ret_token = t;
        return 0;
}

int wire_skip(struct wire_reader *r)
{
        uint64_t values = 1;
        struct wire_token t;

        for (; values; values--) {
                if (wire_next(r, &t) < 0)
                        return -EBADMSG;
                if (t.type == WIRE_ARRAY)
                        values += t.n;
                else if (t.type == WIRE_MAP)
                        values += 2 * (uint64_t)t.n;
        }
        return 0;
}

/* ---- checking ---- */

struct container {
        bool is_map;
        uint64_t left; /* values to come; of a map keys count too */
        uint32_t key_count;
        struct {
                const char *bytes;
                uint32_t n;
        } keys[GPUOBS_MEMBER_MAX];
};

struct check {
        struct wire_reader reader;
        unsigned int depth;
        struct container stack[GPUOBS_DEPTH_MAX];
};

static const char *check_key(struct container *map, const struct wire_token *t)
{
        if (t->type != WIRE_TEXT)
                return "a map key is not a text";
        for (uint32_t i = 0; i < map->key_count; i++)
                if (map->keys[i].n == t->n && !memcmp(map->keys[i].bytes, t->bytes, t->n))
                        return "a map has a key twice";
        map->keys[map->key_count].bytes = t->bytes;
        map->keys[map->key_count].n = t->n;
        map->key_count++;
        return NULL;
}

static const char *check_open(struct check *c, const struct wire_token *t)
{
        struct container *in;

        if (c->depth == GPUOBS_DEPTH_MAX)
                return "nested too deeply";
        if (t->type == WIRE_MAP && t->n > GPUOBS_MEMBER_MAX)
                return "a map has too many members";
        in = &c->stack[c->depth++];
        in->is_map = t->type == WIRE_MAP;
        in->left = in->is_map ? 2 * (uint64_t)t->n : t->n;
        in->key_count = 0;
        return NULL;
}

static const char *check_value(struct check *c)
{
        struct container *in = c->depth ? &c->stack[c->depth - 1] : NULL;
        struct wire_token t;
        const char *why;

        if (wire_next(&c->reader, &t) < 0)
                return "cut short, or a length beyond the end, or a type that is not allowed";
        if (t.type == WIRE_TEXT && !wire_is_utf8(t.bytes, t.n))
                return "a text is not UTF-8";
        if (in && in->is_map && in->left % 2 == 0) {
                why = check_key(in, &t);
                if (why)
                        return why;
        }
        if (in)
                in->left--;
        return t.type == WIRE_ARRAY || t.type == WIRE_MAP ? check_open(c, &t) : NULL;
}

int wire_check(const void *data, size_t size, const char **ret_why)
{
        struct check c;
        const char *why;

        c.reader = (struct wire_reader){data, (const uint8_t *)data + size};
        c.depth = 0;
        do {
                why = check_value(&c);
                while (!why && c.depth && !c.stack[c.depth - 1].left)
                        c.depth--;
        } while (!why && c.depth);
        if (!why && c.reader.at != c.reader.end)
                why = "bytes after the value";
        if (!why)
                return 0;
        *ret_why = why;
        return -EBADMSG;
}

/* ---- writing ---- */

void wire_buffer_done(struct wire_buffer *b)
{
        free(b->data);
        *b = (struct wire_buffer){0};
}

static bool reserve(struct wire_buffer *b, size_t more)
{
        size_t room = b->room ? b->room : 256;
        char *data;

        if (b->failed)
                return false;
        if (b->room - b->size >= more)
                return true;
        while (room - b->size < more)
                room *= 2;
        data = realloc(b->data, room);
        if (!data) {
                b->failed = true;
                return false;
        }
        b->data = data;
        b->room = room;
        return true;
}

int wire_buffer_write(void *buffer, const char *data, size_t size)
{
        struct wire_buffer *b = buffer;

        if (!reserve(b, size))
                return -1;
        memcpy(b->data + b->size, data, size);
        b->size += size;
        return 0;
}

static const char replacement[] = "\xef\xbf\xbd";

/* Walks the text and writes it with its bad bytes replaced; pk NULL: only counts. */
static size_t put_repaired(msgpack_packer *pk, const char *text, size_t size)
{
        size_t total = 0;

        for (size_t i = 0; i < size;) {
                size_t valid = utf8_sequence((const uint8_t *)text + i, size - i);
                const char *bytes = valid ? text + i : replacement;
                size_t n = valid ? valid : sizeof(replacement) - 1;

                if (pk)
                        msgpack_pack_str_body(pk, bytes, n);
                total += n;
                i += valid ? valid : 1;
        }
        return total;
}

void wire_pack_text(msgpack_packer *pk, const char *text)
{
        size_t size = text ? strlen(text) : 0;

        if (wire_is_utf8(text, size)) {
                msgpack_pack_str_with_body(pk, size ? text : "", size);
                return;
        }
        msgpack_pack_str(pk, put_repaired(NULL, text, size));
        put_repaired(pk, text, size);
}

void wire_frame_begin(struct wire_buffer *b)
{
        static const char none[WIRE_LENGTH_BYTES];

        wire_buffer_write(b, none, sizeof(none));
}

int wire_frame_end(struct wire_buffer *b)
{
        uint32_t length;

        if (b->failed)
                return -ENOMEM;
        if (b->size - WIRE_LENGTH_BYTES > GPUOBS_FRAME_MAX)
                return -EMSGSIZE;
        length = htole32((uint32_t)(b->size - WIRE_LENGTH_BYTES));
        memcpy(b->data, &length, sizeof(length));
        return 0;
}

int wire_frame_size(const void *data, size_t size, size_t *ret_size)
{
        uint32_t length;

        if (size < WIRE_LENGTH_BYTES)
                return -EAGAIN;
        memcpy(&length, data, sizeof(length));
        length = le32toh(length);
        if (length > GPUOBS_FRAME_MAX)
                return -EMSGSIZE;
        if (length == 0)
                return -EBADMSG;
        *ret_size = length;
        return 0;
}
