/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What probes at start and end of kernels cost on the device itself.
 *
 *   device_cost DIRECTORY [--rounds N]
 *     DIRECTORY holds cost_kernels.cubin (images/cost_kernels.cu), launch.frag,
 *     cost_designs.frag, cost_parts.frag and cost_early.frag (device_compile's output
 *     for the start/end program and for the programs of these names)
 *
 * Each kernel is launched by graphs of many nodes, between two events: as it is; with
 * its blocks counted in its own code, the least that counting costs; and with probes
 * put in by the splicer: a few instructions written by hand, the start/end program,
 * other ways to find a grid's last block. All take turns in every round, so that
 * whatever disturbs the machine meets all alike. Times are microseconds a launch, least
 * and median of the rounds; differences and ratios are of the least, to the kernel as
 * it is.
 *
 * ok/FAIL lines: the outputs are the same with every probe; the start/end program left
 * its two records for every launch; the targets. Exit code 0 all ok, 1 not, 77 no
 * usable device.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cost_hand.h"
#include "splice_device.h"
#include "unit/splice_pair.h"

#define COUNT(array)    (sizeof(array) / sizeof((array)[0]))
#define ELEMENTS        (1 << 20)
#define MULTIPROCESSORS 256 /* at most */
#define PROBES_MAX      48
#define ROUNDS_MAX      64
#define FIRST_ID        1000u
#define CLOCK_RATE      13 /* attribute: kHz */

struct arguments {
        device_address in, out, count;
        int n, cycles;
};

/* A launch that is measured. */
struct shape {
        const char *name, *kernel;
        unsigned blocks, threads;
        int nodes, replays;
        int n;
        bool computes; /* its output is compared */
        bool upright;  /* the grid is one block wide: no block is told apart by x */
        /* what start and end together may add: microseconds, or a part of the whole; 0 none */
        double target_us, target_part;
};

static const struct shape shapes[] = {
        {"1 block", "store", 1, 32, 200, 20, 0, true, false, 0.3, 0},
        {"65,536 blocks of 128, 1 us", "spin", 65536, 128, 10, 3, 0, false, false, 0, 0},
        {"65,536 blocks of 256, 1 us", "spin", 65536, 256, 10, 2, 0, false, false, 0, 0.03},
        {.name = "1 x 65,535 blocks of 256, 1 us",
         .kernel = "spin",
         .blocks = 65535, /* the most in y */
         .threads = 256,
         .nodes = 10,
         .replays = 2,
         .upright = true},
        {"4,096 blocks of 128, memory", "scale", 4096, 128, 100, 5, 0, true, false, 0, 0},
        {"64 blocks, matrices", "multiply", 64, 256, 100, 2, 512, true, false, 0, 0.01},
};

/* A way to run a kernel: with probes, or another kernel of the same shape. */
struct variant {
        const char *name;
        const char *suffix;      /* of the kernel */
        const char *entry, *end; /* probes, by name; NULL none */
        int records;             /* for each launch */
};

