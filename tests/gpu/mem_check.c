/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs at accesses of memory, and such with loops, votes and indexed stacks at exits and
 * entries, on the device: kernels as machine code and as PTX, each run as it is and with a
 * program. What a kernel computes must be the same to the bit, and the program must have seen
 * just the accesses that the kernel makes (mem_model.c), or each of its threads once. Then
 * what accesses cost on a kernel that streams through memory.
 *
 *   mem_check FOLDER [--ptx-only]
 *     FOLDER      has mem_kernels.cubin, mem_kernels.ptx and device_mem.frag, which is what
 *                 device_compile prints of device_mem.bpf.o, device_loops.bpf.o, mem_cost.bpf.o
 *     --ptx-only  no machine code and no costs, few threads: for the simulated device
 *
 * One line per check, "ok" or "FAIL"; exit code 0 all right, 1 not, 77 no device.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "agent/ptx_inject.h"
#include "bpf/device_loops.h"
#include "bpf/fragment_text.h"
#include "bpf/hash_memory.h"
#include "mem_model.h"
#include "splice_device.h"

#define WORDS       (1u << 20) /* of the array that kernels read; they write at most as many */
#define ELEMENTS    (WORDS / 2 - 77)
#define FEW         5003 /* of them, where a processor does the work of the device */
#define TABLE_KEYS  (LOOP_KEYS > MEM_TABLE_KEYS ? LOOP_KEYS : MEM_TABLE_KEYS) /* at most */
#define COST_BYTES  (16ULL * DEVICE_SMS_MAX * DEVICE_WARPS_MAX)
#define STREAM      (64u << 20) /* elements */
#define STREAM_RUNS 15
#define MOST_COST   3.5 /* of a program per warp in machine code */

enum form { AS_IT_IS, MACHINE_CODE, PTX };
static const char *const form_names[] = {"as it is", "machine code", "PTX"};

static char *cubin, *ptx, *fragments;
static size_t cubin_bytes, ptx_bytes;
static device_address in, out, map, table;
static uint32_t *in_words, *plain, *got;
static uint8_t *table_bytes;
static uint32_t elements = ELEMENTS;
static bool only_ptx;
static unsigned failures;

static void report(bool right, const char *kernel, enum form form, const char *program,
                   const char *what)
{
        printf("%s %s, %s, %s%s%s\n", right ? "ok" : "FAIL", kernel, form_names[form], program,
               what ? ": " : "", what ? what : "");
        failures += !right;
}

static char *read_data(const char *folder, const char *name, size_t *ret_bytes)
{
        char path[4096];

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        return splice_read_file(path, ret_bytes);
}

static void *allocate(size_t bytes)
{
        void *p = calloc(1, bytes);

        if (!p)
                splice_die("calloc", "out of memory");
        return p;
}

/* The program that is being checked. */
struct checked {
        const char *name;
        uint32_t where;
        /* Whether what it counted is right; else a line says what is wrong. */
        bool (*counted)(const struct model_kernel *k);
        const char *before; /* another one, at the same place; NULL none */
};

/* As it is put into PTX, with the addresses of its maps. */
static char *find_fragment(const char *name)
{
        const struct fragment_map maps[] = {{"counts", map}, {"cost", map}, {"table", table}};
        char *text = fragment_text_find(fragments, name, maps, sizeof(maps) / sizeof(maps[0]));

        if (!text)
                splice_die(name, "no such program, or it cannot be bound");
        return text;
}

/* The program, behind the other one where there is one. */
struct chain {
        struct probe_program programs[2];
        size_t count;
};

static void add_program(struct chain *c, enum form form, uint32_t where, const char *name)
{
        const struct probe_memory none = {0};
        struct probe_program *to = &c->programs[c->count++];

        *to = (struct probe_program){.where = where, .label = name, .text = find_fragment(name)};
        if (form == MACHINE_CODE)
                to->code = splice_build_probe(&none, name, to->text, NULL, NULL);
}

static struct chain make_chain(enum form form, const struct checked *p)
{
        struct chain c = {.count = 0};

        if (p->before)
                add_program(&c, form, p->where, p->before);
        add_program(&c, form, p->where, p->name);
        return c;
}

