/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../device/device_abi.h"
#include "agent.h"
#include "control.h"
#include "monotonic.h"
#include "own_thread.h"
#include "session.h"

#define FDS_MAX      (1 + AGENT_MAP_MAX)
#define LOOK_MS      1000 /* between looks whether the descriptor is still ours */
#define READY_MS     250  /* between looks whether the context is there again */
#define STOP_WAIT_MS 300
#define LAST_SWEEPS  10 /* copies are unloaded when nothing of them runs any more */

/* One message with its descriptors, which it owns. */
struct packet {
        union {
                struct agent_header header;
                struct agent_attach attach;
                struct agent_detach detach;
                struct agent_rules rules;
                struct agent_read_map read;
                struct agent_write_map write;
                uint8_t bytes[sizeof(struct agent_write_map) + AGENT_WRITE_MAX];
        };
        size_t size;
        int fds[FDS_MAX];
        size_t fd_count;
};

static struct {
        struct wire *wire;
        struct wire own; /* the same socket by another descriptor */
        pthread_t thread;
        bool registered; /* to be stopped at exit */
        pid_t pid;       /* of the process the thread is in; 0: no thread */
        bool detached;   /* memory may have to be freed */

        /* What ends a pause of the thread. */
        pthread_mutex_t lock;
        pthread_cond_t stopping;
        bool stop;
} control = {
        .own = WIRE_NONE, .lock = PTHREAD_MUTEX_INITIALIZER, .stopping = PTHREAD_COND_INITIALIZER};

static void packet_done(struct packet *p)
{
        for (size_t i = 0; i < p->fd_count; i++)
                close(p->fds[i]);
        p->fd_count = 0;
}

/* 0; -EAGAIN nothing there; -EPIPE the daemon is gone; -EPROTO nonsense. */
static int receive(struct packet *p)
{
        union {
                struct cmsghdr align;
                char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        } ancillary = {0};
        struct iovec iov = {p->bytes, sizeof(p->bytes)};
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = &ancillary,
                           .msg_controllen = sizeof(ancillary)};
        ssize_t n;

        memset(p->bytes, 0, sizeof(p->bytes));
        p->fd_count = 0;
        n = recvmsg(control.own.fd, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        if (n < 0)
                return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
        if (n == 0)
                return -EPIPE;
        p->size = (size_t)n;
        p->fd_count = wire_take_fds(&m, p->fds, FDS_MAX);
        if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) || p->size < sizeof(p->header) ||
            p->header.version != AGENT_ABI_VERSION || p->header.length != p->size) {
                packet_done(p);
                return -EPROTO;
        }
        return 0;
}

/* ---- programs ---- */

/* The host maps of a blob, each behind its own descriptor, in their order. */
static const char *place_host_maps(struct session *s, const struct packet *p,
                                   struct probe_object *o)
{
        const struct agent_blob *blob = o->blob;
        const char *refusal = NULL;
        size_t fd = 1;

        if (o->blob_bytes < sizeof(*blob))
                return "the daemon's programs cannot be read";
        for (int i = 0; i < AGENT_MAP_MAX && !refusal; i++) {
                if (blob->maps[i].placement != GPUOBS_PLACE_HOST)
                        continue;
                refusal = fd == p->fd_count ? "a host map that was not sent along"
                                            : host_map_place(s->api, p->fds[fd++],
                                                             blob->maps[i].bytes, &o->host[i]);
        }
        return refusal;
}

static void remove_host_maps(struct session *s, const struct probe_object *o)
{
        const struct agent_blob *blob = o->blob;

        for (int i = 0; i < AGENT_MAP_MAX; i++)
                if (o->host[i])
                        host_map_remove(s->api, o->host[i], blob->maps[i].bytes);
}

static int add_programs(struct session *s, const struct packet *p, struct probe_object *o,
                        char *reason)
{
        const char *refusal = place_host_maps(s, p, o);
        int r = -ENOTSUP;

        if (refusal)
                snprintf(reason, PROBE_SET_REASON_BYTES, "%s", refusal);
        else
                r = probe_set_add(s->set, o, reason);
        if (r < 0)
                remove_host_maps(s, o);
        return r;
}

/* Answers are sent when what they say is so in images that are loaded already, too. */
struct answer {
        enum agent_message type;
        size_t size;
        union {
                struct agent_header header;
                struct agent_attached attached;
                struct agent_detached detached;
                struct agent_map_done done;
        };
        bool changed; /* programs came or went */
};

