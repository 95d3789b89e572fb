/* SPDX-License-Identifier: Apache-2.0 */

/*
 * One connection: bytes out, frames in, open calls. Frames are handed out one
 * at a time. A synchronous call takes the frame it waits for; frames of other
 * calls that come meanwhile are kept for gpuobs_dispatch(), as callbacks run
 * nowhere else.
 */
#include "client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

#define DEFAULT_TIMEOUT_MS 5000
#define READ_BYTES         65536
#define KEPT_MAX           (16u << 20) /* bytes of frames kept during a synchronous call */
#define DISPATCH_MAX       (8u << 20)  /* bytes read in one dispatch, so that it ends */

struct kept_frame {
        struct kept_frame *next;
        size_t size;
        char data[];
};

struct gpuobs {
        int fd;
        int timeout_ms;
        int broken; /* -errno once the connection is of no more use */
        bool dispatching;
        bool doomed; /* freed within a callback */
        uint64_t next_id;
        struct gpuobs_call *calls;
        struct wire_buffer out;
        size_t out_sent;
        struct wire_buffer in;
        size_t in_used;
        struct kept_frame *kept, **kept_tail;
        size_t kept_bytes;
        uint64_t kept_dropped; /* launches of frames that were not kept */
        struct gpuobs_error error;
        char message[512];
        char detail[512];
};

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* ---- errors ---- */

static int fail(struct gpuobs *g, int error, const char *message)
{
        snprintf(g->message, sizeof(g->message), "%s", message);
        g->error = (struct gpuobs_error){GPUOBS_ERROR_NONE, "", g->message, NULL};
        return error;
}

/* The first reason the connection broke is the one that is told. */
static int fail_for_good(struct gpuobs *g, int error, const char *message)
{
        if (!g->broken) {
                g->broken = error;
                fail(g, error, message);
        }
        return g->broken;
}

static int fail_answer(struct gpuobs *g, const struct codec_answer *a)
{
        snprintf(g->message, sizeof(g->message), "%s", a->message);
        snprintf(g->detail, sizeof(g->detail), "%s", a->detail ? a->detail : "");
        g->error = (struct gpuobs_error){(enum gpuobs_error_number)a->error->number, a->error->code,
                                         g->message, a->detail ? g->detail : NULL};
        return -a->error->error;
}

const struct gpuobs_error *gpuobs_error(const struct gpuobs *g)
{
        return &g->error;
}

/* ---- life ---- */

void client_result_free(struct client_result *r)
{
        if (!r)
                return;
        codec_arena_done(&r->arena);
        free(r);
}

void client_object_free(const void *object)
{
        if (object)
                client_result_free(
                        (struct client_result *)((const char *)object -
                                                 offsetof(struct client_result, object)));
}

static const char *socket_path(const char *path)
{
        if (!path)
                path = secure_getenv(GPUOBS_SOCKET_ENV);
        return path && *path ? path : GPUOBS_SOCKET_DEFAULT;
}

/* A blocking connect, bounded by the send timeout: a full backlog makes it wait. */
static int connect_socket(const char *path, int timeout_ms, int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
        int fd, r;

        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, strlen(path));
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (timeout_ms >= 0)
                setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
            fcntl(fd, F_SETFL, O_NONBLOCK) < 0) {
                r = errno == EAGAIN ? -ETIMEDOUT : -errno;
                close(fd);
                return r;
        }
        *ret_fd = fd;
        return 0;
}

int gpuobs_connect(const char *path, int timeout_ms, struct gpuobs **ret_gpuobs)
{
        struct gpuobs *g;
        int r;

        if (timeout_ms == 0)
                timeout_ms = DEFAULT_TIMEOUT_MS;
        g = calloc(1, sizeof(*g));
        if (!g)
                return -ENOMEM;
        r = connect_socket(socket_path(path), timeout_ms, &g->fd);
        if (r < 0) {
                free(g);
                return r;
        }
        g->timeout_ms = timeout_ms;
        g->next_id = 1;
        g->kept_tail = &g->kept;
        fail(g, 0, "no error");
        *ret_gpuobs = g;
        return 0;
}

