/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Loads, stores and atomics. The context is special registers; the stack is
 * registers too (ptx_stack.c), or local memory; map elements are global memory.
 *
 * Loads from maps are relaxed at the scope of who else writes there, so that
 * they do not come from a stale first-level cache; those from constants, which are
 * there before the kernel is and stay, may come from any. Stores are plain.
 */
#include <inttypes.h>

#include "device/context.h"
#include "device/device_abi.h"
#include "device/insn.h"
#include "device/ptx.h"

/* Context */

/* Blurred in halves: an OR with a wide zero is none in the upper half. */
static unsigned write_gridid(struct ptx_writer *w)
{
        unsigned t = ptx_wide(w), low, high;

        ptx_line(w, "mov.u64 %%d%u, %%gridid", t);
        if (w->job->where != DEVICE_EXIT)
                return t;
        low = ptx_word(w);
        high = ptx_word(w);
        ptx_line(w, "mov.b64 {%%w%u, %%w%u}, %%d%u", low, high, t);
        ptx_blur_word(w, low);
        ptx_blur_word(w, high);
        ptx_line(w, "mov.b64 %%d%u, {%%w%u, %%w%u}", t, low, high);
        return t;
}

/* The literal stays whole in one instruction: an OR with the unknowable zero. */
static void write_kernel_id(struct ptx_writer *w, unsigned word)
{
        w->uses_zero = true;
        ptx_line(w, "or.b32 %%w%u, %%z, @K@", word);
}

/* The agent knows which instruction loads it where the program is put (agent_abi.h). */
static void write_agent_word(struct ptx_writer *w, char token, unsigned word)
{
        ptx_line(w, "@%c0@ %%w%u, @%c1@", token, word, token);
        ptx_blur_word(w, word);
}

unsigned ptx_context_number(struct ptx_writer *w)
{
        unsigned word = ptx_word(w);

        write_agent_word(w, 'C', word);
        return word;
}

/* Bits of DEVICE_ACCESS(). */
static void write_access_part(struct ptx_writer *w, unsigned shift, unsigned bits, unsigned word)
{
        w->uses_access = true;
        ptx_line(w, "bfe.u32 %%w%u, %%ms, %u, %u", word, shift, bits);
}

/* One 4-byte word of the context in a new %w. */
static unsigned write_context_word(struct ptx_writer *w, uint32_t offset)
{
        const struct context_word *word = context_word(offset);
        unsigned t = ptx_word(w);

        switch (word->source) {
        case CONTEXT_REGISTER:
                ptx_line(w, "mov.u32 %%w%u, %s", t, word->name);
                ptx_blur_word(w, t);
                break;
        case CONTEXT_GRIDID_LOW:
                ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", t, write_gridid(w));
                break;
        case CONTEXT_GRIDID_HIGH:
                ptx_line(w, "mov.b64 {%%w%u, %%w%u}, %%d%u", ptx_word(w), t, write_gridid(w));
                break;
        case CONTEXT_KERNEL_ID:
                write_kernel_id(w, t);
                break;
        case CONTEXT_ACTIVE_MASK:
                w->uses_active_mask = true;
                ptx_line(w, "mov.b32 %%w%u, %%am", t);
                ptx_blur_word(w, t);
                break;
        case CONTEXT_NUMBER:
                write_agent_word(w, 'C', t);
                break;
        case CONTEXT_QUEUE:
                write_agent_word(w, 'Q', t);
                break;
        case CONTEXT_ADDRESS_LOW:
                w->uses_address = true;
                ptx_line(w, "cvt.u32.u64 %%w%u, %%ma", t);
                break;
        case CONTEXT_ADDRESS_HIGH:
                w->uses_address = true;
                ptx_line(w, "mov.b64 {%%w%u, %%w%u}, %%ma", ptx_word(w), t);
                break;
        case CONTEXT_SIZE:
                write_access_part(w, 0, 8, t);
                break;
        case CONTEXT_KIND:
                write_access_part(w, 8, 8, t);
                break;
        case CONTEXT_SPACE:
                write_access_part(w, 16, 8, t);
                break;
        case CONTEXT_LANES:
                w->uses_active_mask = true;
                ptx_line(w, "popc.b32 %%w%u, %%am", t);
                ptx_blur_word(w, t);
                break;
        case CONTEXT_ZERO:
                ptx_line(w, "mov.b32 %%w%u, 0", t);
                break;
        }
        return t;
}

/* Keep `bytes` bytes of word t, from byte `first`. */
static void cut_word(struct ptx_writer *w, unsigned t, unsigned first, unsigned bytes)
{
        if (first)
                ptx_line(w, "shr.u32 %%w%u, %%w%u, %u", t, t, 8 * first);
        if (bytes < 4)
                ptx_line(w, "and.b32 %%w%u, %%w%u, 0x%x", t, t, (1u << 8 * bytes) - 1);
}

