/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lanes of a warp in programs that are put into kernels. The control flow of what the splicer
 * makes is run, with predicates that are made up, for a part of a warp and then a second one
 * that comes to the same program, or to another copy of it, in the middle. Groups of lanes
 * split where predicates differ, take turns in any order, and meet only at barriers.
 *
 * However it goes, nobody may wait for ever; who came to an access together leaves it
 * together; votes are of all who came together. Uniform registers are the whole warp's: what a
 * group reads there has to be what it would read if it were alone, while another part of the
 * warp runs the same program and the kernel changes all that it names. Others have their turn
 * only where there is flow. Decoder and machine are this test's own.
 */
#include <errno.h>

#include "agent/cubin.h"
#include "agent/splice.h"
#include "unit/test.h"
#include "unit/test_cubin.h"

enum {
        BSYNC = 0x941,
        BREAK = 0x942,
        BSSY = 0x945,
        BRA = 0x947,
        WARPSYNC = 0x948,
        EXIT = 0x94d,
        VOTE = 0x806,
        REDUX = 0x3c4,
        YIELD = 0x946,
        ULDC = 0xab9,
        S2UR = 0x9c3,
};

enum {
        UNIFORM = 64,
        URZ = 63,
        LANES = 32,
        BARRIERS = 16,
        OBJECTS = 4096,
        STEPS = 100000,
        RUNS = 100,
        PARTS = 2,
        MADE_UP = 12000
};

static const char *data_dir;
static uint64_t seed = 7;

struct code {
        const uint64_t *at; /* two words for each instruction */
        size_t n;
};

static uint32_t opcode(const struct code *c, size_t k)
{
        return (uint32_t)(c->at[2 * k] & 0xfff);
}

static size_t branch_target(const struct code *c, size_t k)
{
        const uint64_t *i = c->at + 2 * k;
        uint64_t v = (i[0] >> 16 & 0xff) | i[0] >> 34 << 8 | (i[1] & 0x3ffff) << 38;

        return (size_t)((int64_t)k + 1 + ((int64_t)(v << 8) >> 8) / 4);
}

static unsigned barrier(const struct code *c, size_t k)
{
        return (unsigned)(c->at[2 * k] >> 16 & 0xf);
}

static bool names_barrier(const struct code *c, size_t k)
{
        return opcode(c, k) == BSSY || opcode(c, k) == BSYNC || opcode(c, k) == BREAK;
}

/* Comparisons, additions with a carry, logic, R2P. */
static bool may_write_predicates(uint32_t op)
{
        uint32_t operation = op & 0x1ff;

        return operation == 0x0c || operation == 0x10 || operation == 0x12 || operation == 0x1c ||
               op == 0x804;
}

/* The machine */

/* Uniform registers as they would be if a group were alone; 0: not the same on all its ways. */
struct alone {
        uint64_t is[UNIFORM];
};

struct group {
        uint32_t lanes;
        size_t at;
        struct alone alone;
};

/* Who has to come to a barrier, and who is there. */
struct meeting {
        uint32_t members, waiting;
        size_t behind; /* where they go on */
        struct alone alone;
};

struct warp {
        const struct code *code;
        size_t original; /* instructions of the kernel; who is back among them is done */
        struct group groups[LANES];
        size_t count;
        struct meeting meetings[OBJECTS];
        size_t meeting_count;
        uint16_t meeting[LANES][BARRIERS]; /* of each lane, by barrier */
        uint8_t predicates[LANES];
        uint32_t part_of[LANES]; /* the lanes it came with */
        uint32_t voters[LANES];  /* those it voted with; 0: it has not yet */
        uint32_t gone;           /* lanes that have ended */
        uint32_t back;           /* lanes that went on in the kernel */
        uint32_t there;          /* entry: the lanes of the warp */
        uint32_t synced;         /* those that wait for all of them, at the same place */
        size_t synced_at;
        bool votes_apart;    /* some may have gone when others vote */
        bool guarded;        /* not all who come take part */
        bool shared;         /* others use uniform registers */
        const bool *targets; /* by instruction: jumped to */
        uint64_t uniform[UNIFORM];
        uint64_t of_kernel; /* uniform registers, by bit */
};

