/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* For views_test: every block says which one it is. */
#include <device/gpuobs_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("gpu/exit.block")
int say(struct gpuobs_kernel_ctx *ctx)
{
        bpf_printk("block %u of %d", ctx->block_x, ctx->grid_x);
        return 0;
}