static void load_context(struct ptx_writer *w, unsigned reg, uint32_t offset, unsigned bytes)
{
        unsigned low, high;

        if (bytes == 8 && context_word(offset)->source == CONTEXT_GRIDID_LOW) {
                ptx_line(w, "mov.b64 %%b%u, %%d%u", reg, write_gridid(w));
                return;
        }
        if (bytes == 8 && context_word(offset)->source == CONTEXT_ADDRESS_LOW) {
                w->uses_address = true;
                ptx_line(w, "mov.b64 %%b%u, %%ma", reg);
                return;
        }
        low = write_context_word(w, offset & ~3u);
        if (bytes == 8) {
                high = write_context_word(w, offset + 4);
                ptx_line(w, "mov.b64 %%b%u, {%%w%u, %%w%u}", reg, low, high);
                return;
        }
        cut_word(w, low, offset & 3, bytes);
        ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", reg, low);
}

/* Global and local memory */

/* Type suffix of a memory access; parts of a word travel in a %w. */
static unsigned bits_of(unsigned bytes)
{
        return 8 * bytes;
}

static const char *load_space(const struct ptx_writer *w, const struct value *base)
{
        if (base->kind == VALUE_STACK)
                return "ld.local";
        if (w->job->maps[base->map].constant)
                return "ld.global.nc";
        return w->job->maps[base->map].placement == GPUOBS_PLACE_HOST ? "ld.relaxed.sys.global"
                                                                      : "ld.relaxed.gpu.global";
}

static void load_memory(struct ptx_writer *w, const struct code_insn *insn,
                        const struct value *base)
{
        unsigned bytes = insn_size(insn->code), t;

        if (bytes == 8) {
                ptx_memory_line(w, "%s.u64 %%b%u, [%%b%u+%d]", load_space(w, base), insn->dst,
                                insn->src, insn->off);
                return;
        }
        t = ptx_word(w);
        ptx_memory_line(w, "%s.u%u %%w%u, [%%b%u+%d]", load_space(w, base), bits_of(bytes), t,
                        insn->src, insn->off);
        ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", insn->dst, t);
}

static void load_zero_extended(struct ptx_writer *w, const struct code_insn *insn,
                               const struct value *base)
{
        int64_t at = (int64_t)base->num.value + insn->off;
        unsigned bytes = insn_size(insn->code);

        if (base->kind == VALUE_CONTEXT)
                load_context(w, insn->dst, (uint32_t)at, bytes);
        else if (base->kind == VALUE_STACK && !w->stack_in_memory)
                ptx_line(w, "mov.b64 %%b%u, %%d%u", insn->dst,
                         ptx_stack_load(w, base, insn->src, insn->off, bytes));
        else
                load_memory(w, insn, base);
}

void ptx_load(struct ptx_writer *w, size_t i, const struct flow_state *before,
              const struct flow_state *after)
{
        const struct code_insn *insn = &w->code->insns[i];
        const struct value *base = &before->regs[insn->src], *result = &after->regs[insn->dst];

        if (base->kind == VALUE_ELEMENT || (w->pending.valid && w->pending.base_reg == insn->dst))
                ptx_flush(w);
        if (!ptx_exists(w, result))
                return;
        if (result->kind == VALUE_NUMBER && tnum_is_const(result->num)) {
                ptx_line(w, "mov.b64 %%b%u, 0x%" PRIx64, insn->dst, result->num.value);
                return;
        }
        load_zero_extended(w, insn, base);
        if (insn_is_signed_load(insn->code))
                ptx_extend_sign(w, insn->dst, bits_of(insn_size(insn->code)));
}

/* The value a store stores: a register or a sign-extended constant. */
static struct ptx_operand stored_value(const struct code_insn *insn)
{
        struct ptx_operand o;

        if (BPF_CLASS(insn->code) == BPF_STX)
                snprintf(o.text, sizeof(o.text), "%%b%u", insn->src);
        else
                snprintf(o.text, sizeof(o.text), "%d", insn->imm);
        return o;
}

static void write_memory(struct ptx_writer *w, const struct code_insn *insn, const char *space,
                         struct ptx_operand value)
{
        unsigned bytes = insn_size(insn->code), wide = ptx_wide(w), t;

        ptx_line(w, "mov.b64 %%d%u, %s", wide, value.text);
        if (bytes == 8) {
                ptx_memory_line(w, "%s.u64 [%%b%u+%d], %%d%u", space, insn->dst, insn->off, wide);
                return;
        }
        t = ptx_word(w);
        ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", t, wide);
        ptx_memory_line(w, "%s.u%u [%%b%u+%d], %%w%u", space, bits_of(bytes), insn->dst, insn->off,
                        t);
}

