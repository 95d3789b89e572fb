/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: print_arguments.bpf.c:LINE: in probe: a message with 3 conversions, but only 2 arguments */
#include "refused.h"

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        static const char format[] = "%u %u %u";
        __u64 arguments[2] = {ctx->block_x, ctx->block_y};

        bpf_trace_vprintk(format, sizeof(format), arguments, sizeof(arguments)); /* LINE */
        return 0;
}
