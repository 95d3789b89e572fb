/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The eBPF instruction set, row by row: what RFC 9669 says an instruction gives,
 * what the kernel gives, and what the compiled program gives. Operands come from
 * memory (so that nothing can be computed in advance) and as constants (so that all
 * of it is), and an instruction is tried with a register and, where it fits, with
 * an immediate.
 */
#include <unistd.h>

#include "bpf/device_pair.h"
#include "unit/test.h"
#include "util/macro.h"

/* Newer than some headers this is built with. */
#ifndef BPF_MEMSX
#define BPF_MEMSX 0x80
#endif

#define INSN(code_, dst_, src_, off_, imm_)                                                        \
        ((struct bpf_insn){.code = (code_),                                                        \
                           .dst_reg = (dst_),                                                      \
                           .src_reg = (src_),                                                      \
                           .off = (off_),                                                          \
                           .imm = (imm_)})

#define ALL_ONES UINT64_MAX
#define MIN64    (UINT64_C(1) << 63)
#define MAX64    (MIN64 - 1)
#define MIN32    UINT64_C(0x80000000)
#define MANY     UINT64_C(0x0123456789abcdef)
#define NEGATIVE UINT64_C(0xfedcba9876543210)

struct program {
        struct bpf_insn insns[64];
        size_t count;
};

static int map;
static unsigned checked;

static void add(struct program *p, struct bpf_insn insn)
{
        CHECK(p->count < ARRAY_SIZE(p->insns));
        p->insns[p->count++] = insn;
}

static void add_constant(struct program *p, uint8_t reg, uint64_t value)
{
        add(p, INSN(BPF_LD | BPF_IMM | BPF_DW, reg, 0, 0, (int32_t)value));
        add(p, INSN(0, 0, 0, 0, (int32_t)(value >> 32)));
}

/* r9 = the first element; anything in r0..r5 is lost. */
static void begin(struct program *p)
{
        add(p, INSN(BPF_ST | BPF_MEM | BPF_W, 10, 0, -4, 0));
        add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0));
        add(p, INSN(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -4));
        add(p, INSN(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, map));
        add(p, INSN(0, 0, 0, 0, 0));
        add(p, INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem));
        add(p, INSN(BPF_JMP | BPF_JNE | BPF_K, 0, 0, 1, 0));
        add(p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 9, 0, 0, 0));
}

/* Words 16 and up of the element receive r0, r1, ...: `registers` of them. */
static void end(struct program *p, uint8_t registers)
{
        for (uint8_t r = 0; r < registers; r++)
                add(p, INSN(BPF_STX | BPF_MEM | BPF_DW, 9, r, (int16_t)(8 * (16 + r)), 0));
        add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0));
        add(p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

static void expect(const struct program *p, const struct pair_output *out, const char *who,
                   const char *name, unsigned word, uint64_t value)
{
        if (out->elements[0][word] == value)
                return;
        fprintf(stderr, "%s: %s gives 0x%" PRIx64 ", the standard says 0x%" PRIx64 "\n", name, who,
                out->elements[0][word], value);
        pair_print(p->insns, p->count);
        exit(1);
}

/* Run on words 0.. of the element = input; words `first`.. must become `expected`. */
static void check(const char *name, const struct program *p, const uint64_t *input, size_t inputs,
                  unsigned first, const uint64_t *expected, size_t outputs)
{
        static char log[65536];
        struct pair_input in = {.ctx = {.grid_x = 1,
                                        .grid_y = 1,
                                        .grid_z = 1,
                                        .block_dim_x = 1,
                                        .block_dim_y = 1,
                                        .block_dim_z = 1}};
        struct pair_output kernel, ptx;
        int fd = pair_load(p->insns, p->count, log, sizeof(log));
        char *text;

        if (fd < 0) {
                fprintf(stderr, "%s: %s\n", name, log);
                exit(1);
        }
        memcpy(in.elements[0], input, inputs * sizeof(*input));
        pair_run_kernel(fd, &in, &kernel);
        close(fd);
        text = pair_compile(p->insns, p->count, DEVICE_ENTRY, NULL, NULL);
        pair_run_ptx(text, &in, &ptx);
        free(text);
        for (unsigned i = 0; i < outputs; i++) {
                expect(p, &kernel, "the kernel", name, first + i, expected[i]);
                expect(p, &ptx, "PTX", name, first + i, expected[i]);
        }
        checked++;
}

/* Operands in r0 and r1: from memory or as constants. */
static void add_operands(struct program *p, bool constant, uint64_t a, uint64_t b)
{
        if (constant) {
                add_constant(p, 0, a);
                add_constant(p, 1, b);
                return;
        }
        add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 9, 0, 0));
        add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 9, 8, 0));
}

static void run_operation(const char *name, struct bpf_insn insn, uint64_t a, uint64_t b,
                          uint64_t expected)
{
        for (int constant = 0; constant < 2; constant++) {
                struct program p = {};

                begin(&p);
                add_operands(&p, constant, a, b);
                add(&p, insn);
                end(&p, 2);
                check(name, &p, (uint64_t[]){a, b}, 2, 16, (uint64_t[]){expected, b}, 2);
        }
}

