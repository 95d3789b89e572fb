/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the actuator: orders about the channel groups of a process. In the worker's thread, unless
 * said otherwise.
 */
#include "policy/driver_actuator.h"

/* The groups that an order is about. */
struct group_choice {
        struct tsg_target *list;
        size_t count, beyond; /* beyond: that were too many */
        bool has_gpu;
        uint8_t gpu[UVM_UUID_BYTES]; /* of these, those on this GPU alone */
        struct watched_process *process;
        uint64_t missed; /* group_notes_missed() before it was noted */
};

/* Whether a GPU's UUID is known: not all zero. */
bool group_actuator_is_known(const uint8_t uuid[UVM_UUID_BYTES]);

/*
 * On the loop's thread, as the order is taken: what can be noted of it without asking the driver
 * is, with what else waits, by the first order that is carried out.
 */
void group_actuator_note(const struct driver_actuator_options *o, const struct policy_order *order,
                         struct group_choice *choice);

/*
 * The order is over, on the loop's thread or the last. What was noted of a process that has ended
 * meanwhile, after driver_actuator_forget(), goes.
 */
void group_actuator_release(const struct driver_actuator_options *o, struct group_choice *choice);

/* Carry out: a time slice, or a preemption, of all of these groups. */
void group_actuator_perform(const struct driver_actuator_options *o,
                            const struct policy_order *order, const struct group_choice *choice,
                            struct policy_result *result);

/*
 * Set back the time slices of a process, on one GPU or (NULL) on all. 0; -EIO: of some it failed,
 * and they stay noted.
 */
int group_actuator_undo(const struct driver_actuator_options *o, pid_t pid, uint64_t start_ticks,
                        const uint8_t *gpu);
