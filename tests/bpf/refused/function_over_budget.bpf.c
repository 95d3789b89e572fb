/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: function_over_budget.bpf.c:LINE: in probe: an event may cost */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 1024);

/* The verifier looks at a global function once; it is run a thousand times. */
__attribute__((noinline)) int count(__u32 i)
{
        __u64 *v = bpf_map_lookup_elem(&values, &i); /* LINE */

        if (v)
                __sync_fetch_and_add(v, 1);
        return 0;
}

SEC("gpu/exit.warp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        for (__u32 i = 0; i < 1024; i++)
                count(i);
        return 0;
}
