/* SPDX-License-Identifier: Apache-2.0 */
#include "api/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "api/internal.h"
#include "util/log.h"
#include "util/macro.h"
#include "util/time.h"

#define BACKLOG   1024
#define TICK_MSEC 1000

void api_limits_default(struct api_limits *ret_limits)
{
        *ret_limits = (struct api_limits){
                .connections = 2048,
                .connections_per_uid = 256,
                .requests_per_uid = 32,
                .streams_per_uid = 16,
                .bytes_per_uid = 16u << 20,
                .bytes_per_connection = 2u << 20,
                .queries = 2,
                .query_timeout_ms = 5000,
                .stall_timeout_ms = 30000,
                .snapshot_timeout_ms = 30000,
        };
}

/* ---- sockets ---- */

static int check_listener(int fd)
{
        int type, listening;
        socklen_t size = sizeof(int);

        if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0)
                return -errno;
        size = sizeof(int);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) < 0)
                return -errno;
        return type == SOCK_STREAM && listening ? 0 : -EINVAL;
}

/* A socket that a daemon before us left behind is removed; one that is served is not. */
static int remove_stale(const struct sockaddr_un *address)
{
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN)
                return -EADDRINUSE;
        if (errno == ECONNREFUSED && unlink(address->sun_path) < 0)
                return -errno;
        return 0;
}

static int create_listener(const char *path, int *ret_fd)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        _cleanup_close_ int fd = -1;
        int r;

        if (!path || strlen(path) >= sizeof(address.sun_path))
                return -EINVAL;
        memcpy(address.sun_path, path, strlen(path));
        r = remove_stale(&address);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return -errno;
        /* Everybody may ask; what they are shown depends on who they are. */
        if (chmod(path, 0666) < 0 || listen(fd, BACKLOG) < 0) {
                r = -errno;
                unlink(path);
                return r;
        }
        *ret_fd = TAKE_FD(fd);
        return 0;
}

/* ---- life ---- */

static struct api_server *server_free(struct api_server *s)
{
        if (!s)
                return NULL;
        query_free_readers(s);
        free(s->readers);
        quota_free(s->quota);
        free(s->path);
        free(s->store_path);
        free(s->group_name);
        free(s);
        return NULL;
}
DEFINE_CLEANUP(struct api_server *, server_free)

void server_release(struct api_server *s)
{
        void (*closed)(void *closed_data);
        void *closed_data;

        if (--s->open || !s->closing)
                return;
        closed = s->closed;
        closed_data = s->closed_data;
        server_free(s);
        if (closed)
                closed(closed_data);
}

static int server_alloc(const struct api_server_options *options, struct api_server **ret_server)
{
        _cleanup_(server_freep) struct api_server *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        s->limits = options->limits;
        s->quota = quota_new();
        s->readers = calloc(s->limits.queries, sizeof(*s->readers));
        s->group_name = strdup(options->group ? options->group : "gpuobs");
        if (options->store_path)
                s->store_path = strdup(options->store_path);
        if (options->listen_fd < 0 && options->path)
                s->path = strdup(options->path);
        if (!s->quota || !s->readers || !s->group_name || (options->store_path && !s->store_path) ||
            (options->listen_fd < 0 && options->path && !s->path))
                return -ENOMEM;
        s->group = peer_group(s->group_name);
        *ret_server = TAKE_PTR(s);
        return 0;
}

static void on_connection(uv_stream_t *listener, int status)
{
        if (status == 0)
                connection_accept(listener->data);
}

static void on_handle_closed(uv_handle_t *handle)
{
        server_release(handle->data);
}

/* From here on the server goes only through api_server_close(): libuv has its handles. */
static int server_listen(struct api_server *s, int fd)
{
        int r;

        uv_timer_init(s->loop, &s->timer);
        s->timer.data = s;
        uv_unref((uv_handle_t *)&s->timer);
        uv_pipe_init(s->loop, &s->listener, 0);
        s->listener.data = s;
        s->open = 2;
        r = uv_pipe_open(&s->listener, fd);
        if (r < 0) {
                close(fd);
                return r;
        }
        return uv_listen((uv_stream_t *)&s->listener, BACKLOG, on_connection);
}

int api_server_new(uv_loop_t *loop, const struct api_server_options *options,
                   const struct api_backend *backend, void *data, struct api_server **ret_server)
{
        _cleanup_close_ int fd = options->listen_fd;
        struct api_server *s;
        int r;

        r = fd >= 0 ? check_listener(fd) : create_listener(options->path, &fd);
        if (r < 0)
                return r;
        r = server_alloc(options, &s);
        if (r < 0)
                return r;
        s->loop = loop;
        s->backend = backend;
        s->data = data;
        r = server_listen(s, TAKE_FD(fd));
        if (r < 0) {
                api_server_close(s, NULL, NULL);
                return r;
        }
        *ret_server = s;
        return 0;
}

void api_server_close(struct api_server *s, void (*closed)(void *closed_data), void *closed_data)
{
        struct connection *next;

        if (!s || s->closing)
                return;
        s->closing = true;
        s->closed = closed;
        s->closed_data = closed_data;
        if (s->path)
                unlink(s->path);
        uv_close((uv_handle_t *)&s->listener, on_handle_closed);
        uv_close((uv_handle_t *)&s->timer, on_handle_closed);
        for (struct connection *c = s->connections; c; c = next) {
                next = c->next;
                connection_close(c);
        }
}

void api_server_set_limits(struct api_server *s, const struct api_limits *limits)
{
        uint32_t queries = s->limits.queries; /* as many readers were made */

        s->limits = *limits;
        s->limits.queries = queries;
}

void api_server_reload(struct api_server *s)
{
        s->group = peer_group(s->group_name);
}

uint32_t api_server_connections(const struct api_server *s)
{
        return s->connection_count;
}
