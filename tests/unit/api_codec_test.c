/* SPDX-License-Identifier: Apache-2.0 */

/* The API's bytes: every struct round, every rule of the strict reader broken once. */
#include <errno.h>

#include "libclient/codec.h"
#include "libclient/schema.h"
#include "unit/test.h"

/* ---- random objects of any struct ---- */

static void fill(const struct schema_struct *s, void *object, uint64_t *seed,
                 struct codec_arena *arena);

static const char *random_text(uint64_t *seed, struct codec_arena *arena)
{
        static const char *const pieces[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                             "Z"};
        size_t n = test_random(seed) % 40;
        char *text = codec_arena_alloc(arena, n * 4 + 1);

        CHECK(text);
        while (n--)
                strcat(text, pieces[test_random(seed) % 5]);
        return text;
}

/* Small and large numbers, so that every width on the wire comes up. */
static uint64_t random_number(uint64_t *seed)
{
        return test_random(seed) >> (test_random(seed) % 64);
}

static void fill_list(const struct schema_field *f, void *object, uint64_t *seed,
                      struct codec_arena *arena)
{
        size_t n = test_random(seed) % 20;
        char *list = codec_arena_alloc(arena, (n + 1) * f->of->size);

        CHECK(list);
        for (size_t i = 0; i < n; i++)
                fill(f->of, list + i * f->of->size, seed, arena);
        *(void **)((char *)object + f->offset) = list;
        *(size_t *)((char *)object + f->beside) = n;
}

static void fill_field(const struct schema_field *f, void *object, uint64_t *seed,
                       struct codec_arena *arena)
{
        void *member = (char *)object + f->offset;

        if (f->may && test_random(seed) % 2)
                return;
        if (f->may && f->kind != SCHEMA_text)
                *(bool *)((char *)object + f->beside) = true;
        switch (f->kind) {
        case SCHEMA_u64:
                *(uint64_t *)member = random_number(seed);
                break;
        case SCHEMA_u32:
                *(uint32_t *)member = (uint32_t)random_number(seed);
                break;
        case SCHEMA_i64:
                *(int64_t *)member =
                        (int64_t)random_number(seed) * (test_random(seed) % 2 ? 1 : -1);
                break;
        case SCHEMA_flag:
                *(bool *)member = test_random(seed) % 2;
                break;
        case SCHEMA_text:
                *(const char **)member = random_text(seed, arena);
                break;
        case SCHEMA_bytes:
                *(const void **)member = random_text(seed, arena);
                *(size_t *)((char *)object + f->beside) = strlen(*(const char **)member) + 1;
                break;
        case SCHEMA_dim3:
                for (int i = 0; i < 3; i++)
                        ((uint32_t *)member)[i] = (uint32_t)random_number(seed);
                break;
        case SCHEMA_choice:
                *(uint32_t *)member = (uint32_t)(test_random(seed) % f->of_enum->count);
                break;
        case SCHEMA_object:
                fill(f->of, member, seed, arena);
                break;
        case SCHEMA_list:
                fill_list(f, object, seed, arena);
                break;
        case SCHEMA_KINDS:
                CHECK(false);
        }
}

static void fill(const struct schema_struct *s, void *object, uint64_t *seed,
                 struct codec_arena *arena)
{
        for (uint32_t i = 0; i < s->count; i++)
                fill_field(&s->fields[i], object, seed, arena);
}

/* ---- comparing ---- */

static void check_same(const struct schema_struct *s, const void *a, const void *b);

static void check_same_list(const struct schema_field *f, const void *a, const void *b)
{
        const char *list_a = *(const char *const *)((const char *)a + f->offset);
        const char *list_b = *(const char *const *)((const char *)b + f->offset);
        size_t n = *(const size_t *)((const char *)a + f->beside);

        CHECK_EQ(n, *(const size_t *)((const char *)b + f->beside));
        for (size_t i = 0; i < n; i++)
                check_same(f->of, list_a + i * f->of->size, list_b + i * f->of->size);
}

static void check_same_bytes(const struct schema_field *f, const void *a, const void *b)
{
        size_t n = *(const size_t *)((const char *)a + f->beside);

        CHECK_EQ(n, *(const size_t *)((const char *)b + f->beside));
        CHECK(memcmp(*(const void *const *)((const char *)a + f->offset),
                     *(const void *const *)((const char *)b + f->offset), n) == 0);
}

