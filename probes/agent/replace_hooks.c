/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What runs around the driver's functions that describe and take away the handles launches
 * are made of, and those that put kernels into graphs. None of it is the launch
 * path, and all of it calls the original.
 *
 * An attribute that the application sets has to be set for what runs instead, too. A
 * graph that is made while kernels are replaced may keep a copy's functions.
 */
#include <string.h>

#include "agent.h"
#include "graph_arguments.h"
#include "hooked.h"
#include "replace_internal.h"

#define NODE_KERNEL 0 /* CUgraphNodeType */

/* CUDA_KERNEL_NODE_PARAMS in its second form, of which the first is the head. */
struct kernel_node {
        cuda_handle function;
        unsigned grid[3], block[3], shared_bytes;
        void **parameters, **extra;
};
struct kernel_node_2 {
        struct kernel_node head;
        cuda_handle kernel, context;
};

/* CUgraphNodeParams as far as it matters. */
struct node {
        int type, reserved[3];
        union {
                struct kernel_node_2 kernel;
                uint8_t room[232];
        };
        long long reserved2;
};
_Static_assert(sizeof(struct node) == 256, "CUgraphNodeParams");

static int (*module_unload)(cuda_handle);
static int (*library_unload)(cuda_handle);
static int (*context_destroy)(cuda_handle);
static int (*context_destroy_v2)(cuda_handle);
static int (*function_set_attribute)(cuda_handle, int, int);
static int (*function_set_cache)(cuda_handle, int);
static int (*kernel_set_attribute)(int, int, cuda_handle, int);
static int (*kernel_set_cache)(cuda_handle, int, int);

/* The driver may call one of its exported functions from another. */
static __thread bool inside;

/* ---- handles ---- */

