/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Places the maps of the daemon's programs where the GPU can reach them at the
 * same address from everywhere the process may run a kernel. A rewritten image
 * uses these addresses for as long as it lives, in whatever context it is
 * launched: an address that were not mapped there would be a fault in the
 * application, so every doubt is a refusal.
 *
 * The shared ring is a kernel eBPF map, mapped at a fixed address and registered
 * as portable pinned memory: visible in all contexts. GPU memory comes from the
 * virtual memory functions where they exist, with access for every device of the
 * process; from cuMemAlloc otherwise, if there is only one device.
 */
#include <stdbool.h>
#include <stdint.h>

#include "agent_abi.h"
#include "cuda_api.h"

/*
 * Whether GPU memory placed here is mapped in contexts made by cuCtxCreate as
 * well: it is (tests/gpu/agent_contexts, H200, driver 580.159: in contexts made
 * before and after it, and in two at once). Where false, images that such a
 * context loads are left alone.
 */
#define GPU_MAPS_IN_ANY_CONTEXT true

struct gpu_maps {
        uint64_t address[AGENT_MAP_MAX]; /* 0: no such map */
};

/* Map the ring at its fixed address. 0; -EEXIST something else is there; other -errno. */
int ring_map(int map_fd, const struct agent_welcome *welcome);

/*
 * Register the ring in the current context: at first, and again when a reset has
 * taken the context away. NULL on success, else a constant sentence.
 */
const char *ring_register(const struct cuda_api *api, const struct agent_welcome *welcome);

/*
 * Register the ring and allocate the device maps, zeroed. The device's primary
 * context must be current; device_count devices are visible. NULL on success,
 * else a sentence (constant, or in error). What was done before a failure stays:
 * no image will use it.
 */
const char *gpu_maps_place(const struct cuda_api *api, int device, int device_count,
                           const struct agent_welcome *welcome,
                           const struct agent_map maps[AGENT_MAP_MAX], struct gpu_maps *ret_maps);
