/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The simulated driver. Every test runs in a process of its own, because the
 * driver reads its environment in cuInit; `argv[1]` is the library to inject.
 */
#include <dlfcn.h>
#include <lz4.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "device/device_abi.h"
#include "simcuda/cuda.h"
#include "simcuda/sim_config.h"
#include "test.h"

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)

/*
 * stamp: appends {gridid, start, end, tag} to a list; spins between start and end, and
 * as long as the list holds it: kernels up to that tag. How many have begun is counted.
 */
static const char ptx[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .global .align 8 .u64 counter = 5;\n"
        ".visible .entry stamp(.param .u64 p, .param .u64 tag, .param .u64 spin)\n"
        "{\n"
        ".reg .b64 %rd<12>; .reg .pred %p, %held;\n"
        "ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [tag]; ld.param.u64 %rd3, [spin];\n"
        "mov.u64 %rd4, %globaltimer; mov.u64 %rd5, %gridid;\n"
        "red.sys.global.add.u64 [%rd1+8], 1;\n"
        "hold: ld.volatile.global.u64 %rd10, [%rd1+16]; setp.lt.u64 %held, %rd2, %rd10;\n"
        "@%held bra hold;\n"
        "look: mov.u64 %rd6, %globaltimer; sub.u64 %rd7, %rd6, %rd4; setp.lt.u64 %p, %rd7, %rd3;\n"
        "@%p bra look;\n"
        "atom.sys.global.add.u64 %rd8, [%rd1], 1;\n"
        "mad.lo.u64 %rd9, %rd8, 32, %rd1;\n"
        "st.global.v2.u64 [%rd9+32], {%rd5, %rd4}; st.global.v2.u64 [%rd9+48], {%rd6, %rd2};\n"
        "ret;\n"
        "}\n"
        ".visible .entry poke(.param .u64 p) { .reg .b64 %rd; ld.param.u64 %rd, [p]; "
        "st.global.u32 [%rd], 1; ret; }\n"
        ".visible .entry big(.param .align 8 .b8 s[512], .param .u64 out) { .reg .b64 %rd<3>; "
        "ld.param.u64 %rd0, [s+504]; ld.param.u64 %rd1, [out]; st.global.u64 [%rd1], %rd0; ret; }\n"
        ".visible .entry records(.param .u64 p, .param .u32 n) { .reg .b64 %rd<3>; .reg .b32 "
        "%r<3>; "
        ".reg .pred %q; ld.param.u64 %rd0, [p]; ld.param.u32 %r0, [n]; mov.u32 %r1, 0;\n"
        "more: setp.ge.u32 %q, %r1, %r0; @%q ret; st.global.v2.u64 [%rd0], {1, 2}; "
        "st.global.v2.u64 "
        "[%rd0+16], {3, 4}; add.u64 %rd0, %rd0, 32; add.u32 %r1, %r1, 1; bra more; }\n";

struct stamp {
        uint64_t gridid, start, end, tag;
};

struct list {
        uint64_t count;
        uint64_t begun;
        uint64_t held; /* kernels whose tag is less */
        uint64_t pad;
        struct stamp stamps[100000];
};

static CUcontext context;
static CUmodule module;
static CUfunction stamp;
static struct list *list;

static void open_device(void)
{
        CUdeviceptr address;

        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&context, 0));
        OK(cuCtxSetCurrent(context));
        OK(cuModuleLoadData(&module, ptx));
        OK(cuModuleGetFunction(&stamp, module, "stamp"));
        OK(cuMemAllocHost_v2((void **)&list, sizeof(*list)));
        OK(cuMemHostGetDevicePointer_v2(&address, list, 0));
        CHECK_EQ(address, (CUdeviceptr)(uintptr_t)list);
        memset(list, 0, sizeof(*list));
}

static CUresult launch_spin(CUstream stream, uint64_t tag, uint64_t spin_ns)
{
        void *params[] = {&list, &tag, &spin_ns};

        return cuLaunchKernel(stamp, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

static void launch(CUstream stream, uint64_t tag)
{
        OK(launch_spin(stream, tag, 0));
}

static uint64_t last_gridid(void)
{
        OK(cuCtxSynchronize());
        return list->stamps[list->count - 1].gridid;
}

static const struct stamp *find_tag(uint64_t tag)
{
        for (uint64_t i = 0; i < list->count; i++) {
                if (list->stamps[i].tag == tag)
                        return &list->stamps[i];
        }
        CHECK(!"the kernel left its stamp");
        return NULL;
}

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* ---- grid ids: what was measured on the real device ---- */

static void test_gridids(void)
{
        static uint8_t host[1 << 20];
        CUdeviceptr x, y;

        open_device();
        OK(cuMemAlloc_v2(&x, 64 << 20));
        OK(cuMemAlloc_v2(&y, 64 << 20));
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 1);
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 2);
        OK(cuMemsetD32_v2(x, 5, 16 << 20));
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 4);
        OK(cuMemsetD8_v2(x + 1, 5, 1001));
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 5);
        OK(cuMemcpyDtoD_v2(x, y, 64 << 20));
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 7);
        OK(cuMemcpyHtoD_v2(x, host, sizeof(host)));
        OK(cuMemcpyDtoH_v2(host, x, sizeof(host)));
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 8);
        OK(cuMemsetD2D32_v2(x, 256, 1, 31, 100));
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 10);
        /* A launch that is refused takes none. */
        CHECK_EQ(cuLaunchKernel(stamp, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL),
                 CUDA_ERROR_INVALID_VALUE);
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 11);
}

