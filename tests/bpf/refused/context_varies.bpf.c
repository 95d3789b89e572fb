/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: context_varies.bpf.c:LINE: in probe: the kernel verifier: variable ctx access */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = (&ctx->block_x)[ctx->smid & 3]; /* LINE */
        return 0;
}
