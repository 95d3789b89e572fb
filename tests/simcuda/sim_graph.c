/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Graphs. Nodes are kept in the order they were added, which is an order of
 * their dependencies, since a node can only depend on earlier ones; replays go
 * through them in that order. Grid ids and descriptors are given at instantiation
 * and stay.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct sim_node {
        uint32_t magic; /* NODE */
        struct sim_node *next;
        struct sim_graph *graph;
        struct sim_command command;
        void **params; /* into the command's, once they were asked for */
};

struct sim_graph {
        uint32_t magic; /* GRAPH */
        struct sim_node *first, **end;
        size_t count;
        bool invalid; /* something that cannot be captured was done */
        /* While it is captured: */
        struct sim_graph *next_active;
        int mode;
        pthread_t owner;
};

struct sim_exec {
        uint32_t magic; /* EXEC */
        _Atomic uint32_t references;
        struct sim_context *context;
        struct sim_command *commands;
        size_t count;
        struct sim_descriptors descriptors; /* one for each node */
};

static struct sim_graph *graph_new(void)
{
        struct sim_graph *graph = SIM_NEW(struct sim_graph, GRAPH);

        if (graph)
                graph->end = &graph->first;
        return graph;
}

static void graph_free(struct sim_graph *graph)
{
        while (graph->first) {
                struct sim_node *node = graph->first;

                graph->first = node->next;
                sim_command_done(&node->command);
                free(node->params);
                SIM_FREE(node, NODE);
        }
        SIM_FREE(graph, GRAPH);
}

/* A command with inline parameters points into itself: copy that too. */
static CUresult command_copy(struct sim_command *to, const struct sim_command *from)
{
        *to = *from;
        if (from->kind != SIM_COMMAND_KERNEL)
                return CUDA_SUCCESS;
        if (from->kernel.params == from->kernel.inline_params) {
                to->kernel.params = to->kernel.inline_params;
                return CUDA_SUCCESS;
        }
        to->kernel.params = malloc(from->kernel.function->info->param_bytes);
        if (!to->kernel.params)
                return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(to->kernel.params, from->kernel.params, from->kernel.function->info->param_bytes);
        return CUDA_SUCCESS;
}

/* Takes over what the command owns. */
static CUresult add_node(struct sim_graph *graph, struct sim_command *command,
                         struct sim_node **ret_node)
{
        struct sim_node *node = SIM_NEW(struct sim_node, NODE);

