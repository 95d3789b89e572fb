/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Map helpers, all inlined. An array element is base + (copy * entries + key) * stride,
 * where a map with an element per multiprocessor, warp or thread has as many copies
 * as a GPU can have of those (device_abi.h).
 *
 * A hash (device_hash_slot in device_abi.h) is open addressing without locks: one
 * compare-and-swap gives a place to a key, for good; deleting clears a flag beside it.
 * So two threads that insert the same key meet at the same place, and nobody waits. The
 * words of a long key are written likewise by all who insert it.
 */
#include <errno.h>
#include <inttypes.h>

#include "device/device_abi.h"
#include "device/flow_step.h"
#include "device/insn.h"
#include "device/ptx.h"

unsigned ptx_map_base(struct ptx_writer *w, unsigned map)
{
        unsigned t = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, @M%u@", t, map);
        ptx_blur_address(w, t);
        return t;
}

/* The low `bytes` bytes at the stack address in register `reg`, `at` bytes further, in a new %d. */
static unsigned write_argument(struct ptx_writer *w, const struct flow_state *before, unsigned reg,
                               unsigned at, unsigned bytes)
{
        unsigned t, word;

        if (!w->stack_in_memory)
                return ptx_stack_load(w, &before->regs[reg], reg, (int)at, bytes);
        t = ptx_wide(w);
        if (bytes == 8) {
                ptx_memory_line(w, "ld.local.u64 %%d%u, [%%b%u+%u]", t, reg, at);
                return t;
        }
        word = ptx_word(w);
        ptx_memory_line(w, "ld.local.u%u %%w%u, [%%b%u+%u]", 8 * bytes, word, reg, at);
        ptx_line(w, "cvt.u64.u32 %%d%u, %%w%u", t, word);
        return t;
}

static unsigned write_special(struct ptx_writer *w, const char *name)
{
        unsigned t = ptx_word(w);

        ptx_line(w, "mov.u32 %%w%u, %s", t, name);
        ptx_blur_word(w, t);
        return t;
}

/* Which copy of the elements this thread uses, in a new %w. */
static unsigned write_copy(struct ptx_writer *w, enum device_spread spread)
{
        unsigned copy = write_special(w, "%smid"), t;

        ptx_line(w, "min.u32 %%w%u, %%w%u, %u", copy, copy, DEVICE_SMS_MAX - 1);
        if (spread == DEVICE_PER_SM)
                return copy;
        t = write_special(w, "%warpid");
        ptx_line(w, "min.u32 %%w%u, %%w%u, %u", t, t, DEVICE_WARPS_MAX - 1);
        ptx_line(w, "mad.lo.u32 %%w%u, %%w%u, %u, %%w%u", copy, copy, DEVICE_WARPS_MAX, t);
        if (spread == DEVICE_PER_WARP)
                return copy;
        t = write_special(w, "%laneid");
        ptx_line(w, "mad.lo.u32 %%w%u, %%w%u, 32, %%w%u", copy, copy, t);
        return copy;
}

/* Move the base of a map on to this thread's copy of the elements. */
static void add_copy(struct ptx_writer *w, const struct device_map_info *map, unsigned base)
{
        uint64_t bytes = map->bytes / device_spread_copies(map->spread);

        if (map->spread != DEVICE_SHARED)
                ptx_line(w, "mad.wide.u32 %%d%u, %%w%u, %" PRIu64 ", %%d%u", base,
                         write_copy(w, map->spread), bytes, base);
}

/* Move the base of a map of settings on to the copy of the epoch. */
static void add_epoch(struct ptx_writer *w, const struct device_map_info *map, unsigned base)
{
        unsigned epoch = ptx_wide(w);

        ptx_memory_line(w, "ld.relaxed.gpu.global.u64 %%d%u, [%%d%u+%zu]", epoch, base,
                        offsetof(struct device_settings_head, epoch));
        ptx_line(w, "and.b64 %%d%u, %%d%u, 1", epoch, epoch);
        ptx_line(w, "mad.lo.s64 %%d%u, %%d%u, %" PRIu64 ", %%d%u", base, epoch,
                 device_settings_copy_bytes(map), base);
        ptx_line(w, "add.s64 %%d%u, %%d%u, %zu", base, base, sizeof(struct device_settings_head));
}

