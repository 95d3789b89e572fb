/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What launches of processes with an agent were given: managed memory among their
 * arguments, told to policies while the kernel is still on its way
 * (agent/argument_abi.h). Asked for only where a policy wants to know.
 */
#include <stdbool.h>

struct agent_argument_map;
struct agent_launch_wishes;
struct arguments;
struct gpuobsd;
struct observed;

/* Both are of the process's launch map, which outlives the result. NULL on no memory. */
struct arguments *arguments_new(struct agent_launch_wishes *wishes, struct agent_argument_map *map);
struct arguments *arguments_free(struct arguments *a);

/* Managed memory of the process came to be or went. */
void arguments_memory_changed(struct observed *o);

/* The agent says that there is something to read: policies hear of it before this returns. */
void arguments_wake(struct gpuobsd *d, struct observed *o);

/*
 * Once in each turn of the loop, and when the process has ended: what has come, what
 * was lost, and whether the process is to go on looking.
 */
void arguments_turn(struct gpuobsd *d, struct observed *o);
