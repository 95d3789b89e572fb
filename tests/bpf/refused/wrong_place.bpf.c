/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section "gpu/mem.warp": a device program runs at gpu/entry or gpu/exit */
#include "refused.h"

SEC("gpu/mem.warp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        return 0;
}
