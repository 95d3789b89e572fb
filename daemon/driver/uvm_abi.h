/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The user interface of the UVM driver (managed memory): ioctls of
 * /dev/nvidia-uvm and /dev/nvidia-uvm-tools, the control page and the entries of
 * an event queue. Facts: NVIDIA/open-gpu-kernel-modules, kernel-open/nvidia-uvm
 * (uvm_ioctl.h, uvm_types.h, uvm_tools.c), driver 580; offsets of the queue
 * checked on an H200.
 *
 * An ioctl's number carries neither direction nor size, and the driver copies as
 * much as its own struct has: arguments are passed in a union with room to
 * spare, so that a driver with a longer struct finds memory of ours behind it.
 */
#include <stdint.h>

/* On the target's /dev/nvidia-uvm. */
#define UVM_SET_PREFERRED_LOCATION   42u
#define UVM_UNSET_PREFERRED_LOCATION 43u
#define UVM_ENABLE_READ_DUPLICATION  44u
#define UVM_DISABLE_READ_DUPLICATION 45u
#define UVM_SET_ACCESSED_BY          46u
#define UVM_UNSET_ACCESSED_BY        47u
#define UVM_MIGRATE                  51u
#define UVM_GET_PROCESSOR_UUIDS      64u /* TOOLS_GET_PROCESSOR_UUID_TABLE */
#define UVM_FLUSH_EVENTS             67u
#define UVM_DISCARD                  80u

/* On /dev/nvidia-uvm-tools. */
#define UVM_TOOLS_INIT          56u
#define UVM_TOOLS_SET_THRESHOLD 57u
#define UVM_TOOLS_ENABLE        58u

#define UVM_MIGRATE_ASYNC 1u
#define UVM_DISCARD_UNMAP 1u /* the pages are unmapped: writing to them makes them count again */

#define UVM_PROCESSORS_MAX 33 /* CPU (index 0) and 32 GPUs */
#define UVM_UUID_BYTES     16

struct uvm_range_argument { /* unset preferred location, read duplication */
        uint64_t address, bytes;
        uint32_t status;
};

struct uvm_preferred_argument {
        uint64_t address, bytes;
        uint8_t processor[UVM_UUID_BYTES];
        int32_t numa_node; /* of the CPU; -1 any */
        uint32_t status;
};
_Static_assert(sizeof(struct uvm_preferred_argument) == 40, "UVM_SET_PREFERRED_LOCATION_PARAMS");

struct uvm_accessed_argument {
        uint64_t address, bytes;
        uint8_t processor[UVM_UUID_BYTES];
        uint32_t status;
};
_Static_assert(__builtin_offsetof(struct uvm_accessed_argument, status) == 32,
               "UVM_SET_ACCESSED_BY_PARAMS");

struct uvm_migrate_argument {
        uint64_t address, bytes;
        uint8_t processor[UVM_UUID_BYTES];
        uint32_t flags;
        uint32_t pad;
        uint64_t semaphore_address;
        uint32_t semaphore_payload;
        int32_t numa_node;                          /* of the CPU; -1 any */
        uint64_t user_space_start, user_space_size; /* out: pageable memory, left to the caller */
        uint32_t status;
};
_Static_assert(__builtin_offsetof(struct uvm_migrate_argument, status) == 72, "UVM_MIGRATE_PARAMS");

struct uvm_discard_argument {
        uint64_t address, bytes, flags;
        uint32_t status;
};

struct uvm_uuids_argument {
        uint64_t table; /* of UVM_PROCESSORS_MAX UUIDs */
        uint32_t status;
};

struct uvm_flush_argument {
        uint32_t status;
};

struct uvm_tools_init_argument {
        uint64_t queue;
        uint64_t entries; /* a power of two */
        uint64_t control;
        uint8_t processor[UVM_UUID_BYTES]; /* unused for queues */
        uint32_t all_processors;
        uint32_t uvm_fd;
        uint32_t status;
};
_Static_assert(__builtin_offsetof(struct uvm_tools_init_argument, status) == 48,
               "UVM_TOOLS_INIT_EVENT_TRACKER_PARAMS");

struct uvm_threshold_argument {
        uint32_t entries;
        uint32_t status;
};

struct uvm_enable_argument {
        uint64_t kinds; /* a bit per kind */
        uint32_t status;
};

union uvm_argument {
        struct uvm_range_argument range;
        struct uvm_preferred_argument preferred;
        struct uvm_accessed_argument accessed;
        struct uvm_migrate_argument migrate;
        struct uvm_discard_argument discard;
        struct uvm_uuids_argument uuids;
        struct uvm_flush_argument flush;
        struct uvm_tools_init_argument tools_init;
        struct uvm_threshold_argument threshold;
        struct uvm_enable_argument enable;
        uint8_t room[256];
};

/* ---- event queue ---- */

#define UVM_ENTRY_BYTES   64
#define UVM_CONTROL_KINDS 64 /* counters in the control page: kinds, and the driver's own tests */

/* Indices count entries modulo the queue's size; the driver reads get_*, we read the rest. */
struct uvm_control {
        uint32_t get_ahead, get_behind;
        uint32_t put_ahead, put_behind;
        uint64_t dropped[UVM_CONTROL_KINDS];
};
_Static_assert(sizeof(struct uvm_control) == 528, "UvmToolsEventControlData");

/* The first byte of an entry. */
enum uvm_kind {
        UVM_KIND_CPU_FAULT = 1,
        UVM_KIND_MIGRATION,
        UVM_KIND_GPU_FAULT,
        UVM_KIND_REPLAY,
        UVM_KIND_FAULT_BUFFER_OVERFLOW,
        UVM_KIND_FATAL_FAULT,
        UVM_KIND_READ_DUPLICATE,
        UVM_KIND_READ_DUPLICATE_END,
        UVM_KIND_PAGE_SIZE,
        UVM_KIND_THRASHING,
        UVM_KIND_THROTTLE_BEGIN,
        UVM_KIND_THROTTLE_END,
        UVM_KIND_MAP_REMOTE,
        UVM_KIND_EVICTION,
        UVM_KIND_COUNT /* kinds are 1 .. UVM_KIND_COUNT - 1 */
};
