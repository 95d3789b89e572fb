/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The two listening sockets: taken from systemd when it passed them (told apart
 * by type: stream for clients, seqpacket for agents), else created.
 */
#include <stddef.h>

struct sockets {
        int api;   /* SOCK_STREAM */
        int agent; /* SOCK_SEQPACKET */
};

/*
 * 0, or -errno with a sentence in error[]. A socket file that another daemon
 * still serves is -EADDRINUSE; a stale one is replaced.
 */
int sockets_open(const char *api_path, const char *agent_path, char *error, size_t error_size,
                 struct sockets *ret_sockets);
