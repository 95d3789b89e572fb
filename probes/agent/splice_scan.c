/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "sm90_access.h"
#include "splice_kernel.h"
#include "splice_scan.h"

#define THREADS_MAX 1024 /* per block */

static void scan_control(struct scan *s, const struct sm90_instr *i, uint32_t k)
{
        int64_t bytes;

        switch (sm90_opcode(i)) {
        case SM90_EXIT:
                s->exits++;
                if (!sm90_exit_is_plain(i)) {
                        s->has_odd_exit = true;
                        s->odd_exit = i->hi;
                }
                break;
        case SM90_CALL_ABS:
        case SM90_CALL_ABS_REG:
        case SM90_CALL_REL_REG:
                s->calls_indirect = true;
                break;
        default:
                if (sm90_relative_target(i, &bytes) && bytes == -(int64_t)k * SM90_INSTR_BYTES)
                        s->jumps_to_start = true;
        }
}

/* Loads from outside the multiprocessor are what it pays not to wait for. */
static void scan_boards(struct mem_facts *m, const struct sm90_instr *i)
{
        uint32_t board = sm90_result_scoreboard(i);
        struct sm90_access a;

        if (board >= SM90_SCOREBOARDS)
                return;
        if (sm90_predicate_late(i))
                m->predicate_boards |= 1u << board;
        if ((sm90_op(i)->properties & SM90_RESULT_LATE) && sm90_access(i, &a) != SM90_ACCESS_NONE)
                m->load_boards[board]++;
}

struct scan scan_code(const uint8_t *code, uint32_t count)
{
        struct scan s = {.registers_min = 255};

        for (uint32_t k = 0; k < count; k++) {
                struct sm90_instr i = sm90_load(code, k);
                const struct sm90_op *op = sm90_op(&i);

                if (!op) {
                        s.unknown = true;
                        s.unknown_opcode = sm90_opcode(&i);
                } else if (op->properties & SM90_CONTROL) {
                        scan_control(&s, &i, k);
                } else if (sm90_opcode(&i) == SM90_USETMAXREG && i.lo >> 32 < s.registers_min) {
                        s.registers_min = (uint32_t)(i.lo >> 32);
                }
                if (sm90_ur_fields(&i))
                        s.ur_used |= sm90_ur_mask(&i);
                s.mem.barriers_used |= sm90_barriers(&i);
                if (op)
                        scan_boards(&s.mem, &i);
        }
        return s;
}

void functions_add(struct image_functions *f, const uint8_t *code, size_t count)
{
        struct scan s = scan_code(code, (uint32_t)count);

        f->ur_used |= s.ur_used;
        f->barriers_used |= s.mem.barriers_used;
        f->unknown_opcode |= s.unknown;
        f->ends_threads |= s.exits != 0;
}

static bool is_offset_list(uint8_t id)
{
        switch (id) {
        case CUBIN_EXIT_OFFSETS:
        case CUBIN_S2RCTAID_OFFSETS:
        case 0x25: /* LD_CACHEMOD_INSTR_OFFSETS */
        case 0x27: /* ATOM_SYS_INSTR_OFFSETS */
        case CUBIN_COOP_GROUP_OFFSETS:
        case 0x2d: /* ATOMF16_EMUL_INSTR_OFFSETS */
        case CUBIN_WARP_WIDE_OFFSETS:
                return true;
        default:
                return false;
        }
}

static uint32_t lowest_listed(const struct cubin_attribute *a)
{
        uint32_t lowest = UINT32_MAX, v;

        for (size_t k = 0; k + 4 <= a->value; k += 4) {
                memcpy(&v, a->data + k, 4);
                lowest = v < lowest ? v : lowest;
        }
        return lowest;
}

static void read_limit(struct limits *l, const struct cubin_attribute *a)
{
        uint32_t v[3];

        if (!a->data)
                return;
        if ((a->id == CUBIN_MAX_THREADS || a->id == CUBIN_REQNTID) && a->value == 12) {
                uint64_t threads;

                memcpy(v, a->data, 12);
                threads = (uint64_t)v[0] * v[1];
                threads = threads > THREADS_MAX ? THREADS_MAX : threads * v[2];
                if (threads && threads < l->threads)
                        l->threads = (uint32_t)threads;
        } else if (a->id == CUBIN_PARAM_CBANK && a->value == 8) {
                memcpy(v, a->data, 8);
                l->param_base = v[1] & 0xffff;
        } else if (is_offset_list(a->id)) {
                uint32_t lowest = lowest_listed(a);

                l->listed = lowest < l->listed ? lowest : l->listed;
        }
}

struct limits read_limits(const struct cubin *c, uint32_t info)
{
        struct limits l = {.threads = THREADS_MAX, .listed = UINT32_MAX};
        struct cubin_attribute a;
        size_t size, offset = 0;
        const uint8_t *bytes;
        int r;

        if (!info)
                return l;
        bytes = cubin_section_bytes(c, info, &size);
        while ((r = cubin_next_attribute(bytes, size, &offset, &a)) > 0)
                read_limit(&l, &a);
        l.broken = r < 0;
        return l;
}
