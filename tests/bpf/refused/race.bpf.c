/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: race.bpf.c:LINE: in probe: map values is read, changed and written back */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v += ctx->grid_x; /* LINE */
        return 0;
}
