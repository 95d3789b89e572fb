/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Limits that policies set on what processes with an agent launch: how many kernels
 * may wait, how many launches a second, with which priority streams are made. They
 * are words in memory that the process reads by itself (probe/launch_pace.h), so they
 * are carried out at once, and a daemon that ends leaves nothing behind: without it
 * they do not hold.
 */
#include <stdbool.h>
#include <stdint.h>

struct gpuobsd;
struct observed;
struct policy_order;

/* Whether an action of this kind is carried out here. */
bool pacing_is(uint32_t kind);

/*
 * Carry one out. 0; -ESRCH the process is not there any more; -EOPNOTSUPP it has no
 * agent that could. *ret_before: the limit there was. Setting back works without an agent.
 */
int pacing_apply(struct gpuobsd *d, const struct policy_order *order, uint64_t *ret_before);

/* The process has ended, before its launch map goes. */
void pacing_end(struct observed *o);

/*
 * The process goes on without its agent, before its launch map goes: its limits are kept, and
 * told to the next agent.
 */
void pacing_agent_left(struct observed *o);

/* In each turn of the loop: that the daemon is there, and what has started. */
void pacing_turn(struct gpuobsd *d);
