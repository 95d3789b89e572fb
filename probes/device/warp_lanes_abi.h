/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* What warp_lanes.bpf.c leaves in its map `lanes`: counts of 0 to 32 lanes, for each place. */
#include "../gpuobs_types.h"

#define WARP_LANES 33

enum warp_lanes_where {
        WARP_LANES_ENTRY, /* warps that began with so many lanes */
        WARP_LANES_EXIT,  /* groups of so many lanes of a warp that left together */
        WARP_LANES_PLACES,
};

struct warp_lanes {
        __u64 warps[WARP_LANES_PLACES][WARP_LANES];
};
_Static_assert(sizeof(struct warp_lanes) == 8 * 2 * WARP_LANES, "warp lanes");