static bool holds(uint8_t predicates, uint32_t which)
{
        bool value = (which & 7) == 7 || (predicates >> (which & 7) & 1);

        return value != (which >> 3 & 1);
}

/* Of the lanes those for which the instruction's predicate holds; flow has a second one. */
static uint32_t taking(const struct warp *w, size_t k, uint32_t lanes)
{
        uint32_t guard = (uint32_t)(w->code->at[2 * k] >> 12 & 0xf);
        uint32_t second = (uint32_t)(w->code->at[2 * k + 1] >> 23 & 0xf), out = 0;

        for (uint32_t lane = 0; lane < LANES; lane++)
                if ((lanes >> lane & 1) && holds(w->predicates[lane], guard) &&
                    holds(w->predicates[lane], second))
                        out |= 1u << lane;
        return out;
}

static void add_group(struct warp *w, uint32_t lanes, size_t at, const struct alone *alone)
{
        if (lanes) {
                CHECK(w->count < LANES && at < w->code->n);
                w->groups[w->count++] = (struct group){lanes, at, *alone};
        }
}

/* Let go who waits for nobody any more; they go on behind the barrier together. */
static void release(struct warp *w, struct meeting *m)
{
        if (m->waiting && m->waiting == m->members) {
                add_group(w, m->waiting, m->behind, &m->alone);
                *m = (struct meeting){0};
        }
}

static void leave(struct warp *w, size_t meeting, uint32_t lane)
{
        struct meeting *m = &w->meetings[meeting];

        m->members &= ~(1u << lane);
        release(w, m);
}

static void come(struct meeting *m, const struct group *g, uint32_t lane)
{
        for (unsigned u = 0; u < UNIFORM; u++)
                if (!m->waiting)
                        m->alone.is[u] = g->alone.is[u];
                else if (m->alone.is[u] != g->alone.is[u])
                        m->alone.is[u] = 0;
        m->waiting |= 1u << lane;
        m->behind = g->at + 1;
}

static void run_bssy(struct warp *w, const struct group *g)
{
        size_t k = g->at;

        CHECK(w->meeting_count < OBJECTS);
        w->meetings[w->meeting_count] = (struct meeting){.members = g->lanes};
        for (uint32_t lane = 0; lane < LANES; lane++)
                if (g->lanes >> lane & 1)
                        w->meeting[lane][barrier(w->code, k)] = (uint16_t)w->meeting_count;
        w->meeting_count++;
        add_group(w, g->lanes, k + 1, &g->alone);
}

static void run_bsync(struct warp *w, const struct group *g)
{
        for (uint32_t lane = 0; lane < LANES; lane++) {
                uint16_t meeting = w->meeting[lane][barrier(w->code, g->at)];

                if (!(g->lanes >> lane & 1))
                        continue;
                CHECK(w->meetings[meeting].members >> lane & 1);
                come(&w->meetings[meeting], g, lane);
                release(w, &w->meetings[meeting]);
        }
}

static void run_break(struct warp *w, const struct group *g)
{
        uint32_t taken = taking(w, g->at, g->lanes);

        for (uint32_t lane = 0; lane < LANES; lane++)
                if (taken >> lane & 1)
                        leave(w, w->meeting[lane][barrier(w->code, g->at)], lane);
        add_group(w, g->lanes, g->at + 1, &g->alone);
}

static void run_exit(struct warp *w, const struct group *g)
{
        uint32_t taken = taking(w, g->at, g->lanes);

        w->gone |= taken;
        for (uint32_t lane = 0; lane < LANES; lane++)
                for (size_t m = 0; (taken >> lane & 1) && m < w->meeting_count; m++)
                        leave(w, m, lane);
        add_group(w, g->lanes & ~taken, g->at + 1, &g->alone);
}

static uint32_t part_of(const struct warp *w, uint32_t lanes)
{
        return w->part_of[__builtin_ctz(lanes)];
}

