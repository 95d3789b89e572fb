/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs at accesses of memory in machine code: what instructions do to memory, against
 * words as the vendor's assembler wrote them for forms of PTX that say it; and what the
 * splicer makes of kernels, read with a decoder of its own.
 */
#include "agent/access.h"
#include "agent/cubin.h"
#include "agent/encode.h"
#include "agent/splice.h"
#include "device/device_abi.h"
#include "unit/test.h"
#include "unit/test_cubin.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { L = GPUOBS_ACCESS_LOAD, S = GPUOBS_ACCESS_STORE, A = GPUOBS_ACCESS_ATOMIC };
enum {
        GEN = GPUOBS_SPACE_GENERIC,
        GLO = GPUOBS_SPACE_GLOBAL,
        SHA = GPUOBS_SPACE_SHARED,
        LOC = GPUOBS_SPACE_LOCAL,
};

/* Beside each the PTX it was assembled from. */
static const struct {
        uint64_t lo, hi;
        int kind, space, size, base, ur, offset;
} accesses[] = {
        {0x00001004020d7981, 0x0c1f5100, L, GLO, 1, 2, 63, 16},   /* ld.volatile.global.u8 [+16] */
        {0x00001004020d7981, 0x0c1f5700, L, GLO, 2, 2, 63, 16},   /* .s16 */
        {0x0000100402087981, 0x0c1f5b00, L, GLO, 8, 2, 63, 16},   /* .u64 */
        {0x0000100402047981, 0x0c1e1d00, L, GLO, 16, 2, 63, 16},  /* ld.global.v4.u32 */
        {0x000000000a127381, 0x001e0900, L, GLO, 4, 10, 63, 0},   /* in an emulated atom.cas.b16 */
        {0xffffec0f0a007986, 0x0c101904, S, GLO, 4, 10, 63, -20}, /* st.global.u32 [-20] */
        {0x8000000d08007986, 0x0c101904, S, GLO, 4, 8, 63, -8388608},
        {0x0000100408007986, 0x0c101d04, S, GLO, 16, 8, 63, 16},  /* st.global.b128 */
        {0x0000100402047980, 0x0c101d00, L, GEN, 16, 2, 63, 16},  /* ld.v4.u32 [+16] */
        {0xfffffff00c0d7980, 0x00100900, L, GEN, 4, 12, 63, -16}, /* ld.shared::cluster [-16] */
        {0x0000100d08007985, 0x0c101504, S, GEN, 2, 8, 63, 16},   /* st.u16 [+16] */
        {0x000000100a007385, 0x0010090d, S, GEN, 4, 10, 63, 16},  /* st.shared::cluster [+16] */
        {0xfffffc00000f7984, 0x00000800, L, SHA, 4, 0, 63, -4},   /* ld.shared.u32 [-4] */
        {0x00002004000f7984, 0x08000800, L, SHA, 4, 0, 4, 32},    /* the same of a sum, [+32] */
        {0x00002004ff0d7984, 0x08000800, L, SHA, 4, 255, 4, 32},  /* of a variable */
        {0xfffffc0c0f007388, 0x00000800, S, SHA, 4, 15, 63, -4},  /* st.shared.u32 [-4] */
        {0x00002000ff007988, 0x08000804, S, SHA, 4, 255, 4, 32},  /* of a variable */
        {0x0000080001587983, 0x00300800, L, LOC, 4, 1, 63, 8},    /* from the stack */
        {0x0000085801007387, 0x00100800, S, LOC, 4, 1, 63, 8},
        {0x0000100b020a79a8, 0x081ee1c4, A, GLO, 4, 2, 63, 16},   /* atom.global.add.u32 [+16] */
        {0x00001002040879a8, 0x091ee7c4, A, GLO, 8, 4, 63, 16},   /* max.s64 */
        {0x00001004020879a8, 0x0c1ee9c4, A, GLO, 16, 2, 63, 16},  /* exch.b128 */
        {0x0000100b020a79a3, 0x081ef3c4, A, GLO, 4, 2, 63, 16},   /* add.f32 */
        {0x00001002040879a3, 0x081effc4, A, GLO, 8, 4, 63, 16},   /* add.f64 */
        {0x000010040c0879a3, 0x081ef7c4, A, GLO, 16, 12, 63, 16}, /* v4.f32.add */
        {0x000010040a0079a6, 0x0c10eb84, A, GLO, 16, 10, 63, 16}, /* red v4.bf16x2.add */
        {0x0000100d0800798e, 0x0c10e184, A, GLO, 4, 8, 63, 16},   /* red.global.add.u32 */
        {0xfffffc02040d73a9, 0x001ee103, A, GLO, 4, 4, 63, -4},   /* atom.global.cas.b32 [-4] */
        {0x00001008020473a9, 0x001ee90c, A, GLO, 16, 2, 63, 16},  /* cas.b128 */
        {0x0000100b020a798a, 0x081ee1c4, A, GEN, 4, 2, 63, 16},   /* atom.add.u32 [+16] */
        {0x00001004020c738b, 0x0012e506, A, GEN, 8, 2, 63, 16},   /* atom.cas.b64 */
        {0x0000100d0000738c, 0x00000000, A, SHA, 4, 0, 63, 16},   /* atom.shared.add.u32 [+16] */
        {0x000010020b0a738c, 0x04000400, A, SHA, 8, 11, 63, 16},  /* exch.b64 */
        {0x0000100000ff7f8c, 0x0d80003f, A, SHA, 4, 0, 63, 16},   /* red.shared.add.u32 [+16], 1 */
        {0x000010040f06738d, 0x00000406, A, SHA, 8, 15, 63, 16},  /* atom.shared.cas.b64 */
        {0x00000fe0080b7fae, 0x0b901c46, L, GLO, 16, 8, 63, -32}, /* cp.async.cg 16 [-32] */
        {0x00010020080b7fae, 0x0b921846, L, GLO, 4, 8, 63, 32},   /* cp.async.ca [+16], [+32], 4 */
};