static void free_chain(struct chain *c)
{
        for (size_t k = 0; k < c->count; k++) {
                free((char *)(uintptr_t)c->programs[k].text);
                probe_code_free((struct probe_code *)(uintptr_t)c->programs[k].code);
        }
}

static void report_kernel(enum form form, const struct checked *p, const char *kernel,
                          const struct probe_outcome *outcomes, size_t count,
                          uint32_t other_accesses)
{
        for (size_t k = 0; k < count; k++)
                report(outcomes[k].in && (p->where != AGENT_PROGRAM_MEM || !other_accesses), kernel,
                       form, p->name, outcomes[k].refusal);
}

/* The module's kernels with the programs in them. */
static void *load_spliced(const struct checked *p, const struct chain *c)
{
        const struct probe_list list = {.programs = c->programs, .count = c->count};
        struct splice_result *r = NULL;
        const char *why = "out of memory";
        void *module;

        if (splice_image(cubin, cubin_bytes, &list, 1, &r, &why) < 0)
                splice_die(p->name, why);
        for (size_t k = 0; k < r->kernel_count; k++)
                report_kernel(MACHINE_CODE, p, r->kernels[k].name, r->kernels[k].outcomes, c->count,
                              r->kernels[k].other_accesses);
        splice_must(cuModuleLoadData(&module, r->image), p->name);
        splice_result_free(r);
        return module;
}

static void *load_injected(const struct checked *p, const struct chain *c)
{
        const struct ptx_probes probes = {.list = {.programs = c->programs, .count = c->count}};
        struct ptx_result *r = NULL;
        const char *why = "out of memory";
        void *module;

        if (ptx_inject(ptx, ptx_bytes, &probes, 1, &r, &why) < 0)
                splice_die(p->name, why);
        for (size_t k = 0; k < r->kernel_count; k++)
                report_kernel(PTX, p, r->kernels[k].name, r->kernels[k].outcomes, c->count,
                              r->kernels[k].other_accesses);
        splice_must(cuModuleLoadData(&module, r->text), p->name);
        ptx_result_free(r);
        return module;
}

/* The module's kernels as they are. */
static void *load_original(void)
{
        void *module;

        splice_must(cuModuleLoadData(&module, only_ptx ? ptx : cubin), "the kernels");
        return module;
}

static void *load(enum form form, const struct checked *p)
{
        struct chain c = {.count = 0};
        void *module;

        if (form == AS_IT_IS)
                return load_original();
        c = make_chain(form, p);
        module = form == MACHINE_CODE ? load_spliced(p, &c) : load_injected(p, &c);
        free_chain(&c);
        return module;
}

static void launch(void *module, const char *name, device_address from, device_address to,
                   uint32_t n)
{
        unsigned blocks = (n + MODEL_THREADS - 1) / MODEL_THREADS;
        void *function, *parameters[] = {&from, &to, &n};

        splice_must(cuModuleGetFunction(&function, module, name), name);
        splice_must(cuLaunchKernel(function, blocks, 1, 1, MODEL_THREADS, 1, 1, 0, NULL, parameters,
                                   NULL),
                    name);
}

/* The table of programs at accesses is filled in; those at exits fill in theirs. */
static void reset_table(const struct checked *p)
{
        memset(table_bytes, 0, hash_bytes(TABLE_KEYS));
        if (p && p->where == AGENT_PROGRAM_MEM) {
                hash_put(table_bytes, MEM_TABLE_KEYS, GPUOBS_ACCESS_LOAD, MEM_TABLE_LOAD);
                hash_put(table_bytes, MEM_TABLE_KEYS, GPUOBS_ACCESS_ATOMIC, MEM_TABLE_ATOMIC);
                for (uint32_t i = 0; i < MEM_TABLE_LANES; i++)
                        hash_put(table_bytes, MEM_TABLE_KEYS, MEM_TABLE_LANES + i, 0);
        }
        splice_must(cuMemcpyHtoD_v2(table, table_bytes, hash_bytes(TABLE_KEYS)), "cuMemcpyHtoD");
}

