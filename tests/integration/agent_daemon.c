/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent_daemon.h"
#include "device/device_abi.h"
#include "unit/test.h"

#define MAP_BYTES (64u << 20)

void fake_daemon_open(struct fake_daemon *d)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        strcpy(d->directory, "/tmp/gpuobs-agent-XXXXXX");
        CHECK(mkdtemp(d->directory));
        CHECK_EQ(chmod(d->directory, 0755), 0);
        snprintf(d->path, sizeof(d->path), "%s/agent.sock", d->directory);
        strcpy(address.sun_path, d->path);
        d->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        CHECK(d->listener >= 0);
        CHECK_EQ(bind(d->listener, (struct sockaddr *)&address, sizeof(address)), 0);
        CHECK_EQ(chmod(d->path, 0777), 0);
        CHECK_EQ(listen(d->listener, 8), 0);
        d->connection = -1;
        if (d->map_fd <= 0) {
                d->map_fd = memfd_create("ring", MFD_CLOEXEC);
                CHECK_EQ(ftruncate(d->map_fd, DEVICE_RING_BYTES), 0);
        }
}

void fake_daemon_close(struct fake_daemon *d)
{
        for (size_t i = 0; i < d->message_count; i++)
                free(d->messages[i]);
        if (d->connection >= 0)
                close(d->connection);
        close(d->listener);
        close(d->map_fd);
        unlink(d->path);
        rmdir(d->directory);
}

static void send_fds(struct fake_daemon *d, const void *message, size_t size, int blob_fd)
{
        char control[CMSG_SPACE(2 * sizeof(int))] = {0};
        struct iovec iov = {(void *)(uintptr_t)message, size};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
        int fds[2] = {d->map_fd, blob_fd};

        if (blob_fd >= 0) {
                struct cmsghdr *c = (struct cmsghdr *)control;

                m.msg_control = control;
                m.msg_controllen = sizeof(control);
                c->cmsg_level = SOL_SOCKET;
                c->cmsg_type = SCM_RIGHTS;
                c->cmsg_len = CMSG_LEN(sizeof(fds));
                memcpy(CMSG_DATA(c), fds, sizeof(fds));
        }
        CHECK_EQ(sendmsg(d->connection, &m, MSG_NOSIGNAL), (ssize_t)size);
}

static int make_blob(struct fake_daemon *d)
{
        int fd = memfd_create("blob", MFD_CLOEXEC);

        CHECK(fd >= 0);
        if (d->mood == FAKE_BAD_BLOB)
                CHECK_EQ(pwrite(fd, "rubbish", 7, (off_t)d->blob_bytes - 7), 7);
        else
                CHECK_EQ(write(fd, d->blob, d->blob_bytes), (ssize_t)d->blob_bytes);
        return fd;
}

static void answer(struct fake_daemon *d)
{
        struct agent_welcome w = {
                .header = {AGENT_WELCOME, AGENT_ABI_VERSION, sizeof(w)},
                .clock_devices = d->clock_devices,
                .ring_entries = DEVICE_RING_ENTRIES,
                .ring_address = DEVICE_RING_ADDRESS,
                .blob_bytes = d->blob_bytes,
                .map_bytes = MAP_BYTES,
        };
        struct agent_refused r = {.header = {AGENT_REFUSED, AGENT_ABI_VERSION, sizeof(r)}};
        int blob = make_blob(d);

        switch (d->mood) {
        case FAKE_REFUSES:
                strcpy(r.reason, "not today");
                send_fds(d, &r, sizeof(r), -1);
                break;
        case FAKE_SILENT:
                break;
        case FAKE_HANGS_UP:
                close(d->connection);
                d->connection = -1;
                d->closed = true;
                break;
        case FAKE_BABBLES:
                w.header.type = 77;
                send_fds(d, &w, sizeof(w), blob);
                break;
        case FAKE_TRUNCATES:
                w.header.length = sizeof(w) - 8;
                send_fds(d, &w, sizeof(w) - 8, blob);
                break;
        case FAKE_NO_FDS:
                send_fds(d, &w, sizeof(w), -1);
                break;
        case FAKE_BAD_ADDRESS:
                w.ring_address = 0x6e0000000000; /* where the test has put something */
                /* fallthrough */
        default:
                send_fds(d, &w, sizeof(w), blob);
        }
        close(blob);
}

static void keep(struct fake_daemon *d, const char *packet, size_t size)
{
        struct agent_header h;

        CHECK(size >= sizeof(h));
        memcpy(&h, packet, sizeof(h));
        CHECK_EQ(h.length, size);
        CHECK_EQ(h.version, AGENT_ABI_VERSION);
        if (!d->greeted) {
                CHECK_EQ(h.type, AGENT_HELLO);
                CHECK_EQ(size, sizeof(d->hello));
                memcpy(&d->hello, packet, size);
                d->greeted = true;
                answer(d);
                return;
        }
        CHECK(d->message_count < 512);
        d->messages[d->message_count] = malloc(size);
        memcpy(d->messages[d->message_count++], packet, size);
        if (d->mood == FAKE_LEAVES && h.type == AGENT_KERNELS) {
                close(d->connection);
                d->connection = -1;
                d->closed = true;
        }
}

static void take_packet(struct fake_daemon *d)
{
        static char packet[AGENT_PACKET_MAX + 1];
        ssize_t n = recv(d->connection, packet, sizeof(packet), MSG_DONTWAIT);

        if (n <= 0) {
                close(d->connection);
                d->connection = -1;
                d->closed = true;
                return;
        }
        keep(d, packet, (size_t)n);
}

static double now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void fake_daemon_serve(struct fake_daemon *d, double seconds, bool (*done)(struct fake_daemon *))
{
        double end = now() + seconds;

        while (now() < end && !d->closed && !(done && done(d))) {
                struct pollfd p = {.fd = d->connection >= 0 ? d->connection : d->listener,
                                   .events = POLLIN};

                if (poll(&p, 1, 20) <= 0)
                        continue;
                if (d->connection < 0)
                        d->connection = accept4(d->listener, NULL, NULL, SOCK_CLOEXEC);
                else
                        take_packet(d);
        }
}

const void *fake_daemon_message(const struct fake_daemon *d, enum agent_message type, size_t i)
{
        for (size_t k = 0; k < d->message_count; k++)
                if (((struct agent_header *)d->messages[k])->type == type && i-- == 0)
                        return d->messages[k];
        return NULL;
}

size_t fake_daemon_count(const struct fake_daemon *d, enum agent_message type)
{
        size_t n = 0;

        while (fake_daemon_message(d, type, n))
                n++;
        return n;
}

bool fake_daemon_kernel(const struct fake_daemon *d, size_t i, struct fake_kernel *ret_kernel)
{
        const struct agent_kernels *m;

        for (size_t k = 0; (m = fake_daemon_message(d, AGENT_KERNELS, k)); k++) {
                const char *at = (const char *)(m + 1);

                for (uint32_t j = 0; j < m->count; j++) {
                        struct fake_kernel f = {.image_id = m->image_id};

                        memcpy(&f.head, at, sizeof(f.head));
                        CHECK(at + f.head.size <= (const char *)m + m->header.length);
                        snprintf(f.name, sizeof(f.name), "%.*s", f.head.name_bytes,
                                 at + sizeof(f.head));
                        snprintf(f.reason, sizeof(f.reason), "%.*s", f.head.reason_bytes,
                                 at + sizeof(f.head) + f.head.name_bytes);
                        at += f.head.size;
                        if (i-- == 0) {
                                *ret_kernel = f;
                                return true;
                        }
                }
        }
        return false;
}
