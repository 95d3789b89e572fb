/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Calls of the NVIDIA driver: ioctls on its device files, whatever path or mount
 * namespace they were opened through.
 *
 * The tracepoints see every ioctl of the system, so the way out is short: first
 * the request number alone, then the device number of the file. What is known at
 * entry waits in the thread's storage; the argument is read at the return, when
 * the kernel has just copied it, so that the pages are there and the driver's
 * answer is in it.
 */
#include "../bpf/gpuobs_core.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#include "driver_abi.h"

#define MINOR_BITS 20 /* of a device number inside the kernel */

#define REQUEST_TYPE(request)   (((request) >> 8) & 0xff)
#define REQUEST_NUMBER(request) ((request)&0xff)
#define REQUEST_SIZE(request)   (((request) >> 16) & 0x3fff)

/* Offsets inside what parameters of allocations point to. */
#define MEMORY_SIZE        64  /* NV_MEMORY_ALLOCATION_PARAMS */
#define GROUP_ENGINE       12  /* NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS */
#define CHANNEL_ENGINE     128 /* NV_CHANNEL_ALLOC_PARAMS */
#define CHANNEL_CONTEXT_ID 132

#define CONTROL_PARAMETERS 16 /* NVOS54 */

/* Sizes of RM_ALLOC's argument: NVOS21 and NVOS64, which has another word before the status. */
#define ALLOC_SMALL        32
#define ALLOC_SMALL_STATUS 28
#define ALLOC_STATUS       40

struct pending {
        __u64 enter_ns; /* 0: no call of the driver is under way */
        __u64 argument;
        __u32 request;
        __s32 fd;
        __u16 minor;
        __u16 device;
};

struct {
        __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
        __uint(map_flags, BPF_F_NO_PREALLOC);
        __type(key, int);
        __type(value, struct pending);
} calls SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_RINGBUF);
        __uint(max_entries, 1 << 20);
} events SEC(".maps");

struct {
        __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
        __uint(max_entries, DRIVER_LOSS_COUNT);
        __type(key, __u32);
        __type(value, __u64);
} losses SEC(".maps");

/* Written by the daemon: UVM's major number is known once its module is loaded. */
struct driver_device_range ranges[DRIVER_DEVICE_RANGES];

/* The daemon's pid namespace when it is not the initial one. */
const volatile __u64 pid_ns_device = 0;
const volatile __u64 pid_ns_inode = 0;

/* The process that looks, as it knows itself: its own calls are left out. 0: they are not. */
const volatile __u32 own_tgid = 0;

/* Where a request's status is in its argument, by number; 0: not known. */
const volatile __u8 rm_status_at[256] = {
        [0x27] = 40, [0x29] = 12, [0x2a] = 28, [0x34] = 24, [0x4e] = 40, [0x4f] = 24, [0x5e] = 32,
};
const volatile __u8 uvm_status_at[256] = {
        [23] = 8,  [24] = 8,  [25] = 28, [26] = 16, [27] = 48, [28] = 8,  [29] = 32,
        [30] = 32, [31] = 24, [34] = 8,  [37] = 36, [38] = 16, [39] = 4,  [42] = 36,
        [43] = 16, [44] = 16, [45] = 16, [46] = 32, [47] = 32, [51] = 72, [53] = 24,
        [56] = 48, [57] = 4,  [58] = 8,  [59] = 8,  [65] = 32, [66] = 32, [70] = 20,
        [71] = 20, [72] = 16, [73] = 16, [74] = 32, [75] = 4,  [80] = 24,
};

static __always_inline void count_loss(__u32 which)
{
        __u64 *count = bpf_map_lookup_elem(&losses, &which);

        if (count)
                __sync_fetch_and_add(count, 1);
}

static __always_inline __u64 current_pid_tgid(void)
{
        struct bpf_pidns_info ns = {};

        if (!pid_ns_inode)
                return bpf_get_current_pid_tgid();
        if (bpf_get_ns_current_pid_tgid(pid_ns_device, pid_ns_inode, &ns, sizeof(ns)))
                return 0;
        return (__u64)ns.tgid << 32 | ns.pid;
}

/* ---- entry ---- */

static __always_inline bool may_be_the_drivers(__u32 request)
{
        return REQUEST_TYPE(request) == DRIVER_RM_TYPE || request < DRIVER_UVM_REQUESTS ||
               (request & ~0xfU) == DRIVER_UVM_REQUESTS_LARGE;
}

