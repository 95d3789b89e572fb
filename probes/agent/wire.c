/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "wire.h"

#define HIGH_FD    500   /* applications expect the lowest free descriptors for themselves */
#define NAME_MAX_  30000 /* bytes of a kernel name that are sent */
#define REASON_MAX 2000

/* Move a descriptor away from the numbers the application will get. */
static int raise_fd(int fd)
{
        int high = -1;

        for (int low = HIGH_FD; high < 0 && low >= 64; low /= 2)
                high = fcntl(fd, F_DUPFD_CLOEXEC, low);
        if (high < 0)
                return fd;
        close(fd);
        return high;
}

static int set_timeouts(int fd)
{
        struct timeval send = {.tv_usec = WIRE_SEND_MS * 1000};

        return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof(send)) < 0 ? -errno : 0;
}

static int connect_to(const char *path)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd, r;

        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        strcpy(address.sun_path, path);
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        /* The timeout also bounds connect() when the daemon's backlog is full. */
        r = set_timeouts(fd);
        if (r == 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                r = -errno;
        if (r < 0) {
                close(fd);
                return r;
        }
        return raise_fd(fd);
}

int wire_connect(const char *path, struct wire *ret_wire)
{
        struct stat st;
        int fd = connect_to(path);

        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0) {
                int r = -errno;

                close(fd);
                return r;
        }
        *ret_wire =
                (struct wire){.fd = fd, .pid = getpid(), .device = st.st_dev, .inode = st.st_ino};
        return 0;
}

int wire_duplicate(const struct wire *w, struct wire *ret_wire)
{
        int fd = wire_alive(w) ? fcntl(w->fd, F_DUPFD_CLOEXEC, w->fd) : -1;

        if (fd < 0)
                return wire_alive(w) ? -errno : -ENOTCONN;
        *ret_wire = *w;
        ret_wire->fd = fd;
        return 0;
}

bool wire_alive(const struct wire *w)
{
        int fd = __atomic_load_n(&w->fd, __ATOMIC_ACQUIRE);
        struct stat st;

        return fd >= 0 && w->pid == getpid() && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) &&
               st.st_dev == w->device && st.st_ino == w->inode;
}

bool wire_fresh(const struct wire *w)
{
        struct pollfd p = {.fd = w->fd, .events = POLLIN};

        /* Before HELLO the daemon has nothing to say: anything to read is the end. */
        return wire_alive(w) && poll(&p, 1, 0) == 0;
}

void wire_close(struct wire *w)
{
        bool ours = wire_alive(w);
        int fd = __atomic_exchange_n(&w->fd, -1, __ATOMIC_ACQ_REL);

        if (!ours || fd < 0)
                return;
        shutdown(fd, SHUT_RDWR); /* whoever waits at a duplicate is to know */
        close(fd);
}

