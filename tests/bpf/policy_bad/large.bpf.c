/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: its maps take more than the 128 MiB */
#include "gpuobs_policy.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1 << 20);
        __type(key, __u32);
        __type(value, char[1024]);
} heap SEC(".maps");

POLICY(tick)
{
        __u32 zero = 0;

        return !bpf_map_lookup_elem(&heap, &zero);
}
