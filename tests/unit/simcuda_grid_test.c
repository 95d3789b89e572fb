/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What the simulated driver tells a grid (device_abi.h): grid ids through all the
 * contexts of a device, numbers of contexts, launch descriptors. Every test runs
 * in a process of its own: all of it counts per process.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device_abi.h"
#include "simcuda/cuda.h"
#include "test.h"

#define OK(call) CHECK_EQ(call, CUDA_SUCCESS)
#define NODES    40 /* more than a block has room for */

/* tell: writes down what it is told. */
static const char ptx[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry tell(.param .u64 p)\n{\n.reg .b64 %rd<3>; .reg .b32 %r<2>;\n"
        "ld.param.u64 %rd0, [p]; mov.u64 %rd1, %gridid; ld.param.u64 %rd2, [p+-0x1d8];\n"
        "mov.u32 %r0, %envreg6; mov.u32 %r1, 1;\n"
        "st.global.u64 [%rd0], %rd1; st.global.u64 [%rd0+8], %rd2;\n"
        "st.global.v2.u32 [%rd0+16], {%r0, %r1}; ret;\n}\n";

struct told {
        uint64_t gridid, descriptor;
        uint32_t context, ran;
};

/* One context with the kernel in it, current. */
struct place {
        CUcontext context;
        CUfunction tell;
        CUdeviceptr where;
};

static struct told *told; /* host memory of this process */

static void load(struct place *p)
{
        CUmodule module;

        OK(cuModuleLoadData(&module, ptx));
        OK(cuModuleGetFunction(&p->tell, module, "tell"));
        if (!told)
                OK(cuMemHostAlloc((void **)&told, NODES * sizeof(*told),
                                  CU_MEMHOSTREGISTER_PORTABLE));
        OK(cuMemHostGetDevicePointer_v2(&p->where, told, 0));
}

static struct place open_primary(int device)
{
        struct place p;

        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&p.context, device));
        OK(cuCtxSetCurrent(p.context));
        load(&p);
        return p;
}

static struct place open_created(int device)
{
        struct place p;

        OK(cuCtxCreate_v2(&p.context, 0, device));
        load(&p);
        return p;
}

