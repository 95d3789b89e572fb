/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Helpers of ring buffers, and messages, which are records of a ring of their own
 * (device_abi.h). Nothing waits but for the record's number: an atomic operation in
 * GPU memory, also where the slots are in the host's.
 */
#include <errno.h>
#include <inttypes.h>

#include "device/device_abi.h"
#include "device/flow_step.h"
#include "device/insn.h"
#include "device/ptx.h"

#define HEAD(field) offsetof(struct device_event_head, field)

/* A record's words, in %d, as they go into the ring. */
struct record {
        unsigned bytes;
        unsigned count;
        unsigned words[GPUOBS_RECORD_MAX / 8];
};

static void read_record(struct ptx_writer *w, const struct flow_state *before, unsigned reg,
                        unsigned bytes, struct record *ret)
{
        *ret = (struct record){.bytes = bytes};
        for (unsigned at = 0; at < bytes; at += 8)
                ret->words[ret->count++] = ptx_argument_word(w, before, reg, at, bytes);
}

/* The address of the ring's head, in a new %d. */
static unsigned write_head(struct ptx_writer *w, const struct device_map_info *ring)
{
        unsigned head = ptx_map_base(w, ring->head_map);

        if (ring->head_offset)
                ptx_line(w, "add.s64 %%d%u, %%d%u, %u", head, head, ring->head_offset);
        return head;
}

/* Where record %d `number` goes, in a new %d. */
static unsigned write_slot(struct ptx_writer *w, unsigned map, unsigned number)
{
        const struct device_map_info *ring = &w->job->maps[map];
        unsigned slot = ptx_map_base(w, map), place = ptx_word(w);

        ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", place, number);
        ptx_line(w, "and.b32 %%w%u, %%w%u, %u", place, place, device_ring_slots(ring) - 1);
        ptx_line(w, "mad.wide.u32 %%d%u, %%w%u, %u, %%d%u", slot, place,
                 device_ring_slot_bytes(ring), slot);
        return slot;
}

/* The seal over a record that is number %d `number`, in a new %d. */
static unsigned write_seal(struct ptx_writer *w, const struct record *r, unsigned number)
{
        unsigned seal = ptx_wide(w), next = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, %u", seal, r->bytes);
        for (unsigned n = 0; n < r->count; n++)
                ptx_line(w, "mad.lo.s64 %%d%u, %%d%u, 0x%llx, %%d%u", seal, seal, DEVICE_EVENT_MIX,
                         r->words[n]);
        ptx_line(w, "add.s64 %%d%u, %%d%u, 1", next, number);
        ptx_line(w, "xor.b64 %%d%u, %%d%u, %%d%u", seal, seal, next);
        return seal;
}

static void write_words(struct ptx_writer *w, const struct device_map_info *ring,
                        const struct record *r, unsigned slot, unsigned seal)
{
        unsigned at = device_ring_first(ring), bytes = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, %u", bytes, r->bytes);
        ptx_memory_line(w, "st.global.v2.u64 [%%d%u+%u], {%%d%u, %%d%u}", slot, at, seal, bytes);
        for (unsigned n = 0; n < r->count; n += 2) {
                at += 16;
                if (n + 1 < r->count)
                        ptx_memory_line(w, "st.global.v2.u64 [%%d%u+%u], {%%d%u, %%d%u}", slot, at,
                                        r->words[n], r->words[n + 1]);
                else
                        ptx_memory_line(w, "st.global.u64 [%%d%u+%u], %%d%u", slot, at,
                                        r->words[n]);
        }
}

/* Take a number and write the record. */
static void write_record(struct ptx_writer *w, unsigned map, const struct record *r)
{
        const struct device_map_info *ring = &w->job->maps[map];
        unsigned head = write_head(w, ring), number = ptx_wide(w), slot;

        ptx_atomic_line(w, "atom.global.gpu.add.u64 %%d%u, [%%d%u+%zu], 1", number, head,
                        HEAD(head));
        slot = write_slot(w, map, number);
        write_words(w, ring, r, slot, write_seal(w, r, number));
}

static void write_output(struct ptx_writer *w, const struct flow_state *before)
{
        struct record r;

        read_record(w, before, BPF_REG_2, (unsigned)before->regs[BPF_REG_3].num.value, &r);
        write_record(w, before->regs[BPF_REG_1].map, &r);
        ptx_line(w, "mov.b64 %%b0, 0");
}

static void write_reserve(struct ptx_writer *w, size_t i)
{
        int64_t start = code_record_start(w->code, (unsigned)w->code->insns[i].off);

        if (w->stack_addresses)
                ptx_line(w, "add.s64 %%b0, %%b10, %" PRId64, start);
}

static void write_submit(struct ptx_writer *w, const struct flow_state *before)
{
        const struct flow_record *record = &before->records[flow_record_number(w->code, before)];
        struct record r;

        read_record(w, before, BPF_REG_1, record->bytes, &r);
        write_record(w, record->map, &r);
}

void ptx_ring_call(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        ptx_flush(w);
        switch (w->code->insns[i].imm) {
        case INSN_HELPER_RINGBUF_OUTPUT:
                write_output(w, before);
                break;
        case INSN_HELPER_RINGBUF_RESERVE:
                write_reserve(w, i);
                break;
        case INSN_HELPER_RINGBUF_SUBMIT:
                write_submit(w, before);
                break;
        }
}

