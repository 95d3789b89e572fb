/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section "gpu/mem.block": at gpu/mem the scope is .warp or .thread */
#include "refused.h"

SEC("gpu/mem.block")
int probe(struct gpuobs_mem_ctx *ctx)
{
        return 0;
}
