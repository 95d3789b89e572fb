/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What all streams have in common. A stream whose client has too much untaken
 * gets nothing; what it missed is counted, per process in the ledger and in the
 * `dropped` of its next batch. What is sent is the business of its kind:
 * stream_launches.c, stream_uvm.c.
 */
#include <stdlib.h>
#include <utlist.h>

#include "api/internal.h"
#include "api/rows.h"
#include "util/time.h"

void stream_send(struct stream *st, const struct wire_buffer *rows, uint32_t count, bool more)
{
        struct wire_buffer frame = {0};

        if (st->kind->encode(st, rows, count, more, &frame) < 0) {
                wire_buffer_done(&frame);
                st->dropped += count;
                return;
        }
        st->dropped = 0;
        connection_send(st->connection, &frame);
}

bool stream_losses(struct stream *st, bool more, struct codec_arena *arena,
                   struct gpuobs_losses *ret_losses)
{
        uint64_t now = now_ns();

        if (more && now - st->losses_ns < NSEC_PER_SEC)
                return false;
        st->losses_ns = now;
        return rows_losses(st->connection->server, st->uid, false, arena, ret_losses) == 0;
}

bool stream_any(const struct api_server *s, const struct stream_kind *kind)
{
        struct stream *st;

        DL_FOREACH(s->streams, st)
        {
                if (st->kind == kind)
                        return true;
        }
        return false;
}

void stream_drained(struct connection *c)
{
        static const struct wire_buffer none;
        struct stream *st;

        DL_FOREACH2(c->streams, st, own_next)
        {
                if (st->dropped && !connection_full(c))
                        stream_send(st, &none, 0, true);
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
        st->kind->free(st);
}

void stream_finish(struct stream *st)
{
        static const struct wire_buffer none;

        stream_send(st, &none, 0, false);
        stream_abandon(st);
}

void stream_begin(struct api_call *call, struct stream *st)
{
        static const struct wire_buffer none;
        struct api_server *s = call->server;

        if (call->account->streams >= s->limits.streams_per_uid) {
                st->kind->free(st);
                api_call_fail(call, GPUOBS_ERROR_QUOTA_EXCEEDED, NULL, "streams");
                return;
        }
        st->account = quota_take(s->quota, call->peer.uid);
        if (!st->account) {
                st->kind->free(st);
                api_call_fail(call, GPUOBS_ERROR_INTERNAL, NULL, "out of memory");
                return;
        }
        st->account->streams++;
        st->connection = call->connection;
        st->id = call->id;
        st->uid = api_call_uid(call);
        DL_APPEND(s->streams, st);
        DL_APPEND2(st->connection->streams, st, own_prev, own_next);
        s->stream_count++;
        api_call_end(call);
        stream_send(st, &none, 0, true);
}

/* ---- publishing ---- */

static void publish_to(struct stream *st, const void *items, size_t n)
{
        struct api_server *s = st->connection->server;
        struct wire_buffer rows = {0};
        uint32_t count = 0;

        if (st->connection->ending || st->connection->closing)
                return;
        for (size_t i = 0; i < n; i++) {
                if (!st->kind->wants(st, items, i))
                        continue;
                if (connection_full(st->connection)) {
                        st->dropped++;
                        s->backend->subscriber_slow(s->data, st->kind->process_key(items, i), 1);
                        continue;
                }
                st->kind->add(st, &rows, items, i);
                count++;
        }
        if (rows.failed)
                connection_fail(st->connection, GPUOBS_ERROR_INTERNAL, "out of memory");
        else if (count)
                stream_send(st, &rows, count, true);
        wire_buffer_done(&rows);
}

void stream_publish(struct api_server *s, const struct stream_kind *kind, const void *items,
                    size_t n)
{
        struct stream *st, *next;

        if (s->closing)
                return;
        DL_FOREACH_SAFE(s->streams, st, next)
        {
                if (st->kind == kind)
                        publish_to(st, items, n);
        }
}
