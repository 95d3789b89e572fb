/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: policies keep state in arrays, hashes, queues and stacks only */
#include "gpuobs_policy.h"

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, 1);
        __type(key, __u32);
        __type(value, __u64);
} counts SEC(".maps");

POLICY(tick)
{
        __u32 zero = 0;

        return !bpf_map_lookup_elem(&counts, &zero);
}
