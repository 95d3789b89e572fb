/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_size_varies.bpf.c:LINE: in probe: the size of a record must be constant */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u64 values[4] = {};

        bpf_ringbuf_output(&ring, values, 8 + (ctx->block_x & 15), 0); /* LINE */
        return 0;
}
