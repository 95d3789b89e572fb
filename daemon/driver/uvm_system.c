/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/uvm_system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "util/macro.h"
#include "util/time.h"

#define UVM_DEVICE "/dev/nvidia-uvm"

/* Fields of /proc/PID/stat after the name, which may hold anything: 3 is the first. */
#define STAT_START_TICKS 22

static int system_open(const char *path, int flags)
{
        return open(path, flags);
}

static int system_ioctl(int fd, unsigned long request, void *argument)
{
        return ioctl(fd, request, argument);
}

static int system_pidfd_open(pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int system_pidfd_getfd(int pidfd, int fd)
{
        return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

static int system_pidfd_alive(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) == 0;
}

static int system_start_ticks(pid_t pid, uint64_t *ret_ticks)
{
        _cleanup_fclose_ FILE *f = NULL;
        char path[40], text[1024], *at;
        size_t size;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        f = fopen(path, "re");
        if (!f)
                return -errno;
        size = fread(text, 1, sizeof(text) - 1, f);
        text[size] = '\0';
        at = strrchr(text, ')');
        for (int field = 3; at && field <= STAT_START_TICKS; field++)
                at = strchr(at + 1, ' ');
        if (!at)
                return -EBADMSG;
        *ret_ticks = strtoull(at + 1, NULL, 10);
        return 0;
}

static int ascending(const void *a, const void *b)
{
        return *(const int *)a - *(const int *)b;
}

static bool find_device(dev_t *ret_device)
{
        struct stat st;

        if (stat(UVM_DEVICE, &st) < 0 || !S_ISCHR(st.st_mode))
                return false;
        *ret_device = st.st_rdev;
        return true;
}

/* The file is another's: whoever serves it is not asked, it might never answer. */
static bool shows_device(int directory, const char *name, dev_t device)
{
        struct statx st;

        return statx(directory, name, AT_STATX_DONT_SYNC, STATX_TYPE, &st) == 0 &&
               S_ISCHR(st.stx_mode) && makedev(st.stx_rdev_major, st.stx_rdev_minor) == device;
}

/* By device number: in a container or a chroot the device may have another name. */
static int system_list_fds(pid_t pid, int *ret_fds, size_t max)
{
        struct dirent *e;
        char path[40];
        dev_t device;
        size_t n = 0;
        DIR *d;

        if (!find_device(&device))
                return 0;
        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        d = opendir(path);
        if (!d)
                return -errno;
        while (n < max && (e = readdir(d)))
                if (e->d_name[0] != '.' && shows_device(dirfd(d), e->d_name, device))
                        ret_fds[n++] = atoi(e->d_name);
        closedir(d);
        qsort(ret_fds, n, sizeof(ret_fds[0]), ascending);
        return (int)n;
}

static int system_is_uvm(int fd)
{
        struct stat st;
        dev_t device;

        return find_device(&device) && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
               st.st_rdev == device;
}

const struct uvm_system uvm_system_default = {
        .open = system_open,
        .close = close,
        .ioctl = system_ioctl,
        .pidfd_open = system_pidfd_open,
        .pidfd_getfd = system_pidfd_getfd,
        .pidfd_alive = system_pidfd_alive,
        .start_ticks = system_start_ticks,
        .list_fds = system_list_fds,
        .is_uvm = system_is_uvm,
        .monotonic_ns = now_ns,
};
