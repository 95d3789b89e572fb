/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What a launch is given, for policies that bring memory before the kernel needs it:
 * pointers to managed memory among its arguments are told to the daemon before the
 * driver is called. Only while the daemon wants to know (agent_launch_wishes).
 *
 * Where the pointers are comes from the driver (cuFuncGetParamInfo, since CUDA 12.4),
 * asked at each launch: what it says of a handle is true then, and what was true
 * before may make this read beyond what the caller passed.
 */
#include "argument_walk.h"
#include "cuda_api.h"
#include "launch_abi.h"

struct wire;

/* Once, before any other call. All of them outlive the process's launches. */
void arguments_begin(const struct cuda_api *api, struct wire *wire, struct agent_launch_map *map);

/*
 * A launch of f is about to be called, with what cuLaunchKernel() takes: parameters
 * or extra, either may be NULL. Takes a microsecond or so, several when the daemon
 * has to be woken. When there is no daemon any more, nothing is told from then on.
 * Leaves errno alone. Any thread.
 */
void arguments_tell(cuda_handle f, void *const *parameters, void *const *extra, uint64_t at_ns);

/* A graph is about to be launched: what its kernels were given (graph_arguments.h). */
void arguments_tell_graph(cuda_handle exec, uint64_t at_ns);

/* Whether the daemon wants to know; then arguments_begin() was called. */
bool arguments_wanted(void);
const struct cuda_api *arguments_api(void);

/*
 * The parts of a look at several kernels. Begin and end as argument_walk_begin() and
 * _end(); read adds what one kernel is given, false: where that is is not known.
 */
bool arguments_walk_begin(struct argument_found *ret_found);
bool arguments_read(cuda_handle f, void *const *parameters, void *const *extra,
                    struct argument_found *found);
bool arguments_walk_end(const struct argument_found *found);
