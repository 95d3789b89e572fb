/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A hash with keys and values of 8 bytes as device programs have it in memory (device_abi.h),
 * for tests that fill it in or look into it. Not for the one key that has a slot of its own.
 */
#include <stddef.h>
#include <stdint.h>

#include "device/device_abi.h"

struct hash_entry {
        struct device_hash_slot slot;
        uint64_t value;
};

static inline unsigned hash_bits(uint32_t max_entries)
{
        unsigned bits = 1;

        while (1u << bits < 2 * max_entries)
                bits++;
        return bits;
}

static inline size_t hash_bytes(uint32_t max_entries)
{
        return sizeof(struct device_hash_head) +
               sizeof(struct hash_entry) * ((1u << hash_bits(max_entries)) + 1);
}

/* The place of a key, or the one it can be put at; NULL: there is none. */
static inline struct hash_entry *hash_find(void *memory, uint32_t max_entries, uint64_t key)
{
        struct hash_entry *entries = (void *)((struct device_hash_head *)memory + 1);
        unsigned bits = hash_bits(max_entries);
        uint64_t tag = key ^ DEVICE_HASH_TAG, place = tag * DEVICE_HASH_FACTOR >> (64 - bits);

        for (unsigned n = 0; n < DEVICE_HASH_PROBES; n++) {
                struct hash_entry *e = &entries[(place + n) & ((1u << bits) - 1)];

                if (e->slot.tag == tag || !e->slot.tag)
                        return e;
        }
        return NULL;
}

/* Of a key that is not in it 0. */
static inline uint64_t hash_get(void *memory, uint32_t max_entries, uint64_t key)
{
        struct hash_entry *e = hash_find(memory, max_entries, key);

        return e && e->slot.live ? e->value : 0;
}

/* There has to be room. */
static inline void hash_put(void *memory, uint32_t max_entries, uint64_t key, uint64_t value)
{
        struct hash_entry *e = hash_find(memory, max_entries, key);

        *e = (struct hash_entry){{key ^ DEVICE_HASH_TAG, 1}, value};
}
