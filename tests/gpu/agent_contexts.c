/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Where the agent's memory can be reached from, on a real driver. Rewritten
 * kernels write to the shared ring (registered host memory) and to GPU memory
 * wherever they run; a place that is not mapped there would be a fault in the
 * application. So each question is asked by a process of its own, with the
 * agent's own placement code (probes/agent/gpu_maps.c) and a kernel that writes
 * to both:
 *
 *     agent_contexts        all questions; 1 if something the agent relies on is not so
 *     agent_contexts NAME   one of them
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/cuda_api.h"
#include "agent/gpu_maps.h"
#include "device/device_abi.h"
#include "unit/test.h"

#define ROUNDS    200
#define MAP_BYTES (64u << 20)

static const char kernel_ptx[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                                 ".visible .entry touch(.param .u64 counter, .param .u64 host)\n"
                                 "{\n.reg .b64 %rd<5>;\n"
                                 "ld.param.u64 %rd1, [counter];\nld.param.u64 %rd2, [host];\n"
                                 "mov.u64 %rd3, 1;\natom.global.add.u64 %rd4, [%rd1], %rd3;\n"
                                 "add.u64 %rd4, %rd4, 1;\nst.global.u64 [%rd2], %rd4;\nret;\n}\n";

static struct cuda_api api;
static struct gpu_maps maps;
static int (*context_create)(cuda_handle *, unsigned, int);
static int (*context_set)(cuda_handle);
static int (*context_synchronize)(void);
static int (*primary_reset)(int);
static int (*copy_to_host)(void *, cuda_address, size_t);

#define CUDA(call)                                                                                 \
        do {                                                                                       \
                int cuda_result_ = (call);                                                         \
                if (cuda_result_ != CUDA_OK) {                                                     \
                        printf("      %s: %s\n", #call, cuda_error_name(&api, cuda_result_));      \
                        fflush(stdout);                                                            \
                        _exit(1);                                                                  \
                }                                                                                  \
        } while (0)

static void open_cuda(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned);
        int count = 0;

        if (!library)
                test_skip("there is no libcuda.so.1");
        *(void **)&init = dlsym(library, "cuInit");
        *(void **)&context_create = dlsym(library, "cuCtxCreate_v2");
        *(void **)&context_set = dlsym(library, "cuCtxSetCurrent");
        *(void **)&context_synchronize = dlsym(library, "cuCtxSynchronize");
        *(void **)&primary_reset = dlsym(library, "cuDevicePrimaryCtxReset_v2");
        *(void **)&copy_to_host = dlsym(library, "cuMemcpyDtoH_v2");
        CHECK(init && context_create && context_set && context_synchronize && primary_reset &&
              copy_to_host);
        CHECK_EQ(cuda_api_load(library, &api, NULL), 0);
        if (init(0) != CUDA_OK || api.device_get_count(&count) != CUDA_OK || !count)
                test_skip("there is no GPU");
}

static int device_count(void)
{
        int n = 0;

        CUDA(api.device_get_count(&n));
        return n;
}

static cuda_handle primary(int device)
{
        cuda_handle c = NULL;

        CUDA(api.primary_retain(&c, device));
        return c;
}

/* What the agent does at the first image, for this many devices. */
static void place(int devices)
{
        struct agent_welcome w = {.ring_entries = DEVICE_RING_ENTRIES,
                                  .ring_address = DEVICE_RING_ADDRESS};
        struct agent_map wanted[AGENT_MAP_MAX] = {
                {.placement = GPUOBS_PLACE_HOST, .bytes = DEVICE_RING_BYTES},
                {.placement = GPUOBS_PLACE_DEVICE, .bytes = sizeof(struct device_counters)}};
        const uint64_t host[AGENT_MAP_MAX] = {DEVICE_RING_ADDRESS};
        const struct gpu_place where = {&api, 0, devices};
        int fd = memfd_create("ring", MFD_CLOEXEC);
        const char *refusal;

        CHECK_EQ(ftruncate(fd, DEVICE_RING_BYTES), 0);
        CHECK_EQ(ring_map(fd, &w), 0);
        CUDA(api.context_push(primary(0)));
        refusal = gpu_place_check(&where);
        if (!refusal)
                refusal = ring_register(&api, &w);
        if (!refusal)
                refusal = gpu_maps_place(&where, wanted, NULL, host, MAP_BYTES, &maps);
        if (refusal) {
                printf("      refused: %s\n", refusal);
                fflush(stdout);
                _exit(1);
        }
}

/* Launch the kernel in the current context. */
static void touch(int rounds)
{
        volatile uint64_t *host = (volatile uint64_t *)(uintptr_t)maps.address[0];
        cuda_address counter = maps.address[1], ring = maps.address[0];
        void *parameters[] = {&counter, &ring};
        cuda_handle module, function;

        CUDA(api.module_load_data(&module, kernel_ptx));
        CUDA(api.module_get_function(&function, module, "touch"));
        for (int i = 0; i < rounds; i++)
                CUDA(api.launch_kernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
        CUDA(context_synchronize());
        CHECK(*host >= (uint64_t)rounds);
}

static void expect_count(uint64_t want)
{
        uint64_t got = 0;

        CUDA(copy_to_host(&got, maps.address[1], sizeof(got)));
        CHECK_EQ(got, want);
}

static void in_primary(void)
{
        place(1);
        touch(ROUNDS);
        expect_count(ROUNDS);
}

static void in_context_created_later(void)
{
        cuda_handle c;

        place(1);
        CUDA(context_create(&c, 0, 0));
        touch(ROUNDS);
        expect_count(ROUNDS);
}

static void in_context_created_before(void)
{
        cuda_handle c;

        CUDA(context_create(&c, 0, 0));
        place(1);
        CUDA(context_set(c));
        touch(ROUNDS);
        expect_count(ROUNDS);
}

static void *touch_in(void *context)
{
        CUDA(context_set(context));
        touch(ROUNDS);
        return NULL;
}

static void in_two_contexts_at_once(void)
{
        cuda_handle created, first = primary(0);
        pthread_t a, b;

        place(1);
        CUDA(context_create(&created, 0, 0));
        CHECK_EQ(pthread_create(&a, NULL, touch_in, first), 0);
        CHECK_EQ(pthread_create(&b, NULL, touch_in, created), 0);
        pthread_join(a, NULL);
        pthread_join(b, NULL);
        CUDA(context_set(first));
        expect_count(2 * ROUNDS);
}

/* cudaDeviceReset() and going on: images that the driver keeps would write here. */
static void after_reset(void)
{
        place(1);
        touch(ROUNDS);
        CUDA(primary_reset(0));
        CUDA(context_set(primary(0)));
        touch(ROUNDS);
}

static void in_primary_of_every_device(void)
{
        int n = device_count();

        if (n < 2) {
                printf("      only one device\n");
                fflush(stdout);
                _exit(77);
        }
        place(n);
        for (int i = 0; i < n; i++) {
                CUDA(context_set(primary(i)));
                touch(ROUNDS);
        }
        CUDA(context_set(primary(0)));
        expect_count((uint64_t)n * ROUNDS);
}

/* Without the virtual memory functions: what cuMemAlloc gives belongs to one context. */
static void cumemalloc_elsewhere(void)
{
        cuda_handle c;

        api.memory_create = NULL;
        place(1);
        CUDA(context_create(&c, 0, 0));
        touch(ROUNDS);
}

static const struct question {
        const char *name;
        void (*ask)(void);
        bool relied_on;   /* by the agent as it is */
        bool any_context; /* by GPU_MAPS_IN_ANY_CONTEXT */
} questions[] = {
        {"in_primary", in_primary, true, true},
        {"in_primary_of_every_device", in_primary_of_every_device, true, true},
        {"in_context_created_later", in_context_created_later, false, true},
        {"in_context_created_before", in_context_created_before, false, true},
        {"in_two_contexts_at_once", in_two_contexts_at_once, false, true},
        {"after_reset", after_reset, false, false},
        {"cumemalloc_elsewhere", cumemalloc_elsewhere, false, false},
};

static int ask(const struct question *q)
{
        int status;
        pid_t child;

        fflush(stdout);
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                open_cuda();
                q->ask();
                _exit(0);
        }
        CHECK_EQ(waitpid(child, &status, 0), child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
        bool any_context = true, failed = false;

        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
                const struct question *q = &questions[i];
                int r;

                if (argc > 1 && strcmp(argv[1], q->name) != 0)
                        continue;
                r = ask(q);
                if (r == 77 && i == 0)
                        return 77;
                printf("%-8s %s\n", r == 0 ? "yes" : r == 77 ? "skipped" : "no", q->name);
                if (r != 0 && r != 77) {
                        failed |= q->relied_on || (GPU_MAPS_IN_ANY_CONTEXT && q->any_context);
                        any_context &= !q->any_context;
                }
        }
        if (argc == 1)
                printf("GPU_MAPS_IN_ANY_CONTEXT is %s and may be %s\n",
                       GPU_MAPS_IN_ANY_CONTEXT ? "true" : "false", any_context ? "true" : "false");
        return failed;
}
