/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu/uvm_target.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "unit/test.h"
#include "util/time.h"

#define SKIP      77
#define BYTES_MIN (64ULL << 20)
#define BLOCK     (2ULL << 20)
#define CPU_VALUE 1000u
#define BLOCKS    1024
#define THREADS   256

#define FIGHT_LAUNCHES 1000
#define FIGHT_NS       (100 * NSEC_PER_MSEC)
#define FIGHT_ROUND_NS (20 * NSEC_PER_USEC)

#define ATTACH_GLOBAL 1 /* CU_MEM_ATTACH_GLOBAL */

static const char kernel_ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry bump(.param .u64 address, .param .u64 words)\n"
        "{\n.reg .pred %p;\n.reg .b32 %r<6>;\n.reg .b64 %rd<7>;\n"
        "ld.param.u64 %rd1, [address];\nld.param.u64 %rd2, [words];\n"
        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
        "mov.u32 %r4, %nctaid.x;\n"
        "mul.wide.u32 %rd3, %r1, %r2;\ncvt.u64.u32 %rd4, %r3;\nadd.u64 %rd3, %rd3, %rd4;\n"
        "mul.wide.u32 %rd5, %r4, %r2;\n"
        "again:\nsetp.ge.u64 %p, %rd3, %rd2;\n@%p bra done;\n"
        "shl.b64 %rd6, %rd3, 2;\nadd.u64 %rd6, %rd1, %rd6;\n"
        "ld.global.u32 %r5, [%rd6];\nadd.u32 %r5, %r5, 1;\nst.global.u32 [%rd6], %r5;\n"
        "add.u64 %rd3, %rd3, %rd5;\nbra again;\n"
        "done:\nret;\n}\n"
        ".visible .entry look(.param .u64 address, .param .u64 words)\n"
        "{\n.reg .pred %p;\n.reg .b32 %r<6>;\n.reg .b64 %rd<7>;\n"
        "ld.param.u64 %rd1, [address];\nld.param.u64 %rd2, [words];\n"
        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
        "mov.u32 %r4, %nctaid.x;\n"
        "mul.wide.u32 %rd3, %r1, %r2;\ncvt.u64.u32 %rd4, %r3;\nadd.u64 %rd3, %rd3, %rd4;\n"
        "mul.wide.u32 %rd5, %r4, %r2;\n"
        "again:\nsetp.ge.u64 %p, %rd3, %rd2;\n@%p bra done;\n"
        "shl.b64 %rd6, %rd3, 2;\nadd.u64 %rd6, %rd1, %rd6;\n"
        "ld.volatile.global.u32 %r5, [%rd6];\n" /* volatile: or nothing would be left of it */
        "add.u64 %rd3, %rd3, %rd5;\nbra again;\n"
        "done:\nret;\n}\n";

/* The part of the driver API that is needed. */
static struct {
        int (*init)(unsigned);
        int (*device_get)(int *, int);
        int (*device_uuid)(uint8_t *, int);
        int (*context_create)(void **, unsigned, int);
        int (*synchronize)(void);
        int (*module_load)(void **, const void *);
        int (*module_function)(void **, void *, const char *);
        int (*memory_info)(size_t *, size_t *);
        int (*allocate_managed)(uint64_t *, size_t, unsigned);
        int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void *, void **, void **);
} cuda;

static struct {
        uint8_t uuid[16];
        uint64_t address, bytes;
        void *function, *look;
        uint32_t expected;
} state;

static bool load_cuda(void)
{
        static const struct {
                const char *name;
                void *function;
        } functions[] = {{"cuInit", &cuda.init},
                         {"cuDeviceGet", &cuda.device_get},
                         {"cuDeviceGetUuid", &cuda.device_uuid},
                         {"cuCtxCreate_v2", &cuda.context_create},
                         {"cuCtxSynchronize", &cuda.synchronize},
                         {"cuModuleLoadData", &cuda.module_load},
                         {"cuModuleGetFunction", &cuda.module_function},
                         {"cuMemGetInfo_v2", &cuda.memory_info},
                         {"cuMemAllocManaged", &cuda.allocate_managed},
                         {"cuLaunchKernel", &cuda.launch}};
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        for (size_t i = 0; library && i < sizeof(functions) / sizeof(functions[0]); i++) {
                *(void **)functions[i].function = dlsym(library, functions[i].name);
                if (!*(void **)functions[i].function)
                        return false;
        }
        return library;
}

static uint64_t free_bytes(void)
{
        size_t unused = 0, total = 0;

        CHECK_EQ(cuda.memory_info(&unused, &total), 0);
        return unused;
}

