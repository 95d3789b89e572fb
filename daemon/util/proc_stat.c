/* SPDX-License-Identifier: Apache-2.0 */
#include "util/proc_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

#include "util/macro.h"

/* Fields between comm and start time in /proc/PID/stat: state (3) to itrealvalue (21). */
#define FIELDS_BEFORE_START 19

int process_parse_stat(const char *text, char *ret_comm, uint64_t *ret_ticks)
{
        const char *open = strchr(text, '('), *close = strrchr(text, ')');
        const char *p;
        size_t length;
        uint64_t ticks;
        char *end;
        int i;

        if (!open || !close || close < open)
                return -EBADMSG;
        p = close + 1;
        for (i = 0; i < FIELDS_BEFORE_START; i++) {
                p += strspn(p, " ");
                p += strcspn(p, " ");
        }
        p += strspn(p, " ");
        if (*p < '0' || *p > '9')
                return -EBADMSG;
        errno = 0;
        ticks = strtoull(p, &end, 10);
        if (errno || (*end && *end != ' '))
                return -EBADMSG;

        length = (size_t)(close - open - 1);
        if (length > 15)
                length = 15;
        memcpy(ret_comm, open + 1, length);
        ret_comm[length] = '\0';
        *ret_ticks = ticks;
        return 0;
}

int process_start_ticks(pid_t pid, uint64_t *ret_ticks)
{
        _cleanup_close_ int fd = -1;
        char path[32], text[1024], comm[16];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? -ESRCH : -errno;
        n = read(fd, text, sizeof(text) - 1);
        if (n < 0)
                return -errno;
        text[n] = '\0';
        return process_parse_stat(text, comm, ret_ticks);
}

bool process_has_ended(pid_t pid)
{
        return kill(pid, 0) < 0 && errno == ESRCH;
}
