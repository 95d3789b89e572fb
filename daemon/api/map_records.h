/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Records of a ring as elements of a dump: the key is their number, 8 bytes. */
#include "api/internal.h"

struct device_map_info;

struct event_ring;

/*
 * Take at most limit records that follow in a reading of the ring: record() for each, as
 * event_ring_read() does. Holes are passed only where nobody can be filling them any more.
 */
void map_records_read(struct event_ring *ring, const struct api_map_reading *reading, size_t limit,
                      void (*record)(void *data, const void *bytes, size_t size), void *data);

/*
 * Fill in elements, next and lost of a dump from a reading of the ring, with rows in the
 * call's arena: at most limit records from number `from` on. 0; -ENOMEM.
 */
int map_records(struct api_call *call, const struct device_map_info *ring,
                const struct api_map_reading *reading, uint64_t from, size_t limit,
                struct gpuobs_map_dump *ret_dump);
