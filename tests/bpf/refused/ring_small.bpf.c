/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring ring has no room for 16 records of 256 bytes */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE | GPUOBS_RECORD_BYTES(256));
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u64 value = ctx->gridid;

        bpf_ringbuf_output(&ring, &value, sizeof(value), 0);
        return 0;
}
