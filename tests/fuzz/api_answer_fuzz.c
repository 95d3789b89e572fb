/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a daemon sends: a frame's body through the steps of the client library.
 * What decodes must encode again and decode to the same bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "libclient/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void encode(struct wire_buffer *b, const struct schema_struct *s, const void *object)
{
        msgpack_packer pk;

        msgpack_packer_init(&pk, b, wire_buffer_write);
        codec_encode(&pk, s, object, NULL, 0);
        if (b->failed)
                abort();
}

static void go_round(const struct schema_struct *s, const void *object)
{
        struct wire_buffer first = {0}, second = {0};
        struct codec_arena arena = {0};
        void *again = calloc(1, s->size);
        struct codec_fault fault;
        struct wire_reader r;
        const char *why;

        encode(&first, s, object);
        r = (struct wire_reader){(uint8_t *)first.data, (uint8_t *)first.data + first.size};
        if (!again || wire_check(first.data, first.size, &why) < 0 ||
            codec_decode(&r, s, &arena, again, &fault) < 0 || r.at != r.end)
                abort();
        encode(&second, s, again);
        if (first.size != second.size || memcmp(first.data, second.data, first.size))
                abort();
        wire_buffer_done(&first);
        wire_buffer_done(&second);
        codec_arena_done(&arena);
        free(again);
}

static void decode_as(const struct schema_struct *s, const struct wire_reader *result)
{
        struct wire_reader r = *result;
        struct codec_arena arena = {0};
        void *object = malloc(s->size);
        struct codec_fault fault;

        if (object && codec_decode(&r, s, &arena, object, &fault) == 0)
                go_round(s, object);
        codec_arena_done(&arena);
        free(object);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct codec_arena arena = {0};
        struct codec_answer answer;
        const char *why;

        if (wire_check(data, size, &why) < 0)
                return 0;
        if (codec_answer_decode(data, size, &arena, &answer) == 0 && !answer.is_error)
                for (int i = 0; i < METHOD_COUNT; i++)
                        decode_as(schema_methods[i].result, &answer.result);
        codec_arena_done(&arena);
        return 0;
}
