/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "argument_walk.h"
#include "arguments.h"
#include "graph_arguments.h"
#include "handles.h"
#include "launches.h"
#include "wire.h"

#define TABLE_TRIES                                                                                \
        4 /* the daemon changes the table when memory comes and goes, not all the time */

#define PARAMETERS_MAX 4096 /* as many words as there may be (ARGUMENT_WORDS_MAX) */

/* Keys of `extra`: pairs of a key and a value, up to the end. */
#define EXTRA_END       ((void *)0)
#define EXTRA_BUFFER    ((void *)1)
#define EXTRA_BYTES     ((void *)2)
#define EXTRA_PAIRS_MAX 8

static struct {
        const struct cuda_api *api;
        struct wire *wire;
        struct agent_launch_wishes *wishes;
        struct agent_argument_map *map;
} arguments;

void arguments_begin(const struct cuda_api *api, struct wire *wire, struct agent_launch_map *map)
{
        arguments.api = api;
        arguments.wire = wire;
        arguments.wishes = &map->wishes;
        arguments.map = &map->arguments;
}

/* Each parameter is where the caller says, as large as the driver says. False: it does not. */
static bool walk_parameters(cuda_handle f, void *const *parameters, struct argument_found *found)
{
        const struct handle_info info = handles_find(f);
        int (*ask)(cuda_handle, size_t, size_t *, size_t *) =
                info.kind == HANDLE_KERNEL ? arguments.api->kernel_param_info
                                           : arguments.api->function_param_info;
        size_t offset, size;
        uint32_t i;
        int r;

        if (!ask || info.kind == HANDLE_UNKNOWN)
                return false;
        for (i = 0; i < info.parameters && !found->cut; i++) {
                offset = size = 0;
                r = i < PARAMETERS_MAX ? ask(f, i, &offset, &size) : CUDA_NOT_SUPPORTED;
                if (r == CUDA_INVALID_VALUE)
                        break; /* it has no more */
                if (r != CUDA_OK)
                        return false;
                if (!parameters[i])
                        return false; /* the driver will not like it either */
                argument_walk_bytes(arguments.map, found, parameters[i], size);
        }
        if (i < info.parameters && !found->cut)
                handles_set_parameters(f, info.kind, i);
        return true;
}

static bool walk_extra(void *const *extra, struct argument_found *found)
{
        const void *buffer = NULL;
        const size_t *size = NULL;

        for (int i = 0; i < EXTRA_PAIRS_MAX && extra[0] != EXTRA_END; i++, extra += 2) {
                if (extra[0] == EXTRA_BUFFER)
                        buffer = extra[1];
                else if (extra[0] == EXTRA_BYTES)
                        size = extra[1];
                else
                        return false;
        }
        if (!buffer || !size)
                return false;
        argument_walk_bytes(arguments.map, found, buffer, *size);
        return true;
}

bool arguments_read(cuda_handle f, void *const *parameters, void *const *extra,
                    struct argument_found *found)
{
        if (parameters)
                return walk_parameters(f, parameters, found);
        return !extra || walk_extra(extra, found);
}

bool arguments_walk_begin(struct argument_found *ret_found)
{
        return argument_walk_begin(arguments.map, ret_found);
}

bool arguments_walk_end(const struct argument_found *found)
{
        return argument_walk_end(arguments.map, found);
}

bool arguments_wanted(void)
{
        return arguments.wishes && launches_map() &&
               __atomic_load_n(&arguments.wishes->arguments, __ATOMIC_RELAXED);
}

const struct cuda_api *arguments_api(void)
{
        return arguments.api;
}

enum walked {
        WALKED,
        WALKED_NOT,  /* where its arguments are is not known */
        NO_MEMORY,   /* there is none to look for */
        TABLE_MOVED, /* what was found is worth nothing */
};

static enum walked walk(cuda_handle f, void *const *parameters, void *const *extra,
                        struct argument_found *found)
{
        if (!argument_walk_begin(arguments.map, found))
                return found->version & 1 ? TABLE_MOVED : NO_MEMORY;
        if (!arguments_read(f, parameters, extra, found))
                return WALKED_NOT;
        return argument_walk_end(arguments.map, found) ? WALKED : TABLE_MOVED;
}

static void write_down(cuda_handle f, const struct argument_found *found, uint64_t at_ns)
{
        int device = 0;
        bool fits;

        if (found->count == 0)
                return;
        (void)arguments.api->context_get_device(&device);
        fits = argument_push(arguments.map, found, at_ns, (uintptr_t)f, (uint32_t)device);
        /* A daemon that was killed reads no more, and has not said that it wants no more. */
        if ((argument_wakes(arguments.map) || !fits) && !wire_wake(arguments.wire))
                __atomic_store_n(&arguments.wishes->arguments, 0, __ATOMIC_RELAXED);
}

void arguments_tell(cuda_handle f, void *const *parameters, void *const *extra, uint64_t at_ns)
{
        enum walked walked = TABLE_MOVED;
        struct argument_found found;
        int saved_errno = errno;

        for (int i = 0; i < TABLE_TRIES && walked == TABLE_MOVED; i++)
                walked = walk(f, parameters, extra, &found);
        if (walked == WALKED)
                write_down(f, &found, at_ns);
        if (walked == WALKED_NOT || walked == TABLE_MOVED || (walked == WALKED && found.cut))
                argument_unread(arguments.map);
        errno = saved_errno;
}

void arguments_tell_graph(cuda_handle exec, uint64_t at_ns)
{
        bool was_read = false, known;
        int saved_errno = errno;
        struct argument_found found;
        struct graph_arguments a;

        known = graph_arguments_find(exec, &a);
        for (int i = 0; known && i < TABLE_TRIES && !was_read; i++) {
                if (!argument_walk_begin(arguments.map, &found))
                        continue;
                argument_walk_bytes(arguments.map, &found, a.addresses,
                                    a.count * sizeof(a.addresses[0]));
                was_read = argument_walk_end(arguments.map, &found);
        }
        if (was_read)
                write_down(exec, &found, at_ns);
        if (!was_read || a.cut)
                argument_unread(arguments.map);
        errno = saved_errno;
}
