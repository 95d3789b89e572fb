/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: map values: a GPU has arrays, hashes and ring buffers only */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} values SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = 1;
        return 0;
}