/* The first vote asks who is there: at an access those for whom its predicate holds. */
static void run_vote(struct warp *w, const struct group *g)
{
        for (uint32_t lane = 0; lane < LANES; lane++) {
                if (!(g->lanes >> lane & 1))
                        continue;
                if (!w->voters[lane])
                        w->voters[lane] = w->guarded ? g->lanes : w->part_of[lane];
                CHECK_EQ(w->voters[lane], g->lanes);
        }
}

/* Fields with uniform registers: where they stand, and how many registers each means. */
struct fields {
        uint8_t at[4]; /* bits from the start of the instruction */
        uint8_t registers[4];
        unsigned count;
        bool writes; /* the first is written */
};

static void add_field(struct fields *f, unsigned at, unsigned registers)
{
        f->at[f->count] = (uint8_t)at;
        f->registers[f->count++] = (uint8_t)registers;
}

enum { FIELD_D = 16, FIELD_A = 24, FIELD_B = 32, FIELD_C = 64 };

/* Of instructions that programs are made of. */
static struct fields find_fields(const struct code *c, size_t k)
{
        uint32_t op = opcode(c, k), form = op >> 9;
        uint64_t hi = c->at[2 * k + 1];
        struct fields f = {.count = 0};

        if (op == ULDC || op == S2UR || op == REDUX || op == 0x882 || op == 0xc82) {
                add_field(&f, FIELD_D, op == ULDC && (hi >> 9 & 7) == 5 ? 2 : 1);
                if (op == 0xc82)
                        add_field(&f, FIELD_B, 1);
                f.writes = true;
        } else if ((op & 0x1ff) >= 0x90 && (op & 0x1ff) < 0xa8) { /* arithmetic */
                bool wide = (op & 0x1ff) == 0xa5;

                add_field(&f, FIELD_D, wide ? 2 : 1);
                add_field(&f, FIELD_A, 1);
                if (form == 1)
                        add_field(&f, FIELD_B, 1);
                add_field(&f, FIELD_C, wide ? 2 : 1);
                f.writes = true;
        } else if (hi >> 27 & 1) {
                if (op == 0x985 || op == 0x986 || op == 0x98e || op == 0x9a8 || op == 0x9a3)
                        add_field(&f, FIELD_C, 2);
                else if (op == 0x980 || op == 0x981)
                        add_field(&f, FIELD_B, 2);
                else if (form == 6 || form == 7)
                        add_field(&f, FIELD_B, 1);
        }
        return f;
}

static unsigned field(const struct code *c, size_t k, unsigned at)
{
        return (unsigned)(c->at[2 * k + at / 64] >> at % 64 & 63);
}

/* What an instruction says but for the registers that it names. */
static uint64_t without_registers(const struct code *c, size_t k, const struct fields *f)
{
        uint64_t word[2] = {c->at[2 * k], c->at[2 * k + 1] & 0x1ffffffffff};

        for (unsigned n = 0; n < f->count; n++)
                word[f->at[n] / 64] &= ~(63ULL << f->at[n] % 64);
        return word[0] * 0x9e3779b97f4a7c15 ^ word[1];
}

/* Read and write uniform registers. */
static void run_uniform(struct warp *w, struct group *g)
{
        const struct fields f = find_fields(w->code, g->at);
        uint64_t value = without_registers(w->code, g->at, &f);

        for (unsigned n = f.writes; n < f.count; n++) {
                unsigned u = field(w->code, g->at, f.at[n]);

                for (unsigned r = u; u != URZ && r < u + f.registers[n]; r++) {
                        if (w->of_kernel >> r & 1)
                                continue; /* by the access itself */
                        CHECK(g->alone.is[r]);
                        CHECK_EQ(g->alone.is[r], w->uniform[r]);
                        value = (value ^ g->alone.is[r]) * 0xbf58476d1ce4e5b9;
                }
        }
        if (!f.writes)
                return;
        if (opcode(w->code, g->at) == REDUX)
                value = test_random(&seed);
        for (unsigned r = 0; r < f.registers[0]; r++) {
                unsigned u = field(w->code, g->at, f.at[0]) + r;

                CHECK(!(w->of_kernel >> u & 1));
                g->alone.is[u] = w->uniform[u] = value + r + 1 ? value + r + 1 : 1;
        }
}

