/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The loss ledger: for each process, how many launches were produced, how many
 * stored, and where the rest went. produced = stored + sum of launch losses,
 * once nothing is pending. Losses of other things (device records, names,
 * operations) are counted beside it and do not enter that sum.
 *
 * One ledger per process lives as long as the daemon knows the process. Only
 * the main thread touches it, except `stored` and the store losses, which the
 * store reports back to the main thread.
 */
#include <stdbool.h>
#include <stdint.h>

/* name, counts a launch, what a person should know */
#define LEDGER_LOSSES(X)                                                                           \
        X(cpu_ring_full, true, "launch events the kernel could not write: ring buffer full")       \
        X(thread_state, true, "launches unseen: no memory for a thread's state in the kernel")     \
        X(agent_ring_overrun, true, "launches the agent could not record: its ring was full")      \
        X(agent_record_torn, true, "launch records of the agent never completed or impossible")    \
        X(store_queue_full, true, "launch records dropped: the database writer was behind")        \
        X(store_failed, true, "launch records dropped: the database refused the write")            \
        X(cpu_ring_full_other, false, "operation, handle or process events not written")           \
        X(device_ring_overrun, false, "device records overwritten before they were read")          \
        X(device_record_torn, false, "device records never completed by the GPU")                  \
        X(device_record_garbage, false, "device records with impossible contents")                 \
        X(device_end_unseen, false,                                                                \
          "ends of kernels not seen: a block ran longer than all behind it")                       \
        X(join_queue_full, false, "launches stored without GPU times: too many waited for them")   \
        X(device_record_unmatched, false, "device records that no launch was found for")           \
        X(device_record_nested, false,                                                             \
          "device records of kernels that only kernels on the GPU launch")                         \
        X(context_full, false, "launches counted in no context: too many contexts")                \
        X(attach_gap, false, "libraries mapped before the probes were attached")                   \
        X(agent_refused, false, "images left as they were, and agents turned away")                \
        X(coverage_full, false, "images and kernels left out of the coverage list: too many")      \
        X(agent_protocol, false, "messages of the agent that made no sense")                       \
        X(driver_call, false, "calls of the driver not recorded: ring buffer or memory full")      \
        X(driver_call_late, false, "calls of the driver by processes that had ended already")      \
        X(driver_object, false, "objects of the driver not followed: a process has too many")      \
        X(driver_file, false,                                                                      \
          "files of the driver not searched for earlier channel groups: too many questions")       \
        X(gpu_switch, false, "context switches of a GPU that its driver dropped")                  \
        X(gpu_switch_garbage, false, "records of context switches that make no sense")             \
        X(gpu_slice, false, "time slices not kept: too many engines, or no memory")                \
        X(gpu_share, false, "seconds of GPU shares the database did not take")                     \
        X(uvm_dropped, false, "events of managed memory the driver dropped: queue full")           \
        X(uvm_garbage, false, "events of managed memory that made no sense")                       \
        X(uvm_decision, false, "decisions about managed memory not recorded: ring buffer full")    \
        X(managed_unlisted, false, "managed allocations not followed: a process has too many")     \
        X(managed_unrecorded, false,                                                               \
          "processes and allocations left out of the trace of managed memory: too many")           \
        X(policy_memory, false, "managed allocations policies do not hear of: too many")           \
        X(managed_unstored, false, "seconds of managed memory not stored: the writer was behind")  \
        X(argument_overrun, false,                                                                 \
          "records of launch arguments not written: the agent's ring was full")                    \
        X(argument_unread, false, "launches whose arguments the agent could not read, or not all") \
        X(argument_stale, false,                                                                   \
          "arguments of launches in memory that was freed, or that make no sense")                 \
        X(subscriber_slow, false, "records a subscriber did not take in time")

enum ledger_loss {
#define X(name, launch, text) LOSS_##name,
        LEDGER_LOSSES(X)
#undef X
                LOSS_COUNT
};

struct ledger {
        uint64_t produced; /* launches the CPU side saw or knows it missed */
        uint64_t stored;   /* launch records committed to the database */
        uint64_t lost[LOSS_COUNT];
};

extern const char *const ledger_loss_names[LOSS_COUNT];
extern const char *const ledger_loss_texts[LOSS_COUNT];
extern const bool ledger_loss_is_launch[LOSS_COUNT];

/* Sum of the losses that count launches. */
uint64_t ledger_lost_launches(const struct ledger *l);

/* to += from, field by field. */
void ledger_add(struct ledger *to, const struct ledger *from);
