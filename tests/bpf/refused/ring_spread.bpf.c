/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring events: a ring is there once, not per warp or thread */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_PER_WARP);
} events SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u64 record = ctx->block_x;

        bpf_ringbuf_output(&events, &record, sizeof(record), 0);
        return 0;
}
