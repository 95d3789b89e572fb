/* SPDX-License-Identifier: Apache-2.0 */

/* Streams of slices. */
#include <stdlib.h>

#include "api/handlers.h"
#include "api/share.h"
#include "correlate/slice_history.h"
#include "util/macro.h"

struct slice_stream {
        struct stream base;
        struct share_filter filter;
};

static int encode_batch(struct stream *st, const struct wire_buffer *rows, uint32_t count,
                        bool more, struct wire_buffer *frame)
{
        struct codec_rows list = {"slices", count, rows};
        struct gpuobs_slice_batch batch = {.dropped = st->dropped};
        struct codec_arena arena = {0};
        int r;

        batch.has_losses = stream_losses(st, more, &arena, &batch.losses);
        r = codec_result_encode(frame, st->id, more, SCHEMA_OF(slice_batch), &batch, &list, 1);
        codec_arena_done(&arena);
        return r;
}

static void free_stream(struct stream *st)
{
        free(container_of(st, struct slice_stream, base));
}

static bool wants(struct stream *st, const void *slices, size_t i)
{
        return share_wants_slice(st->connection->server, st->uid,
                                 (const struct kept_slice *)slices + i,
                                 &container_of(st, struct slice_stream, base)->filter);
}

static void add(struct stream *st, struct wire_buffer *rows, const void *slices, size_t i)
{
        share_add_slice(st->connection->server, rows, (const struct kept_slice *)slices + i);
}

static uint64_t process_key(const void *slices, size_t i)
{
        return ((const struct kept_slice *)slices)[i].process_key;
}

static const struct stream_kind slice_kind = {.encode = encode_batch,
                                              .free = free_stream,
                                              .wants = wants,
                                              .add = add,
                                              .process_key = process_key};

void api_server_publish_slices(struct api_server *s, const struct kept_slice *slices, size_t n)
{
        stream_publish(s, &slice_kind, slices, n);
}

void api_handle_slices_subscribe(struct api_call *call,
                                 const struct gpuobs_slices_subscribe_params *p)
{
        struct slice_stream *st = calloc(1, sizeof(*st));

        if (!st) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        *st = (struct slice_stream){.base.kind = &slice_kind,
                                    .filter = {p->has_pid, p->has_gpu, p->pid, p->gpu}};
        stream_begin(call, &st->base);
}
