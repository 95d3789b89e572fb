/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * Evict the block that was used longest ago.
 *
 * The driver's own order is called LRU too, but all it knows of use is faults: a
 * block that never faults again, because it is on the GPU and hot, grows old and
 * is thrown out (it is first in, first out with second chances). This policy also
 * counts a kernel being given a range as a use of it.
 *
 * Wins where some memory is used again and again and other memory passes through
 * once: weights beside activations, the head of a Zipf distribution. Loses on
 * cyclic sweeps over more than fits, where what was used longest ago is what comes
 * next: every block misses, unless the queue of launches reaches far enough ahead
 * to show it; see evict_mru. Kernels that are given one large range and touch
 * little of it blind it, and then it is worse than the driver.
 *
 * Source: least recently used is folklore; Denning, "The working set model for
 * program behavior", CACM 1968, says when it works.
 */
#include "evict.bpf.h"

static void evict_arrived(__u32 number, bool again)
{
}

static void evict_used(__u32 number)
{
        list_move(number, 0);
}

static __u32 evict_choose(bool is_short)
{
        return is_short ? list_first(0) : 0;
}
