/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * What the daemon (or the simulator) and a policy say to each other.
 *
 * A policy is an eBPF object with a program of type `syscall` for each kind of
 * event it wants, named after it: policy_fault, policy_launch, ... (the list
 * below). A program is run with struct policy_event as its context. What the
 * event is about in detail lies in the map `policy_batch`, as items; the answer
 * is written to the ring buffer `policy_actions`. gpuobs_policy.h wraps both.
 *
 * Addresses are those of the process. All times are CLOCK_MONOTONIC ns in the
 * daemon and simulated ns in the simulator: a policy that reads a clock of its
 * own cannot be simulated.
 */
#include "gpuobs_types.h"

#define POLICY_ABI_VERSION 1

#define POLICY_ITEMS_MAX   512           /* of one run; more come in further runs */
#define POLICY_BLOCK_BYTES (2u << 20)    /* what the driver evicts: one block of managed memory */
#define POLICY_STEPS_MAX   (32u << 20)   /* of all loops in one run */
#define POLICY_RING_BYTES  (256u * 1024) /* of answers not yet taken */
#define POLICY_TEXT_MAX    128
#define POLICY_HOST        0xffffffffu /* "GPU" number of the host's memory */
#define POLICY_NOWHERE     0xfffffffeu /* takes a preference back */
#define POLICY_UNKNOWN     0xffffffffffffffffull

/* `to` of a time slice or a preemption: on this GPU alone; 0: on all that the process uses. */
#define POLICY_ON_GPU(gpu) (0x40000000u | (gpu))

/*
 * X(name, value, what the items are). A program policy_NAME gets the event.
 *
 * process_start comes again after a `set`, and once launches and streams of the process
 * can be limited, which takes its agent: what was refused as unsupported may go now. And when
 * something that was in force was lost to another policy, or the one that overrode it has gone.
 */
#define POLICY_EVENTS(X)                                                                           \
        X(process_start, 0, none)      /* comm and cgroup are in the batch; see above */           \
        X(process_exit, 1, none)       /* forget it */                                             \
        X(alloc, 2, policy_range)      /* managed memory came to be */                             \
        X(free, 3, policy_range)       /* and went */                                              \
        X(launch, 4, policy_range)     /* launches; at once when they were given managed memory */ \
        X(fault, 5, policy_fault)      /* the GPU (or CPU) touched what was elsewhere */           \
        X(migration, 6, policy_moved)  /* memory moved, for whatever reason */                     \
        X(share, 7, policy_share)      /* who had the GPU in the last period */                    \
        X(pressure, 8, none)           /* little memory is left on the GPU */                      \
        X(tick, 9, none)               /* ten times a second */                                    \
        X(refused, 10, policy_refused) /* of what this policy asked for; of several processes */

enum policy_event_type {
#define X(name, value, item) POLICY_EVENT_##name = value,
        POLICY_EVENTS(X)
#undef X
                POLICY_EVENT_COUNT
};

/*
 * The context of a run. Unknown amounts are POLICY_UNKNOWN. GPUs are numbered as in
 * `gpuobsctl gpus`. An event is about one GPU: the one that faulted, was launched on,
 * that memory came to or left, whose memory is little; else the first that the
 * process was seen to use. Memory can be moved to any that the process uses. A policy that is
 * loaded for one GPU hears of that one alone: all its events have its number.
 */
struct policy_event {
        __u32 type;  /* enum policy_event_type */
        __u32 items; /* in the batch */
        __u64 now_ns;
        __u64 process; /* key of the process, never used again; 0: of no process */
        __u32 pid;
        __u32 uid;
        __u32 gpu;
        __u32 launches; /* of a launch event: how many this stands for */
        __u64 depth;    /* of a launch event: launched and not yet started */
        __u64 total_bytes;
        __u64 free_bytes;    /* of the GPU's memory */
        __u64 moved_bytes;   /* between host and GPU in the last second, both ways */
        __u64 process_bytes; /* of the process on this GPU, managed, as known */
};
_Static_assert(sizeof(struct policy_event) == 80, "policy_event");

/*
 * Managed memory. Of a launch: from where an argument points to (of several arguments
 * into one allocation, the lowest) to the end of the allocation, as kernels work
 * upwards from what they are given. One item for each allocation; launches of
 * processes without an agent, and those whose arguments point to no managed memory,
 * have none.
 */
struct policy_range {
        __u64 address;
        __u64 bytes;
        __u64 at_ns;  /* of a launch: when it was called */
        __u64 kernel; /* of a launch: the function's handle, 0 unknown */
};

enum policy_access { POLICY_READ, POLICY_WRITE, POLICY_ATOMIC, POLICY_PREFETCH };

struct policy_fault {
        __u64 address;
        __u64 at_ns;
        __u32 access; /* enum policy_access */
        __u32 gpu;    /* who faulted, or POLICY_HOST */
        __u32 count;  /* faults on this page in the batch */
        __u32 reserved;
};

