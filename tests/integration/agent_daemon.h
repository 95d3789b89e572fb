/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's side of the agent socket, played by a test: listens on a socket
 * of its own, answers HELLO as told, and keeps what agents send.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/agent_abi.h"

enum fake_mood {
        FAKE_POLITE = 0,
        FAKE_REFUSES,
        FAKE_SILENT,      /* takes HELLO and says nothing */
        FAKE_HANGS_UP,    /* closes at HELLO */
        FAKE_BABBLES,     /* answers with a message of no known type */
        FAKE_TRUNCATES,   /* a WELCOME that is too short */
        FAKE_NO_FDS,      /* a WELCOME without descriptors */
        FAKE_BAD_BLOB,    /* programs that are none */
        FAKE_BAD_ADDRESS, /* a ring at an address that is taken */
        FAKE_LEAVES,      /* answers, then closes after the first image */
};

struct fake_daemon {
        char directory[64];
        char path[108];
        int listener;
        int connection;
        enum fake_mood mood;
        uint64_t clock_devices;
        const void *blob; /* programs to offer */
        size_t blob_bytes;
        int map_fd; /* the ring, DEVICE_RING_BYTES */

        struct agent_hello hello;
        bool greeted;
        char *messages[512]; /* each with its header */
        size_t message_count;
        bool closed;
};

void fake_daemon_open(struct fake_daemon *d);
/* Serve until `seconds` are over, the agent closes, or done(d) says so (may be NULL). */
void fake_daemon_serve(struct fake_daemon *d, double seconds, bool (*done)(struct fake_daemon *));
void fake_daemon_close(struct fake_daemon *d);

/* The i-th message of a type, or NULL. */
const void *fake_daemon_message(const struct fake_daemon *d, enum agent_message type, size_t i);
size_t fake_daemon_count(const struct fake_daemon *d, enum agent_message type);

/* A kernel of a KERNELS message; strings copied. False when there is none. */
struct fake_kernel {
        uint32_t image_id;
        struct agent_kernel head;
        char name[256];
        char reason[256];
};
bool fake_daemon_kernel(const struct fake_daemon *d, size_t i, struct fake_kernel *ret_kernel);
