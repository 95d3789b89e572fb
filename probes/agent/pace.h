/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The process's side of the limits the daemon sets (agent_pace in launch_abi.h):
 * launches that wait until fewer are in the queue or their time has come, streams
 * with another priority. Nothing here is believed for long: whatever the map says,
 * a launch is held back for AGENT_PACE_WAIT_MAX_NS at most, and none is once the
 * daemon is silent. No lock is held meanwhile.
 */
#include <stdbool.h>
#include <stdint.h>

#include "../device/device_abi.h"
#include "cuda_api.h"
#include "launch_abi.h"

/*
 * Once; before, nothing is limited. ring: the process's start/end
 * map, `entries` of it. All outlive the process's launches. What it can do is told in
 * the map.
 */
void pace_begin(const struct cuda_api *api, struct agent_launch_map *map,
                const struct device_record *ring, uint32_t entries);

/* Whether launches are limited at all: one load. */
static inline bool pace_limits(const struct agent_launch_map *map)
{
        return __builtin_expect(__atomic_load_n(&map->wishes.limits, __ATOMIC_RELAXED) != 0, false);
}

/*
 * A launch into the stream (as cuLaunchKernel() takes it, 2: the thread's own) is about
 * to be called: wait as long as the limits say. Not while the stream is being captured.
 * Leaves errno alone. Any thread, also several at once: they may together launch as
 * many more than the limit as they are.
 */
void pace_hold(uint64_t stream);

/*
 * The priority a stream is to be made with in the current context, when a limit says
 * so; false: as the caller asks.
 */
bool pace_stream_priority(int *ret_priority);

/* A stream was made with it. */
void pace_stream_made(void);
