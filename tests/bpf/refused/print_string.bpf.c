/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: print_string.bpf.c:LINE: in probe: a message with %s: there are no strings on a GPU */
#include "refused.h"

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        bpf_printk("block %s", ctx->block_x); /* LINE */
        return 0;
}