static void call_free(struct gpuobs_call *call)
{
        client_result_free(call->result);
        free(call);
}

struct gpuobs *gpuobs_free(struct gpuobs *g)
{
        struct gpuobs_call *next_call;
        struct kept_frame *next_frame;

        if (!g)
                return NULL;
        if (g->dispatching) {
                g->doomed = true;
                return NULL;
        }
        for (struct gpuobs_call *c = g->calls; c; c = next_call) {
                next_call = c->next;
                call_free(c);
        }
        for (struct kept_frame *k = g->kept; k; k = next_frame) {
                next_frame = k->next;
                free(k);
        }
        wire_buffer_done(&g->in);
        wire_buffer_done(&g->out);
        close(g->fd);
        free(g);
        return NULL;
}

void gpuobs_set_timeout(struct gpuobs *g, int timeout_ms)
{
        g->timeout_ms = timeout_ms ? timeout_ms : DEFAULT_TIMEOUT_MS;
}

int gpuobs_fd(const struct gpuobs *g)
{
        return g->fd;
}

short gpuobs_events(const struct gpuobs *g)
{
        return g->out_sent < g->out.size ? POLLIN | POLLOUT : POLLIN;
}

/* ---- bytes ---- */

static int flush_out(struct gpuobs *g)
{
        while (g->out_sent < g->out.size) {
                ssize_t n = send(g->fd, g->out.data + g->out_sent, g->out.size - g->out_sent,
                                 MSG_NOSIGNAL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return 0;
                /* The daemon may have said why before it closed: reading comes first. */
                if (n < 0)
                        break;
                g->out_sent += (size_t)n;
        }
        g->out.size = g->out_sent = 0;
        return 0;
}

static int read_some(struct gpuobs *g, size_t *ret_read)
{
        char bytes[READ_BYTES];
        ssize_t n;

        do
                n = recv(g->fd, bytes, sizeof(bytes), 0);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return -EAGAIN;
        if (n <= 0)
                return fail_for_good(g, -ECONNRESET, "gpuobsd closed the connection.");
        if (g->in_used) {
                memmove(g->in.data, g->in.data + g->in_used, g->in.size - g->in_used);
                g->in.size -= g->in_used;
                g->in_used = 0;
        }
        if (wire_buffer_write(&g->in, bytes, (size_t)n) < 0)
                return fail_for_good(g, -ENOMEM, "No memory for an answer of gpuobsd.");
        *ret_read = (size_t)n;
        return 0;
}

/* The next whole frame in what was read; it stays valid until the next read. 0, -EAGAIN, -errno. */
static int next_frame(struct gpuobs *g, const char **ret_frame, size_t *ret_size)
{
        const char *at = g->in.data ? g->in.data + g->in_used : "";
        size_t left = g->in.size - g->in_used, size;
        const char *why;
        int r;

        r = wire_frame_size(at, left, &size);
        if (r == -EAGAIN || (r == 0 && left - WIRE_LENGTH_BYTES < size))
                return -EAGAIN;
        if (r == 0)
                r = wire_check(at + WIRE_LENGTH_BYTES, size, &why);
        if (r < 0)
                return fail_for_good(g, -EBADMSG, "gpuobsd sent bytes that are not the protocol.");
        g->in_used += WIRE_LENGTH_BYTES + size;
        *ret_frame = at + WIRE_LENGTH_BYTES;
        *ret_size = size;
        return 0;
}

/* ---- calls ---- */

static struct gpuobs_call *find_call(struct gpuobs *g, uint64_t id)
{
        for (struct gpuobs_call *c = g->calls; c; c = c->next)
                if (c->id == id)
                        return c;
        return NULL;
}

static void unlink_call(struct gpuobs *g, struct gpuobs_call *call)
{
        struct gpuobs_call **at = &g->calls;

        while (*at && *at != call)
                at = &(*at)->next;
        if (*at)
                *at = call->next;
}

static uint64_t deadline_after(int timeout_ms)
{
        return timeout_ms < 0 ? 0 : now_ns() + (uint64_t)timeout_ms * 1000000;
}

int client_start(struct gpuobs *g, enum schema_method_id method, const void *params,
                 struct gpuobs_call **ret_call)
{
        struct wire_buffer frame = {0};
        struct gpuobs_call *call;
        int r;

        if (g->broken)
                return g->broken;
        call = calloc(1, sizeof(*call));
        if (!call)
                return fail(g, -ENOMEM, "No memory for a request.");
        r = codec_request_encode(&frame, g->next_id, method, params);
        if (r == 0 && wire_buffer_write(&g->out, frame.data, frame.size) < 0)
                r = -ENOMEM;
        wire_buffer_done(&frame);
        if (r < 0) {
                free(call);
                return fail(g, r,
                            r == -EMSGSIZE ? "The request is too large."
                                           : "No memory for a request.");
        }
        call->owner = g;
        call->id = g->next_id++;
        call->method = method;
        call->deadline_ns = deadline_after(g->timeout_ms);
        call->next = g->calls;
        g->calls = call;
        flush_out(g);
        *ret_call = call;
        return 0;
}

static int decode_result(struct gpuobs *g, const struct gpuobs_call *call, struct codec_answer *a,
                         struct client_result **ret_result)
{
        const struct schema_struct *s = schema_methods[call->method].result;
        struct client_result *result = calloc(1, sizeof(*result) + s->size);
        struct codec_fault fault;
        char text[160];
        int r;

        if (!result)
                return fail(g, -ENOMEM, "No memory for an answer of gpuobsd.");
        r = codec_decode(&a->result, s, &result->arena, result->object, &fault);
        if (r == 0) {
                *ret_result = result;
                return 0;
        }
        client_result_free(result);
        if (r == -ENOMEM)
                return fail(g, r, "No memory for an answer of gpuobsd.");
        snprintf(text, sizeof(text), "gpuobsd answered in a way this library does not know: %s %s.",
                 fault.field, fault.why);
        return fail(g, r, text);
}

/* ---- frames during a synchronous call ---- */

static uint64_t count_launches(struct gpuobs *g, const struct gpuobs_call *call,
                               struct codec_answer *a)
{
        struct client_result *result = NULL;
        const struct gpuobs_launch_batch *batch;
        uint64_t n = 0;

        if (call->method != METHOD_launches_subscribe || a->is_error ||
            decode_result(g, call, a, &result) < 0)
                return 0;
        batch = (const void *)result->object;
        n = batch->n_launches + batch->dropped;
        client_result_free(result);
        return n;
}

static int keep_frame(struct gpuobs *g, const struct gpuobs_call *call, struct codec_answer *a,
                      const char *frame, size_t size)
{
        struct kept_frame *k;

        /* Only launches may be dropped, and their number is told with the next batch. */
        if (g->kept_bytes + size > KEPT_MAX && schema_methods[call->method].stream && a->more) {
                g->kept_dropped += count_launches(g, call, a);
                return 0;
        }
        k = malloc(sizeof(*k) + size);
        if (!k)
                return fail_for_good(g, -ENOMEM, "No memory for an answer of gpuobsd.");
        k->next = NULL;
        k->size = size;
        memcpy(k->data, frame, size);
        *g->kept_tail = k;
        g->kept_tail = &k->next;
        g->kept_bytes += size;
        return 0;
}

static struct kept_frame *take_kept(struct gpuobs *g)
{
        struct kept_frame *k = g->kept;

        if (!k)
                return NULL;
        g->kept = k->next;
        if (!g->kept)
                g->kept_tail = &g->kept;
        g->kept_bytes -= k->size;
        return k;
}

static void finish_waited(struct gpuobs *g, struct gpuobs_call *call, struct codec_answer *a)
{
        call->over = true;
        call->error = a->is_error ? fail_answer(g, a) : decode_result(g, call, a, &call->result);
}

/* ---- callbacks ---- */

static void end_call(struct gpuobs *g, struct gpuobs_call *call, int error)
{
        unlink_call(g, call);
        if (error && !call->cancelled)
                call->deliver(call, error, NULL);
        call_free(call);
}

static void deliver_result(struct gpuobs *g, struct gpuobs_call *call, struct codec_answer *a,
                           struct client_result *result)
{
        bool stream = schema_methods[call->method].stream;

        if (call->method == METHOD_launches_subscribe) {
                ((struct gpuobs_launch_batch *)(void *)result->object)->dropped += g->kept_dropped;
                g->kept_dropped = 0;
        }
        /* An answer has come: what follows in a stream comes when there is something. */
        call->deadline_ns = 0;
        call->over = !stream || !a->more;
        call->deliver(call, 0, result->object);
        client_result_free(result);
        if (call->over)
                end_call(g, call, stream ? -ECANCELED : 0);
        else if (call->cancelled)
                end_call(g, call, 0);
}

static void deliver_frame(struct gpuobs *g, struct gpuobs_call *call, struct codec_answer *a)
{
        struct client_result *result = NULL;
        int r = a->is_error ? fail_answer(g, a) : decode_result(g, call, a, &result);

        if (r < 0)
                end_call(g, call, r);
        else
                deliver_result(g, call, a, result);
}

/* One frame, for whom it is. Returns callbacks run, or -errno when it broke the connection. */
static int handle_frame(struct gpuobs *g, const char *frame, size_t size)
{
        struct codec_arena arena = {0};
        struct gpuobs_call *call;
        struct codec_answer a;
        int r;

        r = codec_answer_decode(frame, size, &arena, &a);
        if (r < 0) {
                r = fail_for_good(g, r, "gpuobsd sent an answer that makes no sense.");
                goto out;
        }
        /* Id 0: about the connection, which the daemon then closes. */
        if (a.id == 0 && a.is_error) {
                r = g->broken = fail_answer(g, &a);
                goto out;
        }
        call = find_call(g, a.id);
        if (!call)
                goto out;
        if (call->cancelled)
                end_call(g, call, 0);
        else if (call->waited)
                finish_waited(g, call, &a);
        else if (!g->dispatching)
                r = keep_frame(g, call, &a, frame, size);
        else {
                deliver_frame(g, call, &a);
                r = 1;
        }
out:
        codec_arena_done(&arena);
        return r;
}

void gpuobs_cancel(struct gpuobs_call *call)
{
        struct gpuobs_cancel_params params;
        struct gpuobs *g;
        struct gpuobs_call *unused;

        if (!call || call->cancelled)
                return;
        g = call->owner;
        call->cancelled = true;
        if (schema_methods[call->method].stream && !call->over && !g->broken) {
                params = (struct gpuobs_cancel_params){.stream = call->id};
                /* Nobody waits for the answer: an answer to an unknown id is passed over. */
                if (client_start(g, METHOD_stream_cancel, &params, &unused) == 0) {
                        unlink_call(g, unused);
                        call_free(unused);
                }
        }
        /* Within its own callback it is freed when that returns. */
        if (!g->dispatching)
                end_call(g, call, 0);
}

unsigned long long gpuobs_call_id(const struct gpuobs_call *call)
{
        return call->id;
}

/* ---- dispatch ---- */

int gpuobs_timeout_ms(const struct gpuobs *g)
{
        uint64_t soonest = 0, now;

        if (g->kept || g->broken)
                return 0;
        for (const struct gpuobs_call *c = g->calls; c; c = c->next)
                if (c->deadline_ns && (!soonest || c->deadline_ns < soonest))
                        soonest = c->deadline_ns;
        if (!soonest)
                return -1;
        now = now_ns();
        return soonest <= now ? 0 : (int)((soonest - now + 999999) / 1000000);
}

static int end_overdue(struct gpuobs *g)
{
        uint64_t now = now_ns();
        struct gpuobs_call *c = g->calls;
        int ran = 0;

        while (c && !g->doomed) {
                if (!c->deadline_ns || c->deadline_ns > now) {
                        c = c->next;
                        continue;
                }
                fail(g, -ETIMEDOUT, "gpuobsd did not answer in time.");
                end_call(g, c, -ETIMEDOUT);
                ran++;
                c = g->calls; /* the callback may have changed the list */
        }
        return ran;
}

static void end_all(struct gpuobs *g)
{
        while (g->calls && !g->doomed)
                end_call(g, g->calls, g->broken);
}

static void reap_cancelled(struct gpuobs *g)
{
        struct gpuobs_call *next;

        for (struct gpuobs_call *c = g->calls; c; c = next) {
                next = c->next;
                if (c->cancelled)
                        end_call(g, c, 0);
        }
}

static int dispatch_kept(struct gpuobs *g)
{
        struct kept_frame *k;
        int ran = 0, r;

        while (!g->doomed && (k = take_kept(g))) {
                r = handle_frame(g, k->data, k->size);
                free(k);
                if (r < 0)
                        return r;
                ran += r;
        }
        return ran;
}

static int dispatch_input(struct gpuobs *g)
{
        size_t total = 0, n, size;
        const char *frame;
        int ran = 0, r;

        while (!g->doomed && !g->broken) {
                r = next_frame(g, &frame, &size);
                if (r == 0) {
                        r = handle_frame(g, frame, size);
                        ran += r > 0 ? r : 0;
                } else if (r == -EAGAIN) {
                        if (total >= DISPATCH_MAX)
                                break;
                        r = read_some(g, &n);
                        if (r == -EAGAIN)
                                break;
                        total += r == 0 ? n : 0;
                }
        }
        return ran;
}

int gpuobs_dispatch(struct gpuobs *g)
{
        int ran, broken;

        if (g->dispatching)
                return fail(g, -EBUSY, "gpuobs_dispatch() was called from within a callback.");
        g->dispatching = true;
        flush_out(g);
        ran = dispatch_kept(g);
        ran = ran < 0 ? 0 : ran;
        ran += dispatch_input(g);
        ran += end_overdue(g);
        if (g->broken)
                end_all(g);
        reap_cancelled(g);
        g->dispatching = false;
        if (g->doomed) {
                gpuobs_free(g);
                return -ECANCELED;
        }
        broken = g->broken;
        return broken ? broken : ran;
}

/* ---- synchronous calls ---- */

/* Wait for the descriptor until the deadline. 0, -ETIMEDOUT, -errno. */
static int wait_ready(struct gpuobs *g, uint64_t deadline_ns)
{
        struct pollfd p = {.fd = g->fd, .events = gpuobs_events(g)};
        uint64_t now = now_ns();
        int timeout_ms = -1, r;

        if (deadline_ns)
                timeout_ms = deadline_ns <= now ? 0 : (int)((deadline_ns - now + 999999) / 1000000);
        r = poll(&p, 1, timeout_ms);
        if (r < 0)
                return errno == EINTR ? 0 : fail(g, -errno, "Waiting for gpuobsd failed.");
        if (r == 0)
                return fail(g, -ETIMEDOUT, "gpuobsd did not answer in time.");
        return 0;
}

static int wait_for_call(struct gpuobs *g, struct gpuobs_call *call)
{
        const char *frame;
        size_t size;
        int r;

        while (!call->over) {
                flush_out(g);
                r = next_frame(g, &frame, &size);
                if (r == 0) {
                        r = handle_frame(g, frame, size);
                } else if (r == -EAGAIN) {
                        r = read_some(g, &size);
                        if (r == -EAGAIN)
                                r = wait_ready(g, call->deadline_ns);
                }
                if (r < 0)
                        return r;
        }
        return call->error;
}

int client_call(struct gpuobs *g, enum schema_method_id method, const void *params,
                void **ret_object)
{
        struct gpuobs_call *call;
        int r;

        if (g->dispatching)
                return fail(g, -EBUSY, "A synchronous call was made from within a callback.");
        r = client_start(g, method, params, &call);
        if (r < 0)
                return r;
        call->waited = true;
        r = wait_for_call(g, call);
        if (r == 0) {
                *ret_object = call->result->object;
                call->result = NULL;
        }
        unlink_call(g, call);
        call_free(call);
        return r;
}