/* Uniform registers that instructions name. */
static uint64_t kernel_uniform(const struct code *c, size_t count)
{
        uint64_t mask = 0;

        for (size_t k = 0; k < count; k++) {
                const struct fields f = find_fields(c, k);

                for (unsigned n = 0; n < f.count; n++)
                        mask |= ((1ULL << f.registers[n]) - 1) << field(c, k, f.at[n]);
        }
        return mask & ~(1ULL << URZ);
}

/* Of all lanes, at one place: only where a kernel begins are they all there. */
static void run_warpsync(struct warp *w, const struct group *g)
{
        CHECK(w->there && (!w->synced || w->synced_at == g->at));
        w->synced |= g->lanes;
        w->synced_at = g->at;
        if (w->synced == w->there) {
                add_group(w, w->there, g->at + 1, &g->alone);
                w->synced = 0;
        }
}

static void run_other(struct warp *w, struct group *g)
{
        uint32_t op = opcode(w->code, g->at);

        if (w->shared)
                run_uniform(w, g);
        if ((op == VOTE || op == REDUX) && !w->votes_apart)
                run_vote(w, g);
        for (uint32_t lane = 0; lane < LANES && may_write_predicates(op); lane++)
                if (g->lanes >> lane & 1)
                        w->predicates[lane] = (uint8_t)test_random(&seed);
        add_group(w, g->lanes, g->at + 1, &g->alone);
}

/* One instruction of a group. */
static void run_group(struct warp *w, size_t n)
{
        struct group g = w->groups[n];
        uint32_t taken;

        w->groups[n] = w->groups[--w->count];
        if (g.at < w->original) { /* all who came, together */
                CHECK_EQ(g.lanes, part_of(w, g.lanes));
                w->back |= g.lanes;
                return;
        }
        switch (opcode(w->code, g.at)) {
        case BSSY:
                run_bssy(w, &g);
                break;
        case BSYNC:
                run_bsync(w, &g);
                break;
        case BREAK:
                run_break(w, &g);
                break;
        case WARPSYNC:
                run_warpsync(w, &g);
                break;
        case EXIT:
                run_exit(w, &g);
                break;
        case BRA:
                taken = taking(w, g.at, g.lanes);
                add_group(w, taken, branch_target(w->code, g.at), &g.alone);
                add_group(w, g.lanes & ~taken, g.at + 1, &g.alone);
                break;
        default:
                run_other(w, &g);
        }
}

/* Whether others may have their turn before the instruction that follows. */
static bool ends_turn(const struct warp *w, size_t k)
{
        uint32_t op = opcode(w->code, k);

        return k < w->original || (op & 0xff0) == 0x940 || w->targets[k + 1];
}

/* One of the groups up to where others may have their turn, and the kernel then. */
static void step(struct warp *w)
{
        size_t n = test_random(&seed) % w->count, at = w->groups[n].at;

        run_group(w, n);
        while (!ends_turn(w, at)) {
                at = w->groups[w->count - 1].at; /* it is the last now */
                run_group(w, w->count - 1);
        }
        for (unsigned u = 0; u < UNIFORM; u++)
                if (w->of_kernel >> u & 1)
                        w->uniform[u] = test_random(&seed);
}

static void arrive(struct warp *w, uint32_t lanes, size_t at)
{
        const struct alone nothing = {{0}};

        for (uint32_t lane = 0; lane < LANES; lane++)
                if (lanes >> lane & 1)
                        w->part_of[lane] = lanes;
        add_group(w, lanes, at, &nothing);
}