/* One run, from the same start. */
static void run(void *module, const struct checked *p, const char *name, uint32_t *ret_words)
{
        reset_table(p);
        splice_must(cuMemsetD32_v2(out, 0, WORDS), "cuMemsetD32");
        splice_must(cuMemsetD32_v2(map, 0, COST_BYTES / 4), "cuMemsetD32");
        launch(module, name, in, out, elements);
        splice_must(cuCtxSynchronize(), name);
        splice_must(cuMemcpyDtoH_v2(ret_words, out, 4ULL * WORDS), "cuMemcpyDtoH");
}

/* Where shared and local memory begin is the device's affair: the same distance for all. */
static bool same_addresses(const struct mem_counts *c, const struct mem_counts *want,
                           uint32_t space)
{
        if (space != GPUOBS_SPACE_SHARED && space != GPUOBS_SPACE_LOCAL)
                return c->sum == want->sum && c->mix == want->mix;
        return !want->accesses || (c->sum - want->sum) % want->accesses == 0;
}

static bool same_threads(const struct mem_counts *c, const struct mem_counts *want, uint32_t space)
{
        return c->accesses == want->accesses && c->bytes == want->bytes &&
               same_addresses(c, want, space);
}

static bool same_warps(const struct mem_counts *c, const struct mem_counts *want, uint32_t space)
{
        return c->requests == want->requests && c->lanes == want->lanes &&
               (space == GPUOBS_SPACE_LOCAL ||
                (c->sectors == want->sectors && c->lines == want->lines));
}

/* Local and shared memory begin where it is a multiple of 8. */
static bool same_votes(const struct mem_counts *c, const struct mem_counts *want, uint32_t space)
{
        (void)space;
        return c->odd == want->odd && c->odd_sum == want->odd_sum;
}

static bool same_rounds(const struct mem_counts *c, const struct mem_counts *want, uint32_t space)
{
        (void)space;
        return c->rounds == want->rounds;
}

static bool same_found(const struct mem_counts *c, const struct mem_counts *want, uint32_t space)
{
        (void)space;
        return c->found == want->found;
}

static bool same_digits(const struct mem_counts *c, const struct mem_counts *want, uint32_t space)
{
        (void)space;
        return c->digits == want->digits;
}

static void describe(const struct mem_counts *c, char *text, size_t size)
{
        snprintf(text, size,
                 "%llu requests of %llu lanes, %llu sectors, %llu lines; %llu accesses of %llu "
                 "bytes, addresses 0x%llx, 0x%llx; %llu odd, %llu, rounds %llu, found %llu, digits "
                 "%llu",
                 c->requests, c->lanes, c->sectors, c->lines, c->accesses, c->bytes, c->sum, c->mix,
                 c->odd, c->odd_sum, c->rounds, c->found, c->digits);
}

/* Print kinds and spaces that were counted wrong. */
static bool compare_counts(const struct mem_counts *c, const struct mem_counts *want,
                           bool same(const struct mem_counts *c, const struct mem_counts *want,
                                     uint32_t space))
{
        bool right = true;

        for (uint32_t i = 0; i < MEM_ENTRIES; i++) {
                uint32_t space = i >> 2;
                char text[400], wanted[400];

                if (same(&c[i], &want[i], space))
                        continue;
                describe(&c[i], text, sizeof(text));
                describe(&want[i], wanted, sizeof(wanted));
                printf("  kind %u space %u: %s, not %s\n", i & 3, space, text, wanted);
                right = false;
        }
        return right;
}

static struct model_run model_run(void)
{
        return (struct model_run){.in = in,
                                  .out = out,
                                  .in_words = in_words,
                                  .n = elements,
                                  .blocks = (elements + MODEL_THREADS - 1) / MODEL_THREADS};
}

static bool right_accesses(const struct model_kernel *k,
                           bool same(const struct mem_counts *c, const struct mem_counts *want,
                                     uint32_t space))
{
        struct mem_counts counts[MEM_ENTRIES], want[MEM_ENTRIES] = {{0}};
        const struct model_run r = model_run();

        splice_must(cuMemcpyDtoH_v2(counts, map, sizeof(counts)), "cuMemcpyDtoH");
        k->tell(&r, want);
        return compare_counts(counts, want, same);
}