        if (!node) {
                sim_command_done(command);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        node->graph = graph;
        node->command = *command;
        if (command->kind == SIM_COMMAND_KERNEL &&
            command->kernel.params == command->kernel.inline_params)
                node->command.kernel.params = node->command.kernel.inline_params;
        *graph->end = node;
        graph->end = &node->next;
        graph->count++;
        *ret_node = node;
        return CUDA_SUCCESS;
}

/* ---- capture ---- */

static struct {
        pthread_mutex_t lock;
        struct sim_graph *active;
        _Atomic unsigned count;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread int thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static void begin_active(struct sim_graph *graph, int mode)
{
        graph->mode = mode;
        graph->owner = pthread_self();
        pthread_mutex_lock(&captures.lock);
        graph->next_active = captures.active;
        captures.active = graph;
        pthread_mutex_unlock(&captures.lock);
        atomic_fetch_add(&captures.count, 1);
}

static void end_active(struct sim_graph *graph)
{
        struct sim_graph **link = &captures.active;

        pthread_mutex_lock(&captures.lock);
        while (*link && *link != graph)
                link = &(*link)->next_active;
        if (*link) {
                *link = graph->next_active;
                atomic_fetch_sub(&captures.count, 1);
        }
        pthread_mutex_unlock(&captures.lock);
}

static bool is_forbidden_by(const struct sim_graph *graph)
{
        if (pthread_equal(graph->owner, pthread_self()))
                return graph->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        return graph->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
               thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult sim_capture_check_unsafe(void)
{
        CUresult r = CUDA_SUCCESS;

        if (!atomic_load(&captures.count) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
                return r;
        pthread_mutex_lock(&captures.lock);
        for (struct sim_graph *g = captures.active; g; g = g->next_active) {
                if (is_forbidden_by(g)) {
                        g->invalid = true;
                        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                }
        }
        pthread_mutex_unlock(&captures.lock);
        return r;
}

void sim_capture_invalidate(struct sim_graph *graph)
{
        graph->invalid = true;
}

CUresult sim_capture_add(struct sim_stream *stream, struct sim_command *command)
{
        if (command->kind == SIM_COMMAND_GRAPH || command->kind == SIM_COMMAND_EVENT ||
            command->kind == SIM_COMMAND_FREE) {
                stream->capture->invalid = true;
                sim_command_done(command);
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
        return add_node(stream->capture, command, &stream->capture_last);
}

CUresult sim_capture_event_record(struct sim_stream *stream, struct sim_event *event)
{
        pthread_mutex_lock(&event->lock);
        event->capture = stream->capture;
        event->capture_last = stream->capture_last;
        pthread_mutex_unlock(&event->lock);
        return CUDA_SUCCESS;
}

/* Waiting for an event of a capture draws the stream into it. */
CUresult sim_capture_event_wait(struct sim_stream *stream, struct sim_event *event)
{
        CUresult r = CUDA_SUCCESS;

        pthread_mutex_lock(&stream->lock);
        if (stream->is_legacy)
                r = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        else if (stream->capture && stream->capture != event->capture)
                r = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        else
                stream->capture = event->capture;
        pthread_mutex_unlock(&stream->lock);
        return r;
}

static CUresult begin_capture(CUstream handle, int mode, bool per_thread)
{
        struct sim_context *context;
        struct sim_stream *stream;
        struct sim_graph *graph;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (mode < CU_STREAM_CAPTURE_MODE_GLOBAL || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
                return CUDA_ERROR_INVALID_VALUE;
        if (stream->is_legacy)
                return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        graph = graph_new();
        if (!graph)
                return CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_lock(&stream->lock);
        if (stream->capture) {
                r = CUDA_ERROR_ILLEGAL_STATE;
        } else {
                stream->capture = graph;
                stream->capture_last = NULL;
                stream->capture_origin = true;
        }
        pthread_mutex_unlock(&stream->lock);
        if (r)
                graph_free(graph);
        else
                begin_active(graph, mode);
        return r;
}

SIM_API cuStreamBeginCapture_v2(CUstream stream, int mode)
{
        SIM_ENTER();
        return begin_capture(stream, mode, false);
}

SIM_API cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
        SIM_ENTER();
        return begin_capture(stream, mode, true);
}

/* Every stream that was drawn into the capture leaves it. */
static void leave_capture(struct sim_context *context, const struct sim_graph *graph)
{
        pthread_mutex_lock(&context->lock);
        for (struct sim_stream *s = context->streams; s; s = s->next) {
                if (s->capture == graph) {
                        s->capture = NULL;
                        s->capture_last = NULL;
                        s->capture_origin = false;
                }
        }
        pthread_mutex_unlock(&context->lock);
}

static CUresult end_capture(CUstream handle, CUgraph *ret_graph, bool per_thread)
{
        struct sim_context *context;
        struct sim_stream *stream;
        struct sim_graph *graph;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        graph = stream->capture;
        if (!graph)
                return CUDA_ERROR_ILLEGAL_STATE;
        if (!stream->capture_origin)
                return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
        if (!ret_graph)
                return CUDA_ERROR_INVALID_VALUE;
        leave_capture(context, graph);
        end_active(graph);
        if (graph->invalid) {
                graph_free(graph);
                *ret_graph = NULL;
                return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        *ret_graph = graph;
        return CUDA_SUCCESS;
}

SIM_API cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
        SIM_ENTER();
        return end_capture(stream, graph, false);
}

SIM_API cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
        SIM_ENTER();
        return end_capture(stream, graph, true);
}

static CUresult is_capturing(CUstream handle, int *status, bool per_thread)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (!status)
                return CUDA_ERROR_INVALID_VALUE;
        *status = !stream->capture           ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                             : CU_STREAM_CAPTURE_STATUS_ACTIVE;
        return CUDA_SUCCESS;
}

SIM_API cuStreamIsCapturing(CUstream stream, int *status)
{
        SIM_ENTER();
        return is_capturing(stream, status, false);
}

SIM_API cuStreamIsCapturing_ptsz(CUstream stream, int *status)
{
        SIM_ENTER();
        return is_capturing(stream, status, true);
}

SIM_API cuThreadExchangeStreamCaptureMode(int *mode)
{
        int previous = thread_mode;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!mode || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL ||
            *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
                return CUDA_ERROR_INVALID_VALUE;
        thread_mode = *mode;
        *mode = previous;
        return CUDA_SUCCESS;
}

/* ---- building ---- */

static CUresult check_graph(const struct sim_graph *graph)
{
        CUresult r = sim_check_ready();

        if (r)
                return r;
        return SIM_IS(graph, GRAPH) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult check_dependencies(const struct sim_graph *graph, const CUgraphNode *dependencies,
                                   size_t count)
{
        CUresult r = check_graph(graph);

        if (r)
                return r;
        if (count && !dependencies)
                return CUDA_ERROR_INVALID_VALUE;
        for (size_t i = 0; i < count; i++) {
                if (!SIM_IS(dependencies[i], NODE) || dependencies[i]->graph != graph)
                        return CUDA_ERROR_INVALID_VALUE;
        }
        return CUDA_SUCCESS;
}

SIM_API cuGraphCreate(CUgraph *graph, unsigned flags)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!graph || flags)
                return CUDA_ERROR_INVALID_VALUE;
        *graph = graph_new();
        return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

SIM_API cuGraphDestroy(CUgraph graph)
{
        CUresult r;

        SIM_ENTER();
        r = check_graph(graph);
        if (!r)
                graph_free(graph);
        return r;
}

static CUresult add_kernel_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
        struct sim_command command;
        CUresult r = check_dependencies(graph, dependencies, count);

        if (r)
                return r;
        if (!node || !params)
                return CUDA_ERROR_INVALID_VALUE;
        r = sim_launch_prepare(params, false, &command);
        return r ? r : add_node(graph, &command, node);
}

SIM_API cuGraphAddKernelNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
        SIM_ENTER();
        return add_kernel_node(node, graph, dependencies, count, params);
}

SIM_API cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                size_t count, const CUDA_KERNEL_NODE_PARAMS *params)
{
        CUDA_KERNEL_NODE_PARAMS copy;

        SIM_ENTER();
        if (!params)
                return CUDA_ERROR_INVALID_VALUE;
        copy = *params;
        if (!copy.func)
                copy.func = (CUfunction)copy.kern;
        return add_kernel_node(node, graph, dependencies, count, &copy);
}

