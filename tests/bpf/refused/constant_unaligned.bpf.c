/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: constant_unaligned.bpf.c:LINE: in probe: an access of 4 bytes that may not be aligned */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

const volatile __u32 table[4] = {1, 2, 3, 5};

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = *(const volatile __u32 *)((const char *)table + (ctx->smid & 3)); /* LINE */
        return 0;
}