static bool warps_right(const struct model_kernel *k)
{
        return right_accesses(k, same_warps);
}

static bool threads_right(const struct model_kernel *k)
{
        return right_accesses(k, same_threads);
}

static bool votes_right(const struct model_kernel *k)
{
        return right_accesses(k, same_votes);
}

static bool rounds_right(const struct model_kernel *k)
{
        return right_accesses(k, same_rounds);
}

static bool found_right(const struct model_kernel *k)
{
        return right_accesses(k, same_found);
}

static bool digits_right(const struct model_kernel *k)
{
        return right_accesses(k, same_digits);
}

static bool is_per_thread(unsigned program)
{
        return program == LOOP_THREAD || program == LOOP_ENTRY_STACK || program == LOOP_EXIT_STACK;
}

/* Each access is counted under the number of its lane. */
static bool lanes_right(const struct model_kernel *k)
{
        struct mem_counts want[MEM_ENTRIES] = {{0}};
        const struct model_run r = model_run();
        uint64_t counted = 0, accesses = 0;

        splice_must(cuMemcpyDtoH_v2(table_bytes, table, hash_bytes(MEM_TABLE_KEYS)),
                    "cuMemcpyDtoH");
        k->tell(&r, want);
        for (uint32_t i = 0; i < MEM_ENTRIES; i++)
                accesses += want[i].accesses;
        for (uint32_t i = 0; i < MEM_TABLE_LANES; i++)
                counted += hash_get(table_bytes, MEM_TABLE_KEYS, MEM_TABLE_LANES + i);
        if (counted != accesses)
                printf("  %" PRIu64 " accesses are counted, not %" PRIu64 "\n", counted, accesses);
        return counted == accesses;
}

static bool lanes_and_votes_right(const struct model_kernel *k)
{
        return lanes_right(k) && votes_right(k);
}

/* Runs of a program per warp: at least one for each, at most one for each thread. */
static bool right_threads(unsigned program, uint64_t sum)
{
        uint64_t threads = (uint64_t)model_run().blocks * MODEL_THREADS;
        uint64_t least = is_per_thread(program) ? threads : threads / 32;
        struct loop_counts c[LOOP_ENTRIES];
        bool right;

        splice_must(cuMemcpyDtoH_v2(c, map, sizeof(c)), "cuMemcpyDtoH");
        right = c[program].sum == sum && c[program].runs >= least && c[program].runs <= threads;
        if (!right)
                printf("  %llu runs, the sum is 0x%llx, not 0x%" PRIx64 "\n", c[program].runs,
                       c[program].sum, sum);
        return right;
}

static bool exit_loop_right(const struct model_kernel *k)
{
        uint64_t sum = 0;

        (void)k;
        for (uint32_t b = 0; b < model_run().blocks; b++)
                sum += (uint64_t)MODEL_THREADS * loop_go_round(b);
        return right_threads(LOOP_WARP, sum);
}

static bool exit_thread_right(const struct model_kernel *k)
{
        uint64_t sum = 0;

        (void)k;
        for (uint32_t t = 0; t < MODEL_THREADS; t++)
                sum += (uint64_t)model_run().blocks * loop_go_round(t);
        return right_threads(LOOP_THREAD, sum);
}

static bool exit_divide_right(const struct model_kernel *k)
{
        uint64_t sum = 0;

        (void)k;
        for (uint32_t b = 0; b < model_run().blocks; b++)
                sum += MODEL_THREADS * (LOOP_NUMBER / (b + LOOP_DIVISOR));
        return right_threads(LOOP_DIVIDE, sum);
}

static bool exit_vote_right(const struct model_kernel *k)
{
        uint64_t sum = (uint64_t)MODEL_THREADS / 2 << 40;

        (void)k;
        for (uint32_t t = 0; t < MODEL_THREADS; t++)
                sum += t & 1 ? loop_go_round(t) & 0xffff : t % 32;
        return right_threads(LOOP_VOTE, sum * model_run().blocks);
}

