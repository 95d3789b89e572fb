/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: constant_divergent.bpf.c:LINE: in probe: a helper for whole warps where lanes of a */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

const volatile __u8 table[4] = {0, 1, 1, 0};

SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0, sum = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v && table[ctx->laneid & 3])
                sum = gpuobs_warp_sum(1); /* LINE */
        if (v && sum)
                __sync_fetch_and_add(v, sum);
        return 0;
}
