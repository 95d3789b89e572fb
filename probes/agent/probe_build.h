/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * PTX to machine code with the driver's own linker, in the process's context:
 * the toolkit is not needed, and the code fits the driver it will run on.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cuda_api.h"

struct grid_layout;
struct probe_code;

#define PROBE_ERROR_BYTES 240

/* True when the driver has a linker. */
int probe_linker_available(const struct cuda_api *api);

/*
 * Compile PTX text of `size` bytes into a cubin, for image_memory_free(). The options are
 * handed to the linker as they are. 0; -ENOSYS no linker; -ENOMEM; -EINVAL with
 * the driver's words in error.
 */
int probe_link_ptx(const struct cuda_api *api, const char *text, size_t size, unsigned option_count,
                   const int *options, void *const *values, void **ret_cubin, size_t *ret_size,
                   char error[PROBE_ERROR_BYTES]);

/*
 * Compile a bound fragment (fragment.h) into the machine code of a probe for the
 * architecture. layout: of what the driver tells a grid; NULL: not to be relied on. What can
 * serve at entries only is built again with @O@ (agent_abi.h). 0; -errno as above, also when
 * splice.h refuses it.
 */
int probe_build(const struct cuda_api *api, const char *fragment, uint32_t sm,
                const struct grid_layout *layout, struct probe_code **ret_code,
                char error[PROBE_ERROR_BYTES]);
