/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program that is attached to while it runs: its kernels lie in a fatbin of its own, as
 * the compiler puts them, and others come from memory that it gives back. Threads launch
 * them until a line comes from standard input; then the results are compared with the
 * CPU's and printed. A line "memory" only has the free GPU memory printed. With "malloc" the main
 * thread only allocates; with "signals" a timer interrupts it all the time.
 *
 * Each thread waits for its stream after every few launches; with "stream" it launches
 * into two streams in turn and never waits, so that nothing tells which launch a record is of.
 *
 *     sim_attach [threads [malloc|signals|sleep [stream]]]
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "simcuda/cuda.h"

#define N       256
#define THREADS 8

#define PTX_HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"
#define ADD(name)                                                                                  \
        ".visible .entry " name "(.param .u64 a, .param .u32 by)\n"                                \
        "{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"                                                 \
        "ld.param.u64 %rd1, [a];\nld.param.u32 %r1, [by];\n"                                       \
        "mov.u32 %r2, %tid.x;\nmul.wide.u32 %rd2, %r2, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"            \
        "red.global.add.u32 [%rd3], %r1;\nret;\n}\n"

#define STATIC_PTX                                                                                 \
        PTX_HEAD ".visible .global .align 4 .u32 counter = 0;\n" ADD("add_one")                    \
                ADD("add_two") ".visible .entry count()\n{\nred.global.add.u32 [counter], "        \
                               "1;\nret;\n}\n"
#define DYNAMIC_PTX PTX_HEAD ADD("add_late")

/* A container with one text for sm_70, as nvcc lays it out. */
static const struct {
        uint32_t magic;
        uint16_t version, header_bytes;
        uint64_t bytes;
        uint16_t kind, entry_version;
        uint32_t entry_header_bytes;
        uint64_t payload_bytes;
        uint32_t packed_bytes, unused[2], arch, name[2];
        uint64_t flags, zero, unpacked_bytes;
        char text[(sizeof(STATIC_PTX) + 7) / 8 * 8];
} fatbin __attribute__((section(".nv_fatbin"), aligned(8), used)) = {
        .magic = 0xba55ed50,
        .version = 1,
        .header_bytes = 16,
        .bytes = 64 + (sizeof(STATIC_PTX) + 7) / 8 * 8,
        .kind = 1,
        .entry_version = 0x101,
        .entry_header_bytes = 64,
        .payload_bytes = (sizeof(STATIC_PTX) + 7) / 8 * 8,
        .arch = 70,
        .text = STATIC_PTX,
};

