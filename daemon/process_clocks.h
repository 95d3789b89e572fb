/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The devices of a process with an agent, by its own ordinals: which GPU of the
 * machine each is, and its clock. A clock the daemon cannot read itself is fed by the
 * agent; each device has one of its own.
 */
#include <stddef.h>
#include <stdint.h>

#include "agent/agent_abi.h"
#include "correlate/correlator.h"

struct gpu_clocks;
struct process_clocks;

/*
 * From what the agent says of itself; device_count is at most AGENT_DEVICES_MAX. The
 * GPUs must outlive it. 0 or -ENOMEM.
 */
int process_clocks_new(const struct gpu_clocks *gpus, const struct agent_hello *hello,
                       struct process_clocks **ret_clocks);
struct process_clocks *process_clocks_free(struct process_clocks *c);

/* The devices, for the correlator: theirs as long as they live. */
const struct correlated_device *process_clocks_devices(const struct process_clocks *c,
                                                       size_t *ret_count);

/* The UUID of a device; NULL when there is none of this ordinal. All zero: not known. */
const uint8_t *process_clocks_uuid(const struct process_clocks *c, uint32_t device);

/* A bit for each device whose clock the agent is to send. */
uint64_t process_clocks_asked(const struct process_clocks *c);

/*
 * A reading from the agent. 0; -EINVAL, -ERANGE as clock_model_add(); -ENODEV: of a
 * device whose clock it was not asked for.
 */
int process_clocks_add(struct process_clocks *c, uint32_t device,
                       const struct clock_sample *sample);
