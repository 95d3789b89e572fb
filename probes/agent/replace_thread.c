/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The agent's own thread for what must not hold up the application: it looks up handles
 * that are new, deals with images that come while programs are replaced, and unloads
 * copies. It is started when there is first something to do.
 *
 * A copy is unloaded when no launch of it can be under way, on the CPU (counted in the
 * table) or the GPU (the contexts were idle). One that may have become part of a graph
 * stays for as long as the process: the graph may be launched at any time.
 */
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "own_thread.h"
#include "replace_internal.h"

#define CONTEXTS_MAX 64

static struct {
        uint32_t wanted; /* something to do; a futex */
        /* With the registry's lock: */
        bool started;
        bool leave; /* when there is nothing to do */
} worker;

/* ---- unloading ---- */

/* Contexts that handles were met in, and the primary ones. */
static unsigned list_contexts(cuda_handle contexts[CONTEXTS_MAX])
{
        struct replace_slot *s;
        unsigned count = 0;
        uint32_t at = 0;

        while ((s = replace_next(&at))) {
                cuda_handle c =
                        (cuda_handle)(uintptr_t)__atomic_load_n(&s->context, __ATOMIC_ACQUIRE);
                unsigned i = 0;

                while (i < count && contexts[i] != c)
                        i++;
                if (c && i == count && count < CONTEXTS_MAX)
                        contexts[count++] = c;
        }
        return count;
}

/* Waits for as long as the application's kernels run; nobody waits for this thread. */
static bool wait_until_idle(const struct image_copy *copy)
{
        const struct cuda_api *api = registry.api;
        cuda_handle contexts[CONTEXTS_MAX], popped;
        unsigned count = 1;

        if (!api->context_synchronize)
                return false;
        contexts[0] = copy->context;
        if (copy->library)
                count = list_contexts(contexts);
        for (unsigned i = 0; i < count; i++) {
                int r;

                if (api->context_push(contexts[i]) != CUDA_OK)
                        continue; /* it is gone, and what ran in it */
                r = api->context_synchronize();
                api->context_pop(&popped);
                if (r != CUDA_OK)
                        return false;
        }
        return count < CONTEXTS_MAX;
}

static void unload(const struct image_copy *copy)
{
        const struct cuda_api *api = registry.api;
        cuda_handle popped;

        if (copy->library) {
                api->library_unload(copy->handle);
        } else if (api->context_push(copy->context) == CUDA_OK) {
                api->module_unload(copy->handle);
                api->context_pop(&popped);
        }
}

/* Taken out of the list while it is waited for, so that no lock is held. */
static struct image_copy *take_retired(void)
{
        struct image_copy **at = &registry.retired, *copy = NULL;

        if (!registry_lock())
                return NULL;
        while (*at && (*at)->kept)
                at = &(*at)->next;
        copy = *at;
        if (copy)
                *at = copy->next;
        registry.unloading = copy ? copy->generation : 0;
        registry_unlock();
        return copy;
}

static void keep(struct image_copy *copy)
{
        copy->kept = true;
        if (!registry_lock())
                return;
        copy->next = registry.retired;
        registry.retired = copy;
        registry_unlock();
}

static void unload_retired(void)
{
        struct image_copy *copy;

        while ((copy = take_retired())) {
                bool idle = replace_wait_for_launches(REPLACE_WAIT_MS) && !replace_graphs_seen() &&
                            wait_until_idle(copy);

                /* One made while it was waited for. */
                if (!idle || replace_graphs_seen()) {
                        keep(copy);
                        continue;
                }
                unload(copy);
                free(copy);
        }
}

/* ---- the thread ---- */

static void do_work(void)
{
        struct replace_plan plan;

        if (!registry_lock())
                return;
        plan = registry.plan;
        if (plan.rewrite)
                replace_resolve_all();
        registry_unlock();
        if (plan.rewrite)
                replace_all(&plan);
        unload_retired();
}

/* From here on another one may be started. */
static bool leaves(void)
{
        bool leave;

        if (!registry_lock())
                return false;
        leave = worker.leave;
        if (leave)
                worker.started = worker.leave = false;
        registry_unlock();
        return leave;
}

static void *run(void *unused)
{
        own_thread_begin();
        for (;;) {
                if (__atomic_exchange_n(&worker.wanted, 0, __ATOMIC_ACQ_REL))
                        do_work();
                else if (leaves())
                        return NULL;
                else
                        syscall(SYS_futex, &worker.wanted, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        }
}

int replace_start_worker(void)
{
        pthread_t thread;
        int r;

        worker.leave = false;
        if (worker.started)
                return 0;
        r = own_thread_start(&thread, "gpuobs-images", run);
        worker.started = r == 0;
        if (worker.started)
                pthread_detach(thread);
        return r;
}

void replace_stop_worker(void)
{
        worker.leave = worker.started;
}

void replace_wake(void)
{
        if (!__atomic_exchange_n(&worker.wanted, 1, __ATOMIC_ACQ_REL))
                syscall(SYS_futex, &worker.wanted, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
