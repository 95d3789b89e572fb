/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The stack in registers, slot by slot (the kernel's verifier allows only aligned accesses of
 * it, so none crosses a slot). Where a distance is not known an access may be of several
 * slots, and looks at each: a thread's registers cannot be indexed. Local memory can be, but
 * code that is spliced into compiled kernels has none. Where there are too many slots the stack
 * is in memory all the same.
 *
 * Of an address that nothing else is known of it is known of what function or record it is, and the
 * kernel's verifier knows how much of their stack functions use.
 */
#include <inttypes.h>

#include "device/flow_span.h"
#include "device/ptx.h"

/*
 * That one access may be of: an array of 128 bytes and some variables beside it, where all that is
 * known is that the function uses so much. With the registers of a program of some size these
 * are not more than 64 of a thread, with which blocks can still be as large as they get.
 */
#define SLOTS_MAX 20

static unsigned slot_shift(int64_t from_end)
{
        return 8 * ((unsigned)from_end & 7);
}

static uint64_t byte_mask(unsigned bytes)
{
        return bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1;
}

/* At a known distance. */

static unsigned read_slot(struct ptx_writer *w, int64_t from_end, unsigned bytes)
{
        unsigned slot = flow_slot(from_end), t = ptx_wide(w);

        ptx_use_slot(w, slot);
        ptx_line(w, "mov.b64 %%d%u, %%s%u", t, slot);
        if (slot_shift(from_end))
                ptx_line(w, "shr.u64 %%d%u, %%d%u, %u", t, t, slot_shift(from_end));
        if (bytes < 8)
                ptx_line(w, "and.b64 %%d%u, %%d%u, 0x%" PRIx64, t, t, byte_mask(bytes));
        return t;
}

/* Put the low bytes of `value` into a slot, leaving the slot's others. */
static void write_slot(struct ptx_writer *w, int64_t from_end, unsigned bytes, const char *value)
{
        unsigned slot = flow_slot(from_end), t;
        uint64_t mask = byte_mask(bytes) << slot_shift(from_end);

        ptx_use_slot(w, slot);
        if (bytes == 8) {
                ptx_line(w, "mov.b64 %%s%u, %s", slot, value);
                return;
        }
        t = ptx_wide(w);
        ptx_line(w, "mov.b64 %%d%u, %s", t, value);
        if (slot_shift(from_end))
                ptx_line(w, "shl.b64 %%d%u, %%d%u, %u", t, t, slot_shift(from_end));
        ptx_line(w, "and.b64 %%d%u, %%d%u, 0x%" PRIx64, t, t, mask);
        ptx_line(w, "and.b64 %%s%u, %%s%u, 0x%" PRIx64, slot, slot, ~mask);
        ptx_line(w, "or.b64 %%s%u, %%s%u, %%d%u", slot, slot, t);
}

/* At one that only the running program knows. */

struct choice {
        unsigned first, count; /* slots it may be */
        unsigned slot;         /* %w with the number of the one it is */
        unsigned shift;        /* %w with the place of its lowest bit in it */
};

/* Bytes of a frame, from its end, that functions use at most. */
static unsigned frame_depth(struct ptx_writer *w)
{
        const struct compile_job *job = w->job;
        unsigned known;

        if (!w->frame_depth) {
                known = job->stack_depth ? job->stack_depth(job->data) : 0;
                w->frame_depth = known && known < CODE_FRAME_BYTES ? known : CODE_FRAME_BYTES;
        }
        return w->frame_depth;
}

/* Slots are numbered from the end of the stack. False: too many. */
static bool find_slots(struct ptx_writer *w, const struct value *address, int off, unsigned bytes,
                       struct choice *c)
{
        struct span at = flow_reach(w->code, w->before, address, off, bytes);

        if (at.last - at.first >= 8 * (SLOTS_MAX - 1) && flow_is_frame(address)) {
                int lowest = flow_frame_end(address) - (int)frame_depth(w);

                if (at.first < lowest && lowest <= at.last)
                        at.first = (int16_t)lowest;
        }
        c->first = flow_slot(at.last);
        c->count = flow_slot(at.first) - c->first + 1;
        return c->count <= SLOTS_MAX;
}