static void test_graph(void)
{
        CUgraphExec exec;
        CUgraph graph;
        CUstream stream;
        CUgraphNode nodes[8];
        size_t count = 8;
        int status, type;

        open_device();
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        launch(stream, 100);
        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        OK(cuStreamIsCapturing(stream, &status));
        CHECK_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
        for (uint64_t i = 0; i < 3; i++)
                launch(stream, i);
        CHECK_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        OK(cuStreamEndCapture(stream, &graph));
        OK(cuGraphGetNodes(graph, nodes, &count));
        CHECK_EQ(count, 3);
        OK(cuGraphNodeGetType(nodes[2], &type));
        CHECK_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
        OK(cuCtxSynchronize());
        CHECK_EQ(list->count, 1); /* capturing runs nothing */
        launch(stream, 101);      /* id 2 */
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphDestroy(graph));
        launch(stream, 102); /* id 7: one was skipped, three went to the nodes */
        CHECK_EQ(last_gridid(), 7);
        for (int replay = 0; replay < 3; replay++) {
                uint64_t before = list->count;

                OK(cuGraphLaunch(exec, stream));
                OK(cuStreamSynchronize(stream));
                CHECK_EQ(list->count, before + 3);
                for (uint64_t i = 0; i < 3; i++) {
                        CHECK_EQ(list->stamps[before + i].gridid, 4 + i);
                        CHECK_EQ(list->stamps[before + i].tag, i);
                }
                launch(stream, 103);
                CHECK_EQ(last_gridid(), (uint64_t)(8 + replay));
        }
        OK(cuGraphExecDestroy(exec));
        CHECK_EQ(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_HANDLE);
}

static void test_graph_by_hand(void)
{
        CUDA_KERNEL_NODE_PARAMS params = {.gridDimX = 1,
                                          .gridDimY = 1,
                                          .gridDimZ = 1,
                                          .blockDimX = 1,
                                          .blockDimY = 1,
                                          .blockDimZ = 1};
        CUDA_MEMSET_NODE_PARAMS set = {.value = 7, .elementSize = 4, .width = 4, .height = 1};
        CUDA_GRAPH_INSTANTIATE_PARAMS instantiate = {0};
        uint64_t tag = 9, spin = 0;
        void *values[] = {&list, &tag, &spin};
        CUgraphNode first, second, wrong = (CUgraphNode)&set;
        CUgraphExec exec;
        CUgraph graph;
        uint32_t out[4] = {0};

        open_device();
        OK(cuMemAlloc_v2(&set.dst, 16));
        params.func = stamp;
        params.kernelParams = values;
        OK(cuGraphCreate(&graph, 0));
        OK(cuGraphAddKernelNode(&first, graph, NULL, 0, &params));
        OK(cuGraphAddMemsetNode(&second, graph, &first, 1, &set, context));
        CHECK_EQ(cuGraphAddEmptyNode(&second, graph, &wrong, 1), CUDA_ERROR_INVALID_VALUE);
        OK(cuGraphInstantiateWithParams(&exec, graph, &instantiate));
        tag = 10; /* parameters were copied */
        OK(cuGraphLaunch(exec, NULL));
        OK(cuMemcpyDtoH_v2(out, set.dst, 16));
        CHECK_EQ(list->stamps[0].tag, 9);
        CHECK(out[0] == 7 && out[3] == 7);
}

/* Two streams in one capture, joined by events. */
static void test_capture_fork(void)
{
        CUgraphExec exec;
        CUgraph graph;
        CUstream a, b;
        CUevent fork, join;
        size_t count = 0;

        open_device();
        OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
        OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&fork, 0));
        OK(cuEventCreate(&join, 0));
        OK(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
        launch(a, 1);
        OK(cuEventRecord(fork, a));
        OK(cuStreamWaitEvent(b, fork, 0));
        launch(b, 2);
        CHECK_EQ(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        OK(cuEventRecord(join, b));
        OK(cuStreamWaitEvent(a, join, 0));
        launch(a, 3);
        CHECK_EQ(cuEventQuery(join), CUDA_ERROR_CAPTURED_EVENT);
        OK(cuStreamEndCapture(a, &graph));
        OK(cuGraphGetNodes(graph, NULL, &count));
        CHECK_EQ(count, 3);
        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphLaunch(exec, a));
        OK(cuStreamSynchronize(a));
        CHECK_EQ(list->count, 3);
        launch(b, 4); /* no longer capturing */
        OK(cuCtxSynchronize());
        CHECK_EQ(list->count, 4);
}

static CUstream other_stream;

static void *alloc_elsewhere(void *argument)
{
        CUdeviceptr p;

        OK(cuCtxSetCurrent(context));
        return (void *)(intptr_t)cuMemAlloc_v2(&p, 64);
}

static CUresult alloc_in_other_thread(void)
{
        pthread_t thread;
        void *result;

        CHECK_EQ(pthread_create(&thread, NULL, alloc_elsewhere, NULL), 0);
        CHECK_EQ(pthread_join(thread, &result), 0);
        return (CUresult)(intptr_t)result;
}

