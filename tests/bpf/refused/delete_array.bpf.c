/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: delete_array.bpf.c:LINE: in probe: an element of array values cannot be deleted */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 4);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 key = ctx->smid;

        bpf_map_delete_elem(&values, &key); /* LINE */
        return 0;
}
