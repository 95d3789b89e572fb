/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One client. Bytes come in, whole frames become calls; frames go out through
 * libuv's write queue, which is bounded here: a client that does not take its
 * answers is not read from any more (so it cannot ask for more), its streams
 * drop, and when it has taken nothing for long it is disconnected.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#include "api/internal.h"
#include "api/kept_map.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define KEPT_ROOM 4096 /* an empty input buffer larger than this is given back */

struct output {
        uv_write_t request;
        struct connection *connection;
        char *data;
        size_t size;
};

static void read_more(struct connection *c);

/* ---- the timer ---- */

static void on_tick(uv_timer_t *timer)
{
        struct api_server *s = timer->data;
        struct connection *c, *next;
        uint64_t now = now_ns();
        bool needed = kept_maps_tick(s, now);

        DL_FOREACH_SAFE(s->connections, c, next)
        {
                connection_tick(c, now);
        }
        DL_FOREACH(s->connections, c)
        {
                needed = needed || c->out_bytes || !c->reading;
        }
        if (needed)
                return;
        uv_timer_stop(timer);
        s->timer_running = false;
}

void connection_want_timer(struct api_server *s)
{
        if (s->timer_running || s->closing)
                return;
        s->timer_running = uv_timer_start(&s->timer, on_tick, 1000, 1000) == 0;
}

void connection_tick(struct connection *c, uint64_t now)
{
        size_t unsent = uv_stream_get_write_queue_size((uv_stream_t *)&c->pipe);

        if (c->closing)
                return;
        if (unsent != c->seen_unsent || !unsent) {
                c->seen_unsent = unsent;
                c->progress_ns = now;
        }
        if (now - c->progress_ns > c->server->limits.stall_timeout_ms * NSEC_PER_MSEC) {
                log_info("API client %d (uid %u) took no answers for %u ms; disconnected",
                         c->peer.pid, c->peer.uid, c->server->limits.stall_timeout_ms);
                connection_close(c);
                return;
        }
        if (!c->reading)
                read_more(c);
}

/* ---- closing ---- */

static void connection_free(struct connection *c)
{
        struct api_server *s = c->server;

        while (c->calls)
                call_abandon(c->calls);
        while (c->streams)
                stream_abandon(c->streams);
        kept_maps_abandon(c);
        wire_buffer_done(&c->in);
        if (c->account) {
                c->account->bytes -= c->in_charged;
                quota_drop(s->quota, c->account);
        }
        free(c);
        server_release(s);
}

static void on_closed(uv_handle_t *handle)
{
        connection_free(container_of((uv_pipe_t *)handle, struct connection, pipe));
}

/*
 * Calls and streams go when libuv has let go: whoever sends may still hold them. The place is free
 * at once: the next may have come together with the end of this one.
 */
void connection_close(struct connection *c)
{
        struct api_call *call;

        if (c->closing)
                return;
        c->closing = true;
        DL_FOREACH(c->calls, call)
        {
                atomic_store(&call->cancelled, true);
        }
        if (c->account) {
                c->account->connections--;
                c->server->connection_count--;
        }
        DL_DELETE(c->server->connections, c);
        uv_close((uv_handle_t *)&c->pipe, on_closed);
}

void connection_fail(struct connection *c, enum gpuobs_error_number number, const char *detail)
{
        struct wire_buffer frame = {0};

        if (c->closing || c->ending)
                return;
        if (c->reading)
                uv_read_stop((uv_stream_t *)&c->pipe);
        c->reading = false;
        if (codec_error_encode(&frame, 0, number, NULL, detail) < 0) {
                wire_buffer_done(&frame);
                connection_close(c);
                return;
        }
        connection_send(c, &frame);
        c->ending = true;
}

/* ---- writing ---- */

bool connection_full(const struct connection *c)
{
        return c->out_bytes >= c->server->limits.bytes_per_connection ||
               c->account->bytes >= c->server->limits.bytes_per_uid;
}

static void output_done(struct output *o)
{
        o->connection->out_bytes -= o->size;
        if (o->connection->account)
                o->connection->account->bytes -= o->size;
        free(o->data);
        free(o);
}

static void on_written(uv_write_t *request, int status)
{
        struct output *o = container_of(request, struct output, request);
        struct connection *c = o->connection;

        output_done(o);
        if (c->closing)
                return;
        if (status < 0 || (c->ending && !c->out_bytes)) {
                connection_close(c);
                return;
        }
        if (c->ending || c->out_bytes > c->server->limits.bytes_per_connection / 2)
                return;
        stream_drained(c);
        if (!c->reading)
                read_more(c);
}

void connection_send(struct connection *c, struct wire_buffer *frame)
{
        struct output *o = calloc(1, sizeof(*o));
        uv_buf_t buffer = uv_buf_init(frame->data, (unsigned int)frame->size);

        if (!o || c->closing || c->ending) {
                free(o);
                wire_buffer_done(frame);
                if (!c->ending)
                        connection_close(c);
                return;
        }
        *o = (struct output){.connection = c, .data = frame->data, .size = frame->size};
        *frame = (struct wire_buffer){0};
        c->out_bytes += o->size;
        if (c->account)
                c->account->bytes += o->size;
        if (uv_write(&o->request, (uv_stream_t *)&c->pipe, &buffer, 1, on_written) < 0) {
                output_done(o);
                connection_close(c);
                return;
        }
        if (uv_stream_get_write_queue_size((uv_stream_t *)&c->pipe))
                connection_want_timer(c->server);
}

