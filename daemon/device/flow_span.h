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

/* Add a number to an address, or subtract it. */
void flow_move_address(struct value *address, struct tnum by, bool back);

/*
 * The span of what is one or the other, stack addresses both. What went round a loop and is
 * still moving may be anywhere.
 */
struct span flow_span_join(const struct value *a, const struct value *b);
