/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Threads of the agent's own in a foreign process. */
#include <pthread.h>

/*
 * Start one, with all signals blocked: they are the application's. It calls
 * own_thread_begin() first. The caller joins or detaches it. 0 or -errno.
 */
int own_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *));

/* Nothing the thread loads is looked at, nothing it calls disturbs a capture going on. */
void own_thread_begin(void);
