/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Launches recorded by the agent itself, into a map it shares with the daemon
 * (launch_abi.h): a twentieth of what a uprobe costs. The hooks are there from
 * the start and only call on until launches_begin().
 */
#include <stdbool.h>
#include <stddef.h>

#include "cuda_api.h"
#include "hook.h"

struct agent_launch_map;

/* The launch map, once launches_begin() has been; NULL before, and in a forked child. */
struct agent_launch_map *launches_map(void);

/* The calling thread is the agent's own: so are its launches. */
void launches_own_thread(void);

/* What became of the hooks that launches_hooks() (hooked.h) listed. */
void launches_hooked(const struct hook *hooks, size_t count);

struct wire;

/*
 * Record from now on, and take the uprobes' breakpoints out of this process's
 * way. wire: to wake the daemon by. NULL; a constant phrase when launches stay with
 * the kernel's probes.
 */
const char *launches_begin(const struct cuda_api *api, struct wire *wire, int map_fd);

/* Kernels with start probes are about to be there: launches that returned by now have none. */
void launches_probed(void);

/*
 * Not any more: launches are the kernel's again. Its breakpoints are back when this
 * returns, as far as it still has probes there.
 */
void launches_end(void);
