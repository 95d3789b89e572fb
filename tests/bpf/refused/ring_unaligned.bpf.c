/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_unaligned.bpf.c:LINE: in probe: an access of 4 bytes that may not be aligned */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        char *record = bpf_ringbuf_reserve(&ring, 16, 0);

        if (!record)
                return 0;
        *(volatile __u32 *)(record + (ctx->block_x & 7)) = 1; /* LINE */
        bpf_ringbuf_submit(record, 0);
        return 0;
}