static void check_same_field(const struct schema_field *f, const void *a, const void *b)
{
        static const size_t sizes[SCHEMA_KINDS] = {
                [SCHEMA_u64] = 8,  [SCHEMA_u32] = 4,   [SCHEMA_i64] = 8,
                [SCHEMA_flag] = 1, [SCHEMA_dim3] = 12, [SCHEMA_choice] = 4,
        };
        const char *member_a = (const char *)a + f->offset, *member_b = (const char *)b + f->offset;

        CHECK_EQ(schema_present(f, a), schema_present(f, b));
        if (!schema_present(f, a))
                return;
        if (f->kind == SCHEMA_list)
                check_same_list(f, a, b);
        else if (f->kind == SCHEMA_object)
                check_same(f->of, member_a, member_b);
        else if (f->kind == SCHEMA_bytes)
                check_same_bytes(f, a, b);
        else if (f->kind == SCHEMA_text)
                CHECK_STR(*(const char *const *)member_a, *(const char *const *)member_b);
        else
                CHECK(memcmp(member_a, member_b, sizes[f->kind]) == 0);
}

static void check_same(const struct schema_struct *s, const void *a, const void *b)
{
        for (uint32_t i = 0; i < s->count; i++)
                check_same_field(&s->fields[i], a, b);
}

static void round_trip(const struct schema_struct *s, uint64_t *seed)
{
        struct codec_arena arena = {0}, decoded = {0};
        void *in = codec_arena_alloc(&arena, s->size), *out = codec_arena_alloc(&decoded, s->size);
        struct wire_buffer b = {0};
        struct codec_fault fault = {"", ""};
        struct wire_reader r;
        const char *why = "";
        msgpack_packer pk;

        fill(s, in, seed, &arena);
        msgpack_packer_init(&pk, &b, wire_buffer_write);
        codec_encode(&pk, s, in, NULL, 0);
        CHECK(!b.failed);
        CHECK_EQ(wire_check(b.data, b.size, &why), 0);
        r = (struct wire_reader){(uint8_t *)b.data, (uint8_t *)b.data + b.size};
        CHECK_EQ(codec_decode(&r, s, &decoded, out, &fault), 0);
        CHECK(r.at == r.end);
        check_same(s, in, out);
        wire_buffer_done(&b);
        codec_arena_done(&arena);
        codec_arena_done(&decoded);
}

static void every_struct_goes_round(void)
{
        uint64_t seed = 7;

        for (size_t i = 0; i < schema_struct_count; i++)
                for (int k = 0; k < 50; k++)
                        round_trip(&schema_structs[i], &seed);
}

/* ---- the reader's rules ---- */

static void refused(const void *data, size_t size, const char *rule)
{
        const char *why = NULL;

        CHECK_EQ(wire_check(data, size, &why), -EBADMSG);
        CHECK(why && strstr(why, rule));
}
#define REFUSED(bytes, rule) refused(bytes, sizeof(bytes) - 1, rule)

static void accepted(const void *data, size_t size)
{
        const char *why = "";

        CHECK_EQ(wire_check(data, size, &why), 0);
}
#define ACCEPTED(bytes) accepted(bytes, sizeof(bytes) - 1)

static void broken_bytes_are_refused(void)
{
        REFUSED("", "cut short");
        REFUSED("\x81", "cut short");
        REFUSED("\x81\xa1k", "cut short");
        REFUSED("\xa5hell", "cut short");
        REFUSED("\xd9", "cut short");
        REFUSED("\xcf\x01\x02", "cut short");
        REFUSED("\xc1", "not allowed");
        REFUSED("\xc7\x01\x05x", "not allowed"); /* ext 8 */
        REFUSED("\xd4\x05x", "not allowed");     /* fixext 1 */
        REFUSED("\x80\x80", "after the value");
        REFUSED("\x80\x00", "after the value");
}

static void claimed_lengths_are_checked(void)
{
        REFUSED("\xdd\xff\xff\xff\xff", "length beyond");
        REFUSED("\xdf\xff\xff\xff\xff\xa1"
                "a",
                "length beyond");
        REFUSED("\xdb\xff\xff\xff\xff"
                "abc",
                "length beyond");
        REFUSED("\xc6\x7f\xff\xff\xff"
                "abc",
                "length beyond");
        REFUSED("\xdc\x00\x03\x01\x02", "length beyond");
}

