/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: function_call.bpf.c:LINE: in probe: calls between functions are not supported */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

static __attribute__((noinline)) __u64 square(__u64 x)
{
        return x * x;
}

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = square(ctx->gridid); /* LINE */
        return 0;
}
