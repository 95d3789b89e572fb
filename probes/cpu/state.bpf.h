/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Maps, loss counters, and the state of threads, processes and contexts. */
#include "../bpf/gpuobs_core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "cpu_abi.h"
#include "cpu_state_abi.h"
#include "../agent/launch_abi.h"
#include "../device/device_abi.h"

#define __noinline __attribute__((noinline))
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif

/*
 * An inner call lies at most this far down the stack from the outer one; a frame
 * further away is another stack (a fibre), and the open call was abandoned.
 */
#define NESTED_STACK_MAX (1 << 20)

/*
 * An open call in which another one begins so much later is taken for abandoned,
 * lest a thread go unseen for good. Loading a large library compiles for seconds.
 */
#define OPEN_CALL_NS_MAX 60000000000ULL

#define CONTEXT_STACK_MAX 8

enum open_kind {
        OPEN_LAUNCH = 1,
        OPEN_CALL,
};

struct cpu_call {
        __u64 enter_ns; /* first, as in a launch event */
        __u64 cookie;
        __u64 args[CPU_ARG_MAX];
        __u64 copy_bytes; /* of a 2D or 3D copy */
        __u64 copy_address;
        __u32 context;
        __u32 launch_seq;
        __u32 kernels; /* kernel launches entered in the context */
        __u32 copy_operation;
};

struct cpu_thread {
        __u64 frame;    /* stack pointer at the entry of the open call, 0 when none is */
        __u64 function; /* address of its first instruction */
        __u64 config;   /* what the entry could not read: launch config, or the stack */
        __u32 kind;     /* enum open_kind */
        __u32 pad;
        __u32 tgid;
        __u32 tid;
        __u32 context; /* index of the current context; 0 unknown */
        __u32 stack_count;
        __u32 stack[CONTEXT_STACK_MAX];
        union {
                __u64 enter_ns;
                struct cpu_launch_event launch;
                struct cpu_call call;
        };
};

/* Of a thread that creates named handles. */
struct cpu_named_event {
        struct cpu_handle_event head;
        char name[CPU_NAME_MAX + 8];
};

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 8 << 20);
} events SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct cpu_thread);
} threads SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct cpu_named_event);
} names SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, CPU_CONTEXT_MAX);
        __type(key, __u32);
        __type(value, struct cpu_context);
} contexts SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, CPU_CONTEXT_MAX);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, struct cpu_context_key);
        __type(value, __u32);
} context_index SEC(".maps");

/* Indexes that are not in use; filled by the daemon, which also gives back those that end. */
struct {
        __uint(type, BPF_MAP_TYPE_QUEUE);
        __uint(max_entries, CPU_CONTEXT_MAX);
        __uint(key_size, 0);
        __uint(value_size, sizeof(__u32));
} free_contexts SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_HASH);
        __uint(max_entries, 65536);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, __u32);
        __type(value, struct cpu_process);
} processes SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, CPU_LOSS_COUNT);
        __type(key, __u32);
        __type(value, __u64);
} cpu_losses SEC(".maps");

struct launch_map {
        __uint(type, BPF_MAP_TYPE_ARRAY);
        __uint(max_entries, AGENT_LAUNCH_ELEMENTS);
        __uint(map_flags, BPF_F_MMAPABLE);
        __uint(key_size, sizeof(__u32));
        __uint(value_size, AGENT_LAUNCH_ELEMENT);
};

/* By tgid, the launch map of each process that records its launches by itself. */
struct {
        __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
        __uint(max_entries, 4096);
        __type(key, __u32);
        __array(values, struct launch_map);
} launch_maps SEC(".maps");

/* How many those are, kept by the daemon, so that the others need not look. */
__u32 launch_map_count;

/* Wake the daemon before its timer does once this much waits in the ring; set before load. */
const volatile __u64 wakeup_bytes = 1 << 20;

/*
 * The PID namespace the daemon runs in, when it is not the initial one (0): the
 * ids it knows processes by are that namespace's. Set before load.
 */
const volatile __u64 pid_ns_device = 0;
const volatile __u64 pid_ns_inode = 0;

