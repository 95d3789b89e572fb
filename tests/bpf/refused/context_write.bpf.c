/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: context_write.bpf.c:LINE: in probe: the context cannot be written: ctx->smid = 1; */
#include "refused.h"

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        ctx->smid = 1; /* LINE */
        return 0;
}
