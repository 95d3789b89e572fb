/* SPDX-License-Identifier: Apache-2.0 */
#include "bpf/random_program.h"
#include "unit/test.h"
#include "util/macro.h"

#define WORDS       PAIR_WORDS /* the upper half of an element receives registers */
#define NUMBERS     9          /* r0..r8 hold numbers */
#define SHARED      BPF_REG_9  /* the element; in functions a piece of the caller's stack */
#define STACK_SLOTS 8
#define CONTEXT_AT  (-8 * (STACK_SLOTS + 1)) /* where the program keeps its context */
#define COUNTER_AT  (-8 * (STACK_SLOTS + 2)) /* where loops count */
#define FUNCTIONS   3
#define PIECE_BYTES (8 * (STACK_SLOTS - 3)) /* of the caller's stack, which a function may use */
#define CALLS_MAX   16

/* Newer than some headers this is built with. */
#ifndef BPF_MEMSX
#define BPF_MEMSX 0x80
#endif

struct generator {
        uint64_t seed;
        int map;
        struct random_program *program;
        unsigned context_bytes;
        unsigned shared_bytes; /* behind r9 that may be read and written */
        unsigned function;     /* that is being written; 0 the program itself */
        size_t calls[CALLS_MAX];
        unsigned callees[CALLS_MAX];
        unsigned call_count;
};

static uint64_t pick(struct generator *g, uint64_t below)
{
        return test_random(&g->seed) % below;
}

static size_t here(const struct generator *g)
{
        return g->program->count;
}

static void add(struct generator *g, uint8_t code, uint8_t dst, uint8_t src, int16_t off,
                int32_t imm)
{
        CHECK(here(g) < RANDOM_INSNS_MAX);
        g->program->insns[g->program->count++] = (struct bpf_insn){
                .code = code, .dst_reg = dst & 15, .src_reg = src & 15, .off = off, .imm = imm};
}

/* Immediates that find edges. */
static int32_t pick_imm(struct generator *g)
{
        static const int32_t edges[] = {
                0,  1,     -1,     2,    7,   8, 31, 32, 63, 0x7fffffff, -0x7fffffff - 1,
                -2, 65535, 0x8000, 0xff, -256};

        if (pick(g, 2))
                return edges[pick(g, ARRAY_SIZE(edges))];
        return (int32_t)test_random(&g->seed);
}

static uint8_t pick_number(struct generator *g)
{
        return (uint8_t)pick(g, NUMBERS);
}

static uint8_t pick_class(struct generator *g)
{
        return pick(g, 2) ? BPF_ALU64 : BPF_ALU;
}

static uint8_t size_code(unsigned bytes)
{
        return bytes == 1 ? BPF_B : bytes == 2 ? BPF_H : bytes == 4 ? BPF_W : BPF_DW;
}

static bool is_shift(uint8_t op)
{
        return op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH;
}

static bool is_division(uint8_t op)
{
        return op == BPF_DIV || op == BPF_MOD;
}

static void add_alu(struct generator *g)
{
        static const uint8_t ops[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV,  BPF_MOD, BPF_AND, BPF_OR,
                                      BPF_XOR, BPF_LSH, BPF_RSH, BPF_ARSH, BPF_NEG, BPF_MOV};
        uint8_t op = ops[pick(g, sizeof(ops))], class = pick_class(g), dst = pick_number(g);
        int16_t off = is_division(op) && pick(g, 2) ? 1 : 0; /* signed */
        int32_t imm = pick_imm(g);

        if (op == BPF_NEG) {
                add(g, class | op, dst, 0, 0, 0);
                return;
        }
        if (pick(g, 2)) {
                add(g, class | op | BPF_X, dst, pick_number(g), off, 0);
                return;
        }
        if (is_shift(op))
                imm &= class == BPF_ALU64 ? 63 : 31;
        if (is_division(op) && imm == 0)
                imm = 3;
        add(g, class | op | BPF_K, dst, 0, off, imm);
}

/* Moves that extend a sign, and changes of byte order. */
static void add_conversion(struct generator *g)
{
        static const int32_t widths[] = {16, 32, 64};
        uint8_t class = pick_class(g);

        if (pick(g, 2))
                add(g, class | BPF_MOV | BPF_X, pick_number(g), pick_number(g),
                    (int16_t)(8 << pick(g, class == BPF_ALU64 ? 3 : 2)), 0);
        else
                add(g, class | BPF_END | (class == BPF_ALU && pick(g, 2) ? BPF_TO_BE : BPF_TO_LE),
                    pick_number(g), 0, 0, widths[pick(g, ARRAY_SIZE(widths))]);
}

