/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A CUDA driver API program for tests and for the demo without a GPU: threads
 * that launch kernels on streams, with memsets, copies and graphs in between,
 * checked against the CPU. Prints what it issued, so that a test can compare it
 * with what was observed. Runs on the simulated and on a real driver.
 */
#include <getopt.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "simcuda/cuda.h"

#include "sim_kernels.h"

#define GRAPH_KERNELS 3

enum kernel {
        KERNEL_EMPTY,
        KERNEL_VADD,
        KERNEL_SAXPY,
        KERNEL_REDUCE,
        KERNEL_SPIN,
        KERNEL_COUNT,
};

static const char *const kernel_names[KERNEL_COUNT] = {"empty", "vadd", "saxpy", "reduce", "spin"};

struct options {
        uint64_t launches; /* per thread */
        unsigned threads;
        unsigned streams;
        unsigned contexts;
        unsigned elements;
        unsigned block;
        uint64_t every_memset; /* 0: none */
        uint64_t every_copy;
        uint64_t every_graph;
        uint64_t every_sync;
        uint64_t spin_ns;
        int kernel; /* enum kernel, or -1: all in turn */
        int other;  /* enum kernel that takes turns with it, or -1 */
        bool per_thread;
        bool extended;    /* cuLaunchKernelEx */
        bool library;     /* cuLibraryLoadData instead of cuModuleLoadData */
        bool until_input; /* go on until standard input ends, whatever `launches` says */
        bool quiet;
        unsigned pause_ms; /* before the end, so that an observer can look */
};

static struct options options = {
        .launches = 1000,
        .threads = 1,
        .streams = 1,
        .contexts = 1,
        .elements = 1000,
        .block = 128,
        .spin_ns = 100000,
        .kernel = -1,
        .other = -1,
};

struct totals {
        _Atomic uint64_t launches[KERNEL_COUNT];
        _Atomic uint64_t graph_replays;
        _Atomic uint64_t memsets;
        _Atomic uint64_t copies;
};
static struct totals totals;
static _Atomic bool input_ended;

static void check(CUresult r, const char *what)
{
        const char *name = "?";

        if (r == CUDA_SUCCESS)
                return;
        cuGetErrorName(r, &name);
        fprintf(stderr, "%s: %d %s\n", what, r, name ? name : "?");
        exit(1);
}
#define CALL(expression) check(expression, #expression)

/* One context with its kernels. */
struct device {
        CUcontext context;
        CUfunction functions[KERNEL_COUNT];
};

static void load_module(struct device *d)
{
        CUmodule module;

        CALL(cuModuleLoadData(&module, sim_kernels_ptx));
        for (int i = 0; i < KERNEL_COUNT; i++)
                CALL(cuModuleGetFunction(&d->functions[i], module, kernel_names[i]));
}