static const struct variant variants[] = {
        {"as it is", "_plain", NULL, NULL, 0},
        {"own code: RED, one address", "_red", NULL, NULL, 0},
        {"own code: ATOM, one address", "_atom", NULL, NULL, 0},
        {"own code: RED, one per SM", "_red_sm", NULL, NULL, 0},
        {"own code: ATOM, one per SM", "_atom_sm", NULL, NULL, 0},
        {"entry: detour", "_plain", "detour", NULL, 0},
        {"entry: block index by S2R", "_plain", "s2r", NULL, 0},
        {"entry: block index by S2UR", "_plain", "s2ur", NULL, 0},
        {"entry: S2UR, kernel meanwhile", "_plain", "early", NULL, 0},
        {"entry: launch_start", "_plain", "launch_start", NULL, 1},
        {"exit: detour, no wait", "_plain", NULL, "haste", 0},
        {"exit: detour", "_plain", NULL, "end_detour", 0},
        {"exit: thread x", "_plain", NULL, "tid", 0},
        {"exit: thread x, y, z", "_plain", NULL, "tids", 0},
        {"exit: thread packed", "_plain", NULL, "packed", 0},
        {"exit: end_test", "_plain", NULL, "end_test", 0},
        {"exit: end_none (RED)", "_plain", NULL, "end_none", 0},
        {"exit: end_all (ATOM)", "_plain", NULL, "end_all", 1},
        {"exit: end_banked (ATOM)", "_plain", NULL, "end_banked", 1},
        {"exit: launch_end", "_plain", NULL, "launch_end", 1},
        {"exit: same, thread in steps", "_plain", NULL, "end_in_steps", 1},
        {"exit: same, thread packed", "_plain", NULL, "end_in_one", 1},
        {"entry: mark_clock", "_plain", "mark_clock", NULL, 0},
        {"entry: mark_record", "_plain", "mark_record", NULL, 0},
        {"entry: mark_place", "_plain", "mark_place", NULL, 0},
        {"exit: end_record", "_plain", NULL, "end_record", 0},
        {"exit: end_count", "_plain", NULL, "end_count", 0},
        {"exit: end_told", "_plain", NULL, "end_told", 0},
        {"exit: end_words", "_plain", NULL, "end_words", 0},
        {"exit: early_flat", "_plain", NULL, "early_flat", 0},
        {"exit: early_sm", "_plain", NULL, "early_sm", 0},
        {"exit: early_index", "_plain", NULL, "early_index", 0},
        {"exit: early_far", "_plain", NULL, "early_far", 0},
        {"exit: early_context", "_plain", NULL, "early_context", 0},
        {"exit: early_ahead", "_plain", NULL, "early_ahead", 0},
        {"both: mark_clock, end_record", "_plain", "mark_clock", "end_record", 0},
        {"both: mark_clock, end_words", "_plain", "mark_clock", "end_words", 0},
        {"both: detours", "_plain", "detour", "end_detour", 0},
        {"both: early, end_none", "_plain", "early", "end_none", 0},
        {"both: launch_start, end_all", "_plain", "launch_start", "end_all", 2},
        {"both: ..., thread in steps", "_plain", "launch_start", "end_in_steps", 2},
        {"both: ..., thread packed", "_plain", "launch_start", "end_in_one", 2},
        {"both: launch_start, launch_end", "_plain", "launch_start", "launch_end", 2},
};
#define BOTH (COUNT(variants) - 1)

/* By the names above, those that are not made from PTX. */
static const struct {
        const char *name;
        enum cost_hand hand;
} hand_made[] = {
        {"detour", COST_ENTRY_DETOUR},    {"s2r", COST_ENTRY_S2R},    {"s2ur", COST_ENTRY_S2UR},
        {"early", COST_ENTRY_EARLY},      {"haste", COST_EXIT_HASTE}, {"tid", COST_EXIT_TID},
        {"end_detour", COST_EXIT_DETOUR}, {"tids", COST_EXIT_TIDS},   {"packed", COST_EXIT_PACKED},
};

struct probe {
        char name[32];
        struct probe_code *code;
};

/* One variant of one shape. */
struct cell {
        void *graph; /* executable */
        float us[ROUNDS_MAX];
        uint64_t launches, records;
        bool differs;
};

struct bench {
        struct probe_memory memory;
        struct arguments arguments;
        char *kernels; /* the cubin */
        size_t kernels_size;
        struct probe probes[PROBES_MAX];
        size_t probe_count;
        void *modules[COUNT(variants)];
        bool left_out[COUNT(variants)];
        struct cell cells[COUNT(shapes)][COUNT(variants)];
        float *expected, *found;
        void *stream, *start, *stop;
        int rounds;
        size_t failures;
};

static void verdict(struct bench *b, bool ok, const char *what)
{
        printf("%s %s\n", ok ? "ok  " : "FAIL", what);
        b->failures += !ok;
}

static void add_probe(struct bench *b, const char *name, struct probe_code *code)
{
        struct probe *p = &b->probes[b->probe_count];

        if (!code || b->probe_count == PROBES_MAX)
                splice_die(name, "no room for the probe");
        snprintf(p->name, sizeof(p->name), "%s", name);
        p->code = code;
        b->probe_count++;
}

static const struct probe_code *find_probe(const struct bench *b, const char *name)
{
        for (size_t k = 0; k < b->probe_count; k++) {
                if (name && strcmp(b->probes[k].name, name) == 0)
                        return b->probes[k].code;
        }
        if (name)
                splice_die(name, "no such probe");
        return NULL;
}

/*
 * launch_end asks for all three words of a thread's index at once. Two other ways, made
 * from its text: in two steps, so that most threads ask but once, and, if there is one,
 * the register that has them in one, which PTX has no word for.
 */