/* tgid << 32 | tid as the daemon sees them; 0: a process of another namespace, not ours to see. */
static __always_inline __u64 current_pid_tgid(void)
{
        struct bpf_pidns_info ns = {};

        if (!pid_ns_inode)
                return bpf_get_current_pid_tgid();
        if (bpf_get_ns_current_pid_tgid(pid_ns_device, pid_ns_inode, &ns, sizeof(ns)))
                return 0;
        return (__u64)ns.tgid << 32 | ns.pid;
}

static __always_inline void count_loss(enum cpu_loss which)
{
        __u32 key = which;
        __u64 *count = bpf_map_lookup_elem(&cpu_losses, &key);

        /* A program may be preempted by another on the same CPU: hence atomic. */
        if (count)
                __sync_fetch_and_add(count, 1);
}

static __always_inline __u64 wakeup_flags(void)
{
        return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > wakeup_bytes ? BPF_RB_FORCE_WAKEUP
                                                                            : BPF_RB_NO_WAKEUP;
}

/* Woken at once: who the process is can be read in /proc only while it lives. */
static __noinline int emit_first_call(__u32 tgid)
{
        struct task_struct *task = (struct task_struct *)bpf_get_current_task();
        struct cpu_process_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

        if (!e) {
                count_loss(CPU_LOSS_RING_PROCESS);
                return 0;
        }
        __builtin_memset(e, 0, sizeof(*e));
        e->ts_ns = bpf_ktime_get_ns();
        BPF_CORE_READ_INTO(&e->comm, task, group_leader, comm);
        e->tgid = e->tid = tgid;
        e->uid = (__u32)bpf_get_current_uid_gid();
        e->what = CPU_PROCESS_FIRST;
        e->started_ns = BPF_CORE_READ(task, group_leader, start_boottime);
        e->type = CPU_EVENT_PROCESS;
        bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
        return 0;
}

/* Of the calling process. */
static __noinline struct cpu_process *process_get(__u32 tgid)
{
        struct cpu_process *p = bpf_map_lookup_elem(&processes, &tgid);
        struct cpu_process fresh = {};

        if (p)
                return p;
        fresh.generation = (__u32)bpf_ktime_get_ns();
        if (!bpf_map_update_elem(&processes, &tgid, &fresh, BPF_NOEXIST))
                emit_first_call(tgid);
        return bpf_map_lookup_elem(&processes, &tgid);
}

/* A thread's first call; what is known under its process's id may be of an earlier process. */
static __noinline void process_first_call(__u32 tgid)
{
        struct cpu_process *p = process_get(tgid);

        if (p && p->ended) {
                bpf_map_delete_elem(&processes, &tgid);
                p = process_get(tgid);
        }
        if (!p)
                count_loss(CPU_LOSS_THREAD_STATE);
}

/* The thread's state, made when it is not there yet. NULL: no memory, or not ours to see. */
static __always_inline struct cpu_thread *thread_get(void)
{
        struct cpu_thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL,
                                                    BPF_LOCAL_STORAGE_GET_F_CREATE);
        __u64 pid_tgid;

        if (!t) {
                count_loss(CPU_LOSS_THREAD_STATE);
                return NULL;
        }
        if (t->tgid)
                return t;
        pid_tgid = current_pid_tgid();
        if (!pid_tgid)
                return NULL;
        t->tgid = pid_tgid >> 32;
        t->tid = (__u32)pid_tgid;
        process_first_call(t->tgid);
        return t;
}

/*
 * Whether the open call is still running: in place of its return address then
 * stands the kernel's trampoline. It does not when the thread left the call by
 * longjmp or an exception and has used that part of the stack since.
 */
static __noinline bool is_running(const struct cpu_thread *t, __u64 now)
{
        struct task_struct *task = (struct task_struct *)bpf_get_current_task();
        __u64 trampoline = BPF_CORE_READ(task, mm, uprobes_state.xol_area, vaddr);
        __u64 return_address = 0;

        bpf_probe_read_user(&return_address, sizeof(return_address), (void *)t->frame);
        return trampoline && return_address == trampoline && now - t->enter_ns < OPEN_CALL_NS_MAX;
}

