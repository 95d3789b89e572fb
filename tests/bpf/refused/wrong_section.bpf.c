/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: section "xdp" does not hold a device program */
#include "refused.h"

SEC("xdp")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        return 0;
}
