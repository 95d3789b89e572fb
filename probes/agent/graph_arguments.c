/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "arguments.h"
#include "graph_arguments.h"
#include "handles.h"

#define NODES_MAX   65536u
#define KERNEL_NODE 0 /* CUgraphNodeType */
#define CHILD_GRAPH 4
#define CONDITIONAL 13
#define TABLE_TRIES 4

/* CUDA_KERNEL_NODE_PARAMS_v2 */
struct kernel_node {
        cuda_handle function;
        unsigned grid[3], block[3], shared_bytes;
        void **parameters, **extra;
        cuda_handle kernel, context;
        uint8_t room[64]; /* for what later drivers add */
};

static struct {
        pthread_mutex_t lock;
        struct {
                cuda_handle exec; /* NULL: free */
                struct graph_arguments arguments;
        } list[GRAPHS_MAX];
        unsigned next;
} graphs = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- looking ---- */

static bool read_kernel(cuda_handle node, struct argument_found *found)
{
        struct kernel_node p = {0};
        cuda_handle f;

        if (arguments_api()->graph_kernel_get_params(node, &p) != CUDA_OK)
                return false;
        /* Of a node made with a CUkernel the driver may name a function nobody was given. */
        f = handles_find(p.function).kind != HANDLE_UNKNOWN ? p.function : p.kernel;
        return arguments_read(f, p.parameters, p.extra, found);
}

static void read_node(cuda_handle node, struct argument_found *found)
{
        int type = -1;

        if (arguments_api()->graph_node_get_type(node, &type) != CUDA_OK)
                found->cut = true;
        else if (type == KERNEL_NODE)
                found->cut = !read_kernel(node, found) || found->cut;
        else if (type == CHILD_GRAPH || type == CONDITIONAL)
                found->cut = true; /* graphs of their own */
}

/* The nodes, to be freed; NULL: there are none, or they are not to be had. */
static cuda_handle *list_nodes(cuda_handle graph, size_t *ret_count)
{
        const struct cuda_api *api = arguments_api();
        cuda_handle *nodes;
        size_t n = 0;

        if (api->graph_get_nodes(graph, NULL, &n) != CUDA_OK || n == 0 || n > NODES_MAX)
                return NULL;
        nodes = calloc(n, sizeof(*nodes));
        if (nodes && api->graph_get_nodes(graph, nodes, &n) != CUDA_OK) {
                free(nodes);
                return NULL;
        }
        *ret_count = n;
        return nodes;
}

static bool read_nodes(const cuda_handle *nodes, size_t n, struct argument_found *found)
{
        for (int i = 0; i < TABLE_TRIES; i++) {
                if (!arguments_walk_begin(found))
                        continue;
                for (size_t k = 0; k < n; k++) {
                        found->words = 0; /* of each node as many as of a launch */
                        read_node(nodes[k], found);
                }
                if (arguments_walk_end(found))
                        return true;
        }
        return false;
}

static bool read_graph(cuda_handle graph, struct graph_arguments *ret_arguments)
{
        const struct cuda_api *api = arguments_api();
        struct argument_found found;
        cuda_handle *nodes;
        bool known;
        size_t n;

        if (!api->graph_get_nodes || !api->graph_node_get_type || !api->graph_kernel_get_params)
                return false;
        nodes = list_nodes(graph, &n);
        if (!nodes)
                return false;
        known = read_nodes(nodes, n, &found);
        free(nodes);
        if (!known)
                return false;
        ret_arguments->count = found.count;
        ret_arguments->cut = found.cut;
        for (unsigned i = 0; i < found.count; i++)
                ret_arguments->addresses[i] = found.list[i].address;
        return true;
}

/* ---- remembering ---- */

static void forget(cuda_handle exec)
{
        for (unsigned i = 0; i < GRAPHS_MAX; i++)
                if (graphs.list[i].exec == exec)
                        graphs.list[i].exec = NULL;
}

void graph_arguments_forget(cuda_handle exec)
{
        pthread_mutex_lock(&graphs.lock);
        forget(exec);
        pthread_mutex_unlock(&graphs.lock);
}

void graph_arguments_made(cuda_handle exec, cuda_handle graph)
{
        struct graph_arguments a;
        int saved_errno = errno;
        bool known = exec && arguments_wanted() && read_graph(graph, &a);

        pthread_mutex_lock(&graphs.lock);
        forget(exec);
        if (known) {
                graphs.list[graphs.next % GRAPHS_MAX].exec = exec;
                graphs.list[graphs.next++ % GRAPHS_MAX].arguments = a;
        }
        pthread_mutex_unlock(&graphs.lock);
        errno = saved_errno;
}

bool graph_arguments_find(cuda_handle exec, struct graph_arguments *ret_arguments)
{
        bool found = false;

        pthread_mutex_lock(&graphs.lock);
        for (unsigned i = 0; i < GRAPHS_MAX && !found; i++) {
                found = graphs.list[i].exec == exec;
                if (found)
                        *ret_arguments = graphs.list[i].arguments;
        }
        pthread_mutex_unlock(&graphs.lock);
        return found;
}
