/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/tsg.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "driver/driver_abi.h"
#include "util/macro.h"
#include "util/proc_stat.h"

/* Controls of a channel group (ctrla06c.h). */
#define SET_TIMESLICE DRIVER_CONTROL_SET_TIMESLICE
#define GET_TIMESLICE 0xa06c0104u
#define PREEMPT       0xa06c0105u
#define GET_INFO      0xa06c0106u

#define FILES_MAX 256 /* that are searched for a group */

struct preempt_parameters {
        uint8_t wait, manual_timeout, pad[2];
        uint32_t timeout_us;
};
_Static_assert(sizeof(struct preempt_parameters) == 8, "NVA06C_CTRL_PREEMPT_PARAMS");

struct tsg {
        const struct tsg_system *system;
        int fd;
        uint32_t client, object;
};

/* ---- the system ---- */

static int system_pidfd_open(pid_t pid)
{
        return (int)syscall(SYS_pidfd_open, pid, 0);
}

static int system_pidfd_getfd(int pidfd, int fd)
{
        return (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

/* A pidfd is readable once the process has ended. */
static bool system_is_alive(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) == 0;
}

static bool is_control_device(const struct stat *st)
{
        return S_ISCHR(st->st_mode) &&
               st->st_rdev == makedev(DRIVER_RM_MAJOR, DRIVER_RM_CONTROL_MINOR);
}

static bool system_is_control(int fd)
{
        struct stat st;

        return fstat(fd, &st) == 0 && is_control_device(&st);
}

static int system_list_controls(pid_t pid, int *ret_fds, size_t max)
{
        const struct dirent *e;
        struct stat st;
        char path[40];
        size_t n = 0;
        DIR *d;

        snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
        d = opendir(path);
        if (!d)
                return -errno;
        while ((e = readdir(d))) {
                if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) < 0 ||
                    !is_control_device(&st))
                        continue;
                if (n < max)
                        ret_fds[n] = atoi(e->d_name);
                n++;
        }
        closedir(d);
        return (int)n;
}

const struct tsg_system tsg_system_default = {
        .rm = &rm_system_default,
        .pidfd_open = system_pidfd_open,
        .pidfd_getfd = system_pidfd_getfd,
        .start_ticks = process_start_ticks,
        .is_alive = system_is_alive,
        .is_control = system_is_control,
        .list_controls = system_list_controls,
};

/* ---- life ---- */

/*
 * A pidfd, or -errno. The start time is read by pid after the pidfd was opened: if
 * that process lives, it is its own.
 */
static int open_process(const struct tsg_system *system, const struct tsg_target *target)
{
        int pidfd = system->pidfd_open(target->pid), r;
        uint64_t ticks;

        if (pidfd < 0)
                return errno == EINVAL ? -ESRCH : -errno;
        r = system->start_ticks(target->pid, &ticks);
        if (r == 0 && (ticks != target->start_ticks || !system->is_alive(pidfd)))
                r = -ESRCH;
        if (r == 0)
                return pidfd;
        system->rm->close(pidfd);
        return r;
}

int tsg_open(const struct tsg_system *system, const struct tsg_target *target, struct tsg **ret_tsg)
{
        int pidfd = open_process(system, target), fd, r;
        struct tsg *t;

        if (pidfd < 0)
                return pidfd;
        fd = system->pidfd_getfd(pidfd, target->fd);
        r = fd < 0 ? -errno : 0;
        system->rm->close(pidfd);
        if (r < 0)
                return r;
        t = calloc(1, sizeof(*t));
        if (!t || !system->is_control(fd)) {
                r = t ? -ENODEV : -ENOMEM;
                system->rm->close(fd);
                free(t);
                return r;
        }
        *t = (struct tsg){system, fd, target->client, target->object};
        *ret_tsg = t;
        return 0;
}

struct tsg *tsg_close(struct tsg *t)
{
        if (!t)
                return NULL;
        t->system->rm->close(t->fd);
        free(t);
        return NULL;
}

/* A driver that does not tell is asked by what follows. */
static bool is_known(struct tsg *t)
{
        uint32_t class;

        return rm_handle_info_on(t->system->rm, t->fd, t->client, t->object, RM_INFO_CLASS,
                                 &class) != -ENOENT;
}

/* 0, -ENOENT: not in this file; other -errno as tsg_open(). */
static int open_if_known(const struct tsg_system *system, const struct tsg_target *target, int fd,
                         struct tsg **ret_tsg)
{
        struct tsg_target by = *target;
        struct tsg *t;
        int r;

        by.fd = fd;
        r = tsg_open(system, &by, &t);
        if (r < 0)
                return r;
        if (is_known(t)) {
                *ret_tsg = t;
                return 0;
        }
        tsg_close(t);
        return -ENOENT;
}

int tsg_open_any(const struct tsg_system *system, const struct tsg_target *target,
                 struct tsg **ret_tsg)
{
        int r = open_if_known(system, target, target->fd, ret_tsg), fds[FILES_MAX], n;

        if (r != -ENOENT && r != -EBADF && r != -ENODEV)
                return r;
        n = system->list_controls(target->pid, fds, FILES_MAX);
        for (int i = 0; i < n && i < FILES_MAX; i++)
                if (open_if_known(system, target, fds[i], ret_tsg) == 0)
                        return 0;
        return r;
}

int tsg_fd(const struct tsg *t)
{
        return t->fd;
}

/* ---- controls ---- */

static int control(struct tsg *t, uint32_t command, void *parameters, uint32_t size)
{
        return rm_control_on(t->system->rm, t->fd, t->client, t->object, command, parameters, size);
}

int tsg_get_timeslice(struct tsg *t, uint64_t *ret_us)
{
        uint64_t us = 0;
        int r = control(t, GET_TIMESLICE, &us, sizeof(us));

        if (r == 0)
                *ret_us = us;
        return r;
}

int tsg_set_timeslice(struct tsg *t, uint64_t us, uint64_t *ret_us)
{
        uint64_t now = 0;
        int r = us ? control(t, SET_TIMESLICE, &us, sizeof(us)) : -EINVAL;

        if (r == 0)
                r = tsg_get_timeslice(t, &now);
        if (r < 0)
                return r;
        *ret_us = now;
        return now == us ? 0 : -EPROTO;
}

int tsg_preempt(struct tsg *t, uint32_t timeout_us)
{
        struct preempt_parameters p = {
                .wait = timeout_us > 0,
                .manual_timeout = timeout_us > 0,
                .timeout_us = timeout_us,
        };

        if (timeout_us > TSG_PREEMPT_TIMEOUT_MAX_US)
                return -EINVAL;
        return control(t, PREEMPT, &p, sizeof(p));
}

int tsg_get_id(struct tsg *t, uint32_t *ret_id)
{
        uint32_t id = 0;
        int r = control(t, GET_INFO, &id, sizeof(id));

        if (r == 0)
                *ret_id = id;
        return r;
}

int tsg_get_gpu(struct tsg *t, uint8_t ret_uuid[16])
{
        uint32_t device;
        int r = rm_handle_info_on(t->system->rm, t->fd, t->client, t->object, RM_INFO_PARENT,
                                  &device);

        if (r < 0)
                return r;
        r = rm_uuid_on(t->system->rm, t->fd, t->client, device, ret_uuid);
        return r == -ENOENT || r == -ENODEV ? -ENODATA : r;
}
