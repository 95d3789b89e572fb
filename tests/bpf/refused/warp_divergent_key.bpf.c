/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * All lanes have the same keys, but each looks another one up: only some find nothing.
 *
 * expect: warp_divergent_key.bpf.c:LINE: in probe: a helper for whole warps where lanes of a */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 2);

SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        volatile __u32 keys[4] = {0, 1, 2, 3};
        __u64 *v = bpf_map_lookup_elem(&values, (__u32 *)&keys[ctx->laneid & 3]);

        if (v)
                __sync_fetch_and_add(v, gpuobs_warp_sum(1)); /* LINE */
        return 0;
}