/*
 * An array element by a key that is not constant, and maybe in parts; checked when it may be out
 * of bounds.
 */
static void write_indexed(struct ptx_writer *w, const struct flow_state *before,
                          const struct device_map_info *map, unsigned base, bool check)
{
        unsigned key = ptx_word(w), p;

        ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", key, ptx_argument_word(w, before, BPF_REG_2, 0, 4));
        ptx_line(w, "mad.wide.u32 %%b0, %%w%u, %" PRIu64 ", %%d%u", key, device_map_stride(map),
                 base);
        if (!check)
                return;
        p = ptx_predicate(w);
        ptx_line(w, "setp.ge.u32 %%p%u, %%w%u, %u", p, key, map->max_entries);
        ptx_line(w, "selp.b64 %%b0, 0, %%b0, %%p%u", p);
}

/* b0 = address of an array element, 0 for a key out of bounds; returns whether it can be. */
static bool write_array_lookup(struct ptx_writer *w, const struct flow_state *before,
                               unsigned index)
{
        const struct device_map_info *map = &w->job->maps[index];
        struct value key;
        bool constant = flow_key(before, &key), inside = tnum_max(key.num) < map->max_entries;
        unsigned base;

        if (constant && !inside) {
                ptx_line(w, "mov.b64 %%b0, 0");
                return true;
        }
        base = ptx_map_base(w, index);
        if (map->rule == DEVICE_RULE_SETTINGS)
                add_epoch(w, map, base);
        else
                add_copy(w, map, base);
        if (constant)
                ptx_line(w, "add.s64 %%b0, %%d%u, %" PRIu64, base,
                         key.num.value * device_map_stride(map));
        else
                write_indexed(w, before, map, base, !inside);
        return !inside;
}

/* Hash */

/* A search in a hash: registers and the number in its labels. */
struct search {
        const struct device_map_info *map;
        size_t label;
        unsigned tag;                            /* %d that stands for the key */
        unsigned words[DEVICE_HASH_KEY_MAX / 8]; /* %d of a long key, as they are put down */
        unsigned base;                           /* %d address of the first slot */
        unsigned place;                          /* %d number of a slot */
        unsigned left;                           /* %w slots still to look at */
        unsigned slot;                           /* %d its address */
        unsigned found;                          /* %d the tag that is there */
        unsigned p;
};

/* A word of a key as it is put down; 0 stays to be dealt with. */
static unsigned hide_word(struct ptx_writer *w, const struct flow_state *before,
                          const struct device_map_info *map, unsigned at)
{
        unsigned word = ptx_argument_word(w, before, BPF_REG_2, at, map->key_size);

        ptx_line(w, "xor.b64 %%d%u, %%d%u, 0x%llx", word, word, DEVICE_HASH_TAG);
        return word;
}