static const char at_once[] = "\tmov.u32 %z, 0;\n"
                              "\tmov.u32 %zt, %tid.x;\n"
                              "\tmov.u32 %zu, %tid.y;\n"
                              "\tor.b32 %zt, %zt, %zu;\n"
                              "\tmov.u32 %zu, %tid.z;\n"
                              "\tor.b32 %zt, %zt, %zu;\n"
                              "\tsetp.ne.u32 %zp0, %zt, 0;\n"
                              "\t@%zp0 bra G@U@_end;\n"
                              "\tor.b32 %z, %z, %zt;\n";
static const char two_steps[] = "\tmov.u32 %z, %tid.x;\n"
                                "\tsetp.ne.u32 %zp0, %z, 0;\n"
                                "\t@%zp0 bra G@U@_end;\n"
                                "\tmov.u32 %zt, %tid.y;\n"
                                "\tmov.u32 %zu, %tid.z;\n"
                                "\tor.b32 %zt, %zt, %zu;\n"
                                "\tsetp.ne.u32 %zp1, %zt, 0;\n"
                                "\t@%zp1 bra G@U@_end;\n"
                                "\tor.b32 %z, %z, %zt;\n";
/* The mask is 0 for the first thread, and not known to be so by the assembler. */
static const char in_one[] = "\tmov.u32 %zt, %laneid;\n"
                             "\tsetp.ne.u32 %zp0, %zt, 0;\n"
                             "\t@%zp0 bra G@U@_end;\n"
                             "\tmov.u32 %z, %lanemask_lt;\n";

static void add_text(struct bench *b, const char *name, const char *text, splice_edit *edit)
{
        struct probe_code *code = splice_build_probe(&b->memory, name, text, edit, NULL);

        add_probe(b, name, code);
        printf("probe %-14s %u instructions, %u registers\n", name, probe_code_instructions(code),
               probe_code_registers(code));
}

static int pack_probe(void *cubin, size_t size)
{
        return cost_pack_index(cubin, "gpuobs_probe") == 1 ? 0 : -1;
}

static void add_leader_test(struct bench *b, const char *name, const char *body, const char *test,
                            splice_edit *edit)
{
        const char *at = strstr(body, at_once);
        char *text;

        if (!at)
                splice_die(name, "launch_end finds the leader in another way");
        if (asprintf(&text, "%.*s%s%s", (int)(at - body), body, test, at + sizeof(at_once) - 1) < 0)
                splice_die(name, "out of memory");
        add_text(b, name, text, edit);
        free(text);
}

/* What names the maps of the programs behind it. */
static const char maps_line[] = "// maps:";

/* Every program of a file of device_compile: "// name", then its braces. */
static void add_fragments(struct bench *b, const char *path)
{
        size_t size;
        char *text = splice_read_file(path, &size), *at = text;

        while (at && *at) {
                char *name = at + 3, *body = strchr(at, '\n'), *end;

                if (strncmp(at, maps_line, strlen(maps_line)) == 0 && body) {
                        at = body + 1;
                        continue;
                }
                if (strncmp(at, "// ", 3) != 0 || !body)
                        splice_die(path, "not what device_compile prints");
                *body++ = 0;
                end = strstr(body, "\n}\n");
                if (!end)
                        splice_die(path, "a fragment without an end");
                at = end + 3;
                end[2] = 0;
                add_text(b, name, body, NULL);
                if (strcmp(name, "launch_end") == 0) {
                        add_leader_test(b, "end_in_steps", body, two_steps, NULL);
                        add_leader_test(b, "end_in_one", body, in_one, pack_probe);
                }
        }
        free(text);
}

static char *in_directory(const char *directory, const char *name)
{
        char *path;

        if (asprintf(&path, "%s/%s", directory, name) < 0)
                splice_die(name, "out of memory");
        return path;
}

static void load_files(struct bench *b, const char *directory)
{
        static const char *const files[] = {"launch.frag", "cost_designs.frag", "cost_parts.frag",
                                            "cost_early.frag"};
        char *path = in_directory(directory, "cost_kernels.cubin");

        b->kernels = splice_read_file(path, &b->kernels_size);
        free(path);
        for (size_t k = 0; k < COUNT(files); k++) {
                path = in_directory(directory, files[k]);
                add_fragments(b, path);
                free(path);
        }
        for (size_t k = 0; k < COUNT(hand_made); k++)
                add_probe(b, hand_made[k].name, cost_hand_made(hand_made[k].hand));
}

