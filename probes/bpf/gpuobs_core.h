/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * The types our eBPF programs use, instead of a vmlinux.h of the build machine:
 * kernel structs list only the members we read and are relocated (CO-RE) to the
 * running kernel's layout at load.
 */
typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

enum bpf_map_type {
        BPF_MAP_TYPE_HASH = 1,
        BPF_MAP_TYPE_ARRAY = 2,
        BPF_MAP_TYPE_PERCPU_ARRAY = 6,
        BPF_MAP_TYPE_LRU_HASH = 9,
        BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
        BPF_MAP_TYPE_HASH_OF_MAPS = 13,
        BPF_MAP_TYPE_QUEUE = 22,
        BPF_MAP_TYPE_RINGBUF = 27,
        BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
        BPF_ANY = 0,
        BPF_NOEXIST = 1,
        BPF_EXIST = 2,
};

enum {
        BPF_F_NO_PREALLOC = 1U << 0,
        BPF_F_MMAPABLE = 1U << 10,
};

/* Of bpf_get_ns_current_pid_tgid(). */
struct bpf_pidns_info {
        __u32 pid;
        __u32 tgid;
};

enum {
        BPF_RB_NO_WAKEUP = 1,
        BPF_RB_FORCE_WAKEUP = 2,
        BPF_RB_AVAIL_DATA = 0,
};

enum {
        BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

/*
 * Contexts that programs are handed. Registers of a probed function: the
 * kernel's struct pt_regs, part of its ABI, hence not relocated.
 */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
        unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8;
        unsigned long ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
};
#endif

struct bpf_raw_tracepoint_args {
        __u64 args[0];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct trace_entry {
        unsigned short type;
        unsigned char flags;
        unsigned char preempt_count;
        int pid;
};

struct trace_event_raw_sys_enter {
        struct trace_entry ent;
        long id;
        unsigned long args[6];
};

struct trace_event_raw_sys_exit {
        struct trace_entry ent;
        long id;
        long ret;
};

/* Kernel objects: only what is read of them. */
typedef struct {
        int counter;
} atomic_t;

struct super_block {
        __u32 s_dev;
};

struct inode {
        unsigned short i_mode;
        __u32 i_rdev;
        unsigned long i_ino;
        struct super_block *i_sb;
};

struct qstr {
        const unsigned char *name;
};

struct dentry {
        struct qstr d_name;
        struct inode *d_inode;
};

struct path {
        struct dentry *dentry;
};

struct file {
        struct path f_path;
        struct inode *f_inode;
};

struct fdtable {
        unsigned int max_fds;
        struct file **fd;
};

struct files_struct {
        struct fdtable *fdt;
};

struct signal_struct {
        atomic_t live;
};

struct xol_area {
        unsigned long vaddr;
};

struct uprobes_state {
        struct xol_area *xol_area;
};

struct mm_struct {
        struct uprobes_state uprobes_state;
};

struct task_struct {
        struct mm_struct *mm;
        int pid;
        int tgid;
        struct files_struct *files;
        struct signal_struct *signal;
        struct task_struct *group_leader;
        unsigned long long start_boottime;
        char comm[16];
};

#pragma clang attribute pop
