/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The system calls of the UVM modules; tests put a made-up driver in their place. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct uvm_system {
        int (*open)(const char *path, int flags); /* fd, or -1 and errno, as all of these */
        int (*close)(int fd);
        int (*ioctl)(int fd, unsigned long request, void *argument);
        int (*pidfd_open)(pid_t pid);
        int (*pidfd_getfd)(int pidfd, int fd);              /* a duplicate, close-on-exec */
        int (*pidfd_alive)(int pidfd);                      /* 1, or 0 when the process has ended */
        int (*start_ticks)(pid_t pid, uint64_t *ret_ticks); /* 0 or -errno */

        /*
         * Numbers of the process's descriptors of the UVM device, whatever its name there,
         * ascending: a hint only, the process may change them at any time. How many, or -errno.
         */
        int (*list_fds)(pid_t pid, int *ret_fds, size_t max);
        int (*is_uvm)(int fd); /* 1 when our duplicate really is the UVM device, else 0 */

        uint64_t (*monotonic_ns)(void);
};

extern const struct uvm_system uvm_system_default;
