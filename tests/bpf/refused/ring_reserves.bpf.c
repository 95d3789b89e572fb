/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_reserves.bpf.c:LINE: in probe: more than 8 places that reserve a record */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

#define RESERVE()                                                                                  \
        do {                                                                                       \
                __u64 *record = bpf_ringbuf_reserve(&ring, 8, 0);                                  \
                if (!record)                                                                       \
                        return 0;                                                                  \
                *record = ctx->block_x;                                                            \
                bpf_ringbuf_submit(record, 0);                                                     \
        } while (0)

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        RESERVE();
        RESERVE();
        RESERVE();
        RESERVE();
        RESERVE();
        RESERVE();
        RESERVE();
        RESERVE();
        RESERVE(); /* LINE */
        return 0;
}
