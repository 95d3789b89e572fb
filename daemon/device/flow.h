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

#include "device/code.h"
#include "device/tnum.h"

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

/* Where a number comes from, for the rules that programs must keep. */
struct taint {
        bool varying;     /* may differ between the lanes of a warp */
        uint8_t maps;     /* bit m: it was made from what was read from map m */
        uint8_t bytes;    /* at once, at most */
        struct tnum from; /* and at these distances from the map's start */
};

/* Distances from the end of the stack, from first to last (flow_span.h). */
struct span {
        int16_t first, last;
};

/* What a stack address is of, and stays in: a function's frame, or a reserved record. */
#define FLOW_ANY_AREA  0
#define FLOW_FRAME(n)  (1 + (n))
#define FLOW_RECORD(n) (1 + CODE_FRAMES + (n))

struct value {
        uint8_t kind;
        uint8_t map;      /* of VALUE_MAP and VALUE_ELEMENT */
        bool maybe_null;  /* of VALUE_ELEMENT */
        uint8_t area;     /* of VALUE_STACK: FLOW_FRAME() or FLOW_RECORD() */
        struct span span; /* of VALUE_STACK, where num is no constant: what it is a sum of */
        struct taint taint;
        struct tnum num; /* the number; for addresses the distance from their base: context,
                            end of the stack, start of the map */
};

enum cell_state {
        CELL_BYTES = 0, /* bytes of numbers nothing is known about, or never written */
        CELL_WORD,      /* a 4-byte number */
        CELL_LOW,       /* lower half of an 8-byte value */
        CELL_HIGH,      /* its upper half; the value is with the lower */
        CELL_POISON,    /* part of an address, or an address on some paths only */
};

/* Four bytes of the stack; cell 0 is the highest address. */
struct cell {
        uint8_t state;
        struct value value;
};

/* A record that was reserved and neither submitted nor discarded yet. */
struct flow_record {
        bool live;
        uint8_t map;
        uint16_t bytes;
};

struct flow_state {
        struct flow_record records[CODE_RECORDS];
        struct value regs[CODE_REGISTERS];
        struct taint bytes; /* of numbers stored in cells that do not hold a value */
        unsigned cells;
        struct cell stack[];
};

enum flow_branch {
        FLOW_EITHER = 0,
        FLOW_TAKEN,
        FLOW_NOT_TAKEN,
};

struct flow;

/*
 * Follow all paths of `code`, which must stay until flow_free(). 0; -ENOTSUP
 * refused, ret_refusal says why; -ENOMEM.
 */
int flow_new(const struct code *code, struct refusal *ret_refusal, struct flow **ret_flow);
struct flow *flow_free(struct flow *f);

/* A copy to free(), NULL without memory. */
struct flow_state *flow_state_copy(const struct flow_state *s);
void flow_state_set(struct flow_state *s, const struct flow_state *from);

/* The state before instruction i if a block that can be reached starts there, else NULL. */
const struct flow_state *flow_block(const struct flow *f, size_t i);

/* Whether a jump that can be taken leads to instruction i. */
bool flow_is_label(const struct flow *f, size_t i);

/* Whether instruction i can be reached. */
bool flow_is_reached(const struct flow *f, size_t i);

/* What may run after instruction i, which is reached; returns how many there are. */
unsigned flow_next(const struct flow *f, size_t i, size_t ret_next[2]);

/* Whether lanes of a warp may leave the branch at i on different ways. */
bool flow_branch_varies(const struct flow *f, size_t i);

/* Whether the stack is addressed with distances that are not known here. */
bool flow_stack_is_indexed(const struct flow *f);

/* Carry `state` over instruction i, which is no branch. 0 or -ENOTSUP as flow_new(). */
int flow_step(const struct code *code, size_t i, struct flow_state *state,
              struct refusal *ret_refusal);

/* What is known about the branch at i. */
enum flow_branch flow_decide(const struct code *code, size_t i, const struct flow_state *state);

/* The 4-byte key the map lookup at a call reads from the stack; false when it must be read. */
bool flow_key(const struct flow_state *state, struct value *ret_key);

/* The value behind an operand: a register, or the sign-extended immediate. */
struct value flow_operand(const struct code *code, size_t i, const struct flow_state *state);

/* The 8-byte slot of the stack, from its end, for an access at distance `from_end` below 0. */
static inline unsigned flow_slot(int64_t from_end)
{
        return (unsigned)((-from_end - 1) / 8);
}

static inline int64_t flow_stack_bytes(const struct flow_state *s)
{
        return 4 * (int64_t)s->cells;
}
