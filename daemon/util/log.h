/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Logging for the managers, the API and main: to the journal with structured
 * fields when stderr is the journal, else one line on stderr. Levels are
 * syslog's. Library code returns errors and logs at debug at most.
 */
#include <sys/types.h>
#include <syslog.h>

#include "util/macro.h"

/* Messages above this level are dropped; default LOG_INFO. */
void log_set_level(int level);
int log_level(void);

/*
 * The process will be gone before the journal has looked whose its messages are: they go through
 * the stream that the journal knows the unit of, without PID fields.
 */
void log_set_brief(void);

/* pid: the observed process the message is about (field GPUOBS_PID), 0 for none. */
void log_pid(int level, pid_t pid, const char *format, ...) _printf_(3, 4);

#define log_error(...)   log_pid(LOG_ERR, 0, __VA_ARGS__)
#define log_warning(...) log_pid(LOG_WARNING, 0, __VA_ARGS__)
#define log_notice(...)  log_pid(LOG_NOTICE, 0, __VA_ARGS__)
#define log_info(...)    log_pid(LOG_INFO, 0, __VA_ARGS__)
#define log_debug(...)   log_pid(LOG_DEBUG, 0, __VA_ARGS__)