/* Arithmetic */

struct operation {
        const char *name;
        uint8_t code; /* class and operation */
        int16_t off;
        uint64_t a, b, expected;
};

#define ADD64(a, b, r)                                                                             \
        {                                                                                          \
                "add64", BPF_ALU64 | BPF_ADD, 0, a, b, r                                           \
        }
#define ADD32(a, b, r)                                                                             \
        {                                                                                          \
                "add32", BPF_ALU | BPF_ADD, 0, a, b, r                                             \
        }
#define SUB64(a, b, r)                                                                             \
        {                                                                                          \
                "sub64", BPF_ALU64 | BPF_SUB, 0, a, b, r                                           \
        }
#define SUB32(a, b, r)                                                                             \
        {                                                                                          \
                "sub32", BPF_ALU | BPF_SUB, 0, a, b, r                                             \
        }
#define MUL64(a, b, r)                                                                             \
        {                                                                                          \
                "mul64", BPF_ALU64 | BPF_MUL, 0, a, b, r                                           \
        }
#define MUL32(a, b, r)                                                                             \
        {                                                                                          \
                "mul32", BPF_ALU | BPF_MUL, 0, a, b, r                                             \
        }
#define DIV64(a, b, r)                                                                             \
        {                                                                                          \
                "div64", BPF_ALU64 | BPF_DIV, 0, a, b, r                                           \
        }
#define DIV32(a, b, r)                                                                             \
        {                                                                                          \
                "div32", BPF_ALU | BPF_DIV, 0, a, b, r                                             \
        }
#define SDIV64(a, b, r)                                                                            \
        {                                                                                          \
                "sdiv64", BPF_ALU64 | BPF_DIV, 1, a, b, r                                          \
        }
#define SDIV32(a, b, r)                                                                            \
        {                                                                                          \
                "sdiv32", BPF_ALU | BPF_DIV, 1, a, b, r                                            \
        }
#define MOD64(a, b, r)                                                                             \
        {                                                                                          \
                "mod64", BPF_ALU64 | BPF_MOD, 0, a, b, r                                           \
        }
#define MOD32(a, b, r)                                                                             \
        {                                                                                          \
                "mod32", BPF_ALU | BPF_MOD, 0, a, b, r                                             \
        }
#define SMOD64(a, b, r)                                                                            \
        {                                                                                          \
                "smod64", BPF_ALU64 | BPF_MOD, 1, a, b, r                                          \
        }
#define SMOD32(a, b, r)                                                                            \
        {                                                                                          \
                "smod32", BPF_ALU | BPF_MOD, 1, a, b, r                                            \
        }
#define LOGIC(op, a, b, r)                                                                         \
        {                                                                                          \
#op, BPF_ALU64 | op, 0, a, b, r                                                    \
        }
#define LOGIC32(op, a, b, r)                                                                       \
        {                                                                                          \
#op " of 32 bits", BPF_ALU | op, 0, a, b, r                                        \
        }
#define MOV64(off, b, r)                                                                           \
        {                                                                                          \
                "mov64 of " #off " bits", BPF_ALU64 | BPF_MOV, off, MANY, b, r                     \
        }
#define MOV32(off, b, r)                                                                           \
        {                                                                                          \
                "mov32 of " #off " bits", BPF_ALU | BPF_MOV, off, MANY, b, r                       \
        }

