/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * Every probed function that is not a launch. What it does and where its
 * arguments are is in the attach cookie, union cpu_call_cookie.
 */
#include "state.bpf.h"

#define COPY_2D_MEMORY_SRC 16 /* CUDA_MEMCPY2D: byte offsets */
#define COPY_2D_DEVICE_SRC 32
#define COPY_2D_DEVICE_DST 88
#define COPY_2D_WIDTH      112
#define COPY_2D_MEMORY_DST 72
#define COPY_3D_MEMORY_SRC 32 /* CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER */
#define COPY_3D_DEVICE_SRC 48
#define COPY_3D_DEVICE_DST 136
#define COPY_3D_WIDTH      176
#define COPY_3D_MEMORY_DST 120
#define MEMORY_HOST        1 /* CUmemorytype */
#define MEMORY_DEVICE      2
#define MEMORY_ARRAY       3

static __always_inline __u64 call_argument(const struct cpu_call *call, __u32 position)
{
        position &= CPU_ARG_MASK;
        switch (position) {
        case 1:
                return call->args[0];
        case 2:
                return call->args[1];
        case 3:
                return call->args[2];
        case 4:
                return call->args[3];
        case 5:
                return call->args[4];
        case 6:
                return call->args[5];
        default:
                return 0;
        }
}

/* An argument, or what it points to if it is an out-parameter; 0 when unreadable. */
static __always_inline __u64 call_value(const struct cpu_call *call, __u32 position)
{
        __u64 argument = call_argument(call, position), value = 0;

        if (!(position & CPU_ARG_OUT))
                return argument;
        if (!argument || bpf_probe_read_user(&value, sizeof(value), (void *)argument))
                return 0;
        return value;
}

static __always_inline __u64 read_user_u64(__u64 address)
{
        __u64 value = 0;

        bpf_probe_read_user(&value, sizeof(value), (void *)address);
        return value;
}

static __always_inline __u32 copy_direction(__u32 source, __u32 destination)
{
        bool from_device = source == MEMORY_DEVICE || source == MEMORY_ARRAY;
        bool to_device = destination == MEMORY_DEVICE || destination == MEMORY_ARRAY;

        if (source == MEMORY_HOST && to_device)
                return CPU_OP_MEMCPY_HTOD;
        if (from_device && destination == MEMORY_HOST)
                return CPU_OP_MEMCPY_DTOH;
        if (from_device && to_device)
                return CPU_OP_MEMCPY_DTOD;
        return CPU_OP_MEMCPY_OTHER;
}

/* The caller may change the descriptor once the call is back, so it is read at entry. */
static __noinline int copy_read(struct cpu_call *call, bool three)
{
        __u64 base, source, destination;

        base = call->args[0];
        source = (__u32)read_user_u64(base + (three ? COPY_3D_MEMORY_SRC : COPY_2D_MEMORY_SRC));
        destination =
                (__u32)read_user_u64(base + (three ? COPY_3D_MEMORY_DST : COPY_2D_MEMORY_DST));
        base += three ? COPY_3D_WIDTH : COPY_2D_WIDTH;
        call->copy_bytes = read_user_u64(base) * read_user_u64(base + 8);
        if (three)
                call->copy_bytes *= read_user_u64(base + 16);
        call->copy_operation = copy_direction(source, destination);
        base = call->args[0];
        if (destination != MEMORY_HOST)
                call->copy_address =
                        read_user_u64(base + (three ? COPY_3D_DEVICE_DST : COPY_2D_DEVICE_DST));
        else
                call->copy_address =
                        read_user_u64(base + (three ? COPY_3D_DEVICE_SRC : COPY_2D_DEVICE_SRC));
        return 0;
}

/* Operations happen in a context; handles may be made before there is one. */
static __always_inline void call_context(struct cpu_thread *t, union cpu_call_cookie cookie)
{
        struct cpu_call *call = &t->call;
        struct agent_launch_context *s;
        struct cpu_context *c = NULL;
        __u8 action = cookie.action;
        __u32 index = 0;

        call->launch_seq = call->kernels = 0;
        if (action == CPU_CALL_OPERATION && cookie.what == CPU_OP_SYNC_CONTEXT &&
            cookie.handle) { /* cuCtxSynchronize_v2 */
                index = context_get(t, call->args[0], CPU_DEVICE_UNKNOWN, false);
                c = bpf_map_lookup_elem(&contexts, &index);
        } else if (action == CPU_CALL_OPERATION || action == CPU_CALL_INSTANTIATE)
                c = context_current(t, &index);
        else if (action == CPU_CALL_CREATE || action == CPU_CALL_DESTROY)
                index = t->context ? t->context : context_default(t, false);
        call->context = index;
        if (!c)
                return;
        call->launch_seq = c->seq;
        call->kernels = c->seq - c->graphs;
        s = context_shared(c);
        if (!s)
                return;
        call->launch_seq += s->entered;
        call->kernels += shared_kernels(s);
}

