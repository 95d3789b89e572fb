/* SPDX-License-Identifier: Apache-2.0 */

/* What a client sends: a frame's body through the same steps as in the daemon. */
#include <stdlib.h>

#include "libclient/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The parameters of whichever method was named, and of every other one too. */
static void decode_as_all(const struct wire_reader *params)
{
        for (int i = 0; i < METHOD_COUNT; i++) {
                const struct schema_struct *s = schema_methods[i].params;
                struct wire_reader r = *params;
                struct codec_arena arena = {0};
                void *object = malloc(s->size);
                struct codec_fault fault;

                if (object)
                        codec_decode(&r, s, &arena, object, &fault);
                codec_arena_done(&arena);
                free(object);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct codec_request request;
        struct codec_fault fault;
        const char *why;
        size_t frame;

        wire_frame_size(data, size, &frame);
        if (wire_check(data, size, &why) < 0)
                return 0;
        if (codec_request_decode(data, size, &request, &fault) < 0)
                return 0;
        schema_find_method(request.method, request.method_length);
        if (request.params.at)
                decode_as_all(&request.params);
        return 0;
}
