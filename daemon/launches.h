/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Launches that processes with an agent record by themselves. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct agent_launch_map;
struct gpuobsd;
struct launches;
struct observed;

/* Launches taken from one process in one go, at most: the whole map. */
#define LAUNCHES_MAX 65536

/*
 * Give a process a launch map, o->launches, if that is allowed and nobody else
 * has probes where they would not be hit any more. 0; -ENOTSUP, -EBUSY, other
 * -errno: the kernel's probes do it. *ret_fd stays the map's.
 */
int launches_new(struct gpuobsd *d, struct observed *o, int *ret_fd);
struct launches *launches_free(struct launches *l);

/* The map it records in, shared with the process; NULL: it does not. */
struct agent_launch_map *launches_map(const struct observed *o);

/* A context of the process came to be, or is about to be forgotten. */
void launches_contexts_changed(struct observed *o);

/* Pass on what returned until then (not after now), at most max. The number. */
size_t launches_take(struct gpuobsd *d, struct observed *o, uint64_t until_ns, size_t max);

/* Once in each turn of the loop: tell the process what was taken, and the ledger what was lost. */
void launches_settle(struct observed *o);

/* The process is over: its last launches, then free. */
void launches_end(struct gpuobsd *d, struct observed *o);

/* The process is to record its launches by itself, and has not begun. */
bool launches_awaited(const struct observed *o);

/* It has begun, and says that a launch that returned at return_ns was before any start probe. */
bool launches_before_probes(const struct observed *o, uint64_t return_ns);
