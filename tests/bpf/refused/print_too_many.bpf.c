/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* expect: print_too_many.bpf.c:LINE: in probe: a message with too many arguments */
#include "refused.h"

SEC("gpu/entry")
int probe(struct gpuobs_kernel_ctx *ctx)
{
        static const char format[] = "%u %u %u %u %u %u %u %u %u %u %u %u %u";
        __u64 arguments[13] = {ctx->block_x, ctx->block_y, ctx->block_z, ctx->thread_x};

        bpf_trace_vprintk(format, sizeof(format), arguments, sizeof(arguments)); /* LINE */
        return 0;
}