static void allocate(struct bench *b)
{
        size_t bytes = ELEMENTS * sizeof(float);
        float *input = malloc(bytes);
        int khz = 0;

        splice_allocate(&b->memory);
        b->expected = malloc(bytes);
        b->found = malloc(bytes);
        if (!input || !b->expected || !b->found)
                splice_die("malloc", "out of memory");
        for (int i = 0; i < ELEMENTS; i++)
                input[i] = (float)((unsigned)i * 2654435761u % 1000) / 7.f;
        splice_must(cuMemAlloc_v2(&b->arguments.in, bytes), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&b->arguments.out, bytes), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&b->arguments.count, MULTIPROCESSORS * 128UL), "cuMemAlloc");
        splice_must(cuMemcpyHtoD_v2(b->arguments.in, input, bytes), "cuMemcpyHtoD");
        splice_must(cuMemsetD32_v2(b->arguments.count, 0, MULTIPROCESSORS * 32UL), "cuMemsetD32");
        splice_must(cuDeviceGetAttribute(&khz, CLOCK_RATE, 0), "cuDeviceGetAttribute");
        b->arguments.cycles = khz / 1000; /* of a microsecond */
        splice_must(cuStreamCreate(&b->stream, 1 /* not with the null stream */), "cuStreamCreate");
        splice_must(cuEventCreate(&b->start, 0), "cuEventCreate");
        splice_must(cuEventCreate(&b->stop, 0), "cuEventCreate");
        free(input);
}

static struct splice_result *splice(const struct bench *b, const struct variant *v)
{
        const struct splice_pair probes =
                splice_pair(find_probe(b, v->entry), find_probe(b, v->end));
        struct splice_result *r;
        const char *why = "";

        if (splice_pair_image(b->kernels, b->kernels_size, &probes, FIRST_ID, &r, &why) < 0)
                splice_die(v->name, why);
        for (size_t k = 0; k < r->kernel_count; k++) {
                if (v->entry && splice_refusal(&r->kernels[k], PAIR_ENTRY))
                        splice_die(v->name, splice_refusal(&r->kernels[k], PAIR_ENTRY));
                if (v->end && splice_refusal(&r->kernels[k], PAIR_EXIT))
                        splice_die(v->name, splice_refusal(&r->kernels[k], PAIR_EXIT));
        }
        return r;
}

static void load_variant(struct bench *b, size_t v)
{
        struct splice_result *r = splice(b, &variants[v]);

        splice_must(cuModuleLoadData(&b->modules[v], r->image), variants[v].name);
        splice_result_free(r);
}

static void *find_function(void *module, const char *kernel, const char *suffix)
{
        char name[64];
        void *function;

        snprintf(name, sizeof(name), "%s%s", kernel, suffix);
        splice_must(cuModuleGetFunction(&function, module, name), name);
        return function;
}

static void launch(const struct bench *b, void *function, const struct shape *s)
{
        struct arguments a = b->arguments;
        void *parameters[] = {&a};

        a.n = s->n;
        splice_must(cuLaunchKernel(function, s->upright ? 1 : s->blocks, s->upright ? s->blocks : 1,
                                   1, s->threads, 1, 1, 0, b->stream, parameters, NULL),
                    "cuLaunchKernel");
}

static void capture(struct bench *b, size_t shape, size_t variant)
{
        const struct shape *s = &shapes[shape];
        void *graph,
                *function = find_function(b->modules[variant], s->kernel, variants[variant].suffix);

        splice_must(cuStreamBeginCapture_v2(b->stream, 0), "cuStreamBeginCapture");
        for (int k = 0; k < s->nodes; k++)
                launch(b, function, s);
        splice_must(cuStreamEndCapture(b->stream, &graph), "cuStreamEndCapture");
        splice_must(cuGraphInstantiateWithFlags(&b->cells[shape][variant].graph, graph, 0),
                    "cuGraphInstantiate");
        splice_must(cuGraphDestroy(graph), "cuGraphDestroy");
}

static uint64_t records(const struct bench *b)
{
        uint64_t head;

        splice_must(cuMemcpyDtoH_v2(&head, b->memory.counters, sizeof(head)), "cuMemcpyDtoH");
        return head;
}