/* Device number of an open file; 0: none. */
static __always_inline __u32 device_of(__u32 fd)
{
        struct task_struct *task = (struct task_struct *)bpf_get_current_task();
        struct fdtable *table = BPF_CORE_READ(task, files, fdt);
        struct file *file = NULL;
        struct file **files;

        if (fd >= BPF_CORE_READ(table, max_fds))
                return 0;
        files = BPF_CORE_READ(table, fd);
        if (bpf_probe_read_kernel(&file, sizeof(file), files + fd) || !file)
                return 0;
        return BPF_CORE_READ(file, f_inode, i_rdev);
}

static __always_inline __u16 classify(__u32 major, __u32 minor)
{
        for (__u32 i = 0; i < DRIVER_DEVICE_RANGES; i++) {
                const volatile struct driver_device_range *r = &ranges[i];

                if (r->device && r->major == major && minor >= r->first_minor &&
                    minor <= r->last_minor)
                        return r->device;
        }
        return DRIVER_DEVICE_NONE;
}

SEC("tp/syscalls/sys_enter_ioctl")
int ioctl_enter(struct trace_event_raw_sys_enter *ctx)
{
        __u32 request = ctx->args[1], number;
        struct pending *p;
        __u16 device;

        if (!may_be_the_drivers(request))
                return 0;
        number = device_of(ctx->args[0]);
        device = classify(number >> MINOR_BITS, number & ((1U << MINOR_BITS) - 1));
        if (device == DRIVER_DEVICE_NONE)
                return 0;
        if (own_tgid && current_pid_tgid() >> 32 == own_tgid)
                return 0;
        p = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL,
                                 BPF_LOCAL_STORAGE_GET_F_CREATE);
        if (!p) {
                count_loss(DRIVER_LOSS_THREAD);
                return 0;
        }
        p->argument = ctx->args[2];
        p->request = request;
        p->fd = ctx->args[0];
        p->minor = number;
        p->device = device;
        p->enter_ns = bpf_ktime_get_ns();
        return 0;
}

/* ---- return ---- */

static __always_inline bool read_u32(__u64 address, __u32 *ret)
{
        return bpf_probe_read_user(ret, sizeof(*ret), (void *)address) == 0;
}

static __always_inline bool read_u64(__u64 address, __u64 *ret)
{
        return bpf_probe_read_user(ret, sizeof(*ret), (void *)address) == 0;
}

static __always_inline void read_status(struct driver_call_event *e, __u64 address)
{
        if (read_u32(address, &e->status))
                e->has |= DRIVER_HAS_STATUS;
}

static __always_inline bool is_memory(__u32 class)
{
        return class == DRIVER_CLASS_MEMORY_SYSTEM || class == DRIVER_CLASS_MEMORY_LOCAL ||
               class == DRIVER_CLASS_MEMORY_VIRTUAL || class == DRIVER_CLASS_MEMORY_DEVICELESS;
}

static __always_inline void read_parameters(struct driver_call_event *e, __u64 parameters)
{
        if (!parameters)
                return;
        if (is_memory(e->what)) {
                if (read_u64(parameters + MEMORY_SIZE, &e->bytes))
                        e->has |= DRIVER_HAS_BYTES;
        } else if (e->what == DRIVER_CLASS_DEVICE) {
                if (read_u32(parameters, &e->detail))
                        e->has |= DRIVER_HAS_DETAIL;
        } else if (e->what == DRIVER_CLASS_CHANNEL_GROUP) {
                if (read_u32(parameters + GROUP_ENGINE, &e->detail))
                        e->has |= DRIVER_HAS_DETAIL;
        } else if ((e->what & 0xff) == DRIVER_CLASS_CHANNEL) {
                if (read_u32(parameters + CHANNEL_ENGINE, &e->detail))
                        e->has |= DRIVER_HAS_DETAIL;
                if (read_u32(parameters + CHANNEL_CONTEXT_ID, &e->context_id))
                        e->has |= DRIVER_HAS_CONTEXT_ID;
        }
}