/* The warp as the kernel begins; the last one of a block may have fewer lanes. */
static void run_entry(struct warp *w, size_t at)
{
        w->there = UINT32_MAX >> (test_random(&seed) % 4 ? 0 : test_random(&seed) % LANES);
        arrive(w, w->there, at);
        for (uint64_t n = 0; w->count; n++) {
                CHECK(n < STEPS);
                step(w);
        }
        CHECK_EQ(w->back, w->there);
}

/* The second part comes in the middle, or when the first is through. */
static void run_parts(struct warp *w, const size_t at[PARTS])
{
        uint32_t first = (uint32_t)test_random(&seed) | 1u << (test_random(&seed) % LANES);
        uint64_t comes = test_random(&seed) % 200;

        arrive(w, first, at[0]);
        for (uint64_t n = 0; w->count || n <= comes; n++) {
                CHECK(n < STEPS);
                if (n == comes && ~first)
                        arrive(w, ~first, at[1]);
                if (w->count)
                        step(w);
        }
        CHECK_EQ(w->gone | w->back, UINT32_MAX); /* nobody waits */
        CHECK_EQ(w->gone & w->back, 0);
}

/* Images */

static uint8_t *load(const char *name, size_t *ret_size)
{
        return test_load(data_dir, name, ret_size);
}

static struct code kernel_code(const struct cubin *c, const char *kernel)
{
        struct code code;

        code.at = test_kernel_code(c, kernel, &code.n);
        return code;
}

static uint32_t barriers(const struct code *c, size_t from, size_t to)
{
        uint32_t used = 0;

        for (size_t k = from; k < to; k++)
                if (names_barrier(c, k))
                        used |= 1u << barrier(c, k);
        return used;
}

static bool *find_targets(const struct code *c)
{
        bool *targets = calloc(c->n + 1, sizeof(*targets));

        CHECK(targets);
        for (size_t k = 0; k < c->n; k++)
                if (opcode(c, k) == BRA && branch_target(c, k) < c->n)
                        targets[branch_target(c, k)] = true;
        return targets;
}

/* Scoreboards by bit: those an instruction asks to tell of it, and those it waits for. */
static unsigned boards_told(const struct code *c, size_t k)
{
        return (1U << (c->at[2 * k + 1] >> 46 & 7) | 1U << (c->at[2 * k + 1] >> 49 & 7)) & 0x3f;
}

static unsigned boards_waited(const struct code *c, size_t k)
{
        return (unsigned)(c->at[2 * k + 1] >> 52) & 0x3f;
}

/*
 * Nothing that is added lets another part of the warp have its turn; a scoreboard has the
 * two cycles that the assembler gives it before the next instruction waits for it.
 */
static void check_added(const struct code *c, size_t from)
{
        for (size_t k = from; k < c->n; k++) {
                CHECK(opcode(c, k) != YIELD);
                if (k + 1 < c->n && (boards_told(c, k) & boards_waited(c, k + 1)))
                        CHECK((c->at[2 * k + 1] >> 41 & 15) >= 2);
        }
}

static size_t count_sums(const struct code *c, size_t from)
{
        size_t sums = 0;

        for (size_t k = from; k < c->n; k++)
                sums += opcode(c, k) == REDUX;
        return sums;
}

/* Where the ways into the programs are: at the entry, at an EXIT, or at an access. */
static size_t find_ways(const struct code *before, const struct code *after, uint32_t where,
                        size_t *ret_ways)
{
        size_t n = 0;

        for (size_t k = 0; k < before->n; k++) {
                bool is_exit = opcode(before, k) == EXIT;
                bool changed = opcode(after, k) == BRA && opcode(before, k) != BRA;

                if (changed && (where == AGENT_PROGRAM_ENTRY  ? k == 0
                                : where == AGENT_PROGRAM_EXIT ? is_exit
                                                              : k && !is_exit))
                        ret_ways[n++] = branch_target(after, k);
        }
        return n;
}

static size_t sums_seen, runs_seen, barriers_seen;
static unsigned runs = RUNS;