SEC("uprobe")
int call_entry(struct pt_regs *ctx)
{
        union cpu_call_cookie cookie = {.value = bpf_get_attach_cookie(ctx)};
        __u64 now = bpf_ktime_get_ns();
        struct cpu_thread *t;
        struct cpu_call *call;
        bool again;

        t = call_begin(ctx, now, OPEN_CALL, &again);
        if (!t)
                return 0;
        call = &t->call;
        call->cookie = cookie.value;
        call->enter_ns = now;
        call->args[0] = ctx->di;
        call->args[1] = ctx->si;
        call->args[2] = ctx->dx;
        call->args[3] = ctx->cx;
        call->args[4] = ctx->r8;
        call->args[5] = ctx->r9;
        if (cookie.flags & (CPU_CALL_COPY_2D | CPU_CALL_COPY_3D))
                copy_read(call, cookie.flags & CPU_CALL_COPY_3D);
        call_context(t, cookie);
        return 0;
}

static __always_inline __u64 call_bytes(const struct cpu_call *call, union cpu_call_cookie cookie)
{
        __u64 bytes = call_argument(call, cookie.bytes);

        if (cookie.bytes & 0xf0)
                bytes *= call_argument(call, cookie.bytes >> 4);
        return bytes << (cookie.flags & CPU_CALL_SHIFT_MASK);
}

static __noinline int call_operation(struct cpu_thread *t, __u32 result)
{
        struct cpu_operation_event *e;
        union cpu_call_cookie cookie;
        struct cpu_call *call = &t->call;
        __u64 duration;

        cookie.value = call->cookie;
        e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
        if (!e) {
                count_loss(CPU_LOSS_RING_OPERATION);
                return 0;
        }
        e->enter_ns = call->enter_ns;
        e->context = call->context;
        e->launch_seq = call->launch_seq;
        e->tgid = t->tgid;
        e->tid = t->tid;
        e->type = CPU_EVENT_OPERATION;
        e->operation =
                cookie.action == CPU_CALL_INSTANTIATE ? CPU_OP_GRAPH_INSTANTIATE : cookie.what;
        e->result = result;
        e->bytes = call_bytes(call, cookie);
        e->address = 0;
        if (!result || !(cookie.address & CPU_ARG_OUT))
                e->address = call_value(call, cookie.address);
        e->stream = call_argument(call, cookie.stream);
        if (!e->stream && (cookie.flags & CPU_CALL_PER_THREAD))
                e->stream = CPU_STREAM_PER_THREAD;
        e->handle = 0;
        if (!result || !(cookie.handle & CPU_ARG_OUT))
                e->handle = call_value(call, cookie.handle);
        if (cookie.flags & (CPU_CALL_COPY_2D | CPU_CALL_COPY_3D)) {
                e->bytes = call->copy_bytes;
                e->address = call->copy_address;
                if (cookie.what == CPU_OP_MEMCPY_OTHER)
                        e->operation = call->copy_operation;
        }
        duration = bpf_ktime_get_ns() - e->enter_ns;
        e->duration_ns = duration > 0xffffffff ? 0xffffffff : duration;
        bpf_ringbuf_submit(e, wakeup_flags());
        return 0;
}

/* A new handle with a name, which may be long: gathered in the thread's storage. */
static __noinline int emit_named(struct cpu_thread *t, __u64 handle, __u64 parent, __u64 name)
{
        struct cpu_named_event *e;
        union cpu_call_cookie cookie;
        __u64 length;
        long n;

        e = bpf_task_storage_get(&names, bpf_get_current_task_btf(), NULL,
                                 BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!e) {
                count_loss(CPU_LOSS_RING_HANDLE);
                return 0;
        }
        cookie.value = t->call.cookie;
        __builtin_memset(&e->head, 0, sizeof(e->head));
        e->head.ts_ns = bpf_ktime_get_ns();
        e->head.handle = handle;
        e->head.parent = parent;
        e->head.context = t->call.context;
        e->head.tgid = t->tgid;
        e->head.tid = t->tid;
        e->head.kind = cookie.what;
        e->head.type = CPU_EVENT_HANDLE;
        n = bpf_probe_read_user_str(e->name, CPU_NAME_MAX + 1, (void *)name);
        length = n > 0 ? n - 1 : 0;
        if (length > CPU_NAME_MAX - 1) {
                length = CPU_NAME_MAX - 1;
                e->head.name_truncated = 1;
        }
        e->name[length & (CPU_NAME_MAX - 1)] = '\0';
        e->head.name_length = length;
        if (bpf_ringbuf_output(&events, e, sizeof(e->head) + (length & (CPU_NAME_MAX - 1)) + 1,
                               wakeup_flags()))
                count_loss(CPU_LOSS_RING_HANDLE);
        return 0;
}

static __always_inline void call_created(struct cpu_thread *t, union cpu_call_cookie cookie)
{
        __u64 handle = call_value(&t->call, cookie.handle);
        __u64 parent = call_argument(&t->call, cookie.parent & 0x0f);

        if (!handle)
                return;
        if (cookie.parent >> 4)
                emit_named(t, handle, parent, call_argument(&t->call, cookie.parent >> 4));
        else
                emit_handle(t, handle, parent, t->call.context, cookie.what);
}

