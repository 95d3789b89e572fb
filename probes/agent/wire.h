/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The agent's connection to the daemon. Lives in a foreign process, so:
 * the descriptor is moved out of the low range and closes on exec; before every
 * use it is checked to be still the same socket in the same process, since
 * applications close descriptors they do not know and fork as they like; and a
 * daemon that does not read costs at most one short wait, after which the
 * connection is given up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "agent_abi.h"

#define WIRE_TIMEOUT_MS 2000 /* for the daemon to answer */
#define WIRE_SEND_MS    500  /* for the daemon to take a message */

struct wire {
        int fd; /* -1: not connected */
        pid_t pid;
        uint64_t device, inode; /* of the socket */
};

#define WIRE_NONE                                                                                  \
        (struct wire)                                                                              \
        {                                                                                          \
                .fd = -1                                                                           \
        }

/* Connect to the daemon's agent socket. 0; -errno, e.g. -ENOENT: no daemon. */
int wire_connect(const char *path, struct wire *ret_wire);
void wire_close(struct wire *w);

/* The same socket by another descriptor, for another thread to wait at. 0 or -errno. */
int wire_duplicate(const struct wire *w, struct wire *ret_wire);

/* True while messages can be sent: connected, same process, descriptor still ours. */
bool wire_alive(const struct wire *w);

/* True when, besides, the daemon has not closed its end. */
bool wire_fresh(const struct wire *w);

/*
 * Send one message; fills in its header. 0; -ENOTCONN; -EMSGSIZE; other -errno,
 * after which the connection is closed. May be called from any thread.
 */
int wire_send(struct wire *w, enum agent_message type, void *message, size_t size);

/* What the daemon answered to HELLO. Owns its descriptors. */
struct wire_welcome {
        struct agent_welcome welcome;
        int map_fd;
        int blob_fd;
        int launch_fd;     /* -1: launches are not to be recorded */
        char refusal[240]; /* what the daemon said if it refused */
};

/*
 * Send HELLO and wait for the answer. 0; -EACCES the daemon refused (refusal is
 * set); -ETIMEDOUT; -EPROTO it sent something else; other -errno. Closes the
 * connection on failure.
 */
int wire_hello(struct wire *w, struct agent_hello *hello, struct wire_welcome *ret_welcome);

/* Close the descriptors. */
void wire_welcome_done(struct wire_welcome *w);

/*
 * Send a WAKE without waiting: a daemon that has not read what was sent before is
 * awake. False: there is no daemon any more.
 */
bool wire_wake(struct wire *w);

/* The descriptors that came with a message, at most max; they are the caller's. Their number. */
size_t wire_take_fds(struct msghdr *m, int *ret_fds, size_t max);

/* Send a NOTE; best effort. */
void wire_note(struct wire *w, enum agent_note_kind kind, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

struct wire_kernel {
        const char *name; /* long names are cut */
        uint32_t kernel_id;
        enum agent_probe_how entry, exit; /* the programs that tell when it starts and ends */
        uint8_t programs, refused;        /* of the others: how many are in, and are not */
        bool accesses_known;
        uint32_t accesses_probed, accesses; /* instructions that access memory, if known */
        const char *reason;                 /* NULL when fully probed */
};

/*
 * Tell what a handle is that was given out before the daemon or the agent could see it:
 * a kernel of the image with that handle. 0 or -errno.
 */
int wire_function(struct wire *w, uint64_t func, uint64_t image, const char *name);

/* Send the kernels of an image in as many KERNELS messages as it takes. 0 or -errno. */
int wire_kernels(struct wire *w, uint32_t image_id, const struct wire_kernel *kernels,
                 size_t count);
