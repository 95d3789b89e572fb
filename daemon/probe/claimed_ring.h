/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the readers of rings in the launch map have in common (agent/launch_abi.h,
 * agent/argument_abi.h): threads of a process claim records by moving the head and
 * complete them later, and the process may write anything anywhere at any time.
 */
#include <stdbool.h>
#include <stdint.h>

#include "util/time.h"

/* A thread may be kept from the CPU between claiming and writing for as long. */
#define CLAIMED_HOLE_PATIENCE_NS (500 * NSEC_PER_MSEC)

/* A record so far ahead of the reader's clock is made up. */
#define CLAIMED_FUTURE_NS NSEC_PER_SEC

/* The process cannot have counted so many between two looks. */
#define CLAIMED_COUNT_MAX (UINT64_C(1) << 40)

/*
 * Nothing whole is at position: whether that is a hole to be given up. *hole_ns: since
 * when it is known to be one; 0 it is not. last: nothing will be completed any more.
 */
static inline bool claimed_hole_is_over(uint64_t *hole_ns, uint64_t head, uint64_t position,
                                        uint64_t entries, uint64_t now_ns, bool last)
{
        uint64_t claimed = head - position;

        /* More than there is room for: the head is made up, and says nothing. */
        if (claimed == 0 || claimed > entries)
                return false;
        if (!*hole_ns)
                *hole_ns = now_ns;
        return last || now_ns - *hole_ns >= CLAIMED_HOLE_PATIENCE_NS;
}

/* How many more the process has counted since *seen; 0 when that cannot be. */
static inline uint64_t claimed_counted(uint64_t count, uint64_t *seen)
{
        uint64_t more = count - *seen;

        if (more >= CLAIMED_COUNT_MAX)
                return 0;
        *seen = count;
        return more;
}
