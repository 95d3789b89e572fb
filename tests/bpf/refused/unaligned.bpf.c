/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: unaligned.bpf.c:LINE: in probe: an access of 8 bytes that may not be aligned */
#include "refused.h"

struct packed {
        __u32 a;
        __u64 b;
} __attribute__((packed, aligned(4)));
DEVICE_ARRAY(values, struct packed, 1);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        struct packed *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                *(volatile __u64 *)((char *)v + 4) = 1; /* LINE */
        return 0;
}
