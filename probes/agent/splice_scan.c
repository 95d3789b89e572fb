/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "splice_kernel.h"
#include "splice_scan.h"
#include "track.h"

#define THREADS_MAX  1024 /* per block */
#define SIEVE_INSTRS 256

_Static_assert(SIEVE_INSTRS <= TRACK_WAITS_MAX, "counters of waits overflow");

struct scanner {
        const struct arch *arch;
        struct scan found;
        struct track_waits waits;
        uint32_t *marks; /* room for one for each instruction */
        size_t mark_count;
        bool run_marked; /* the run of instructions without control flow has a mark */
};

static void mark(struct scanner *s, uint32_t k)
{
        s->marks[s->mark_count++] = k;
}

static void scan_exit(struct scan *s, const struct instr *i)
{
        s->exits++;
        if (!instr_exit_is_plain(i)) {
                s->has_odd_exit = true;
                s->odd_exit = i->hi;
        }
}

/* What ends a run. */
static void scan_control(struct scanner *s, const struct instr *i, uint32_t k)
{
        enum arch_role role = arch_role(s->arch, i);
        int64_t bytes;

        if (s->run_marked || role == ARCH_EXIT)
                mark(s, k);
        s->run_marked = false;
        switch (role) {
        case ARCH_EXIT:
                scan_exit(&s->found, i);
                break;
        case ARCH_CALL_ABSOLUTE:
        case ARCH_CALL_REGISTER:
                s->found.calls_indirect = true;
                break;
        default:
                if (arch_relative_target(s->arch, i, &bytes) && bytes == -(int64_t)k * INSTR_BYTES)
                        s->found.jumps_to_start = true;
        }
}

static void scan_unknown(struct scanner *s, const struct instr *i, uint32_t k)
{
        s->found.unknown = true;
        s->found.ur_used |= arch_ur_mask(s->arch, i);
        s->found.unknown_opcode = instr_opcode(i);
        if (s->run_marked)
                mark(s, k);
        s->run_marked = false;
}

static void scan_peculiar(struct scanner *s, const struct instr *i)
{
        enum arch_role role = arch_role(s->arch, i);

        if (role == ARCH_DEPBAR)
                track_count_depbar(&s->waits, i);
        if (role == ARCH_USETMAXREG && instr_number(i) < s->found.registers_min)
                s->found.registers_min = instr_number(i);
}

static void scan_one(struct scanner *s, const struct instr *i, uint32_t k)
{
        const struct arch_op *op = arch_op(s->arch, i);

        if (!op) {
                scan_unknown(s, i, k);
                return;
        }
        s->found.barriers_used |= arch_barriers(s->arch, i);
        if (op->properties & ARCH_PECULIAR)
                scan_peculiar(s, i);
        if (op->properties & ARCH_CONTROL) {
                scan_control(s, i, k);
        } else if (track_untracked(s->arch, i)) {
                mark(s, k);
                s->run_marked = true;
        }
}

/* Instructions of a few to look at closer, by number. */
struct sieve {
        uint32_t at[SIEVE_INSTRS];
        uint32_t uniform[SIEVE_INSTRS]; /* name uniform registers */
        uint32_t count, uniform_count;
};

/*
 * Half of all instructions say nothing that matters here, in no order that a processor
 * could learn: so without branches.
 */
static void sift(struct scanner *s, const uint8_t *code, uint32_t begin, uint32_t end,
                 struct sieve *v)
{
        const uint32_t close =
                ARCH_KNOWN | ARCH_CONTROL | ARCH_PECULIAR | ARCH_BARRIER_D | ARCH_BARRIER_A;
        const uint32_t late = ARCH_RESULT_LATE | ARCH_SOURCE_LATE;
        const struct arch *a = s->arch;
        uint32_t n = 0, uniform_n = 0;
        uint64_t waits = 0;

        for (uint32_t k = begin; k < end; k++) {
                struct instr i = instr_load(code, k);
                const struct arch_op *op = &a->ops[instr_opcode(&i)];
                uint32_t properties = op->properties;
                bool look = (properties & close) != ARCH_KNOWN, is_late = properties & late,
                     untold = instr_result_scoreboard(&i) == INSTR_NO_SCOREBOARD,
                     uniform = properties & ARCH_UNIFORM, present = i.hi & INSTR_UR_PRESENT,
                     named = op->ur;

                waits += track_packed_waits(&i);
                v->at[n] = v->uniform[uniform_n] = k;
                n += look | (is_late & untold);
                uniform_n += (uniform | present) & named;
        }
        track_count_waits(&s->waits, waits);
        v->count = n;
        v->uniform_count = uniform_n;
}