static void known_forms(void)
{
        for (size_t k = 0; k < COUNT(accesses); k++) {
                const struct instr i = {accesses[k].lo, accesses[k].hi};
                struct access a;

                CHECK_EQ(access_read(&arch_sm90, &i, &a), ACCESS_PLAIN);
                CHECK_EQ(a.kind, accesses[k].kind);
                CHECK_EQ(a.space, accesses[k].space);
                CHECK_EQ(a.size, accesses[k].size);
                CHECK_EQ(a.base, accesses[k].base);
                CHECK_EQ(a.ur, accesses[k].ur);
                CHECK_EQ(a.offset, accesses[k].offset);
                CHECK_EQ(a.is_wide, a.space == GLO || a.space == GEN);
        }
}

static void other_forms(void)
{
        static const struct instr others[] = {
                {0x000010000404783b, 0x00000200}, /* ldmatrix */
                {0x000010020a007dbd, 0x0c00083f}, /* st.async */
                {0x00001000020d79a4, 0x0801417f}, /* multimem.ld_reduce */
                {0x0000100402087981, 0x081f5b00}, /* a global load of a base that is no pair */
                {0x0000100402087981, 0x0c1f5f00}, /* of a size there is none of */
                {0x00001004fe087981, 0x0c1f5b00}, /* of the last register and none */
        };
        static const struct instr none[] = {
                {0x00000000fffff984, 0x00000800}, /* never executes */
                {0x000000100800798f, 0x00800100}, /* prefetch */
                {0x0000820000047ab9, 0x00000a00}, /* ULDC */
        };
        struct access a;

        for (size_t k = 0; k < COUNT(others); k++)
                CHECK_EQ(access_read(&arch_sm90, &others[k], &a), ACCESS_OTHER);
        for (size_t k = 0; k < COUNT(none); k++)
                CHECK_EQ(access_read(&arch_sm90, &none[k], &a), ACCESS_NONE);
}