static const struct operation operations[] = {
        ADD64(ALL_ONES, 1, 0),
        ADD64(MAX64, 1, MIN64),
        ADD64(5, (uint64_t)-7, (uint64_t)-2),
        ADD32(0xffffffff, 1, 0),
        ADD32(NEGATIVE, MANY, 0xffffffff),
        ADD32(0x7fffffff, 1, MIN32),
        SUB64(0, 1, ALL_ONES),
        SUB64(MIN64, 1, MAX64),
        SUB32(0, 1, 0xffffffff),
        SUB32(NEGATIVE, MANY, 0xeca86421),
        MUL64(MANY, NEGATIVE, 0x2236d88fe5618cf0),
        MUL64(ALL_ONES, ALL_ONES, 1),
        MUL64(0xffffffff, 0xffffffff, 0xfffffffe00000001),
        MUL64(0x100000000, 0x100000000, 0),
        MUL32(0xffffffff, 0xffffffff, 1),
        MUL32(MANY, 3, 0x9d0369cd),

        /* Divisions by zero give 0, remainders the dividend, cut to 32 bits where that is the
           width. */
        DIV64(MANY, 0, 0),
        DIV64(ALL_ONES, 2, MAX64),
        DIV64(MIN64, ALL_ONES, 0),
        DIV64(MANY, 0x100000001, 0x1234567),
        DIV64(7, 7, 1),
        DIV32(MANY, 0, 0),
        DIV32(MANY, 0x100000000, 0),
        DIV32(NEGATIVE, 0x10, 0x7654321),
        DIV32(0xffffffff, 0xffffffff, 1),
        MOD64(MANY, 0, MANY),
        MOD64(ALL_ONES, 10, 5),
        MOD64(MIN64, ALL_ONES, MIN64),
        MOD32(MANY, 0, 0x89abcdef),
        MOD32(MANY, 0x100000000, 0x89abcdef),
        MOD32(NEGATIVE, 1000, 0x76543210 % 1000),

        /* Signed ones truncate towards zero; the smallest number divided by -1 wraps. */
        SDIV64((uint64_t)-7, 2, (uint64_t)-3),
        SDIV64(7, (uint64_t)-2, (uint64_t)-3),
        SDIV64((uint64_t)-7, (uint64_t)-2, 3),
        SDIV64(MIN64, ALL_ONES, MIN64),
        SDIV64(MIN64, 1, MIN64),
        SDIV64(MAX64, ALL_ONES, MIN64 + 1),
        SDIV64(NEGATIVE, 0, 0),
        SDIV64(MIN64, MIN64, 1),
        SDIV64(5, MIN64, 0),
        SDIV32(0xfffffff9, 2, 0xfffffffd),
        SDIV32(7, 0xfffffffe, 0xfffffffd),
        SDIV32(MIN32, 0xffffffff, MIN32),
        SDIV32(NEGATIVE, 0x100000000, 0),
        SDIV32(0xffffffff00000009, 3, 3),
        SMOD64((uint64_t)-7, 2, ALL_ONES),
        SMOD64(7, (uint64_t)-2, 1),
        SMOD64((uint64_t)-7, (uint64_t)-4, (uint64_t)-3),
        SMOD64(MIN64, ALL_ONES, 0),
        SMOD64(NEGATIVE, 0, NEGATIVE),
        SMOD64(5, MIN64, 5),
        SMOD32(0xfffffff9, 2, 0xffffffff),
        SMOD32(7, 0xfffffffe, 1),
        SMOD32(MIN32, 0xffffffff, 0),
        SMOD32(NEGATIVE, 0, 0x76543210),

        LOGIC(BPF_AND, MANY, NEGATIVE, 0),
        LOGIC(BPF_AND, ALL_ONES, (uint64_t)-16, (uint64_t)-16),
        LOGIC(BPF_OR, MANY, NEGATIVE, ALL_ONES),
        LOGIC(BPF_XOR, ALL_ONES, MANY, NEGATIVE),
        LOGIC(BPF_XOR, MANY, ALL_ONES, NEGATIVE),
        LOGIC32(BPF_AND, MANY, ALL_ONES, 0x89abcdef),
        LOGIC32(BPF_OR, MANY, NEGATIVE, 0xffffffff),
        LOGIC32(BPF_XOR, MANY, MANY, 0),

        /* Amounts are taken modulo the width. */
        LOGIC(BPF_LSH, 1, 63, MIN64),
        LOGIC(BPF_LSH, 3, 64, 3),
        LOGIC(BPF_LSH, 3, 65, 6),
        LOGIC(BPF_LSH, 3, ALL_ONES, MIN64),
        LOGIC(BPF_RSH, NEGATIVE, 4, 0x0fedcba987654321),
        LOGIC(BPF_RSH, NEGATIVE, 127, 1),
        LOGIC(BPF_ARSH, NEGATIVE, 4, 0xffedcba987654321),
        LOGIC(BPF_ARSH, NEGATIVE, 63, ALL_ONES),
        LOGIC(BPF_ARSH, NEGATIVE, 128, NEGATIVE),
        LOGIC32(BPF_LSH, MANY, 4, 0x9abcdef0),
        LOGIC32(BPF_LSH, 1, 33, 2),
        LOGIC32(BPF_RSH, MANY, 28, 8),
        LOGIC32(BPF_RSH, MANY, 32, 0x89abcdef),
        LOGIC32(BPF_ARSH, MANY, 28, 0xfffffff8),
        LOGIC32(BPF_ARSH, NEGATIVE, 28, 7),
        LOGIC32(BPF_ARSH, MANY, 63, 0xffffffff),

        MOV64(0, NEGATIVE, NEGATIVE),
        MOV64(8, 0x1280, 0xffffffffffffff80),
        MOV64(8, 0xff7f, 0x7f),
        MOV64(16, 0x18000, 0xffffffffffff8000),
        MOV64(16, 0x87fff, 0x7fff),
        MOV64(32, MIN32, 0xffffffff80000000),
        MOV64(32, 0xf7fffffff, 0x7fffffff),
        MOV32(0, MANY, 0x89abcdef),
        MOV32(8, 0x1280, 0xffffff80),
        MOV32(8, 0xff7f, 0x7f),
        MOV32(16, 0x18000, 0xffff8000),
        MOV32(16, 0x87fff, 0x7fff),
};

static bool is_shift(uint8_t op)
{
        return op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH;
}

/* Whether there is a form with an immediate, and the operand is what it would extend to. */
static bool has_immediate(const struct operation *o)
{
        uint8_t op = BPF_OP(o->code);
        bool wide = BPF_CLASS(o->code) == BPF_ALU64;

        if (op == BPF_MOV && o->off)
                return false;
        if ((op == BPF_DIV || op == BPF_MOD) && !(uint32_t)o->b)
                return false; /* the kernel refuses it */
        if (is_shift(op))
                return o->b < (wide ? 64 : 32); /* likewise */
        return wide ? (uint64_t)(int64_t)(int32_t)o->b == o->b : o->b <= UINT32_MAX;
}

