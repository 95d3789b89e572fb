/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_query.bpf.c:LINE: in probe: helper bpf_ringbuf_query() is not available on a GPU */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        return bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) != 0; /* LINE */
}