#define OPERANDS_HI ((1ULL << 41) - 1)

static void code_around(void)
{
        struct instr i = encode_add_low(&arch_sm90, 4, 4, 0x23456789);

        CHECK(i.lo == 0x2345678904047810 && (i.hi & OPERANDS_HI) == 0x07f1e0ff);
        i = encode_add_high(&arch_sm90, 5, 5, 1);
        CHECK(i.lo == 0x0000000005057810 && (i.hi & OPERANDS_HI) == 0x007fe4ff);
        i = encode_add_high(&arch_sm90, 5, 5, -1);
        CHECK(i.lo == 0xffffffff05057810);
        i = encode_mov_register(&arch_sm90, 15, 4);
        CHECK(i.lo == 0x00000004000f7202 && (i.hi & OPERANDS_HI) == 0x0f00);
        i = encode_save_predicates(&arch_sm90, 24);
        CHECK(i.lo == 0x0000007fff187803 && (i.hi & OPERANDS_HI) == 0);
        i = encode_load_predicates(&arch_sm90, 13);
        CHECK(i.lo == 0x0000007f0d007804 && (i.hi & OPERANDS_HI) == 0);
}

static void moved_registers(void)
{
        static const struct {
                struct instr before, after;
        } cases[] = {
                {{0x0000000902ff7212, 0x082c0ff}, {0x0000001912ff7212, 0x082c0ff}},
                {{0x0000000205037812, 0x00000007}, {0x0000000215137812, 0x00000017}},
                {{0x000000ff02037207, 0x04000000}, {0x000000ff12137207, 0x04000000}},
                {{0x000000200200780c, 0x03f06070}, {0x000000201200780c, 0x03f06070}},
                {{0x0000000600067309, 0}, {0x0000001600167309, 0}},
                {{0x00000000020273a1, 0x0e8200}, {0x00000000121273a1, 0x0e8200}},
                {{0x000008040200798e, 0x0c10e584}, {0x000008141200798e, 0x0c10e584}},
                {{0x00000001ff0a7424, 0x078e00ff}, {0x00000001ff1a7424, 0x078e00ff}},
                {{0x00000000ff0b7435, 0x000001ff}, {0x00000000ff1b7435, 0x000001ff}},
                {{0x0000820000047ab9, 0x0a00}, {0x0000820000047ab9, 0x0a00}},
                {{0x00000000070473c4, 0xc000}, {0x00000000170473c4, 0xc000}}, /* REDUX */
                {{0x0000023000037945, 0x03800000}, {0x0000023000037945, 0x03800000}},
                {{0x0000000000037941, 0x03800000}, {0x0000000000037941, 0x03800000}},
                {{0x0000000000068942, 0x03800000}, {0x0000000000068942, 0x03800000}},
                {{0x0000000000007946, 0x03800000}, {0x0000000000007946, 0x03800000}},
        };
        struct instr i = {0x00000000fe027202, 0xf00};

        for (size_t k = 0; k < COUNT(cases); k++) {
                i = cases[k].before;
                CHECK(arch_move_registers(&arch_sm90, &i, 16));
                CHECK(i.lo == cases[k].after.lo && i.hi == cases[k].after.hi);
        }
        i = (struct instr){0x000000f000027202, 0xf00}; /* beyond the last register */
        CHECK(!arch_move_registers(&arch_sm90, &i, 16));
        i = (struct instr){0x0000001008007984, 0x800}; /* not for probes */
        CHECK(!arch_move_registers(&arch_sm90, &i, 16));
}

/* Kernels */

static const char *data_dir;

static uint32_t opcode(const uint64_t *i)
{
        return (uint32_t)(i[0] & 0xfff);
}

