/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Acting on a channel group (TSG) of another process: its time slice, preemption.
 * Goes through a duplicate of the process's own nvidiactl file, because RM lets a
 * client be used only through the files that know it.
 *
 * CUDA sets a time slice of 2 ms itself, a moment after it makes the group: what
 * is to last is set after that, and again when it has been changed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "driver/rm.h"

/* Longest that a preemption is waited for; RM's own limit. */
#define TSG_PREEMPT_TIMEOUT_MAX_US 1000000

/* A channel group as struct call_group has it, and whose it is. */
struct tsg_target {
        pid_t pid;
        uint64_t start_ticks; /* /proc/PID/stat field 22: that it is still the same process */
        int fd;               /* nvidiactl in the process */
        uint32_t client, object;
        uint64_t slice_us; /* that the process has set last; 0: it was not seen to */
        uint8_t gpu[16];   /* UUID; all zero: not known */
};

/* The system calls of this module; tests put made-up processes in their place. */
struct tsg_system {
        const struct rm_system *rm;
        int (*pidfd_open)(pid_t pid); /* fd, or -1 and errno, as the next one */
        int (*pidfd_getfd)(int pidfd, int fd);
        int (*start_ticks)(pid_t pid, uint64_t *ret_ticks); /* 0 or -errno */
        bool (*is_alive)(int pidfd);
        bool (*is_control)(int fd); /* it is the driver's control device */
        /* The descriptors of it that a process has, at most max; how many there are, or -errno. */
        int (*list_controls)(pid_t pid, int *ret_fds, size_t max);
};

extern const struct tsg_system tsg_system_default;

struct tsg;

/*
 * Find the process, make sure that it is the one meant, and duplicate its file.
 * 0; -ESRCH it has ended, or the pid is another process's by now; -EBADF it has no
 * such descriptor any more; -ENODEV the descriptor is not nvidiactl any more;
 * -EPERM not allowed (CAP_SYS_PTRACE); -ENOMEM; other -errno.
 *
 * While it is open the process's RM client lives on, even after the process: use
 * it and close it.
 */
int tsg_open(const struct tsg_system *system, const struct tsg_target *target,
             struct tsg **ret_tsg);
struct tsg *tsg_close(struct tsg *t);

/*
 * The same by whatever file of the process knows the group, when the descriptor is closed or
 * another by now: a client lives as long as its file, which may have other numbers. -ENOENT, or
 * what tsg_open() says: the group is in none of them.
 */
int tsg_open_any(const struct tsg_system *system, const struct tsg_target *target,
                 struct tsg **ret_tsg);

/* The duplicate; it stays the tsg's. */
int tsg_fd(const struct tsg *t);

/*
 * All of these: 0; -ENOENT the group or its client is gone; -EACCES RM refused;
 * -ENOTSUP not on this GPU; -EINVAL; -EBUSY; -ENODEV the GPU is lost; -EIO anything
 * else that RM says.
 */

/* Time slice in us. */
int tsg_get_timeslice(struct tsg *t, uint64_t *ret_us);

/*
 * Set it and read it back; takes effect at once, RM may take the group off the GPU
 * for it. us 0 is -EINVAL. *ret_us: what RM says it is now, which is what was asked
 * for although the hardware rounds down. -EPROTO: it
 * says something else.
 */
int tsg_set_timeslice(struct tsg *t, uint64_t us, uint64_t *ret_us);

/*
 * Take the group off the GPU now; it comes back in its turn. timeout_us 0: do not
 * wait until it is off. -ETIMEDOUT it was not within timeout_us (at most
 * TSG_PREEMPT_TIMEOUT_MAX_US, else -EINVAL).
 */
int tsg_preempt(struct tsg *t, uint32_t timeout_us);

/* The hardware's number of the group. */
int tsg_get_id(struct tsg *t, uint32_t *ret_id);

/*
 * The UUID of the GPU it is on. -ENODATA: the group is there, but the process has no object (any
 * more) by which the driver would tell.
 */
int tsg_get_gpu(struct tsg *t, uint8_t ret_uuid[16]);
