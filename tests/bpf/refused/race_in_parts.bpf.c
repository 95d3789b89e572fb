/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: race_in_parts.bpf.c:LINE: in probe: map values is read, changed and written back */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 4);

/* Through a function and the stack, to an element that may be another. */
SEC("gpu/exit.warp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 from = ctx->smid, to = ctx->warpid;
        __u64 *a = bpf_map_lookup_elem(&values, &from);
        volatile __u16 parts[4];
        __u64 *b;

        if (!a)
                return 0;
        parts[0] = *a;
        b = bpf_map_lookup_elem(&values, &to);
        if (b)
                *b = parts[0] + 1; /* LINE */
        return 0;
}
