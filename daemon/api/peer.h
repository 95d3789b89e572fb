/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who is at the other end of a UNIX socket, as it was when it connected. */
#include <stdbool.h>
#include <sys/types.h>

struct peer {
        pid_t pid;
        uid_t uid;
        bool privileged; /* root, or a member of the group: sees and may change everything */
};

/* group: the privileged group, (gid_t)-1 for none. 0 or -errno. */
int peer_read(int fd, gid_t group, struct peer *ret_peer);

/* The group's id, (gid_t)-1 when there is no such group. May block on name services: at start and
 * reload. */
gid_t peer_group(const char *name);