/* What the address says; the slot at distance d is (-d - 1) / 8. */
static bool write_choice(struct ptx_writer *w, const struct value *address, unsigned reg, int off,
                         unsigned bytes, struct choice *ret)
{
        struct choice c;
        unsigned at;

        if (!find_slots(w, address, off, bytes, &c)) {
                w->stack_is_wide = true;
                return false;
        }
        for (unsigned k = 0; k < c.count; k++)
                ptx_use_slot(w, c.first + k);
        at = ptx_low_half(w, reg);
        c.slot = ptx_word(w);
        c.shift = ptx_word(w);
        if (off)
                ptx_line(w, "add.s32 %%w%u, %%w%u, %d", at, at, off);
        ptx_line(w, "not.b32 %%w%u, %%w%u", c.slot, at);
        ptx_line(w, "shr.u32 %%w%u, %%w%u, 3", c.slot, c.slot);
        ptx_line(w, "and.b32 %%w%u, %%w%u, 7", c.shift, at);
        ptx_line(w, "shl.b32 %%w%u, %%w%u, 3", c.shift, c.shift);
        *ret = c;
        return true;
}

static unsigned is_slot(struct ptx_writer *w, const struct choice *c, unsigned k)
{
        unsigned p = ptx_predicate(w);

        ptx_line(w, "setp.eq.u32 %%p%u, %%w%u, %u", p, c->slot, c->first + k);
        return p;
}

static unsigned read_chosen(struct ptx_writer *w, const struct choice *c)
{
        unsigned t = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, %%s%u", t, c->first);
        for (unsigned k = 1; k < c->count; k++)
                ptx_line(w, "selp.b64 %%d%u, %%s%u, %%d%u, %%p%u", t, c->first + k, t,
                         is_slot(w, c, k));
        return t;
}

/* The slot with the low bytes of %d t in place of its own. */
static void merge(struct ptx_writer *w, const struct choice *c, unsigned bytes, unsigned t)
{
        unsigned rest = read_chosen(w, c), mask = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, 0x%" PRIx64, mask, byte_mask(bytes));
        ptx_line(w, "and.b64 %%d%u, %%d%u, %%d%u", t, t, mask);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, %%w%u", t, t, c->shift);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, %%w%u", mask, mask, c->shift);
        ptx_line(w, "not.b64 %%d%u, %%d%u", mask, mask);
        ptx_line(w, "and.b64 %%d%u, %%d%u, %%d%u", rest, rest, mask);
        ptx_line(w, "or.b64 %%d%u, %%d%u, %%d%u", t, t, rest);
}

unsigned ptx_stack_load(struct ptx_writer *w, const struct value *address, unsigned reg, int off,
                        unsigned bytes)
{
        struct choice c;
        unsigned t;

        if (tnum_is_const(address->num))
                return read_slot(w, (int64_t)address->num.value + off, bytes);
        if (!write_choice(w, address, reg, off, bytes, &c))
                return ptx_wide(w);
        t = read_chosen(w, &c);
        if (bytes < 8) {
                ptx_line(w, "shr.u64 %%d%u, %%d%u, %%w%u", t, t, c.shift);
                ptx_line(w, "and.b64 %%d%u, %%d%u, 0x%" PRIx64, t, t, byte_mask(bytes));
        }
        return t;
}

void ptx_stack_store(struct ptx_writer *w, const struct value *address, unsigned reg, int off,
                     unsigned bytes, const char *value)
{
        struct choice c;
        unsigned t;

        if (tnum_is_const(address->num)) {
                write_slot(w, (int64_t)address->num.value + off, bytes, value);
                return;
        }
        if (!write_choice(w, address, reg, off, bytes, &c))
                return;
        t = ptx_wide(w);
        ptx_line(w, "mov.b64 %%d%u, %s", t, value);
        if (bytes < 8)
                merge(w, &c, bytes, t);
        for (unsigned k = 0; k < c.count; k++)
                ptx_line(w, "@%%p%u mov.b64 %%s%u, %%d%u", is_slot(w, &c, k), c.first + k, t);
}
