/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/process_info.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "util/macro.h"
#include "util/time.h"

/* Read a small file of /proc/PID; NUL-terminated and cut at size - 1. Returns its length. */
static ssize_t read_proc(pid_t pid, const char *name, char *buffer, size_t size)
{
        _cleanup_close_ int fd = -1;
        size_t length = 0;
        char path[64];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? -ESRCH : -errno;
        while (length < size - 1) {
                n = read(fd, buffer + length, size - 1 - length);
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                length += (size_t)n;
        }
        buffer[length] = '\0';
        return (ssize_t)length;
}

static char *read_exe(pid_t pid)
{
        char path[64], target[PATH_MAX];
        ssize_t n;

        snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
        n = readlink(path, target, sizeof(target) - 1);
        target[n < 0 ? 0 : n] = '\0';
        return strdup(target);
}

/* The cgroup v2 path: the line "0::/path". */
static char *read_cgroup(pid_t pid)
{
        char text[PATH_MAX + 1024], *line, *save;

        if (read_proc(pid, "cgroup", text, sizeof(text)) < 0)
                return strdup("");
        for (line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
                if (strncmp(line, "0::", 3) == 0)
                        return strdup(line + 3);
        return strdup("");
}

/* The real user id: the owner of /proc/PID is root when the process may not be dumped. */
static int read_uid(pid_t pid, uint32_t *ret_uid)
{
        char text[4096];
        const char *line;
        ssize_t n = read_proc(pid, "status", text, sizeof(text));

        if (n < 0)
                return (int)n;
        line = strstr(text, "\nUid:");
        if (!line)
                return -EBADMSG;
        *ret_uid = (uint32_t)strtoul(line + strlen("\nUid:"), NULL, 10);
        return 0;
}

int process_info_read(pid_t pid, struct process_info *ret_info)
{
        struct process_info info = {.pid = (uint32_t)pid};
        _cleanup_free_ char *exe = NULL, *cgroup = NULL;
        char text[1024];
        ssize_t n;
        int r;

        n = read_proc(pid, "stat", text, sizeof(text));
        if (n < 0)
                return (int)n;
        r = process_parse_stat(text, info.comm, &info.start_ticks);
        if (r < 0)
                return r;
        r = read_uid(pid, &info.uid);
        if (r < 0)
                return r;
        info.started_realtime_ns = realtime_ns();
        exe = read_exe(pid);
        cgroup = read_cgroup(pid);
        if (!exe || !cgroup)
                return -ENOMEM;
        info.exe = TAKE_PTR(exe);
        info.cgroup = TAKE_PTR(cgroup);
        *ret_info = info;
        return 0;
}

void process_info_done(struct process_info *info)
{
        free((char *)info->exe);
        free((char *)info->cgroup);
        info->exe = info->cgroup = NULL;
}
