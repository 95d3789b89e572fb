/* SPDX-License-Identifier: Apache-2.0 */

/* Where graphs become executable, are made like others, and end (graph_arguments.h). */
#include <string.h>

#include "graph_arguments.h"
#include "hooked.h"

typedef int instantiate_fn(cuda_handle *, cuda_handle, cuda_handle *, char *, size_t);
typedef int instantiate_flags_fn(cuda_handle *, cuda_handle, unsigned long long);
typedef int instantiate_with_fn(cuda_handle *, cuda_handle, void *);
typedef int update_fn(cuda_handle, cuda_handle, cuda_handle *, int *);
typedef int update_v2_fn(cuda_handle, cuda_handle, void *);

static instantiate_fn *instantiate, *instantiate_v2;
static instantiate_flags_fn *instantiate_flags;
static instantiate_with_fn *instantiate_with, *instantiate_with_ptsz;
static update_fn *update;
static update_v2_fn *update_v2;
static int (*destroy)(cuda_handle);

static int made(int result, const cuda_handle *exec, cuda_handle graph)
{
        if (result == CUDA_OK && exec)
                graph_arguments_made(*exec, graph);
        return result;
}

static int on_instantiate(cuda_handle *exec, cuda_handle graph, cuda_handle *error, char *log,
                          size_t log_bytes)
{
        return made(instantiate(exec, graph, error, log, log_bytes), exec, graph);
}

static int on_instantiate_v2(cuda_handle *exec, cuda_handle graph, cuda_handle *error, char *log,
                             size_t log_bytes)
{
        return made(instantiate_v2(exec, graph, error, log, log_bytes), exec, graph);
}

static int on_instantiate_flags(cuda_handle *exec, cuda_handle graph, unsigned long long flags)
{
        return made(instantiate_flags(exec, graph, flags), exec, graph);
}

static int on_instantiate_with(cuda_handle *exec, cuda_handle graph, void *parameters)
{
        return made(instantiate_with(exec, graph, parameters), exec, graph);
}

static int on_instantiate_with_ptsz(cuda_handle *exec, cuda_handle graph, void *parameters)
{
        return made(instantiate_with_ptsz(exec, graph, parameters), exec, graph);
}

/* One that failed may have changed some of the nodes. */
static int updated(int result, cuda_handle exec, cuda_handle graph)
{
        if (result == CUDA_OK)
                graph_arguments_made(exec, graph);
        else
                graph_arguments_forget(exec);
        return result;
}

static int on_update(cuda_handle exec, cuda_handle graph, cuda_handle *error, int *result)
{
        return updated(update(exec, graph, error, result), exec, graph);
}

static int on_update_v2(cuda_handle exec, cuda_handle graph, void *result)
{
        return updated(update_v2(exec, graph, result), exec, graph);
}

/* Before, as the handle may be another's as soon as it is free. */
static int on_destroy(cuda_handle exec)
{
        graph_arguments_forget(exec);
        return destroy(exec);
}

size_t graphs_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuGraphInstantiate", on_instantiate, instantiate),
                HOOK("cuGraphInstantiate_v2", on_instantiate_v2, instantiate_v2),
                HOOK("cuGraphInstantiateWithFlags", on_instantiate_flags, instantiate_flags),
                HOOK("cuGraphInstantiateWithParams", on_instantiate_with, instantiate_with),
                HOOK("cuGraphInstantiateWithParams_ptsz", on_instantiate_with_ptsz,
                     instantiate_with_ptsz),
                HOOK("cuGraphExecUpdate", on_update, update),
                HOOK("cuGraphExecUpdate_v2", on_update_v2, update_v2),
                HOOK("cuGraphExecDestroy", on_destroy, destroy),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
