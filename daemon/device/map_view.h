/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Elements of a map in a copy of its memory (device_abi.h). Pure; whatever the bytes
 * hold, nothing outside of them is read.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device_abi.h"
#include "device/program.h"

struct map_view {
        const struct device_map_info *map;
        const uint8_t *bytes;
        uint64_t size;
        bool merge; /* copies are added up, in words of 8 bytes, or of 4 where 8 do not fit */
};

struct map_view_element {
        uint8_t key[DEVICE_HASH_KEY_MAX];
        uint32_t key_size;
        uint32_t copy;
        const uint8_t *value; /* value_size bytes: in the view, or in the buffer */
};

/* NULL, or why elements of this map cannot be listed: a constant phrase. */
const char *map_view_refusal(const struct map_view *v);

/*
 * The element at a place, from *at = 0; *at is advanced behind it. buffer: value_size
 * bytes, for what is added up. False: there are no more.
 */
bool map_view_next(const struct map_view *v, uint64_t *at, uint8_t *buffer,
                   struct map_view_element *ret_element);

/*
 * The reverse, of a hash: put an element into a slot that is free, below the number of
 * entries, in memory of device_map_bytes(). Programs on the GPU would not find it there.
 */
void map_view_put(const struct device_map_info *map, uint8_t *bytes, uint64_t slot,
                  const uint8_t *key, const uint8_t *value);

/* Where the value of a key is: its offset. -ENOENT there is none; -EINVAL no such key. */
int map_view_find(const struct map_view *v, const void *key, size_t key_size, uint64_t *ret_offset);

/*
 * What takes the element out whose value is at an offset, of a hash: bytes of the slot as
 * they are then, malloc'd, and where they go. 0 or -ENOMEM.
 */
int map_view_delete(const struct map_view *v, uint64_t value_offset, uint8_t **ret_bytes,
                    size_t *ret_size, uint64_t *ret_offset);

/* Of a hash: updates that found no free slot. */
uint64_t map_view_lost(const struct map_view *v);
