/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What an atomic operation changes is where each lane says, so that the same place holds
 * different numbers.
 *
 * expect: warp_divergent_count.bpf.c:LINE: in probe: a helper for whole warps where lanes of a */
#include <device/gpuobs_helpers.h>

#include "refused.h"

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 4096);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} ring SEC(".maps");

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);
        __u64 *seen = bpf_ringbuf_reserve(&ring, 32, 0);

        if (!seen)
                return 0;
        seen[0] = 0;
        __sync_fetch_and_add(&seen[ctx->laneid & 3], 1);
        if (v && seen[0])
                __sync_fetch_and_add(v, gpuobs_warp_sum(1)); /* LINE */
        bpf_ringbuf_discard(seen, 0);
        return 0;
}