/* The tag of a long key in a new %d, its words in s. */
static unsigned mix_words(struct ptx_writer *w, struct search *s, const struct flow_state *before)
{
        unsigned tag = ptx_wide(w), flags = ptx_wide(w), t = ptx_wide(w);

        ptx_line(w, "mov.b64 %%d%u, 0", tag);
        ptx_line(w, "mov.b64 %%d%u, 0x%llx", flags, DEVICE_HASH_LONG);
        for (unsigned n = 0; n < device_hash_words(s->map); n++) {
                unsigned word = s->words[n] = hide_word(w, before, s->map, 8 * n);

                ptx_line(w, "xor.b64 %%d%u, %%d%u, %%d%u", tag, tag, word);
                ptx_line(w, "mul.lo.s64 %%d%u, %%d%u, 0x%llx", tag, tag, DEVICE_HASH_FACTOR);
                ptx_line(w, "shr.u64 %%d%u, %%d%u, 32", t, tag);
                ptx_line(w, "xor.b64 %%d%u, %%d%u, %%d%u", tag, tag, t);
                ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", s->p, word);
                ptx_line(w, "@%%p%u mov.b64 %%d%u, 1", s->p, word);
                ptx_line(w, "@%%p%u or.b64 %%d%u, %%d%u, 0x%x", s->p, flags, flags, 1u << n);
        }
        ptx_line(w, "and.b64 %%d%u, %%d%u, 0x%llx", tag, tag, ~DEVICE_HASH_FLAGS);
        ptx_line(w, "or.b64 %%d%u, %%d%u, %%d%u", tag, tag, flags);
        return tag;
}

/* Where the search begins. */
static void write_place(struct ptx_writer *w, const struct search *s)
{
        unsigned bits = device_hash_bits(s->map->max_entries);

        if (s->map->key_size == 8) {
                ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", s->p, s->tag);
                ptx_line(w, "@%%p%u mov.b64 %%d%u, 1", s->p, s->tag);
        }
        ptx_line(w, "mul.lo.s64 %%d%u, %%d%u, 0x%llx", s->place, s->tag, DEVICE_HASH_FACTOR);
        ptx_line(w, "shr.u64 %%d%u, %%d%u, %u", s->place, s->place, 64 - bits);
        if (s->map->key_size == 8)
                ptx_line(w, "@%%p%u mov.b64 %%d%u, 0x%" PRIx64, s->p, s->place,
                         UINT64_C(1) << bits);
}

static struct search begin_search(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        unsigned map = before->regs[BPF_REG_1].map;
        struct search s = {.map = &w->job->maps[map], .label = i, .p = ptx_predicate(w)};

        s.tag = device_hash_words(s.map) ? mix_words(w, &s, before)
                                         : hide_word(w, before, s.map, 0);
        s.base = ptx_map_base(w, map);
        s.place = ptx_wide(w);
        s.left = ptx_word(w);
        s.slot = ptx_wide(w);
        s.found = ptx_wide(w);
        write_place(w, &s);
        ptx_line(w, "mov.u32 %%w%u, %d", s.left, DEVICE_HASH_PROBES);
        if (w->job->where != DEVICE_ENTRY || w->job->scope == DEVICE_SCOPE_THREAD) {
                /* neither a uniform register at exits, nor each round written out */
                ptx_line(w, "or.b32 %%w%u, %%w%u, %%z", s.left, s.left);
                ptx_line(w, "or.b64 %%d%u, %%d%u, %%zl", s.place, s.place);
        }
        return s;
}

/* How far behind the address in s->slot a slot's parts are. */

static size_t live_at(void)
{
        return sizeof(struct device_hash_head) + offsetof(struct device_hash_slot, live);
}

static size_t word_at(unsigned n)
{
        return sizeof(struct device_hash_head) + sizeof(struct device_hash_slot) + 8 * (size_t)n;
}

static size_t value_at(const struct search *s)
{
        return sizeof(struct device_hash_head) + device_hash_value_at(s->map);
}

/* The top of the loop over slots: slot address and the tag in it. */
static void look_at_slot(struct ptx_writer *w, const struct search *s)
{
        text_add(&w->body, "G@U@_look%zu:\n", s->label);
        ptx_line(w, "mul.lo.s64 %%d%u, %%d%u, %" PRIu64, s->slot, s->place,
                 device_map_stride(s->map));
        ptx_line(w, "add.s64 %%d%u, %%d%u, %%d%u", s->slot, s->slot, s->base);
        ptx_memory_line(w, "ld.relaxed.gpu.global.u64 %%d%u, [%%d%u+%zu]", s->found, s->slot,
                        sizeof(struct device_hash_head));
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, %%d%u", s->p, s->found, s->tag);
        ptx_line(w, "@%%p%u bra%s G@U@_have%zu", s->p, ptx_uniform(w), s->label);
}