static size_t target(const uint64_t *i, size_t k)
{
        uint64_t v = (i[0] >> 16 & 0xff) | i[0] >> 34 << 8 | (i[1] & 0x3ffff) << 38;

        return (size_t)((int64_t)k + 1 + ((int64_t)(v << 8) >> 8) / 4);
}

/* Registers that ALU instructions and loads of the copy write; those of the kernel stay. */
static void check_written(const uint64_t *i, uint32_t registers)
{
        static const uint32_t writers[] = {0x919, 0x806, 0x3a1, 0x819, 0x219, 0x212, 0x812,
                                           0x824, 0x424, 0x224, 0x211, 0x811, 0x309, 0x202,
                                           0x802, 0x810, 0x803, 0x816, 0xc10, 0x207};

        for (size_t k = 0; k < COUNT(writers); k++)
                if (opcode(i) == writers[k])
                        CHECK((i[0] >> 16 & 0xff) >= registers);
}

/* From the branch at a site through its copy and back, once through everything in between. */
static void walk_copy(const uint64_t *code, size_t count, const uint64_t *site, size_t at,
                      uint32_t registers)
{
        const uint64_t reuse = 0xfULL << 58;
        size_t k = target(&code[2 * at], at), end = 0, guard = 0;

        CHECK(opcode(&code[2 * k]) == 0x918 && opcode(&code[2 * (k + 1)]) == 0x803);
        CHECK(opcode(&code[2 * (k + 2)]) == 0x945);
        for (size_t n = k; opcode(&code[2 * n]) != 0x941; n++) {
                CHECK(n < count && opcode(&code[2 * n]) != 0x94d);
                check_written(&code[2 * n], registers);
                end = n + 1;
        }
        /* All ways in between lead to the end; the first is that of lanes under the predicate. */
        for (size_t n = k + 3; n < end; n++) {
                if (opcode(&code[2 * n]) != 0x947)
                        continue;
                CHECK_EQ(target(&code[2 * n], n), end);
                guard += n == k + 3;
        }
        if ((site[0] >> 12 & 0xf) != 7) {
                CHECK(guard);
                CHECK_EQ(code[2 * (k + 3)] >> 12 & 0xf, (site[0] >> 12 & 0xf) ^ 8);
        }
        CHECK(opcode(&code[2 * (end + 1)]) == 0x804);
        CHECK_EQ(code[2 * (end + 1)] >> 24 & 0xff, code[2 * (k + 1)] >> 16 & 0xff);
        CHECK(code[2 * (end + 2)] == site[0] && code[2 * end + 5] == (site[1] & ~reuse));
        CHECK(opcode(&code[2 * (end + 3)]) == 0x947);
        CHECK_EQ(target(&code[2 * (end + 3)], end + 3), at + 1);
}

static void check_kernel(const struct cubin *before, const struct cubin *after,
                         const struct splice_kernel *k)
{
        size_t n, m;
        const uint64_t *old = test_kernel_code(before, k->name, &n),
                       *new = test_kernel_code(after, k->name, &m);
        uint32_t sites = 0;

        for (size_t at = 0; at < n; at++) {
                struct instr i = {old[2 * at], old[2 * at + 1]};
                struct access a;

                if (new[2 * at] == i.lo &&new[2 * at + 1] == i.hi)
                        continue;
                CHECK_EQ(access_read(&arch_sm90, &i, &a), ACCESS_PLAIN);
                CHECK(opcode(&new[2 * at]) == 0x947 && target(&new[2 * at], at) >= n);
                walk_copy(new, m, &old[2 * at], at, k->registers_before);
                sites++;
        }
        CHECK_EQ(sites, k->accesses);
        CHECK(!sites || k->registers_after > k->registers_before);
}

struct case_image {
        uint8_t *bytes;
        size_t size;
        struct probe_code *code; /* of the program */
        struct splice_result *r;
        struct cubin before, after;
};