static void test_arithmetic(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(operations); i++) {
                const struct operation *o = &operations[i];

                run_operation(o->name, INSN(o->code | BPF_X, 0, 1, o->off, 0), o->a, o->b,
                              o->expected);
                if (has_immediate(o))
                        run_operation(o->name, INSN(o->code | BPF_K, 0, 0, o->off, (int32_t)o->b),
                                      o->a, o->b, o->expected);
        }
}

static void test_negation(void)
{
        run_operation("neg64", INSN(BPF_ALU64 | BPF_NEG, 0, 0, 0, 0), 1, 0, ALL_ONES);
        run_operation("neg64", INSN(BPF_ALU64 | BPF_NEG, 0, 0, 0, 0), MIN64, 0, MIN64);
        run_operation("neg32", INSN(BPF_ALU | BPF_NEG, 0, 0, 0, 0), 1, 0, 0xffffffff);
        run_operation("neg32", INSN(BPF_ALU | BPF_NEG, 0, 0, 0, 0), 0xffffffff80000000, 0, MIN32);
}

/* An immediate of a 64-bit operation is sign-extended, of a 32-bit one not beyond 32 bits. */
static void test_immediates(void)
{
        run_operation("mov64", INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, -2), MANY, 0,
                      (uint64_t)-2);
        run_operation("mov32", INSN(BPF_ALU | BPF_MOV | BPF_K, 0, 0, 0, -2), MANY, 0, 0xfffffffe);
        run_operation("div64", INSN(BPF_ALU64 | BPF_DIV | BPF_K, 0, 0, 0, -1), ALL_ONES, 0, 1);
        run_operation("mod64", INSN(BPF_ALU64 | BPF_MOD | BPF_K, 0, 0, 0, -16), MANY, 0, MANY);
        run_operation("or64", INSN(BPF_ALU64 | BPF_OR | BPF_K, 0, 0, 0, -256), 1, 0,
                      0xffffffffffffff01);
        run_operation("or32", INSN(BPF_ALU | BPF_OR | BPF_K, 0, 0, 0, -256), 1, 0, 0xffffff01);
}

static void test_byte_order(void)
{
        static const struct operation rows[] = {
                {"le16", BPF_ALU | BPF_END | BPF_TO_LE, 16, MANY, 0, 0xcdef},
                {"le32", BPF_ALU | BPF_END | BPF_TO_LE, 32, MANY, 0, 0x89abcdef},
                {"le64", BPF_ALU | BPF_END | BPF_TO_LE, 64, MANY, 0, MANY},
                {"be16", BPF_ALU | BPF_END | BPF_TO_BE, 16, MANY, 0, 0xefcd},
                {"be32", BPF_ALU | BPF_END | BPF_TO_BE, 32, MANY, 0, 0xefcdab89},
                {"be64", BPF_ALU | BPF_END | BPF_TO_BE, 64, MANY, 0, 0xefcdab8967452301},
                {"bswap16", BPF_ALU64 | BPF_END | BPF_TO_LE, 16, MANY, 0, 0xefcd},
                {"bswap32", BPF_ALU64 | BPF_END | BPF_TO_LE, 32, MANY, 0, 0xefcdab89},
                {"bswap64", BPF_ALU64 | BPF_END | BPF_TO_LE, 64, MANY, 0, 0xefcdab8967452301},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                run_operation(rows[i].name, INSN(rows[i].code, 0, 0, 0, rows[i].off), rows[i].a,
                              rows[i].b, rows[i].expected);
}

/* Jumps */

struct comparison {
        uint8_t op;
        uint64_t a, b;
        bool wide, narrow; /* taken as a 64-bit and as a 32-bit comparison */
};

static const struct comparison comparisons[] = {
        {BPF_JEQ, MANY, MANY, true, true},
        {BPF_JEQ, MANY, 0x89abcdef, false, true},
        {BPF_JNE, MANY, MANY, false, false},
        {BPF_JNE, MANY, 0x89abcdef, true, false},
        {BPF_JGT, ALL_ONES, 1, true, true},
        {BPF_JGT, 1, 1, false, false},
        {BPF_JGT, 0x100000000, 1, true, false},
        {BPF_JGE, 1, 1, true, true},
        {BPF_JGE, 0x100000000, 1, true, false},
        {BPF_JGE, 0, ALL_ONES, false, false},
        {BPF_JLT, 1, ALL_ONES, true, true},
        {BPF_JLT, 1, 1, false, false},
        {BPF_JLT, 1, 0x100000000, true, false},
        {BPF_JLE, 1, 1, true, true},
        {BPF_JLE, 1, 0x100000000, true, false},
        {BPF_JLE, ALL_ONES, 0, false, false},
        {BPF_JSGT, 1, ALL_ONES, true, true},
        {BPF_JSGT, ALL_ONES, 1, false, false},
        {BPF_JSGT, 0x80000000, 0, true, false},
        {BPF_JSGE, 0, 0, true, true},
        {BPF_JSGE, MIN64, MAX64, false, true},
        {BPF_JSLT, ALL_ONES, 1, true, true},
        {BPF_JSLT, 1, ALL_ONES, false, false},
        {BPF_JSLT, 0x80000000, 0, false, true},
        {BPF_JSLE, 0, 0, true, true},
        {BPF_JSLE, MIN64, MAX64, true, false},
        {BPF_JSET, 6, 2, true, true},
        {BPF_JSET, 6, 1, false, false},
        {BPF_JSET, 0x100000000, ALL_ONES, true, false},
};

static void run_comparison(uint8_t code, const struct comparison *c, int32_t imm, bool constant,
                           bool taken)
{
        struct program p = {};

        begin(&p);
        add_operands(&p, constant, c->a, c->b);
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 1));
        add(&p, INSN(code, 0, BPF_SRC(code) == BPF_X ? 1 : 0, 1, imm));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 0));
        end(&p, 3);
        check("jump", &p, (uint64_t[]){c->a, c->b}, 2, 16, (uint64_t[]){c->a, c->b, taken}, 3);
}

