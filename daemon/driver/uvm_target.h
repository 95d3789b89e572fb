/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A process whose managed memory is looked at or moved: its identity, held by a
 * pidfd so that a reused pid cannot take its place, and a duplicate of its UVM
 * file.
 *
 * While the duplicate (or an event tracker made with it) is open, what the
 * process had at the driver stays allocated after its end: close it soon after.
 */
#include <stdint.h>
#include <sys/types.h>

#include "driver/uvm_abi.h"
#include "driver/uvm_system.h"

struct uvm_target {
        const struct uvm_system *system;
        pid_t pid;
        uint64_t start_ticks;
        int pidfd;
        int uvm_fd;
        uint8_t processors[UVM_PROCESSORS_MAX][UVM_UUID_BYTES]; /* by index; all 0: none there */
};

/*
 * Find the process and its UVM file. start_ticks: of the process meant, as in
 * /proc/PID/stat. 0; -ESRCH it has ended, or the pid is another process's by
 * now; -ENODEV it has no managed memory (no UVM file); -EPERM, -EACCES not
 * allowed; other -errno. On success close with uvm_target_close().
 */
int uvm_target_open(const struct uvm_system *system, pid_t pid, uint64_t start_ticks,
                    struct uvm_target *ret_target);
void uvm_target_close(struct uvm_target *t);

/* Give up the duplicate alone; the pidfd stays. */
void uvm_target_close_uvm(struct uvm_target *t);

/* Ask the driver again which GPUs the process uses. 0 or -errno. */
int uvm_target_read_processors(struct uvm_target *t);

/*
 * A call of the driver on a UVM file; status: where the driver puts its own. 0,
 * -errno of the system call, or the driver's status as -errno; *ret_status (may be
 * NULL) is the driver's, 0 when it was not reached.
 */
int uvm_call(const struct uvm_system *system, int fd, unsigned long request,
             union uvm_argument *argument, const uint32_t *status, uint32_t *ret_status);

/* A status of the driver as -errno. */
int uvm_status_to_errno(uint32_t status);
