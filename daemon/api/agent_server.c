/* SPDX-License-Identifier: Apache-2.0 */
#include "api/agent_server.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "device/device_abi.h"
#include "util/log.h"
#include "util/macro.h"

/* Packets taken from one agent before others get their turn. */
#define PACKETS_PER_TURN 64
#define AGENTS_MAX       4096
#define LOOK_MS          1000 /* between looks at those that have not said HELLO */

struct agent {
        struct agent_server *server;
        struct agent *prev, *next;
        uv_poll_t poll;
        int fd;
        pid_t pid;
        uid_t uid;
        uint64_t connected_ms; /* on the loop's clock */
        bool welcomed;
        bool closing;
        void *user;
};

struct agent_server {
        uv_loop_t *loop;
        uv_poll_t poll;
        uv_timer_t timer;
        int fd;
        const struct agent_server_ops *ops;
        void *data;
        struct agent_limits limits;
        struct agent *agents;
        size_t count;
        size_t open_handles; /* the listener, the timer, each agent; memory goes with the last */
        bool closing;
        bool deaf;    /* connections could not be taken: they wait until the timer looks again */
        bool reading; /* a packet is being dealt with */
        uint8_t packet[AGENT_PACKET_MAX];
};

pid_t agent_pid(const struct agent *a)
{
        return a->pid;
}

void agent_set_user(struct agent *a, void *user)
{
        a->user = user;
}

void *agent_user(const struct agent *a)
{
        return a->user;
}

static int bad(const struct agent_server_ops *ops, void *data, struct agent *a, const char *what)
{
        ops->protocol_error(data, a, what);
        return -EBADMSG;
}

static bool is_terminated(const char *text, size_t size)
{
        return memchr(text, '\0', size) != NULL;
}

static int take_kernels(const struct agent_server_ops *ops, void *data, struct agent *a,
                        const uint8_t *packet, size_t size)
{
        struct agent_kernels head;
        size_t at = sizeof(head);

        memcpy(&head, packet, sizeof(head));
        for (uint32_t i = 0; i < head.count; i++) {
                struct agent_kernel k;
                const char *text = (const char *)packet + at + sizeof(k);

                if (size - at < sizeof(k))
                        return bad(ops, data, a, "kernel list ends early");
                memcpy(&k, packet + at, sizeof(k));
                if (k.size > size - at || k.size < sizeof(k) ||
                    k.size - sizeof(k) < (size_t)k.name_bytes + k.reason_bytes ||
                    k.entry > AGENT_PROBE_PTX || k.exit > AGENT_PROBE_PTX)
                        return bad(ops, data, a, "kernel with impossible sizes");
                if (k.accesses == AGENT_ACCESSES_UNKNOWN ? k.accesses_probed != 0
                                                         : k.accesses_probed > k.accesses)
                        return bad(ops, data, a, "kernel with more accesses than it has");
                ops->kernel(data, a, head.image_id, &k, text, text + k.name_bytes);
                at += k.size;
        }
        return at == size ? 0 : bad(ops, data, a, "bytes after the kernel list");
}

static int take_function(const struct agent_server_ops *ops, void *data, struct agent *a,
                         const uint8_t *packet, size_t size)
{
        struct agent_function f;

        memcpy(&f, packet, sizeof(f));
        if (f.name_bytes != size - sizeof(f))
                return bad(ops, data, a, "function with a name of impossible size");
        ops->function(data, a, f.func, f.image, (const char *)packet + sizeof(f), f.name_bytes);
        return 0;
}

static bool varies(uint16_t type)
{
        return type == AGENT_KERNELS || type == AGENT_FUNCTION;
}

/* The type's exact size, or 0 for one an agent may not send; of those that vary their head's. */
static size_t message_size(uint16_t type)
{
        switch (type) {
        case AGENT_IMAGE:
                return sizeof(struct agent_image);
        case AGENT_KERNELS:
                return sizeof(struct agent_kernels);
        case AGENT_CLOCK:
                return sizeof(struct agent_clock);
        case AGENT_HANDLE:
                return sizeof(struct agent_handle);
        case AGENT_NOTE:
                return sizeof(struct agent_note);
        case AGENT_ATTACHED:
                return sizeof(struct agent_attached);
        case AGENT_DETACHED:
                return sizeof(struct agent_detached);
        case AGENT_MAP_DONE:
                return sizeof(struct agent_map_done);
        case AGENT_WAKE:
                return sizeof(struct agent_wake);
        case AGENT_FUNCTION:
                return sizeof(struct agent_function);
        case AGENT_BYE:
                return sizeof(struct agent_bye);
        default:
                return 0;
        }
}

