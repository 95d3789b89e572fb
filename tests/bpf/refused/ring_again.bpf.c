/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: ring_again.bpf.c:LINE: in probe: a record is reserved here again before the last one was submitted */
#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u64 *first = 0, *second = 0;

#pragma clang loop unroll(disable)
        for (__u32 n = 0; n < 2; n++) {
                second = first;
                first = bpf_ringbuf_reserve(&ring, 8, 0); /* LINE */
        }
        if (first)
                bpf_ringbuf_submit(first, 0);
        if (second)
                bpf_ringbuf_submit(second, 0);
        return 0;
}
