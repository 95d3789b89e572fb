/* SPDX-License-Identifier: Apache-2.0 */

/* Helpers, all inlined. */
#include <inttypes.h>

#include "device/insn.h"
#include "device/ptx.h"

unsigned ptx_map_base(struct ptx_writer *w, unsigned map)
{
        unsigned t = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, @M%u@", t, map);
        ptx_blur_address(w, t);
        return t;
}

static unsigned write_key(struct ptx_writer *w, const struct flow_state *before)
{
        const struct value *key = &before->regs[BPF_REG_2];
        unsigned t = ptx_word(w);

        if (w->stack_in_memory)
                ptx_memory_line(w, "ld.local.u32 %%w%u, [%%b%u]", t, BPF_REG_2);
        else
                ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", t,
                         ptx_stack_read(w, (int64_t)key->num.value, 4));
        return t;
}

/* An array element by a key that is not constant; checked when it may be out of bounds. */
static void write_indexed(struct ptx_writer *w, const struct flow_state *before,
                          const struct device_map_info *map, unsigned base, bool check)
{
        unsigned key = write_key(w, before), p;
        uint64_t stride = map->bytes / map->max_entries;

        ptx_line(w, "mad.wide.u32 %%b0, %%w%u, %" PRIu64 ", %%d%u", key, stride, base);
        if (!check)
                return;
        p = ptx_predicate(w);
        ptx_line(w, "setp.ge.u32 %%p%u, %%w%u, %u", p, key, map->max_entries);
        ptx_line(w, "selp.b64 %%b0, 0, %%b0, %%p%u", p);
}

static void write_lookup(struct ptx_writer *w, const struct flow_state *before)
{
        unsigned index = before->regs[BPF_REG_1].map;
        const struct device_map_info *map = &w->job->maps[index];
        struct value key;
        bool constant = flow_key(before, &key), inside = tnum_max(key.num) < map->max_entries;
        unsigned base;

        if (constant && !inside) {
                ptx_line(w, "mov.b64 %%b0, 0");
                return;
        }
        base = ptx_map_base(w, index);
        if (constant)
                ptx_line(w, "add.s64 %%b0, %%d%u, %" PRIu64, base,
                         key.num.value * (map->bytes / map->max_entries));
        else
                write_indexed(w, before, map, base, !inside);
}

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

void ptx_call(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        if (w->pending.valid && w->pending.base_reg == BPF_REG_0)
                ptx_flush(w);
        if (insn_is_warp_wide(w->code->insns[i].imm)) {
                write_warp_wide(w, w->code->insns[i].imm);
                return;
        }
        switch (w->code->insns[i].imm) {
        case INSN_HELPER_BITS:
                write_bits(w);
                break;
        case INSN_HELPER_MAP_LOOKUP:
                write_lookup(w, before);
                break;
        case INSN_HELPER_KTIME_GET_NS:
                write_ktime(w);
                break;
        case INSN_HELPER_GET_SMP_PROCESSOR_ID:
                write_smid(w);
                break;
        }
}
