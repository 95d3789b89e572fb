/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random eBPF programs give the same result in the kernel (BPF_PROG_TEST_RUN) and
 * compiled to PTX (run by the interpreter). A program loads numbers from a map
 * element, does random arithmetic, branches, stack, map and atomic operations on
 * them and stores all registers back; the whole element is compared.
 *
 * DEVICE_RANDOM_PROGRAMS says how many (default 1000), DEVICE_RANDOM_SEED where to
 * start.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

#include "bpf/device_tools.h"
#include "device/compile.h"
#include "device/device_abi.h"
#include "ptx_interp.h"
#include "unit/test.h"

#define WORDS       32 /* 8-byte words of the element; the upper half receives registers */
#define INSNS_MAX   256
#define NUMBERS     9 /* r0..r8 hold numbers, r9 the element */
#define ELEMENT     BPF_REG_9
#define STACK_SLOTS 8
#define ENTRIES     4

struct generator {
        uint64_t seed;
        struct bpf_insn insns[INSNS_MAX];
        size_t count;
};

static uint64_t pick(struct generator *g, uint64_t below)
{
        return test_random(&g->seed) % below;
}

static void add(struct generator *g, uint8_t code, uint8_t dst, uint8_t src, int16_t off,
                int32_t imm)
{
        CHECK(g->count < INSNS_MAX);
        g->insns[g->count++] = (struct bpf_insn){
                .code = code, .dst_reg = dst & 15, .src_reg = src & 15, .off = off, .imm = imm};
}

/* Immediates that find edges. */
static int32_t pick_imm(struct generator *g)
{
        static const int32_t edges[] = {
                0,  1,     -1,     2,    7,   8, 31, 32, 63, 0x7fffffff, -0x7fffffff - 1,
                -2, 65535, 0x8000, 0xff, -256};

        if (pick(g, 2))
                return edges[pick(g, sizeof(edges) / sizeof(edges[0]))];
        return (int32_t)test_random(&g->seed);
}

static uint8_t pick_number(struct generator *g)
{
        return (uint8_t)pick(g, NUMBERS);
}

static uint8_t size_code(unsigned bytes)
{
        return bytes == 1 ? BPF_B : bytes == 2 ? BPF_H : bytes == 4 ? BPF_W : BPF_DW;
}

static void add_alu(struct generator *g)
{
        static const uint8_t ops[] = {BPF_ADD, BPF_SUB, BPF_MUL, BPF_DIV,  BPF_MOD, BPF_AND, BPF_OR,
                                      BPF_XOR, BPF_LSH, BPF_RSH, BPF_ARSH, BPF_NEG, BPF_MOV};
        uint8_t op = ops[pick(g, sizeof(ops))];
        uint8_t class = pick(g, 2) ? BPF_ALU64 : BPF_ALU;
        uint8_t dst = pick_number(g);
        int32_t imm = pick_imm(g);

        if (op == BPF_NEG) {
                add(g, class | op, dst, 0, 0, 0);
                return;
        }
        if (pick(g, 2)) {
                add(g, class | op | BPF_X, dst, pick_number(g), 0, 0);
                return;
        }
        if (op == BPF_LSH || op == BPF_RSH || op == BPF_ARSH)
                imm &= class == BPF_ALU64 ? 63 : 31;
        if ((op == BPF_DIV || op == BPF_MOD) && imm == 0)
                imm = 3;
        add(g, class | op | BPF_K, dst, 0, 0, imm);
}

static void add_end(struct generator *g)
{
        static const int32_t widths[] = {16, 32, 64};

        add(g, BPF_ALU | BPF_END | (pick(g, 2) ? BPF_TO_BE : BPF_TO_LE), pick_number(g), 0, 0,
            widths[pick(g, 3)]);
}

