/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section "gpu/barrier.warp": a device program runs at gpu/entry, gpu/exit or gpu/mem */
#include "refused.h"

SEC("gpu/barrier.warp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        return 0;
}