static void test_comparisons(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(comparisons); i++) {
                const struct comparison *c = &comparisons[i];
                bool fits = (uint64_t)(int64_t)(int32_t)c->b == c->b;

                for (int constant = 0; constant < 2; constant++) {
                        run_comparison(BPF_JMP | c->op | BPF_X, c, 0, constant, c->wide);
                        run_comparison(BPF_JMP32 | c->op | BPF_X, c, 0, constant, c->narrow);
                        run_comparison(BPF_JMP32 | c->op | BPF_K, c, (int32_t)c->b, constant,
                                       c->narrow);
                        if (fits)
                                run_comparison(BPF_JMP | c->op | BPF_K, c, (int32_t)c->b, constant,
                                               c->wide);
                }
        }
}

static void test_gotos(void)
{
        static const uint8_t codes[] = {BPF_JMP | BPF_JA, BPF_JMP32 | BPF_JA};

        for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
                bool long_ = codes[i] == (BPF_JMP32 | BPF_JA);
                struct program p = {};

                begin(&p);
                add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 9, 0, 0));
                add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 7));
                add(&p,
                    INSN(BPF_JMP | BPF_JEQ | BPF_K, 1, 0, 1, 1)); /* all code must be reachable */
                add(&p, INSN(codes[i], 0, 0, long_ ? 0 : 1, long_ ? 1 : 0));
                add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 8));
                end(&p, 1);
                check("goto", &p, (uint64_t[]){0}, 1, 16, (uint64_t[]){7}, 1);
                check("goto", &p, (uint64_t[]){1}, 1, 16, (uint64_t[]){8}, 1);
        }
}

/* Sum of the numbers 1 to n, n known and not. */
static void test_loops(void)
{
        for (int constant = 0; constant < 2; constant++) {
                struct program p = {};

                begin(&p);
                add_operands(&p, constant, 10, 0);
                add(&p, INSN(BPF_JMP | BPF_JGT | BPF_K, 0, 0, 3, 100));
                add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, 0, 0, 0));
                add(&p, INSN(BPF_ALU64 | BPF_SUB | BPF_K, 0, 0, 0, 1));
                add(&p, INSN(BPF_JMP | BPF_JSGT | BPF_K, 0, 0, -3, 0));
                end(&p, 2);
                check("loop", &p, (uint64_t[]){10, 0}, 2, 16, (uint64_t[]){0, 55}, 2);
        }
}

/* Memory */

/* Where a program's memory is: the map, stack slots in registers, indexed or not, one in memory. */
enum place {
        PLACE_MAP,
        PLACE_STACK,
        PLACE_STACK_INDEXED,
        PLACE_STACK_MEMORY,
        PLACES,
};

/* r8 = 16 bytes that hold words 0 and 1 of the element. */
static void add_place(struct program *p, enum place place)
{
        if (place == PLACE_MAP) {
                add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 8, 9, 0, 0));
                return;
        }
        add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 8, 10, 0, 0));
        if (place == PLACE_STACK_MEMORY) {
                /* a store at any of more places than are looked at one by one */
                add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 7, 10, 0, 0));
                add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 9, 120, 0));
                add(p, INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 0xf8));
                add(p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 7, 0, 0, 0));
                add(p, INSN(BPF_ST | BPF_MEM | BPF_DW, 7, 0, -512, 0));
        }
        add(p, INSN(BPF_ALU64 | BPF_ADD | BPF_K, 8, 0, 0, -40));
        for (int16_t w = 0; w < 2; w++) {
                add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 9, 8 * w, 0));
                add(p, INSN(BPF_STX | BPF_MEM | BPF_DW, 8, 0, 8 * w, 0));
        }
        if (place == PLACE_STACK_INDEXED) {
                /* by 0, which nobody knows */
                add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 9, 120, 0));
                add(p, INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 16));
                add(p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 8, 0, 0, 0));
        }
}

