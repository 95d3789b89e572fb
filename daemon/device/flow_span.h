/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How far from the end of the stack an address may be. Known bits say little of an array
 * that begins anywhere: they cannot tell -72 + (0..56) from anything between -128 and -8.
 * So an address also carries between what numbers its distance is as a sum.
 */
#include "device/flow.h"

/* Where it may be; SPAN_FAR either way: anywhere. */
#define SPAN_FAR 0x4000
struct span flow_span(const struct value *address);

/* Whether it is the address of something in a function's frame; where that frame ends. */
static inline bool flow_is_frame(const struct value *address)
{
        return address->area >= FLOW_FRAME(0) && address->area < FLOW_RECORD(0);
}

static inline int flow_frame_end(const struct value *address)
{
        return -(address->area - FLOW_FRAME(0)) * CODE_FRAME_BYTES;
}

/*
 * The bytes that an access of `bytes` bytes `off` behind an address may be of: within what the
 * address is of, as the kernel's verifier has seen to.
 */
struct span flow_reach(const struct code *code, const struct flow_state *state,
                       const struct value *address, int off, unsigned bytes);

/* Add a number to an address, or subtract it. */
void flow_move_address(struct value *address, struct tnum by, bool back);

/*
 * The span of what is one or the other, stack addresses both. What went round a loop and is
 * still moving may be anywhere.
 */
struct span flow_span_join(const struct value *a, const struct value *b);
