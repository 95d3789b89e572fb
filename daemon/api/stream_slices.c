/* SPDX-License-Identifier: Apache-2.0 */

/* Streams of slices. */
#include <stdlib.h>
#include <utlist.h>

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

static const struct stream_kind slice_kind = {.encode = encode_batch, .free = free_stream};

static void publish_to(struct stream *st, const struct kept_slice *slices, size_t n)
{
        struct slice_stream *own = container_of(st, struct slice_stream, base);
        struct api_server *s = st->connection->server;
        struct wire_buffer rows = {0};
        uint32_t count = 0;

        if (st->connection->ending || st->connection->closing)
                return;
        for (size_t i = 0; i < n; i++) {
                if (!share_wants_slice(s, st->uid, &slices[i], &own->filter))
                        continue;
                if (connection_full(st->connection)) {
                        st->dropped++;
                        s->backend->subscriber_slow(s->data, slices[i].process_key, 1);
                        continue;
                }
                share_add_slice(s, &rows, &slices[i]);
                count++;
        }
        if (rows.failed)
                connection_fail(st->connection, GPUOBS_ERROR_INTERNAL, "out of memory");
        else if (count)
                stream_send(st, &rows, count, true);
        wire_buffer_done(&rows);
}

void api_server_publish_slices(struct api_server *s, const struct kept_slice *slices, size_t n)
{
        struct stream *st, *next;

        if (s->closing)
                return;
        DL_FOREACH_SAFE(s->streams, st, next)
        {
                if (st->kind == &slice_kind)
                        publish_to(st, slices, n);
        }
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
