/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The process's side of the launch map (launch_abi.h): never waits, any number of threads. */
#include <stdbool.h>
#include <string.h>

#include "launch_abi.h"

/* Number of the context with this handle, given one if it is new; AGENT_LAUNCH_NO_CONTEXT. */
static inline unsigned launch_map_context(struct agent_launch_map *m, __u64 handle)
{
        for (unsigned i = 0; handle && i < AGENT_LAUNCH_CONTEXTS; i++) {
                __u64 found = 0;

                if (__atomic_compare_exchange_n(&m->contexts[i].handle, &found, handle, false,
                                                __ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
                    found == handle)
                        return i;
        }
        return AGENT_LAUNCH_NO_CONTEXT;
}

/* Its place among the launches of its context; 0 without a context. */
static inline __u32 launch_map_enter(struct agent_launch_map *m, unsigned context, bool graph)
{
        if (context >= AGENT_LAUNCH_CONTEXTS)
                return 0;
        if (graph)
                __atomic_add_fetch(&m->contexts[context].graphs, 1, __ATOMIC_RELAXED);
        return __atomic_add_fetch(&m->contexts[context].entered, 1, __ATOMIC_RELAXED);
}

/* One of the agent's own: nobody waits for it to start. */
static inline void launch_map_retire(struct agent_launch_map *m, unsigned context)
{
        if (context < AGENT_LAUNCH_CONTEXTS)
                __atomic_add_fetch(&m->contexts[context].retired, 1, __ATOMIC_RELAXED);
}

/* Add a record; false when the ring was full. launch->turn is not looked at. */
static inline bool launch_map_push(struct agent_launch_map *m, unsigned context,
                                   const struct agent_launch *launch)
{
        __u64 head = __atomic_load_n(&m->producer.head, __ATOMIC_RELAXED);
        struct agent_launch *slot;

        do {
                if (head - __atomic_load_n(&m->consumer.tail, __ATOMIC_ACQUIRE) >=
                    AGENT_LAUNCH_ENTRIES) {
                        /* Nobody misses the agent's own. */
                        if (!(launch->type & AGENT_LAUNCH_OWN))
                                __atomic_add_fetch(&m->producer.dropped, 1, __ATOMIC_RELAXED);
                        return false;
                }
        } while (!__atomic_compare_exchange_n(&m->producer.head, &head, head + 1, true,
                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED));
        slot = &m->records[head % AGENT_LAUNCH_ENTRIES];
        memcpy((char *)slot + sizeof(slot->turn), (const char *)launch + sizeof(slot->turn),
               sizeof(*slot) - sizeof(slot->turn));
        __atomic_store_n(&slot->turn,
                         ((head + 1) & AGENT_LAUNCH_TURN_MASK) | (__u64)context
                                                                         << AGENT_LAUNCH_SLOT_SHIFT,
                         __ATOMIC_RELEASE);
        return true;
}
