/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * When kernels start and end: one START record by the first thread of the first
 * block, one END record by the leader of the block that ends last, both in the
 * process's shared start/end map (device_abi.h), each when it happens.
 */
#include "launch_records.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("gpu/entry.grid")
int launch_start(struct gpuobs_kernel_ctx *ctx)
{
        return publish_start(ctx);
}

SEC("gpu/exit.block")
int launch_end(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = counters();
        __u32 type = c ? count_block(ctx, c) : 0;

        if (!type)
                return 0;
        /* Else the upper half of a wide 0 goes through a uniform register, which are rare. */
        asm volatile("" : "+r"(type));
        publish(ctx, c, bpf_ktime_get_ns(), (__u8)type);
        return 0;
}