#define CUDA(call)                                                                                 \
        do {                                                                                       \
                CUresult result_ = (call);                                                         \
                if (result_ != CUDA_SUCCESS) {                                                     \
                        fprintf(stderr, "%s: %d\n", #call, result_);                               \
                        exit(1);                                                                   \
                }                                                                                  \
        } while (0)

static struct {
        CUcontext context;
        CUfunction one, two, late;
        CUdeviceptr numbers;
        _Atomic uint64_t launched[3];
        _Atomic bool stop;
        bool waits;
} app;

static void load(void)
{
        CUlibrary library;
        CUmodule module;
        CUkernel kernel;
        char *text = strdup(DYNAMIC_PTX);

        CUDA(cuLibraryLoadData(&library, &fatbin, NULL, NULL, 0, NULL, NULL, 0));
        CUDA(cuLibraryGetKernel(&kernel, library, "add_one"));
        app.one = (CUfunction)kernel; /* launched as it is */
        CUDA(cuLibraryGetKernel(&kernel, library, "add_two"));
        CUDA(cuKernelGetFunction(&app.two, kernel));
        CUDA(cuModuleLoadData(&module, text));
        CUDA(cuModuleGetFunction(&app.late, module, "add_late"));
        free(text);
}

static void launch(CUfunction f, int which, uint32_t by, CUstream stream)
{
        void *parameters[] = {&app.numbers, &by};

        CUDA(cuLaunchKernel(f, 1, 1, 1, N, 1, 1, 0, stream, parameters, NULL));
        app.launched[which]++;
}

static void launch_and_wait(const CUstream streams[2])
{
        launch(app.one, 0, 1, streams[0]);
        launch(app.two, 1, 100, streams[0]);
        launch(app.late, 2, 10000, streams[0]);
        CUDA(cuStreamSynchronize(streams[0]));
        usleep(1000);
}

static void launch_on(const CUstream streams[2])
{
        launch(app.one, 0, 1, streams[0]);
        usleep(100);
        launch(app.two, 1, 100, streams[1]);
        usleep(100);
}

static void *work(void *unused)
{
        CUstream streams[2];

        CUDA(cuCtxSetCurrent(app.context));
        for (int i = 0; i < 2; i++)
                CUDA(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        while (!app.stop)
                (app.waits ? launch_and_wait : launch_on)(streams);
        for (int i = 0; i < 2; i++)
                CUDA(cuStreamSynchronize(streams[i]));
        return NULL;
}

static void check(void)
{
        uint32_t numbers[N], want;

        CUDA(cuMemcpyDtoH_v2(numbers, app.numbers, sizeof(numbers)));
        want = (uint32_t)(app.launched[0] + 100 * app.launched[1] + 10000 * app.launched[2]);
        for (int i = 0; i < N; i++)
                if (numbers[i] != want) {
                        fprintf(stderr, "wrong result\n");
                        exit(1);
                }
}

static volatile sig_atomic_t ticks;

static void on_tick(int number)
{
        ticks++;
        free(NULL);
}

static void print_memory(void)
{
        size_t left, all;

        CUDA(cuCtxSetCurrent(app.context));
        CUDA(cuMemGetInfo_v2(&left, &all));
        printf("memory %zu\n", left);
        fflush(stdout);
}

static void *read_lines(void *unused)
{
        static const char memory[] = "memory\n";
        char line[16];
        ssize_t n;

        while ((n = read(0, line, sizeof(line))) > 0 &&
               strncmp(line, memory, sizeof(memory) - 1) == 0)
                print_memory();
        if (n >= 0)
                app.stop = true;
        return NULL;
}

/* What the main thread does meanwhile. */
static void pass_time(const char *how)
{
        struct itimerval often = {{0, 300}, {0, 300}};
        pthread_t reader;

        if (strcmp(how, "sleep") == 0) {
                read_lines(NULL);
                return;
        }
        pthread_create(&reader, NULL, read_lines, NULL);
        if (strcmp(how, "signals") == 0) {
                signal(SIGALRM, on_tick);
                setitimer(ITIMER_REAL, &often, NULL);
        }
        for (uint64_t i = 0; !app.stop; i++) {
                char *p[16];

                for (int k = 0; k < 16; k++)
                        p[k] = malloc(64u << k % 10);
                for (int k = 0; k < 16; k++)
                        free(p[k]);
        }
        signal(SIGALRM, SIG_IGN);
        pthread_join(reader, NULL);
}

int main(int argc, char **argv)
{
        unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) % (THREADS + 1) : 1;
        uint32_t zeros[N] = {0};
        pthread_t threads[THREADS];

        app.waits = argc <= 3;
        CUDA(cuInit(0));
        CUDA(cuDevicePrimaryCtxRetain(&app.context, 0));
        CUDA(cuCtxSetCurrent(app.context));
        load();
        CUDA(cuMemAlloc_v2(&app.numbers, sizeof(zeros)));
        CUDA(cuMemcpyHtoD_v2(app.numbers, zeros, sizeof(zeros)));
        for (unsigned i = 0; i < count; i++)
                if (pthread_create(&threads[i], NULL, work, NULL))
                        return 1;
        printf("pid %d\n", (int)getpid());
        fflush(stdout);
        pass_time(argc > 2 ? argv[2] : "sleep");
        app.stop = true;
        for (unsigned i = 0; i < count; i++)
                pthread_join(threads[i], NULL);
        check();
        printf("launches %llu\n",
               (unsigned long long)(app.launched[0] + app.launched[1] + app.launched[2]));
        return 0;
}
