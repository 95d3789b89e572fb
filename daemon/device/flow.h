/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What registers and stack slots hold at each point of a program: forward data
 * flow over the paths that can be taken, with constants and known bits, so that
 * memory accesses find their state space and decided branches disappear.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/compile.h"
#include "device/tnum.h"

#define FLOW_STACK_BYTES 512
#define FLOW_CELLS       (FLOW_STACK_BYTES / 4)
#define FLOW_REGISTERS   11

/* Elements of a map lie at multiples of their size from a base aligned to this. */
#define FLOW_MAP_ALIGNMENT 256

enum value_kind {
        VALUE_NONE = 0, /* not written yet */
        VALUE_NUMBER,
        VALUE_CONTEXT,
        VALUE_STACK,
        VALUE_MAP,     /* the map itself, as helpers take it */
        VALUE_ELEMENT, /* address inside an element of the map */
        VALUE_MIXED,   /* different things on different paths */
};

struct value {
        uint8_t kind;
        uint8_t map;     /* of VALUE_MAP and VALUE_ELEMENT */
        bool maybe_null; /* of VALUE_ELEMENT */
        struct tnum num; /* the number; for addresses the distance from their base: context,
                            end of the stack, start of the map */
};

enum cell_state {
        CELL_BYTES = 0, /* bytes of numbers nothing is known about, or never written */
        CELL_WORD,      /* a 4-byte number */
        CELL_LOW,       /* first half of an 8-byte value */
        CELL_HIGH,      /* its second half; the value is with the first */
        CELL_POISON,    /* part of an address, or an address on some paths only */
};

/* Four bytes of the stack; cell 0 is the lowest address. */
struct cell {
        uint8_t state;
        struct value value;
};

struct flow_state {
        struct value regs[FLOW_REGISTERS];
        struct cell stack[FLOW_CELLS];
};

enum flow_branch {
        FLOW_EITHER = 0,
        FLOW_TAKEN,
        FLOW_NOT_TAKEN,
};

struct flow;

/* Follow all paths. 0; -ENOTSUP refused, ret_refusal says why; -ENOMEM. */
int flow_new(const struct compile_job *job, struct refusal *ret_refusal, struct flow **ret_flow);
struct flow *flow_free(struct flow *f);

/* The state before instruction i if a block that can be reached starts there, else NULL. */
const struct flow_state *flow_block(const struct flow *f, size_t i);

/* Whether a jump that can be taken leads to instruction i. */
bool flow_is_label(const struct flow *f, size_t i);

/* Whether the stack is addressed with distances not known here, so it must lie in memory. */
bool flow_stack_in_memory(const struct flow *f);

/* Carry `state` over instruction i, which is no branch. 0 or -ENOTSUP as flow_new(). */
int flow_step(const struct compile_job *job, size_t i, struct flow_state *state,
              struct refusal *ret_refusal);

/* What is known about the branch at i. */
enum flow_branch flow_decide(const struct compile_job *job, size_t i,
                             const struct flow_state *state);

/* The key the map lookup at a call reads from the stack; false when it must be read. */
bool flow_key(const struct flow_state *state, struct tnum *ret_key);

/* The value behind an operand: a register, or the sign-extended immediate. */
struct value flow_operand(const struct compile_job *job, size_t i, const struct flow_state *state);

/* An 8-byte slot of the stack (0..63) for an access at distance `from_end` (-512..-1). */
static inline unsigned flow_slot(int64_t from_end)
{
        return (unsigned)((from_end + FLOW_STACK_BYTES) / 8);
}
