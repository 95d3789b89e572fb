/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/* Life of the processes that use CUDA, and files named libcuda.so* that anybody maps. */
#include "state.bpf.h"

#define PROT_EXEC 4

static const char library_prefix[] = "libcuda.so";
#define LIBRARY_PREFIX_LENGTH (sizeof(library_prefix) - 1)

/* Returns false when the ring is full. */
static __always_inline bool emit_process(__u32 what, __u32 tgid, __u32 tid, __u32 parent,
                                         __u64 launches_lost)
{
        struct cpu_process_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

        if (!e) {
                count_loss(CPU_LOSS_RING_PROCESS);
                return false;
        }
        __builtin_memset(e, 0, sizeof(*e));
        e->ts_ns = bpf_ktime_get_ns();
        e->tgid = tgid;
        e->tid = tid;
        e->parent_tgid = parent;
        e->launches_lost = launches_lost;
        e->what = what;
        e->type = CPU_EVENT_PROCESS;
        bpf_ringbuf_submit(e, wakeup_flags());
        return true;
}

/* The last thread to leave reports; its entry in the map stays until the daemon removes it. */
SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args *ctx)
{
        struct task_struct *task = (struct task_struct *)bpf_get_current_task();
        __u64 pid_tgid = current_pid_tgid();
        __u32 tgid = pid_tgid >> 32;
        struct cpu_process *p = bpf_map_lookup_elem(&processes, &tgid);

        if (!p || BPF_CORE_READ(task, signal, live.counter) > 0)
                return 0;
        if (__sync_val_compare_and_swap(&p->ended, CPU_PROCESS_END_NONE, CPU_PROCESS_END_REPORTED))
                return 0;
        if (!emit_process(CPU_PROCESS_EXIT, tgid, (__u32)pid_tgid, 0, p->launches_lost))
                p->ended = CPU_PROCESS_END_UNREPORTED;
        return 0;
}

/* The new program is another process as far as CUDA is concerned. */
SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args *ctx)
{
        __u64 pid_tgid = current_pid_tgid();
        __u32 tgid = pid_tgid >> 32;
        struct cpu_process *p = bpf_map_lookup_elem(&processes, &tgid);

        if (!p)
                return 0;
        emit_process(CPU_PROCESS_EXEC, tgid, (__u32)pid_tgid, 0, p->launches_lost);
        bpf_map_delete_elem(&processes, &tgid);
        bpf_task_storage_delete(&threads, bpf_get_current_task_btf());
        return 0;
}

/* (parent task, child task); threads are forked too. */
SEC("raw_tp/sched_process_fork")
int process_fork(struct bpf_raw_tracepoint_args *ctx)
{
        __u32 parent = current_pid_tgid() >> 32;
        struct task_struct *child;
        __u32 tgid;

        /* The child's id in a namespace would have to be dug out; it shows by its first call. */
        if (pid_ns_inode || !bpf_map_lookup_elem(&processes, &parent))
                return 0;
        child = (struct task_struct *)ctx->args[1];
        tgid = BPF_CORE_READ(child, tgid);
        if (tgid != parent)
                emit_process(CPU_PROCESS_FORK, tgid, BPF_CORE_READ(child, pid), parent, 0);
        return 0;
}

static __always_inline struct file *file_of(__u32 fd)
{
        struct task_struct *task = (struct task_struct *)bpf_get_current_task();
        struct fdtable *table = BPF_CORE_READ(task, files, fdt);
        struct file *file = NULL;
        struct file **files;

        if (fd >= BPF_CORE_READ(table, max_fds))
                return NULL;
        files = BPF_CORE_READ(table, fd);
        bpf_probe_read_kernel(&file, sizeof(file), files + fd);
        return file;
}

static __always_inline bool is_library(struct file *file)
{
        const unsigned char *name = BPF_CORE_READ(file, f_path.dentry, d_name.name);
        char start[LIBRARY_PREFIX_LENGTH];
        __u32 i;

        if (bpf_probe_read_kernel(start, sizeof(start), name))
                return false;
        for (i = 0; i < LIBRARY_PREFIX_LENGTH; i++)
                if (start[i] != library_prefix[i])
                        return false;
        return true;
}

/* Woken at once: the sooner the probes are on, the less of the process goes unseen. */
SEC("tp/syscalls/sys_enter_mmap")
int library_mapped(struct trace_event_raw_sys_enter *ctx)
{
        struct cpu_process_event *e;
        struct inode *inode;
        struct file *file;
        __u64 pid_tgid;

        if (!(ctx->args[2] & PROT_EXEC) || (__s32)ctx->args[4] < 0)
                return 0;
        file = file_of(ctx->args[4]);
        if (!file || !is_library(file))
                return 0;
        pid_tgid = current_pid_tgid();
        if (!pid_tgid)
                return 0;
        e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
        if (!e) {
                count_loss(CPU_LOSS_RING_PROCESS);
                return 0;
        }
        __builtin_memset(e, 0, sizeof(*e));
        inode = BPF_CORE_READ(file, f_inode);
        e->ts_ns = bpf_ktime_get_ns();
        e->inode = BPF_CORE_READ(inode, i_ino);
        e->device = BPF_CORE_READ(inode, i_sb, s_dev);
        e->tgid = pid_tgid >> 32;
        e->tid = (__u32)pid_tgid;
        e->what = CPU_PROCESS_LIBRARY;
        e->type = CPU_EVENT_PROCESS;
        bpf_ringbuf_submit(e, BPF_RB_FORCE_WAKEUP);
        return 0;
}