/* Go on to the next slot; falls through when there is none left. */
static void next_slot(struct ptx_writer *w, const struct search *s)
{
        uint64_t mask = (UINT64_C(1) << device_hash_bits(s->map->max_entries)) - 1;

        ptx_line(w, "add.s64 %%d%u, %%d%u, 1", s->place, s->place);
        ptx_line(w, "and.b64 %%d%u, %%d%u, 0x%" PRIx64, s->place, s->place, mask);
        ptx_line(w, "sub.s32 %%w%u, %%w%u, 1", s->left, s->left);
        ptx_line(w, "setp.ne.u32 %%p%u, %%w%u, 0", s->p, s->left);
        ptx_line(w, "@%%p%u bra%s G@U@_look%zu", s->p, ptx_uniform(w), s->label);
}

/* The lines between `from` and now can run once for each slot. */
static void count_rounds(struct ptx_writer *w, const struct device_cost *from)
{
        struct device_cost *cost = &w->costs[w->insn];

        cost->instructions += (DEVICE_HASH_PROBES - 1) * (cost->instructions - from->instructions);
        cost->memory += (DEVICE_HASH_PROBES - 1) * (cost->memory - from->memory);
        cost->atomics += (DEVICE_HASH_PROBES - 1) * (cost->atomics - from->atomics);
}

/* b0 = what follows when the key is nowhere; else go on at the label "have". */
static void find_key(struct ptx_writer *w, const struct search *s, const char *missing)
{
        struct device_cost before = w->costs[w->insn];

        look_at_slot(w, s);
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", s->p, s->found);
        ptx_line(w, "@%%p%u bra%s G@U@_none%zu", s->p, ptx_uniform(w), s->label);
        next_slot(w, s);
        count_rounds(w, &before);
        text_add(&w->body, "G@U@_none%zu:\n", s->label);
        ptx_line(w, "mov.b64 %%b0, %s", missing);
        ptx_line(w, "bra%s G@U@_done%zu", ptx_uniform(w), s->label);
        text_add(&w->body, "G@U@_have%zu:\n", s->label);
        for (unsigned n = 0; n < device_hash_words(s->map); n++) {
                ptx_memory_line(w, "ld.relaxed.gpu.global.u64 %%d%u, [%%d%u+%zu]", s->found,
                                s->slot, word_at(n));
                ptx_line(w, "setp.ne.u64 %%p%u, %%d%u, %%d%u", s->p, s->found, s->words[n]);
                ptx_line(w, "@%%p%u bra%s G@U@_none%zu", s->p, ptx_uniform(w), s->label);
        }
}

static void write_hash_lookup(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        struct search s = begin_search(w, i, before);

        find_key(w, &s, "0");
        ptx_memory_line(w, "ld.relaxed.gpu.global.u64 %%d%u, [%%d%u+%zu]", s.found, s.slot,
                        live_at());
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", s.p, s.found);
        ptx_line(w, "add.s64 %%b0, %%d%u, %zu", s.slot, value_at(&s));
        ptx_line(w, "selp.b64 %%b0, 0, %%b0, %%p%u", s.p);
        text_add(&w->body, "G@U@_done%zu:\n", i);
}

/* Store the value that r3 points to, `at` bytes behind the address in %d `address`. */
static void write_value(struct ptx_writer *w, const struct flow_state *before,
                        const struct device_map_info *map, char kind, unsigned address, size_t at)
{
        unsigned done = 0;

        while (done < map->value_size) {
                unsigned bytes =
                        flow_argument_part(&before->regs[BPF_REG_3], done, map->value_size - done);
                unsigned t = write_argument(w, before, BPF_REG_3, done, bytes), word;

                if (bytes == 8) {
                        ptx_memory_line(w, "st.global.u64 [%%%c%u+%zu], %%d%u", kind, address,
                                        at + done, t);
                } else {
                        word = ptx_word(w);
                        ptx_line(w, "cvt.u32.u64 %%w%u, %%d%u", word, t);
                        ptx_memory_line(w, "st.global.u%u [%%%c%u+%zu], %%w%u", 8 * bytes, kind,
                                        address, at + done, word);
                }
                done += bytes;
        }
}

