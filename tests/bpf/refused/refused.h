/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * For programs that must be refused. Each says in a comment "expect:" what the
 * message begins with; LINE stands for the line that is marked with LINE.
 */
#include <device/gpuobs_device.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define DEVICE_ARRAY(name, type_, entries)                                                         \
        struct {                                                                                   \
                __uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
                __type(key, __u32);                                                                \
                __type(value, type_);                                                              \
                __uint(max_entries, entries);                                                      \
                __uint(map_extra, GPUOBS_PLACE_DEVICE);                                            \
        } name SEC(".maps")

/* Count in the first element of a map; `zero` is a key of 0. */
#define COUNT(map)                                                                                 \
        do {                                                                                       \
                __u64 *v = bpf_map_lookup_elem(&(map), &zero);                                     \
                if (v)                                                                             \
                        __sync_fetch_and_add(v, 1);                                                \
        } while (0)
