/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What the ioctl tracepoints and the daemon share. One event for each ioctl on a
 * file of the NVIDIA driver, written when it returns. Numbers and structs of the
 * resource manager (RM): NVIDIA/open-gpu-kernel-modules,
 * src/common/sdk/nvidia/inc (nvos.h, class/, ctrl/, alloc/) and of unified
 * memory (UVM): kernel-open/nvidia-uvm/uvm_ioctl.h; checked on driver 580.
 */
#include "../gpuobs_types.h"

enum driver_device {
        DRIVER_DEVICE_NONE,
        DRIVER_DEVICE_RM,        /* nvidiactl and nvidiaN: minor tells which */
        DRIVER_DEVICE_UVM,       /* nvidia-uvm */
        DRIVER_DEVICE_UVM_TOOLS, /* nvidia-uvm-tools */
        DRIVER_DEVICE_COUNT,
};

/* Which device files are the driver's, by number: the same in every mount namespace. */
struct driver_device_range {
        __u32 major;
        __u32 first_minor;
        __u32 last_minor;
        __u32 device; /* enum driver_device; 0: no entry */
};

#define DRIVER_DEVICE_RANGES 4

#define DRIVER_RM_MAJOR         195
#define DRIVER_RM_CONTROL_MINOR 255 /* nvidiactl */

/* RM's requests: _IOC type and numbers. Those of UVM are small plain numbers. */
#define DRIVER_RM_TYPE            'F'
#define DRIVER_RM_FREE            0x29
#define DRIVER_RM_CONTROL         0x2a
#define DRIVER_RM_ALLOC           0x2b
#define DRIVER_RM_XFER            0xd3 /* wraps another request: number, size, address */
#define DRIVER_UVM_REQUESTS       0x100
#define DRIVER_UVM_INITIALIZE     0x30000001
#define DRIVER_UVM_DEINITIALIZE   0x30000002
#define DRIVER_UVM_REQUESTS_LARGE 0x30000000 /* with the four low bits for the number */

#define DRIVER_CONTROL_SET_TIMESLICE 0xa06c0103 /* of a channel group (ctrla06c.h) */

/* Classes of objects that are looked into. */
#define DRIVER_CLASS_CLIENT            0x0041
#define DRIVER_CLASS_DEVICE            0x0080
#define DRIVER_CLASS_MEMORY_SYSTEM     0x003e
#define DRIVER_CLASS_MEMORY_LOCAL      0x0040
#define DRIVER_CLASS_MEMORY_VIRTUAL    0x50a0
#define DRIVER_CLASS_MEMORY_DEVICELESS 0x90ce
#define DRIVER_CLASS_CHANNEL_GROUP     0xa06c
#define DRIVER_CLASS_CHANNEL           0x006f /* low byte of all channel classes: 0xa06f .. 0xca6f */
#define DRIVER_CLASS_COMPUTE           0x00c0 /* the same of what kernels are given to: 0xcbc0 */

enum driver_has {
        DRIVER_HAS_ARGUMENT = 1, /* client, parent, object, what could be read */
        DRIVER_HAS_STATUS = 2,   /* status could be read; it means something if result is 0 */
        DRIVER_HAS_BYTES = 4,
        DRIVER_HAS_DETAIL = 8,      /* of a device: its instance; of a channel group: its engine; of
                                       DRIVER_CONTROL_SET_TIMESLICE: us */
        DRIVER_HAS_CONTEXT_ID = 16, /* of a channel: what the context-switch trace calls it */
};

struct driver_call_event {
        __u64 enter_ns;
        __u64 bytes;       /* size of allocated memory */
        __u32 duration_ns; /* 4.29 s at most */
        __u32 tgid;
        __u32 tid;
        __s32 result;  /* of the system call: 0, positive, -errno */
        __u32 request; /* as passed; inside DRIVER_RM_XFER: the wrapped one */
        __s32 fd;
        __u32 client;
        __u32 parent;
        __u32 object;
        __u32 what;   /* class of an allocation, command of a control */
        __u32 status; /* NV_STATUS */
        __u32 detail;
        __u32 context_id;
        __u16 minor;
        __u8 device; /* enum driver_device */
        __u8 has;    /* enum driver_has */
};
_Static_assert(sizeof(struct driver_call_event) == 72, "no hole");

/* Events that were not written, per CPU. */
enum driver_loss {
        DRIVER_LOSS_RING,   /* the ring buffer was full */
        DRIVER_LOSS_THREAD, /* no memory for the thread's state */
        DRIVER_LOSS_COUNT,
};