static void add_wide(struct generator *g)
{
        uint8_t dst = pick_number(g);

        add(g, BPF_LD | BPF_IMM | BPF_DW, dst, 0, 0, pick_imm(g));
        add(g, 0, 0, 0, 0, pick_imm(g));
}

/* A load or store of the stack or the element, naturally aligned. */
static void add_memory(struct generator *g)
{
        unsigned bytes = 1u << pick(g, 4);
        bool stack = pick(g, 2);
        uint8_t base = stack ? BPF_REG_10 : ELEMENT;
        unsigned span = 8 * (stack ? STACK_SLOTS : WORDS / 2);
        int16_t off = (int16_t)(pick(g, span / bytes) * bytes - (stack ? span : 0));

        switch (pick(g, 3)) {
        case 0:
                add(g, BPF_LDX | BPF_MEM | size_code(bytes), pick_number(g), base, off, 0);
                break;
        case 1:
                add(g, BPF_STX | BPF_MEM | size_code(bytes), base, pick_number(g), off, 0);
                break;
        case 2:
                add(g, BPF_ST | BPF_MEM | size_code(bytes), base, 0, off, pick_imm(g));
                break;
        }
}

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
        int16_t off = (int16_t)(pick(g, 8 * WORDS / 2 / bytes) * bytes);

        add(g, BPF_STX | BPF_ATOMIC | size_code(bytes), ELEMENT, pick_number(g), off,
            ops[pick(g, sizeof(ops) / sizeof(ops[0]))]);
}

/* Fields of the context whose value the test knows: up to smid. */
static void add_context(struct generator *g)
{
        unsigned bytes = 1u << pick(g, 4);
        int16_t off = (int16_t)(pick(g, 64 / bytes) * bytes);

        /* The context pointer was spilled: r1 holds a number by now. */
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_1, BPF_REG_10, -8 * (STACK_SLOTS + 1), 0);
        add(g, BPF_LDX | BPF_MEM | size_code(bytes), BPF_REG_1, BPF_REG_1, off, 0);
}

/* Look another element up by a key that may be out of bounds and add a word of it. */
static void add_lookup(struct generator *g, int map)
{
        uint8_t key = (uint8_t)(BPF_REG_6 + pick(g, 3)); /* survives the call */
        bool masked = pick(g, 2);

        if (masked)
                add(g, BPF_ALU64 | BPF_AND | BPF_K, key, 0, 0, 3);
        add(g, BPF_STX | BPF_MEM | BPF_W, BPF_REG_10, key, -4, 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0);
        add(g, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4);
        add(g, BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map);
        add(g, 0, 0, 0, 0, 0);
        add(g, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
        add(g, BPF_JMP | BPF_JEQ | BPF_K, BPF_REG_0, 0, 1, 0);
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_0, (int16_t)(8 * pick(g, WORDS / 2)),
            0);
        for (uint8_t r = BPF_REG_1; r <= BPF_REG_5; r++)
                add(g, BPF_ALU64 | BPF_MOV | BPF_K, r, 0, 0, pick_imm(g));
}

/* A branch over the next few simple instructions. */
static void add_branch(struct generator *g)
{
        static const uint8_t ops[] = {BPF_JEQ,  BPF_JNE,  BPF_JGT,  BPF_JGE,  BPF_JLT, BPF_JLE,
                                      BPF_JSGT, BPF_JSGE, BPF_JSLT, BPF_JSLE, BPF_JSET};
        uint8_t class = pick(g, 2) ? BPF_JMP : BPF_JMP32;
        uint8_t op = ops[pick(g, sizeof(ops))];
        size_t branch = g->count;

        if (pick(g, 2))
                add(g, class | op | BPF_X, pick_number(g), pick_number(g), 0, 0);
        else
                add(g, class | op | BPF_K, pick_number(g), 0, 0, pick_imm(g));
        for (uint64_t n = 1 + pick(g, 4); n; n--)
                pick(g, 3) ? add_alu(g) : add_memory(g);
        if (pick(g, 3) == 0) {
                /* an else part */
                size_t over = g->count;

                add(g, BPF_JMP | BPF_JA, 0, 0, 0, 0);
                g->insns[branch].off = (int16_t)(g->count - branch - 1);
                for (uint64_t n = 1 + pick(g, 3); n; n--)
                        add_alu(g);
                g->insns[over].off = (int16_t)(g->count - over - 1);
        } else {
                g->insns[branch].off = (int16_t)(g->count - branch - 1);
        }
}

