/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What single instructions do to a flow state; flow.h declares what the emitter uses too. */
#include "device/flow.h"

/* Refuse branches on things that have no number on the GPU. 0 or -ENOTSUP. */
int flow_check_branch(const struct compile_job *job, size_t i, const struct flow_state *state,
                      struct refusal *r);

/* Narrow `state` to one outcome of the branch at i; false: that outcome is impossible. */
bool flow_refine(const struct compile_job *job, size_t i, bool taken, struct flow_state *state);

/* Whether instruction i, just stepped over, left a stack address with an unknown distance. */
bool flow_stack_is_unknown(const struct compile_job *job, size_t i, const struct flow_state *state);