enum policy_cause { POLICY_BY_FAULT, POLICY_BY_REQUEST, POLICY_BY_EVICTION, POLICY_BY_OTHER };

#define POLICY_FROM_HOST 0xffff

struct policy_moved {
        __u64 address;
        __u64 bytes;
        __u64 at_ns;
        __u32 to;    /* GPU or POLICY_HOST */
        __u16 cause; /* enum policy_cause */
        __u16 from;  /* GPU or POLICY_FROM_HOST */
};

struct policy_share {
        __u64 process;
        __u64 active_ns; /* had the GPU */
        __u64 period_ns;
        __u32 slice_us; /* that a policy has in force there, else that the process set; 0 neither */
        __u32 waiting;  /* launched and not yet started at the end of the period */
};

/*
 * X(name, value, text). Why an action was not done. A policy hears of those from over_budget on,
 * with the next tick, and with the first tick of a second in which it has a budget again; of what
 * it asked for when it heard of such, and was refused again, a second later.
 */
#define POLICY_REFUSALS(X)                                                                         \
        X(nonsense, 0, "unknown action, or an argument out of bounds")                             \
        X(not_allowed, 1,                                                                          \
          "discarding contents, which the policy was not loaded with the right to")                \
        X(foreign, 2, "a process or a GPU that is not in the policy's scope")                      \
        X(gone, 3, "a process that has ended")                                                     \
        X(not_managed, 4, "not managed memory of that process")                                    \
        X(over_budget, 5, "more actions or bytes in a second than the policy may have")            \
        X(overruled, 6,                                                                            \
          "a policy of the same or a higher precedence, or the application, wants otherwise")      \
        X(queue_full, 7, "too many actions wait to be carried out")                                \
        X(no_room, 8, "no room in the GPU's memory")                                               \
        X(not_known, 9, "channel groups, a GPU or its free memory that is not known")              \
        X(unsupported, 10, "this machine cannot do it")                                            \
        X(failed, 11, "the driver refused")                                                        \
        X(stuck, 12, "a call of the driver for the process has not returned")

enum policy_refusal {
#define X(name, value, text) POLICY_REFUSED_##name = value,
        POLICY_REFUSALS(X)
#undef X
                POLICY_REFUSED_COUNT
};

/*
 * The action as it was considered: memory in whole pages of one allocation. Whose GPU it
 * was about `to` says; the event's own `gpu` is 0.
 */
struct policy_refused {
        __u64 process;
        __u64 address;
        __u32 bytes;
        __u32 value;
        __u32 to;
        __u16 kind;   /* enum policy_action_kind */
        __u16 reason; /* enum policy_refusal */
};

union policy_item {
        struct policy_range range;
        struct policy_fault fault;
        struct policy_moved moved;
        struct policy_share share;
        struct policy_refused refused;
};
_Static_assert(sizeof(union policy_item) == 32, "policy_item");

struct policy_batch {
        char comm[16];
        char cgroup[POLICY_TEXT_MAX];
        union policy_item items[POLICY_ITEMS_MAX];
};

/*
 * X(name, value, class). Actions of one class on the same memory, or on the same
 * process, contradict each other unless they ask for the same: the policy with
 * the higher precedence has its way.
 */
#define POLICY_ACTIONS(X)                                                                          \
        X(migrate, 1, place)          /* range -> `to` */                                          \
        X(discard, 2, place)          /* contents of the range are not needed any more */          \
        X(prefer, 3, preference)      /* preferred location: `to`, POLICY_NOWHERE takes it back */ \
        X(accessed_by, 4, mapping)    /* keep it mapped on `to`: value 1, 0 takes it back */       \
        X(read_duplicate, 5, copying) /* value 1, 0 takes it back */                               \
        X(time_slice, 6, slice)       /* value: us, 0 back to what it was; `to`: see above */      \
        X(preempt, 7, preempt)        /* off the GPU now; `to` likewise */                         \
        X(pace, 8, pace)              /* value: launches waiting at most, 0 takes it back */       \
        X(launch_rate, 9, rate)       /* value: launches a second at most, 0 takes it back */      \
        X(stream_priority, 10, streams) /* value: of new streams, 1 the greatest; 0 as asked */

enum policy_action_kind {
#define X(name, value, class_) POLICY_ACTION_##name = value,
        POLICY_ACTIONS(X)
#undef X
                POLICY_ACTION_COUNT
};

struct policy_action {
        __u32 kind; /* enum policy_action_kind */
        __u32 to;   /* GPU, POLICY_HOST or POLICY_NOWHERE; see POLICY_ON_GPU() */
        __u64 process;
        __u64 address; /* of memory; 0 otherwise */
        __u64 bytes;
        __u64 value;
};
_Static_assert(sizeof(struct policy_action) == 40, "policy_action");
