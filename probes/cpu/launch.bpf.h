/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * Kernel and graph launches: the path whose cost every application pays, hence
 * as short as it can be. Cookie: 1 for the per-thread-stream variants.
 */
#include "state.bpf.h"

/* Arguments 7 to 9 of cuLaunchKernel and cuLaunchCooperativeKernel, on the stack. */
struct launch_stack {
        __u32 block_z;
        __u32 pad0;
        __u32 shared_bytes;
        __u32 pad1;
        __u64 stream;
};

/* The head of CUlaunchConfig. */
struct launch_config {
        __u32 grid_x, grid_y, grid_z;
        __u32 block_x, block_y, block_z;
        __u32 shared_bytes;
        __u32 pad;
        __u64 stream;
};

static __always_inline __u64 stream_of(struct pt_regs *ctx, __u64 stream)
{
        if (!stream && bpf_get_attach_cookie(ctx))
                return CPU_STREAM_PER_THREAD;
        return stream;
}

/* Its place among the launches of its context. */
static __always_inline void launch_order(struct cpu_thread *t, bool again, bool graph)
{
        __u32 index;
        struct cpu_context *c = context_current(t, &index);
        struct agent_launch_context *s;

        t->launch.context = index;
        if (!c)
                t->launch.seq = 0;
        if (!c || again)
                return;
        s = context_shared(c);
        if (s)
                t->launch.seq = c->seq + __sync_fetch_and_add(&s->entered, 1) + 1;
        else
                t->launch.seq = __sync_fetch_and_add(&c->seq, 1) + 1;
        if (graph)
                __sync_fetch_and_add(s ? &s->graphs : &c->graphs, 1);
}

static __always_inline void launch_begin(struct cpu_thread *t, __u64 enter_ns, __u64 func,
                                         __u8 type)
{
        t->config = 0;
        t->launch.enter_ns = enter_ns;
        t->launch.func = func;
        t->launch.tgid = t->tgid;
        t->launch.tid = t->tid;
        t->launch.type = type;
}

static __always_inline int read_stack(struct cpu_launch_event *e, __u64 frame)
{
        struct launch_stack stack;

        if (bpf_probe_read_user(&stack, sizeof(stack), (void *)(frame + 8)))
                return -1;
        e->block_z = stack.block_z;
        e->shared_bytes = stack.shared_bytes;
        e->stream = stack.stream;
        return 0;
}

static __always_inline int read_config(struct cpu_launch_event *e, __u64 address)
{
        struct launch_config config;

        if (bpf_probe_read_user(&config, sizeof(config), (void *)address))
                return -1;
        e->grid_x = config.grid_x;
        e->grid_y = config.grid_y;
        e->grid_z = config.grid_z;
        e->block_x = config.block_x;
        e->block_y = config.block_y;
        e->block_z = config.block_z;
        e->shared_bytes = config.shared_bytes;
        e->stream = config.stream;
        return 0;
}

/* (f, grid x, y, z, block x, y, z, shared bytes, stream, ...) */
SEC("uprobe")
int launch_kernel(struct pt_regs *ctx)
{
        __u64 now = bpf_ktime_get_ns();
        struct cpu_thread *t;
        bool again;

        t = call_begin(ctx, now, OPEN_LAUNCH, &again);
        if (!t)
                return 0;
        launch_begin(t, now, ctx->di, CPU_EVENT_LAUNCH);
        t->launch.grid_x = ctx->si;
        t->launch.grid_y = ctx->dx;
        t->launch.grid_z = ctx->cx;
        t->launch.block_x = ctx->r8;
        t->launch.block_y = ctx->r9;
        if (read_stack(&t->launch, ctx->sp)) {
                t->config = ctx->sp;
                t->launch.stream = 0;
        }
        t->launch.stream = stream_of(ctx, t->launch.stream);
        launch_order(t, again, false);
        return 0;
}

/* (const CUlaunchConfig *config, f, ...) */
SEC("uprobe")
int launch_kernel_ex(struct pt_regs *ctx)
{
        __u64 now = bpf_ktime_get_ns();
        struct cpu_thread *t;
        bool again;

        t = call_begin(ctx, now, OPEN_LAUNCH, &again);
        if (!t)
                return 0;
        launch_begin(t, now, ctx->si, CPU_EVENT_LAUNCH);
        if (read_config(&t->launch, ctx->di)) {
                t->config = ctx->di;
                t->launch.stream = 0;
        }
        t->launch.stream = stream_of(ctx, t->launch.stream);
        launch_order(t, again, false);
        return 0;
}

/* (exec, stream) */
SEC("uprobe")
int launch_graph(struct pt_regs *ctx)
{
        __u64 now = bpf_ktime_get_ns();
        struct cpu_thread *t;
        bool again;

        t = call_begin(ctx, now, OPEN_LAUNCH, &again);
        if (!t)
                return 0;
        __builtin_memset(&t->launch, 0, sizeof(t->launch));
        launch_begin(t, now, ctx->di, CPU_EVENT_GRAPH_LAUNCH);
        t->launch.stream = stream_of(ctx, ctx->si);
        launch_order(t, again, true);
        return 0;
}

/*
 * The page with the arguments was not in memory at entry; the call has touched
 * it since.
 */
static __noinline int launch_reread(struct pt_regs *ctx, struct cpu_thread *t)
{
        struct cpu_launch_event e = {};
        bool stack = t->config + 8 == ctx->sp;

        e.stream = t->launch.stream;
        if (stack ? read_stack(&e, t->config) : read_config(&e, t->config))
                return 0;
        if (!stack) {
                t->launch.grid_x = e.grid_x;
                t->launch.grid_y = e.grid_y;
                t->launch.grid_z = e.grid_z;
                t->launch.block_x = e.block_x;
                t->launch.block_y = e.block_y;
        }
        t->launch.block_z = e.block_z;
        t->launch.shared_bytes = e.shared_bytes;
        if (e.stream)
                t->launch.stream = e.stream;
        return 0;
}

static __noinline int launch_lost(struct cpu_thread *t)
{
        struct cpu_process *p = process_get(t->tgid);

        count_loss(CPU_LOSS_RING_LAUNCH);
        if (p)
                __sync_fetch_and_add(&p->launches_lost, 1);
        return 0;
}

SEC("uretprobe")
int launch_return(struct pt_regs *ctx)
{
        struct cpu_thread *t = call_end(ctx, OPEN_LAUNCH);
        struct cpu_launch_event *e;
        __u64 duration;

        if (!t)
                return 0;
        if (t->config)
                launch_reread(ctx, t);
        e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
        if (!e) {
                launch_lost(t);
                return 0;
        }
        *e = t->launch;
        e->result = ctx->ax;
        duration = bpf_ktime_get_ns() - e->enter_ns;
        e->duration_ns = duration > 0xffffffff ? 0xffffffff : duration;
        bpf_ringbuf_submit(e, e->seq % 64 ? BPF_RB_NO_WAKEUP : wakeup_flags());
        return 0;
}
