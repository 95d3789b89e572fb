/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: null_check.bpf.c:LINE: in probe: the kernel verifier: R0 invalid mem access */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 4);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->smid;
        __u64 *v = bpf_map_lookup_elem(&values, &key);

        *v = 1; /* LINE */
        return 0;
}