/* What a capture forbids, to whom, and how a thread exempts itself. */
static void test_capture_modes(void)
{
        CUstream stream;
        CUgraph graph;
        CUdeviceptr p;
        int mode;

        open_device();
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        OK(cuStreamCreate(&other_stream, CU_STREAM_DEFAULT));
        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        CHECK_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
        OK(cuMemAlloc_v2(&p, 64));
        OK(cuMemFree_v2(p));
        OK(cuThreadExchangeStreamCaptureMode(&mode));
        launch(stream, 1);
        OK(cuStreamEndCapture(stream, &graph));

        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CHECK_EQ(alloc_in_other_thread(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        OK(cuStreamIsCapturing(stream, &mode));
        CHECK_EQ(mode, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
        CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        OK(alloc_in_other_thread());
        CHECK_EQ(cuMemAlloc_v2(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CHECK_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

        OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        OK(cuMemAlloc_v2(&p, 64));
        launch(NULL, 2); /* a non-blocking stream has nothing to do with the legacy one */
        OK(cuStreamEndCapture(stream, &graph));

        OK(cuStreamBeginCapture_v2(other_stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CHECK_EQ(launch_spin(NULL, 3, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        CHECK_EQ(cuStreamEndCapture(other_stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        launch(NULL, 4);
        OK(cuCtxSynchronize());
}

/* ---- order ---- */

struct thread {
        pthread_t id;
        unsigned index;
};

#define THREADS  4
#define LAUNCHES 5000

static void *launch_many(void *argument)
{
        struct thread *t = argument;
        CUstream stream;

        OK(cuCtxSetCurrent(context));
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (uint64_t i = 0; i < LAUNCHES; i++)
                launch(stream, (uint64_t)t->index << 32 | i);
        OK(cuStreamSynchronize(stream));
        OK(cuStreamDestroy_v2(stream));
        return NULL;
}

/* Every id once, none missing, and each stream's in the order of its launches. */
static void test_threads(void)
{
        static uint64_t tags[THREADS * LAUNCHES + 1];
        struct thread threads[THREADS];
        uint64_t next[THREADS] = {0};

        open_device();
        for (unsigned i = 0; i < THREADS; i++) {
                threads[i].index = i;
                CHECK_EQ(pthread_create(&threads[i].id, NULL, launch_many, &threads[i]), 0);
        }
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(threads[i].id, NULL);
        CHECK_EQ(list->count, THREADS * LAUNCHES);
        for (uint64_t i = 0; i < list->count; i++) {
                const struct stamp *s = &list->stamps[i];

                CHECK(s->gridid >= 1 && s->gridid <= THREADS * LAUNCHES);
                CHECK_EQ(tags[s->gridid], 0);
                tags[s->gridid] = s->tag + 1;
        }
        for (uint64_t id = 1; id <= THREADS * LAUNCHES; id++) {
                uint64_t tag = tags[id] - 1;

                CHECK_EQ(tag & 0xffffffff, next[tag >> 32]++);
        }
}

#define SPIN_NS 20000000ULL

static void hold_below(uint64_t tag)
{
        __atomic_store_n(&list->held, tag, __ATOMIC_SEQ_CST);
}

static void wait_until_begun(uint64_t count)
{
        while (__atomic_load_n(&list->begun, __ATOMIC_SEQ_CST) < count)
                usleep(1000);
}

static void test_streams_overlap(void)
{
        CUstream a, b;
        const struct stamp *first, *second;

        open_device();
        OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
        OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
        hold_below(3);
        launch(a, 1);
        launch(b, 2);
        launch(a, 3);
        CHECK_EQ(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
        wait_until_begun(2);
        hold_below(0);
        OK(cuCtxSynchronize());
        OK(cuStreamQuery(a));
        first = find_tag(1);
        second = find_tag(2);
        CHECK(first->start < second->end && second->start < first->end);
        CHECK(find_tag(3)->start >= first->end);
}

static void test_legacy_stream(void)
{
        CUstream blocking, free_running;

        open_device();
        OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
        OK(cuStreamCreate(&free_running, CU_STREAM_NON_BLOCKING));
        hold_below(2);
        launch(blocking, 1);
        OK(launch_spin(NULL, 2, SPIN_NS));
        launch(blocking, 3);
        launch(free_running, 4);
        OK(cuStreamSynchronize(free_running));
        CHECK_EQ(list->count, 1);
        hold_below(0);
        OK(cuCtxSynchronize());
        CHECK(find_tag(2)->start >= find_tag(1)->end);
        CHECK(find_tag(3)->start >= find_tag(2)->end);
        CHECK(find_tag(4)->start < find_tag(2)->end);
        /* Per-thread streams are blocking streams. */
        OK(launch_spin(CU_STREAM_PER_THREAD, 5, SPIN_NS));
        OK(launch_spin(CU_STREAM_LEGACY, 6, 0));
        OK(cuStreamSynchronize(NULL));
        CHECK(find_tag(6)->start >= find_tag(5)->end);
}

static void test_events(void)
{
        CUstream a, b;
        CUevent before, after, untimed;
        float ms;

        open_device();
        OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
        OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
        OK(cuEventCreate(&before, 0));
        OK(cuEventCreate(&after, CU_EVENT_BLOCKING_SYNC));
        OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
        OK(cuEventQuery(before)); /* never recorded: complete */
        CHECK_EQ(cuEventElapsedTime(&ms, before, after), CUDA_ERROR_INVALID_HANDLE);
        hold_below(2);
        OK(cuEventRecord(before, a));
        OK(launch_spin(a, 1, SPIN_NS));
        OK(cuEventRecord(after, a));
        CHECK_EQ(cuEventQuery(after), CUDA_ERROR_NOT_READY);
        CHECK_EQ(cuEventElapsedTime(&ms, before, after), CUDA_ERROR_NOT_READY);
        OK(cuStreamWaitEvent(b, after, 0));
        launch(b, 2);
        OK(cuEventRecord(untimed, b));
        hold_below(0);
        OK(cuEventSynchronize(untimed));
        CHECK(find_tag(2)->start >= find_tag(1)->end);
        OK(cuEventElapsedTime(&ms, before, after));
        CHECK(ms >= 20.0f && ms < 20000.0f);
        CHECK_EQ(cuEventElapsedTime(&ms, before, untimed), CUDA_ERROR_INVALID_HANDLE);
        OK(cuEventDestroy_v2(before));
        CHECK_EQ(cuEventQuery(before), CUDA_ERROR_INVALID_HANDLE);
}

/* A stream's queue is finite: a launch then waits, and nothing is lost. */
static void test_full_queue(void)
{
        CUstream stream;

        setenv("GPUOBS_SIM_QUEUE", "4", 1);
        open_device();
        OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        for (uint64_t i = 0; i < 100; i++)
                OK(launch_spin(stream, i, 10000));
        OK(cuStreamDestroy_v2(stream)); /* its work goes on */
        CHECK_EQ(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
        OK(cuCtxSynchronize());
        CHECK_EQ(list->count, 100);
        for (uint64_t i = 0; i < 100; i++)
                CHECK_EQ(list->stamps[i].gridid, i + 1);
}

static void count_call(void *data)
{
        *(uint64_t *)data = list->count;
}

static void test_host_function(void)
{
        uint64_t seen = 0;

        open_device();
        OK(launch_spin(NULL, 1, 1000000));
        OK(cuLaunchHostFunc(NULL, count_call, &seen));
        OK(cuStreamSynchronize(NULL));
        CHECK_EQ(seen, 1);
}

/* ---- the clock ---- */

static void test_clock(void)
{
        struct sim_config config;

        setenv("GPUOBS_SIM_CLOCK_OFFSET_NS", "123456789012345678", 1);
        setenv("GPUOBS_SIM_CLOCK_DRIFT_PPM", "40", 1);
        open_device();
        sim_config_load(&config);
        for (uint64_t i = 0; i < 200; i++) {
                uint64_t before = sim_raw_ns(), after;

                OK(launch_spin(NULL, i, 1000));
                OK(cuStreamSynchronize(NULL));
                after = sim_raw_ns();
                CHECK_EQ(list->stamps[i].start % 32, 0);
                CHECK(list->stamps[i].start >= sim_clock_device_ns(&config, before));
                CHECK(list->stamps[i].end <= sim_clock_device_ns(&config, after));
                CHECK(list->stamps[i].end - list->stamps[i].start >= 1000);
        }
        /* 40 ppm of 10 s are 400 us. */
        CHECK(llabs((int64_t)(sim_clock_device_ns(&config, 11000000000) -
                              sim_clock_device_ns(&config, 1000000000)) -
                    10000400000) <= 64);
}

static void test_jitter(void)
{
        uint64_t backwards = 0;

        setenv("GPUOBS_SIM_CLOCK_JITTER_NS", "100000", 1);
        open_device();
        for (uint64_t i = 0; i < 500; i++)
                launch(NULL, i);
        OK(cuCtxSynchronize());
        for (uint64_t i = 1; i < 500; i++)
                backwards += list->stamps[i].start < list->stamps[i - 1].start;
        CHECK(backwards > 0);
}

/* An instruction of a slow device takes its time, and the clock shows it. */
static void test_slow_device(void)
{
        setenv("GPUOBS_SIM_INSTRUCTION_NS", "100000", 1);
        setenv("GPUOBS_SIM_START_DELAY_NS", "3000000", 1);
        open_device();
        {
                struct sim_config config;
                uint64_t before = now_ns(), raw = sim_raw_ns();

                launch(NULL, 0);
                OK(cuCtxSynchronize());
                sim_config_load(&config);
                /* The delay is of the other clock, which may be 0.1 % faster. */
                CHECK(list->stamps[0].start >= sim_clock_device_ns(&config, raw + 2997000));
                /* gridid, two reads of the timer, sub, setp, bra: at least two instructions */
                CHECK(list->stamps[0].end - list->stamps[0].start >= 200000);
                CHECK(now_ns() - before >= 3000000 + 10 * 100000);
        }
}

/* ---- chosen faults ---- */

static void test_failing_load(void)
{
        char log[200] = "";
        int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
        void *values[] = {log, (void *)sizeof(log)};
        CUlibrary library;
        CUmodule m;

        setenv("GPUOBS_SIM_FAIL_LOAD", "2", 1);
        open_device();
        CHECK_EQ(cuModuleLoadDataEx(&m, ptx, 2, options, values), CUDA_ERROR_INVALID_PTX);
        CHECK(log[0] != '\0');
        OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
        /* Without a choice the log says what is wrong with the text. */
        CHECK_EQ(
                cuModuleLoadDataEx(&m, ".version 8.0\n.target sm_90\n.bogus\n", 2, options, values),
                CUDA_ERROR_INVALID_PTX);
        CHECK(strstr(log, "line 3") && strstr(log, "bogus"));
}

static void test_failing_launch(void)
{
        setenv("GPUOBS_SIM_FAIL_LAUNCH", "/3", 1);
        open_device();
        for (int i = 1; i <= 9; i++)
                CHECK_EQ(launch_spin(NULL, (uint64_t)i, 0),
                         i % 3 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
        OK(cuCtxSynchronize());
        CHECK_EQ(list->count, 6);
        CHECK_EQ(last_gridid(), 6); /* failures took none */
}

static void test_failing_alloc(void)
{
        CUdeviceptr p;

        setenv("GPUOBS_SIM_FAIL_ALLOC", "2+", 1);
        open_device();
        OK(cuMemAlloc_v2(&p, 100));
        CHECK_EQ(cuMemAlloc_v2(&p, 100), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQ(cuMemAllocManaged(&p, 100, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
}

/* Records of the start/end map are lost whole; other memory loses nothing. */
static void lost_records(const char *name, uint64_t *ret_whole, uint64_t *ret_torn)
{
        const uint64_t *map, *other;
        CUfunction records;
        unsigned n = 100;
        void *p, *params[] = {&p, &n};

        setenv(name, "/10", 1);
        open_device();
        OK(cuModuleGetFunction(&records, module, "records"));
        map = p = mmap((void *)DEVICE_RING_ADDRESS, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        CHECK(p != MAP_FAILED);
        OK(cuMemHostRegister_v2(p, DEVICE_RING_BYTES, CU_MEMHOSTREGISTER_DEVICEMAP));
        OK(cuLaunchKernel(records, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        OK(cuCtxSynchronize());
        OK(cuMemAllocHost_v2(&p, 3200));
        memset(p, 0, 3200);
        OK(cuLaunchKernel(records, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        OK(cuCtxSynchronize());
        other = p;
        *ret_whole = *ret_torn = 0;
        for (unsigned i = 0; i < 4 * n; i += 4) {
                CHECK(other[i] == 1 && other[i + 3] == 4);
                *ret_whole += map[i] == 0 && map[i + 3] == 0;
                *ret_torn += (map[i] == 0) != (map[i + 3] == 0);
        }
}

static void test_lost_records(void)
{
        uint64_t whole, torn;

        lost_records("GPUOBS_SIM_DROP_RECORDS", &whole, &torn);
        CHECK_EQ(whole, 10);
        CHECK_EQ(torn, 0);
}

static void test_lost_stores(void)
{
        uint64_t whole, torn;

        lost_records("GPUOBS_SIM_DROP_STORES", &whole, &torn);
        CHECK_EQ(whole, 0);
        CHECK_EQ(torn, 20);
}

/* A bad access is an error of the context that stays, not a crash. */
static void test_illegal_address(void)
{
        CUdeviceptr p;
        CUfunction poke;
        void *params[] = {&p};
        CUcontext second;

        open_device();
        OK(cuModuleGetFunction(&poke, module, "poke"));
        OK(cuMemAlloc_v2(&p, 100));
        OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        OK(cuCtxSynchronize());
        p += 100; /* just past the end */
        OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        CHECK_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_EQ(launch_spin(NULL, 1, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
        CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
        OK(cuCtxCreate_v2(&second, 0, 0));
        OK(cuMemAlloc_v2(&p, 1));
        CHECK_EQ(list->count, 0);
}

/* ---- images ---- */

struct entry {
        uint16_t kind, version;
        uint32_t header_bytes;
        uint64_t payload_bytes;
        uint32_t compressed_bytes, reserved;
        uint16_t minor, major;
        uint32_t arch, name_offset, name_bytes;
        uint64_t flags, reserved2, uncompressed_bytes;
};

struct builder {
        uint8_t bytes[65536];
        size_t size;
};

static void start_container(struct builder *b)
{
        static const uint8_t head[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};

        memcpy(b->bytes, head, sizeof(head));
        b->size = sizeof(head);
}

static void add_entry(struct builder *b, uint16_t kind, uint32_t arch, uint64_t flags,
                      const void *payload, size_t bytes, size_t uncompressed)
{
        struct entry e = {.kind = kind,
                          .version = 0x101,
                          .header_bytes = 80,
                          .payload_bytes = (bytes + 7) & ~7ULL,
                          .compressed_bytes = flags ? (uint32_t)bytes : 0,
                          .arch = arch,
                          .flags = flags,
                          .uncompressed_bytes = flags ? uncompressed : 0};
        uint64_t total;

        CHECK(b->size + 80 + e.payload_bytes < sizeof(b->bytes));
        memset(b->bytes + b->size, 0, 80 + e.payload_bytes);
        memcpy(b->bytes + b->size, &e, sizeof(e));
        memcpy(b->bytes + b->size + 80, payload, bytes);
        b->size += 80 + e.payload_bytes;
        total = b->size - 16;
        memcpy(b->bytes + 8, &total, sizeof(total));
}

static void check_loads(const struct builder *b)
{
        struct {
                uint32_t magic, version;
                const void *container, *unused;
        } wrapper = {0x466243b1, 1, b->bytes, NULL};
        CUfunction f;
        CUmodule m;

        OK(cuModuleLoadData(&m, b->bytes));
        OK(cuModuleGetFunction(&f, m, "stamp"));
        OK(cuModuleUnload(m));
        OK(cuModuleLoadFatBinary(&m, &wrapper));
        OK(cuModuleGetFunction(&f, m, "stamp"));
        OK(cuModuleUnload(m));
}

static void test_fatbins(void)
{
        static struct builder b;
        static char packed[8192];
        static const char newer[] = ".version 8.0\n.target sm_100\n";
        static const char older[] = ".version 6.0\n.target sm_50\n.address_size 64\n";
        static const uint8_t elf[64] = {0x7f, 'E', 'L', 'F'};
        size_t n;
        CUmodule m;

        open_device();
        start_container(&b);
        add_entry(&b, 2, 90, 0, elf, sizeof(elf), 0);
        CHECK_EQ(cuModuleLoadData(&m, b.bytes), CUDA_ERROR_NO_BINARY_FOR_GPU);
        CHECK_EQ(cuModuleLoadData(&m, elf), CUDA_ERROR_NO_BINARY_FOR_GPU);
        add_entry(&b, 1, 100, 0, newer, sizeof(newer), 0);
        CHECK_EQ(cuModuleLoadData(&m, b.bytes), CUDA_ERROR_NO_BINARY_FOR_GPU);
        add_entry(&b, 1, 50, 0, older, sizeof(older), 0);
        add_entry(&b, 1, 90, 0, ptx, sizeof(ptx), 0);
        check_loads(&b);

        start_container(&b);
        n = ZSTD_compress(packed, sizeof(packed), ptx, sizeof(ptx), 3);
        CHECK(!ZSTD_isError(n));
        add_entry(&b, 1, 80, 0x8000, packed, n, sizeof(ptx));
        check_loads(&b);
        b.bytes[16 + 80 + 20] ^= 0xff;
        CHECK_EQ(cuModuleLoadData(&m, b.bytes), CUDA_ERROR_INVALID_IMAGE);

        start_container(&b);
        n = (size_t)LZ4_compress_default(ptx, packed, sizeof(ptx), sizeof(packed));
        CHECK(n > 0);
        add_entry(&b, 1, 80, 0x2000, packed, n, sizeof(ptx));
        check_loads(&b);
        memset(b.bytes + 16 + 4, 0xff, 4); /* a header larger than the container */
        CHECK_EQ(cuModuleLoadData(&m, b.bytes), CUDA_ERROR_INVALID_IMAGE);
        CHECK_EQ(cuModuleLoadData(&m, "hello"), CUDA_ERROR_INVALID_IMAGE);
        CHECK_EQ(cuModuleLoad(&m, "/nonexistent"), CUDA_ERROR_FILE_NOT_FOUND);
}

/* ---- code and parameters ---- */

static void test_library(void)
{
        char file[] = "/tmp/simcuda-XXXXXX";
        int fd = mkstemp(file), value;
        CUlibrary library;
        CUkernel kernels[8], kernel;
        CUfunction f;
        CUmodule m;
        const char *name;
        unsigned count;
        size_t offset, bytes;
        CUdeviceptr address;
        uint64_t counter;

        CHECK(fd >= 0 && write(fd, ptx, sizeof(ptx) - 1) == sizeof(ptx) - 1);
        close(fd);
        open_device();
        OK(cuLibraryLoadFromFile(&library, file, NULL, NULL, 0, NULL, NULL, 0));
        unlink(file);
        OK(cuLibraryGetKernelCount(&count, library));
        CHECK_EQ(count, 4);
        OK(cuLibraryEnumerateKernels(kernels, 8, library));
        OK(cuLibraryGetKernel(&kernel, library, "big"));
        CHECK_EQ(cuLibraryGetKernel(&kernel, library, "none"), CUDA_ERROR_NOT_FOUND);
        OK(cuKernelGetName(&name, kernel));
        CHECK_STR(name, "big");
        OK(cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
        CHECK(offset == 512 && bytes == 8);
        CHECK_EQ(cuKernelGetParamInfo(kernel, 2, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
        OK(cuKernelGetFunction(&f, kernel));
        OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f));
        CHECK_EQ(value, 1024);
        OK(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 200000, kernel,
                                0));
        OK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, f));
        CHECK_EQ(value, 200000);
        CHECK_EQ(cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_NUM_REGS, 3), CUDA_ERROR_INVALID_VALUE);
        OK(cuLibraryGetModule(&m, library));
        OK(cuModuleGetGlobal_v2(&address, &bytes, m, "counter"));
        CHECK_EQ(bytes, 8);
        OK(cuMemcpyDtoH_v2(&counter, address, 8));
        CHECK_EQ(counter, 5);
        OK(cuLibraryUnload(library));
        CHECK_EQ(cuLibraryGetKernelCount(&count, library), CUDA_ERROR_INVALID_HANDLE);
}

/* Parameters that do not fit the queue's slots, given in both ways, by kernel handle too. */
static void test_large_parameters(void)
{
        uint64_t s[64] = {0}, out;
        CUdeviceptr p;
        CUlibrary library;
        CUkernel kernel;
        struct {
                uint64_t s[64];
                CUdeviceptr p;
        } buffer;
        size_t bytes = sizeof(buffer);
        void *params[] = {s, &p};
        void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
                         &bytes, CU_LAUNCH_PARAM_END};
        CUlaunchConfig config = {.gridDimX = 1,
                                 .gridDimY = 1,
                                 .gridDimZ = 1,
                                 .blockDimX = 1,
                                 .blockDimY = 1,
                                 .blockDimZ = 1};

        open_device();
        OK(cuMemAlloc_v2(&p, 8));
        OK(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
        OK(cuLibraryGetKernel(&kernel, library, "big"));
        s[63] = 12345;
        OK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        s[63] = 0; /* was copied */
        OK(cuMemcpyDtoH_v2(&out, p, 8));
        CHECK_EQ(out, 12345);
        memset(&buffer, 0, sizeof(buffer));
        buffer.s[63] = 777;
        buffer.p = p;
        OK(cuLaunchKernelEx(&config, (CUfunction)kernel, NULL, extra));
        OK(cuMemcpyDtoH_v2(&out, p, 8));
        CHECK_EQ(out, 777);
        bytes = 100;
        CHECK_EQ(cuLaunchKernelEx(&config, (CUfunction)kernel, NULL, extra),
                 CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                 CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(cuLaunchKernel((CUfunction)&config, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL),
                 CUDA_ERROR_INVALID_HANDLE);
        CHECK_EQ(cuLaunchCooperativeKernel(stamp, 100000, 1, 1, 1, 1, 1, 0, NULL, params),
                 CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
}

/* ---- memory ---- */

static void test_memory(void)
{
        static uint8_t page[8192] __attribute__((aligned(4096)));
        uint8_t in[64], out[64];
        CUdeviceptr p, managed, base;
        size_t bytes, free_before, free_after, total;
        int value;

        open_device();
        for (unsigned i = 0; i < sizeof(in); i++)
                in[i] = (uint8_t)i;
        OK(cuMemGetInfo_v2(&free_before, &total));
        OK(cuMemAlloc_v2(&p, 64));
        OK(cuMemGetInfo_v2(&free_after, &total));
        CHECK_EQ(free_before - free_after, 512);
        CHECK_EQ(p % 512, 0);
        OK(cuMemcpyHtoD_v2(p, in, 64));
        OK(cuMemcpyDtoH_v2(out, p, 64));
        CHECK(memcmp(in, out, 64) == 0);
        CHECK_EQ(cuMemcpyHtoD_v2(p + 1, in, 64), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(cuMemcpyHtoD_v2((CUdeviceptr)(uintptr_t)out, in, 64), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemsetD16_v2(p, 0xabcd, 32));
        OK(cuMemcpyDtoH_v2(out, p, 64));
        CHECK(out[0] == 0xcd && out[63] == 0xab);
        CHECK_EQ(cuMemsetD32_v2(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemGetAddressRange_v2(&base, &bytes, p + 10));
        CHECK(base == p && bytes == 64);
        OK(cuMemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL));
        *(uint32_t *)(uintptr_t)managed = 5; /* the CPU may use it */
        OK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_IS_MANAGED, managed));
        CHECK_EQ(value, 1);
        OK(cuMemPrefetchAsync(managed, 4096, 0, NULL));
        CHECK_EQ(cuMemPrefetchAsync(p, 64, 0, NULL), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemHostRegister_v2(page, sizeof(page), CU_MEMHOSTREGISTER_DEVICEMAP));
        CHECK_EQ(cuMemHostRegister_v2(page, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        OK(cuMemHostUnregister(page));
        CHECK_EQ(cuMemHostUnregister(page), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
        CHECK_EQ(cuMemHostRegister_v2((void *)0x10000, 4096, 0), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemFree_v2(p));
        CHECK_EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemFree_v2(0));
        OK(cuMemAllocAsync(&p, 100, CU_STREAM_PER_THREAD));
        OK(cuMemFreeAsync(p, CU_STREAM_PER_THREAD));
        OK(cuCtxSynchronize());
        CHECK_EQ(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
        CHECK_EQ(cuMemAlloc_v2(&p, 9ULL << 30), CUDA_ERROR_OUT_OF_MEMORY);
}

static void test_virtual_memory(void)
{
        CUmemAllocationProp properties = {.type = 1, .location = {1, 0}};
        CUmemAccessDesc access = {.location = {1, 0}, .flags = 3};
        CUmemGenericAllocationHandle handle;
        CUfunction poke;
        CUdeviceptr p;
        void *params[] = {&p};
        uint32_t word = 0;
        size_t granularity;

        open_device();
        OK(cuModuleGetFunction(&poke, module, "poke"));
        OK(cuMemGetAllocationGranularity(&granularity, &properties, 0));
        CHECK_EQ(cuMemAddressReserve(&p, 4096, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
        OK(cuMemAddressReserve(&p, granularity, 0, 0, 0));
        OK(cuMemCreate(&handle, granularity, &properties, 0));
        OK(cuMemMap(p, granularity, 0, handle, 0));
        CHECK_EQ(cuMemsetD8_v2(p, 0, 4), CUDA_ERROR_INVALID_VALUE); /* no access yet */
        OK(cuMemSetAccess(p, granularity, &access, 1));
        OK(cuMemRelease(handle)); /* the mapping keeps it */
        OK(cuMemsetD8_v2(p, 0, granularity));
        OK(cuLaunchKernel(poke, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
        OK(cuMemcpyDtoH_v2(&word, p, 4));
        CHECK_EQ(word, 1);
        OK(cuMemUnmap(p, granularity));
        OK(cuMemAddressFree(p, granularity));
        CHECK_EQ(cuMemcpyDtoH_v2(&word, p, 4), CUDA_ERROR_INVALID_VALUE);
}

/* ---- contexts, devices, initialisation ---- */

static void test_contexts(void)
{
        CUcontext a, b, now;
        CUdevice device;
        unsigned flags;
        int active;
        CUdeviceptr p;

        CHECK_EQ(cuCtxGetCurrent(&now), CUDA_ERROR_NOT_INITIALIZED);
        OK(cuInit(0));
        CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
        OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
        CHECK_EQ(active, 0);
        OK(cuDevicePrimaryCtxRetain(&a, 0));
        OK(cuDevicePrimaryCtxRetain(&b, 0));
        CHECK(a == b);
        CHECK_EQ(cuDevicePrimaryCtxRetain(&b, 1), CUDA_ERROR_INVALID_DEVICE);
        OK(cuCtxGetCurrent(&now));
        CHECK(now == NULL);
        OK(cuCtxPushCurrent_v2(a));
        OK(cuCtxCreate_v4(&b, NULL, 0, 0));
        OK(cuCtxGetCurrent(&now));
        CHECK(now == b);
        OK(cuCtxPopCurrent_v2(&now));
        CHECK(now == b);
        OK(cuCtxGetDevice(&device));
        CHECK_EQ(device, 0);
        OK(cuCtxDestroy_v2(b));
        CHECK_EQ(cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_CONTEXT); /* primary */
        OK(cuDevicePrimaryCtxRelease_v2(0));
        OK(cuMemAlloc_v2(&p, 1));
        OK(cuDevicePrimaryCtxRelease_v2(0));
        CHECK_EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
        CHECK_EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

static void test_device(void)
{
        char name[64];
        const char *error;
        CUuuid uuid;
        void *function, *per_thread;
        int value, status;
        size_t bytes;

        setenv("GPUOBS_SIM_DEVICES", "2", 1);
        OK(cuInit(0));
        OK(cuDeviceGetCount(&value));
        CHECK_EQ(value, 2);
        OK(cuDeviceGetName(name, sizeof(name), 0));
        CHECK_STR(name, "gpuobs simulated GPU");
        OK(cuDeviceGetUuid_v2(&uuid, 1));
        CHECK(memcmp(uuid.bytes, "gpuobs-simulate1", 16) == 0);
        OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0));
        CHECK_EQ(value, 9);
        OK(cuDeviceTotalMem_v2(&bytes, 0));
        CHECK_EQ(bytes, 8ULL << 30);
        OK(cuGetErrorName(CUDA_ERROR_ILLEGAL_ADDRESS, &error));
        CHECK_STR(error, "CUDA_ERROR_ILLEGAL_ADDRESS");
        CHECK_EQ(cuGetErrorName(12345, &error), CUDA_ERROR_INVALID_VALUE);
        OK(cuGetProcAddress_v2("cuMemAlloc", &function, 13000, 0, &status));
        CHECK(function == (void *)cuMemAlloc_v2 && status == 0);
        OK(cuGetProcAddress_v2("cuLaunchKernel", &per_thread, 13000, 2, &status));
        CHECK(per_thread == (void *)cuLaunchKernel_ptsz);
        OK(cuGetProcAddress_v2("cuCtxCreate", &function, 11000, 0, &status));
        CHECK(function == (void *)cuCtxCreate_v2);
        CHECK_EQ(cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status),
                 CUDA_ERROR_NOT_FOUND);
        CHECK_EQ(status, 1);
}

static const char *inject_path;

static void test_injection(void)
{
        int (*result)(void);
        void *library;

        setenv("CUDA_INJECTION64_PATH", inject_path, 1);
        OK(cuInit(0));
        OK(cuInit(0));
        library = dlopen(inject_path, RTLD_NOW | RTLD_NOLOAD);
        CHECK(library != NULL);
        result = (int (*)(void))dlsym(library, "injected_result");
        CHECK(result && result());
}

static void test_missing_injection(void)
{
        setenv("CUDA_INJECTION64_PATH", "/nonexistent/library.so", 1);
        open_device();
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 1);
}

/* A child of a process that uses the driver cannot; it gets errors and can exit. */
static void test_fork(void)
{
        int status;
        pid_t child;

        open_device();
        launch(NULL, 0);
        child = fork();
        CHECK(child >= 0);
        if (child == 0)
                _exit(cuInit(0) == CUDA_ERROR_NOT_INITIALIZED &&
                                      launch_spin(NULL, 0, 0) == CUDA_ERROR_NOT_INITIALIZED
                              ? 0
                              : 1);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        launch(NULL, 0);
        CHECK_EQ(last_gridid(), 2);
}

/* ---- */

static void in_child(const char *name, void (*test)(void))
{
        int status;
        pid_t child;

        fflush(stdout);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                alarm(150);
                test();
                _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "%s failed: wait status %#x\n", name, (unsigned)status);
                exit(1);
        }
        printf("ok %s\n", name);
}
#define CHILD_TEST(f) in_child(#f, f)

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        inject_path = argv[1];
        unsetenv("CUDA_INJECTION64_PATH");
        CHILD_TEST(test_gridids);
        CHILD_TEST(test_graph);
        CHILD_TEST(test_graph_by_hand);
        CHILD_TEST(test_capture_fork);
        CHILD_TEST(test_capture_modes);
        CHILD_TEST(test_threads);
        CHILD_TEST(test_streams_overlap);
        CHILD_TEST(test_legacy_stream);
        CHILD_TEST(test_events);
        CHILD_TEST(test_full_queue);
        CHILD_TEST(test_host_function);
        CHILD_TEST(test_clock);
        CHILD_TEST(test_jitter);
        CHILD_TEST(test_slow_device);
        CHILD_TEST(test_failing_load);
        CHILD_TEST(test_failing_launch);
        CHILD_TEST(test_failing_alloc);
        CHILD_TEST(test_lost_records);
        CHILD_TEST(test_lost_stores);
        CHILD_TEST(test_illegal_address);
        CHILD_TEST(test_fatbins);
        CHILD_TEST(test_library);
        CHILD_TEST(test_large_parameters);
        CHILD_TEST(test_memory);
        CHILD_TEST(test_virtual_memory);
        CHILD_TEST(test_contexts);
        CHILD_TEST(test_device);
        CHILD_TEST(test_injection);
        CHILD_TEST(test_missing_injection);
        CHILD_TEST(test_fork);
        return 0;
}