static int take_image(const struct agent_server_ops *ops, void *data, struct agent *a,
                      const struct agent_image *image)
{
        if (!is_terminated(image->reason, sizeof(image->reason)) ||
            (image->status != AGENT_IMAGE_REWRITTEN && image->status != AGENT_IMAGE_ORIGINAL))
                return bad(ops, data, a, "image message out of range");
        ops->image(data, a, image);
        return 0;
}

static int take_note(const struct agent_server_ops *ops, void *data, struct agent *a,
                     const struct agent_note *note)
{
        if (!is_terminated(note->text, sizeof(note->text)))
                return bad(ops, data, a, "note without an end");
        ops->note(data, a, note->kind, note->text);
        return 0;
}

int agent_message(const struct agent_server_ops *ops, void *data, struct agent *a,
                  const void *packet, size_t size)
{
        union {
                struct agent_header header;
                struct agent_image image;
                struct agent_clock clock;
                struct agent_handle handle;
                struct agent_note note;
                struct agent_attached attached;
                struct agent_detached detached;
                struct agent_map_done map_done;
        } m;
        size_t expected;

        if (size < sizeof(m.header))
                return bad(ops, data, a, "packet shorter than its header");
        memcpy(&m.header, packet, sizeof(m.header));
        if (m.header.version != AGENT_ABI_VERSION || m.header.length != size)
                return bad(ops, data, a, "wrong version or length");
        expected = message_size(m.header.type);
        if (expected == 0)
                return bad(ops, data, a, "message type an agent does not send");
        if (varies(m.header.type) ? size < expected : size != expected)
                return bad(ops, data, a, "message of the wrong size");
        if (m.header.type == AGENT_KERNELS)
                return take_kernels(ops, data, a, packet, size);
        if (m.header.type == AGENT_FUNCTION)
                return take_function(ops, data, a, packet, size);

        memcpy(&m, packet, size);
        switch (m.header.type) {
        case AGENT_IMAGE:
                return take_image(ops, data, a, &m.image);
        case AGENT_NOTE:
                return take_note(ops, data, a, &m.note);
        case AGENT_CLOCK:
                ops->clock(data, a, &m.clock);
                return 0;
        case AGENT_HANDLE:
                ops->handle(data, a, m.handle.func);
                return 0;
        case AGENT_ATTACHED:
                if (!is_terminated(m.attached.reason, sizeof(m.attached.reason)))
                        return bad(ops, data, a, "reason without an end");
                ops->attached(data, a, &m.attached);
                return 0;
        case AGENT_DETACHED:
                ops->detached(data, a, &m.detached);
                return 0;
        case AGENT_MAP_DONE:
                ops->map_done(data, a, &m.map_done);
                return 0;
        case AGENT_BYE:
                ops->bye(data, a);
                return -ESHUTDOWN; /* its end is closed, too */
        case AGENT_WAKE:
                ops->wake(data, a);
                return 0;
        }
        return 0;
}

static void handle_closed(struct agent_server *s)
{
        if (--s->open_handles == 0 && s->closing)
                free(s);
}

static void on_agent_closed(uv_handle_t *h)
{
        struct agent *a = h->data;
        struct agent_server *s = a->server;

        close(a->fd);
        free(a);
        handle_closed(s);
}

static void agent_close(struct agent *a)
{
        struct agent_server *s = a->server;

        if (a->closing)
                return;
        a->closing = true;
        if (a->welcomed)
                s->ops->gone(s->data, a);
        DL_DELETE(s->agents, a);
        s->count--;
        uv_poll_stop(&a->poll);
        uv_close((uv_handle_t *)&a->poll, on_agent_closed);
}

static int send_packet(int fd, const void *packet, size_t size, const int *fds, size_t fd_count)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(AGENT_FDS_MAX * sizeof(int))];
        } control = {0};
        struct iovec iov = {.iov_base = (void *)packet, .iov_len = size};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

        if (fd_count) {
                struct cmsghdr *c;

                msg.msg_control = control.bytes;
                msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
                c = CMSG_FIRSTHDR(&msg);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
                memcpy(CMSG_DATA(c), fds, fd_count * sizeof(int));
        }
        return sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int agent_send(struct agent *a, enum agent_message type, void *message, size_t size, const int *fds,
               size_t fd_count)
{
        const struct agent_header header = {
                .type = type, .version = AGENT_ABI_VERSION, .length = (uint32_t)size};

        memcpy(message, &header, sizeof(header));
        return send_packet(a->fd, message, size, fds, fd_count);
}

static void refuse(struct agent *a, const char *reason)
{
        struct agent_refused m = {0};

        snprintf(m.reason, sizeof(m.reason), "%s", reason);
        (void)agent_send(a, AGENT_REFUSED, &m, sizeof(m), NULL, 0); /* it is being closed anyway */
        a->server->ops->refused(a->server->data, a, reason);
}