static void maps_are_strict(void)
{
        REFUSED("\x81\x01\x02", "not a text");
        REFUSED("\x82\xa1"
                "a\x01\xa1"
                "a\x02",
                "twice");
        REFUSED("\x81\xa1m\x82\xa1"
                "b\x01\xd9\x01"
                "b\x02",
                "twice"); /* the same key in another width, in an inner map */
        ACCEPTED("\x82\xa1"
                 "a\x81\xa1"
                 "a\x01\xa1"
                 "b\x02"); /* the same key in different maps */
}

static void maps_have_few_members(void)
{
        uint8_t map[3 + 65 * 3] = {0xde, 0, 64};
        const char *why = "";

        for (uint8_t i = 0; i < 65; i++) {
                map[3 + i * 3] = 0xa1;
                map[4 + i * 3] = (uint8_t)(i + 1);
                map[5 + i * 3] = i;
        }
        CHECK_EQ(wire_check(map, 3 + 64 * 3, &why), 0);
        map[2] = 65;
        refused(map, sizeof(map), "too many members");
}

static void nesting_is_bounded(void)
{
        char deep[18];

        memset(deep, '\x91', 17);
        deep[16] = '\x01';
        accepted(deep, 17);
        deep[16] = '\x91';
        deep[17] = '\x01';
        refused(deep, 18, "too deeply");
        deep[16] = '\x90'; /* an empty array is a level too */
        refused(deep, 17, "too deeply");
}

static void texts_are_utf8(void)
{
        ACCEPTED("\xa2\xc3\xa9");
        ACCEPTED("\xa4\xf4\x8f\xbf\xbf");
        REFUSED("\xa1\xff", "UTF-8");
        REFUSED("\xa1\x80", "UTF-8");
        REFUSED("\xa2\xc0\x80", "UTF-8");         /* overlong */
        REFUSED("\xa3\xe0\x80\x80", "UTF-8");     /* overlong */
        REFUSED("\xa3\xed\xa0\x80", "UTF-8");     /* surrogate */
        REFUSED("\xa4\xf4\x90\x80\x80", "UTF-8"); /* beyond U+10FFFF */
        REFUSED("\xa2\xe2\x82", "UTF-8");         /* cut */
        REFUSED("\xa2"
                "a\x00",
                "UTF-8");                     /* NUL */
        REFUSED("\x81\xa1\xff\x01", "UTF-8"); /* in a key */
        ACCEPTED("\xc4\x01\xff");             /* bytes are not text */
}

static void frames_have_bounds(void)
{
        size_t size = 0;

        CHECK_EQ(wire_frame_size("\x01\x00\x00", 3, &size), -EAGAIN);
        CHECK_EQ(wire_frame_size("\x00\x00\x00\x00", 4, &size), -EBADMSG);
        CHECK_EQ(wire_frame_size("\x01\x00\x10\x00", 4, &size), -EMSGSIZE);
        CHECK_EQ(wire_frame_size("\xff\xff\xff\xff", 4, &size), -EMSGSIZE);
        CHECK_EQ(wire_frame_size("\x00\x00\x10\x00", 4, &size), 0);
        CHECK_EQ(size, 1u << 20);
}

static void long_frames_are_not_written(void)
{
        struct wire_buffer b = {0};
        static char block[4096];

        wire_frame_begin(&b);
        for (int i = 0; i < 256; i++)
                wire_buffer_write(&b, block, sizeof(block));
        CHECK_EQ(wire_frame_end(&b), 0);
        wire_buffer_write(&b, block, 1);
        CHECK_EQ(wire_frame_end(&b), -EMSGSIZE);
        wire_buffer_done(&b);
}

/* ---- the decoder's rules ---- */

static struct gpuobs_launches_params params;

static int decode(const void *data, size_t size, const char **ret_field, const char **ret_why)
{
        struct wire_reader r = {data, (const uint8_t *)data + size};
        struct codec_arena arena = {0};
        struct codec_fault fault = {"", ""};
        int e = codec_decode(&r, SCHEMA_OF(launches_params), &arena, &params, &fault);

        *ret_field = fault.field;
        *ret_why = fault.why;
        codec_arena_done(&arena);
        return e;
}