/* Messages */

/*
 * Count the message in its window, and go on at the label "over" past the limit. A window
 * that has begun since is begun here, by whoever comes first; the others' exchange fails.
 * One branch only, which machine code takes also where lanes go different ways. Returns
 * the %d of the ring's head.
 */
static unsigned write_limit(struct ptx_writer *w, size_t i)
{
        unsigned head = write_head(w, &w->job->maps[w->job->print_map]), window = ptx_wide(w);
        unsigned seen = ptx_wide(w), begun = ptx_wide(w), p = ptx_predicate(w);

        ptx_line(w, "mov.u64 %%d%u, %%globaltimer", window);
        ptx_blur_wide(w, window);
        ptx_line(w, "shr.u64 %%d%u, %%d%u, %d", window, window, DEVICE_PRINT_WINDOW);
        ptx_memory_line(w, "ld.relaxed.gpu.global.u64 %%d%u, [%%d%u+%zu]", seen, head,
                        HEAD(window));
        ptx_line(w, "shr.u64 %%d%u, %%d%u, %d", begun, seen, DEVICE_PRINT_COUNT_BITS);
        ptx_line(w, "setp.lt.u64 %%p%u, %%d%u, %%d%u", p, begun, window);
        ptx_line(w, "shl.b64 %%d%u, %%d%u, %d", window, window, DEVICE_PRINT_COUNT_BITS);
        ptx_atomic_line(w, "@%%p%u atom.global.gpu.cas.b64 %%d%u, [%%d%u+%zu], %%d%u, %%d%u", p,
                        begun, head, HEAD(window), seen, window);
        ptx_atomic_line(w, "atom.global.gpu.add.u64 %%d%u, [%%d%u+%zu], 1", seen, head,
                        HEAD(window));
        ptx_line(w, "and.b64 %%d%u, %%d%u, 0x%x", seen, seen, (1u << DEVICE_PRINT_COUNT_BITS) - 1);
        ptx_line(w, "setp.ge.u64 %%p%u, %%d%u, %d", p, seen, DEVICE_PRINT_LIMIT);
        ptx_line(w, "@%%p%u bra%s G@U@_over%zu", p, ptx_uniform(w), i);
        return head;
}

/* Number and kernel in one word, the time, grid id and context. */
static void write_print_head(struct ptx_writer *w, unsigned message, struct record *r)
{
        unsigned first = ptx_wide(w), time = ptx_wide(w), grid = ptx_wide(w), context = ptx_wide(w);
        unsigned kernel = ptx_word(w), number = ptx_word(w);

        w->uses_zero = true;
        ptx_line(w, "or.b32 %%w%u, %%z, @K@", kernel);
        ptx_line(w, "mov.u32 %%w%u, %u", number, message);
        ptx_line(w, "mov.b64 %%d%u, {%%w%u, %%w%u}", first, number, kernel);
        ptx_line(w, "mov.u64 %%d%u, %%globaltimer", time);
        ptx_blur_wide(w, time);
        ptx_line(w, "mov.u64 %%d%u, %%gridid", grid);
        ptx_blur_wide(w, grid);
        ptx_line(w, "cvt.u64.u32 %%d%u, %%w%u", context, ptx_context_number(w));
        ptx_line(w, "shl.b64 %%d%u, %%d%u, %d", context, context, DEVICE_PRINT_CONTEXT_SHIFT);
        ptx_line(w, "or.b64 %%d%u, %%d%u, %%d%u", grid, grid, context);
        r->words[r->count++] = first;
        r->words[r->count++] = time;
        r->words[r->count++] = grid;
}

static void write_print_arguments(struct ptx_writer *w, size_t i, const struct flow_state *before,
                                  unsigned count, struct record *r)
{
        for (unsigned n = 0; n < count; n++) {
                unsigned t;

                if (w->code->insns[i].imm == INSN_HELPER_TRACE_VPRINTK) {
                        t = ptx_argument_word(w, before, BPF_REG_3, 8 * n, 8 * count);
                } else {
                        t = ptx_wide(w);
                        ptx_line(w, "mov.b64 %%d%u, %%b%u", t, BPF_REG_3 + n);
                }
                r->words[r->count++] = t;
        }
        r->bytes = 8 * r->count;
}

void ptx_print_call(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        unsigned count, message = flow_message(w->code, before, &count);
        struct record r = {};
        unsigned head;

        ptx_flush(w);
        head = write_limit(w, i);
        write_print_head(w, message, &r);
        write_print_arguments(w, i, before, count, &r);
        write_record(w, w->job->print_map, &r);
        ptx_line(w, "mov.b64 %%b0, 0");
        ptx_line(w, "bra%s G@U@_printed%zu", ptx_uniform(w), i);
        text_add(&w->body, "G@U@_over%zu:\n", i);
        ptx_atomic_line(w, "red.global.gpu.add.u64 [%%d%u+%zu], 1", head, HEAD(suppressed));
        ptx_line(w, "mov.b64 %%b0, %d", -EBUSY);
        text_add(&w->body, "G@U@_printed%zu:\n", i);
}
