/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's side of the arguments a process tells (agent/argument_abi.h): writes
 * the table of its managed memory, reads what its launches were given. The process
 * may write anything anywhere at any time: what comes out is bounded, and an
 * address is no more than a number until it is looked up.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/argument_abi.h"

struct argument_ring_losses {
        uint64_t overrun; /* records not written: the ring was full */
        uint64_t torn;    /* claimed, but never completed, or with impossible contents */
        uint64_t unread;  /* launches whose arguments the agent could not read, or not all */
};

/* Embedded; to be initialised by argument_ring_init(). */
struct argument_ring {
        struct agent_argument_map *map;
        uint64_t position;
        uint64_t created_ns;
        uint64_t hole_ns;         /* since when position is a hole; 0: it is not known to be one */
        uint64_t dropped, unread; /* as last read */
        struct argument_ring_losses losses;
};

/* The map is zeroed, and outlives the ring. */
void argument_ring_init(struct argument_ring *r, struct agent_argument_map *map);

/*
 * Give the process a new table: at most AGENT_ARGUMENT_RANGES, ascending, apart. An
 * agent that reads meanwhile tries again, or counts the launch as unread.
 */
void argument_ring_set_table(struct argument_ring *r, const struct agent_argument_range *ranges,
                             size_t count);

/*
 * Take the next record if it is whole; now_ns: CLOCK_MONOTONIC. A hole (claimed but
 * not written) holds the reading up for half a second, then counts as torn, as do
 * records that cannot be. Returns whether there was one.
 */
bool argument_ring_take(struct argument_ring *r, uint64_t now_ns, struct agent_argument *ret);

/*
 * Nobody looks until the next record comes or the loop turns: the agent is to wake
 * us. False: one has come meanwhile.
 */
bool argument_ring_sleep(struct argument_ring *r);

void argument_ring_get_losses(struct argument_ring *r, struct argument_ring_losses *ret_losses);
