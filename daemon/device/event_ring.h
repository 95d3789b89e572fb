/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reader of a ring of a device program (struct device_event in device_abi.h): takes
 * records out in order, counts what was lost. It reads a mapping that is being written,
 * or copies of the ring, one after the other. All it reads may be anything.
 */
#include <stddef.h>
#include <stdint.h>

#include "device/program.h"

struct event_ring;

/* For a ring of this layout (type BPF_MAP_TYPE_RINGBUF), from record `position` on. 0 or -ENOMEM.
 */
int event_ring_new(const struct device_map_info *map, uint64_t position,
                   struct event_ring **ret_ring);
struct event_ring *event_ring_free(struct event_ring *r);

struct event_ring_losses {
        uint64_t overrun; /* overwritten before they were read */
        uint64_t torn;    /* missing for longer than the patience while later ones were there */
};

/*
 * Take records that are complete, at most max, from `memory`, of the map's bytes; it may
 * change meanwhile. A hole stops the reading until it fills, or, when later records are
 * there and it has been one for 20 ms (now_ns, any clock that only goes on), is counted
 * as torn. Calls record() for each, with a copy that is good until it returns. Returns
 * the number taken.
 */
size_t event_ring_read(struct event_ring *r, const void *memory, uint64_t now_ns, size_t max,
                       void (*record)(void *data, const void *bytes, size_t size), void *data);

void event_ring_get_losses(const struct event_ring *r, struct event_ring_losses *ret_losses);

/* Number of the next record: how many have been read or lost. */
uint64_t event_ring_position(const struct event_ring *r);