/*
 * A call begins. NULL when it is part of an open one (called, or jumped to with
 * the stack pointer where it was), or there is no memory. ret_again: a second
 * probe on the same call (the file was attached to through two mounts), or the
 * call before at this place never returned.
 */
static __always_inline struct cpu_thread *call_begin(struct pt_regs *ctx, __u64 now,
                                                     enum open_kind kind, bool *ret_again)
{
        struct cpu_thread *t = thread_get();
        __u64 sp = ctx->sp;

        if (!t)
                return NULL;
        *ret_again = t->frame == sp && t->function == ctx->ip;
        if (t->frame && !*ret_again && sp <= t->frame && t->frame - sp < NESTED_STACK_MAX &&
            is_running(t, now))
                return NULL;
        t->frame = sp;
        t->function = ctx->ip;
        t->kind = kind;
        return t;
}

/*
 * The state if this return is the open call's: the return address has been
 * popped. A function that was jumped to returns with the same stack pointer.
 */
static __always_inline struct cpu_thread *call_end(struct pt_regs *ctx, enum open_kind kind)
{
        struct cpu_thread *t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);

        if (!t || ctx->sp != t->frame + 8 || t->kind != kind)
                return NULL;
        t->frame = 0;
        return t;
}

/* ---- contexts ---- */

#define HANDLE_DESTROYED 0x100

/*
 * An event about a handle without a name. kind: enum cpu_handle_kind, with
 * HANDLE_DESTROYED. Returns false when the ring is full.
 */
static __noinline bool emit_handle(const struct cpu_thread *t, __u64 handle, __u64 parent,
                                   __u32 context, __u32 kind)
{
        struct {
                struct cpu_handle_event head;
                __u64 name;
        } * e;

        e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
        if (!e) {
                count_loss(CPU_LOSS_RING_HANDLE);
                return false;
        }
        __builtin_memset(e, 0, sizeof(*e));
        e->head.ts_ns = bpf_ktime_get_ns();
        e->head.handle = handle;
        e->head.parent = parent;
        e->head.context = context;
        e->head.tgid = t->tgid;
        e->head.tid = t->tid;
        e->head.kind = kind;
        e->head.destroyed = kind >> 8;
        e->head.type = CPU_EVENT_HANDLE;
        bpf_ringbuf_submit(e, wakeup_flags());
        return true;
}

static __always_inline __u32 context_find(__u32 tgid, __u32 generation, __u64 handle)
{
        struct cpu_context_key key = {handle, tgid, generation};
        __u32 *index = bpf_map_lookup_elem(&context_index, &key);

        return index ? *index : 0;
}

/*
 * The context that was current before the probes looked and of which only its
 * use is known (handle 0) turns out to be this one: the first that the process
 * makes current, or retains, afterwards.
 */
static __always_inline __u32 context_adopt(const struct cpu_thread *t, struct cpu_process *p,
                                           __u64 handle)
{
        struct cpu_context_key key = {0, t->tgid, p->generation};
        __u32 index = p->first_context;
        struct cpu_context *c = bpf_map_lookup_elem(&contexts, &index);

        if (!c || !index || c->tgid != t->tgid)
                return 0;
        if (__sync_val_compare_and_swap(&c->handle, 0, handle) != 0)
                return 0;
        bpf_map_delete_elem(&context_index, &key);
        key.handle = handle;
        bpf_map_update_elem(&context_index, &key, &index, BPF_NOEXIST);
        return index;
}

static __always_inline __u32 context_add(const struct cpu_thread *t, struct cpu_process *p,
                                         __u64 handle, __u64 device)
{
        struct cpu_context_key key = {handle, t->tgid, p->generation};
        struct cpu_context fresh = {};
        __u32 index;

        if (bpf_map_pop_elem(&free_contexts, &index)) {
                count_loss(CPU_LOSS_CONTEXT_FULL);
                return 0;
        }
        fresh.handle = handle;
        fresh.device = device;
        fresh.tgid = t->tgid;
        bpf_map_update_elem(&contexts, &index, &fresh, BPF_ANY);
        if (bpf_map_update_elem(&context_index, &key, &index, BPF_NOEXIST)) {
                __u32 other = context_find(t->tgid, p->generation, handle);

                /* Another thread was faster. */
                fresh.tgid = 0;
                bpf_map_update_elem(&contexts, &index, &fresh, BPF_ANY);
                bpf_map_push_elem(&free_contexts, &index, BPF_ANY);
                if (!other)
                        count_loss(CPU_LOSS_CONTEXT_FULL);
                return other;
        }
        __sync_val_compare_and_swap(&p->first_context, 0, index);
        emit_handle(t, handle, device, index, CPU_HANDLE_CONTEXT);
        return index;
}

