/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: warp_scope.bpf.c:LINE: in probe: a helper for whole warps in a program that one thread runs */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry.warp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = gpuobs_warp_sum(ctx->smid); /* LINE */
        return 0;
}
