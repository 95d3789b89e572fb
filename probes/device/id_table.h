/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * A table with an element for each of a few numbers (kernel ids, pages), without a loop, so
 * that it works at exits and memory accesses of machine code, where a hash does not
 * (docs/device-programs.md): an array on the device, of 2^n elements that begin with
 * struct id_table_owner. A number has one of the ID_TABLE_TRIES places from number % 2^n
 * on, given by a compare-and-swap, for good. Numbers are not 0.
 */
#include "../gpuobs_types.h"

#define ID_TABLE_TRIES 4

struct id_table_owner {
        __u32 id; /* 0: free */
        __u32 pad;
};

#ifdef __bpf__
#include "gpuobs_device.h"

/* Whether place `at` is the number's, or can be made so. */
static __always_inline bool id_table_own(void *table, __u32 at, __u32 id)
{
        struct id_table_owner *owner = bpf_map_lookup_elem(table, &at);
        __u32 who;

        if (!owner)
                return false;
        who = *(volatile __u32 *)&owner->id;
        if (!who)
                who = __sync_val_compare_and_swap(&owner->id, 0, id);
        return !who || who == id;
}

/* The number's element of a table of `entries` elements; NULL: others have its places. */
static __always_inline void *id_table_find(void *table, __u32 entries, __u32 id)
{
        __u32 place = entries;

#pragma unroll
        for (__u32 n = 0; n < ID_TABLE_TRIES; n++) {
                __u32 at = (id + n) & (entries - 1);

                if (id_table_own(table, at, id)) {
                        place = at;
                        break;
                }
        }
        return bpf_map_lookup_elem(table, &place);
}
#endif
