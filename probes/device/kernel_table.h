/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * A table with an element for each kernel that runs, without a loop, so that it works
 * at exits and memory accesses of machine code, where a hash does not
 * (docs/device-programs.md): an array on the device, of 2^n elements that begin with
 * struct kernel_table_owner. A kernel has one of the KERNEL_TABLE_TRIES places from
 * its id on, given by a compare-and-swap, for good.
 */
#include "../gpuobs_types.h"

#define KERNEL_TABLE_TRIES 4

struct kernel_table_owner {
        __u32 kernel_id; /* 0: free */
        __u32 pad;
};

#ifdef __bpf__
#include "gpuobs_device.h"

/* Whether place `at` is the kernel's, or can be made so. */
static __always_inline bool kernel_table_own(void *table, __u32 at, __u32 kernel_id)
{
        struct kernel_table_owner *owner = bpf_map_lookup_elem(table, &at);
        __u32 who;

        if (!owner)
                return false;
        who = *(volatile __u32 *)&owner->kernel_id;
        if (!who)
                who = __sync_val_compare_and_swap(&owner->kernel_id, 0, kernel_id);
        return !who || who == kernel_id;
}

/* The kernel's element of a table of `entries` elements; NULL: other kernels have its places. */
static __always_inline void *kernel_table_find(void *table, __u32 entries, __u32 kernel_id)
{
        __u32 place = entries;

#pragma unroll
        for (__u32 n = 0; n < KERNEL_TABLE_TRIES; n++) {
                __u32 at = (kernel_id + n) & (entries - 1);

                if (kernel_table_own(table, at, kernel_id)) {
                        place = at;
                        break;
                }
        }
        return bpf_map_lookup_elem(table, &place);
}
#endif
