/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: warp_divergent.bpf.c:LINE: in probe: a helper for whole warps where lanes of a warp may have gone different ways */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v && ctx->thread_x > 3)
                *v = gpuobs_warp_sum(1); /* LINE */
        return 0;
}