SIM_API cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                             size_t count, const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context)
{
        struct sim_command command = {.kind = SIM_COMMAND_SET};
        struct sim_memory memory;
        uint64_t row;
        CUresult r;

        SIM_ENTER();
        r = check_dependencies(graph, dependencies, count);
        if (r)
                return r;
        if (!node || !params || params->width == 0 || params->height == 0 ||
            (params->elementSize != 1 && params->elementSize != 2 && params->elementSize != 4))
                return CUDA_ERROR_INVALID_VALUE;
        row = params->width * params->elementSize;
        command.set = (struct sim_set_work){
                .dst = params->dst,
                .pitch = params->height == 1 ? row : params->pitch,
                .width = params->width,
                .height = params->height,
                .value = params->value,
                .element = params->elementSize,
                .is_grid = params->height > 1 || row >= SIM_GRIDID_BYTES,
        };
        if (command.set.pitch < row ||
            !sim_memory_find(params->dst, (params->height - 1) * command.set.pitch + row, &memory))
                return CUDA_ERROR_INVALID_VALUE;
        return add_node(graph, &command, node);
}

SIM_API cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                            size_t count)
{
        struct sim_command command = {.kind = SIM_COMMAND_EMPTY};
        CUresult r;

        SIM_ENTER();
        r = check_dependencies(graph, dependencies, count);
        if (!r && !node)
                r = CUDA_ERROR_INVALID_VALUE;
        return r ? r : add_node(graph, &command, node);
}

