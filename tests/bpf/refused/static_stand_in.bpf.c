/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: function my_ballot stands for a helper of the GPU and must not be static */
#include <device/gpuobs_helpers.h>

#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

static GPUOBS_HELPER __u32 my_ballot(__u32 predicate)
{
        GPUOBS_STAND_IN(01, GPUOBS_32_BITS, predicate);
        return predicate;
}

SEC("gpu/entry.thread")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = my_ballot(ctx->smid);
        return 0;
}
