/* SPDX-License-Identifier: Apache-2.0 */
#include "api/peer.h"

#include <errno.h>
#include <grp.h>
#include <sys/socket.h>

#include "util/macro.h"

/* SO_PEERGROUPS: the peer's supplementary groups, from the kernel, no name service asked. */
static bool in_supplementary(int fd, gid_t group)
{
        _cleanup_free_ gid_t *groups = NULL;
        socklen_t bytes = 0;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &bytes) == 0 || errno != ERANGE)
                return false;
        groups = malloc(bytes);
        if (!groups || getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &bytes) < 0)
                return false;
        for (size_t i = 0; i < bytes / sizeof(*groups); i++)
                if (groups[i] == group)
                        return true;
        return false;
}

int peer_read(int fd, gid_t group, struct peer *ret_peer)
{
        struct ucred cred;
        socklen_t size = sizeof(cred);
        bool member;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
                return -errno;
        member = group != (gid_t)-1 && (cred.gid == group || in_supplementary(fd, group));
        *ret_peer = (struct peer){cred.pid, cred.uid, cred.uid == 0 || member};
        return 0;
}

gid_t peer_group(const char *name)
{
        struct group entry, *found = NULL;
        char buffer[16384];

        if (getgrnam_r(name, &entry, buffer, sizeof(buffer), &found) != 0 || !found)
                return (gid_t)-1;
        return found->gr_gid;
}