static void load_library(struct device *d)
{
        CUlibrary library;
        CUkernel kernel;

        CALL(cuLibraryLoadData(&library, sim_kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
        for (int i = 0; i < KERNEL_COUNT; i++) {
                CALL(cuLibraryGetKernel(&kernel, library, kernel_names[i]));
                CALL(cuKernelGetFunction(&d->functions[i], kernel));
        }
}

static void open_device(struct device *d, unsigned index)
{
        if (index == 0) {
                CALL(cuDevicePrimaryCtxRetain(&d->context, 0));
                CALL(cuCtxSetCurrent(d->context));
        } else {
                CALL(cuCtxCreate_v2(&d->context, 0, 0));
        }
        if (options.library)
                load_library(d);
        else
                load_module(d);
}

/* What one thread works on. */
struct worker {
        pthread_t thread;
        unsigned index;
        struct device *device;
        CUstream *streams;
        CUdeviceptr a, b, c, sum, scratch;
        CUgraphExec graph;
        uint64_t saxpys, reduces; /* to know what must come out */
        uint64_t checksum;
};

static void launch(struct worker *w, enum kernel kernel, CUstream stream)
{
        unsigned n = options.elements, block = options.block;
        unsigned grid = (n + block - 1) / block;
        float scale = 0.5f;
        void *vadd[] = {&w->a, &w->b, &w->c, &n};
        void *saxpy[] = {&w->a, &w->b, &scale, &n};
        void *reduce[] = {&w->scratch, &w->sum, &n};
        void *spin[] = {&options.spin_ns};
        void **params[KERNEL_COUNT] = {NULL, vadd, saxpy, reduce, spin};
        CUfunction f = w->device->functions[kernel];

        if (kernel == KERNEL_EMPTY || kernel == KERNEL_SPIN) {
                grid = 1;
                block = 1;
        }
        if (options.extended) {
                CUlaunchConfig config = {.gridDimX = grid,
                                         .gridDimY = 1,
                                         .gridDimZ = 1,
                                         .blockDimX = block,
                                         .blockDimY = 1,
                                         .blockDimZ = 1,
                                         .hStream = stream};

                CALL(cuLaunchKernelEx(&config, f, params[kernel], NULL));
        } else if (options.per_thread) {
                CALL(cuLaunchKernel_ptsz(f, grid, 1, 1, block, 1, 1, 0, stream, params[kernel],
                                         NULL));
        } else {
                CALL(cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, params[kernel], NULL));
        }
        w->saxpys += kernel == KERNEL_SAXPY;
        w->reduces += kernel == KERNEL_REDUCE;
}

static enum kernel choose(uint64_t i)
{
        if (options.other >= 0 && i % 2)
                return (enum kernel)options.other;
        if (options.kernel >= 0)
                return (enum kernel)options.kernel;
        return (enum kernel)(i % KERNEL_SPIN); /* not spin */
}

static void make_graph(struct worker *w, CUstream stream)
{
        uint64_t saxpys = w->saxpys, reduces = w->reduces;
        CUgraph graph;

        CALL(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        launch(w, KERNEL_VADD, stream);
        launch(w, KERNEL_EMPTY, stream);
        launch(w, KERNEL_REDUCE, stream);
        CALL(cuStreamEndCapture(stream, &graph));
        CALL(cuGraphInstantiateWithFlags(&w->graph, graph, 0));
        CALL(cuGraphDestroy(graph));
        w->saxpys = saxpys; /* captured, not done */
        w->reduces = reduces;
}

/*
 * Arrays that threads' streams share would race; so each thread uses one stream
 * at a time for work on its data, and goes to the next only after waiting.
 */
static bool goes_on(uint64_t done)
{
        return options.until_input ? !input_ended : done < options.launches;
}

static void work(struct worker *w)
{
        for (uint64_t i = 0; goes_on(i); i++) {
                CUstream stream = w->streams[(w->index + i / 64) % options.streams];
                enum kernel kernel = choose(i);

                if (i % 64 == 0 && i)
                        CALL(cuStreamSynchronize(
                                w->streams[(w->index + i / 64 - 1) % options.streams]));
                launch(w, kernel, stream);
                totals.launches[kernel]++;
                if (options.every_memset && i % options.every_memset == 0) {
                        CALL(cuMemsetD32Async(w->c, 0, options.elements, stream));
                        totals.memsets++;
                }
                if (options.every_copy && i % options.every_copy == 0) {
                        CALL(cuMemcpyDtoDAsync_v2(w->c, w->a, 4ULL * options.elements, stream));
                        totals.copies++;
                }
                if (options.every_graph && i % options.every_graph == 0) {
                        CALL(cuGraphLaunch(w->graph, stream));
                        w->reduces++;
                        totals.graph_replays++;
                }
                if (options.every_sync && i % options.every_sync == 0)
                        CALL(cuStreamSynchronize(stream));
        }
        CALL(cuCtxSynchronize());
}

static void fill(struct worker *w)
{
        unsigned n = options.elements;
        float *values = calloc(n, sizeof(float));
        uint32_t *numbers = calloc(n, sizeof(uint32_t));

        if (!values || !numbers)
                exit(1);
        for (unsigned i = 0; i < n; i++) {
                values[i] = (float)(i % 16);
                numbers[i] = i;
        }
        CALL(cuMemcpyHtoD_v2(w->a, values, 4ULL * n));
        CALL(cuMemcpyHtoD_v2(w->b, values, 4ULL * n));
        CALL(cuMemcpyHtoD_v2(w->scratch, numbers, 4ULL * n));
        CALL(cuMemsetD8_v2(w->sum, 0, 4));
        free(values);
        free(numbers);
}

static void add_checksum(struct worker *w, const void *data, size_t bytes)
{
        const uint8_t *p = data;

        for (size_t i = 0; i < bytes; i++)
                w->checksum = (w->checksum ^ p[i]) * 1099511628211ULL;
}

static void expect(bool ok, const char *what, unsigned thread)
{
        if (ok)
                return;
        fprintf(stderr, "thread %u: wrong result of %s\n", thread, what);
        exit(1);
}

/* b is exact in single precision as long as it stays below 2^23. */
static void verify(struct worker *w)
{
        unsigned n = options.elements;
        float *b = calloc(n, sizeof(float));
        uint32_t sum, expected;

        if (!b)
                exit(1);
        CALL(cuMemcpyDtoH_v2(b, w->b, 4ULL * n));
        CALL(cuMemcpyDtoH_v2(&sum, w->sum, 4));
        for (unsigned i = 0; i < n; i++) {
                double right = (double)(i % 16) * (1.0 + 0.5 * (double)w->saxpys);

                expect(right >= 8388608.0 || (double)b[i] == right, "saxpy", w->index);
        }
        expected = (uint32_t)((uint64_t)n * (n - 1) / 2 * w->reduces);
        expect(sum == expected, "reduce", w->index);
        add_checksum(w, b, 4ULL * n);
        add_checksum(w, &sum, 4);
        free(b);
}

static void *run_worker(void *argument)
{
        struct worker *w = argument;
        uint64_t bytes = 4ULL * options.elements;

        CALL(cuCtxSetCurrent(w->device->context));
        CALL(cuMemAlloc_v2(&w->a, bytes));
        CALL(cuMemAlloc_v2(&w->b, bytes));
        CALL(cuMemAlloc_v2(&w->c, bytes));
        CALL(cuMemAlloc_v2(&w->scratch, bytes));
        CALL(cuMemAlloc_v2(&w->sum, 4));
        w->checksum = 14695981039346656037ULL;
        w->streams = calloc(options.streams, sizeof(*w->streams));
        if (!w->streams)
                exit(1);
        for (unsigned i = 0; i < options.streams; i++) {
                if (options.per_thread)
                        w->streams[i] = CU_STREAM_PER_THREAD;
                else
                        CALL(cuStreamCreate(&w->streams[i], CU_STREAM_NON_BLOCKING));
        }
        fill(w);
        CALL(cuCtxSynchronize());
        if (options.every_graph)
                make_graph(w, w->streams[0]);
        work(w);
        verify(w);
        return NULL;
}

static void *read_input(void *unused)
{
        char bytes[64];

        while (read(STDIN_FILENO, bytes, sizeof(bytes)) > 0)
                ;
        input_ended = true;
        return NULL;
}

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void print_totals(uint64_t elapsed_ns, uint64_t checksum)
{
        uint64_t all = 0;

        for (int i = 0; i < KERNEL_COUNT; i++)
                all += totals.launches[i];
        printf("pid %d\n", (int)getpid());
        printf("launches %" PRIu64 "\n", all);
        for (int i = 0; i < KERNEL_COUNT; i++)
                printf("launches_%s %" PRIu64 "\n", kernel_names[i], (uint64_t)totals.launches[i]);
        printf("graph_replays %" PRIu64 "\n", (uint64_t)totals.graph_replays);
        printf("graph_kernels %" PRIu64 "\n", (uint64_t)totals.graph_replays * GRAPH_KERNELS);
        printf("memsets %" PRIu64 "\n", (uint64_t)totals.memsets);
        printf("copies %" PRIu64 "\n", (uint64_t)totals.copies);
        printf("ns_per_launch %" PRIu64 "\n", all ? elapsed_ns / all : 0);
        printf("checksum %016" PRIx64 "\n", checksum);
        fflush(stdout);
}

static const char usage[] =
        "Usage: sim_launch [OPTION]...\n"
        "Launch kernels through the CUDA driver API and check their results.\n"
        "  -n, --launches N    launches per thread (1000)\n"
        "  -t, --threads N     threads (1)\n"
        "  -s, --streams N     streams per thread (1)\n"
        "  -c, --contexts N    contexts, threads take them in turn (1)\n"
        "  -k, --kernel NAME   empty, vadd, saxpy, reduce or spin; else all but spin in turn\n"
        "                      (given twice: two in turn)\n"
        "  -e, --elements N    array elements (1000)\n"
        "  -b, --block N       threads per block, a power of two up to 256 (128)\n"
        "      --spin-ns N     duration of spin (100000)\n"
        "      --memset N      a memset after every Nth launch\n"
        "      --copy N        a device-to-device copy after every Nth launch\n"
        "      --graph N       a replay of a graph of 3 kernels after every Nth launch\n"
        "      --sync N        synchronise after every Nth launch\n"
        "      --per-thread    use per-thread default streams\n"
        "      --extended      launch with cuLaunchKernelEx\n"
        "      --library       load with cuLibraryLoadData\n"
        "      --until-input   launch until standard input ends, whatever -n says\n"
        "      --pause-ms N    wait before the end\n"
        "  -q, --quiet         print the checksum only\n";

enum {
        OPTION_SPIN = 256,
        OPTION_MEMSET,
        OPTION_COPY,
        OPTION_GRAPH,
        OPTION_SYNC,
        OPTION_PER_THREAD,
        OPTION_EXTENDED,
        OPTION_LIBRARY,
        OPTION_UNTIL_INPUT,
        OPTION_PAUSE,
};

static uint64_t number(const char *text, uint64_t low, uint64_t high)
{
        char *end;
        unsigned long long n = strtoull(text, &end, 0);

        if (*end || !*text || n < low || n > high) {
                fprintf(stderr, "not a number from %" PRIu64 " to %" PRIu64 ": %s\n", low, high,
                        text);
                exit(2);
        }
        return n;
}

static int kernel_by_name(const char *name)
{
        for (int i = 0; i < KERNEL_COUNT; i++) {
                if (strcmp(kernel_names[i], name) == 0)
                        return i;
        }
        fprintf(stderr, "no kernel named %s\n", name);
        exit(2);
}

static void parse_option(int c)
{
        switch (c) {
        case 'n':
                options.launches = number(optarg, 0, 1000000000);
                break;
        case 't':
                options.threads = (unsigned)number(optarg, 1, 256);
                break;
        case 's':
                options.streams = (unsigned)number(optarg, 1, 256);
                break;
        case 'c':
                options.contexts = (unsigned)number(optarg, 1, 16);
                break;
        case 'k':
                options.other = options.kernel;
                options.kernel = kernel_by_name(optarg);
                break;
        case 'e':
                options.elements = (unsigned)number(optarg, 1, 1u << 26);
                break;
        case 'b':
                options.block = (unsigned)number(optarg, 1, 256);
                break;
        case OPTION_SPIN:
                options.spin_ns = number(optarg, 0, 10000000000);
                break;
        case OPTION_MEMSET:
                options.every_memset = number(optarg, 1, UINT64_MAX);
                break;
        case OPTION_COPY:
                options.every_copy = number(optarg, 1, UINT64_MAX);
                break;
        case OPTION_GRAPH:
                options.every_graph = number(optarg, 1, UINT64_MAX);
                break;
        case OPTION_SYNC:
                options.every_sync = number(optarg, 1, UINT64_MAX);
                break;
        case OPTION_PER_THREAD:
                options.per_thread = true;
                break;
        case OPTION_EXTENDED:
                options.extended = true;
                break;
        case OPTION_LIBRARY:
                options.library = true;
                break;
        case OPTION_UNTIL_INPUT:
                options.until_input = true;
                break;
        case OPTION_PAUSE:
                options.pause_ms = (unsigned)number(optarg, 0, 3600000);
                break;
        case 'q':
                options.quiet = true;
                break;
        case 'h':
                fputs(usage, stdout);
                exit(0);
        default:
                fputs(usage, stderr);
                exit(2);
        }
}

static void parse_options(int argc, char **argv)
{
        static const struct option longs[] = {
                {"launches", required_argument, NULL, 'n'},
                {"threads", required_argument, NULL, 't'},
                {"streams", required_argument, NULL, 's'},
                {"contexts", required_argument, NULL, 'c'},
                {"kernel", required_argument, NULL, 'k'},
                {"elements", required_argument, NULL, 'e'},
                {"block", required_argument, NULL, 'b'},
                {"spin-ns", required_argument, NULL, OPTION_SPIN},
                {"memset", required_argument, NULL, OPTION_MEMSET},
                {"copy", required_argument, NULL, OPTION_COPY},
                {"graph", required_argument, NULL, OPTION_GRAPH},
                {"sync", required_argument, NULL, OPTION_SYNC},
                {"per-thread", no_argument, NULL, OPTION_PER_THREAD},
                {"extended", no_argument, NULL, OPTION_EXTENDED},
                {"library", no_argument, NULL, OPTION_LIBRARY},
                {"until-input", no_argument, NULL, OPTION_UNTIL_INPUT},
                {"pause-ms", required_argument, NULL, OPTION_PAUSE},
                {"quiet", no_argument, NULL, 'q'},
                {"help", no_argument, NULL, 'h'},
                {0},
        };
        int c;

        while ((c = getopt_long(argc, argv, "n:t:s:c:k:e:b:qh", longs, NULL)) >= 0)
                parse_option(c);
        if (options.block & (options.block - 1)) {
                fprintf(stderr, "the block size must be a power of two\n");
                exit(2);
        }
}

int main(int argc, char **argv)
{
        struct device devices[16] = {0};
        struct worker *workers;
        uint64_t start, checksum = 0;
        pthread_t reader;

        parse_options(argc, argv);
        CALL(cuInit(0));
        for (unsigned i = 0; i < options.contexts; i++)
                open_device(&devices[i], i);
        workers = calloc(options.threads, sizeof(*workers));
        if (!workers)
                return 1;
        if (options.until_input && pthread_create(&reader, NULL, read_input, NULL))
                return 1;
        start = now_ns();
        for (unsigned i = 0; i < options.threads; i++) {
                workers[i].index = i;
                workers[i].device = &devices[i % options.contexts];
                if (pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]))
                        return 1;
        }
        for (unsigned i = 0; i < options.threads; i++) {
                pthread_join(workers[i].thread, NULL);
                checksum ^= workers[i].checksum * (2 * i + 1);
        }
        if (options.until_input)
                pthread_join(reader, NULL);
        if (options.quiet)
                printf("%016" PRIx64 "\n", checksum);
        else
                print_totals(now_ns() - start, checksum);
        usleep(options.pause_ms * 1000);
        free(workers);
        return 0;
}
