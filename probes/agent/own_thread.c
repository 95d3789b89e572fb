/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "agent.h"
#include "own_thread.h"

#define STACK_BYTES (1u << 20)

int own_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *))
{
        pthread_attr_t attributes;
        sigset_t all, old;
        int r;

        r = pthread_attr_init(&attributes);
        if (r)
                return -r;
        pthread_attr_setstacksize(&attributes, STACK_BYTES);
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        r = pthread_create(ret_thread, &attributes, run, NULL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        pthread_attr_destroy(&attributes);
        if (r == 0)
                pthread_setname_np(*ret_thread, name);
        return -r;
}

void own_thread_begin(void)
{
        int mode = CUDA_CAPTURE_RELAXED;

        agent_own_thread();
        if (agent_api()->capture_mode)
                agent_api()->capture_mode(&mode);
}