static void store_memory(struct ptx_writer *w, const struct code_insn *insn,
                         const struct value *base)
{
        write_memory(w, insn, base->kind == VALUE_STACK ? "st.local" : "st.global",
                     stored_value(insn));
}

/* Two stores of 8 bytes that make up 16 aligned ones become a single instruction. */

void ptx_flush(struct ptx_writer *w)
{
        struct ptx_pending *p = &w->pending;
        size_t insn = w->insn;

        if (!p->valid)
                return;
        w->insn = p->insn;
        ptx_memory_line(w, "st.global.u64 [%%d%u+%" PRId64 "], %%d%u", p->address, p->at, p->value);
        w->insn = insn;
        p->valid = false;
}

static void join_pending(struct ptx_writer *w, const struct code_insn *insn)
{
        struct ptx_pending *p = &w->pending;
        unsigned value = ptx_wide(w);
        bool second = insn->off > p->at;

        ptx_line(w, "mov.b64 %%d%u, %s", value, stored_value(insn).text);
        ptx_memory_line(w, "st.global.v2.u64 [%%d%u+%" PRId64 "], {%%d%u, %%d%u}", p->address,
                        second ? p->at : insn->off, second ? p->value : value,
                        second ? value : p->value);
        p->valid = false;
}

static void hold_back(struct ptx_writer *w, const struct code_insn *insn)
{
        struct ptx_pending *p = &w->pending;

        *p = (struct ptx_pending){.valid = true,
                                  .base_reg = insn->dst,
                                  .insn = w->insn,
                                  .at = insn->off,
                                  .address = ptx_wide(w),
                                  .value = ptx_wide(w)};
        ptx_line(w, "mov.b64 %%d%u, %%b%u", p->address, insn->dst);
        ptx_line(w, "mov.b64 %%d%u, %s", p->value, stored_value(insn).text);
}

/* Whether insn stores the other half of the 16 aligned bytes the held-back store is in. */
static bool completes_pending(const struct ptx_writer *w, const struct code_insn *insn,
                              const struct value *base)
{
        const struct ptx_pending *p = &w->pending;
        int64_t low = p->at < insn->off ? p->at : insn->off;
        struct tnum at = tnum_add(base->num, tnum_const((uint64_t)low));

        return p->valid && p->base_reg == insn->dst &&
               (insn->off - p->at == 8 || p->at - insn->off == 8) && tnum_alignment(at, 16) == 16;
}

static void store_element(struct ptx_writer *w, const struct code_insn *insn,
                          const struct value *base)
{
        if (insn_size(insn->code) == 8 && completes_pending(w, insn, base)) {
                join_pending(w, insn);
                return;
        }
        ptx_flush(w);
        if (insn_size(insn->code) == 8)
                hold_back(w, insn);
        else
                store_memory(w, insn, base);
}

void ptx_store(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        const struct code_insn *insn = &w->code->insns[i];
        const struct value *base = &before->regs[insn->dst];

        if (BPF_CLASS(insn->code) == BPF_STX && !ptx_exists(w, &before->regs[insn->src]))
                return;
        if (base->kind == VALUE_ELEMENT)
                store_element(w, insn, base);
        else if (w->stack_in_memory)
                store_memory(w, insn, base);
        else
                ptx_stack_store(w, base, insn->dst, insn->off, insn_size(insn->code),
                                stored_value(insn).text);
}

/* Atomics */

static const char *atomic_name(int32_t imm)
{
        switch (imm & ~BPF_FETCH) {
        case BPF_ADD:
                return "add";
        case BPF_AND:
                return "and";
        case BPF_OR:
                return "or";
        case BPF_XOR:
                return "xor";
        }
        return imm == BPF_XCHG ? "exch" : "cas";
}

static const char *atomic_type(int32_t imm)
{
        return (imm & ~BPF_FETCH) == BPF_ADD ? "u" : "b";
}

/* Operand of an atomic in the width of the access. */
static struct ptx_operand atomic_operand(struct ptx_writer *w, unsigned reg, unsigned bytes)
{
        struct ptx_operand o;

        if (bytes == 8)
                snprintf(o.text, sizeof(o.text), "%%b%u", reg);
        else
                snprintf(o.text, sizeof(o.text), "%%w%u", ptx_low_half(w, reg));
        return o;
}

