/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: mem_field.bpf.c:LINE: in probe: the context has no field at offset 88 of 8 bytes */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry")
int probe(struct gpuobs_mem_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = ctx->address; /* LINE */
        return 0;
}