static void attach(struct session *s, const struct packet *p, struct answer *ret_answer)
{
        struct agent_attached answer = {.id = p->attach.id, .result = -EPROTO};
        struct probe_object o = {.id = p->attach.id,
                                 .blob_bytes = p->attach.blob_bytes,
                                 .kernels = p->attach.kernels};
        void *blob = p->fd_count ? programs_read(p->fds[0], o.blob_bytes) : NULL;
        const char *code_refusal;

        o.blob = blob;
        snprintf(answer.reason, sizeof(answer.reason), "the daemon's programs cannot be read");
        if (blob && o.id)
                answer.result = add_programs(s, p, &o, answer.reason);
        free(blob);
        if (answer.result == 0) {
                code_refusal = probe_set_code_refusal(s->set, o.id);
                answer.gpu_bytes = probe_set_maps(s->set, o.id)->size;
                answer.code = !code_refusal;
                snprintf(answer.reason, sizeof(answer.reason), "%s", code_refusal ?: "");
        }
        *ret_answer = (struct answer){.type = AGENT_ATTACHED,
                                      .size = sizeof(answer),
                                      .attached = answer,
                                      .changed = answer.result == 0};
}

static void detach(struct session *s, uint64_t id, struct answer *ret_answer)
{
        struct agent_detached answer = {.id = id};
        uint64_t kept = 0;
        bool changed = id && probe_set_remove(s->set, id, &kept) == 0;

        control.detached |= changed;
        answer.kept_bytes = kept;
        *ret_answer = (struct answer){.type = AGENT_DETACHED,
                                      .size = sizeof(answer),
                                      .detached = answer,
                                      .changed = changed};
}

/* ---- maps ---- */

static void read_map(struct session *s, const struct packet *p, struct answer *ret_answer)
{
        struct agent_map_done answer = {.request = p->read.request};
        const struct gpu_maps *maps = probe_set_maps(s->set, p->read.id);
        struct map_reading reading = {0};

        if (!maps || p->read.map >= AGENT_MAP_MAX || maps->bytes[p->read.map] != p->read.bytes ||
            p->fd_count != 1)
                answer.result = -ENOENT;
        if (answer.result == 0)
                answer.result =
                        probe_set_read(s->set, p->read.id, p->read.map, p->fds[0], &reading);
        answer.settled = reading.settled;
        answer.before_ns = reading.before_ns;
        answer.after_ns = reading.after_ns;
        *ret_answer =
                (struct answer){.type = AGENT_MAP_DONE, .size = sizeof(answer), .done = answer};
}

static void write_map(struct session *s, const struct packet *p, struct answer *ret_answer)
{
        struct agent_map_done answer = {.request = p->write.request};
        const struct agent_write_map *w = &p->write;

        answer.result = p->size == sizeof(*w) + w->bytes
                                ? probe_set_write(s->set, w->id, w->map, w->offset,
                                                  p->bytes + sizeof(*w), w->bytes)
                                : -EPROTO;
        *ret_answer =
                (struct answer){.type = AGENT_MAP_DONE, .size = sizeof(answer), .done = answer};
}

/* ---- messages ---- */

/* The size a message must have; 0 for one that the daemon does not send. */
static size_t least_size(uint16_t type)
{
        switch (type) {
        case AGENT_ATTACH:
                return sizeof(struct agent_attach);
        case AGENT_DETACH:
                return sizeof(struct agent_detach);
        case AGENT_RULES:
                return sizeof(struct agent_rules);
        case AGENT_READ_MAP:
                return sizeof(struct agent_read_map);
        case AGENT_WRITE_MAP:
                return sizeof(struct agent_write_map);
        default:
                return 0;
        }
}

static int deal_with(struct session *s, struct packet *p, struct answer *ret_answer)
{
        size_t least = least_size(p->header.type);

        if (!least || p->size < least)
                return -EPROTO;
        switch (p->header.type) {
        case AGENT_ATTACH:
                p->attach.kernels[AGENT_GLOB_MAX - 1] = '\0';
                attach(s, p, ret_answer);
                break;
        case AGENT_DETACH:
                detach(s, p->detach.id, ret_answer);
                break;
        case AGENT_RULES:
                p->rules.text[AGENT_RULES_MAX - 1] = '\0';
                probe_rules_parse(p->rules.text, &s->rules);
                break;
        case AGENT_READ_MAP:
                read_map(s, p, ret_answer);
                break;
        case AGENT_WRITE_MAP:
                write_map(s, p, ret_answer);
                break;
        }
        return 0;
}

static int send_answer(struct answer *a)
{
        if (!a->size)
                return 0;
        return wire_send(control.wire, a->type, &a->header, a->size);
}

/* With the agent's lock and in the device's context; without both nothing is done. */
static int deal_locked(struct packet *p)
{
        struct session *s = agent_enter();
        struct answer answer = {0};
        int r = s ? deal_with(s, p, &answer) : -ENODEV;

        if (s)
                agent_leave();
        if (answer.changed)
                agent_replace_all();
        return r == 0 ? send_answer(&answer) : r;
}

/* After a reset of the device what is asked for waits until the application uses it again. */
static int deal_when_ready(struct packet *p)
{
        struct pollfd hung_up = {.fd = control.own.fd, .events = POLLRDHUP};
        int r = deal_locked(p);

        while (r == -ENODEV && agent_is_ready()) {
                if (poll(&hung_up, 1, READY_MS) > 0 || !wire_alive(&control.own))
                        return -EPIPE;
                r = deal_locked(p);
        }
        return r;
}

