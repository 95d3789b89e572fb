/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

/* Start a thread that takes no signals: they are all for the main thread. 0; -EAGAIN. */
int thread_start(pthread_t *ret_thread, void *run(void *data), void *data);
