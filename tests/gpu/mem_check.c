/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs at accesses of memory, on the device: kernels as machine code and as PTX, each
 * run as it is and with a program. What a kernel computes must be the same to the bit, and
 * the program must have seen just the accesses that the kernel makes (mem_model.c). Then
 * what it costs on a kernel that streams through memory.
 *
 *   mem_check FOLDER    with mem_kernels.cubin, mem_kernels.ptx and device_mem.frag, which
 *                       is what device_compile prints of device_mem.bpf.o and mem_cost.bpf.o
 *
 * One line per check, "ok" or "FAIL"; exit code 0 all right, 1 not, 77 no device.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "agent/fragment.h"
#include "agent/ptx_inject.h"
#include "mem_model.h"
#include "splice_device.h"

#define WORDS       (1u << 20) /* of the array that kernels read; they write at most as many */
#define ELEMENTS    (WORDS / 2 - 77)
#define COST_BYTES  (16ULL * DEVICE_SMS_MAX * DEVICE_WARPS_MAX)
#define STREAM      (64u << 20) /* elements */
#define STREAM_RUNS 15
#define MOST_COST   3.5 /* of a program per warp in machine code */

enum form { AS_IT_IS, MACHINE_CODE, PTX };
static const char *const form_names[] = {"as it is", "machine code", "PTX"};

static char *cubin, *ptx, *fragments;
static size_t cubin_bytes, ptx_bytes;
static device_address in, out, map;
static uint32_t *in_words, *plain, *got;
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

/* A program as it is put into PTX, with the map's address. */
static char *find_fragment(const char *name)
{
        const uint64_t maps[AGENT_MAP_MAX] = {map};
        char head[80], *start, *end, *text, *bound;

        snprintf(head, sizeof(head), "// %s\n{", name);
        start = strstr(fragments, head);
        end = start ? strstr(start, "\n}\n") : NULL;
        if (!end)
                splice_die(name, "no such program");
        text = strndup(start, (size_t)(end + 3 - start));
        if (!text || fragment_bind(text, maps, &bound) < 0)
                splice_die(name, "cannot be bound");
        free(text);
        return bound;
}

/* The module's kernels with a program at their accesses, or as they are. */
static void *load_spliced(const char *program, const char *fragment)
{
        const struct probe_memory none = {0};
        struct probe_code *code = splice_build_probe(&none, program, fragment, NULL, NULL);
        const struct probe_program one = {
                .where = AGENT_PROGRAM_MEM, .label = program, .code = code};
        const struct probe_list list = {.programs = &one, .count = 1};
        struct splice_result *r = NULL;
        const char *why = "out of memory";
        void *module;

        if (splice_image(cubin, cubin_bytes, &list, 1, &r, &why) < 0)
                splice_die(program, why);
        for (size_t k = 0; k < r->kernel_count; k++)
                report(r->kernels[k].outcomes->in && !r->kernels[k].other_accesses,
                       r->kernels[k].name, MACHINE_CODE, program, r->kernels[k].outcomes->refusal);
        splice_must(cuModuleLoadData(&module, r->image), program);
        splice_result_free(r);
        probe_code_free(code);
        return module;
}

static void *load_injected(const char *program, const char *fragment)
{
        const struct probe_program one = {
                .where = AGENT_PROGRAM_MEM, .label = program, .text = fragment};
        const struct ptx_probes probes = {.list = {&one, 1}};
        struct ptx_result *r = NULL;
        const char *why = "out of memory";
        void *module;

        if (ptx_inject(ptx, ptx_bytes, &probes, 1, &r, &why) < 0)
                splice_die(program, why);
        for (size_t k = 0; k < r->kernel_count; k++)
                report(r->kernels[k].outcomes->in && !r->kernels[k].other_accesses,
                       r->kernels[k].name, PTX, program, r->kernels[k].outcomes->refusal);
        splice_must(cuModuleLoadData(&module, r->text), program);
        ptx_result_free(r);
        return module;
}