static __always_inline void read_control(struct driver_call_event *e, __u64 argument)
{
        __u64 parameters, us;

        if (e->what == DRIVER_CONTROL_SET_TIMESLICE &&
            read_u64(argument + CONTROL_PARAMETERS, &parameters) && read_u64(parameters, &us) &&
            us <= 0xffffffff) {
                e->detail = us;
                e->has |= DRIVER_HAS_DETAIL;
        }
}

/* The arguments of all three begin with four words and, of two, a pointer to parameters. */
static __always_inline void read_rm(struct driver_call_event *e, __u64 argument, __u32 size)
{
        __u32 number = REQUEST_NUMBER(e->request), words[4];
        __u64 parameters = 0;

        if (number == DRIVER_RM_FREE || number == DRIVER_RM_CONTROL || number == DRIVER_RM_ALLOC) {
                if (bpf_probe_read_user(words, sizeof(words), (void *)argument))
                        return;
                e->has |= DRIVER_HAS_ARGUMENT;
                e->client = words[0];
        }
        switch (number) {
        case DRIVER_RM_FREE:
                e->parent = words[1];
                e->object = words[2];
                break;
        case DRIVER_RM_CONTROL:
                e->object = words[1];
                e->what = words[2];
                read_control(e, argument);
                break;
        case DRIVER_RM_ALLOC:
                e->parent = words[1];
                e->object = words[2];
                e->what = words[3];
                if (read_u64(argument + sizeof(words), &parameters))
                        read_parameters(e, parameters);
                read_status(e,
                            argument + (size == ALLOC_SMALL ? ALLOC_SMALL_STATUS : ALLOC_STATUS));
                return;
        }
        if (rm_status_at[number])
                read_status(e, argument + rm_status_at[number]);
}

/* A request that does not fit the number's size field is wrapped: {number, size, address}. */
static __always_inline void read_call(struct driver_call_event *e, __u64 argument)
{
        __u32 size = REQUEST_SIZE(e->request), wrapped[2];
        __u64 address;

        if (e->device != DRIVER_DEVICE_RM) {
                __u32 number = e->request;

                if (number < DRIVER_UVM_REQUESTS && uvm_status_at[number & 0xff])
                        read_status(e, argument + uvm_status_at[number & 0xff]);
                else if (number == DRIVER_UVM_INITIALIZE)
                        read_status(e, argument + 8);
                return;
        }
        if (REQUEST_TYPE(e->request) != DRIVER_RM_TYPE)
                return;
        if (REQUEST_NUMBER(e->request) == DRIVER_RM_XFER &&
            !bpf_probe_read_user(wrapped, sizeof(wrapped), (void *)argument) &&
            read_u64(argument + sizeof(wrapped), &address)) {
                e->request =
                        DRIVER_RM_TYPE << 8 | (wrapped[0] & 0xff) | (wrapped[1] & 0x3fff) << 16;
                size = wrapped[1];
                argument = address;
        }
        read_rm(e, argument, size);
}

/* Only written through a pointer, the event's type would not be in the object; a test compares it.
 */
static __always_inline void keep_types(void)
{
        asm volatile("" ::"r"((__u64)bpf_core_type_id_local(struct driver_call_event)));
}

SEC("tp/syscalls/sys_exit_ioctl")
int ioctl_exit(struct trace_event_raw_sys_exit *ctx)
{
        struct pending *p = bpf_task_storage_get(&calls, bpf_get_current_task_btf(), NULL, 0);
        struct driver_call_event *e;
        __u64 pid_tgid, duration;

        if (!p || !p->enter_ns)
                return 0;
        keep_types();
        duration = bpf_ktime_get_ns() - p->enter_ns;
        pid_tgid = current_pid_tgid();
        e = pid_tgid ? bpf_ringbuf_reserve(&events, sizeof(*e), 0) : NULL;
        if (e) {
                __builtin_memset(e, 0, sizeof(*e));
                e->enter_ns = p->enter_ns;
                e->duration_ns = duration > 0xffffffff ? 0xffffffff : duration;
                e->tgid = pid_tgid >> 32;
                e->tid = pid_tgid;
                e->result = ctx->ret;
                e->request = p->request;
                e->fd = p->fd;
                e->minor = p->minor;
                e->device = p->device;
                read_call(e, p->argument);
                bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
        } else if (pid_tgid) {
                count_loss(DRIVER_LOSS_RING);
        }
        p->enter_ns = 0;
        return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
