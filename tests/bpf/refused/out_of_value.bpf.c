/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: out_of_value.bpf.c:LINE: in probe: the kernel verifier: R0 unbounded memory access */
#include "refused.h"

struct pair {
        __u64 a, b;
};
DEVICE_ARRAY(values, struct pair, 4);

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        __u32 zero = 0;
        struct pair *v = bpf_map_lookup_elem(&values, &zero);

        if (v)
                (&v->a)[ctx->smid] = 1; /* LINE */
        return 0;
}
