/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launch streams. A published launch is encoded once, when the first stream
 * wants it; each stream's frame is put together from these bytes.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "api/filter.h"
#include "api/handlers.h"
#include "api/internal.h"
#include "api/rows.h"
#include "store/glob.h"
#include "util/macro.h"
#include "util/time.h"

#define SLICE        256 /* launches encoded at a time */
#define GLOB_ANSWERS 256 /* kernels whose match is remembered, by the name's address */

struct launch_stream {
        struct stream base;
        bool has_pid, has_gpu;
        uint32_t pid, gpu;
        char *glob; /* NULL: any kernel */
        struct {
                const char *kernel;
                bool matches;
        } answers[];
};

static struct launch_stream *launch_stream_of(struct stream *st)
{
        return container_of(st, struct launch_stream, base);
}

/* ---- filters ---- */

/*
 * Names are the daemon's interned texts: the same address is the same name, and
 * a program launches few kernels, so the glob is hardly ever run.
 */
static bool kernel_matches(struct launch_stream *st, const char *kernel)
{
        size_t at = ((uintptr_t)kernel >> 4) % GLOB_ANSWERS;

        if (!kernel)
                return false;
        if (st->answers[at].kernel != kernel) {
                st->answers[at].kernel = kernel;
                st->answers[at].matches = glob_matches(st->glob, kernel);
        }
        return st->answers[at].matches;
}

static bool wants(struct launch_stream *st, const struct store_launch *l)
{
        if (st->base.uid != API_ANY_UID && st->base.uid != l->uid)
                return false;
        if (st->has_pid && st->pid != l->pid)
                return false;
        if (st->has_gpu && (!(l->record.has & LAUNCH_HAS_GPU) || st->gpu != l->record.gpu))
                return false;
        return !st->glob || kernel_matches(st, l->kernel);
}

/* ---- sending ---- */

static int encode_batch(struct stream *st, const struct wire_buffer *rows, uint32_t count,
                        bool more, struct wire_buffer *frame)
{
        struct codec_rows list = {"launches", count, rows};
        struct gpuobs_launch_batch batch = {.dropped = st->dropped};
        struct codec_arena arena = {0};
        int r;

        batch.has_losses = stream_losses(st, more, &arena, &batch.losses);
        r = codec_result_encode(frame, st->id, more, SCHEMA_OF(launch_batch), &batch, &list, 1);
        codec_arena_done(&arena);
        return r;
}

static void free_stream(struct stream *st)
{
        free(launch_stream_of(st)->glob);
        free(launch_stream_of(st));
}

static const struct stream_kind launch_kind = {.encode = encode_batch, .free = free_stream};

/* Launches of a slice, encoded when first wanted. */
struct slice {
        const struct store_launch *launches;
        size_t count;
        struct wire_buffer bytes;
        struct {
                size_t at, size; /* size 0: not encoded yet */
        } rows[SLICE];
};

static void encode_row(struct slice *sl, size_t i)
{
        sl->rows[i].at = sl->bytes.size;
        rows_add_launch(&sl->bytes, &sl->launches[i]);
        sl->rows[i].size = sl->bytes.size - sl->rows[i].at;
}

/* Count launches that the stream does not get; runs of one process are told together. */
static void count_dropped(struct stream *st, const struct slice *sl, const bool *wanted)
{
        struct api_server *s = st->connection->server;
        uint64_t key = 0, n = 0;

        for (size_t i = 0; i < sl->count; i++) {
                if (!wanted[i])
                        continue;
                if (n && sl->launches[i].record.process_key != key) {
                        s->backend->subscriber_slow(s->data, key, n);
                        n = 0;
                }
                key = sl->launches[i].record.process_key;
                n++;
                st->dropped++;
        }
        if (n)
                s->backend->subscriber_slow(s->data, key, n);
}

static void send_rows(struct stream *st, struct slice *sl, const bool *wanted)
{
        struct wire_buffer rows = {0};
        uint32_t count = 0;

        for (size_t i = 0; i < sl->count; i++) {
                if (!wanted[i])
                        continue;
                if (!sl->rows[i].size)
                        encode_row(sl, i);
                wire_buffer_write(&rows, sl->bytes.data + sl->rows[i].at, sl->rows[i].size);
                count++;
                if (rows.size < API_PAGE_BYTES)
                        continue;
                stream_send(st, &rows, count, true);
                rows.size = count = 0;
        }
        if (rows.failed || sl->bytes.failed)
                connection_fail(st->connection, GPUOBS_ERROR_INTERNAL, "out of memory");
        else if (count)
                stream_send(st, &rows, count, true);
        wire_buffer_done(&rows);
}

static void publish_to(struct stream *st, struct slice *sl)
{
        bool wanted[SLICE];
        bool any = false;

        if (st->connection->ending || st->connection->closing)
                return;
        for (size_t i = 0; i < sl->count; i++) {
                wanted[i] = wants(launch_stream_of(st), &sl->launches[i]);
                any = any || wanted[i];
        }
        if (!any)
                return;
        if (connection_full(st->connection))
                count_dropped(st, sl, wanted);
        else
                send_rows(st, sl, wanted);
}

void api_server_publish(struct api_server *s, const struct store_launch *launches, size_t n)
{
        struct stream *st, *next;

        if (s->closing || !s->streams)
                return;
        for (size_t i = 0; i < n; i += SLICE) {
                struct slice sl = {.launches = launches + i,
                                   .count = n - i < SLICE ? n - i : SLICE};

                DL_FOREACH_SAFE(s->streams, st, next)
                {
                        if (st->kind == &launch_kind)
                                publish_to(st, &sl);
                }
                wire_buffer_done(&sl.bytes);
        }
}

bool api_server_has_subscribers(const struct api_server *s)
{
        return stream_any(s, &launch_kind);
}

void api_handle_launches_subscribe(struct api_call *call,
                                   const struct gpuobs_subscribe_params *params)
{
        size_t answers = params->kernel ? GLOB_ANSWERS : 0;
        struct launch_stream *st;

        if (!filter_check_glob(call, params->kernel))
                return;
        st = calloc(1, sizeof(*st) + answers * sizeof(st->answers[0]));
        if (st && params->kernel)
                st->glob = strdup(params->kernel);
        if (!st || (params->kernel && !st->glob)) {
                free(st);
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        st->base.kind = &launch_kind;
        st->has_pid = params->has_pid;
        st->pid = params->pid;
        st->has_gpu = params->has_gpu;
        st->gpu = params->gpu;
        stream_begin(call, &st->base);
}