static void bad(const void *data, size_t size, const char *name, const char *what)
{
        const char *field, *why;

        CHECK_EQ(decode(data, size, &field, &why), -EBADMSG);
        CHECK_STR(field, name);
        CHECK(strstr(why, what));
}
#define BAD(bytes, name, what) bad(bytes, sizeof(bytes) - 1, name, what)

static void wrong_types_are_named(void)
{
        const char *field, *why;

        BAD("\x81\xa3pid\xa1x", "pid", "not an integer");
        BAD("\x81\xa3pid\xc3", "pid", "not an integer");
        BAD("\x81\xa3pid\xca\x00\x00\x00\x00", "pid", "not an integer"); /* a float */
        BAD("\x81\xa3pid\xff", "pid", "out of range");
        BAD("\x81\xa3pid\xcf\x00\x00\x00\x01\x00\x00\x00\x00", "pid", "out of range");
        BAD("\x81\xa6newest\x01", "newest", "not true or false");
        BAD("\x81\xa6kernel\x01", "kernel", "not a text");
        BAD("\x81\xa6kernel\xc0", "kernel", "not a text"); /* nil is not absent */
        BAD("\x81\xa6kernel\xc4\x01x", "kernel", "not a text");
        BAD("\x90", "launches_params", "not a map");
        CHECK_EQ(decode("\x81\xa3pid\xcd\x12\x34", 8, &field, &why), 0);
        CHECK(params.has_pid);
        CHECK_EQ(params.pid, 0x1234);
        CHECK_EQ(decode("\x81\xa3pid\xd1\x12\x34", 8, &field, &why), 0); /* signed form */
        CHECK_EQ(params.pid, 0x1234);
}

static void unknown_keys_are_passed_over(void)
{
        const char *field, *why;

        CHECK_EQ(decode("\x82\xa5"
                        "later\x92\x81\xa1x\x01\xc0\xa3pid\x07",
                        18, &field, &why),
                 0);
        CHECK_EQ(params.pid, 7);
        CHECK(!params.has_gpu && !params.kernel);
}

static void mandatory_members_must_be_there(void)
{
        struct wire_reader r = {(const uint8_t *)"\x80", (const uint8_t *)"\x80" + 1};
        struct gpuobs_cancel_params cancel;
        struct codec_arena arena = {0};
        struct codec_fault fault = {"", ""};

        CHECK_EQ(codec_decode(&r, SCHEMA_OF(cancel_params), &arena, &cancel, &fault), -EBADMSG);
        CHECK_STR(fault.field, "stream");
        CHECK_STR(fault.why, "is missing");
        codec_arena_done(&arena);
}

static void bad_choices_and_dims_are_refused(void)
{
        static const char bytes[] = "\x81\xa5match\xa5maybe";
        static const char dims[] = "\x81\xa4grid\x92\x01\x02";
        struct wire_reader r = {(const uint8_t *)bytes, (const uint8_t *)bytes + sizeof(bytes) - 1};
        struct gpuobs_launch launch;
        struct codec_arena arena = {0};
        struct codec_fault fault = {"", ""};

        CHECK_EQ(codec_decode(&r, SCHEMA_OF(launch), &arena, &launch, &fault), -EBADMSG);
        CHECK_STR(fault.field, "match");
        r = (struct wire_reader){(const uint8_t *)dims, (const uint8_t *)dims + sizeof(dims) - 1};
        CHECK_EQ(codec_decode(&r, SCHEMA_OF(launch), &arena, &launch, &fault), -EBADMSG);
        CHECK_STR(fault.field, "grid");
        codec_arena_done(&arena);
}

static void texts_are_repaired_when_written(void)
{
        struct wire_buffer b = {0};
        const char *why = "";
        struct wire_token t;
        struct wire_reader r;
        msgpack_packer pk;

        msgpack_packer_init(&pk, &b, wire_buffer_write);
        wire_pack_text(&pk, "a\xff\xc3\xa9\xe2\x82z");
        CHECK_EQ(wire_check(b.data, b.size, &why), 0);
        r = (struct wire_reader){(uint8_t *)b.data, (uint8_t *)b.data + b.size};
        CHECK_EQ(wire_next(&r, &t), 0);
        CHECK_EQ(t.n, 13);
        CHECK(!memcmp(t.bytes, "a\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbdz", 13));
        wire_buffer_done(&b);
}

