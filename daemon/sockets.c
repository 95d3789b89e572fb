/* SPDX-License-Identifier: Apache-2.0 */
#include "sockets.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "util/macro.h"

#define BACKLOG 256

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

static int set_address(struct sockaddr_un *a, const char *path, char *error, size_t error_size)
{
        *a = (struct sockaddr_un){.sun_family = AF_UNIX};
        if (strlen(path) >= sizeof(a->sun_path)) {
                snprintf(error, error_size, "the socket path %s is longer than %zu bytes", path,
                         sizeof(a->sun_path) - 1);
                return -ENAMETOOLONG;
        }
        strcpy(a->sun_path, path);
        return 0;
}

/* A socket file nobody listens on is left over from a daemon that was killed. */
static int remove_stale(const struct sockaddr_un *a, int type, char *error, size_t error_size)
{
        _cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *)a, sizeof(*a)) == 0) {
                snprintf(error, error_size,
                         "another gpuobsd serves %s; stop it first (systemctl stop gpuobsd)",
                         a->sun_path);
                return -EADDRINUSE;
        }
        if (errno == ECONNREFUSED)
                unlink(a->sun_path);
        return 0;
}

/*
 * What is sent with a message and not taken is closed by who reads it: with the last reference to
 * a file of the driver that would be a call of it on the event loop, at the will of whoever sends.
 * Older kernels do not let it be refused. Connections inherit it.
 */
static void refuse_files(int fd)
{
        (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &(int){0}, sizeof(int));
}

static int listen_on(const char *path, int type, char *error, size_t error_size, int *ret_fd)
{
        _cleanup_close_ int fd = -1;
        struct sockaddr_un a;
        int r;

        r = set_address(&a, path, error, error_size);
        if (r == 0)
                r = remove_stale(&a, type, error, error_size);
        if (r < 0)
                return r;
        fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd >= 0)
                refuse_files(fd);
        if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || chmod(path, 0666) < 0 ||
            listen(fd, BACKLOG) < 0) {
                r = -errno;
                snprintf(error, error_size,
                         "cannot listen on %s: %s; make its directory and run as root", path,
                         strerror(-r));
                return r;
        }
        *ret_fd = TAKE_FD(fd);
        return 0;
}

static void take_activated(struct sockets *s)
{
        int n = sd_listen_fds(1);

        for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++) {
                refuse_files(fd);
                if (s->api < 0 && sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0)
                        s->api = fd;
                else if (s->agent < 0 && sd_is_socket_unix(fd, SOCK_SEQPACKET, 1, NULL, 0) > 0)
                        s->agent = fd;
        }
}

int sockets_open(const char *api_path, const char *agent_path, char *error, size_t error_size,
                 struct sockets *ret_sockets)
{
        struct sockets s = {.api = -1, .agent = -1};
        int r = 0;

        take_activated(&s);
        if (s.api < 0)
                r = listen_on(api_path, SOCK_STREAM, error, error_size, &s.api);
        if (r == 0 && s.agent < 0)
                r = listen_on(agent_path, SOCK_SEQPACKET, error, error_size, &s.agent);
        if (r < 0) {
                closep(&s.api);
                closep(&s.agent);
                return r;
        }
        *ret_sockets = s;
        return 0;
}