/* Words 20 and 21 of the element = the 16 bytes behind r8. */
static void add_copy(struct program *p)
{
        for (int16_t w = 0; w < 2; w++) {
                add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 7, 8, 8 * w, 0));
                add(p, INSN(BPF_STX | BPF_MEM | BPF_DW, 9, 7, (int16_t)(8 * (20 + w)), 0));
        }
}

static const uint8_t sizes[] = {BPF_B, BPF_H, BPF_W, BPF_DW};

static void test_loads(void)
{
        static const struct {
                uint8_t mode, size;
                int16_t off;
                uint64_t expected;
        } rows[] = {
                {BPF_MEM, BPF_B, 0, 0xef},
                {BPF_MEM, BPF_B, 7, 0x01},
                {BPF_MEM, BPF_H, 0, 0xcdef},
                {BPF_MEM, BPF_H, 6, 0x0123},
                {BPF_MEM, BPF_W, 0, 0x89abcdef},
                {BPF_MEM, BPF_W, 4, 0x01234567},
                {BPF_MEM, BPF_DW, 8, NEGATIVE},
                {BPF_MEMSX, BPF_B, 0, 0xffffffffffffffef},
                {BPF_MEMSX, BPF_B, 3, ~UINT64_C(0x76)},
                {BPF_MEMSX, BPF_B, 4, 0x67},
                {BPF_MEMSX, BPF_H, 2, 0xffffffffffff89ab},
                {BPF_MEMSX, BPF_H, 4, 0x4567},
                {BPF_MEMSX, BPF_W, 0, 0xffffffff89abcdef},
                {BPF_MEMSX, BPF_W, 4, 0x01234567},
                {BPF_MEMSX, BPF_W, 12, 0xfffffffffedcba98},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                for (enum place place = 0; place < PLACES; place++) {
                        struct program p = {};

                        begin(&p);
                        add_place(&p, place);
                        add(&p, INSN(BPF_LDX | rows[i].mode | rows[i].size, 0, 8, rows[i].off, 0));
                        end(&p, 1);
                        check("load", &p, (uint64_t[]){MANY, NEGATIVE}, 2, 16,
                              (uint64_t[]){rows[i].expected}, 1);
                }
}

/* The low bytes of `value` written at an offset of MANY, NEGATIVE. */
static void store_bytes(uint64_t words[2], int16_t off, uint64_t value, unsigned bytes)
{
        words[0] = MANY;
        words[1] = NEGATIVE;
        memcpy((uint8_t *)words + off, &value, bytes);
}

static void test_stores(void)
{
        for (size_t s = 0; s < ARRAY_SIZE(sizes); s++)
                for (unsigned off = 0; off < 16; off += 1u << s)
                        for (enum place place = 0; place < 2 * PLACES; place++) {
                                bool imm = place >= PLACES;
                                uint64_t value = imm ? (uint64_t)-12345 : 0x1122334455667788;
                                struct program p = {};
                                uint64_t words[2];

                                begin(&p);
                                add_place(&p, place % PLACES);
                                add_constant(&p, 1, value);
                                add(&p, imm ? INSN(BPF_ST | BPF_MEM | sizes[s], 8, 0, (int16_t)off,
                                                   -12345)
                                            : INSN(BPF_STX | BPF_MEM | sizes[s], 8, 1, (int16_t)off,
                                                   0));
                                add_copy(&p);
                                end(&p, 0);
                                store_bytes(words, (int16_t)off, value, 1u << s);
                                check("store", &p, (uint64_t[]){MANY, NEGATIVE}, 2, 20, words, 2);
                        }
}

/* Atomic operations: memory MANY, operand b, r0 (what cmpxchg expects). */
static const struct {
        const char *name;
        int32_t imm;
        uint64_t b, r0;
        uint64_t memory64, memory32; /* afterwards; of 32 bits the lower half */
} atomics[] = {
        {"atomic add", BPF_ADD, NEGATIVE, 0, ALL_ONES, 0xffffffff},
        {"atomic or", BPF_OR, 0xf0f0f0f0f0f0f0f0, 0, 0xf1f3f5f7f9fbfdff, 0xf9fbfdff},
        {"atomic and", BPF_AND, 0xf0f0f0f0f0f0f0f0, 0, 0x0020406080a0c0e0, 0x80a0c0e0},
        {"atomic xor", BPF_XOR, ALL_ONES, 0, NEGATIVE, 0x76543210},
        {"xchg", BPF_XCHG, NEGATIVE, 0, NEGATIVE, 0x76543210},
        {"cmpxchg that fits", BPF_CMPXCHG, NEGATIVE, MANY, NEGATIVE, 0x76543210},
        {"cmpxchg that does not", BPF_CMPXCHG, NEGATIVE, MANY + 1, MANY, 0x89abcdef},
        {"cmpxchg of the lower half", BPF_CMPXCHG, NEGATIVE, 0x89abcdef, MANY, 0x76543210},
};

/* What r0 and r1 hold afterwards. */
static void fetched(int32_t imm, uint64_t b, uint64_t r0, uint64_t old, uint64_t ret[2])
{
        ret[0] = imm == BPF_CMPXCHG ? old : r0;
        ret[1] = imm != BPF_CMPXCHG && imm & BPF_FETCH ? old : b;
}

static void run_atomic(size_t row, int32_t imm, bool wide, enum place place)
{
        uint64_t old = wide ? MANY : (uint32_t)MANY, expected[6];
        uint64_t memory = wide ? atomics[row].memory64
                               : (MANY & ~UINT64_C(0xffffffff)) | atomics[row].memory32;
        struct program p = {};

        begin(&p);
        add_place(&p, place);
        add_constant(&p, 0, atomics[row].r0);
        add_constant(&p, 1, atomics[row].b);
        add(&p, INSN(BPF_STX | BPF_ATOMIC | (wide ? BPF_DW : BPF_W), 8, 1, 0, imm));
        add_copy(&p);
        end(&p, 2);
        fetched(imm, atomics[row].b, atomics[row].r0, old, expected);
        check(atomics[row].name, &p, (uint64_t[]){MANY, NEGATIVE}, 2, 16, expected, 2);
        check(atomics[row].name, &p, (uint64_t[]){MANY, NEGATIVE}, 2, 20,
              (uint64_t[]){memory, NEGATIVE}, 2);
}

static void run_atomics(enum place place)
{
        for (size_t i = 0; i < ARRAY_SIZE(atomics); i++)
                for (int wide = 0; wide < 2; wide++) {
                        run_atomic(i, atomics[i].imm, wide, place);
                        run_atomic(i, atomics[i].imm | BPF_FETCH, wide, place);
                }
}

/* Where the stack is indexed the kernel allows none. */
static void test_atomics(void)
{
        for (enum place place = 0; place < PLACES; place++)
                if (place != PLACE_STACK_INDEXED)
                        run_atomics(place);
}

/* Calls */

/* r6..r9 and the stack of the caller survive; arguments arrive; calls nest. */
/* The bytes of the table that a load of so many gives. */
static uint64_t table_bytes(unsigned at, unsigned bytes, bool sign)
{
        uint64_t v = 0;

        for (unsigned i = 0; i < bytes; i++)
                v |= (uint64_t)pair_byte(at + i) << 8 * i;
        if (sign && v >> (8 * bytes - 1))
                v |= ~UINT64_C(0) << 8 * bytes;
        return v;
}

/* Constants, at a place from memory and at one that is known. */
static void check_table(unsigned at, unsigned bytes, uint8_t size, bool sign)
{
        uint8_t mode = sign ? BPF_MEMSX : BPF_MEM;

        for (int constant = 0; constant < 2; constant++) {
                struct program p = {};

                begin(&p);
                add_operands(&p, constant, at, 0);
                add(&p, INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0,
                             (int32_t)(PAIR_TABLE_BYTES / 2 - bytes)));
                add(&p, INSN(BPF_LD | BPF_IMM | BPF_DW, 2, BPF_PSEUDO_MAP_VALUE, 0, pair_table()));
                add(&p, INSN(0, 0, 0, 0, 64));
                add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 2, 0, 0, 0));
                add(&p, INSN(BPF_LDX | mode | size, 0, 2, 8, 0));
                end(&p, 1);
                check("constant", &p, (uint64_t[]){at, 0}, 2, 16,
                      (uint64_t[]){table_bytes(64 + 8 + at, bytes, sign)}, 1);
        }
}

