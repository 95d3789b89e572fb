/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_map_data.bpf.c:LINE: in probe: the record must be a variable on the stack */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                bpf_ringbuf_output(&ring, v, sizeof(*v), 0); /* LINE */
        return 0;
}
