/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* When a process started: with its pid that names it for good; and whether it is there. */
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* /proc/PID/stat field 22, clock ticks after boot. 0; -ESRCH no such process; -errno. */
int process_start_ticks(pid_t pid, uint64_t *ret_ticks);

/* Nobody has this pid any more. */
bool process_has_ended(pid_t pid);

/*
 * comm and start time out of the text of /proc/PID/stat; comm may hold blanks
 * and parentheses. comm has 16 bytes. -EBADMSG when the text is not of that form.
 */
int process_parse_stat(const char *text, char *ret_comm, uint64_t *ret_ticks);