static bool reserve(struct code_marks *m, size_t more)
{
        size_t room = 2 * m->room > m->count + more ? 2 * m->room : m->count + more;
        uint32_t *at;

        if (m->room - m->count >= more)
                return true;
        at = reallocarray(m->at, room, sizeof(*at));
        if (!at)
                return false;
        m->at = at;
        m->room = room;
        return true;
}

void marks_done(struct code_marks *m)
{
        free(m->at);
        *m = (struct code_marks){0};
}

int scan_code(const struct arch *a, const uint8_t *code, uint32_t count, struct code_marks *marks,
              struct scan *ret_scan)
{
        struct scanner s = {.arch = a, .found = {.registers_min = INSTR_REGISTERS}};
        struct sieve sieve;

        if (!reserve(marks, count))
                return -ENOMEM;
        s.marks = marks->at + marks->count;
        for (uint32_t k = 0; k < count; k += SIEVE_INSTRS) {
                uint32_t end = count - k < SIEVE_INSTRS ? count : k + SIEVE_INSTRS;

                sift(&s, code, k, end, &sieve);
                for (uint32_t n = 0; n < sieve.uniform_count; n++) {
                        struct instr i = instr_load(code, sieve.uniform[n]);
                        const struct arch_op *op = &a->ops[instr_opcode(&i)];

                        s.found.ur_used |= instr_ur_named(&i, op->ur, op->ur_count);
                }
                for (uint32_t n = 0; n < sieve.count; n++) {
                        struct instr i = instr_load(code, sieve.at[n]);

                        scan_one(&s, &i, sieve.at[n]);
                }
        }
        s.found.quiet_scoreboard = track_quiet_scoreboard(&s.waits, count);
        marks->count += s.mark_count;
        *ret_scan = s.found;
        return 0;
}

static void note_predicate(const struct arch *a, const struct instr *i, struct mem_facts *facts)
{
        bool missing;
        uint32_t board = track_predicate(a, i, &missing);

        if (board < INSTR_SCOREBOARDS)
                facts->predicate_boards |= 1u << board;
        facts->predicates_untold |= missing;
}

/* Loads from outside the multiprocessor are what it pays not to wait for. */
void scan_loads(const struct arch *a, const uint8_t *code, uint32_t count, struct mem_facts *facts)
{
        for (uint32_t k = 0; k < count; k++) {
                struct instr i = instr_load(code, k);
                const struct arch_op *op = arch_op(a, &i);
                uint32_t board = instr_result_scoreboard(&i);
                struct access found;

                if (!op)
                        continue;
                note_predicate(a, &i, facts);
                if (board < INSTR_SCOREBOARDS && (op->properties & ARCH_RESULT_LATE) &&
                    access_read(a, &i, &found) != ACCESS_NONE)
                        facts->load_boards[board]++;
        }
}

int functions_add(const struct arch *a, struct image_functions *f, const uint8_t *code,
                  size_t count, struct code_marks *marks)
{
        size_t mark_count = marks->count;
        struct scan s;
        int r = scan_code(a, code, (uint32_t)count, marks, &s);

        if (r < 0)
                return r;
        marks->count = mark_count; /* nothing is written there */
        f->ur_used |= s.ur_used;
        f->barriers_used |= s.barriers_used;
        f->unknown_opcode |= s.unknown;
        f->ends_threads |= s.exits != 0;
        return 0;
}

static bool is_offset_list(uint8_t id)
{
        switch (id) {
        case CUBIN_EXIT_OFFSETS:
        case CUBIN_S2RCTAID_OFFSETS:
        case CUBIN_LD_CACHEMOD_OFFSETS:
        case CUBIN_ATOM_SYS_OFFSETS:
        case CUBIN_COOP_GROUP_OFFSETS:
        case CUBIN_ATOMF16_EMUL_OFFSETS:
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

        if (a->id == CUBIN_MAXREG_COUNT && !a->data && a->value)
                l->registers = a->value;
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
        struct limits l = {
                .threads = THREADS_MAX, .registers = INSTR_REGISTERS, .listed = UINT32_MAX};
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