static void check_kernel(const struct code *before, const struct code *after, uint32_t where,
                         bool votes)
{
        size_t *ways = calloc(before->n, sizeof(*ways));
        size_t count = find_ways(before, after, where, ways);
        uint32_t own = barriers(before, 0, before->n);
        struct warp *w = malloc(sizeof(*w));
        bool *targets = find_targets(after);

        CHECK(ways && w && count);
        sums_seen += count_sums(after, before->n);
        check_added(after, before->n);
        if (where != AGENT_PROGRAM_ENTRY)
                CHECK_EQ(barriers(after, before->n, after->n) & own, 0);
        barriers_seen += barriers(after, before->n, after->n) != 0;
        for (unsigned n = 0; n < runs; n++) {
                size_t at[PARTS] = {ways[test_random(&seed) % count],
                                    ways[test_random(&seed) % count]};

                *w = (struct warp){.code = after,
                                   .original = before->n,
                                   .votes_apart = !votes,
                                   .guarded = where == AGENT_PROGRAM_MEM,
                                   .shared = where != AGENT_PROGRAM_ENTRY,
                                   .targets = targets,
                                   .of_kernel = kernel_uniform(before, before->n)};
                if (where == AGENT_PROGRAM_ENTRY) {
                        run_entry(w, at[0]);
                } else {
                        run_parts(w, at);
                        CHECK_EQ(where == AGENT_PROGRAM_EXIT ? w->gone : w->back, UINT32_MAX);
                }
                runs_seen++;
        }
        free(targets);
        free(ways);
        free(w);
}

static struct probe_code *extract(const char *name)
{
        struct probe_code *code = NULL;
        size_t size;
        uint8_t *cubin = load(name, &size);

        CHECK_EQ(probe_code_extract(cubin, size, &code, NULL), 0);
        free(cubin);
        return code;
}

enum { CHAIN_MAX = 3 };

static bool all_in(const struct splice_kernel *k, size_t count)
{
        for (size_t n = 0; n < count; n++)
                if (!k->outcomes[n].in)
                        return false;
        return true;
}

/* Programs in all kernels of an image. How many kernels take all of them. */
static size_t check_list(const struct probe_list *list, bool votes)
{
        struct splice_result *r = NULL;
        struct cubin before, after;
        size_t size, in = 0;
        uint8_t *bytes = load("kernels.cubin", &size);

        CHECK_EQ(splice_image(bytes, size, list, 1, &r, NULL), 0);
        CHECK_EQ(cubin_open(bytes, size, &before, NULL), 0);
        CHECK_EQ(cubin_open(r->image, r->image_bytes, &after, NULL), 0);
        for (size_t k = 0; k < r->kernel_count; k++) {
                struct code old = kernel_code(&before, r->kernels[k].name);
                struct code new = kernel_code(&after, r->kernels[k].name);

                if (!all_in(&r->kernels[k], list->count) || new.n == old.n)
                        continue;
                check_kernel(&old, &new, list->programs[0].where, votes);
                in++;
        }
        cubin_done(&before);
        cubin_done(&after);
        splice_result_free(r);
        free(bytes);
        return in;
}

/* Fixtures behind one another. */
static void check_chain(const char *const names[CHAIN_MAX], uint32_t where, bool votes)
{
        struct probe_program programs[CHAIN_MAX] = {{.where = 0}};
        struct probe_list list = {.programs = programs};

        for (; list.count < CHAIN_MAX && names[list.count]; list.count++)
                programs[list.count] = (struct probe_program){.where = where,
                                                              .label = names[list.count],
                                                              .code = extract(names[list.count])};
        CHECK(check_list(&list, votes) > 5);
        for (size_t n = 0; n < list.count; n++)
                probe_code_free((struct probe_code *)(uintptr_t)programs[n].code);
}

#define CHAIN(...) ((const char *const[CHAIN_MAX]){__VA_ARGS__})

static void check(const char *name, uint32_t where, bool votes)
{
        check_chain(CHAIN(name), where, votes);
}

