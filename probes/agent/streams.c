/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Streams as they are made: CUDA fixes a stream's priority then, so that is when a
 * policy can choose it. What cannot be made with the priority chosen is made as the
 * application asked.
 */
#include <string.h>

#include "agent.h"
#include "hooked.h"
#include "launches.h"
#include "pace.h"

static int (*create)(cuda_handle *, unsigned);
static int (*create_with_priority)(cuda_handle *, unsigned, int);

/* False: not made. */
static bool make(cuda_handle *stream, unsigned flags, int *ret_priority)
{
        if (!agent_watching() || !launches_map() || !create_with_priority ||
            !pace_stream_priority(ret_priority))
                return false;
        return create_with_priority(stream, flags, *ret_priority) == CUDA_OK;
}

static int on_create(cuda_handle *stream, unsigned flags)
{
        int chosen = 0;

        if (!make(stream, flags, &chosen))
                return create(stream, flags);
        if (chosen != 0) /* else as it would have been */
                pace_stream_made();
        return CUDA_OK;
}

static int on_create_with_priority(cuda_handle *stream, unsigned flags, int priority)
{
        int chosen = 0;

        if (!make(stream, flags, &chosen))
                return create_with_priority(stream, flags, priority);
        if (chosen != priority)
                pace_stream_made();
        return CUDA_OK;
}

size_t streams_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuStreamCreate", on_create, create),
                HOOK("cuStreamCreateWithPriority", on_create_with_priority, create_with_priority),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
