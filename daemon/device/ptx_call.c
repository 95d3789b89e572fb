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
                ptx_line(w, "ld.local.u32 %%w%u, [%%b%u]", t, BPF_REG_2);
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

void ptx_call(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        if (w->pending.valid && w->pending.base_reg == BPF_REG_0)
                ptx_flush(w);
        switch (w->code->insns[i].imm) {
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