/* A hash: loops that lanes leave at different times, some by ending inside of a barrier. */
static void test_hash(void)
{
        barriers_seen = 0;
        check("hash.cubin", AGENT_PROGRAM_EXIT, false);
        check_chain(CHAIN("hash.cubin", "exit.cubin"), AGENT_PROGRAM_EXIT, false);
        CHECK_EQ(barriers_seen, 0); /* nobody has to meet */
        check("hash.cubin", AGENT_PROGRAM_ENTRY, false);
        check("hash.cubin", AGENT_PROGRAM_MEM, false);
        check_chain(CHAIN("hash.cubin", "hash.cubin"), AGENT_PROGRAM_MEM, false);
}

/* A stack that is indexed: many choices among registers, in a loop and behind it. */
static void test_stack(void)
{
        check("stack.cubin", AGENT_PROGRAM_EXIT, false);
        check("stack.cubin", AGENT_PROGRAM_ENTRY, false);
        check("stack.cubin", AGENT_PROGRAM_MEM, false);
        check_chain(CHAIN("stack.cubin", "hash.cubin", "stack.cubin"), AGENT_PROGRAM_MEM, false);
}

/* Lanes go different ways, meet, vote and add up. */
static void test_votes(void)
{
        sums_seen = barriers_seen = 0;
        check("vote.cubin", AGENT_PROGRAM_EXIT, true);
        CHECK(sums_seen && barriers_seen);
        check("vote.cubin", AGENT_PROGRAM_ENTRY, true);
        check("vote.cubin", AGENT_PROGRAM_MEM, true);
        check_chain(CHAIN("vote.cubin", "hash.cubin", "vote.cubin"), AGENT_PROGRAM_MEM, true);
}

/* Behind a program at an exit all that came there vote, wherever that one has sent them. */
static void test_votes_behind_others(void)
{
        check_chain(CHAIN("exit.cubin", "vote.cubin"), AGENT_PROGRAM_EXIT, true);
        check_chain(CHAIN("hash.cubin", "vote.cubin"), AGENT_PROGRAM_EXIT, true);
        check_chain(CHAIN("vote.cubin", "exit.cubin", "vote.cubin"), AGENT_PROGRAM_EXIT, true);
        check_chain(CHAIN("exit.cubin", "vote.cubin", "hash.cubin"), AGENT_PROGRAM_EXIT, true);
}

/* Those that ask nothing of the warp but who is there. */
static void test_others(void)
{
        check_chain(CHAIN("lanes.cubin", "lanes.cubin"), AGENT_PROGRAM_EXIT, false);
        check_chain(CHAIN("mem.cubin", "mem.cubin"), AGENT_PROGRAM_MEM, false);
        check_chain(CHAIN("exit.cubin", "exit.cubin"), AGENT_PROGRAM_EXIT, false);
}

/* A WARPSYNC of all lanes behind the last EXIT that not all lanes take. */
static uint8_t *load_waiting(const char *name, size_t *ret_size)
{
        uint8_t *cubin = load(name, ret_size);
        struct cubin c;
        struct code code;
        uint64_t *at;
        size_t last = 0;

        CHECK_EQ(cubin_open(cubin, *ret_size, &c, NULL), 0);
        code = kernel_code(&c, "gpuobs_probe_entry");
        at = (uint64_t *)(uintptr_t)code.at;
        for (size_t k = 0; k < code.n; k++)
                if (opcode(&code, k) == EXIT && (at[2 * k] >> 12 & 7) != 7)
                        last = k;
        CHECK(last && (opcode(&code, last + 1) & 0xff0) != 0x940);
        at[2 * last + 2] = 0x7000 | WARPSYNC;
        at[2 * last + 3] = 0x000fea0003800000;
        cubin_done(&c);
        return cubin;
}

