/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What /proc says of a process. */
#include <stdint.h>
#include <sys/types.h>

#include "util/launch_record.h"
#include "util/proc_stat.h"

/*
 * Fill everything but process_key, which becomes 0. exe and cgroup are allocated ("" when
 * unknown); free with process_info_done(). 0; -ESRCH when there is no such
 * process; -errno. On failure *ret_info is untouched.
 */
int process_info_read(pid_t pid, struct process_info *ret_info);

/* Frees exe and cgroup of what process_info_read() filled and makes them NULL. */
void process_info_done(struct process_info *info);