SIM_API cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
        size_t i = 0;
        CUresult r;

        SIM_ENTER();
        r = check_graph(graph);
        if (r)
                return r;
        if (!count)
                return CUDA_ERROR_INVALID_VALUE;
        if (nodes) {
                for (struct sim_node *n = graph->first; n && i < *count; n = n->next)
                        nodes[i++] = n;
        } else {
                i = graph->count;
        }
        *count = i;
        return CUDA_SUCCESS;
}

SIM_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS *params)
{
        const struct ptx_entry_info *info;
        struct sim_kernel_work *work;
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(node, NODE) || node->command.kind != SIM_COMMAND_KERNEL || !params)
                return CUDA_ERROR_INVALID_VALUE;
        work = &node->command.kernel;
        info = work->function->info;
        if (!node->params)
                node->params = calloc(info->param_count + 1, sizeof(*node->params));
        if (!node->params)
                return CUDA_ERROR_OUT_OF_MEMORY;
        for (unsigned i = 0; i < info->param_count; i++)
                node->params[i] = work->params + info->params[i].offset;
        *params = (CUDA_KERNEL_NODE_PARAMS){.func = (CUfunction)work->function,
                                            .gridDimX = work->launch.grid[0],
                                            .gridDimY = work->launch.grid[1],
                                            .gridDimZ = work->launch.grid[2],
                                            .blockDimX = work->launch.block[0],
                                            .blockDimY = work->launch.block[1],
                                            .blockDimZ = work->launch.block[2],
                                            .sharedMemBytes = work->launch.shared_bytes,
                                            .kernelParams = node->params};
        return CUDA_SUCCESS;
}

SIM_API cuGraphNodeGetType(CUgraphNode node, int *type)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(node, NODE) || !type)
                return CUDA_ERROR_INVALID_VALUE;
        switch (node->command.kind) {
        case SIM_COMMAND_KERNEL:
                *type = CU_GRAPH_NODE_TYPE_KERNEL;
                break;
        case SIM_COMMAND_COPY:
                *type = CU_GRAPH_NODE_TYPE_MEMCPY;
                break;
        case SIM_COMMAND_SET:
                *type = CU_GRAPH_NODE_TYPE_MEMSET;
                break;
        case SIM_COMMAND_HOST:
                *type = CU_GRAPH_NODE_TYPE_HOST;
                break;
        default:
                *type = CU_GRAPH_NODE_TYPE_EMPTY;
                break;
        }
        return CUDA_SUCCESS;
}

/* ---- instantiation and launch ---- */

static void exec_free(struct sim_exec *exec)
{
        for (size_t i = 0; i < exec->count; i++)
                sim_command_done(&exec->commands[i]);
        free(exec->commands);
        sim_descriptors_done(&exec->descriptors);
        SIM_FREE(exec, EXEC);
}

void sim_exec_unref(struct sim_exec *exec)
{
        if (exec && atomic_fetch_sub(&exec->references, 1) == 1)
                exec_free(exec);
}

static bool only_kernels(const struct sim_graph *graph)
{
        for (const struct sim_node *n = graph->first; n; n = n->next)
                if (n->command.kind != SIM_COMMAND_KERNEL)
                        return false;
        return true;
}

