/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: address_as_number.bpf.c:LINE: in probe: the address of a map element is stored in a map */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        __u64 *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *v = (__u64)v; /* LINE */
        return 0;
}