/* ---- reading ---- */

/* Take what is before `used` out of the input, and put its size on the account. */
static void consume_input(struct connection *c, size_t used)
{
        c->in.size -= used;
        if (c->in.size)
                memmove(c->in.data, c->in.data + used, c->in.size);
        else if (c->in.room > KEPT_ROOM)
                wire_buffer_done(&c->in);
        c->account->bytes += c->in.size - c->in_charged;
        c->in_charged = c->in.size;
}

/* The frame at the input's start. 0; -EAGAIN when it is not whole; else the connection has failed.
 */
static int take_frame(struct connection *c, const char *at, size_t left, size_t *ret_size)
{
        const char *why = "a frame may not be empty";
        size_t size;
        int r;

        r = wire_frame_size(at, left, &size);
        if (r == -EAGAIN || (r == 0 && left - WIRE_LENGTH_BYTES < size))
                return -EAGAIN;
        if (r == 0)
                r = wire_check(at + WIRE_LENGTH_BYTES, size, &why);
        if (r == -EMSGSIZE)
                connection_fail(c, GPUOBS_ERROR_FRAME_TOO_LARGE, NULL);
        else if (r < 0)
                connection_fail(c, GPUOBS_ERROR_BAD_FRAME, why);
        else
                *ret_size = size;
        return r;
}

static void handle_input(struct connection *c)
{
        size_t used = 0, size;

        while (!c->closing && !c->ending && !connection_full(c)) {
                const char *at = c->in.data ? c->in.data + used : "";

                if (take_frame(c, at, c->in.size - used, &size) < 0)
                        break;
                used += WIRE_LENGTH_BYTES + size;
                call_begin(c, at + WIRE_LENGTH_BYTES, size);
        }
        if (!c->closing)
                consume_input(c, used);
}

/*
 * Whether to read on. A client with too many untaken answers has to take some
 * first. One that has none, but whose user has used up its bytes elsewhere,
 * could wait for ever: it is told and let go.
 */
static bool may_read(struct connection *c)
{
        if (c->closing || c->ending)
                return false;
        if (!connection_full(c))
                return true;
        if (!c->out_bytes)
                connection_fail(c, GPUOBS_ERROR_QUOTA_EXCEEDED,
                                "unread answers and partial requests");
        return false;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
        struct connection *c = container_of((uv_pipe_t *)handle, struct connection, pipe);

        /* Taken over in on_read(), which follows at once: all connections can share it. */
        *buffer = uv_buf_init(c->server->read_buffer, sizeof(c->server->read_buffer));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
        struct connection *c = container_of((uv_pipe_t *)stream, struct connection, pipe);

        if (n == 0)
                return;
        if (n < 0 || wire_buffer_write(&c->in, buffer->base, (size_t)n) < 0) {
                connection_close(c);
                return;
        }
        handle_input(c);
        if (may_read(c))
                return;
        if (c->reading)
                uv_read_stop(stream);
        c->reading = false;
        connection_want_timer(c->server);
}

/* Go on after a pause, beginning with what had come before it. */
static void read_more(struct connection *c)
{
        if (!may_read(c))
                return;
        handle_input(c);
        if (!may_read(c))
                return;
        if (uv_read_start((uv_stream_t *)&c->pipe, on_alloc, on_read) < 0)
                connection_close(c);
        else
                c->reading = true;
}

/* ---- a new client ---- */

/* What is wrong with taking one more connection of the peer; GPUOBS_ERROR_NONE when nothing is. */
static enum gpuobs_error_number admit(const struct api_server *s, const struct connection *c)
{
        uint32_t kept = c->peer.privileged ? 0 : s->limits.connections / 16;

        if (s->connection_count > s->limits.connections - kept)
                return GPUOBS_ERROR_TOO_MANY_CONNECTIONS;
        if (!c->peer.privileged && c->account->connections > s->limits.connections_per_uid)
                return GPUOBS_ERROR_QUOTA_EXCEEDED;
        return GPUOBS_ERROR_NONE;
}

static int identify(struct connection *c)
{
        uv_os_fd_t fd;
        int r;

        r = uv_fileno((uv_handle_t *)&c->pipe, &fd);
        if (r == 0)
                r = peer_read(fd, c->server->group, &c->peer);
        if (r < 0)
                return r;
        c->account = quota_take(c->server->quota, c->peer.uid);
        if (!c->account)
                return -ENOMEM;
        c->account->connections++;
        c->server->connection_count++;
        return 0;
}

void connection_accept(struct api_server *s)
{
        struct connection *c = calloc(1, sizeof(*c));
        enum gpuobs_error_number refusal;

        /* Without memory the client stays in the backlog. */
        if (!c)
                return;
        c->server = s;
        uv_pipe_init(s->loop, &c->pipe, 0);
        s->open++;
        DL_APPEND(s->connections, c);
        if (uv_accept((uv_stream_t *)&s->listener, (uv_stream_t *)&c->pipe) < 0 ||
            identify(c) < 0) {
                connection_close(c);
                return;
        }
        c->progress_ns = now_ns();
        refusal = admit(s, c);
        if (refusal)
                connection_fail(c, refusal,
                                refusal == GPUOBS_ERROR_QUOTA_EXCEEDED ? "connections" : NULL);
        else
                read_more(c);
}