static void image_load(struct case_image *c, const char *name)
{
        size_t probe_size;
        uint8_t *probe = test_load(data_dir, "mem.cubin", &probe_size);

        *c = (struct case_image){0};
        c->bytes = test_load(data_dir, name, &c->size);
        CHECK_EQ(probe_code_extract(probe, probe_size, &c->code, NULL), 0);
        CHECK_EQ(cubin_open(c->bytes, c->size, &c->before, NULL), 0);
        free(probe);
}

/* The same program at accesses `programs` times. */
static void image_splice(struct case_image *c, size_t programs)
{
        struct probe_program list[2];

        for (size_t k = 0; k < programs; k++)
                list[k] = (struct probe_program){
                        .where = AGENT_PROGRAM_MEM, .label = "mem", .code = c->code};
        CHECK_EQ(splice_image(c->bytes, c->size,
                              &(struct probe_list){.programs = list, .count = programs}, 7, &c->r,
                              NULL),
                 0);
        CHECK_EQ(cubin_open(c->r->image, c->r->image_bytes, &c->after, NULL), 0);
}

static void image_done(struct case_image *c)
{
        cubin_done(&c->before);
        cubin_done(&c->after);
        splice_result_free(c->r);
        probe_code_free(c->code);
        free(c->bytes);
}

static void check_image(const char *name, size_t programs, bool walk, uint32_t least)
{
        struct case_image c;
        uint32_t accesses_seen = 0;

        image_load(&c, name);
        image_splice(&c, programs);
        for (size_t k = 0; k < c.r->kernel_count; k++) {
                if (walk)
                        check_kernel(&c.before, &c.after, &c.r->kernels[k]);
                accesses_seen += c.r->kernels[k].accesses;
        }
        CHECK(accesses_seen >= least);
        image_done(&c);
}

static void kernels(void)
{
        check_image("kernels.cubin", 1, true, 20);
}

static void kernels_of_the_older_abi(void)
{
        check_image("kernels_abi7.cubin", 1, true, 3);
}

static void two_programs(void)
{
        check_image("kernels.cubin", 2, false, 20);
}

/* Put FCHK P1, R6, R0 without a scoreboard in place of an instruction. Returns which. */
static size_t put_check(uint64_t *code, size_t count)
{
        size_t k = 8;

        while (opcode(&code[2 * k]) != 0x224 && opcode(&code[2 * k]) != 0x824) /* IMAD */
                CHECK(++k < count);
        code[2 * k] = 0x0000000006007302;
        code[2 * k + 1] = 0x000fe20000020000;
        return k;
}

/*
 * A predicate that an instruction behind tells of, when the queue has come to both: a copy in
 * between keeps it, and so needs somebody who tells.
 */
static void predicates_that_another_tells_of(void)
{
        struct case_image c;
        const uint64_t *old, *new;
        size_t n, m, at;
        uint64_t board;

        image_load(&c, "kernels.cubin");
        old = test_kernel_code(&c.before, "shared_barrier", &n);
        at = put_check((uint64_t *)(uintptr_t)old, n);
        image_splice(&c, 1);
        new = test_kernel_code(&c.after, "shared_barrier", &m);
        board = new[2 * at + 1] >> 46 & 7;
        CHECK(board < 6 && new[2 * at] == old[2 * at]);
        CHECK_EQ(new[2 * at + 1] | 7ULL << 46, old[2 * at + 1]);
        for (size_t k = 0; k < n; k++)
                if (opcode(&new[2 * k]) == 0x947 && opcode(&old[2 * k]) != 0x947)
                        CHECK(new[2 * target(&new[2 * k], k) + 1] >> 52 >> board & 1);
        image_done(&c);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        data_dir = argv[1];
        TEST(known_forms);
        TEST(other_forms);
        TEST(code_around);
        TEST(moved_registers);
        TEST(kernels);
        TEST(kernels_of_the_older_abi);
        TEST(two_programs);
        TEST(predicates_that_another_tells_of);
        return 0;
}