static void add_wide(struct generator *g)
{
        add(g, BPF_LD | BPF_IMM | BPF_DW, pick_number(g), 0, 0, pick_imm(g));
        add(g, 0, 0, 0, 0, pick_imm(g));
}

/* A load or store of the stack or behind r9, naturally aligned. */
static void add_memory(struct generator *g)
{
        unsigned bytes = 1u << pick(g, 4);
        bool stack = pick(g, 2);
        uint8_t base = stack ? BPF_REG_10 : SHARED;
        unsigned span = stack ? 8 * STACK_SLOTS : g->shared_bytes;
        int16_t off = (int16_t)(pick(g, span / bytes) * bytes - (stack ? span : 0));

        switch (pick(g, 4)) {
        case 0:
                add(g, BPF_LDX | BPF_MEM | size_code(bytes), pick_number(g), base, off, 0);
                break;
        case 1:
                add(g, BPF_LDX | (bytes < 8 ? BPF_MEMSX : BPF_MEM) | size_code(bytes),
                    pick_number(g), base, off, 0);
                break;
        case 2:
                add(g, BPF_STX | BPF_MEM | size_code(bytes), base, pick_number(g), off, 0);
                break;
        case 3:
                add(g, BPF_ST | BPF_MEM | size_code(bytes), base, 0, off, pick_imm(g));
                break;
        }
}

/*
 * Operations that fetch are not tried on the stack (device_conformance_test does): the
 * kernel (6.18) does not know afterwards that the value comes from there, takes states
 * for equal that are not, and removes branches that it thinks are never taken.
 */
static void add_atomic(struct generator *g)
{
        static const int32_t ops[] = {BPF_ADD,
                                      BPF_AND,
                                      BPF_OR,
                                      BPF_XOR,
                                      BPF_ADD | BPF_FETCH,
                                      BPF_AND | BPF_FETCH,
                                      BPF_OR | BPF_FETCH,
                                      BPF_XOR | BPF_FETCH,
                                      BPF_XCHG,
                                      BPF_CMPXCHG};
        unsigned bytes = pick(g, 2) ? 8 : 4;
        /* The kernel allows none at an index of the stack, as a piece of the caller's may be. */
        bool stack = g->function || pick(g, 3) == 0;
        unsigned span = stack ? 8 * STACK_SLOTS : g->shared_bytes;
        int16_t off = (int16_t)(pick(g, span / bytes) * bytes - (stack ? span : 0));

        add(g, BPF_STX | BPF_ATOMIC | size_code(bytes), stack ? BPF_REG_10 : SHARED, pick_number(g),
            off, ops[pick(g, stack ? 4 : ARRAY_SIZE(ops))]);
}

static bool may_read(const struct generator *g, size_t off, size_t bytes)
{
        if (off + bytes <= g->context_bytes)
                return true;
        return g->context_bytes == RANDOM_CONTEXT_SIMULATED &&
               off >= offsetof(struct gpuobs_kernel_ctx, context);
}

static void add_context(struct generator *g)
{
        unsigned bytes = 1u << pick(g, 4);
        int16_t off;

        do
                off = (int16_t)(pick(g, sizeof(struct gpuobs_kernel_ctx) / bytes) * bytes);
        while (!may_read(g, (size_t)off, bytes));

        /* The context pointer was spilled: r1 holds a number by now. */
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_10, CONTEXT_AT, 0);
        add(g, BPF_LDX | BPF_MEM | size_code(bytes), BPF_REG_1, BPF_REG_1, off, 0);
}

