/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What /proc says of a process. */
#include <stdint.h>
#include <sys/types.h>

#include "util/launch_record.h"

/*
 * Fill everything but process_key, which becomes 0. exe and cgroup are allocated ("" when
 * unknown); free with process_info_done(). 0; -ESRCH when there is no such
 * process; -errno. On failure *ret_info is untouched.
 */
int process_info_read(pid_t pid, struct process_info *ret_info);

/* Frees exe and cgroup of what process_info_read() filled and makes them NULL. */
void process_info_done(struct process_info *info);

/* /proc/PID/stat field 22, clock ticks after boot: with the pid it names a process for good. */
int process_start_ticks(pid_t pid, uint64_t *ret_ticks);

/*
 * comm and start time out of the text of /proc/PID/stat; comm may hold blanks
 * and parentheses. comm has 16 bytes. -EBADMSG when the text is not of that form.
 */
int process_parse_stat(const char *text, char *ret_comm, uint64_t *ret_ticks);