/* ---- envelopes ---- */

static int request(const void *bytes, size_t size, struct codec_request *req, const char **field)
{
        struct codec_fault fault = {"", ""};
        int r = codec_request_decode(bytes, size, req, &fault);

        *field = fault.field;
        return r;
}
#define REQUEST(bytes) request(bytes, sizeof(bytes) - 1, &req, &field)

static void requests_need_id_and_method(void)
{
        struct codec_request req;
        const char *field;

        CHECK_EQ(REQUEST("\x82\xa2id\x05\xa6method\xa6status"), 0);
        CHECK_EQ(req.id, 5);
        CHECK_EQ(req.method_length, 6);
        CHECK(!req.params.at);
        CHECK_EQ(REQUEST("\x81\xa6method\xa6status"), -EBADMSG);
        CHECK_STR(field, "id");
        CHECK_EQ(REQUEST("\x81\xa2id\x05"), -EBADMSG);
        CHECK_STR(field, "method");
        CHECK_EQ(REQUEST("\x82\xa2id\xa1x\xa6method\xa6status"), -EBADMSG);
        CHECK_STR(field, "id");
        CHECK_EQ(REQUEST("\x82\xa2id\xff\xa6method\xa6status"), -EBADMSG);
        CHECK_EQ(REQUEST("\x82\xa6method\x01\xa2id\x05"), -EBADMSG);
        CHECK_STR(field, "method");
        CHECK(req.has_id && req.id == 5); /* so that the answer finds its request */
        CHECK_EQ(REQUEST("\x90"), -EBADMSG);
}

static void answers_are_checked(void)
{
        struct codec_arena arena = {0};
        struct codec_answer a;
        struct wire_buffer b = {0};

        CHECK_EQ(codec_error_encode(&b, 9, GPUOBS_ERROR_BAD_PARAMS, NULL, "limit is 0"), 0);
        CHECK_EQ(codec_answer_decode(b.data + 4, b.size - 4, &arena, &a), 0);
        CHECK(a.is_error && a.id == 9 && !a.more);
        CHECK_EQ(a.error->number, GPUOBS_ERROR_BAD_PARAMS);
        CHECK_EQ(a.error->error, EINVAL);
        CHECK_STR(a.detail, "limit is 0");
        wire_buffer_done(&b);
        CHECK_EQ(codec_answer_decode("\x81\xa2id\x01", 5, &arena, &a), -EBADMSG);
        CHECK_EQ(codec_answer_decode("\x81\xa6result\x80", 9, &arena, &a), -EBADMSG);
        CHECK_EQ(codec_answer_decode("\x82\xa2id\x01\xa5"
                                     "error\x80",
                                     12, &arena, &a),
                 -EBADMSG);
        codec_arena_done(&arena);
}

static void names_are_found(void)
{
        CHECK(schema_find_method("launches.query", 14) == &schema_methods[METHOD_launches_query]);
        CHECK(!schema_find_method("launches.quer", 13));
        CHECK(!schema_find_method("", 0));
        CHECK_EQ(schema_find_error("timeout", 7)->number, GPUOBS_ERROR_TIMEOUT);
        CHECK_STR(schema_enum_text("match", GPUOBS_MATCH_EXACT), "exact");
        CHECK_STR(schema_enum_text("match", 99), "?");
        for (int i = 0; i < METHOD_COUNT; i++) {
                CHECK(schema_methods[i].params->count <= 64);
                CHECK(schema_methods[i].result->count <= 64);
        }
}

int main(void)
{
        TEST(every_struct_goes_round);
        TEST(broken_bytes_are_refused);
        TEST(claimed_lengths_are_checked);
        TEST(maps_are_strict);
        TEST(maps_have_few_members);
        TEST(nesting_is_bounded);
        TEST(texts_are_utf8);
        TEST(frames_have_bounds);
        TEST(long_frames_are_not_written);
        TEST(wrong_types_are_named);
        TEST(unknown_keys_are_passed_over);
        TEST(mandatory_members_must_be_there);
        TEST(bad_choices_and_dims_are_refused);
        TEST(texts_are_repaired_when_written);
        TEST(requests_need_id_and_method);
        TEST(answers_are_checked);
        TEST(names_are_found);
        return 0;
}