/* A constant at a place that is not known, now and then at one that is. */
static void add_table(struct generator *g)
{
        unsigned bytes = 1u << pick(g, 4), span = PAIR_TABLE_BYTES >> pick(g, 3);
        uint8_t at = pick_number(g), index = (uint8_t)((at + 1 + pick(g, NUMBERS - 1)) % NUMBERS);
        int32_t first = (int32_t)(pick(g, (PAIR_TABLE_BYTES - span) / 8 + 1) * 8);

        add(g, BPF_LD | BPF_IMM | BPF_DW, at, BPF_PSEUDO_MAP_VALUE, 0, pair_table());
        add(g, 0, 0, 0, 0, first);
        if (pick(g, 4)) {
                add(g, BPF_ALU64 | BPF_AND | BPF_K, index, 0, 0, (int32_t)(span - bytes));
                add(g, BPF_ALU64 | BPF_ADD | BPF_X, at, index, 0, 0);
        }
        add(g, BPF_LDX | (bytes < 8 && pick(g, 2) ? BPF_MEMSX : BPF_MEM) | size_code(bytes), at, at,
            0, 0);
}

/* Calls leave nothing in r1..r5. */
static void add_arguments(struct generator *g)
{
        for (uint8_t r = BPF_REG_1; r <= BPF_REG_5; r++)
                add(g, BPF_ALU64 | BPF_MOV | BPF_K, r, 0, 0, pick_imm(g));
}

static void add_stack_address(struct generator *g, uint8_t reg, int32_t offset)
{
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, reg, BPF_REG_10, 0, 0);
        add(g, BPF_ALU64 | BPF_ADD | BPF_K, reg, 0, 0, offset);
}

/*
 * reg = an address of the stack and an index. In functions the address comes first: where a
 * number is given one, the kernel (6.18) takes it for one of the program's own frame, not of the
 * function's, and removes branches that what is there would not take.
 */
static void add_stack_place(struct generator *g, uint8_t reg, uint8_t index, uint8_t base)
{
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, reg, g->function ? base : index, 0, 0);
        add(g, BPF_ALU64 | BPF_ADD | BPF_X, reg, g->function ? index : base, 0, 0);
}

/* By the key that r2 points to. */
static void add_lookup_of_key(struct generator *g)
{
        add(g, BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, g->map);
        add(g, 0, 0, 0, 0, 0);
        add(g, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
}

static void add_lookup_call(struct generator *g)
{
        add_stack_address(g, BPF_REG_2, -4);
        add_lookup_of_key(g);
}

static void add_arguments(struct generator *g);

/* r0 = a word of the element that was looked up, or 0. */
static void add_found(struct generator *g)
{
        add(g, BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 1, 0);
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_0, (int16_t)(8 * pick(g, WORDS / 2)),
            0);
        add_arguments(g);
}

/* Look another element up by a key that may be out of bounds and read a word of it. */
static void add_lookup(struct generator *g)
{
        uint8_t key = (uint8_t)(BPF_REG_6 + pick(g, 3)); /* survives the call */

        if (pick(g, 2))
                add(g, BPF_ALU64 | BPF_AND | BPF_K, key, 0, 0, PAIR_ENTRIES - 1);
        add(g, BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, key, -4, 0);
        add_lookup_call(g);
        add_found(g);
}

/*
 * The same by a key that is somewhere on the stack; only where nobody can know the place it may be
 * unaligned: one that is known the compiler refuses.
 */
static void add_stack_key(struct generator *g)
{
        unsigned unit = g->function ? 4 : 1;
        uint8_t number = pick_number(g), index = number == BPF_REG_2 ? BPF_REG_0 : number;

        if (pick(g, 2))
                add(g, BPF_ST | BPF_MEM | BPF_W, BPF_REG_10, 0,
                    (int16_t)(-4 * (int)(1 + pick(g, 2 * STACK_SLOTS))),
                    (int32_t)pick(g, PAIR_ENTRIES));
        if (!g->function)
                add(g, BPF_LDX | BPF_MEM | BPF_DW, index, SHARED, (int16_t)(8 * pick(g, WORDS / 2)),
                    0);
        add(g, BPF_ALU64 | BPF_AND | BPF_K, index, 0, 0, (int32_t)(32 - unit));
        add_stack_place(g, BPF_REG_2, index, BPF_REG_10);
        add(g, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0,
            (int32_t)(pick(g, 29 / unit) * unit) - 8 * STACK_SLOTS);
        add_lookup_of_key(g);
        add_found(g);
}