/* ---- the thread's stack of contexts, as the driver keeps it ---- */

static __always_inline void context_push(struct cpu_thread *t, __u32 index)
{
        if (t->stack_count < CONTEXT_STACK_MAX)
                t->stack[t->stack_count & (CONTEXT_STACK_MAX - 1)] = index;
        t->stack_count++;
        t->context = index;
}

static __always_inline void context_pop(struct cpu_thread *t)
{
        __u32 top;

        t->context = 0;
        if (!t->stack_count)
                return;
        t->stack_count--;
        top = t->stack_count - 1;
        if (t->stack_count && top < CONTEXT_STACK_MAX)
                t->context = t->stack[top & (CONTEXT_STACK_MAX - 1)];
}

static __always_inline void context_set(struct cpu_thread *t, __u32 index)
{
        __u32 top = t->stack_count - 1;

        if (!t->stack_count) {
                context_push(t, index);
                return;
        }
        if (top < CONTEXT_STACK_MAX)
                t->stack[top & (CONTEXT_STACK_MAX - 1)] = index;
        t->context = index;
}

static __always_inline void context_destroyed(struct cpu_thread *t, __u64 handle)
{
        struct cpu_process *p = process_get(t->tgid);
        struct cpu_context_key key = {handle, t->tgid, p ? p->generation : 0};
        __u32 index = context_find(key.tgid, key.generation, handle);
        struct cpu_context *c = bpf_map_lookup_elem(&contexts, &index);
        struct agent_launch_context *s;
        __u32 kernels;

        if (!p || !index || !c)
                return;
        if (t->context == index)
                context_pop(t);
        /* Without the event the daemon would not give the index back: leave it known then. */
        if (!emit_handle(t, handle, 0, index, CPU_HANDLE_CONTEXT | HANDLE_DESTROYED))
                return;
        bpf_map_delete_elem(&context_index, &key);
        __sync_val_compare_and_swap(&p->first_context, index, 0);
        kernels = c->seq - c->graphs;
        s = context_shared(c);
        if (s) {
                kernels += shared_kernels(s);
                s->retired = s->entered - s->graphs;
        }
        __sync_fetch_and_add(&p->retired, kernels);
}

static __noinline int call_context_changed(struct cpu_thread *t, __u64 value)
{
        union cpu_call_cookie cookie = {.value = value};
        __u64 handle, device;

        handle = call_value(&t->call, cookie.handle);
        device = cookie.parent ? (__u32)call_argument(&t->call, cookie.parent) : CPU_DEVICE_UNKNOWN;
        switch (cookie.action) {
        case CPU_CALL_CONTEXT_CREATE:
                if (handle)
                        context_push(t, context_get(t, handle, device, true));
                break;
        case CPU_CALL_CONTEXT_RETAIN:
                if (handle)
                        context_get(t, handle, device, false);
                break;
        case CPU_CALL_CONTEXT_DESTROY:
                if (handle)
                        context_destroyed(t, handle);
                break;
        case CPU_CALL_CONTEXT_SET:
                if (handle)
                        context_set(t, context_get(t, handle, device, false));
                else
                        context_pop(t);
                break;
        case CPU_CALL_CONTEXT_PUSH:
                if (handle)
                        context_push(t, context_get(t, handle, device, false));
                break;
        case CPU_CALL_CONTEXT_POP:
                context_pop(t);
                break;
        }
        return 0;
}

/* What it had launched before the synchronise is known to have ended. */
static __always_inline void context_completed(struct cpu_thread *t)
{
        __u32 index = t->call.context;
        struct cpu_context *c = bpf_map_lookup_elem(&contexts, &index);

        if (c && c->tgid == t->tgid)
                c->completed = t->call.kernels;
}

SEC("uretprobe")
int call_return(struct pt_regs *ctx)
{
        struct cpu_thread *t = call_end(ctx, OPEN_CALL);
        union cpu_call_cookie cookie;
        __u32 result = ctx->ax;

        if (!t)
                return 0;
        cookie.value = t->call.cookie;
        switch (cookie.action) {
        case CPU_CALL_INSTANTIATE:
        case CPU_CALL_CREATE:
                if (!result)
                        call_created(t, cookie);
                if (cookie.action == CPU_CALL_CREATE)
                        return 0;
                /* an operation too */
                break;
        case CPU_CALL_OPERATION:
                if (cookie.what == CPU_OP_SYNC_CONTEXT && !result)
                        context_completed(t);
                break;
        case CPU_CALL_DESTROY:
                if (!result)
                        emit_handle(t, call_argument(&t->call, cookie.handle), 0, t->call.context,
                                    cookie.what | HANDLE_DESTROYED);
                return 0;
        default:
                if (!result)
                        call_context_changed(t, cookie.value);
                return 0;
        }
        call_operation(t, result);
        return 0;
}