/* Memory that was kept is free now: the daemon is told once more. False: not looked now. */
static bool sweep(void)
{
        struct agent_detached freed = {0};
        struct session *s = agent_enter();
        uint64_t id;

        while (s && agent_sweep(s, &id)) {
                freed.id = id;
                wire_send(control.wire, AGENT_DETACHED, &freed, sizeof(freed));
        }
        if (!s)
                return false;
        control.detached = probe_set_has_gone(s->set);
        agent_leave();
        return true;
}

/* Whether there is nothing more to wait for: the process ends, or the session is over. */
static bool pause_ms(unsigned ms)
{
        struct timespec until = monotonic_in_ms(ms);
        int r = 0;
        bool stop;

        pthread_mutex_lock(&control.lock);
        while (!control.stop && r == 0)
                r = pthread_cond_clockwait(&control.stopping, &control.lock, CLOCK_MONOTONIC,
                                           &until);
        stop = control.stop;
        pthread_mutex_unlock(&control.lock);
        return stop || !agent_is_ready();
}

static void set_stop(bool stop)
{
        pthread_mutex_lock(&control.lock);
        control.stop = stop;
        pthread_cond_broadcast(&control.stopping);
        pthread_mutex_unlock(&control.lock);
}

/*
 * The daemon is gone: whatever it put in shall not stay. After a reset of the device
 * that waits until the application uses it again.
 */
static void abandon(void)
{
        struct session *s;
        bool changed;

        while (!(s = agent_enter()))
                if (pause_ms(READY_MS))
                        return;
        changed = probe_set_remove_all(s->set);
        control.detached = probe_set_has_gone(s->set);
        agent_leave();
        if (changed)
                agent_replace_all();
        for (int swept = 0; swept < LAST_SWEEPS && control.detached; swept += sweep())
                if (pause_ms(LOOK_MS))
                        return;
}

/* 0 when there may be something; -ETIMEDOUT; -EPIPE when the descriptor is not ours any more. */
static int wait_for_packet(int timeout_ms)
{
        struct pollfd p = {.fd = control.own.fd, .events = POLLIN};
        int n = poll(&p, 1, timeout_ms);

        if (!wire_alive(&control.own))
                return -EPIPE;
        return n == 0 ? -ETIMEDOUT : 0;
}

static void *run(void *unused)
{
        struct packet *p = malloc(sizeof(*p));
        int r = p ? 0 : -ENOMEM;

        own_thread_begin();
        while (r == 0 || r == -EAGAIN || r == -ETIMEDOUT) {
                r = wait_for_packet(LOOK_MS);
                if (control.detached && (r == 0 || r == -ETIMEDOUT))
                        sweep();
                if (r == 0)
                        r = receive(p);
                if (r == 0) {
                        r = deal_when_ready(p);
                        packet_done(p);
                }
        }
        free(p);
        wire_close(control.wire);
        wire_close(&control.own);
        abandon();
        return NULL;
}

static int take_first(struct session *s, uint32_t count)
{
        struct packet *p = malloc(sizeof(*p));
        int r = p ? 0 : -ENOMEM;
        struct answer answer;

        for (uint32_t i = 0; i < count && r == 0; i++) {
                r = wait_for_packet(WIRE_TIMEOUT_MS);
                if (r == 0)
                        r = receive(p);
                if (r < 0)
                        break;
                answer = (struct answer){.size = 0};
                r = deal_with(s, p, &answer);
                packet_done(p);
                if (r == 0)
                        r = send_answer(&answer);
        }
        free(p);
        return r;
}

/* Before the driver goes down, which is registered before this. */
void control_stop(void)
{
        struct timespec until;

        if (!control.pid || control.pid != getpid())
                return;
        if (wire_alive(&control.own))
                shutdown(control.own.fd, SHUT_RD);
        set_stop(true);
        until = monotonic_in_ms(STOP_WAIT_MS);
        if (pthread_clockjoin_np(control.thread, NULL, CLOCK_MONOTONIC, &until) == 0)
                control.pid = 0;
}

int control_start(struct wire *wire, uint32_t count)
{
        int r;

        control.wire = wire;
        r = wire_duplicate(wire, &control.own);
        if (r == 0)
                r = take_first(agent_session(), count);
        set_stop(false);
        if (r == 0)
                r = own_thread_start(&control.thread, "gpuobs-control", run);
        if (r < 0) {
                wire_close(&control.own);
                return r;
        }
        control.pid = getpid();
        if (!control.registered)
                atexit(control_stop);
        control.registered = true;
        return 0;
}

void control_forked(void)
{
        int fd = control.own.fd;

        control.own.pid = getpid();
        if (wire_alive(&control.own))
                close(fd);
        control.own.fd = -1;
}
