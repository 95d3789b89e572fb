/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether the driver tells grids what device_abi.h says, where grid_layout.h
 * says: found out by launching a few grids that write down what they read, on
 * two streams of the agent's own.
 */
#include "cuda_api.h"
#include "grid_layout.h"
#include "wire.h"

/*
 * The device's primary context must be current, and stream captures relaxed in
 * this thread. The launches are announced as the agent's own, wait for no stream
 * of the application, and disturb no capture. Waits up to wait_ms for a GPU that is
 * busy; a GPU that is not answers within some 100 us, loading the kernel aside.
 * NULL: it is so; else a constant phrase. What it allocates (a page, a kernel)
 * stays: giving it back could wait for the application's own work.
 */
const char *grid_check(const struct cuda_api *api, struct wire *wire,
                       const struct grid_layout *layout, unsigned wait_ms);

/*
 * What one grid read. Of the grids of a check, in the order of their launches,
 * those with even numbers ran on one stream, the others on another.
 */
struct grid_words {
        uint64_t gridid;
        uint32_t context;
        uint32_t queue; /* low half of the descriptor's address */
};

enum grid_verdict {
        GRID_AS_EXPECTED,
        GRID_SHARED,  /* the same, but others took ids in between */
        GRID_UNCLEAR, /* others took ids all the time: look again */
        GRID_OTHERWISE,
};

/* Judge `count` readings. ret_reason: a constant phrase
 * for the last two. Pure. */
enum grid_verdict grid_judge(const struct grid_words *words, size_t count, const char **ret_reason);
