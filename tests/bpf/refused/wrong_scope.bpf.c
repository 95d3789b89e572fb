/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section "gpu/entry.cluster": the scope is one of .grid, .block, .warp, .thread */
#include "refused.h"

SEC("gpu/entry.cluster")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        return 0;
}
