/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where the driver puts what it tells a grid besides its parameters: the number
 * of the context and the address of the launch's descriptor (device_abi.h). That
 * is not documented and differs between architectures, so there is a table of
 * what is known, and grid_check.h finds out whether it is so.
 *
 * Pure, no state.
 */
#include <stddef.h>
#include <stdint.h>

struct grid_layout {
        uint32_t sm;          /* 10 * major + minor */
        char context[12];     /* the environment register that holds the number */
        int32_t queue_offset; /* of the address's low half, bytes from the first parameter */
};

/* NULL: nothing is known of the architecture. */
const struct grid_layout *grid_layout_find(uint32_t sm);
