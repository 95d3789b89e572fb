/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: key_in_map.bpf.c:LINE: in probe: the key of a lookup must be a variable on the stack */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 4);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (!v)
                return 0;
        v = bpf_map_lookup_elem(&values, v); /* LINE */
        if (v)
                *v = 1;
        return 0;
}
