/* SPDX-License-Identifier: Apache-2.0 */
#include "device/flow_span.h"

_Static_assert(CODE_FRAMES *CODE_FRAME_BYTES + CODE_RECORDS * CODE_RECORD_BYTES < SPAN_FAR,
               "no place of the stack is far");

static const struct span anywhere = {-SPAN_FAR, SPAN_FAR};

static struct span make_span(int64_t first, int64_t last)
{
        if (first <= -SPAN_FAR || first > last || last >= SPAN_FAR)
                return anywhere;
        return (struct span){(int16_t)first, (int16_t)last};
}

/* What bits say; where they do not know the sign, the last is below the first. */
static struct span span_of_bits(struct tnum num)
{
        return make_span((int64_t)tnum_min(num), (int64_t)tnum_max(num));
}

struct span flow_span(const struct value *address)
{
        struct span span = span_of_bits(address->num);

        if (tnum_is_const(address->num))
                return span;
        if (address->span.first > span.first)
                span.first = address->span.first;
        if (address->span.last < span.last)
                span.last = address->span.last;
        return span;
}

static bool is_anywhere(struct span span)
{
        return span.first == -SPAN_FAR || span.last == SPAN_FAR;
}

static struct span add_spans(struct span a, struct span b, bool back)
{
        if (is_anywhere(a) || is_anywhere(b))
                return anywhere;
        return back ? make_span(a.first - b.last, a.last - b.first)
                    : make_span(a.first + b.first, a.last + b.last);
}

void flow_move_address(struct value *address, struct tnum by, bool back)
{
        struct span span = add_spans(flow_span(address), span_of_bits(by), back);

        address->num = back ? tnum_sub(address->num, by) : tnum_add(address->num, by);
        if (address->kind == VALUE_STACK)
                address->span = tnum_is_const(address->num) ? (struct span){} : span;
}

/* What an address is of, from its first byte to its last. */
static struct span find_area(const struct code *code, const struct flow_state *state,
                             const struct value *address)
{
        int64_t first = -flow_stack_bytes(state), end = 0;

        if (flow_is_frame(address)) {
                end = flow_frame_end(address);
                first = end - CODE_FRAME_BYTES;
        } else if (address->area != FLOW_ANY_AREA) {
                unsigned n = address->area - FLOW_RECORD(0);

                first = code_record_start(code, n);
                end = first + state->records[n].bytes;
        }
        return make_span(first, end - 1);
}

struct span flow_reach(const struct code *code, const struct flow_state *state,
                       const struct value *address, int off, unsigned bytes)
{
        struct span area = find_area(code, state, address), span = flow_span(address);
        int64_t first = span.first + (int64_t)off, last = span.last + (int64_t)off + bytes - 1;

        if (first < area.first)
                first = area.first;
        if (last > area.last)
                last = area.last;
        if (first > last) /* no program that was verified */
                return make_span(-flow_stack_bytes(state), -1);
        return make_span(first, last);
}

struct span flow_span_join(const struct value *a, const struct value *b)
{
        struct span x = flow_span(a), y = flow_span(b);

        if (y.first >= x.first && y.last <= x.last)
                return x;
        if (!tnum_is_const(a->num))
                return anywhere;
        return (struct span){x.first < y.first ? x.first : y.first,
                             x.last > y.last ? x.last : y.last};
}