static CUresult instantiate(CUgraphExec *ret_exec, CUgraph graph)
{
        struct sim_context *context;
        struct sim_exec *exec;
        CUresult r = check_graph(graph);

        if (!r)
                r = sim_context_current(&context);
        if (r)
                return r;
        if (!ret_exec)
                return CUDA_ERROR_INVALID_VALUE;
        exec = SIM_NEW(struct sim_exec, EXEC);
        if (exec)
                exec->commands = calloc(graph->count ? graph->count : 1, sizeof(*exec->commands));
        if (!exec || !exec->commands) {
                SIM_FREE(exec, EXEC);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        exec->references = 1;
        exec->context = context;
        sim_descriptors_of_nodes(&exec->descriptors, graph->count);
        if (graph->count && only_kernels(graph))
                sim_skip_grid(context);
        for (struct sim_node *n = graph->first; n; n = n->next) {
                r = command_copy(&exec->commands[exec->count], &n->command);
                if (r) {
                        exec_free(exec);
                        return r;
                }
                sim_assign_grid(context, &exec->descriptors, &exec->commands[exec->count++]);
        }
        *ret_exec = exec;
        return CUDA_SUCCESS;
}

SIM_API cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                           size_t log_bytes)
{
        SIM_ENTER();
        return instantiate(exec, graph);
}

SIM_API cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log,
                              size_t log_bytes)
{
        SIM_ENTER();
        return instantiate(exec, graph);
}

SIM_API cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
        SIM_ENTER();
        return instantiate(exec, graph);
}

static CUresult instantiate_with(CUgraphExec *exec, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
        CUresult r;

        if (!params)
                return CUDA_ERROR_INVALID_VALUE;
        r = instantiate(exec, graph);
        params->hErrNode_out = NULL;
        params->result_out = r ? 1 : 0;
        return r;
}

SIM_API cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                     CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
        SIM_ENTER();
        return instantiate_with(exec, graph, params);
}

SIM_API cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
                                          CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
        SIM_ENTER();
        return instantiate_with(exec, graph, params);
}

static CUresult launch_graph(CUgraphExec exec, CUstream handle, bool per_thread)
{
        struct sim_command command = {.kind = SIM_COMMAND_GRAPH, .exec = exec};
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r = sim_stream_resolve(handle, per_thread, &context, &stream);

        if (r)
                return r;
        if (!SIM_IS(exec, EXEC))
                return CUDA_ERROR_INVALID_HANDLE;
        if (exec->context != context)
                return CUDA_ERROR_INVALID_CONTEXT;
        atomic_fetch_add(&exec->references, 1);
        return sim_stream_submit(stream, &command, NULL);
}

SIM_API cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
        SIM_ENTER();
        return launch_graph(exec, stream, false);
}

SIM_API cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
        SIM_ENTER();
        return launch_graph(exec, stream, true);
}

SIM_API cuGraphUpload(CUgraphExec exec, CUstream handle)
{
        struct sim_context *context;
        struct sim_stream *stream;
        CUresult r;

        SIM_ENTER();
        r = sim_stream_resolve(handle, false, &context, &stream);
        if (!r && !SIM_IS(exec, EXEC))
                r = CUDA_ERROR_INVALID_HANDLE;
        return r;
}

SIM_API cuGraphExecDestroy(CUgraphExec exec)
{
        CUresult r;

        SIM_ENTER();
        r = sim_check_ready();
        if (r)
                return r;
        if (!SIM_IS(exec, EXEC))
                return CUDA_ERROR_INVALID_HANDLE;
        exec->magic = 0;
        sim_exec_unref(exec);
        return CUDA_SUCCESS;
}

void sim_exec_run(struct sim_worker *worker, struct sim_context *context, struct sim_exec *exec)
{
        for (size_t i = 0; i < exec->count; i++)
                sim_command_run(worker, context, &exec->commands[i]);
}