static int welcome(struct agent *a, const struct agent_offer *offer)
{
        struct agent_welcome m = {
                .flags = offer->launch_fd >= 0 ? AGENT_WELCOME_RECORD_LAUNCHES : 0,
                .clock_devices = offer->clock_devices,
                .ring_entries = DEVICE_RING_ENTRIES,
                .ring_address = DEVICE_RING_ADDRESS,
                .blob_bytes = offer->blob_bytes,
                .map_bytes = offer->map_bytes,
                .attach_count = offer->attach_count,
        };
        int fds[3] = {offer->map_fd, offer->blob_fd, offer->launch_fd};

        return agent_send(a, AGENT_WELCOME, &m, sizeof(m), fds, offer->launch_fd >= 0 ? 3 : 2);
}

int agent_hello_read(const void *packet, size_t size, struct agent_hello *ret_hello)
{
        struct agent_hello hello;

        if (size != sizeof(hello))
                return -EBADMSG;
        memcpy(&hello, packet, sizeof(hello));
        if (hello.device_count > AGENT_DEVICES_MAX ||
            hello.device >= (hello.device_count ? hello.device_count : 1))
                return -EBADMSG;
        *ret_hello = hello;
        return 0;
}

/* The first packet must be HELLO of our version. */
static int take_hello(struct agent *a, const void *packet, size_t size)
{
        struct agent_server *s = a->server;
        struct agent_offer offer = {.map_fd = -1, .blob_fd = -1, .launch_fd = -1};
        struct agent_hello hello;
        char reason[sizeof(((struct agent_refused *)0)->reason)] = "";
        int r;

        if (size < sizeof(hello.header))
                return bad(s->ops, s->data, a, "first message shorter than its header");
        memcpy(&hello.header, packet, sizeof(hello.header));
        if (hello.header.type != AGENT_HELLO || hello.header.length != size)
                return bad(s->ops, s->data, a, "first message is not HELLO");
        /* Its size is the version's, too. */
        if (hello.header.version != AGENT_ABI_VERSION) {
                refuse(a, "the agent and the daemon are of different versions; install both anew");
                return -EPROTO;
        }
        r = agent_hello_read(packet, size, &hello);
        if (r < 0)
                return bad(s->ops, s->data, a,
                           "HELLO of the wrong size or with impossible devices");
        r = s->ops->hello(s->data, a, a->pid, a->uid, &hello, &offer, reason, sizeof(reason));
        if (r < 0) {
                refuse(a, reason);
                return r;
        }
        a->welcomed = true;
        r = welcome(a, &offer);
        if (r == 0)
                s->ops->welcomed(s->data, a);
        return r;
}

/* One packet; 0 when there may be more, -EAGAIN when there are none, else close. */
static int read_packet(struct agent *a)
{
        struct agent_server *s = a->server;
        ssize_t n = recv(a->fd, s->packet, sizeof(s->packet), MSG_DONTWAIT | MSG_TRUNC);

        if (n < 0)
                return errno == EINTR ? 0 : -errno;
        if (n == 0)
                return -EPIPE;
        if (!a->welcomed)
                return take_hello(a, s->packet, (size_t)n);
        if ((size_t)n > sizeof(s->packet))
                return bad(s->ops, s->data, a, "packet longer than allowed");
        return agent_message(s->ops, s->data, a, s->packet, (size_t)n);
}

static void read_packets(struct agent *a)
{
        int r = 0;

        a->server->reading = true;
        for (int i = 0; i < PACKETS_PER_TURN && r == 0; i++)
                r = read_packet(a);
        a->server->reading = false;
        if (r < 0 && r != -EAGAIN)
                agent_close(a);
}

static void on_agent_readable(uv_poll_t *p, int status, int events)
{
        if (status < 0)
                agent_close(p->data);
        else
                read_packets(p->data);
}

void agent_catch_up(struct agent *a)
{
        if (a->welcomed && !a->server->reading && !a->server->closing)
                read_packets(a);
}

void agent_server_catch_up(struct agent_server *s)
{
        struct agent *a, *next;

        DL_FOREACH_SAFE(s->agents, a, next)
        agent_catch_up(a);
}

static size_t agents_of_uid(const struct agent_server *s, uid_t uid)
{
        const struct agent *a;
        size_t n = 0;

        DL_FOREACH(s->agents, a)
        n += a->uid == uid;
        return n;
}

static bool is_full(const struct agent_server *s, uid_t uid)
{
        return s->count >= AGENTS_MAX || agents_of_uid(s, uid) >= s->limits.per_user;
}