unsigned ptx_argument_word(struct ptx_writer *w, const struct flow_state *before, unsigned reg,
                           unsigned at, unsigned size)
{
        unsigned done = 0, word = 0;

        while (done < 8 && at + done < size) {
                unsigned left = size - at < 8 ? size - at - done : 8 - done;
                unsigned bytes = flow_argument_part(&before->regs[reg], at + done, left);
                unsigned t = write_argument(w, before, reg, at + done, bytes);

                if (done) {
                        ptx_line(w, "shl.b64 %%d%u, %%d%u, %u", t, t, 8 * done);
                        ptx_line(w, "or.b64 %%d%u, %%d%u, %%d%u", t, t, word);
                }
                word = t;
                done += bytes;
        }
        return word;
}

/*
 * Insert: the one thread that raises the flag adds the value to the zeros that are
 * there, so that what others add to the new element meanwhile is kept.
 */
static void write_first_value(struct ptx_writer *w, const struct search *s,
                              const struct flow_state *before)
{
        ptx_atomic_line(w, "atom.global.gpu.exch.b64 %%d%u, [%%d%u+%zu], 1", s->found, s->slot,
                        live_at());
        ptx_line(w, "mov.b64 %%b0, %d", -EEXIST);
        ptx_line(w, "setp.ne.u64 %%p%u, %%d%u, 0", s->p, s->found);
        ptx_line(w, "@%%p%u bra%s G@U@_done%zu", s->p, ptx_uniform(w), s->label);
        for (unsigned at = 0; at < s->map->value_size; at += 8)
                ptx_atomic_line(w, "red.global.gpu.add.u64 [%%d%u+%zu], %%d%u", s->slot,
                                value_at(s) + at,
                                ptx_argument_word(w, before, BPF_REG_3, at, s->map->value_size));
}

static void write_new_value(struct ptx_writer *w, const struct search *s,
                            const struct flow_state *before)
{
        write_value(w, before, s->map, 'd', s->slot, value_at(s));
        ptx_memory_line(w, "st.global.u64 [%%d%u+%zu], 1", s->slot, live_at());
}

/* Write the words of a long key that are not there yet; one that is another is another key's. */
static void claim_words(struct ptx_writer *w, const struct search *s)
{
        for (unsigned n = 0; n < device_hash_words(s->map); n++) {
                ptx_atomic_line(w, "atom.global.gpu.cas.b64 %%d%u, [%%d%u+%zu], 0, %%d%u", s->found,
                                s->slot, word_at(n), s->words[n]);
                ptx_line(w, "setp.ne.u64 %%p%u, %%d%u, 0", s->p, s->found);
                ptx_line(w, "setp.ne.and.u64 %%p%u, %%d%u, %%d%u, %%p%u", s->p, s->found,
                         s->words[n], s->p);
                ptx_line(w, "@%%p%u bra%s G@U@_full%zu", s->p, ptx_uniform(w), s->label);
        }
}

