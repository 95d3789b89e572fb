/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The stack part of a flow state. Offsets are from the end of the stack, below 0. */
#include "device/flow.h"

/* Store the low `bytes` bytes of v; false: part of an address would be stored. */
bool flow_stack_write(struct flow_state *s, int64_t from_end, unsigned bytes, struct value v);

/* Some bytes of `where` were overwritten with numbers that come from `taint`. */
void flow_stack_clobber(struct flow_state *s, struct span where, struct taint taint);

/* What lies from `first` to `end` (multiples of 8) is not known any more. */
void flow_stack_forget(struct flow_state *s, int64_t first, int64_t end);

/* What a load of `bytes` bytes gives; false: it would read part of an address. */
bool flow_stack_read(const struct flow_state *s, int64_t from_end, unsigned bytes,
                     struct value *ret_value);

/* Where the numbers on the stack come from, all together. */
struct taint flow_stack_taint(const struct flow_state *s);

/* Make `into` cover `from` as well; returns whether it changed. */
bool flow_stack_join(struct flow_state *into, const struct flow_state *from);

/* Same for one value. */
bool value_join(struct value *into, const struct value *from);

/* What is made from both. */
struct taint taint_join(struct taint a, struct taint b);

static inline bool value_is_address(const struct value *v)
{
        return v->kind != VALUE_NUMBER && v->kind != VALUE_NONE;
}

static inline struct value value_number(struct tnum num)
{
        return (struct value){.kind = VALUE_NUMBER, .num = num};
}
