/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The agent in a process that started without it (attach_abi.h). A thread of the
 * application has been borrowed to load this library and to call gpuobs_attach(); it
 * is to be given back at once, so all that happens there is that a thread is made.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent.h"
#include "attach.h"
#include "own_thread.h"

#define PATCH_WAIT_MS 30000

int gpuobs_attach(int what);

__attribute__((visibility("default"))) struct attach_block gpuobs_attach_block = {
        .version = ATTACH_ABI_VERSION};

static uint32_t state(void)
{
        return __atomic_load_n(&gpuobs_attach_block.state, __ATOMIC_ACQUIRE);
}

void attach_set_state(enum attach_state to)
{
        __atomic_store_n(&gpuobs_attach_block.state, to, __ATOMIC_RELEASE);
}

void attach_fail(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        vsnprintf(gpuobs_attach_block.reason, sizeof(gpuobs_attach_block.reason), format, args);
        va_end(args);
        attach_set_state(ATTACH_FAILED);
}

void attach_add_patch(const struct hook *h, const struct hook_plan *plan)
{
        struct attach_block *b = &gpuobs_attach_block;
        struct attach_patch *p;

        if (b->patch_count >= ATTACH_PATCHES)
                return;
        p = &b->patches[b->patch_count++];
        p->address = (uintptr_t)h->target + plan->first_bytes;
        p->moved = (uint8_t)plan->displaced_bytes;
        memcpy(p->original, plan->expected, ATTACH_PATCH_BYTES);
        memcpy(p->jump, plan->patch, ATTACH_PATCH_BYTES);
}

/* gpuobsctl sets the state from outside: there is nothing to be woken by. */
static bool wait_for_patches(void)
{
        struct timespec nap = {.tv_nsec = 1000000};

        for (int ms = 0; ms < PATCH_WAIT_MS; ms++) {
                if (state() == ATTACH_PATCHED)
                        return true;
                nanosleep(&nap, NULL);
        }
        return false;
}

static void begin(void)
{
        if (!agent_late_prepare(gpuobs_attach_block.socket))
                return;
        attach_set_state(ATTACH_PLANNED);
        if (wait_for_patches())
                agent_late_start(&gpuobs_attach_block.initialised);
        else
                attach_fail("the hooks were not written in time");
}

static void *run_begin(void *unused)
{
        agent_own_thread();
        begin();
        return NULL;
}

static void *run_end(void *unused)
{
        own_thread_begin();
        agent_late_end();
        return NULL;
}

/* Nobody waits for its end. */
static int start_thread(void *(*run)(void *))
{
        pthread_t thread;
        int r = own_thread_start(&thread, "gpuobs-attach", run);

        if (r == 0)
                pthread_detach(thread);
        return -r;
}

__attribute__((visibility("default"))) int gpuobs_attach(int what)
{
        uint32_t before = state();
        int r;

        if (!what)
                return 0; /* asked only so that the library is there */

        if (what == ATTACH_BEGIN &&
            (before == ATTACH_NONE || before == ATTACH_DETACHED || before == ATTACH_FAILED)) {
                attach_set_state(ATTACH_STARTING);
                r = start_thread(run_begin);
        } else if (what == ATTACH_END && before == ATTACH_READY) {
                attach_set_state(ATTACH_LEAVING);
                r = start_thread(run_end);
        } else {
                return EBUSY;
        }
        if (r)
                attach_set_state(before);
        return r;
}