/* Call a later function with a piece of the own stack, maybe at an index, and four numbers. */
static void add_call(struct generator *g)
{
        unsigned left = FUNCTIONS - g->function;

        if (!left || g->call_count == CALLS_MAX)
                return;
        if (pick(g, 2)) {
                uint8_t index = (uint8_t)(BPF_REG_6 + pick(g, 3));

                add(g, BPF_ALU64 | BPF_AND | BPF_K, index, 0, 0, 3 << 3);
                add_stack_place(g, BPF_REG_1, index, BPF_REG_10);
                add(g, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_1, 0, 0, -8 * STACK_SLOTS);
        } else {
                add_stack_address(g, BPF_REG_1, -8 * STACK_SLOTS);
        }
        g->callees[g->call_count] = g->function + 1 + (unsigned)pick(g, left);
        g->calls[g->call_count++] = here(g);
        add(g, BPF_JMP | BPF_CALL, 0, BPF_PSEUDO_CALL, 0, 0);
        add_arguments(g);
}

static void add_goto(struct generator *g)
{
        add(g, pick(g, 2) ? BPF_JMP | BPF_JA : BPF_JMP32 | BPF_JA, 0, 0, 0, 0);
}

/* Let the jump at `at` lead here. */
static void land(struct generator *g, size_t at)
{
        struct bpf_insn *insn = &g->program->insns[at];
        size_t distance = here(g) - at - 1;

        if (insn->code == (BPF_JMP32 | BPF_JA))
                insn->imm = (int32_t)distance;
        else
                insn->off = (int16_t)distance;
}

/* A branch over the next few simple instructions. */
static void add_branch(struct generator *g)
{
        static const uint8_t ops[] = {BPF_JEQ,  BPF_JNE,  BPF_JGT,  BPF_JGE,  BPF_JLT, BPF_JLE,
                                      BPF_JSGT, BPF_JSGE, BPF_JSLT, BPF_JSLE, BPF_JSET};
        uint8_t class = pick(g, 2) ? BPF_JMP : BPF_JMP32;
        uint8_t op = ops[pick(g, sizeof(ops))];
        size_t branch = here(g), over;

        if (pick(g, 2))
                add(g, class | op | BPF_X, pick_number(g), pick_number(g), 0, 0);
        else
                add(g, class | op | BPF_K, pick_number(g), 0, 0, pick_imm(g));
        for (uint64_t n = 1 + pick(g, 4); n; n--)
                pick(g, 3) ? add_alu(g) : add_memory(g);
        if (pick(g, 3)) {
                land(g, branch);
                return;
        }
        over = here(g);
        add_goto(g);
        land(g, branch);
        for (uint64_t n = 1 + pick(g, 3); n; n--)
                add_alu(g);
        land(g, over);
}

/* A loop that runs a few times; the counter is in a stack slot of its own. */
static void add_loop(struct generator *g)
{
        size_t top;

        add(g, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, COUNTER_AT, (int32_t)(2 + pick(g, 3)));
        top = here(g);
        for (uint64_t n = 1 + pick(g, 3); n; n--)
                pick(g, 3) ? add_alu(g) : add_memory(g);
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_5, BPF_REG_10, COUNTER_AT, 0);
        add(g, BPF_ALU64 | BPF_SUB | BPF_K, BPF_REG_5, 0, 0, 1);
        add(g, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_5, COUNTER_AT, 0);
        add(g, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_5, 0, (int16_t)(top - here(g) - 1), 0);
}

/*
 * An index below `count`, a power of two, as the compiler sees, or (hidden) as only the kernel's
 * verifier does.
 */
static void add_index(struct generator *g, uint8_t index, unsigned count, bool hidden)
{
        if (!hidden) {
                add(g, BPF_ALU64 | BPF_AND | BPF_K, index, 0, 0, (int32_t)count - 1);
                return;
        }
        add(g, BPF_JMP | BPF_JSLT | BPF_K, index, 0, 1, (int32_t)count);
        add(g, BPF_ALU64 | BPF_MOV | BPF_K, index, 0, 0, 0);
        add(g, BPF_JMP | BPF_JSGE | BPF_K, index, 0, 1, 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_K, index, 0, 0, 0);
}

/*
 * A piece of the stack, in functions also of the caller's, at an index that is not known: several
 * slots are looked at, or, where they are not known either, the stack is in memory. Only read
 * there: a store would make the compiler forget the addresses that are on the stack.
 */
