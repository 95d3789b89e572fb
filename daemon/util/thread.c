/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "util/thread.h"

int thread_start(pthread_t *ret_thread, void *run(void *data), void *data)
{
        sigset_t all, before;
        int r;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(ret_thread, NULL, run, data);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return -r;
}