/* Give the key a place, or find the one it has; the value goes there. */
static void write_hash_update(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        struct search s = begin_search(w, i, before);
        struct device_cost cost = w->costs[w->insn];

        look_at_slot(w, &s);
        ptx_line(w, "setp.ne.u64 %%p%u, %%d%u, 0", s.p, s.found);
        ptx_line(w, "@%%p%u bra%s G@U@_next%zu", s.p, ptx_uniform(w), i);
        ptx_atomic_line(w, "atom.global.gpu.cas.b64 %%d%u, [%%d%u+%zu], 0, %%d%u", s.found, s.slot,
                        sizeof(struct device_hash_head), s.tag);
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", s.p, s.found);
        ptx_line(w, "@%%p%u bra%s G@U@_have%zu", s.p, ptx_uniform(w), i);
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, %%d%u", s.p, s.found, s.tag);
        ptx_line(w, "@%%p%u bra%s G@U@_have%zu", s.p, ptx_uniform(w), i);
        text_add(&w->body, "G@U@_next%zu:\n", i);
        next_slot(w, &s);
        count_rounds(w, &cost);
        if (device_hash_words(s.map))
                text_add(&w->body, "G@U@_full%zu:\n", i);
        ptx_atomic_line(w, "red.global.gpu.add.u64 [%%d%u], 1", s.base);
        ptx_line(w, "mov.b64 %%b0, %d", -E2BIG);
        ptx_line(w, "bra%s G@U@_done%zu", ptx_uniform(w), i);
        text_add(&w->body, "G@U@_have%zu:\n", i);
        claim_words(w, &s);
        if (before->regs[BPF_REG_4].num.value == BPF_NOEXIST)
                write_first_value(w, &s, before);
        else
                write_new_value(w, &s, before);
        ptx_line(w, "mov.b64 %%b0, 0");
        text_add(&w->body, "G@U@_done%zu:\n", i);
}

static void write_hash_delete(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        struct search s = begin_search(w, i, before);
        char missing[16];

        snprintf(missing, sizeof(missing), "%d", -ENOENT);
        find_key(w, &s, missing);
        ptx_atomic_line(w, "atom.global.gpu.exch.b64 %%d%u, [%%d%u+%zu], 0", s.found, s.slot,
                        live_at());
        ptx_line(w, "mov.b64 %%b0, %s", missing);
        ptx_line(w, "setp.eq.u64 %%p%u, %%d%u, 0", s.p, s.found);
        ptx_line(w, "@%%p%u bra%s G@U@_done%zu", s.p, ptx_uniform(w), i);
        for (unsigned at = 0; at < s.map->value_size; at += 8)
                ptx_memory_line(w, "st.global.u64 [%%d%u+%zu], 0", s.slot, value_at(&s) + at);
        ptx_line(w, "mov.b64 %%b0, 0");
        text_add(&w->body, "G@U@_done%zu:\n", i);
}

/* An array element replaced: as if looked up and written. */
static void write_array_update(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        unsigned index = before->regs[BPF_REG_1].map, p;

        if (!write_array_lookup(w, before, index)) {
                write_value(w, before, &w->job->maps[index], 'b', 0, 0);
                ptx_line(w, "mov.b64 %%b0, 0");
                return;
        }
        p = ptx_predicate(w);
        ptx_line(w, "setp.eq.u64 %%p%u, %%b0, 0", p);
        ptx_line(w, "@%%p%u bra%s G@U@_none%zu", p, ptx_uniform(w), i);
        write_value(w, before, &w->job->maps[index], 'b', 0, 0);
        text_add(&w->body, "G@U@_none%zu:\n", i);
        ptx_line(w, "selp.b64 %%b0, %d, 0, %%p%u", -E2BIG, p);
}

void ptx_map_call(struct ptx_writer *w, size_t i, const struct flow_state *before)
{
        unsigned index = before->regs[BPF_REG_1].map;
        bool hash = w->job->maps[index].type == BPF_MAP_TYPE_HASH;

        ptx_flush(w);
        switch (w->code->insns[i].imm) {
        case INSN_HELPER_MAP_LOOKUP:
                if (hash)
                        write_hash_lookup(w, i, before);
                else
                        write_array_lookup(w, before, index);
                break;
        case INSN_HELPER_MAP_UPDATE:
                if (hash)
                        write_hash_update(w, i, before);
                else
                        write_array_update(w, i, before);
                break;
        case INSN_HELPER_MAP_DELETE:
                write_hash_delete(w, i, before);
                break;
        }
}
