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