/* Replay the graph once to warm up and then between events: microseconds a launch. */
static float replay(struct bench *b, const struct shape *s, struct cell *cell)
{
        uint64_t before = records(b);
        float milliseconds = 0;

        /* Some ways to count leave their counts behind. */
        splice_must(cuMemsetD32_v2(b->memory.counters + offsetof(struct device_counters, tail_done),
                                   0,
                                   (sizeof(struct device_counters) -
                                    offsetof(struct device_counters, tail_done)) /
                                           4),
                    "cuMemsetD32");
        splice_must(cuCtxSynchronize(), "cuMemsetD32");
        splice_must(cuGraphLaunch(cell->graph, b->stream), "cuGraphLaunch");
        splice_must(cuEventRecord(b->start, b->stream), "cuEventRecord");
        for (int k = 0; k < s->replays; k++)
                splice_must(cuGraphLaunch(cell->graph, b->stream), "cuGraphLaunch");
        splice_must(cuEventRecord(b->stop, b->stream), "cuEventRecord");
        splice_must(cuEventSynchronize(b->stop), s->name);
        splice_must(cuEventElapsedTime(&milliseconds, b->start, b->stop), "cuEventElapsedTime");
        cell->launches += (uint64_t)s->nodes * (unsigned)(s->replays + 1);
        cell->records += records(b) - before;
        return milliseconds * 1e3f / (float)(s->nodes * s->replays);
}

static void compare_output(struct bench *b, const struct shape *s, size_t variant,
                           struct cell *cell)
{
        size_t bytes = ELEMENTS * sizeof(float);

        if (!s->computes)
                return;
        splice_must(cuMemcpyDtoH_v2(variant == 0 ? b->expected : b->found, b->arguments.out, bytes),
                    "cuMemcpyDtoH");
        cell->differs |= variant != 0 && memcmp(b->expected, b->found, bytes) != 0;
        splice_must(cuMemsetD32_v2(b->arguments.out, 0, ELEMENTS), "cuMemsetD32");
}

static void measure(struct bench *b)
{
        for (int round = 0; round < b->rounds; round++) {
                for (size_t s = 0; s < COUNT(shapes); s++) {
                        for (size_t v = 0; v < COUNT(variants); v++) {
                                struct cell *cell = &b->cells[s][v];

                                if (b->left_out[v])
                                        continue;
                                cell->us[round] = replay(b, &shapes[s], cell);
                                compare_output(b, &shapes[s], v, cell);
                        }
                }
        }
}

static int by_value(const void *a, const void *b)
{
        float x = *(const float *)a, y = *(const float *)b;

        return (x > y) - (x < y);
}

static void print_shape(struct bench *b, size_t s)
{
        struct cell *cells = b->cells[s];

        printf("\n%s\n  %-32s %9s %9s %9s %8s\n", shapes[s].name, "", "least us", "median",
               "more us", "ratio");
        for (size_t v = 0; v < COUNT(variants); v++) {
                float *us = cells[v].us;

                if (b->left_out[v])
                        continue;
                qsort(us, (size_t)b->rounds, sizeof(*us), by_value);
                printf("  %-32s %9.3f %9.3f %9.3f %8.4f\n", variants[v].name, us[0],
                       us[b->rounds / 2], us[0] - cells[0].us[0], us[0] / cells[0].us[0]);
        }
}

static void check_shape(struct bench *b, size_t s)
{
        const struct shape *shape = &shapes[s];
        double more = b->cells[s][BOTH].us[0] - b->cells[s][0].us[0];
        double part = more / b->cells[s][0].us[0];
        char text[256];

        for (size_t v = 0; v < COUNT(variants); v++) {
                const struct cell *c = &b->cells[s][v];

                if (b->left_out[v])
                        continue;
                if (c->differs) {
                        snprintf(text, sizeof(text), "%s, %s: other results", shape->name,
                                 variants[v].name);
                        verdict(b, false, text);
                }
                if (c->records != c->launches * (unsigned)variants[v].records) {
                        snprintf(text, sizeof(text), "%s, %s: %llu records of %llu launches",
                                 shape->name, variants[v].name, (unsigned long long)c->records,
                                 (unsigned long long)c->launches);
                        verdict(b, false, text);
                }
        }
        if (shape->target_us > 0) {
                snprintf(text, sizeof(text), "%s: %+.3f us, wanted at most %+.1f", shape->name,
                         more, shape->target_us);
                verdict(b, more <= shape->target_us, text);
        } else if (shape->target_part > 0) {
                snprintf(text, sizeof(text), "%s: %+.2f %%, wanted at most %+.0f %%", shape->name,
                         part * 100, shape->target_part * 100);
                verdict(b, part <= shape->target_part, text);
        }
}