/* A quarter of what is free at most: asking for more than there is can hang a GPU. */
static int prepare(uint64_t max)
{
        void *context, *module;
        int device;

        if (!load_cuda() || cuda.init(0) || cuda.device_get(&device, 0))
                return SKIP;
        CHECK_EQ(cuda.device_uuid(state.uuid, device), 0);
        CHECK_EQ(cuda.context_create(&context, 0, device), 0);
        CHECK_EQ(cuda.module_load(&module, kernel_ptx), 0);
        CHECK_EQ(cuda.module_function(&state.function, module, "bump"), 0);
        CHECK_EQ(cuda.module_function(&state.look, module, "look"), 0);
        state.bytes = free_bytes() / 4 < max ? free_bytes() / 4 : max;
        state.bytes = state.bytes / BLOCK * BLOCK;
        if (state.bytes < BYTES_MIN)
                return SKIP;
        CHECK_EQ(cuda.allocate_managed(&state.address, state.bytes, ATTACH_GLOBAL), 0);
        return 0;
}

static uint32_t *words(void)
{
        return (uint32_t *)(uintptr_t)state.address;
}

static void touch_from_cpu(void)
{
        for (uint64_t i = 0; i < state.bytes / 4; i++)
                words()[i] = CPU_VALUE;
        state.expected = CPU_VALUE;
}

static void launch(void *function, unsigned blocks, uint64_t count)
{
        void *parameters[] = {&state.address, &count};

        CHECK_EQ(cuda.launch(function, blocks, 1, 1, THREADS, 1, 1, 0, NULL, parameters, NULL), 0);
}

static void touch_from_gpu(void)
{
        launch(state.function, BLOCKS, state.bytes / 4);
        CHECK_EQ(cuda.synchronize(), 0);
        state.expected++;
}

static void read_on_gpu(void)
{
        launch(state.look, BLOCKS, state.bytes / 4);
        CHECK_EQ(cuda.synchronize(), 0);
}

/* Kernels write a page, one after the other, while the CPU reads it between and during them. */
static void fight(void)
{
        uint64_t end_ns = now_ns() + FIGHT_NS;
        const volatile uint32_t *word = words();

        for (int i = 0; i < FIGHT_LAUNCHES && now_ns() < end_ns; i++) {
                launch(state.function, 1, THREADS);
                for (uint64_t until_ns = now_ns() + FIGHT_ROUND_NS; now_ns() < until_ns;)
                        (void)*word;
        }
        CHECK_EQ(cuda.synchronize(), 0);
}

static uint64_t count_wrong(void)
{
        uint64_t wrong = 0;

        for (uint64_t i = 0; i < state.bytes / 4; i++)
                wrong += words()[i] != state.expected;
        return wrong;
}

static void obey(uint8_t command, struct target_answer *a)
{
        a->begin_ns = now_ns();
        if (command == TARGET_CPU)
                touch_from_cpu();
        else if (command == TARGET_GPU)
                touch_from_gpu();
        else if (command == TARGET_READ)
                read_on_gpu();
        else if (command == TARGET_THRASH)
                fight();
        else if (command == TARGET_VERIFY)
                a->address = count_wrong();
        else if (command == TARGET_FREE_BYTES)
                a->bytes = free_bytes();
        a->end_ns = now_ns();
}

static _Noreturn void serve(int from, int to, uint64_t max)
{
        uint8_t command;
        int r = prepare(max);

        if (r)
                _exit(r);
        while (read(from, &command, 1) == 1) {
                struct target_answer a = {.address = state.address, .bytes = state.bytes};

                memcpy(a.uuid, state.uuid, sizeof(a.uuid));
                obey(command, &a);
                if (write(to, &a, sizeof(a)) != (ssize_t)sizeof(a))
                        break;
        }
        _exit(0);
}

int target_start(uint64_t max, struct target *ret_target, struct target_answer *ret_hello)
{
        const uint8_t hello = TARGET_HELLO;
        int to[2], from[2];
        struct target t;

        CHECK(pipe(to) == 0 && pipe(from) == 0);
        t.pid = fork();
        CHECK(t.pid >= 0);
        if (t.pid == 0) {
                close(to[1]);
                close(from[0]);
                serve(to[0], from[1], max);
        }
        close(to[0]);
        close(from[1]);
        t.to = to[1];
        t.from = from[0];
        if (write(t.to, &hello, 1) != 1 ||
            read(t.from, ret_hello, sizeof(*ret_hello)) != (ssize_t)sizeof(*ret_hello))
                return SKIP;
        *ret_target = t;
        return 0;
}

int target_run(unsigned seconds, uint64_t max)
{
        uint64_t end_ns = now_ns() + seconds * NSEC_PER_SEC;
        unsigned passes = 0;
        int r = prepare(max);

        if (r)
                return r;
        for (; now_ns() < end_ns; passes++) {
                touch_from_cpu();
                touch_from_gpu();
        }
        printf("pid %d\npasses %u\nbytes %llu\naddress %llu\nwrong %llu\n", (int)getpid(), passes,
               (unsigned long long)state.bytes, (unsigned long long)state.address,
               (unsigned long long)count_wrong());
        return 0;
}

struct target_answer target_ask(struct target *t, enum target_command command)
{
        uint8_t byte = (uint8_t)command;
        struct target_answer a;

        CHECK(write(t->to, &byte, 1) == 1);
        CHECK(read(t->from, &a, sizeof(a)) == (ssize_t)sizeof(a));
        return a;
}
