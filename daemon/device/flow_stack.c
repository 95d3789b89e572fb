/* SPDX-License-Identifier: Apache-2.0 */
#include "device/flow_stack.h"

static bool value_equal(const struct value *a, const struct value *b)
{
        return a->kind == b->kind && a->map == b->map && a->maybe_null == b->maybe_null &&
               a->num.value == b->num.value && a->num.mask == b->num.mask;
}

static bool is_null(const struct value *v)
{
        return v->kind == VALUE_NUMBER && tnum_is_const(v->num) && v->num.value == 0;
}

static struct value join(const struct value *a, const struct value *b)
{
        struct value v = *a;

        /* An address on one path and NULL on the other is an address that may be NULL. */
        if (a->kind == VALUE_ELEMENT && is_null(b)) {
                v.maybe_null = true;
                return v;
        }
        if (b->kind == VALUE_ELEMENT && is_null(a)) {
                v = *b;
                v.maybe_null = true;
                return v;
        }
        if (a->kind != b->kind || a->map != b->map)
                return (struct value){.kind = VALUE_MIXED};
        v.maybe_null = a->maybe_null || b->maybe_null;
        v.num = tnum_union(a->num, b->num);
        return v;
}

bool value_join(struct value *into, const struct value *from)
{
        struct value v = join(into, from);

        if (value_equal(&v, into))
                return false;
        *into = v;
        return true;
}

static unsigned cell_of(int64_t from_end)
{
        return (unsigned)(from_end + FLOW_STACK_BYTES) / 4;
}

/* Cell c is about to change: what remains of an 8-byte value that covered it. */
static void break_pair(struct flow_state *s, unsigned c)
{
        unsigned low = s->stack[c].state == CELL_HIGH ? c - 1 : c;
        uint8_t rest;

        if (s->stack[c].state != CELL_LOW && s->stack[c].state != CELL_HIGH)
                return;
        rest = value_is_address(&s->stack[low].value) ? CELL_POISON : CELL_BYTES;
        s->stack[low] = (struct cell){.state = rest};
        s->stack[low + 1] = (struct cell){.state = rest};
}

bool flow_stack_write(struct flow_state *s, int64_t from_end, unsigned bytes, struct value v)
{
        unsigned c = cell_of(from_end);

        if (value_is_address(&v) && bytes != 8)
                return false;
        break_pair(s, c);
        if (bytes == 8) {
                break_pair(s, c + 1);
                s->stack[c] = (struct cell){.state = CELL_LOW, .value = v};
                s->stack[c + 1] = (struct cell){.state = CELL_HIGH};
        } else if (bytes == 4) {
                s->stack[c] =
                        (struct cell){.state = CELL_WORD, .value = value_number(tnum_low32(v.num))};
        } else if (s->stack[c].state != CELL_POISON) {
                s->stack[c] = (struct cell){.state = CELL_BYTES};
        }
        return true;
}

void flow_stack_clobber(struct flow_state *s)
{
        for (unsigned c = 0; c < FLOW_CELLS; c++) {
                break_pair(s, c);
                if (s->stack[c].state != CELL_POISON)
                        s->stack[c] = (struct cell){.state = CELL_BYTES};
        }
}

/* The 4-byte number in cell c; false when it is part of an address. */
static bool read_word(const struct flow_state *s, unsigned c, struct tnum *ret)
{
        const struct cell *low = &s->stack[s->stack[c].state == CELL_HIGH ? c - 1 : c];

        switch (s->stack[c].state) {
        case CELL_POISON:
                return false;
        case CELL_WORD:
                *ret = low->value.num;
                return true;
        case CELL_LOW:
        case CELL_HIGH:
                if (value_is_address(&low->value))
                        return false;
                *ret = tnum_low32(
                        tnum_rsh(low->value.num, s->stack[c].state == CELL_HIGH ? 32 : 0));
                return true;
        }
        *ret = tnum_of_size(4);
        return true;
}

bool flow_stack_read(const struct flow_state *s, int64_t from_end, unsigned bytes,
                     struct value *ret_value)
{
        unsigned c = cell_of(from_end);
        struct tnum low, high;

        if (bytes == 8 && s->stack[c].state == CELL_LOW) {
                *ret_value = s->stack[c].value;
                return true;
        }
        if (!read_word(s, c, &low))
                return false;
        if (bytes < 4) {
                low = tnum_of_size(bytes);
        } else if (bytes == 8) {
                if (!read_word(s, c + 1, &high))
                        return false;
                low = tnum_or(low, tnum_lsh(high, 32));
        }
        *ret_value = value_number(low);
        return true;
}

/* Whether reading the cell would read an address. */
static bool holds_address(const struct flow_state *s, unsigned c)
{
        struct tnum ignored;

        return !read_word(s, c, &ignored);
}

static bool cell_join(struct flow_state *into, const struct flow_state *from, unsigned c)
{
        struct cell *a = &into->stack[c];
        const struct cell *b = &from->stack[c];
        bool poison;

        if (a->state == b->state) {
                if (a->state != CELL_WORD && a->state != CELL_LOW)
                        return false;
                return value_join(&a->value, &b->value);
        }
        if (a->state == CELL_POISON)
                return false;
        poison = holds_address(into, c) || holds_address(from, c);
        if (a->state == CELL_BYTES && !poison)
                return false;
        break_pair(into, c);
        into->stack[c] = (struct cell){.state = poison ? CELL_POISON : CELL_BYTES};
        return true;
}

bool flow_stack_join(struct flow_state *into, const struct flow_state *from)
{
        bool changed = false;

        for (unsigned c = 0; c < FLOW_CELLS; c++)
                changed |= cell_join(into, from, c);
        return changed;
}