static void test_constants(void)
{
        for (unsigned n = 0; n < ARRAY_SIZE(sizes); n++)
                for (unsigned at = 0; at + 8 <= PAIR_TABLE_BYTES / 2; at += 8u) {
                        check_table(at + (8 - (1u << n)), 1u << n, sizes[n], false);
                        if (n < 3)
                                check_table(at, 1u << n, sizes[n], true);
                }
}

static void test_calls(void)
{
        struct program p = {};

        begin(&p);
        add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 77));
        for (uint8_t r = 6; r < 9; r++)
                add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, r, 0, 0, r));
        for (uint8_t r = 1; r < 6; r++)
                add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, r, 0, 0, 1 << r));
        add(&p, INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 11));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 1, 6, 0, 0));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 7, 0, 0));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 3, 8, 0, 0));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 4, 10, -16, 0));
        end(&p, 5); /* 7 instructions: the function is 11 after the call */
        /* the sum of the arguments, through the own stack and a function of its own */
        for (uint8_t r = 2; r < 6; r++)
                add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, r, 0, 0));
        add(&p, INSN(BPF_STX | BPF_MEM | BPF_DW, 10, 1, -16, 0));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 6, 0, 0, 1000));
        add(&p, INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 3));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -16, 0));
        add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 0));
        add(&p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 5));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 10, -16, 0));
        add(&p, INSN(BPF_ALU64 | BPF_MUL | BPF_X, 0, 0, 0, 0));
        add(&p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        check("calls", &p, (uint64_t[]){0}, 1, 16, (uint64_t[]){62 + 25, 6, 7, 8, 77}, 5);
}