/* Nobody waits for lanes that have left; a program that needs their answers is refused. */
static void test_lanes_that_left(void)
{
        struct probe_program one = {.where = AGENT_PROGRAM_ENTRY, .label = "waits"};
        struct probe_code *code = NULL;
        const char *why;
        size_t size;
        uint8_t *cubin = load_waiting("lanes.cubin", &size);

        CHECK_EQ(probe_code_extract(cubin, size, &code, NULL), 0);
        one.code = code;
        CHECK(check_list(&(struct probe_list){.programs = &one, .count = 1}, false) > 5);
        probe_code_free(code);
        free(cubin);
        cubin = load_waiting("vote.cubin", &size);
        CHECK_EQ(probe_code_extract(cubin, size, &code, &why), -EINVAL);
        CHECK_STR(why, "the probe waits for lanes that may have left it");
        free(cubin);
}

/* An instruction of the uniform datapath, or one that reads a uniform register. */
static void put_uniform(uint64_t *i)
{
        static const uint64_t forms[][2] = {
                {0xffffffff00007882, 0x000fe20000000000}, /* UMOV URd, -1 */
                {0x0000820000007ab9, 0x000fe20000000800}, /* ULDC URd, c[0x0][0x208] */
                {0x0000820000007ab9, 0x000fe20000000a00}, /* ULDC.64 */
                {0x0000000000007290, 0x000fe2000fffe000}, /* UIADD3 URd, URa, URb, URc */
                {0x00000000070073c4, 0x000e22000000c000}, /* REDUX URd, R7 */
                {0x00000000ff097e24, 0x001fe2000f8e00ff}, /* IMAD.U32 R9, RZ, RZ, URb */
                {0x00000000ff097e24, 0x001fe2000f8e00ff},
        };
        size_t n = test_random(&seed) % (sizeof(forms) / sizeof(forms[0]));
        uint64_t ur[4];

        for (unsigned k = 0; k < 4; k++)
                ur[k] = 4 + test_random(&seed) % 4;
        i[0] = forms[n][0];
        i[1] = forms[n][1];
        if (n < 5)
                i[0] |= ur[0] << FIELD_D;
        if (n == 3)
                i[0] |= ur[1] << FIELD_A;
        if (n == 3 || n > 4)
                i[0] |= ur[2] << FIELD_B;
        if (n == 3)
                i[1] |= ur[3];
}

/* In place of some that do neither flow nor vote. */
static void scatter(uint8_t *cubin, size_t size)
{
        struct cubin c;
        struct code code;
        uint64_t *at;

        CHECK_EQ(cubin_open(cubin, size, &c, NULL), 0);
        code = kernel_code(&c, "gpuobs_probe_entry");
        at = (uint64_t *)(uintptr_t)code.at;
        for (size_t k = 1; k < code.n; k++) {
                uint32_t op = opcode(&code, k);

                if ((op & 0xff0) != 0x940 && op != VOTE && test_random(&seed) % 10 == 0)
                        put_uniform(at + 2 * k);
        }
        cubin_done(&c);
}

/* Programs that are made up: whatever is taken has to work, as far as uniform registers go. */
static void test_made_up(void)
{
        static const char *const names[] = {"hash.cubin", "vote.cubin", "lanes.cubin", "mem.cubin"};
        size_t taken = 0;

        runs = 5;
        for (size_t n = 0; n < MADE_UP; n++) {
                struct probe_program one = {.where = AGENT_PROGRAM_EXIT, .label = "made up"};
                struct probe_code *code = NULL;
                size_t size;
                uint8_t *cubin = load(names[n % 4], &size);

                scatter(cubin, size);
                if (probe_code_extract(cubin, size, &code, NULL) == 0 &&
                    !probe_code_exit_refusal(code)) {
                        one.code = code;
                        check_list(&(struct probe_list){.programs = &one, .count = 1}, false);
                        taken++;
                }
                probe_code_free(code);
                free(cubin);
        }
        printf("  %zu of %d are taken\n", taken, MADE_UP);
        CHECK(taken > MADE_UP / 50);
        runs = RUNS;
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        data_dir = argv[1];
        TEST(test_hash);
        TEST(test_stack);
        TEST(test_votes);
        TEST(test_votes_behind_others);
        TEST(test_others);
        TEST(test_lanes_that_left);
        TEST(test_made_up);
        printf("ok %zu runs\n", runs_seen);
        return 0;
}
