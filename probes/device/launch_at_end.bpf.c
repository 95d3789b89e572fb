/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/*
 * When kernels start and end, in place of launch.bpf.c, for less time on the device: a
 * start that asks for the place of its record waits for the answer, a quarter of a
 * microsecond in which the kernel does not run. Here it leaves the time in GPU memory
 * and asks for nothing. The block that ends last asks for two places at once, while it
 * takes what the start has left, and writes both records.
 *
 * So a START record comes when the kernel ends. What runs for long is seen in the table
 * of what runs (device_abi.h). Kernels whose end has no probe start as in launch.bpf.c.
 */
#include "launch_records.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("gpu/exit.block")
int launch_both(struct gpuobs_kernel_ctx *ctx)
{
        struct device_counters *c = counters();
        __u32 type = c ? count_block(ctx, c) : 0, start_type;
        __u64 started, start_ns, now_ns, n;

        if (!type)
                return 0;
        /* Else the upper halves of wide zeros go through uniform registers, which are rare. */
        asm volatile("" : "+r"(type));
        now_ns = bpf_ktime_get_ns();
        started = __sync_lock_test_and_set(&c->started[place_of(ctx) % DEVICE_GRIDS], 0);
        n = __sync_fetch_and_add(&c->head, 2);
        start_ns = DEVICE_STARTED_TIME(started, now_ns);
        start_type = DEVICE_RECORD_START;
        if ((__u8)started != DEVICE_STARTED_GRID(ctx->gridid)) {
                start_ns = now_ns;
                start_type = DEVICE_RECORD_UNKNOWN_START;
        }
        asm volatile("" : "+r"(start_type));
        put_record(ctx, n % DEVICE_RING_ENTRIES, n, start_ns, (__u8)start_type,
                   DEVICE_STARTED_SMID(started));
        n++;
        put_record(ctx, n % DEVICE_RING_ENTRIES, n, now_ns, (__u8)type, -1);
        return 0;
}

SEC("gpu/entry.grid/with_exit")
int launch_mark(struct gpuobs_kernel_ctx *ctx)
{
        __u64 now_ns = bpf_ktime_get_ns();
        struct device_counters *c = counters();
        int smid = (int)ctx->smid;

        if (!c)
                return 0;
        c->started[place_of(ctx) % DEVICE_GRIDS] = DEVICE_STARTED(now_ns, smid, ctx->gridid);
        put_record(ctx, DEVICE_RUNNING_SLOT(place_of(ctx)), ctx->gridid, now_ns,
                   DEVICE_RECORD_START, smid);
        return 0;
}

SEC("gpu/entry.grid/without_exit")
int launch_alone(struct gpuobs_kernel_ctx *ctx)
{
        return publish_start(ctx);
}
