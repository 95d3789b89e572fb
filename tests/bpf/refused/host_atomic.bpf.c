/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: host_atomic.bpf.c:LINE: in probe: an atomic operation on map records, which lives in host memory */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __type(key, __u32);
        __type(value, struct device_record);
        __uint(max_entries, DEVICE_RING_ENTRIES);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(map_extra, GPUOBS_PLACE_HOST);
} records SEC(".maps");

SEC("gpu/exit.block")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        struct device_record *r = bpf_map_lookup_elem(&records, &zero);

        if (r)
                __sync_fetch_and_add(&r->time_ns, 1); /* LINE */
        return 0;
}