static void *load(enum form form, const char *program)
{
        char *fragment = program ? find_fragment(program) : NULL;
        void *module;

        switch (form) {
        case MACHINE_CODE:
                module = load_spliced(program, fragment);
                break;
        case PTX:
                module = load_injected(program, fragment);
                break;
        default:
                splice_must(cuModuleLoadData(&module, cubin), "the kernels");
        }
        free(fragment);
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

/* One run, from the same start. */
static void run(void *module, const char *name, uint32_t *ret_words)
{
        splice_must(cuMemsetD32_v2(out, 0, WORDS), "cuMemsetD32");
        splice_must(cuMemsetD32_v2(map, 0, COST_BYTES / 4), "cuMemsetD32");
        launch(module, name, in, out, ELEMENTS);
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

static void describe(const struct mem_counts *c, bool is_warp, char *text, size_t size)
{
        if (is_warp)
                snprintf(text, size, "%llu requests of %llu lanes, %llu sectors, %llu lines",
                         c->requests, c->lanes, c->sectors, c->lines);
        else
                snprintf(text, size, "%llu accesses of %llu bytes, addresses 0x%llx, 0x%llx",
                         c->accesses, c->bytes, c->sum, c->mix);
}

/* Print kinds and spaces that were counted wrong. */
static bool compare_counts(const struct mem_counts *c, const struct mem_counts *want, bool is_warp)
{
        bool right = true;

        for (uint32_t i = 0; i < MEM_ENTRIES; i++) {
                uint32_t space = i >> 2;
                char text[160], wanted[160];

                if (is_warp ? same_warps(&c[i], &want[i], space)
                            : same_threads(&c[i], &want[i], space))
                        continue;
                describe(&c[i], is_warp, text, sizeof(text));
                describe(&want[i], is_warp, wanted, sizeof(wanted));
                printf("  kind %u space %u: %s, not %s\n", i & 3, space, text, wanted);
                right = false;
        }
        return right;
}

static void check_kernel(void *module, const struct model_kernel *k, enum form form,
                         const char *program, bool is_warp)
{
        struct model_run r = {.in = in,
                              .out = out,
                              .in_words = in_words,
                              .n = ELEMENTS,
                              .blocks = (ELEMENTS + MODEL_THREADS - 1) / MODEL_THREADS};
        struct mem_counts counts[MEM_ENTRIES], want[MEM_ENTRIES] = {{0}};

        run(module, k->name, got);
        splice_must(cuMemcpyDtoH_v2(counts, map, sizeof(counts)), "cuMemcpyDtoH");
        report(memcmp(plain, got, 4ULL * WORDS) == 0, k->name, form, program, "the same result");
        k->tell(&r, want);
        report(compare_counts(counts, want, is_warp), k->name, form, program,
               "the accesses it makes");
}

static void check_program(enum form form, const char *program, bool is_warp)
{
        void *original = load(AS_IT_IS, NULL), *module = load(form, program);

        for (unsigned k = 0; k < model_kernel_count; k++) {
                run(original, model_kernels[k].name, plain);
                check_kernel(module, &model_kernels[k], form, program, is_warp);
        }
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
        device_address from, to;
        double us[3];

        splice_must(cuMemAlloc_v2(&from, 8ULL * STREAM), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&to, 4ULL * STREAM), "cuMemAlloc");
        splice_must(cuMemsetD32_v2(from, 1, 2ULL * STREAM), "cuMemsetD32");
        for (enum form form = AS_IT_IS; form <= PTX; form++) {
                void *module = load(form, program);

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
        splice_must(cuMemcpyHtoD_v2(in, in_words, 4ULL * WORDS), "cuMemcpyHtoD");
}

int main(int argc, char **argv)
{
        if (argc != 2) {
                fprintf(stderr, "usage: mem_check FOLDER\n");
                return 2;
        }
        setlinebuf(stdout);
        splice_open_device();
        prepare(argv[1]);
        for (enum form form = MACHINE_CODE; form <= PTX; form++) {
                check_program(form, "mem_warp", true);
                check_program(form, "mem_thread", false);
        }
        check_cost("vector_add", "cost_requests", MOST_COST);
        check_cost("vector_add", "cost_sectors", MOST_COST);
        check_cost("wide", "cost_requests", MOST_COST);
        printf("mem_check: %u failed\n", failures);
        return failures != 0;
}
