/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/tracepoint.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "util/macro.h"

/* A tracefs that is mounted nowhere; gone when closed. */
static int open_detached_tracefs(void)
{
        _cleanup_close_ int fs = fsopen("tracefs", FSOPEN_CLOEXEC);
        int mount;

        if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        mount = fsmount(fs, FSMOUNT_CLOEXEC, 0);
        return mount < 0 ? -errno : mount;
}

static int read_id(int tracefs, const char *category, const char *name)
{
        _cleanup_close_ int fd = -1;
        char path[256], text[16];
        ssize_t n;

        snprintf(path, sizeof(path), "events/%s/%s/id", category, name);
        fd = openat(tracefs, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return -errno;
        n = read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return n < 0 ? -errno : -EIO;
        text[n] = '\0';
        return (int)strtol(text, NULL, 10);
}

static int find_id(const char *category, const char *name)
{
        static const char *const mounted[] = {"/sys/kernel/tracing", "/sys/kernel/debug/tracing"};
        size_t i;
        int r;

        for (i = 0; i < ARRAY_SIZE(mounted); i++) {
                _cleanup_close_ int fd = open(mounted[i], O_PATH | O_DIRECTORY | O_CLOEXEC);

                r = fd < 0 ? -errno : read_id(fd, category, name);
                if (r > 0)
                        return r;
        }
        {
                _cleanup_close_ int fd = open_detached_tracefs();

                return fd < 0 ? fd : read_id(fd, category, name);
        }
}

int tracepoint_attach(const struct bpf_program *program, const char *category, const char *name,
                      struct bpf_link **ret_link)
{
        struct perf_event_attr attr = {.type = PERF_TYPE_TRACEPOINT, .size = sizeof(attr)};
        struct bpf_link *link;
        int id, fd, r;

        id = find_id(category, name);
        if (id < 0)
                return id;
        attr.config = (uint64_t)id;
        /* One event sees all CPUs: the program is called before the CPU is looked at. */
        fd = (int)syscall(SYS_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);
        if (fd < 0)
                return -errno;
        link = bpf_program__attach_perf_event(program, fd); /* takes fd if it succeeds */
        if (!link) {
                r = -errno;
                close(fd);
                return r;
        }
        *ret_link = link;
        return 0;
}
