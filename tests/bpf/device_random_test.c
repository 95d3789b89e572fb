/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random eBPF programs (random_program.h) give the same result in the kernel and
 * compiled to PTX (run by the interpreter): the whole map is compared. None executes
 * more instructions than the compiler says it can.
 *
 * DEVICE_RANDOM_PROGRAMS says how many (default 5000), DEVICE_RANDOM_SEED where to
 * start.
 */
#include <errno.h>
#include <unistd.h>

#include "bpf/device_pair.h"
#include "bpf/random_program.h"
#include "unit/test.h"
#include "util/macro.h"

/* A program the kernel does not want; only its being too complex is no fault of the generator. */
static void explain(const struct random_program *program, uint64_t seed)
{
        static char log[1 << 20];

        pair_load(program->insns, program->count, log, sizeof(log));
        fprintf(stderr, "seed %" PRIu64 ": %s\n", seed, log);
        exit(1);
}

static void report(const struct random_program *program, uint64_t seed, const char *text,
                   const struct pair_output *kernel, const struct pair_output *ptx)
{
        for (unsigned e = 0; e < PAIR_ENTRIES; e++)
                for (unsigned i = 0; i < PAIR_WORDS; i++)
                        if (kernel->elements[e][i] != ptx->elements[e][i])
                                fprintf(stderr,
                                        "seed %" PRIu64 ": word %u of element %u is 0x%" PRIx64
                                        " in the kernel, 0x%" PRIx64 " in PTX\n",
                                        seed, i, e, kernel->elements[e][i], ptx->elements[e][i]);
        pair_print(program->insns, program->count);
        fprintf(stderr, "%s\n", text);
        exit(1);
}

/* Instructions of the warps that only find out that they are not to run the program. */
static uint64_t others(const struct pair_input *in)
{
        uint64_t warps =
                (in->ctx.block_dim_x * in->ctx.block_dim_y * in->ctx.block_dim_z + 31) / 32;

        return 20 * warps * in->ctx.grid_x * in->ctx.grid_y * in->ctx.grid_z;
}

/* One program; false when it is too complex for the kernel. */
static bool run_one(uint64_t seed, int map)
{
        static struct random_program program;
        struct pair_output expected, got;
        struct device_cost cost;
        struct pair_known known;
        struct pair_input in;
        uint64_t executed;
        char *text;
        int fd;

        random_program_make(seed, map, RANDOM_CONTEXT_SIMULATED, &program);
        random_input_make(seed, &in);
        fd = pair_load(program.insns, program.count, NULL, 0);
        if (fd == -E2BIG)
                return false;
        if (fd < 0)
                explain(&program, seed);
        pair_run_kernel(fd, &in, &expected);
        known = pair_known(fd, program.insns, program.count);
        if (seed & 2)
                known.depth = 0;
        text = pair_compile(program.insns, program.count, seed & 1 ? DEVICE_ENTRY : DEVICE_EXIT,
                            &known, &cost);
        close(fd);
        executed = pair_run_ptx(text, &in, &got);
        if (memcmp(&expected, &got, sizeof(got)) != 0)
                report(&program, seed, text, &expected, &got);
        if (executed > cost.instructions + others(&in)) {
                fprintf(stderr,
                        "seed %" PRIu64 ": %" PRIu64 " instructions, not %" PRIu64 " at most\n%s\n",
                        seed, executed, cost.instructions, text);
                exit(1);
        }
        CHECK(cost.instructions > 0);
        free(text);
        return true;
}

/* Whether the kernel knows version 4 of the instruction set (6.6 on); Debian 12's does not. */
static bool knows_version_4(void)
{
        const struct bpf_insn insns[] = {
                {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
                {.code = BPF_ALU64 | BPF_MOV | BPF_X, .off = 8}, /* r0 = (s8)r0 */
                {.code = BPF_JMP | BPF_EXIT},
        };
        int fd = pair_load(insns, ARRAY_SIZE(insns), NULL, 0);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

int main(void)
{
        const char *count_text = getenv("DEVICE_RANDOM_PROGRAMS");
        const char *seed_text = getenv("DEVICE_RANDOM_SEED");
        uint64_t count = count_text ? strtoull(count_text, NULL, 0) : 5000;
        uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
        uint64_t ran = 0;
        int map = pair_open();

        if (!knows_version_4()) {
                printf("skipped: this kernel does not know eBPF instruction set version 4\n");
                return 77;
        }
        for (uint64_t i = 0; i < count; i++)
                ran += run_one(seed + i, map);
        printf("ok %" PRIu64 " of %" PRIu64 " random programs agree\n", ran, count);
        /* If the verifier gives up on many, the generator is wrong. */
        CHECK(ran >= count * 95 / 100);
        pair_close();
        return 0;
}
