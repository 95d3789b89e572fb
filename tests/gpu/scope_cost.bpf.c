/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * What a program costs by its scope, for shipped_check: whoever runs it adds one to a
 * word of the multiprocessor, which is about the least a program can do.
 */
#include "gpuobs_device.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 8);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_SM);
} runs SEC(".maps");

#define COUNT(where, scope, n)                                                                     \
        SEC("gpu/" #where "." #scope)                                                              \
        int where##_##scope(struct gpuobs_kernel_ctx *ctx)                                         \
        {                                                                                          \
                __u32 key = n;                                                                     \
                __u64 *count = bpf_map_lookup_elem(&runs, &key);                                   \
                                                                                                   \
                if (count)                                                                         \
                        __sync_fetch_and_add(count, 1);                                            \
                return 0;                                                                          \
        }

COUNT(entry, grid, 0)
COUNT(entry, block, 1)
COUNT(entry, warp, 2)
COUNT(entry, thread, 3)
COUNT(exit, grid, 4)
COUNT(exit, block, 5)
COUNT(exit, warp, 6)
COUNT(exit, thread, 7)
