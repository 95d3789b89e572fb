/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the kernels of a graph were given. Their arguments are in the graph when it is
 * instantiated and not seen again, so pointers to managed memory are looked for then,
 * while the daemon wants to know, and remembered for the launches of the executable
 * graph. One that was instantiated before, or whose nodes were changed since, is not
 * known. Any thread; a lock that is held for a look at a short table.
 */
#include <stdbool.h>
#include <stdint.h>

#include "argument_walk.h"
#include "cuda_api.h"

#define GRAPHS_MAX 256u /* known at once; the oldest is forgotten */

struct graph_arguments {
        unsigned count;
        bool cut; /* there are more, or nodes that were not looked at */
        uint64_t addresses[ARGUMENT_FOUND_MAX];
};

/* The graph was instantiated as exec, or exec was made like it. */
void graph_arguments_made(cuda_handle exec, cuda_handle graph);

/* Nodes of exec were changed one by one, or it is about to be destroyed. */
void graph_arguments_forget(cuda_handle exec);

/* Whether it is known. */
bool graph_arguments_find(cuda_handle exec, struct graph_arguments *ret_arguments);