int wire_send(struct wire *w, enum agent_message type, void *message, size_t size)
{
        struct agent_header header = {
                .type = type, .version = AGENT_ABI_VERSION, .length = (uint32_t)size};
        ssize_t n;
        int r;

        if (size > AGENT_PACKET_MAX)
                return -EMSGSIZE;
        if (!wire_alive(w))
                return -ENOTCONN;
        memcpy(message, &header, sizeof(header));
        do
                n = send(w->fd, message, size, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        if (n == (ssize_t)size)
                return 0;
        r = n < 0 ? -errno : -EIO;
        wire_close(w);
        return r;
}

bool wire_wake(struct wire *w)
{
        const struct agent_wake m = {
                .header = {.type = AGENT_WAKE, .version = AGENT_ABI_VERSION, .length = sizeof(m)}};

        if (!wire_alive(w))
                return false;
        return send(w->fd, &m, sizeof(m), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN ||
               errno == EINTR;
}

static uint64_t now_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int wait_readable(int fd)
{
        uint64_t end = now_ms() + WIRE_TIMEOUT_MS, now;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n;

        while ((now = now_ms()) < end) {
                n = poll(&p, 1, (int)(end - now));
                if (n > 0)
                        return 0;
                if (n < 0 && errno != EINTR)
                        return -errno;
        }
        return -ETIMEDOUT;
}

size_t wire_take_fds(struct msghdr *m, int *ret_fds, size_t max)
{
        size_t count = 0;

        for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
                size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

                if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
                        continue;
                for (size_t i = 0; i < n && count < max; i++)
                        memcpy(&ret_fds[count++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        }
        return count;
}

/* Two or three; any other number is closed again. */
static bool take_welcome_fds(struct msghdr *m, int fds[3])
{
        int found[8];
        size_t count = wire_take_fds(m, found, 8);

        if ((count == 2 || count == 3) && !(m->msg_flags & MSG_CTRUNC)) {
                memcpy(fds, found, count * sizeof(int));
                return true;
        }
        for (size_t i = 0; i < count; i++)
                close(found[i]);
        return false;
}

void wire_welcome_done(struct wire_welcome *w)
{
        int *fds[] = {&w->map_fd, &w->blob_fd, &w->launch_fd};

        for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
                if (*fds[i] >= 0)
                        close(*fds[i]);
                *fds[i] = -1;
        }
}

union answer {
        struct agent_header header;
        struct agent_welcome welcome;
        struct agent_refused refused;
};

static int judge(const union answer *a, ssize_t n, bool have_fds, struct wire_welcome *w)
{
        bool launches;

        if (n < (ssize_t)sizeof(a->header) || a->header.version != AGENT_ABI_VERSION ||
            a->header.length != (uint32_t)n)
                return -EPROTO;
        if (a->header.type == AGENT_REFUSED && n == sizeof(a->refused)) {
                snprintf(w->refusal, sizeof(w->refusal), "%.*s", (int)sizeof(w->refusal) - 1,
                         a->refused.reason);
                return -EACCES;
        }
        if (a->header.type != AGENT_WELCOME || n != sizeof(a->welcome) || !have_fds)
                return -EPROTO;
        launches = a->welcome.flags & AGENT_WELCOME_RECORD_LAUNCHES;
        if (launches != (w->launch_fd >= 0))
                return -EPROTO;
        w->welcome = a->welcome;
        return 0;
}

static int receive_answer(int fd, struct wire_welcome *ret_welcome)
{
        char control[CMSG_SPACE(8 * sizeof(int))] = {0};
        struct wire_welcome w = {.map_fd = -1, .blob_fd = -1, .launch_fd = -1};
        union answer answer = {0};
        struct iovec iov = {&answer, sizeof(answer)};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        int fds[3] = {-1, -1, -1}, r;
        bool have_fds;

        if (n < 0)
                return -errno;
        if (n == 0)
                return -ECONNRESET;
        have_fds = take_welcome_fds(&m, fds);
        w.map_fd = fds[0];
        w.blob_fd = fds[1];
        w.launch_fd = fds[2];
        r = m.msg_flags & MSG_TRUNC ? -EPROTO : judge(&answer, n, have_fds, &w);
        if (r < 0)
                wire_welcome_done(&w);
        *ret_welcome = w;
        return r;
}

int wire_hello(struct wire *w, struct agent_hello *hello, struct wire_welcome *ret_welcome)
{
        int r;

        r = wire_send(w, AGENT_HELLO, hello, sizeof(*hello));
        if (r == 0)
                r = wait_readable(w->fd);
        if (r == 0)
                r = receive_answer(w->fd, ret_welcome);
        if (r < 0)
                wire_close(w);
        return r;
}

void wire_note(struct wire *w, enum agent_note_kind kind, const char *format, ...)
{
        struct agent_note note = {.kind = kind};
        va_list args;

        va_start(args, format);
        vsnprintf(note.text, sizeof(note.text), format, args);
        va_end(args);
        wire_send(w, AGENT_NOTE, &note, sizeof(note));
}

static size_t kernel_bytes(const struct wire_kernel *k, struct agent_kernel *ret_head)
{
        size_t name = strnlen(k->name, NAME_MAX_);
        size_t reason = k->reason ? strnlen(k->reason, REASON_MAX) : 0;
        size_t size = (sizeof(*ret_head) + name + reason + 7) & ~(size_t)7;

        *ret_head = (struct agent_kernel){
                .kernel_id = k->kernel_id,
                .entry = (uint8_t)k->entry,
                .exit = (uint8_t)k->exit,
                .programs = k->programs,
                .refused = k->refused,
                .name_bytes = (uint16_t)name,
                .reason_bytes = (uint16_t)reason,
                .size = (uint32_t)size,
                .accesses_probed = k->accesses_known ? k->accesses_probed : 0,
                .accesses = k->accesses_known ? k->accesses : AGENT_ACCESSES_UNKNOWN,
        };
        return size;
}

int wire_function(struct wire *w, uint64_t func, uint64_t image, const char *name)
{
        size_t length = strnlen(name, NAME_MAX_), size;
        struct agent_function *message;
        int r;

        size = sizeof(*message) + length;
        message = calloc(1, size);
        if (!message)
                return -ENOMEM;
        message->func = func;
        message->image = image;
        message->name_bytes = (uint32_t)length;
        memcpy(message->name, name, length);
        r = wire_send(w, AGENT_FUNCTION, message, size);
        free(message);
        return r;
}

int wire_kernels(struct wire *w, uint32_t image_id, const struct wire_kernel *kernels, size_t count)
{
        struct agent_kernels *message = calloc(1, AGENT_PACKET_MAX);
        size_t at = sizeof(*message);
        int r = 0;

        if (!message)
                return -ENOMEM;
        message->image_id = image_id;
        for (size_t i = 0; i < count && r == 0; i++) {
                struct agent_kernel head;
                size_t size = kernel_bytes(&kernels[i], &head);
                char *out;

                if (at + size > AGENT_PACKET_MAX) {
                        r = wire_send(w, AGENT_KERNELS, message, at);
                        at = sizeof(*message);
                        message->count = 0;
                }
                out = (char *)message + at;
                memset(out, 0, size);
                memcpy(out, &head, sizeof(head));
                memcpy(out + sizeof(head), kernels[i].name, head.name_bytes);
                memcpy(out + sizeof(head) + head.name_bytes, kernels[i].reason ?: "",
                       head.reason_bytes);
                at += size;
                message->count++;
        }
        if (r == 0 && message->count)
                r = wire_send(w, AGENT_KERNELS, message, at);
        free(message);
        return r;
}
