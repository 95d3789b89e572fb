/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: map limits is there twice and does not say what for */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, __u64);
        __uint(max_entries, 1);
        __uint(map_extra, GPUOBS_PLACE_DUPLICATE);
} limits SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&limits, &zero);

        if (v)
                __sync_fetch_and_add(v, 1);
        return 0;
}
