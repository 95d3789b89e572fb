/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* EXPECT: a policy shares no maps with others */
#include "gpuobs_policy.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, 1);
        __uint(pinning, LIBBPF_PIN_BY_NAME);
        __type(key, __u32);
        __type(value, __u64);
} shared SEC(".maps");

POLICY(tick)
{
        __u32 zero = 0;

        return !bpf_map_lookup_elem(&shared, &zero);
}