static void launch(const struct place *p, CUstream stream)
{
        void *params[] = {(void *)(uintptr_t)&p->where};

        OK(cuLaunchKernel(p->tell, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
}

static struct told ask(const struct place *p, CUstream stream)
{
        memset(told, 0, sizeof(*told));
        OK(cuCtxSetCurrent(p->context));
        launch(p, stream);
        OK(cuCtxSynchronize());
        CHECK_EQ(told->ran, 1);
        return *told;
}

static uint64_t block_of(const struct told *t)
{
        return t->descriptor >> 14;
}

static unsigned slot_of(const struct told *t)
{
        return (unsigned)(t->descriptor >> 11 & 7);
}

static void test_ids_grow_through_contexts(void)
{
        struct place first = open_primary(0), second = open_created(0);

        CHECK_EQ(ask(&first, NULL).gridid, 1);
        CHECK_EQ(ask(&second, NULL).gridid, 2);
        CHECK_EQ(ask(&second, NULL).gridid, 3);
        CHECK_EQ(ask(&first, NULL).gridid, 4);
        OK(cuCtxDestroy_v2(second.context));
        CHECK_EQ(ask(&first, NULL).gridid, 5);
}

static void test_ids_count_per_device(void)
{
        struct place first, other;

        setenv("GPUOBS_SIM_DEVICES", "2", 1);
        first = open_primary(0);
        other = open_primary(1);
        CHECK_EQ(ask(&first, NULL).gridid, 1);
        CHECK_EQ(ask(&other, NULL).gridid, 1);
        CHECK_EQ(ask(&other, NULL).gridid, 2);
        CHECK_EQ(ask(&first, NULL).gridid, 2);
        CHECK_EQ(ask(&first, NULL).context, 1);
        CHECK_EQ(ask(&other, NULL).context, 2);
}

static void test_context_numbers(void)
{
        struct place first = open_primary(0), second = open_created(0), third;

        CHECK_EQ(ask(&first, NULL).context, 1);
        CHECK_EQ(ask(&second, NULL).context, 2);
        OK(cuCtxDestroy_v2(second.context));
        third = open_created(0);
        CHECK_EQ(ask(&third, NULL).context, 3);
        CHECK_EQ(ask(&first, NULL).context, 1);
}

static void test_a_stream_takes_eight_in_turn(void)
{
        struct place p = open_primary(0);
        struct told before, now;
        CUstream stream;

        OK(cuStreamCreate(&stream, 0));
        before = ask(&p, stream);
        CHECK_EQ(before.descriptor % 0x800, 0);
        for (int i = 0; i < 20; i++) {
                now = ask(&p, stream);
                CHECK_EQ(block_of(&now), block_of(&before));
                CHECK_EQ(slot_of(&now), (slot_of(&before) + 1) % 8);
                before = now;
        }
}

static void test_streams_have_blocks_of_their_own(void)
{
        struct place p = open_primary(0), second;
        struct told seen[4];
        CUstream a, b;

        OK(cuStreamCreate(&a, 0));
        OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
        seen[0] = ask(&p, NULL);
        seen[1] = ask(&p, a);
        seen[2] = ask(&p, b);
        second = open_created(0);
        seen[3] = ask(&second, NULL);
        for (int i = 0; i < 4; i++)
                for (int j = 0; j < i; j++)
                        CHECK(block_of(&seen[i]) != block_of(&seen[j]));
}

static void test_blocks_are_used_again(void)
{
        struct place p = open_primary(0);
        struct told old, now;
        CUstream stream;

        OK(cuStreamCreate(&stream, 0));
        old = ask(&p, stream);
        OK(cuStreamDestroy_v2(stream));
        OK(cuStreamCreate(&stream, 0));
        now = ask(&p, stream);
        CHECK_EQ(block_of(&now), block_of(&old));
}

static void *ask_per_thread(void *argument)
{
        static struct told answers[2];
        static int n;
        struct told *mine = &answers[n++];
        const struct place *p = argument;

        OK(cuCtxSetCurrent(p->context));
        *mine = ask(p, CU_STREAM_PER_THREAD);
        CHECK_EQ(ask(p, CU_STREAM_PER_THREAD).descriptor >> 14, block_of(mine));
        return mine;
}

static void test_threads_have_streams_of_their_own(void)
{
        struct place p = open_primary(0);
        struct told legacy = ask(&p, NULL), mine = *(struct told *)ask_per_thread(&p), *other;
        pthread_t thread;

        CHECK_EQ(pthread_create(&thread, NULL, ask_per_thread, &p), 0);
        CHECK_EQ(pthread_join(thread, (void **)&other), 0);
        CHECK(block_of(&mine) != block_of(&legacy));
        CHECK(block_of(other) != block_of(&legacy));
        CHECK(block_of(other) != block_of(&mine));
}

/* A graph of NODES kernels, each with a place of its own to write to. */
static CUgraph make_graph(const struct place *p)
{
        CUgraphNode node;
        CUgraph graph;

        OK(cuGraphCreate(&graph, 0));
        for (unsigned i = 0; i < NODES; i++) {
                CUdeviceptr where = p->where + i * sizeof(struct told);
                void *params[] = {&where};
                CUDA_KERNEL_NODE_PARAMS kernel = {.func = p->tell,
                                                  .gridDimX = 1,
                                                  .gridDimY = 1,
                                                  .gridDimZ = 1,
                                                  .blockDimX = 1,
                                                  .blockDimY = 1,
                                                  .blockDimZ = 1,
                                                  .kernelParams = params};

                OK(cuGraphAddKernelNode(&node, graph, NULL, 0, &kernel));
        }
        return graph;
}

static void replay(CUgraphExec exec, struct told ret_told[NODES])
{
        memset(told, 0, NODES * sizeof(*told));
        OK(cuGraphLaunch(exec, NULL));
        OK(cuCtxSynchronize());
        memcpy(ret_told, told, NODES * sizeof(*told));
}

static void test_nodes_keep_theirs(void)
{
        struct told first[NODES], again[NODES], other[NODES], single;
        struct place p = open_primary(0);
        CUgraph graph = make_graph(&p);
        CUgraphExec exec, second;

        OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
        OK(cuGraphInstantiateWithFlags(&second, graph, 0));
        replay(exec, first);
        single = ask(&p, NULL);
        replay(exec, again);
        replay(second, other);
        CHECK_EQ(memcmp(first, again, sizeof(first)), 0);
        CHECK_EQ(single.gridid, 2 * (1 + NODES) + 1); /* one more each */
        for (unsigned i = 0; i < NODES; i++) {
                CHECK_EQ(first[i].ran, 1);
                CHECK_EQ(first[i].context, 1);
                CHECK_EQ(first[i].gridid, 1 + i + 1);
                CHECK_EQ(other[i].gridid, 2 + NODES + i + 1);
                CHECK_EQ(first[i].descriptor, first[0].descriptor + i * 0x200);
                CHECK_EQ(other[i].descriptor, other[0].descriptor + i * 0x200);
                CHECK(block_of(&first[i]) != block_of(&single));
                CHECK(block_of(&first[i]) != block_of(&other[i]));
        }
        OK(cuGraphExecDestroy(exec));
        OK(cuGraphExecDestroy(second));
        OK(cuGraphDestroy(graph));
}

/* What of other work takes an id takes a descriptor of its stream, and nothing else does. */
static void test_other_work(void)
{
        static uint8_t host[1 << 20];
        struct place p = open_primary(0);
        struct told before, now;
        CUdeviceptr x, y;
        CUstream stream;

        OK(cuStreamCreate(&stream, 0));
        OK(cuMemAlloc_v2(&x, 64 << 20));
        OK(cuMemAlloc_v2(&y, 64 << 20));
        before = ask(&p, stream);
        OK(cuMemsetD32Async(x, 5, 16 << 20, stream));
        OK(cuMemcpyDtoDAsync_v2(x, y, 64 << 20, stream));
        now = ask(&p, stream);
        CHECK_EQ(now.gridid, before.gridid + 3);
        CHECK_EQ(slot_of(&now), (slot_of(&before) + 3) % 8);
        before = now;
        OK(cuMemsetD8Async(x + 1, 5, 1001, stream));
        OK(cuMemcpyHtoDAsync_v2(x, host, sizeof(host), stream));
        now = ask(&p, stream);
        CHECK_EQ(now.gridid, before.gridid + 1);
        CHECK_EQ(slot_of(&now), (slot_of(&before) + 1) % 8);
        before = now;
        OK(cuMemsetD32_v2(x, 5, 16 << 20)); /* of another stream */
        now = ask(&p, stream);
        CHECK_EQ(now.gridid, before.gridid + 2);
        CHECK_EQ(slot_of(&now), (slot_of(&before) + 1) % 8);
}

static void test_none(void)
{
        struct place p;
        struct told t;

        setenv("GPUOBS_SIM_GRID_WORDS", "none", 1);
        p = open_primary(0);
        t = ask(&p, NULL);
        CHECK_EQ(t.gridid, 1);
        CHECK_EQ(t.context, 0);
        CHECK_EQ(t.descriptor, 0);
}

static void test_garbled(void)
{
        struct told first, second;
        struct place p;

        setenv("GPUOBS_SIM_GRID_WORDS", "garbled", 1);
        p = open_primary(0);
        first = ask(&p, NULL);
        second = ask(&p, NULL);
        CHECK_EQ(second.gridid, first.gridid + 1);
        CHECK(first.context != second.context);
        CHECK(block_of(&first) != block_of(&second));
}

static void in_child(const char *name, void (*test)(void))
{
        int status;
        pid_t child;

        fflush(stdout);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                alarm(60);
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

int main(void)
{
        unsetenv("CUDA_INJECTION64_PATH");
        CHILD_TEST(test_ids_grow_through_contexts);
        CHILD_TEST(test_ids_count_per_device);
        CHILD_TEST(test_context_numbers);
        CHILD_TEST(test_a_stream_takes_eight_in_turn);
        CHILD_TEST(test_streams_have_blocks_of_their_own);
        CHILD_TEST(test_blocks_are_used_again);
        CHILD_TEST(test_threads_have_streams_of_their_own);
        CHILD_TEST(test_nodes_keep_theirs);
        CHILD_TEST(test_other_work);
        CHILD_TEST(test_none);
        CHILD_TEST(test_garbled);
        return 0;
}
