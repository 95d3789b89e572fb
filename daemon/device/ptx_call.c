/* SPDX-License-Identifier: Apache-2.0 */

/* Helpers, all inlined. */
#include <inttypes.h>

#include "device/device_abi.h"
#include "device/insn.h"
#include "device/ptx.h"

static void write_ktime(struct ptx_writer *w)
{
        unsigned t = ptx_wide(w);

        ptx_line(w, "mov.u64 %%d%u, %%globaltimer", t);
        ptx_blur_wide(w, t);
        ptx_line(w, "mov.b64 %%b0, %%d%u", t);
}

static void write_smid(struct ptx_writer *w)
{
        unsigned t = ptx_word(w);

        ptx_line(w, "mov.u32 %%w%u, %%smid", t);
        ptx_blur_word(w, t);
        ptx_line(w, "cvt.u64.u32 %%b0, %%w%u", t);
}

/*
 * Time, multiprocessor, warp and lane, mixed (the last steps of splitmix64): differs
 * from thread to thread and, as the clock goes on, from call to call.
 */
static void write_random(struct ptx_writer *w)
{
        unsigned x = ptx_wide(w), y = ptx_wide(w), a = ptx_word(w), b = ptx_word(w);

        ptx_line(w, "mov.u64 %%d%u, %%clock64", x);
        ptx_blur_wide(w, x);
        ptx_line(w, "mov.u32 %%w%u, %%smid", a);
        ptx_blur_word(w, a);
        ptx_line(w, "mov.u32 %%w%u, %%warpid", b);
        ptx_line(w, "mad.lo.u32 %%w%u, %%w%u, %d, %%w%u", a, a, DEVICE_WARPS_MAX, b);
        ptx_line(w, "mov.u32 %%w%u, %%laneid", b);
        ptx_line(w, "mad.lo.u32 %%w%u, %%w%u, 32, %%w%u", a, a, b);
        ptx_line(w, "mad.wide.u32 %%d%u, %%w%u, 0x9e3779b9, %%d%u", x, a, x);
        ptx_line(w, "shr.u64 %%d%u, %%d%u, 30", y, x);
        ptx_line(w, "xor.b64 %%d%u, %%d%u, %%d%u", x, x, y);
        ptx_line(w, "mul.lo.s64 %%d%u, %%d%u, 0xbf58476d1ce4e5b9", x, x);
        ptx_line(w, "shr.u64 %%d%u, %%d%u, 27", y, x);
        ptx_line(w, "xor.b64 %%d%u, %%d%u, %%d%u", x, x, y);
        ptx_line(w, "mul.lo.s64 %%d%u, %%d%u, 0x94d049bb133111eb", x, x);
        ptx_line(w, "shr.u64 %%b0, %%d%u, 32", x);
}

/* The lanes that are on the way together; they all come here, or it would have been refused. */
static void write_ballot(struct ptx_writer *w)
{
        unsigned t = ptx_low_half(w, BPF_REG_1), p = ptx_predicate(w);

        w->uses_active_mask = true;
        ptx_line(w, "setp.ne.u32 %%p%u, %%w%u, 0", p, t);
        ptx_line(w, "vote.sync.ballot.b32 %%w%u, %%p%u, %%am", t, p);
        ptx_line(w, "cvt.u64.u32 %%b0, %%w%u", t);
}

static const char *reduction(int32_t helper)
{
        switch (helper) {
        case INSN_HELPER_WARP_SUM:
                return "add.u";
        case INSN_HELPER_WARP_MIN:
                return "min.u";
        case INSN_HELPER_WARP_MAX:
                return "max.u";
        case INSN_HELPER_WARP_AND:
                return "and.b";
        case INSN_HELPER_WARP_OR:
                return "or.b";
        }
        return "xor.b";
}

static void write_warp_wide(struct ptx_writer *w, int32_t helper)
{
        unsigned t;

        if (helper == INSN_HELPER_BALLOT) {
                write_ballot(w);
                return;
        }
        t = ptx_low_half(w, BPF_REG_1);
        w->uses_active_mask = true;
        ptx_line(w, "redux.sync.%s32 %%w%u, %%w%u, %%am", reduction(helper), t, t);
        ptx_line(w, "cvt.u64.u32 %%b0, %%w%u", t);
}

static void write_bits(struct ptx_writer *w)
{
        unsigned t = ptx_word(w);

        ptx_line(w, "clz.b64 %%w%u, %%b1", t);
        ptx_line(w, "sub.s32 %%w%u, 64, %%w%u", t, t);
        ptx_line(w, "cvt.u64.u32 %%b0, %%w%u", t);
}

static void write_ones(struct ptx_writer *w)
{
        unsigned t = ptx_word(w);

        ptx_line(w, "popc.b64 %%w%u, %%b1", t);
        ptx_line(w, "cvt.u64.u32 %%b0, %%w%u", t);
}

/* Counted before the program started (ptx.c). */
static void write_access_count(struct ptx_writer *w, int32_t helper)
{
        w->uses_address = w->uses_active_mask = true;
        if (helper == INSN_HELPER_SECTORS)
                w->uses_sectors = true;
        else
                w->uses_lines = true;
        ptx_line(w, "cvt.u64.u32 %%b0, %s", helper == INSN_HELPER_SECTORS ? "%ns" : "%nl");
}

void ptx_call(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        if (w->pending.valid && w->pending.base_reg == BPF_REG_0)
                ptx_flush(w);
        if (insn_is_warp_wide(w->code->insns[i].imm)) {
                write_warp_wide(w, w->code->insns[i].imm);
                return;
        }
        if (insn_is_ring(w->code->insns[i].imm)) {
                ptx_ring_call(w, i, before);
                return;
        }
        if (insn_is_print(w->code->insns[i].imm)) {
                ptx_print_call(w, i, before);
                return;
        }
        switch (w->code->insns[i].imm) {
        case INSN_HELPER_BITS:
                write_bits(w);
                break;
        case INSN_HELPER_ONES:
                write_ones(w);
                break;
        case INSN_HELPER_SECTORS:
        case INSN_HELPER_LINES:
                write_access_count(w, w->code->insns[i].imm);
                break;
        case INSN_HELPER_MAP_LOOKUP:
        case INSN_HELPER_MAP_UPDATE:
        case INSN_HELPER_MAP_DELETE:
                ptx_map_call(w, i, before);
                break;
        case INSN_HELPER_GET_PRANDOM_U32:
                write_random(w);
                break;
        case INSN_HELPER_KTIME_GET_NS:
                write_ktime(w);
                break;
        case INSN_HELPER_GET_SMP_PROCESSOR_ID:
                write_smid(w);
                break;
        }
}
