/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Places the maps of device programs where the GPU can reach them at the same
 * address from everywhere the process may run a kernel. A rewritten image uses
 * these addresses for as long as it lives, in whatever context it is launched: an
 * address that were not mapped there would be a fault in the application, so every
 * doubt is a refusal.
 *
 * A map in host memory is a kernel eBPF map, mapped into the process and registered
 * as portable pinned memory: visible in all contexts. GPU memory comes from the
 * virtual memory functions where they exist, with access for every device of the
 * process; from cuMemAlloc otherwise, if there is only one device.
 *
 * Called with the agent's lock.
 */
#include <stdbool.h>
#include <stddef.h>
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

/* The maps of one object. */
struct gpu_maps {
        uint64_t address[AGENT_MAP_MAX]; /* 0: no such map */
        uint64_t bytes[AGENT_MAP_MAX];
        bool host[AGENT_MAP_MAX]; /* in host memory */
        cuda_address base;        /* of the GPU memory, one allocation; 0 none */
        size_t size;
        bool is_virtual; /* made by the virtual memory functions */
};

/* Where they go. */
struct gpu_place {
        const struct cuda_api *api;
        int device, device_count;
};

/*
 * Whether memory of the device can be reached from all others of the process. NULL, or
 * a constant sentence: nothing may be placed then.
 */
const char *gpu_place_check(const struct gpu_place *place);

/* Map the ring at its fixed address. 0; -EEXIST something else is there; other -errno. */
int ring_map(int map_fd, const struct agent_welcome *welcome);

/*
 * Register the ring in the current context: at first, and again when a reset has
 * taken the context away. NULL on success, else a constant sentence.
 */
const char *ring_register(const struct cuda_api *api, const struct agent_welcome *welcome);

/* Take it back, and out of the address space. No kernel may write to it any more. */
void ring_unregister(const struct cuda_api *api, const struct agent_welcome *welcome);

/*
 * Map the host map behind a descriptor and register it in the current context. NULL
 * on success, else a constant sentence.
 */
const char *host_map_place(const struct cuda_api *api, int fd, uint64_t bytes,
                           uint64_t *ret_address);

/* Register it again, in another primary context. NULL or a constant sentence. */
const char *host_map_register(const struct cuda_api *api, uint64_t address, uint64_t bytes);

/* Take it back. No kernel that uses it may run any more. */
void host_map_remove(const struct cuda_api *api, uint64_t address, uint64_t bytes);

/*
 * Allocate the device maps of a blob and fill in what they begin with. The device's
 * primary context must be current. host: addresses of the maps in host memory, which
 * are there already. budget: bytes of GPU memory there may be at most. NULL on success,
 * else a constant sentence, and nothing is left.
 */
const char *gpu_maps_place(const struct gpu_place *place,
                           const struct agent_map maps[AGENT_MAP_MAX], const void *blob,
                           const uint64_t host[AGENT_MAP_MAX], uint64_t budget,
                           struct gpu_maps *ret_maps);

/* Free the GPU memory. No kernel that uses it may run any more. */
void gpu_maps_free(const struct gpu_place *place, struct gpu_maps *m);

/*
 * Copy bytes out of or into GPU memory, on a stream of the agent's own, in the current
 * context. CUDA_OK or the driver's error.
 */
int gpu_read(const struct cuda_api *api, void *to, cuda_address from, size_t size);
int gpu_write(const struct cuda_api *api, cuda_address to, const void *from, size_t size);