/* A function reads and writes its caller's stack through an argument. */
static void test_stack_argument(void)
{
        struct program p = {};

        begin(&p);
        add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 40));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 1, 10, 0, 0));
        add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_K, 1, 0, 0, -16));
        add(&p, INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 5));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -16, 0));
        end(&p, 2);
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 0, 0));
        add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 1, 0, 0, 41));
        add(&p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        check("stack argument", &p, (uint64_t[]){0}, 1, 16, (uint64_t[]){40, 41}, 2);
}

/*
 * A function reads and writes its own stack where its frame is added to an index, not the other
 * way round. The kernel (6.18) takes the place for one in the caller's frame, and removes the
 * branches that what is there would not take; so there are none here.
 */
static void add_index_first(struct program *p, bool known)
{
        add(p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 11));
        add(p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 22));
        if (known)
                add(p, INSN(BPF_ALU64 | BPF_MOV | BPF_K, 1, 0, 0, 8));
        add(p, INSN(BPF_ALU64 | BPF_AND | BPF_K, 1, 0, 0, 8));
        add(p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, 10, 0, 0));
        add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, -16, 0));
        add(p, INSN(BPF_ST | BPF_MEM | BPF_DW, 1, 0, -16, 100));
        for (int16_t at = -16; at < 0; at += 8) {
                add(p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, at, 0));
                add(p, INSN(BPF_ALU64 | BPF_LSH | BPF_K, 0, 0, 0, 8));
                add(p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 0, 1, 0, 0));
        }
        add(p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

static void check_index_first(uint64_t index, bool known, uint64_t expected)
{
        struct program p = {};

        begin(&p);
        add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 33));
        add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -16, 44));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 9, 0, 0));
        add(&p, INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 7));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 10, -8, 0));
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 2, 10, -16, 0));
        end(&p, 3); /* 5 instructions: the function is 7 after the call */
        add_index_first(&p, known);
        check("index first", &p, &index, 1, 16, (uint64_t[]){expected, 33, 44}, 3);
}

static void test_index_first(void)
{
        check_index_first(0, false, 22 << 16 | 100 << 8 | 11);
        check_index_first(8, false, 11 << 16 | 22 << 8 | 100);
        check_index_first(0, true, 11 << 16 | 22 << 8 | 100);
}

/* A key may begin anywhere on the stack: it is 1, or reaches over a slot's end and is too large. */
static void test_key_anywhere(void)
{
        for (uint64_t at = 0; at < 8; at++) {
                struct program p = {};

                begin(&p);
                add_constant(&p, 0, UINT64_C(1) << 8 * at);
                add(&p, INSN(BPF_STX | BPF_MEM | BPF_DW, 10, 0, -32, 0));
                add(&p, INSN(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -24, 1));
                add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 0, 9, 0, 0));
                add(&p, INSN(BPF_ALU64 | BPF_AND | BPF_K, 0, 0, 0, 7));
                add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 2, 10, 0, 0));
                add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_K, 2, 0, 0, -32));
                add(&p, INSN(BPF_ALU64 | BPF_ADD | BPF_X, 2, 0, 0, 0));
                add(&p, INSN(BPF_LD | BPF_IMM | BPF_DW, 1, BPF_PSEUDO_MAP_FD, 0, map));
                add(&p, INSN(0, 0, 0, 0, 0));
                add(&p, INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem));
                add(&p, INSN(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 2, 0));
                add(&p, INSN(BPF_ALU64 | BPF_SUB | BPF_X, 0, 9, 0, 0));
                add(&p, INSN(BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 8));
                end(&p, 1);
                check("key anywhere", &p, (uint64_t[]){at}, 1, 16, (uint64_t[]){at < 5}, 1);
        }
}

/* The same function called twice in one program, one result feeding the other. */
static void test_function_called_twice(void)
{
        struct program p = {};

        begin(&p);
        add(&p, INSN(BPF_LDX | BPF_MEM | BPF_DW, 1, 9, 0, 0));
        add(&p, INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 5));
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 1, 0, 0, 0));
        add(&p, INSN(BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 3));
        end(&p, 1);
        add(&p, INSN(BPF_ALU64 | BPF_MOV | BPF_X, 0, 1, 0, 0));
        add(&p, INSN(BPF_JMP | BPF_JGT | BPF_K, 0, 0, 1, 50));
        add(&p, INSN(BPF_ALU64 | BPF_MUL | BPF_K, 0, 0, 0, 7));
        add(&p, INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        check("two calls", &p, (uint64_t[]){5}, 1, 16, (uint64_t[]){35 * 7}, 1);
        check("two calls", &p, (uint64_t[]){9}, 1, 16, (uint64_t[]){63}, 1);
}

int main(void)
{
        map = pair_open();
        TEST(test_arithmetic);
        TEST(test_negation);
        TEST(test_immediates);
        TEST(test_byte_order);
        TEST(test_comparisons);
        TEST(test_gotos);
        TEST(test_loops);
        TEST(test_loads);
        TEST(test_stores);
        TEST(test_atomics);
        TEST(test_constants);
        TEST(test_calls);
        TEST(test_stack_argument);
        TEST(test_function_called_twice);
        TEST(test_key_anywhere);
        TEST(test_index_first);
        printf("ok %u programs give what the standard says\n", checked);
        pair_close();
        return 0;
}
