/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: mem_budget.bpf.c:LINE: in probe: an event may cost */
#include "refused.h"

DEVICE_ARRAY(values, __u64, 64);

SEC("gpu/mem.thread")
int probe(struct gpuobs_mem_ctx *ctx)
{
        for (__u32 i = 0; i < 64; i++) {
                __u32 key = i;
                __u64 *v = bpf_map_lookup_elem(&values, &key); /* LINE */

                if (v)
                        __sync_fetch_and_add(v, ctx->size);
        }
        return 0;
}
