/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside the actuator: orders about the channel groups of a process. In the worker's thread, unless
 * said otherwise.
 */
#include "policy/driver_actuator.h"

/*
 * On the loop's thread, as the order is taken: what can be noted of it without asking the driver
 * is, with what else waits, by the first order that is carried out.
 */
void group_actuator_note(const struct driver_actuator_options *o, const struct policy_order *order,
                         const struct tsg_target *groups, size_t count);

/* Carry out: a time slice, or a preemption, of all of these groups; beyond: that were too many. */
void group_actuator_perform(const struct driver_actuator_options *o,
                            const struct policy_order *order, const struct tsg_target *groups,
                            size_t count, size_t beyond, struct policy_result *result);

/* Set back the time slices of a process. 0; -EIO: of some it failed, and they stay noted. */
int group_actuator_undo(const struct driver_actuator_options *o, pid_t pid, uint64_t start_ticks);
