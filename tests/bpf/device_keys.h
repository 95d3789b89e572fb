/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Shared by device_keys.bpf.c and its tests. */
#include "device/device_abi.h"

#define KEYS_ENTRIES 128
#define KEYS_FEW     8 /* entries of the hash that fills up */

struct keys_place {
        __u32 kernel, column, row;
};

struct keys_pair {
        __u64 a, b;
};

struct keys_wide {
        __u64 words[8];
};

struct keys_value {
        __u64 count;
        __u32 first, pad;
};

/* What a word of a long key does to its tag (device_abi.h): keys with the same tag can be made. */
static inline __u64 keys_mix(__u64 h, __u64 word)
{
        h = (h ^ word ^ DEVICE_HASH_TAG) * DEVICE_HASH_FACTOR;
        return h ^ h >> 32;
}
