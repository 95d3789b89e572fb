/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs of gpu/mem in a PTX text: each form of access in a kernel of its own, run
 * with and without the probes. What the kernel computes must stay the same, and the
 * programs must have seen the accesses that it makes by its text.
 */
#include <stdio.h>
#include <sys/wait.h>

#include "agent/ptx_inject.h"
#include "bpf/device_loops.h"
#include "bpf/device_mem.h"
#include "bpf/fragment_text.h"
#include "bpf/hash_memory.h"
#include "device/device_abi.h"
#include "ptx_interp.h"
#include "unit/test.h"

#define WORDS   4096
#define THREADS 80 /* warps of 32, 32 and 16 lanes */

static char programs[65536];
static _Alignas(256) struct mem_counts counts[MEM_ENTRIES];
static _Alignas(256) uint8_t table[4096];
static _Alignas(256) uint32_t data[WORDS], plain[WORDS];

enum mem_program { WARP, THREAD, VOTE, LOOP, HASH, STACK, LANES };

static const char *const program_names[] = {"mem_warp", "mem_thread", "mem_vote", "mem_loop",
                                            "mem_hash", "mem_stack",  "mem_lanes"};

/* What a thread that accesses memory has for an address. */
typedef uint64_t (*address_of)(unsigned thread);

static uint64_t at_data(uint64_t offset)
{
        return (uint64_t)(uintptr_t)data + offset;
}

static uint64_t words(unsigned t)
{
        return at_data(4 * t);
}

static uint64_t quads(unsigned t)
{
        return at_data(16 * t + 256);
}

static uint64_t before(unsigned t)
{
        return at_data(4 * t + 1024 - 8);
}

static uint64_t strided(unsigned t)
{
        return at_data(128 * t);
}

static uint64_t one(unsigned t)
{
        return at_data(4096 + 0 * t);
}

static uint64_t shared(unsigned t)
{
        return 4 * t + 64;
}

static uint64_t nothing(unsigned t)
{
        return 4 + 0 * t;
}

static bool all(unsigned t)
{
        return t < THREADS;
}

static bool odd(unsigned t)
{
        return t & 1;
}

static bool even(unsigned t)
{
        return !(t & 1);
}

static bool few(unsigned t)
{
        return t < 40;
}

/* Registers a kernel finds: %t its thread, %rd its word, %q its quad, %far its line; %s of shared.
 */
static const struct {
        const char *text;
        unsigned kind, space, size;
        address_of address;
        bool (*runs)(unsigned thread);
} forms[] = {
        {"ld.global.u32 %x, [%rd];", 1, 2, 4, words, all},
        {"ld.global.nc.v4.u32 {%x,%y,%z,%v}, [%q+256];", 1, 2, 16, quads, all},
        {"ld.volatile.global.u32 %x, [%rd + 1016];", 1, 2, 4, before, all},
        {"add.s64 %q, %rd, 1024; ld.global.u32 %x, [%q+-8];", 1, 2, 4, before, all},
        {"ld.relaxed.gpu.global.u32 %x, [%far];", 1, 2, 4, strided, all},
        {"ld.u32 %x, [%rd];", 1, 1, 4, words, all},
        {"@%odd ld.global.u32 %x, [%rd];", 1, 2, 4, words, odd},
        {"@!%odd st.global.u32 [%rd], %t;", 2, 2, 4, words, even},
        {"st.global.v2.b64 [%q+256], {%rd, %far};", 2, 2, 16, quads, all},
        {"st.global.u8 [%rd], %t;", 2, 2, 1, words, all},
        {"atom.add.u32 %x, [%rd], 5;", 3, 1, 4, words, all},
        {"atom.global.add.u32 %x, [%one], 1;", 3, 2, 4, one, all},
        {"@%odd red.global.add.u32 [%one], 1;", 3, 2, 4, one, odd},
        {"atom.global.cas.b32 %x, [%rd], 1, 2;", 3, 2, 4, words, all},
        {"setp.ge.u32 %odd, %t, 40; @%odd bra L; ld.global.u32 %x, [%rd]; L:", 1, 2, 4, words, few},
        {"{ .reg .b64 %w; mov.u64 %w, %rd; ld.global.u32 %x, [%w]; }", 1, 2, 4, words, all},
        {"{ .reg .b32 %rd; mov.u32 %rd, %s; st.shared.u32 [%rd+64], %t; }", 2, 3, 4, shared, all},
        {"st.shared.u32 [%s+64], %t;", 2, 3, 4, shared, all},
        {"st.shared.u32 [tile+4], %t;", 2, 3, 4, nothing, all},
        {"st.local.u32 [depot+4], %t;", 2, 4, 4, nothing, all},
};