/* It may be the address of another one that is gone. */
void replace_given(cuda_handle handle, bool is_kernel)
{
        struct replace_slot *s;
        uint32_t gone = REPLACE_GONE;

        if (!agent_watching())
                return;
        s = replace_note(handle, is_kernel ? REPLACE_KERNEL : REPLACE_FUNCTION,
                         cuda_current_context(agent_api()));
        if (!s)
                return;
        __atomic_compare_exchange_n(&s->state, &gone, REPLACE_NEW, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
        /* Now, so that its first launch already is what it will be taken for. */
        if (__atomic_load_n(&replace_active, __ATOMIC_ACQUIRE)) {
                agent_aside();
                replace_resolve_known(s);
                agent_back();
        }
}

static int on_module_unload(cuda_handle module)
{
        if (agent_watching())
                replace_unloaded(module);
        return module_unload(module);
}

static int on_library_unload(cuda_handle library)
{
        if (agent_watching())
                replace_unloaded(library);
        return library_unload(library);
}

static int on_context_destroy(cuda_handle context)
{
        if (agent_watching())
                replace_context_gone(context);
        return context_destroy(context);
}

static int on_context_destroy_v2(cuda_handle context)
{
        if (agent_watching())
                replace_context_gone(context);
        return context_destroy_v2(context);
}

/* ---- attributes ---- */

/*
 * Was an attribute set of a function that another runs instead of? Then that one,
 * use->function, is counted as in a launch, so that it stays loaded until replace_end().
 */
static bool runs_other(int result, struct replace_use *use, cuda_handle function)
{
        if (result != CUDA_OK || !agent_watching())
                return false;
        replace_begin(use, function);
        if (use->function != function)
                return true;
        replace_end(use);
        return false;
}

static int on_function_set_attribute(cuda_handle function, int attribute, int value)
{
        int r = function_set_attribute(function, attribute, value);
        struct replace_use use;

        if (runs_other(r, &use, function)) {
                function_set_attribute(use.function, attribute, value);
                replace_end(&use);
        }
        return r;
}

static int on_function_set_cache(cuda_handle function, int config)
{
        int r = function_set_cache(function, config);
        struct replace_use use;

        if (runs_other(r, &use, function)) {
                function_set_cache(use.function, config);
                replace_end(&use);
        }
        return r;
}

static int on_kernel_set_attribute(int attribute, int value, cuda_handle kernel, int device)
{
        int r = kernel_set_attribute(attribute, value, kernel, device);
        struct replace_use use;

        if (runs_other(r, &use, kernel)) {
                kernel_set_attribute(attribute, value, use.function, device);
                replace_end(&use);
        }
        return r;
}

static int on_kernel_set_cache(cuda_handle kernel, int config, int device)
{
        int r = kernel_set_cache(kernel, config, device);
        struct replace_use use;

        if (runs_other(r, &use, kernel)) {
                kernel_set_cache(use.function, config, device);
                replace_end(&use);
        }
        return r;
}

/* ---- graphs ---- */

static bool may_replace(void)
{
        if (inside || !agent_watching())
                return false;
        replace_graph_seen();
        return true;
}

/* The original function is taken when the driver does not want the other. */
#define NODE_CALL(params, member, call)                                                            \
        do {                                                                                       \
                struct replace_use use;                                                            \
                cuda_handle named = (member);                                                      \
                                                                                                   \
                inside = true;                                                                     \
                replace_begin(&use, named);                                                        \
                do {                                                                               \
                        (member) = use.function;                                                   \
                        r = (call);                                                                \
                } while (replace_again(&use, named, r));                                           \
                replace_end(&use);                                                                 \
                inside = false;                                                                    \
        } while (0)

typedef int add_kernel_fn(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                          size_t count, const void *params);
typedef int set_kernel_fn(cuda_handle node, const void *params);
typedef int set_exec_kernel_fn(cuda_handle exec, cuda_handle node, const void *params);
typedef int add_node_fn(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                        size_t count, struct node *params);
typedef int add_node_v2_fn(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                           const void *edges, size_t count, struct node *params);
typedef int set_node_fn(cuda_handle node, struct node *params);
typedef int set_exec_node_fn(cuda_handle exec, cuda_handle node, struct node *params);

static add_kernel_fn *add_kernel, *add_kernel_v2;
static set_kernel_fn *set_kernel, *set_kernel_v2;
static set_exec_kernel_fn *set_exec_kernel, *set_exec_kernel_v2;
static add_node_fn *add_node;
static add_node_v2_fn *add_node_v2;
static set_node_fn *set_node;
static set_exec_node_fn *set_exec_node;

static int on_add_kernel(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                         size_t count, const void *params)
{
        struct kernel_node p;
        int r;

        if (!params || !may_replace())
                return add_kernel(node, graph, dependencies, count, params);
        memcpy(&p, params, sizeof(p));
        NODE_CALL(p, p.function, add_kernel(node, graph, dependencies, count, &p));
        return r;
}

/* Either of the two names the kernel. */
static cuda_handle *named_by(struct kernel_node_2 *p)
{
        return p->head.function ? &p->head.function : &p->kernel;
}

static int on_add_kernel_v2(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                            size_t count, const void *params)
{
        struct kernel_node_2 p;
        int r;

        if (!params || !may_replace())
                return add_kernel_v2(node, graph, dependencies, count, params);
        memcpy(&p, params, sizeof(p));
        NODE_CALL(p, *named_by(&p), add_kernel_v2(node, graph, dependencies, count, &p));
        return r;
}

static int on_set_kernel(cuda_handle node, const void *params)
{
        struct kernel_node p;
        int r;

        if (!params || !may_replace())
                return set_kernel(node, params);
        memcpy(&p, params, sizeof(p));
        NODE_CALL(p, p.function, set_kernel(node, &p));
        return r;
}

static int on_set_kernel_v2(cuda_handle node, const void *params)
{
        struct kernel_node_2 p;
        int r;

        if (!params || !may_replace())
                return set_kernel_v2(node, params);
        memcpy(&p, params, sizeof(p));
        NODE_CALL(p, *named_by(&p), set_kernel_v2(node, &p));
        return r;
}

static int on_set_exec_kernel(cuda_handle exec, cuda_handle node, const void *params)
{
        struct kernel_node p;
        int r;

        graph_arguments_forget(exec);
        if (!params || !may_replace())
                return set_exec_kernel(exec, node, params);
        memcpy(&p, params, sizeof(p));
        NODE_CALL(p, p.function, set_exec_kernel(exec, node, &p));
        return r;
}

static int on_set_exec_kernel_v2(cuda_handle exec, cuda_handle node, const void *params)
{
        struct kernel_node_2 p;
        int r;

        graph_arguments_forget(exec);
        if (!params || !may_replace())
                return set_exec_kernel_v2(exec, node, params);
        memcpy(&p, params, sizeof(p));
        NODE_CALL(p, *named_by(&p), set_exec_kernel_v2(exec, node, &p));
        return r;
}

/* The application's own parameters: what the call writes into them is for it. */
static int on_add_node(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                       size_t count, struct node *params)
{
        struct node p;
        int r;

        if (!params || params->type != NODE_KERNEL || !may_replace())
                return add_node(node, graph, dependencies, count, params);
        p = *params;
        NODE_CALL(p, *named_by(&p.kernel), add_node(node, graph, dependencies, count, &p));
        return r;
}

static int on_add_node_v2(cuda_handle *node, cuda_handle graph, const cuda_handle *dependencies,
                          const void *edges, size_t count, struct node *params)
{
        struct node p;
        int r;

        if (!params || params->type != NODE_KERNEL || !may_replace())
                return add_node_v2(node, graph, dependencies, edges, count, params);
        p = *params;
        NODE_CALL(p, *named_by(&p.kernel),
                  add_node_v2(node, graph, dependencies, edges, count, &p));
        return r;
}

static int on_set_node(cuda_handle node, struct node *params)
{
        struct node p;
        int r;

        if (!params || params->type != NODE_KERNEL || !may_replace())
                return set_node(node, params);
        p = *params;
        NODE_CALL(p, *named_by(&p.kernel), set_node(node, &p));
        return r;
}

static int on_set_exec_node(cuda_handle exec, cuda_handle node, struct node *params)
{
        struct node p;
        int r;

        graph_arguments_forget(exec);
        if (!params || params->type != NODE_KERNEL || !may_replace())
                return set_exec_node(exec, node, params);
        p = *params;
        NODE_CALL(p, *named_by(&p.kernel), set_exec_node(exec, node, &p));
        return r;
}

/* Launches into a capture become nodes; one may have begun before the hooks were there. */
typedef int begin_capture_fn(cuda_handle stream, int mode);
typedef int begin_capture_to_fn(cuda_handle stream, cuda_handle graph,
                                const cuda_handle *dependencies, const void *edges, size_t count,
                                int mode);
typedef int end_capture_fn(cuda_handle stream, cuda_handle *graph);

static begin_capture_fn *begin_capture, *begin_capture_ptsz;
static begin_capture_to_fn *begin_capture_to, *begin_capture_to_ptsz;
static end_capture_fn *end_capture, *end_capture_ptsz;

static int on_begin_capture(cuda_handle stream, int mode)
{
        replace_graph_seen();
        return begin_capture(stream, mode);
}

static int on_begin_capture_ptsz(cuda_handle stream, int mode)
{
        replace_graph_seen();
        return begin_capture_ptsz(stream, mode);
}

static int on_begin_capture_to(cuda_handle stream, cuda_handle graph,
                               const cuda_handle *dependencies, const void *edges, size_t count,
                               int mode)
{
        replace_graph_seen();
        return begin_capture_to(stream, graph, dependencies, edges, count, mode);
}

static int on_begin_capture_to_ptsz(cuda_handle stream, cuda_handle graph,
                                    const cuda_handle *dependencies, const void *edges,
                                    size_t count, int mode)
{
        replace_graph_seen();
        return begin_capture_to_ptsz(stream, graph, dependencies, edges, count, mode);
}

static int on_end_capture(cuda_handle stream, cuda_handle *graph)
{
        replace_graph_seen();
        return end_capture(stream, graph);
}

static int on_end_capture_ptsz(cuda_handle stream, cuda_handle *graph)
{
        replace_graph_seen();
        return end_capture_ptsz(stream, graph);
}

size_t replace_hooks(struct hook *hooks)
{
        const struct hook all[] = {
                HOOK("cuModuleUnload", on_module_unload, module_unload),
                HOOK("cuLibraryUnload", on_library_unload, library_unload),
                HOOK("cuCtxDestroy_v2", on_context_destroy_v2, context_destroy_v2),
                HOOK("cuCtxDestroy", on_context_destroy, context_destroy),
                HOOK("cuFuncSetAttribute", on_function_set_attribute, function_set_attribute),
                HOOK("cuFuncSetCacheConfig", on_function_set_cache, function_set_cache),
                HOOK("cuKernelSetAttribute", on_kernel_set_attribute, kernel_set_attribute),
                HOOK("cuKernelSetCacheConfig", on_kernel_set_cache, kernel_set_cache),
                HOOK("cuGraphAddKernelNode", on_add_kernel, add_kernel),
                HOOK("cuGraphAddKernelNode_v2", on_add_kernel_v2, add_kernel_v2),
                HOOK("cuGraphKernelNodeSetParams", on_set_kernel, set_kernel),
                HOOK("cuGraphKernelNodeSetParams_v2", on_set_kernel_v2, set_kernel_v2),
                HOOK("cuGraphExecKernelNodeSetParams", on_set_exec_kernel, set_exec_kernel),
                HOOK("cuGraphExecKernelNodeSetParams_v2", on_set_exec_kernel_v2,
                     set_exec_kernel_v2),
                HOOK("cuGraphAddNode", on_add_node, add_node),
                HOOK("cuGraphAddNode_v2", on_add_node_v2, add_node_v2),
                HOOK("cuGraphNodeSetParams", on_set_node, set_node),
                HOOK("cuGraphExecNodeSetParams", on_set_exec_node, set_exec_node),
                HOOK("cuStreamBeginCapture_v2", on_begin_capture, begin_capture),
                HOOK("cuStreamBeginCapture_v2_ptsz", on_begin_capture_ptsz, begin_capture_ptsz),
                HOOK("cuStreamBeginCaptureToGraph", on_begin_capture_to, begin_capture_to),
                HOOK("cuStreamBeginCaptureToGraph_ptsz", on_begin_capture_to_ptsz,
                     begin_capture_to_ptsz),
                HOOK("cuStreamEndCapture", on_end_capture, end_capture),
                HOOK("cuStreamEndCapture_ptsz", on_end_capture_ptsz, end_capture_ptsz),
        };

        memcpy(hooks, all, sizeof(all));
        return sizeof(all) / sizeof(all[0]);
}