/* An atomic that gives the old value back in `reg`. */
static void fetch(struct ptx_writer *w, const struct code_insn *insn, unsigned reg)
{
        unsigned bytes = insn_size(insn->code), t = bytes == 8 ? ptx_wide(w) : ptx_word(w);
        struct ptx_operand v = atomic_operand(w, insn->src, bytes), expected = {};
        char kind = bytes == 8 ? 'd' : 'w';

        if (insn->imm == BPF_CMPXCHG)
                expected = atomic_operand(w, BPF_REG_0, bytes);
        ptx_atomic_line(w, "atom.global.gpu.%s.%s%u %%%c%u, [%%b%u+%d], %s%s%s",
                        atomic_name(insn->imm), atomic_type(insn->imm), bits_of(bytes), kind, t,
                        insn->dst, insn->off, expected.text, expected.text[0] ? ", " : "", v.text);
        if (bytes == 8)
                ptx_line(w, "mov.b64 %%b%u, %%d%u", reg, t);
        else
                ptx_line(w, "cvt.u64.u32 %%b%u, %%w%u", reg, t);
}

static void shared_atomic(struct ptx_writer *w, const struct code_insn *insn)
{
        unsigned bytes = insn_size(insn->code);

        ptx_flush(w);
        if (insn->imm & BPF_FETCH) {
                fetch(w, insn, insn->imm == BPF_CMPXCHG ? BPF_REG_0 : insn->src);
                return;
        }
        ptx_atomic_line(w, "red.global.gpu.%s.%s%u [%%b%u+%d], %s", atomic_name(insn->imm),
                        atomic_type(insn->imm), bits_of(bytes), insn->dst, insn->off,
                        atomic_operand(w, insn->src, bytes).text);
}

/* On the stack, which no other thread sees, the parts one after another. */

static void combine(struct ptx_writer *w, const struct code_insn *insn, unsigned new, unsigned old)
{
        unsigned p, low;

        switch (insn->imm & ~BPF_FETCH) {
        case BPF_ADD:
        case BPF_AND:
        case BPF_OR:
        case BPF_XOR:
                ptx_line(w, "%s.%s64 %%d%u, %%d%u, %%b%u", atomic_name(insn->imm),
                         (insn->imm & ~BPF_FETCH) == BPF_ADD ? "s" : "b", new, old, insn->src);
                return;
        }
        ptx_line(w, "mov.b64 %%d%u, %%b%u", new, insn->src);
        if (insn->imm == BPF_XCHG)
                return;
        p = ptx_predicate(w);
        if (insn_size(insn->code) == 8) {
                ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, %%b0", p, old);
        } else {
                low = ptx_word(w);
                ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", low, old);
                ptx_line(w, "setp.eq.u32 %%p%u, %%w%u, %%w%u", p, low, ptx_low_half(w, BPF_REG_0));
        }
        ptx_line(w, "selp.b64 %%d%u, %%d%u, %%d%u, %%p%u", new, new, old, p);
}

static unsigned read_private(struct ptx_writer *w, const struct code_insn *insn,
                             const struct value *base)
{
        unsigned bytes = insn_size(insn->code), t, word;

        if (!w->stack_in_memory)
                return ptx_stack_load(w, base, insn->dst, insn->off, bytes);
        t = ptx_wide(w);
        if (bytes == 8) {
                ptx_memory_line(w, "ld.local.u64 %%d%u, [%%b%u+%d]", t, insn->dst, insn->off);
                return t;
        }
        word = ptx_word(w);
        ptx_memory_line(w, "ld.local.u32 %%w%u, [%%b%u+%d]", word, insn->dst, insn->off);
        ptx_line(w, "cvt.u64.u32 %%d%u, %%w%u", t, word);
        return t;
}

static void private_atomic(struct ptx_writer *w, const struct code_insn *insn,
                           const struct value *base)
{
        unsigned bytes = insn_size(insn->code), old = read_private(w, insn, base);
        unsigned new = ptx_wide(w);
        struct ptx_operand value;

        if (insn->imm & BPF_FETCH)
                ptx_flush(w);
        combine(w, insn, new, old);
        snprintf(value.text, sizeof(value.text), "%%d%u", new);
        if (w->stack_in_memory)
                write_memory(w, insn, "st.local", value);
        else
                ptx_stack_store(w, base, insn->dst, insn->off, bytes, value.text);
        if (insn->imm & BPF_FETCH)
                ptx_line(w, "mov.b64 %%b%u, %%d%u",
                         insn->imm == BPF_CMPXCHG ? BPF_REG_0 : insn->src, old);
}

void ptx_atomic(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        const struct code_insn *insn = &w->code->insns[i];
        const struct value *base = &before->regs[insn->dst];

        if (base->kind == VALUE_STACK)
                private_atomic(w, insn, base);
        else
                shared_atomic(w, insn);
}