/* What device_compile says of the object: "// NAME" and a fragment for each program. */
static void load_programs(const char *compiler, const char *object)
{
        char command[4096];
        FILE *pipe;
        int status;

        snprintf(command, sizeof(command), "'%s' '%s'", compiler, object);
        pipe = popen(command, "r");
        CHECK(pipe);
        programs[fread(programs, 1, sizeof(programs) - 1, pipe)] = '\0';
        status = pclose(pipe);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                test_skip("device programs cannot be loaded here");
        CHECK_EQ(status, 0);
}

static char *bound_fragment(const char *name)
{
        const struct fragment_map maps[] = {{"counts", (uint64_t)(uintptr_t)counts},
                                            {"table", (uint64_t)(uintptr_t)table}};
        char *text = fragment_text_find(programs, name, maps, 2);

        CHECK(text);
        return text;
}

/* A kernel that does one thing to memory, and writes down what it got. */
static char *make_kernel(const char *form)
{
        char *text;

        CHECK(asprintf(&text,
                       ".version 8.0\n.target sm_90\n.address_size 64\n"
                       ".visible .entry k(.param .u64 p) {\n"
                       ".reg .b64 %%rd, %%q, %%far, %%one, %%base, %%wide<3>;\n"
                       ".reg .b32 %%t, %%x, %%y, %%z, %%v, %%s; .reg .pred %%odd;\n"
                       ".local .align 8 .b8 depot[16];\n.shared .align 16 .b8 tile[1024];\n"
                       "ld.param.u64 %%base, [p]; mov.u32 %%t, %%tid.x;\n"
                       "and.b32 %%x, %%t, 1; setp.ne.u32 %%odd, %%x, 0; mov.u32 %%x, 7;\n"
                       "mul.wide.u32 %%wide0, %%t, 4; add.s64 %%rd, %%base, %%wide0;\n"
                       "mul.wide.u32 %%wide1, %%t, 16; add.s64 %%q, %%base, %%wide1;\n"
                       "mul.wide.u32 %%wide2, %%t, 128; add.s64 %%far, %%base, %%wide2;\n"
                       "add.s64 %%one, %%base, 4096; mul.lo.u32 %%s, %%t, 4;\n%s\n"
                       "st.u32 [%%rd+12288], %%x; ret;\n}\n",
                       form) > 0);
        return text;
}