static int add_agent(struct agent_server *s, int fd)
{
        struct ucred cred;
        socklen_t length = sizeof(cred);
        struct agent *a;
        int r;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
                return -errno;
        if (is_full(s, cred.uid)) {
                struct agent late = {.server = s, .fd = fd, .pid = cred.pid, .uid = cred.uid};
                char reason[128];

                snprintf(reason, sizeof(reason),
                         "too many processes have an agent: gpuobsd serves %d, of one user %u "
                         "(agents_per_user)",
                         AGENTS_MAX, s->limits.per_user);
                refuse(&late, reason);
                return -EUSERS;
        }
        a = calloc(1, sizeof(*a));
        if (!a)
                return -ENOMEM;
        *a = (struct agent){.server = s,
                            .fd = fd,
                            .pid = cred.pid,
                            .uid = cred.uid,
                            .connected_ms = uv_now(s->loop)};
        r = uv_poll_init(s->loop, &a->poll, fd);
        if (r < 0) {
                free(a);
                return r;
        }
        a->poll.data = a;
        s->open_handles++;
        s->count++;
        DL_APPEND(s->agents, a);
        r = uv_poll_start(&a->poll, UV_READABLE | UV_DISCONNECT, on_agent_readable);
        if (r < 0)
                agent_close(a);
        return 0;
}

static void on_connection(uv_poll_t *p, int status, int events);

static void on_look(uv_timer_t *t)
{
        struct agent_server *s = t->data;
        uint64_t now_ms = uv_now(s->loop);
        struct agent *a, *next;

        DL_FOREACH_SAFE(s->agents, a, next)
        {
                if (a->welcomed || now_ms - a->connected_ms < s->limits.hello_ms)
                        continue;
                refuse(a, "the agent connected to gpuobsd and did not say who it is");
                agent_close(a);
        }
        if (s->deaf && uv_poll_start(&s->poll, UV_READABLE, on_connection) == 0)
                s->deaf = false;
}

/* What cannot be taken stays readable: to be called again at once would help nobody. */
static void stop_listening(struct agent_server *s, int error)
{
        log_warning("agents have to wait, gpuobsd cannot take their connections: %s%s",
                    strerror(error),
                    error == EMFILE ? " (raise LimitNOFILE= of gpuobsd.service)" : "");
        s->deaf = true;
        uv_poll_stop(&s->poll);
        uv_timer_start(&s->timer, on_look, LOOK_MS, LOOK_MS);
}

static bool is_passing(int error)
{
        return error == EAGAIN || error == EINTR || error == ECONNABORTED;
}

static void on_connection(uv_poll_t *p, int status, int events)
{
        struct agent_server *s = p->data;
        int fd, r;

        if (status < 0)
                return;
        while ((fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
                r = add_agent(s, fd);
                if (r < 0 && r != -EUSERS)
                        log_warning("an agent was turned away: %s", strerror(-r));
                if (r < 0)
                        close(fd);
        }
        if (!is_passing(errno))
                stop_listening(s, errno);
}

static void on_listener_closed(uv_handle_t *h)
{
        struct agent_server *s = h->data;

        close(s->fd);
        handle_closed(s);
}

static void on_timer_closed(uv_handle_t *h)
{
        handle_closed(h->data);
}

int agent_server_new(uv_loop_t *loop, int listen_fd, const struct agent_server_ops *ops, void *data,
                     struct agent_server **ret_server)
{
        struct agent_server *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->loop = loop;
        s->fd = listen_fd;
        s->ops = ops;
        s->data = data;
        s->limits = (struct agent_limits)AGENT_LIMITS_DEFAULT;
        r = uv_poll_init(loop, &s->poll, listen_fd);
        if (r < 0) {
                free(s);
                return r;
        }
        uv_timer_init(loop, &s->timer);
        s->poll.data = s->timer.data = s;
        s->open_handles = 2;
        r = uv_poll_start(&s->poll, UV_READABLE, on_connection);
        if (r == 0)
                r = uv_timer_start(&s->timer, on_look, LOOK_MS, LOOK_MS);
        if (r < 0) {
                agent_server_close(s);
                return r;
        }
        *ret_server = s;
        return 0;
}

void agent_server_close(struct agent_server *s)
{
        struct agent *a, *next;

        if (!s || s->closing)
                return;
        s->closing = true;
        DL_FOREACH_SAFE(s->agents, a, next)
        agent_close(a);
        uv_poll_stop(&s->poll);
        uv_close((uv_handle_t *)&s->poll, on_listener_closed);
        uv_close((uv_handle_t *)&s->timer, on_timer_closed);
}

void agent_server_set_limits(struct agent_server *s, const struct agent_limits *limits)
{
        s->limits = *limits;
}
