/* SPDX-License-Identifier: Apache-2.0 */
#include "device/flow_span.h"
#include "device/flow_stack.h"

static bool tnum_equal(struct tnum a, struct tnum b)
{
        return a.value == b.value && a.mask == b.mask;
}

static bool taint_equal(const struct taint *a, const struct taint *b)
{
        return a->varying == b->varying && a->maps == b->maps && a->bytes == b->bytes &&
               tnum_equal(a->from, b->from);
}

static bool value_equal(const struct value *a, const struct value *b)
{
        return a->kind == b->kind && a->map == b->map && a->maybe_null == b->maybe_null &&
               a->area == b->area && a->span.first == b->span.first &&
               a->span.last == b->span.last && tnum_equal(a->num, b->num) &&
               taint_equal(&a->taint, &b->taint);
}

struct taint taint_join(struct taint a, struct taint b)
{
        struct tnum from = tnum_union(a.from, b.from);

        if (!a.maps || !b.maps)
                from = a.maps ? a.from : b.from;
        return (struct taint){
                .varying = a.varying || b.varying,
                .maps = a.maps | b.maps,
                .bytes = a.bytes > b.bytes ? a.bytes : b.bytes,
                .from = from,
        };
}

static bool is_null(const struct value *v)
{
        return v->kind == VALUE_NUMBER && tnum_is_const(v->num) && v->num.value == 0;
}

static struct value join(const struct value *a, const struct value *b)
{
        struct value v = *a;

        v.taint = taint_join(a->taint, b->taint);
        /* An address on one path and NULL on the other is an address that may be NULL. */
        if (a->kind == VALUE_ELEMENT && is_null(b)) {
                v.maybe_null = true;
                return v;
        }
        if (b->kind == VALUE_ELEMENT && is_null(a)) {
                v.kind = b->kind;
                v.map = b->map;
                v.num = b->num;
                v.maybe_null = true;
                return v;
        }
        if (a->kind != b->kind || a->map != b->map)
                return (struct value){.kind = VALUE_MIXED};
        v.maybe_null = a->maybe_null || b->maybe_null;
        v.num = tnum_union(a->num, b->num);
        v.area = a->area == b->area ? a->area : FLOW_ANY_AREA;
        if (v.kind == VALUE_STACK && !tnum_is_const(v.num))
                v.span = flow_span_join(a, b);
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
        return (unsigned)((-from_end - 1) / 4);
}

/* Cell c is about to change: what remains of an 8-byte value that covered it. */
static void break_pair(struct flow_state *s, unsigned c)
{
        unsigned low = s->stack[c].state == CELL_HIGH ? c + 1 : c;
        uint8_t rest;

        if (s->stack[c].state != CELL_LOW && s->stack[c].state != CELL_HIGH)
                return;
        rest = value_is_address(&s->stack[low].value) ? CELL_POISON : CELL_BYTES;
        s->bytes = taint_join(s->bytes, s->stack[low].value.taint);
        s->stack[low] = (struct cell){.state = rest};
        s->stack[low - 1] = (struct cell){.state = rest};
}

/* Cell c, no part of a pair, holds bytes from now on. */
static void to_bytes(struct flow_state *s, unsigned c)
{
        if (s->stack[c].state == CELL_WORD)
                s->bytes = taint_join(s->bytes, s->stack[c].value.taint);
        if (s->stack[c].state != CELL_POISON)
                s->stack[c] = (struct cell){.state = CELL_BYTES};
}

bool flow_stack_write(struct flow_state *s, int64_t from_end, unsigned bytes, struct value v)
{
        unsigned c = cell_of(from_end);

        if (value_is_address(&v) && bytes != 8)
                return false;
        break_pair(s, c);
        if (bytes == 8) {
                break_pair(s, c - 1);
                s->stack[c] = (struct cell){.state = CELL_LOW, .value = v};
                s->stack[c - 1] = (struct cell){.state = CELL_HIGH};
        } else if (bytes == 4) {
                v.num = tnum_low32(v.num);
                s->stack[c] = (struct cell){.state = CELL_WORD, .value = v};
        } else {
                s->bytes = taint_join(s->bytes, v.taint);
                to_bytes(s, c);
        }
        return true;
}

void flow_stack_clobber(struct flow_state *s, struct span where, struct taint taint)
{
        s->bytes = taint_join(s->bytes, taint);
        for (unsigned c = cell_of(where.last); c <= cell_of(where.first); c++) {
                break_pair(s, c);
                to_bytes(s, c);
        }
}

void flow_stack_forget(struct flow_state *s, int64_t first, int64_t end)
{
        for (int64_t at = first; at < end; at += 4) {
                break_pair(s, cell_of(at));
                s->stack[cell_of(at)] = (struct cell){};
        }
}

/* The 4-byte number in cell c; false when it is part of an address. */
static bool read_word(const struct flow_state *s, unsigned c, struct value *ret)
{
        const struct cell *low = &s->stack[s->stack[c].state == CELL_HIGH ? c + 1 : c];

        switch (s->stack[c].state) {
        case CELL_POISON:
                return false;
        case CELL_WORD:
                *ret = low->value;
                return true;
        case CELL_LOW:
        case CELL_HIGH:
                if (value_is_address(&low->value))
                        return false;
                *ret = low->value;
                ret->num = tnum_low32(
                        tnum_rsh(low->value.num, s->stack[c].state == CELL_HIGH ? 32 : 0));
                return true;
        }
        *ret = value_number(tnum_of_size(4));
        ret->taint = s->bytes;
        return true;
}

bool flow_stack_read(const struct flow_state *s, int64_t from_end, unsigned bytes,
                     struct value *ret_value)
{
        unsigned c = cell_of(from_end);
        struct value low, high;

        if (bytes == 8 && s->stack[c].state == CELL_LOW) {
                *ret_value = s->stack[c].value;
                return true;
        }
        if (!read_word(s, c, &low))
                return false;
        if (bytes < 4) {
                low.num = tnum_of_size(bytes);
        } else if (bytes == 8) {
                if (!read_word(s, c - 1, &high))
                        return false;
                low.num = tnum_or(low.num, tnum_lsh(high.num, 32));
                low.taint = taint_join(low.taint, high.taint);
        }
        *ret_value = low;
        return true;
}

struct taint flow_stack_taint(const struct flow_state *s)
{
        struct taint all = s->bytes;

        for (unsigned c = 0; c < s->cells; c++)
                if (s->stack[c].state == CELL_WORD || s->stack[c].state == CELL_LOW)
                        all = taint_join(all, s->stack[c].value.taint);
        return all;
}

/* Whether reading the cell would read an address. */
static bool holds_address(const struct flow_state *s, unsigned c)
{
        struct value ignored;

        return !read_word(s, c, &ignored);
}

/* Numbers that become bytes leave where they came from behind. */
static void add_taint(struct flow_state *into, const struct flow_state *from, unsigned c)
{
        struct value v;

        if (read_word(into, c, &v))
                into->bytes = taint_join(into->bytes, v.taint);
        if (read_word(from, c, &v))
                into->bytes = taint_join(into->bytes, v.taint);
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
        add_taint(into, from, c);
        break_pair(into, c);
        into->stack[c] = (struct cell){.state = poison ? CELL_POISON : CELL_BYTES};
        return true;
}

bool flow_stack_join(struct flow_state *into, const struct flow_state *from)
{
        struct taint before = into->bytes;
        bool changed = false;

        into->bytes = taint_join(into->bytes, from->bytes);
        for (unsigned c = 0; c < into->cells; c++)
                changed |= cell_join(into, from, c);
        return changed || !taint_equal(&before, &into->bytes);
}