static void run(const char *text)
{
        uint64_t parameter = (uint64_t)(uintptr_t)data;
        struct ptx_launch launch = {.grid = {1, 1, 1}, .block = {THREADS, 1, 1}, .gridid = 1};
        struct ptx_env env = {.sm_count = 132};
        struct ptx_machine *machine = ptx_machine_new();
        struct ptx_module *module;
        enum ptx_fault fault;
        char log[256] = "";

        for (unsigned i = 0; i < WORDS; i++)
                data[i] = 3 * i + 1;
        ptx_module_load(text, strlen(text), 0, log, sizeof(log), &module);
        CHECK_STR(log, "");
        CHECK_EQ(ptx_run(machine, ptx_module_entry(module, 0), &launch, &parameter, &env, &fault),
                 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        ptx_module_free(module);
        ptx_machine_free(machine);
}

/* Different pieces of 2^shift bytes among the lanes of the warp that starts at a thread. */
static unsigned count_pieces(size_t form, unsigned first, unsigned shift)
{
        unsigned n = 0;

        for (unsigned t = first; t < first + 32 && t < THREADS; t++) {
                bool seen = !forms[form].runs(t);

                for (unsigned u = first; u < t; u++)
                        seen |= forms[form].runs(u) &&
                                forms[form].address(u) >> shift == forms[form].address(t) >> shift;
                n += !seen;
        }
        return n;
}

static void expect(size_t form, struct mem_counts *c)
{
        *c = (struct mem_counts){0};
        for (unsigned t = 0; t < THREADS; t++) {
                if (t % 32 == 0) {
                        unsigned sectors = count_pieces(form, t, 5);

                        c->requests += sectors != 0;
                        c->sectors += sectors;
                        c->lines += count_pieces(form, t, 7);
                }
                if (!forms[form].runs(t))
                        continue;
                c->lanes++;
                c->accesses++;
                c->bytes += forms[form].size;
                c->sum += forms[form].address(t);
                c->mix += mem_mix(forms[form].address(t));
                c->odd += forms[form].address(t) >> 2 & 1;
                c->rounds += loop_go_round(forms[form].kind + forms[form].size);
                c->found += forms[form].kind == GPUOBS_ACCESS_LOAD     ? MEM_TABLE_LOAD
                            : forms[form].kind == GPUOBS_ACCESS_ATOMIC ? MEM_TABLE_ATOMIC
                                                                       : 1;
                c->digits += loop_weigh_digits(mem_digits(forms[form].kind, forms[form].size),
                                               MEM_DIGITS);
        }
        c->odd_sum = c->odd;
}

/* What of it a program leaves as it is. */
static void keep(enum mem_program program, struct mem_counts *c)
{
        if (program != WARP)
                c->requests = c->lanes = c->sectors = c->lines = 0;
        if (program != THREAD)
                c->accesses = c->bytes = c->sum = c->mix = 0;
        if (program != VOTE)
                c->odd = c->odd_sum = 0;
        if (program != LOOP)
                c->rounds = 0;
        if (program != HASH)
                c->found = 0;
        if (program != STACK)
                c->digits = 0;
}

static void fill_table(void)
{
        memset(table, 0, sizeof(table));
        hash_put(table, MEM_TABLE_KEYS, GPUOBS_ACCESS_LOAD, MEM_TABLE_LOAD);
        hash_put(table, MEM_TABLE_KEYS, GPUOBS_ACCESS_ATOMIC, MEM_TABLE_ATOMIC);
        for (unsigned i = 0; i < MEM_TABLE_LANES; i++)
                hash_put(table, MEM_TABLE_KEYS, MEM_TABLE_LANES + i, 0);
}

/* What is in the table: accesses of the form and of the result, if a program counts them. */
static void check_table(size_t form, enum mem_program program)
{
        uint64_t want[MEM_TABLE_LANES] = {0};

        for (unsigned t = 0; program == LANES && t < THREADS; t++)
                want[t % MEM_TABLE_LANES] += 1U + forms[form].runs(t);
        for (unsigned i = 0; i < MEM_TABLE_LANES; i++)
                CHECK_EQ(hash_get(table, MEM_TABLE_KEYS, MEM_TABLE_LANES + i), want[i]);
}

/* One form with one of the programs: the other's numbers stay 0. */
static void run_with(size_t form, enum mem_program program)
{
        char *fragment = bound_fragment(program_names[program]);
        const struct probe_program mem[] = {{.where = AGENT_PROGRAM_MEM, .text = fragment}};
        const struct ptx_probes probes = {.list = {.programs = mem, .count = 1}};
        char *text = make_kernel(forms[form].text);
        unsigned index = MEM_INDEX(forms[form].kind, forms[form].space);
        struct ptx_result *r = NULL;
        struct mem_counts want;

        run(text);
        memcpy(plain, data, sizeof(data));
        CHECK_EQ(ptx_inject(text, strlen(text), &probes, 5, &r, NULL), 0);
        CHECK_EQ(r->kernels[0].accesses, 2);
        CHECK_EQ(r->kernels[0].other_accesses, 0);
        CHECK(!r->kernels[0].outcomes[0].refusal);
        memset(counts, 0, sizeof(counts));
        fill_table();
        run(r->text);
        check_table(form, program);
        CHECK(memcmp(plain, data, sizeof(data)) == 0);
        expect(form, &want);
        keep(program, &want);
        CHECK_EQ(counts[index].requests, want.requests);
        CHECK_EQ(counts[index].lanes, want.lanes);
        CHECK_EQ(counts[index].sectors, want.sectors);
        CHECK_EQ(counts[index].lines, want.lines);
        CHECK_EQ(counts[index].accesses, want.accesses);
        CHECK_EQ(counts[index].bytes, want.bytes);
        CHECK_EQ(counts[index].sum, want.sum);
        CHECK_EQ(counts[index].mix, want.mix);
        CHECK_EQ(counts[index].odd, want.odd);
        CHECK_EQ(counts[index].odd_sum, want.odd_sum);
        CHECK_EQ(counts[index].rounds, want.rounds);
        CHECK_EQ(counts[index].found, want.found);
        CHECK_EQ(counts[index].digits, want.digits);
        memset(&counts[index], 0, sizeof(counts[index]));
        index = MEM_INDEX(GPUOBS_ACCESS_STORE, GPUOBS_SPACE_GENERIC); /* the result */
        CHECK_EQ(counts[index].lanes, program == WARP ? THREADS : 0);
        CHECK_EQ(counts[index].bytes, program == THREAD ? 4 * THREADS : 0);
        CHECK_EQ(counts[index].odd, program == VOTE ? THREADS / 2 : 0);
        CHECK_EQ(counts[index].found, program == HASH ? THREADS : 0);
        memset(&counts[index], 0, sizeof(counts[index]));
        for (size_t i = 0; i < MEM_ENTRIES; i++)
                CHECK(!counts[i].requests && !counts[i].accesses);
        ptx_result_free(r);
        free(text);
        free(fragment);
}

static void test_forms(void)
{
        for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
                printf("  %s\n", forms[i].text);
                for (enum mem_program p = WARP; p <= LANES; p++)
                        run_with(i, p);
        }
}

int main(int argc, char **argv)
{
        CHECK(argc == 3);
        load_programs(argv[1], argv[2]);
        CHECK(hash_bytes(MEM_TABLE_KEYS) <= sizeof(table));
        TEST(test_forms);
        return 0;
}
