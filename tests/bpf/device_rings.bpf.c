/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */

/* For device_rings_test: records that are reserved, submitted, discarded and copied; messages. */
#include <device/gpuobs_helpers.h>

#include "device_rings.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, RINGS_BYTES);
        __uint(map_extra, GPUOBS_PLACE_DEVICE);
} events SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, RINGS_BYTES);
        __uint(map_extra, GPUOBS_PLACE_HOST | GPUOBS_RECORD_BYTES(RINGS_WIDE));
} shared SEC(".maps");

static __always_inline void fill(struct gpuobs_kernel_ctx *ctx, struct rings_event *e, __u8 kind)
{
        e->time_ns = bpf_ktime_get_ns();
        e->block = ctx->block_x;
        e->thread = ctx->thread_x;
        e->lane = ctx->laneid;
        e->kind = kind;
        e->pad = 0;
        e->odd = ~ctx->block_x;
}

/* Every thread; those of odd number change their mind. */
SEC("gpu/exit.thread")
int reserve(struct gpuobs_kernel_ctx *ctx)
{
        struct rings_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

        if (!e)
                return 0;
        fill(ctx, e, 1);
        if (ctx->thread_x & 1)
                bpf_ringbuf_discard(e, 0);
        else
                bpf_ringbuf_submit(e, 0);
        return 0;
}

/* Two at a time, of different sizes, and a record in a loop. */
SEC("gpu/entry.block")
int reserve_two(struct gpuobs_kernel_ctx *ctx)
{
        struct rings_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
        __u64 *word = bpf_ringbuf_reserve(&shared, sizeof(*word), 0);

        if (word) {
                *word = ctx->block_x + 1000;
                bpf_ringbuf_submit(word, 0);
        }
        if (e) {
                fill(ctx, e, 2);
                bpf_ringbuf_submit(e, 0);
        }
        for (__u32 n = 0; n < 3; n++) {
                __u32 *number = bpf_ringbuf_reserve(&shared, sizeof(*number), 0);

                if (!number)
                        return 0;
                *number = n;
                bpf_ringbuf_submit(number, 0);
        }
        return 0;
}

SEC("gpu/exit.warp")
int output(struct gpuobs_kernel_ctx *ctx)
{
        __u8 wide[RINGS_WIDE] = {};

        *(__u32 *)wide = ctx->thread_x;
        wide[RINGS_WIDE - 1] = 0xab;
        bpf_ringbuf_output(&shared, wide, sizeof(wide), 0);
        return 0;
}

/* A place in the record that is only known when the program runs. */
SEC("gpu/entry.thread")
int indexed(struct gpuobs_kernel_ctx *ctx)
{
        __u8 *place = bpf_ringbuf_reserve(&events, 40, 0);

        if (!place)
                return 0;
        for (__u32 n = 0; n < 40; n++)
                place[n] = 0;
        place[ctx->laneid & 31] = 0x5a;
        bpf_ringbuf_submit(place, 0);
        return 0;
}

/* A loop that goes through the record: all that is known of the place is that it is there. */
SEC("gpu/exit.thread")
int filled(struct gpuobs_kernel_ctx *ctx)
{
        __u32 *place = bpf_ringbuf_reserve(&events, 40, 0);
        __u32 lane = ctx->laneid;

        if (!place)
                return 0;
#pragma clang loop unroll(disable)
        for (__u32 n = 0; n < 10; n++)
                place[n] = n * lane;
        bpf_ringbuf_submit(place, 0);
        return 0;
}

SEC("gpu/exit.block")
int print(struct gpuobs_kernel_ctx *ctx)
{
        bpf_printk("block %u of grid %llu", ctx->block_x, ctx->gridid);
        if (ctx->block_x == 1)
                bpf_printk("%d %x %5u|%-4d|%% %lld", -1, 0xabcdef12, 7, 3, -2LL);
        return 0;
}

SEC("gpu/entry.thread")
int print_all(struct gpuobs_kernel_ctx *ctx)
{
        bpf_printk("thread %u\n", ctx->thread_x);
        return 0;
}
