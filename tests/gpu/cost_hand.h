/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Probes of a few instructions written by hand: what no probe can be cheaper than. */
#include "agent/splice.h"

enum cost_hand {
        COST_ENTRY_DETOUR, /* jump there and back */
        COST_ENTRY_S2R,    /* and ask for the block's index, as the thread's own value */
        COST_ENTRY_S2UR,   /* or as the warp's */
        COST_ENTRY_EARLY,  /* and do the kernel's own first instructions meanwhile */
        COST_EXIT_DETOUR,  /* jump there, wait for what is in flight, end */
        COST_EXIT_HASTE,   /* without the wait: no probe can do without, it uses registers */
        COST_EXIT_TID,     /* and ask for the thread's index in x */
        COST_EXIT_TIDS,    /* in x, y and z at once */
        COST_EXIT_PACKED,  /* by the special register that has all three in one */
};

/* probe_code_free() it. NULL: out of memory. */
struct probe_code *cost_hand_made(enum cost_hand which);

/*
 * Make a spliced kernel start at the code that was appended to it instead of jumping
 * there: its symbol says so, and its first instruction is that of the original again.
 * Whether the driver starts where the symbol says is not documented. Edits the image,
 * which is whole and 8-byte aligned, as the original is. 0; -EINVAL no such kernel.
 */
int cost_start_at_end(uint8_t *image, uint8_t *original, const char *kernel);

/*
 * Make a kernel's reads of the lane's number ones of special register 32. Edits the
 * image, as above; how many there were.
 */
size_t cost_pack_index(uint8_t *image, const char *kernel);