static void add_indexed(struct generator *g)
{
        uint8_t index = pick_number(g), value = (uint8_t)((index + 1) % NUMBERS);
        uint8_t at = (uint8_t)((index + 2) % NUMBERS);
        unsigned shift = (unsigned)pick(g, 4), bytes = 1u << shift;
        bool hidden = pick(g, 8) == 0, shared = g->function && pick(g, 2);
        int16_t off = !shared && pick(g, 2) ? -8 * STACK_SLOTS : 0;

        add_index(g, index, (shared ? 32 : 8 * STACK_SLOTS) / bytes, hidden);
        add(g, BPF_ALU64 | BPF_LSH | BPF_K, index, 0, 0, (int32_t)shift);
        add_stack_place(g, at, index, shared ? SHARED : BPF_REG_10);
        if (!off && !shared)
                add(g, BPF_ALU64 | BPF_ADD | BPF_K, at, 0, 0, -8 * STACK_SLOTS);
        if (!hidden && pick(g, 2))
                add(g, BPF_STX | BPF_MEM | size_code(bytes), at, value, off, 0);
        else if (!hidden && pick(g, 2))
                add(g, BPF_ST | BPF_MEM | size_code(bytes), at, 0, off, pick_imm(g));
        add(g, BPF_LDX | (bytes < 8 && pick(g, 2) ? BPF_MEMSX : BPF_MEM) | size_code(bytes), at, at,
            off, 0);
}

/*
 * Read the stack with an address that goes on in each round of a loop; in functions, which keep no
 * addresses there, also write.
 */
static void add_walk(struct generator *g)
{
        uint8_t at = (uint8_t)(BPF_REG_6 + pick(g, 3)), value = pick_number(g);
        unsigned bytes = 1u << pick(g, 4), rounds = 2 + (unsigned)pick(g, 3);
        unsigned step = bytes * (1 + (unsigned)pick(g, 2));
        int32_t first = (int32_t)(pick(g, (8 * STACK_SLOTS - step * rounds) / bytes + 1) * bytes);
        size_t top;

        value = value == at ? BPF_REG_0 : value;
        add_stack_address(g, at, first - 8 * STACK_SLOTS);
        add(g, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, COUNTER_AT, (int32_t)rounds);
        top = here(g);
        if (g->function && pick(g, 2))
                add(g, BPF_STX | BPF_MEM | size_code(bytes), at, value, 0, 0);
        add(g, BPF_LDX | BPF_MEM | size_code(bytes), BPF_REG_5, at, 0, 0);
        add(g, pick_class(g) | BPF_XOR | BPF_X, value, BPF_REG_5, 0, 0);
        add(g, BPF_ALU64 | BPF_ADD | BPF_K, at, 0, 0, (int32_t)step);
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_5, BPF_REG_10, COUNTER_AT, 0);
        add(g, BPF_ALU64 | BPF_SUB | BPF_K, BPF_REG_5, 0, 0, 1);
        add(g, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_5, COUNTER_AT, 0);
        add(g, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_5, 0, (int16_t)(top - here(g) - 1), 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_K, at, 0, 0, pick_imm(g));
}

static void clear_stack(struct generator *g)
{
        for (int16_t slot = 1; slot <= STACK_SLOTS; slot++)
                add(g, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, -8 * slot, 0);
}

static void add_body(struct generator *g, size_t insns, bool indexed)
{
        size_t end = here(g) + insns;

        while (here(g) < end) {
                switch (pick(g, 20)) {
                case 0:
                case 1:
                        add_branch(g);
                        break;
                case 2:
                        add_loop(g);
                        break;
                case 3:
                case 4:
                case 5:
                        add_memory(g);
                        break;
                case 6:
                        add_atomic(g);
                        break;
                case 7:
                case 8:
                        add_conversion(g);
                        break;
                case 9:
                        add_wide(g);
                        break;
                case 10:
                        if (g->function == 0)
                                add_context(g);
                        break;
                case 11:
                        add_lookup(g);
                        break;
                case 12:
                        add_call(g);
                        break;
                case 13:
                        if (indexed)
                                pick(g, 3) ? add_indexed(g) : add_walk(g);
                        else if (pick(g, 2))
                                add_stack_key(g);
                        break;
                case 14:
                        add_table(g);
                        break;
                default:
                        add_alu(g);
                }
        }
}