/* Whether special register 32 is x, y << 16 and z << 26 of the thread's index. */
static bool packed_index_works(struct bench *b)
{
        const struct shape s = {.blocks = 1, .threads = 0};
        uint32_t got[7 * 5 * 3];
        struct arguments a = b->arguments;
        void *parameters[] = {&a}, *module, *function;

        if (cost_pack_index((uint8_t *)b->kernels, "packed_index") != 1)
                return false;
        if (cuModuleLoadData(&module, b->kernels) != 0 ||
            cuModuleGetFunction(&function, module, "packed_index") != 0 ||
            cuLaunchKernel(function, s.blocks, 1, 1, 7, 5, 3, 0, b->stream, parameters, NULL) !=
                    0 ||
            cuCtxSynchronize() != 0)
                return false;
        splice_must(cuMemcpyDtoH_v2(got, a.out, sizeof(got)), "cuMemcpyDtoH");
        for (uint32_t k = 0; k < COUNT(got); k++) {
                if (got[k] != (k % 7 | k / 7 % 5 << 16 | k / 35 << 26))
                        return false;
        }
        return true;
}

/* Whether a kernel whose symbol points at appended code starts there. */
static bool symbol_start_works(struct bench *b)
{
        static const struct variant v = {"start by symbol", "_plain", "launch_start", NULL, 1};
        struct splice_result *r = splice(b, &v);
        uint64_t before = records(b);
        void *module, *function;

        if (cost_start_at_end(r->image, (uint8_t *)b->kernels, "store_plain") < 0 ||
            cuModuleLoadData(&module, r->image) != 0 ||
            cuModuleGetFunction(&function, module, "store_plain") != 0)
                return false;
        launch(b, function, &shapes[0]);
        return cuCtxSynchronize() == 0 && records(b) == before + 1;
}

/* How often the tail of a grid ended before the rest, among the newest records. */
static void print_unseen(const struct bench *b)
{
        size_t ends = 0, tails = 0;

        for (size_t k = 0; k < DEVICE_RING_ENTRIES; k++) {
                ends += DEVICE_RECORD_TYPE(&b->memory.ring[k]) == DEVICE_RECORD_END;
                tails += DEVICE_RECORD_TYPE(&b->memory.ring[k]) == DEVICE_RECORD_TAIL;
        }
        printf("\nof the newest ends %zu were seen, %zu not\n", ends, tails);
}

typedef bool try_fn(struct bench *b);

/*
 * Ask in a process of its own, since a kernel that is stopped for what it does takes
 * its context with it. Before the driver is used here.
 */
static bool ask(const char *directory, const char *what, try_fn *try)
{
        pid_t child;
        int status = 0;
        bool yes;

        fflush(stdout);
        child = fork();
        if (child == 0) {
                static struct bench b;

                if (!freopen("/dev/null", "w", stdout))
                        _exit(1);
                splice_open_device();
                allocate(&b);
                load_files(&b, directory);
                _exit(try(&b) ? 0 : 1);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0)
                splice_die(what, "no process to ask in");
        yes = WIFEXITED(status) && WEXITSTATUS(status) == 0;
        printf("%s: %s\n", what, yes ? "yes" : "no");
        return yes;
}

int main(int argc, char **argv)
{
        static struct bench b = {.rounds = 9};
        bool packed;

        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        if (argc == 4 && strcmp(argv[2], "--rounds") == 0)
                b.rounds = atoi(argv[3]);
        else if (argc != 2)
                splice_die("usage", "device_cost DIRECTORY [--rounds N]");
        if (b.rounds < 1 || b.rounds > ROUNDS_MAX)
                splice_die("--rounds", "1 to 64");
        packed = ask(argv[1], "a thread's index in one special register", packed_index_works);
        ask(argv[1], "a kernel starts where its symbol says", symbol_start_works);
        splice_open_device();
        allocate(&b);
        load_files(&b, argv[1]);
        for (size_t v = 0; v < COUNT(variants); v++) {
                b.left_out[v] = !packed && strstr(variants[v].name, "packed");
                if (b.left_out[v])
                        continue;
                load_variant(&b, v);
                for (size_t s = 0; s < COUNT(shapes); s++)
                        capture(&b, s, v);
        }
        measure(&b);
        for (size_t s = 0; s < COUNT(shapes); s++)
                print_shape(&b, s);
        print_unseen(&b);
        for (size_t s = 0; s < COUNT(shapes); s++)
                check_shape(&b, s);
        printf("device_cost: %zu failed\n", b.failures);
        return b.failures ? 1 : 0;
}
