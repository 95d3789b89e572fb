/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A program that uses two GPUs, for tests:
 *   sim_gpus threads LAUNCHES   a thread on each
 *   sim_gpus switch LAUNCHES    one thread that goes from one to the other
 * What is launched on the first is called even, on the second odd. Prints the
 * launches made.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simcuda/cuda.h"

#define GPUS       2
#define SYNC_EVERY 50

#define KERNEL(name)                                                                               \
        ".visible .entry " name "(.param .u64 where)\n{\n"                                         \
        ".reg .b64 %rd<3>;\nld.param.u64 %rd1, [where];\n"                                         \
        "mov.u64 %rd2, %gridid;\nst.global.u64 [%rd1], %rd2;\nret;\n}\n"

static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n" KERNEL("even") KERNEL("odd");

struct gpu {
        CUcontext context;
        CUfunction function;
        CUdeviceptr word;
        unsigned launches;
};

static struct gpu gpus[GPUS];

static void ok(CUresult r, const char *what)
{
        if (r == CUDA_SUCCESS)
                return;
        fprintf(stderr, "%s: error %d\n", what, (int)r);
        exit(1);
}
#define OK(call) ok(call, #call)

static void open_gpu(int i)
{
        struct gpu *g = &gpus[i];
        CUmodule module;

        OK(cuDevicePrimaryCtxRetain(&g->context, i));
        OK(cuCtxSetCurrent(g->context));
        OK(cuModuleLoadData(&module, ptx));
        OK(cuModuleGetFunction(&g->function, module, i ? "odd" : "even"));
        OK(cuMemAlloc_v2(&g->word, sizeof(uint64_t)));
}

static void launch(struct gpu *g)
{
        void *parameters[] = {&g->word};

        OK(cuLaunchKernel(g->function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        if (++g->launches % SYNC_EVERY == 0)
                OK(cuCtxSynchronize());
}

static unsigned count;

static void *work(void *gpu)
{
        struct gpu *g = gpu;

        OK(cuCtxSetCurrent(g->context));
        for (unsigned i = 0; i < count; i++)
                launch(g);
        OK(cuCtxSynchronize());
        return NULL;
}

static void on_threads(void)
{
        pthread_t threads[GPUS];

        for (int i = 0; i < GPUS; i++)
                if (pthread_create(&threads[i], NULL, work, &gpus[i]))
                        exit(1);
        for (int i = 0; i < GPUS; i++)
                pthread_join(threads[i], NULL);
}

static void switching(void)
{
        for (unsigned i = 0; i < GPUS * count; i++) {
                struct gpu *g = &gpus[i / 7 % GPUS];

                OK(cuCtxSetCurrent(g->context));
                launch(g);
        }
        for (int i = 0; i < GPUS; i++) {
                OK(cuCtxSetCurrent(gpus[i].context));
                OK(cuCtxSynchronize());
        }
}

int main(int argc, char **argv)
{
        if (argc != 3)
                return 2;
        count = (unsigned)strtoul(argv[2], NULL, 10);
        OK(cuInit(0));
        for (int i = 0; i < GPUS; i++)
                open_gpu(i);
        if (!strcmp(argv[1], "threads"))
                on_threads();
        else
                switching();
        printf("launches %u\n", gpus[0].launches + gpus[1].launches);
        return 0;
}