/* A loop that runs a few times; the counter is in a stack slot of its own. */
static void add_loop(struct generator *g)
{
        int16_t slot = -8 * (STACK_SLOTS + 2);
        size_t top;

        add(g, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, slot, (int32_t)(2 + pick(g, 3)));
        top = g->count;
        for (uint64_t n = 1 + pick(g, 3); n; n--)
                pick(g, 3) ? add_alu(g) : add_memory(g);
        add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_5, BPF_REG_10, slot, 0);
        add(g, BPF_ALU64 | BPF_SUB | BPF_K, BPF_REG_5, 0, 0, 1);
        add(g, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_5, slot, 0);
        add(g, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_5, 0, (int16_t)(top - g->count - 1), 0);
}

static void add_prologue(struct generator *g, int map)
{
        add(g, BPF_STX | BPF_MEM | BPF_DW, BPF_REG_10, BPF_REG_1, -8 * (STACK_SLOTS + 1), 0);
        for (int16_t slot = 1; slot <= STACK_SLOTS; slot++)
                add(g, BPF_ST | BPF_MEM | BPF_DW, BPF_REG_10, 0, -8 * slot, 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, BPF_REG_2, BPF_REG_10, 0, 0);
        add(g, BPF_ALU64 | BPF_ADD | BPF_K, BPF_REG_2, 0, 0, -4);
        add(g, BPF_LD | BPF_IMM | BPF_DW, BPF_REG_1, BPF_PSEUDO_MAP_FD, 0, map);
        add(g, 0, 0, 0, 0, 0);
        add(g, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_map_lookup_elem);
        add(g, BPF_JMP | BPF_JNE | BPF_K, BPF_REG_0, 0, 1, 0);
        add(g, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
        add(g, BPF_ALU64 | BPF_MOV | BPF_X, ELEMENT, BPF_REG_0, 0, 0);
        for (uint8_t r = 0; r < NUMBERS; r++)
                add(g, BPF_LDX | BPF_MEM | BPF_DW, r, ELEMENT, (int16_t)(8 * r), 0);
}

static void add_epilogue(struct generator *g)
{
        for (uint8_t r = 0; r < NUMBERS; r++)
                add(g, BPF_STX | BPF_MEM | BPF_DW, ELEMENT, r, (int16_t)(8 * (WORDS / 2 + r)), 0);
        for (int16_t slot = 1; slot <= WORDS / 2 - NUMBERS; slot++) {
                add(g, BPF_LDX | BPF_MEM | BPF_DW, BPF_REG_0, BPF_REG_10, -8 * slot, 0);
                add(g, BPF_STX | BPF_MEM | BPF_DW, ELEMENT, BPF_REG_0,
                    (int16_t)(8 * (WORDS / 2 + NUMBERS + slot - 1)), 0);
        }
        add(g, BPF_ALU64 | BPF_MOV | BPF_K, BPF_REG_0, 0, 0, 0);
        add(g, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void generate(struct generator *g, int map)
{
        size_t body;

        g->count = 0;
        add_prologue(g, map);
        body = g->count + 20 + pick(g, 100);
        while (g->count < body) {
                switch (pick(g, 16)) {
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
                        add_end(g);
                        break;
                case 8:
                        add_wide(g);
                        break;
                case 9:
                        add_context(g);
                        break;
                case 10:
                        add_lookup(g, map);
                        break;
                default:
                        add_alu(g);
                }
        }
        add_epilogue(g);
}

/* The world both sides see. */
struct input {
        uint64_t elements[ENTRIES][WORDS];
        struct gpuobs_kernel_ctx ctx;
};

static void make_input(struct generator *g, struct input *in)
{
        for (unsigned e = 0; e < ENTRIES; e++)
                for (unsigned i = 0; i < WORDS; i++)
                        in->elements[e][i] =
                                pick(g, 3) ? test_random(&g->seed) : (uint64_t)(int64_t)pick_imm(g);
        in->ctx = (struct gpuobs_kernel_ctx){
                .grid_x = 1 + (uint32_t)pick(g, 3),
                .grid_y = 1 + (uint32_t)pick(g, 2),
                .grid_z = 1 + (uint32_t)pick(g, 2),
                .block_dim_x = 1 + (uint32_t)pick(g, 40),
                .block_dim_y = 1 + (uint32_t)pick(g, 3),
                .block_dim_z = 1 + (uint32_t)pick(g, 3),
                .gridid = test_random(&g->seed) >> 16,
                .kernel_id = (uint32_t)test_random(&g->seed),
                .smid = (uint32_t)pick(g, 100),
        };
}

static int load(const struct generator *g)
{
        static char log[65536];
        LIBBPF_OPTS(bpf_prog_load_opts, opts, .log_buf = log, .log_size = sizeof(log),
                    .log_level = 1, .prog_flags = BPF_F_SLEEPABLE);
        int fd = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "device_random", "GPL", g->insns, g->count,
                               &opts);

        if (fd < 0 && errno != E2BIG && errno != ENOSPC)
                fprintf(stderr, "%s\n", log);
        return fd;
}

static void run_kernel(int program, int map, const struct input *in, uint64_t ret[ENTRIES][WORDS])
{
        struct gpuobs_kernel_ctx ctx = in->ctx;
        LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &ctx, .ctx_size_in = sizeof(ctx));

        for (uint32_t e = 0; e < ENTRIES; e++)
                CHECK_EQ(bpf_map_update_elem(map, &e, in->elements[e], BPF_ANY), 0);
        CHECK_EQ(bpf_prog_test_run_opts(program, &opts), 0);
        for (uint32_t e = 0; e < ENTRIES; e++)
                CHECK_EQ(bpf_map_lookup_elem(map, &e, ret[e]), 0);
}

static void fill_launch(const struct input *in, struct ptx_launch *ret)
{
        *ret = (struct ptx_launch){
                .grid = {in->ctx.grid_x, in->ctx.grid_y, in->ctx.grid_z},
                .block = {in->ctx.block_dim_x, in->ctx.block_dim_y, in->ctx.block_dim_z},
                .gridid = in->ctx.gridid,
                .first_sm = in->ctx.smid,
        };
}

static void run_ptx(struct ptx_machine *machine, const char *text, const struct input *in)
{
        struct ptx_env env = {.max_instructions = 10000000, .sm_count = 132};
        struct ptx_module *module;
        struct ptx_launch launch;
        enum ptx_fault fault;
        char log[512];

        if (ptx_module_load(text, strlen(text), 0, log, sizeof(log), &module)) {
                fprintf(stderr, "%s\n%s\n", log, text);
                exit(1);
        }
        fill_launch(in, &launch);
        CHECK_EQ(ptx_run(machine, ptx_module_entry(module, 0), &launch, NULL, &env, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        ptx_module_free(module);
}

static char *compile(struct generator *g, enum device_where where, const struct input *in,
                     const void *map_memory)
{
        struct device_map_info map = {.name = "numbers",
                                      .placement = GPUOBS_PLACE_DEVICE,
                                      .type = BPF_MAP_TYPE_ARRAY,
                                      .value_size = 8 * WORDS,
                                      .max_entries = ENTRIES,
                                      .bytes = 8 * WORDS * ENTRIES};
        uint64_t address = (uint64_t)(uintptr_t)map_memory;
        struct compile_job job = {.insns = g->insns,
                                  .count = g->count,
                                  .maps = &map,
                                  .map_count = 1,
                                  .where = where,
                                  .scope = DEVICE_SCOPE_GRID};
        struct refusal refusal;
        struct text text = {};
        char id[16], *kernel;

        for (size_t i = 0; i < g->count; i++)
                if (g->insns[i].code == (BPF_LD | BPF_IMM | BPF_DW) &&
                    g->insns[i].src_reg == BPF_PSEUDO_MAP_FD)
                        g->insns[i].imm = 0;
        if (device_compile(&job, &refusal, &text)) {
                fprintf(stderr, "refused at %zu: %s\n", refusal.insn, refusal.reason);
                exit(1);
        }
        snprintf(id, sizeof(id), "%u", in->ctx.kernel_id);
        kernel = device_make_kernel(text.data, "probe", id, &address, 1);
        text_done(&text);
        return kernel;
}

static void report(const struct generator *g, uint64_t seed, const char *text, unsigned e,
                   unsigned i, uint64_t kernel, uint64_t ptx)
{
        fprintf(stderr,
                "seed %" PRIu64 ": word %u of element %u is 0x%" PRIx64 " in the kernel, 0x%" PRIx64
                " in PTX\n",
                seed, i, e, kernel, ptx);
        for (size_t n = 0; n < g->count; n++)
                fprintf(stderr, "%3zu: %02x r%u r%u %+d %d\n", n, g->insns[n].code,
                        g->insns[n].dst_reg, g->insns[n].src_reg, g->insns[n].off, g->insns[n].imm);
        fprintf(stderr, "%s\n", text);
        exit(1);
}

/* One program; false when the kernel did not want it (too complex for it). */
static bool run_one(uint64_t seed, int map, struct ptx_machine *machine)
{
        static _Alignas(256) uint64_t memory[ENTRIES][WORDS];
        struct generator g = {.seed = seed};
        uint64_t expected[ENTRIES][WORDS];
        struct input in;
        char *text;
        int program;

        generate(&g, map);
        make_input(&g, &in);
        program = load(&g);
        if (program < 0)
                return false;
        run_kernel(program, map, &in, expected);
        close(program);
        text = compile(&g, seed & 1 ? DEVICE_ENTRY : DEVICE_EXIT, &in, memory);
        memcpy(memory, in.elements, sizeof(memory));
        run_ptx(machine, text, &in);
        for (unsigned e = 0; e < ENTRIES; e++)
                for (unsigned i = 0; i < WORDS; i++)
                        if (memory[e][i] != expected[e][i])
                                report(&g, seed, text, e, i, expected[e][i], memory[e][i]);
        free(text);
        return true;
}

int main(void)
{
        const char *count_text = getenv("DEVICE_RANDOM_PROGRAMS");
        const char *seed_text = getenv("DEVICE_RANDOM_SEED");
        uint64_t count = count_text ? strtoull(count_text, NULL, 0) : 1000;
        uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
        struct ptx_machine *machine = ptx_machine_new();
        uint64_t ran = 0;
        int map;

        CHECK(machine);
        map = bpf_map_create(BPF_MAP_TYPE_ARRAY, "numbers", 4, 8 * WORDS, ENTRIES, NULL);
        if (map < 0 && errno == EPERM)
                test_skip("loading eBPF needs root");
        CHECK(map >= 0);
        for (uint64_t i = 0; i < count; i++)
                ran += run_one(seed + i, map, machine);
        printf("ok %" PRIu64 " of %" PRIu64 " random programs agree\n", ran, count);
        /* The verifier may give up on a few; if it refuses many, the generator is wrong. */
        CHECK(ran >= count * 95 / 100);
        ptx_machine_free(machine);
        close(map);
        return 0;
}