/*
 * Index of a context of the calling process, given one when it is new. handle 0
 * stands for "whatever is current"; fresh: the driver has just made it.
 */
static __noinline __u32 context_get(const struct cpu_thread *t, __u64 handle, __u64 device,
                                    bool fresh)
{
        struct cpu_process *p;
        struct cpu_context *c;
        __u32 index;

        p = process_get(t->tgid);
        if (!p)
                return 0;
        index = context_find(t->tgid, p->generation, handle);
        if (!index && handle && !fresh) {
                index = context_adopt(t, p, handle);
                if (index && device == CPU_DEVICE_UNKNOWN)
                        emit_handle(t, handle, device, index, CPU_HANDLE_CONTEXT);
        }
        if (!index)
                return context_add(t, p, handle, device);
        c = bpf_map_lookup_elem(&contexts, &index);
        if (c && device != CPU_DEVICE_UNKNOWN && c->device != device) {
                c->device = device;
                emit_handle(t, handle, device, index, CPU_HANDLE_CONTEXT);
        }
        return index;
}

/* The context of a thread that never set one: the process's first. make: even if none is known. */
static __noinline __u32 context_default(struct cpu_thread *t, bool make)
{
        struct cpu_process *p;
        struct cpu_context *c;
        __u32 index;

        p = process_get(t->tgid);
        if (!p)
                return 0;
        index = p->first_context;
        c = bpf_map_lookup_elem(&contexts, &index);
        if (!index || !c || c->tgid != t->tgid)
                index = 0;
        if (!index && make)
                index = context_get(t, 0, CPU_DEVICE_UNKNOWN, false);
        t->context = index;
        return index;
}

/*
 * The thread's current context, NULL when none can be told. The owner is
 * compared because the index may have been given to another process since.
 */
static __always_inline struct cpu_context *context_current(struct cpu_thread *t, __u32 *ret_index)
{
        __u32 index = t->context;
        struct cpu_context *c = bpf_map_lookup_elem(&contexts, &index);

        if (!c || c->tgid != t->tgid) {
                index = context_default(t, true);
                c = index ? bpf_map_lookup_elem(&contexts, &index) : NULL;
        }
        *ret_index = c ? index : 0;
        return c;
}

/* ---- contexts of processes that record their launches ---- */

/*
 * Where the launches of a context are counted by the process itself and, when it
 * runs into a probe, by us: on top of what `seq` and `graphs` had counted before.
 * NULL: nowhere else.
 */
static __noinline struct agent_launch_context *context_shared(const struct cpu_context *c)
{
        struct agent_launch_context *s;
        __u64 handle, found;
        __u32 tgid, i, key;
        void *map;

        if (!launch_map_count || !c)
                return NULL;
        tgid = c->tgid;
        handle = c->handle;
        map = bpf_map_lookup_elem(&launch_maps, &tgid);
        if (!map || !handle)
                return NULL;
        for (i = 0; i < AGENT_LAUNCH_CONTEXTS; i++) {
                key = AGENT_LAUNCH_CONTEXT_0 + i;
                s = bpf_map_lookup_elem(map, &key);
                if (!s)
                        return NULL;
                found = s->handle;
                if (!found)
                        found = __sync_val_compare_and_swap(&s->handle, 0, handle);
                if (!found || found == handle)
                        return s;
        }
        return NULL;
}

/* Kernel launches among those that are counted there, since the context was made. */
static __always_inline __u32 shared_kernels(const struct agent_launch_context *s)
{
        return s->entered - s->graphs - s->retired;
}