static void add_prologue(struct generator *g)
{
        add(g, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_1, CONTEXT_AT, 0);
        clear_stack(g);
        add_lookup_call(g);
        add(g, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 1, 0);
        add(g, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, SHARED, BPF_REG_0, 0, 0);
        for (uint8_t r = 0; r < NUMBERS; r++)
                add(g, BPF_LDX | BPF_MEM | BPF_DW, r, SHARED, (int16_t)(8 * r), 0);
}

static void add_epilogue(struct generator *g)
{
        for (uint8_t r = 0; r < NUMBERS; r++)
                add(g, BPF_STX | BPF_MEM | BPF_DW, SHARED, r, (int16_t)(8 * (WORDS / 2 + r)), 0);
        for (int16_t slot = 1; slot <= WORDS / 2 - NUMBERS; slot++) {
                add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_10, -8 * slot, 0);
                add(g, BPF_STX | BPF_MEM | BPF_DW, SHARED, BPF_REG_0,
                    (int16_t)(8 * (WORDS / 2 + NUMBERS + slot - 1)), 0);
        }
        add(g, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0);
        add(g, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static bool is_called(const struct generator *g, unsigned function)
{
        for (unsigned c = 0; c < g->call_count; c++)
                if (g->callees[c] == function)
                        return true;
        return false;
}

/* r1 is a piece of the caller's stack, r2..r5 are numbers; all registers but r9 become numbers. */
static void add_function(struct generator *g, unsigned function)
{
        for (unsigned c = 0; c < g->call_count; c++)
                if (g->callees[c] == function)
                        g->program->insns[g->calls[c]].imm = (int32_t)(here(g) - g->calls[c] - 1);
        g->function = function;
        g->shared_bytes = PIECE_BYTES;
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, SHARED, BPF_REG_1, 0, 0);
        clear_stack(g);
        for (uint8_t r = BPF_REG_6; r < SHARED; r++)
                add(g, BPF_ALU64 | BPF_MOV | BPF_X, r, BPF_REG_2 + r % 4, 0, 0);
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_0, SHARED, 0, 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_1, BPF_REG_3, 0, 0);
        add_body(g, 8 + pick(g, 24), pick(g, 4) == 0);
        add(g, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

void random_program_make(uint64_t seed, int map, unsigned context_bytes,
                         struct random_program *ret_program)
{
        struct generator g = {.seed = seed,
                              .map = map,
                              .program = ret_program,
                              .context_bytes = context_bytes,
                              .shared_bytes = 8 * WORDS / 2};

        ret_program->count = 0;
        add_prologue(&g);
        add_body(&g, 20 + pick(&g, 100), pick(&g, 4) == 0);
        add_epilogue(&g);
        for (unsigned f = 1; f <= FUNCTIONS; f++)
                if (is_called(&g, f))
                        add_function(&g, f);
}

void random_input_make(uint64_t seed, struct pair_input *ret_input)
{
        struct generator g = {.seed = ~seed};

        for (unsigned e = 0; e < PAIR_ENTRIES; e++)
                for (unsigned i = 0; i < WORDS; i++)
                        ret_input->elements[e][i] = pick(&g, 3) ? test_random(&g.seed)
                                                                : (uint64_t)(int64_t)pick_imm(&g);
        ret_input->ctx = (struct gpuobs_kernel_ctx){
                .grid_x = 1 + (uint32_t)pick(&g, 3),
                .grid_y = 1 + (uint32_t)pick(&g, 2),
                .grid_z = 1 + (uint32_t)pick(&g, 2),
                .block_dim_x = 1 + (uint32_t)pick(&g, 40),
                .block_dim_y = 1 + (uint32_t)pick(&g, 3),
                .block_dim_z = 1 + (uint32_t)pick(&g, 3),
                .gridid = test_random(&g.seed) >> 16,
                .kernel_id = (uint32_t)test_random(&g.seed),
                .smid = (uint32_t)pick(&g, 100),
                .context = (uint32_t)test_random(&g.seed),
                .queue = (uint32_t)test_random(&g.seed),
        };
}

uint64_t random_output_hash(const struct pair_output *out)
{
        const uint8_t *bytes = (const uint8_t *)out;
        uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */

        for (size_t i = 0; i < sizeof(*out); i++)
                hash = (hash ^ bytes[i]) * 0x100000001b3;
        return hash ? hash : 1;
}