static bool exit_hash_right(const struct model_kernel *k)
{
        uint64_t wrong = 0;

        (void)k;
        splice_must(cuMemcpyDtoH_v2(table_bytes, table, hash_bytes(LOOP_KEYS)), "cuMemcpyDtoH");
        for (uint32_t t = 0; t < MODEL_THREADS; t++)
                wrong += hash_get(table_bytes, LOOP_KEYS, t) != model_run().blocks;
        if (wrong)
                printf("  %" PRIu64 " of %d keys are counted wrong\n", wrong, MODEL_THREADS);
        return !wrong;
}

static bool right_stack(unsigned program)
{
        uint64_t sum = 0;

        for (uint32_t b = 0; b < model_run().blocks; b++)
                for (uint32_t t = 0; t < MODEL_THREADS; t++)
                        sum += loop_weigh_thread(b, t);
        return right_threads(program, sum);
}

static bool entry_stack_right(const struct model_kernel *k)
{
        (void)k;
        return right_stack(LOOP_ENTRY_STACK);
}

static bool exit_stack_right(const struct model_kernel *k)
{
        (void)k;
        return right_stack(LOOP_EXIT_STACK);
}

static bool exit_both_right(const struct model_kernel *k)
{
        return exit_hash_right(k) && exit_vote_right(k);
}

static const struct checked programs[] = {
        {"mem_warp", AGENT_PROGRAM_MEM, warps_right, NULL},
        {"mem_thread", AGENT_PROGRAM_MEM, threads_right, NULL},
        {"mem_vote", AGENT_PROGRAM_MEM, votes_right, NULL},
        {"mem_loop", AGENT_PROGRAM_MEM, rounds_right, NULL},
        {"mem_hash", AGENT_PROGRAM_MEM, found_right, NULL},
        {"mem_stack", AGENT_PROGRAM_MEM, digits_right, NULL},
        {"mem_lanes", AGENT_PROGRAM_MEM, lanes_right, NULL},
        {"mem_vote", AGENT_PROGRAM_MEM, votes_right, "mem_hash"},
        {"mem_vote", AGENT_PROGRAM_MEM, lanes_and_votes_right, "mem_lanes"},
        {"exit_loop", AGENT_PROGRAM_EXIT, exit_loop_right, NULL},
        {"exit_loop_thread", AGENT_PROGRAM_EXIT, exit_thread_right, NULL},
        {"exit_divide", AGENT_PROGRAM_EXIT, exit_divide_right, NULL},
        {"exit_hash", AGENT_PROGRAM_EXIT, exit_hash_right, NULL},
        {"exit_vote", AGENT_PROGRAM_EXIT, exit_vote_right, NULL},
        {"entry_stack", AGENT_PROGRAM_ENTRY, entry_stack_right, NULL},
        {"exit_stack", AGENT_PROGRAM_EXIT, exit_stack_right, NULL},
        {"exit_vote", AGENT_PROGRAM_EXIT, exit_both_right, "exit_hash"},
};

/* No model knows what the compiler makes of these; but each number is drawn once. */
static void check_tickets(void *original, void *module, enum form form, const struct checked *p,
                          const char *name)
{
        run(original, NULL, name, plain);
        run(module, p, name, got);
        report(memcmp(plain, got, 4ULL * WORDS) == 0, name, form, p->name, "the same result");
}

static void check_program(enum form form, const struct checked *p)
{
        void *original = load_original(), *module = load(form, p);

        for (unsigned k = 0; k < model_kernel_count; k++) {
                const char *name = model_kernels[k].name;

                run(original, NULL, name, plain);
                run(module, p, name, got);
                report(memcmp(plain, got, 4ULL * WORDS) == 0, name, form, p->name,
                       "the same result");
                report(p->counted(&model_kernels[k]), name, form, p->name, "what it counted");
        }
        check_tickets(original, module, form, p, "tickets");
        check_tickets(original, module, form, p, "tickets_and_turns");
        splice_must(cuModuleUnload(module), "cuModuleUnload");
        splice_must(cuModuleUnload(original), "cuModuleUnload");
}

static int compare_times(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;

        return (x > y) - (x < y);
}

