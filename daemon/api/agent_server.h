/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's end of the agent socket (agent_abi.h): accepts agents, checks
 * every message, hands what is sound to its owner. One connection per process.
 * Runs on the event loop's thread.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "agent/agent_abi.h"

struct agent_server;
struct agent;

/* What a welcomed agent is given. The descriptors stay the owner's. */
struct agent_offer {
        int map_fd;
        int blob_fd;
        int launch_fd; /* the launch map; -1: the agent is not to record launches */
        uint64_t blob_bytes;
        uint64_t map_bytes;     /* of GPU memory that maps may take */
        uint64_t clock_devices; /* by ordinal: the agent is to send their clocks */
        uint32_t attach_count;  /* ATTACH messages that welcomed() will send */
};

struct agent_server_ops {
        /*
         * A process introduced itself. 0 with the offer filled in, or -errno with
         * a sentence in reason[] that the agent is refused with.
         */
        int (*hello)(void *data, struct agent *a, pid_t pid, uid_t uid,
                     const struct agent_hello *hello, struct agent_offer *ret_offer, char *reason,
                     size_t reason_size);
        void (*image)(void *data, struct agent *a, const struct agent_image *image);
        /* name and reason are not NUL-terminated; lengths are in kernel. */
        void (*kernel)(void *data, struct agent *a, uint32_t image_id,
                       const struct agent_kernel *kernel, const char *name, const char *reason);
        void (*clock)(void *data, struct agent *a, const struct agent_clock *clock);
        void (*handle)(void *data, struct agent *a, uint64_t func);
        /* A handle that was given out before: a kernel of the image. name has no NUL. */
        void (*function)(void *data, struct agent *a, uint64_t func, uint64_t image,
                         const char *name, size_t name_length);
        /* The agent leaves the process, which goes on; gone() follows. */
        void (*bye)(void *data, struct agent *a);
        void (*note)(void *data, struct agent *a, uint32_t kind, const char *text);
        /* WELCOME is on its way: now the ATTACH messages that were announced. */
        void (*welcomed)(void *data, struct agent *a);
        /* Answers to what agent_send() sent. */
        void (*attached)(void *data, struct agent *a, const struct agent_attached *m);
        void (*detached)(void *data, struct agent *a, const struct agent_detached *m);
        void (*map_done)(void *data, struct agent *a, const struct agent_map_done *m);
        /*
         * The agent was turned away: by hello(), for its version, as one too many, or since it
         * did not say HELLO in time; it never was the owner's.
         */
        void (*refused)(void *data, struct agent *a, const char *reason);
        /* A message made no sense; the connection is closed after it. */
        void (*protocol_error)(void *data, struct agent *a, const char *what);
        /* The connection is over. Called once for each agent whose hello() returned 0. */
        void (*gone)(void *data, struct agent *a);
        /* There are arguments to be read in the launch map. */
        void (*wake)(void *data, struct agent *a);
};

/* What agents may take; who has more already keeps it. */
struct agent_limits {
        uint32_t per_user; /* processes of one user; each takes 2 to 6 MiB for its maps */
        uint32_t hello_ms; /* from the connection to HELLO; looked at once a second */
};
#define AGENT_LIMITS_DEFAULT                                                                       \
        {                                                                                          \
                .per_user = 256, .hello_ms = 10000                                                 \
        }

/*
 * Serve agents on a listening SOCK_SEQPACKET socket, which the server owns from
 * then on. 0 or -errno.
 */
int agent_server_new(uv_loop_t *loop, int listen_fd, const struct agent_server_ops *ops, void *data,
                     struct agent_server **ret_server);

void agent_server_set_limits(struct agent_server *s, const struct agent_limits *limits);

/*
 * Take what the agents have sent by now: what they say of a launch is sent
 * before it, and must be known before its event is read. Nothing while one of
 * their messages is being dealt with.
 */
void agent_server_catch_up(struct agent_server *s);
/* The same of one agent, which may be gone then. */
void agent_catch_up(struct agent *a);

/* Close all connections; gone() is called for each. The memory goes when libuv has let go. */
void agent_server_close(struct agent_server *s);

/*
 * Send a message; its header is filled in. fds stay the caller's, at most
 * AGENT_FDS_MAX. 0; -EAGAIN the agent does not read; other -errno. Never waits.
 */
#define AGENT_FDS_MAX (1 + AGENT_MAP_MAX)
int agent_send(struct agent *a, enum agent_message type, void *message, size_t size, const int *fds,
               size_t fd_count);

pid_t agent_pid(const struct agent *a);
void agent_set_user(struct agent *a, void *user);
void *agent_user(const struct agent *a);

/* Check a HELLO of this version but for its header: 0 or -EBADMSG. For the fuzzer too. */
int agent_hello_read(const void *packet, size_t size, struct agent_hello *ret_hello);

/* Check one packet of an agent and call ops; 0, or -EBADMSG after protocol_error(). For the fuzzer
 * too. */
int agent_message(const struct agent_server_ops *ops, void *data, struct agent *a,
                  const void *packet, size_t size);
