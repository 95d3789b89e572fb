/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Launch streams. A published launch is encoded once, when the first stream
 * wants it; each stream's frame is put together from these bytes. A stream whose
 * client has too much untaken gets nothing; what it missed is counted, per
 * process in the ledger and in the `dropped` of its next batch.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "api/internal.h"
#include "api/rows.h"
#include "store/glob.h"
#include "util/macro.h"
#include "util/time.h"

#define SLICE        256 /* launches encoded at a time */
#define GLOB_ANSWERS 256 /* kernels whose match is remembered, by the name's address */

struct stream {
        struct stream *prev, *next;         /* of the server */
        struct stream *own_prev, *own_next; /* of the connection */
        struct connection *connection;
        struct quota_account *account;
        uint64_t id;
        bool has_pid, has_gpu;
        uint32_t pid, gpu;
        uint32_t uid; /* API_ANY_UID: all */
        uint64_t dropped;
        uint64_t losses_ns; /* when the ledger was last sent */
        char *glob;         /* NULL: any kernel */
        struct {
                const char *kernel;
                bool matches;
        } answers[];
};

/* ---- filters ---- */

/*
 * Names are the daemon's interned texts: the same address is the same name, and
 * a program launches few kernels, so the glob is hardly ever run.
 */
static bool kernel_matches(struct stream *st, const char *kernel)
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

static bool wants(struct stream *st, const struct store_launch *l)
{
        if (st->uid != API_ANY_UID && st->uid != l->uid)
                return false;
        if (st->has_pid && st->pid != l->pid)
                return false;
        if (st->has_gpu && (!(l->record.has & LAUNCH_HAS_GPU) || st->gpu != l->record.gpu))
                return false;
        return !st->glob || kernel_matches(st, l->kernel);
}

/* ---- sending ---- */

static void send_batch(struct stream *st, const struct wire_buffer *rows, uint32_t count, bool more)
{
        struct codec_rows list = {"launches", count, rows};
        struct gpuobs_launch_batch batch = {.dropped = st->dropped};
        struct api_server *s = st->connection->server;
        struct codec_arena arena = {0};
        struct wire_buffer frame = {0};
        uint64_t now = now_ns();
        int r;

        if (!more || now - st->losses_ns >= NSEC_PER_SEC) {
                batch.has_losses = rows_losses(s, st->uid, false, &arena, &batch.losses) == 0;
                st->losses_ns = now;
        }
        r = codec_result_encode(&frame, st->id, more, SCHEMA_OF(launch_batch), &batch, &list, 1);
        codec_arena_done(&arena);
        if (r < 0) {
                wire_buffer_done(&frame);
                st->dropped += count;
                return;
        }
        st->dropped = 0;
        connection_send(st->connection, &frame);
}

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
                send_batch(st, &rows, count, true);
                rows.size = count = 0;
        }
        if (rows.failed || sl->bytes.failed)
                connection_fail(st->connection, GPUOBS_ERROR_INTERNAL, "out of memory");
        else if (count)
                send_batch(st, &rows, count, true);
        wire_buffer_done(&rows);
}

static void publish_to(struct stream *st, struct slice *sl)
{
        bool wanted[SLICE];
        bool any = false;

        if (st->connection->ending || st->connection->closing)
                return;
        for (size_t i = 0; i < sl->count; i++) {
                wanted[i] = wants(st, &sl->launches[i]);
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
                        publish_to(st, &sl);
                }
                wire_buffer_done(&sl.bytes);
        }
}

bool api_server_has_subscribers(const struct api_server *s)
{
        return s->streams;
}

void stream_drained(struct connection *c)
{
        static const struct wire_buffer none;
        struct stream *st;

        DL_FOREACH2(c->streams, st, own_next)
        {
                if (st->dropped && !connection_full(c))
                        send_batch(st, &none, 0, true);
        }
}

/* ---- life ---- */

struct stream *stream_find(struct connection *c, uint64_t id)
{
        struct stream *st;

        DL_FOREACH2(c->streams, st, own_next)
        {
                if (st->id == id)
                        return st;
        }
        return NULL;
}

void stream_abandon(struct stream *st)
{
        struct api_server *s = st->connection->server;

        DL_DELETE(s->streams, st);
        DL_DELETE2(st->connection->streams, st, own_prev, own_next);
        s->stream_count--;
        st->account->streams--;
        quota_drop(s->quota, st->account);
        free(st->glob);
        free(st);
}

void stream_finish(struct stream *st)
{
        static const struct wire_buffer none;

        send_batch(st, &none, 0, false);
        stream_abandon(st);
}

static struct stream *stream_new(struct api_call *call, const struct gpuobs_subscribe_params *p)
{
        size_t answers = p->kernel ? GLOB_ANSWERS : 0;
        struct stream *st = calloc(1, sizeof(*st) + answers * sizeof(st->answers[0]));

        if (!st)
                return NULL;
        st->glob = p->kernel ? strdup(p->kernel) : NULL;
        st->account = quota_take(call->server->quota, call->peer.uid);
        if (!st->account || (p->kernel && !st->glob)) {
                if (st->account)
                        quota_drop(call->server->quota, st->account);
                free(st->glob);
                free(st);
                return NULL;
        }
        st->account->streams++;
        st->connection = call->connection;
        st->id = call->id;
        st->uid = api_call_uid(call);
        st->has_pid = p->has_pid;
        st->pid = p->pid;
        st->has_gpu = p->has_gpu;
        st->gpu = p->gpu;
        return st;
}

void stream_begin(struct api_call *call, const struct gpuobs_subscribe_params *params)
{
        static const struct wire_buffer none;
        struct api_server *s = call->server;
        struct stream *st;

        if (call->account->streams >= s->limits.streams_per_uid) {
                api_call_fail(call, GPUOBS_ERROR_QUOTA_EXCEEDED, NULL, "streams");
                return;
        }
        st = stream_new(call, params);
        if (!st) {
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        DL_APPEND(s->streams, st);
        DL_APPEND2(st->connection->streams, st, own_prev, own_next);
        s->stream_count++;
        api_call_end(call);
        send_batch(st, &none, 0, true);
}