/* Median of some runs, in microseconds. */
static double time_stream(void *module, const char *name, device_address from, device_address to,
                          uint32_t n)
{
        float times[STREAM_RUNS];
        void *begin, *end;

        splice_must(cuEventCreate(&begin, 0), "cuEventCreate");
        splice_must(cuEventCreate(&end, 0), "cuEventCreate");
        launch(module, name, from, to, n);
        for (unsigned i = 0; i < STREAM_RUNS; i++) {
                splice_must(cuEventRecord(begin, NULL), "cuEventRecord");
                launch(module, name, from, to, n);
                splice_must(cuEventRecord(end, NULL), "cuEventRecord");
                splice_must(cuEventSynchronize(end), name);
                splice_must(cuEventElapsedTime(&times[i], begin, end), "cuEventElapsedTime");
        }
        qsort(times, STREAM_RUNS, sizeof(times[0]), compare_times);
        return times[STREAM_RUNS / 2] * 1e3;
}

static void check_cost(const char *kernel, const char *program, double most)
{
        const struct checked p = {.name = program, .where = AGENT_PROGRAM_MEM};
        device_address from, to;
        double us[3];

        splice_must(cuMemAlloc_v2(&from, 8ULL * STREAM), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&to, 4ULL * STREAM), "cuMemAlloc");
        splice_must(cuMemsetD32_v2(from, 1, 2ULL * STREAM), "cuMemsetD32");
        for (enum form form = AS_IT_IS; form <= PTX; form++) {
                void *module = load(form, &p);

                us[form] = time_stream(module, kernel, from, to, STREAM);
                splice_must(cuModuleUnload(module), "cuModuleUnload");
        }
        printf("cost of %s on %s: %.1f us, machine code %.1f us (x%.2f), PTX %.1f us (x%.2f)\n",
               program, kernel, us[AS_IT_IS], us[MACHINE_CODE], us[MACHINE_CODE] / us[AS_IT_IS],
               us[PTX], us[PTX] / us[AS_IT_IS]);
        report(us[MACHINE_CODE] <= most * us[AS_IT_IS], kernel, MACHINE_CODE, program,
               "within its cost");
        splice_must(cuMemFree_v2(from), "cuMemFree");
        splice_must(cuMemFree_v2(to), "cuMemFree");
}

static void prepare(const char *folder)
{
        size_t bytes;

        cubin = read_data(folder, "mem_kernels.cubin", &cubin_bytes);
        ptx = read_data(folder, "mem_kernels.ptx", &ptx_bytes);
        fragments = read_data(folder, "device_mem.frag", &bytes);
        in_words = allocate(4ULL * WORDS);
        plain = allocate(4ULL * WORDS);
        got = allocate(4ULL * WORDS);
        for (uint32_t i = 0; i < WORDS; i++)
                in_words[i] = i * 2654435761u ^ i >> 5;
        splice_must(cuMemAlloc_v2(&in, 4ULL * WORDS), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&out, 4ULL * WORDS), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&map, COST_BYTES), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&table, hash_bytes(TABLE_KEYS)), "cuMemAlloc");
        table_bytes = allocate(hash_bytes(TABLE_KEYS));
        splice_must(cuMemcpyHtoD_v2(in, in_words, 4ULL * WORDS), "cuMemcpyHtoD");
}

int main(int argc, char **argv)
{
        if (argc == 3 && !strcmp(argv[2], "--ptx-only")) {
                only_ptx = true;
                elements = FEW;
        } else if (argc != 2) {
                fprintf(stderr, "usage: mem_check FOLDER [--ptx-only]\n");
                return 2;
        }
        setlinebuf(stdout);
        splice_open_device();
        prepare(argv[1]);
        for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
                for (enum form form = only_ptx ? PTX : MACHINE_CODE; form <= PTX; form++)
                        check_program(form, &programs[i]);
        if (only_ptx) {
                printf("mem_check: %u failed\n", failures);
                return failures != 0;
        }
        check_cost("vector_add", "cost_requests", MOST_COST);
        check_cost("vector_add", "cost_sectors", MOST_COST);
        check_cost("wide", "cost_requests", MOST_COST);
        printf("mem_check: %u failed\n", failures);
        return failures != 0;
}
