/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: warp_divergent_later.bpf.c:LINE: in probe: a helper for whole warps where lanes of a warp may have gone different ways */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

/* How often each lane goes round depends on the lane, and so does what it counted. */
SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        volatile __u32 rounds = 0;
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        for (__u32 i = 0; i < (ctx->laneid & 3); i++)
                rounds = 7;
        if (v && rounds == 7)
                *v = gpuobs_warp_sum(1); /* LINE */
        return 0;
}
