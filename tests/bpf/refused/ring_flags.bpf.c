/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_flags.bpf.c:LINE: in probe: the flags of a ring buffer's helper must be 0 */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u64 value = ctx->gridid;

        bpf_ringbuf_output(&ring, &value, sizeof(value), BPF_RB_FORCE_WAKEUP); /* LINE */
        return 0;
}
