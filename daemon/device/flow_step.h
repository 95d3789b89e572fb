/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What single instructions do to a flow state; flow.h declares what the emitter uses too. */
#include "device/flow.h"

/* Parts of flow_step(): instructions of one class. 0 or -ENOTSUP. */
int flow_step_alu(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);
int flow_step_load(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);
int flow_step_store(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);
int flow_step_atomic(const struct code *code, size_t i, struct flow_state *state,
                     struct refusal *r);
int flow_step_call(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);

/* Parts of flow_step_call(): helpers of maps, of ring buffers, and those that print. */
int flow_step_map(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);
int flow_step_ring(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);
int flow_step_print(const struct code *code, size_t i, struct flow_state *state, struct refusal *r);

/*
 * What `bytes` bytes hold that lie `at` bytes behind a stack address in an argument;
 * `what` is for messages. 0 or -ENOTSUP.
 */
int flow_argument(size_t i, const struct flow_state *state, const struct value *address,
                  unsigned at, unsigned bytes, const char *what, struct refusal *r,
                  struct value *ret_value);

/*
 * How much of `left` bytes, `at` bytes behind the address, one access can read that is
 * aligned there, and where they go, `at` bytes behind something aligned.
 */
unsigned flow_argument_part(const struct value *address, unsigned at, unsigned left);

/*
 * The number of the reserved record whose address is in r1, or -ENOENT; the number of
 * the message that the arguments in `state` print, which flow_step_print() has added,
 * and how many arguments it takes.
 */
int flow_record_number(const struct code *code, const struct flow_state *state);
unsigned flow_message(const struct code *code, const struct flow_state *state, unsigned *ret_count);

/* Whether an element of a map belongs to the thread that runs the program alone. */
bool flow_is_private(const struct code *code, unsigned map);

/* The beginning and the end of a function that was put in place of its call. */
void flow_step_enter(const struct code *code, size_t i, struct flow_state *state);
void flow_step_return(const struct code *code, size_t i, struct flow_state *state);

/* Check an access of `bytes` bytes at a distance from the end of the stack, if that is known. */
int flow_check_stack(size_t i, const struct flow_state *state, struct tnum from_end, unsigned bytes,
                     struct refusal *r);

/* What a value is, for messages. */
const char *value_name(const struct value *v);

/* Refuse branches on things that have no number on the GPU. 0 or -ENOTSUP. */
int flow_check_branch(const struct code *code, size_t i, const struct flow_state *state,
                      struct refusal *r);

/* Narrow `state` to one outcome of the branch at i; false: that outcome is impossible. */
bool flow_refine(const struct code *code, size_t i, bool taken, struct flow_state *state);

/* Whether instruction i, just stepped over, left a stack address with an unknown distance. */
bool flow_stack_is_unknown(const struct code *code, size_t i, const struct flow_state *state);
