/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What probes/device/device_abi.h says the driver tells a grid, put to the driver:
 * a kernel of one thread writes down its %gridid, its context and the address of
 * its launch descriptor; contexts, streams, threads, graphs and other work are made
 * to show how these change. Last, the check the agent makes in every process.
 *
 *     launch_facts        all claims, each in a process of its own
 *     launch_facts NAME   one of them
 *
 * A line "ok NAME" or "FAIL NAME" each, what was wrong above it. Exit code 0 all
 * hold, 1 one does not, 77 no usable device.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/cuda_api.h"
#include "agent/grid_check.h"
#include "device/device_abi.h"

#define SLOTS_MAX    8192
#define STREAMS      200
#define THREADS      4
#define THREAD_TURNS 500
#define NODES        6
#define LARGE        (64u << 20)

#define PER_THREAD ((void *)2) /* CU_STREAM_PER_THREAD */

#define STREAM_OF(t) ((t)->descriptor >> (DEVICE_QUEUE_SHIFT + DEVICE_QUEUE_STREAM_SHIFT))
#define SLOT_OF(t)                                                                                 \
        ((t)->descriptor >> (DEVICE_QUEUE_SHIFT + DEVICE_QUEUE_SLOT_SHIFT) &                       \
         (DEVICE_QUEUE_SLOTS - 1))

/* What is needed of the driver beside the agent's table; every result is a CUresult. */
#define DRIVER(X)                                                                                  \
        X(cuInit, (unsigned))                                                                      \
        X(cuCtxCreate_v2, (void **, unsigned, int))                                                \
        X(cuCtxDestroy_v2, (void *))                                                               \
        X(cuCtxSetCurrent, (void *))                                                               \
        X(cuCtxSynchronize, (void))                                                                \
        X(cuMemAlloc_v2, (cuda_address *, size_t))                                                 \
        X(cuMemHostAlloc, (void **, size_t, unsigned))                                             \
        X(cuMemcpyHtoDAsync_v2, (cuda_address, const void *, size_t, void *))                      \
        X(cuMemcpyDtoDAsync_v2, (cuda_address, cuda_address, size_t, void *))                      \
        X(cuMemsetD8Async, (cuda_address, unsigned char, size_t, void *))                          \
        X(cuMemsetD32Async, (cuda_address, unsigned, size_t, void *))                              \
        X(cuEventCreate, (void **, unsigned))                                                      \
        X(cuEventRecord, (void *, void *))                                                         \
        X(cuLaunchKernelEx, (const struct launch_config *, void *, void **, void **))              \
        X(cuLaunchCooperativeKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned,    \
                                      unsigned, unsigned, void *, void **))                        \
        X(cuStreamBeginCapture_v2, (void *, int))                                                  \
        X(cuStreamEndCapture, (void *, void **))                                                   \
        X(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                      \
        X(cuGraphLaunch, (void *, void *))

/* CUlaunchConfig */
struct launch_config {
        unsigned grid[3], block[3], shared_bytes;
        void *stream, *attributes;
        unsigned attribute_count;
};

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER(DECLARE)

static struct cuda_api api;

/* What one grid wrote. */
struct told {
        uint64_t gridid, descriptor;
        uint32_t context, ran;
};

/* A context and the kernel in it. */
struct place {
        void *context, *function;
};

static struct told *slots; /* host memory, the same address on the GPU */
static unsigned taken;     /* of them */
static unsigned wrong;

static const char kernel_ptx[] =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry tell(.param .u64 p)\n{\n.reg .b64 %rd<4>;\n.reg .b32 %r<3>;\n"
        "ld.param.u64 %rd1, [p];\nmov.u64 %rd2, %gridid;\nld.param.u64 %rd3, [p+-0x1d8];\n"
        "mov.u32 %r1, %envreg6;\nmov.u32 %r2, 1;\nst.global.u64 [%rd1], %rd2;\n"
        "st.global.u64 [%rd1+8], %rd3;\nst.global.v2.u32 [%rd1+16], {%r1, %r2};\nret;\n}\n";

static void must(int result, const char *what)
{
        if (result == CUDA_OK)
                return;
        printf("    %s: %s\n", what, cuda_error_name(&api, result));
        fflush(stdout);
        _exit(1);
}
#define CUDA(call) must(call, #call)

/* What a claim rests on. */
static void expect(bool holds, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void expect(bool holds, const char *format, ...)
{
        va_list args;

        if (holds || ++wrong > 5)
                return;
        va_start(args, format);
        printf("    ");
        vprintf(format, args);
        printf("\n");
        va_end(args);
}

/* ---- contexts and launches ---- */

static void load(struct place *p)
{
        void *module;

        CUDA(api.module_load_data(&module, kernel_ptx));
        CUDA(api.module_get_function(&p->function, module, "tell"));
        if (slots)
                return;
        CUDA(cuMemHostAlloc((void **)&slots, SLOTS_MAX * sizeof(*slots), 3 /* portable, mapped */));
        memset(slots, 0, SLOTS_MAX * sizeof(*slots));
}

static struct place open_primary(int device)
{
        struct place p;

        CUDA(api.primary_retain(&p.context, device));
        CUDA(cuCtxSetCurrent(p.context));
        load(&p);
        return p;
}

static struct place create_context(int device)
{
        struct place p;

        CUDA(cuCtxCreate_v2(&p.context, 0, device));
        load(&p);
        return p;
}

static void *create_stream(void)
{
        void *stream;

        CUDA(api.stream_create(&stream, CUDA_STREAM_NON_BLOCKING));
        return stream;
}

static struct told *take_slot(void)
{
        unsigned n = __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);

        if (n >= SLOTS_MAX) {
                printf("    out of slots\n");
                _exit(1);
        }
        return &slots[n];
}

/* Launch; what it wrote is there after a synchronise. */
static struct told *launch(const struct place *p, void *stream)
{
        struct told *slot = take_slot();
        void *parameters[] = {&slot};

        CUDA(api.launch_kernel(p->function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, NULL));
        return slot;
}

static const struct told *ask(const struct place *p, void *stream)
{
        const struct told *t;

        CUDA(cuCtxSetCurrent(p->context));
        t = launch(p, stream);
        CUDA(cuCtxSynchronize());
        expect(t->ran, "a kernel did not run");
        return t;
}

/* `by` launches of a stream further on. */
static void expect_next(const struct told *before, const struct told *now, unsigned by,
                        const char *what)
{
        expect(STREAM_OF(now) == STREAM_OF(before), "%s: another block, %llx after %llx", what,
               (unsigned long long)now->descriptor, (unsigned long long)before->descriptor);
        expect(SLOT_OF(now) == (SLOT_OF(before) + by) % DEVICE_QUEUE_SLOTS,
               "%s: descriptor %llx after %llx", what, (unsigned long long)now->descriptor,
               (unsigned long long)before->descriptor);
        expect(now->gridid == before->gridid + by, "%s: id %llu after %llu", what,
               (unsigned long long)now->gridid, (unsigned long long)before->gridid);
}

/* ---- claims ---- */

/* Ids of a device count through all its contexts, contexts are numbered from 1. */
static void contexts(void)
{
        struct place places[4] = {open_primary(0)};
        uint64_t id = 0;

        for (int i = 1; i < 4; i++)
                places[i] = create_context(0);
        for (unsigned i = 0; i < 80; i++) {
                unsigned which = i * 3 % 4;
                const struct told *t = ask(&places[which], NULL);

                expect(t->gridid == id + 1, "id %llu after %llu", (unsigned long long)t->gridid,
                       (unsigned long long)id);
                expect(t->context == which + 1, "context %u has number %u", which + 1, t->context);
                id = t->gridid;
        }
        CUDA(cuCtxDestroy_v2(places[3].context));
        expect(ask(&places[0], NULL)->gridid == id + 1, "a context's end changed the ids");
        places[3] = create_context(0);
        printf("    a context made after another's end has number %u\n",
               ask(&places[3], NULL)->context);
}

/* Eight descriptors of 0x800 in an aligned block of 16 KiB, taken in turn. */
static void descriptors(void)
{
        struct place p = open_primary(0);
        void *stream = create_stream();
        const struct told *before = ask(&p, stream);

        expect(before->descriptor && !(before->descriptor & 0x7ff), "descriptor %llx",
               (unsigned long long)before->descriptor);
        for (int i = 0; i < 40; i++) {
                const struct told *now = ask(&p, stream);

                expect_next(before, now, 1, "a launch");
                before = now;
        }
}

/* No two streams share a block while they live, and each keeps its own. */
static void streams(void)
{
        struct place p = open_primary(0);
        const struct told *first[STREAMS], *again;
        void *stream[STREAMS];

        for (int i = 0; i < STREAMS; i++) {
                stream[i] = i ? create_stream() : NULL;
                first[i] = ask(&p, stream[i]);
                for (int j = 0; j < i; j++)
                        expect(STREAM_OF(first[i]) != STREAM_OF(first[j]),
                               "streams %d and %d share block %llx", j, i,
                               (unsigned long long)STREAM_OF(first[i]));
        }
        for (int i = 0; i < STREAMS; i++) {
                again = ask(&p, stream[i]);
                expect(STREAM_OF(again) == STREAM_OF(first[i]), "stream %d moved", i);
        }
}

/* What a stream leaves is used again, so that names of streams do not run out. */
static void streams_come_and_go(void)
{
        struct place p = open_primary(0);
        uint64_t blocks[STREAMS];
        unsigned count = 0, k;

        for (int i = 0; i < STREAMS; i++) {
                void *stream = create_stream();
                const struct told *t = ask(&p, stream);

                for (k = 0; k < count && blocks[k] != STREAM_OF(t); k++)
                        ;
                if (k == count)
                        blocks[count++] = STREAM_OF(t);
                CUDA(api.stream_destroy(stream));
        }
        printf("    %d streams, one after another, had %u blocks\n", STREAMS, count);
        expect(count < STREAMS / 2, "blocks are not used again");
}

struct thread {
        pthread_t thread;
        const struct place *place;
        const struct told *turns[THREAD_TURNS];
};

static pthread_barrier_t all_launched;

static void *launch_in_thread(void *argument)
{
        struct thread *t = argument;

        CUDA(cuCtxSetCurrent(t->place->context));
        for (int i = 0; i < THREAD_TURNS; i++)
                t->turns[i] = launch(t->place, PER_THREAD);
        CUDA(api.stream_synchronize(PER_THREAD));
        /* A stream ends with its thread, and its block may become another's. */
        pthread_barrier_wait(&all_launched);
        return NULL;
}

/* Per-thread default streams are streams like others; ids have no gap and no duplicate. */
static void threads(void)
{
        static struct thread threads[THREADS];
        static bool seen[THREADS * THREAD_TURNS + 1];
        struct place p = open_primary(0);
        const struct told *legacy = ask(&p, NULL);

        pthread_barrier_init(&all_launched, NULL, THREADS);
        for (int i = 0; i < THREADS; i++) {
                threads[i].place = &p;
                pthread_create(&threads[i].thread, NULL, launch_in_thread, &threads[i]);
        }
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i].thread, NULL);
        for (int i = 0; i < THREADS; i++) {
                expect(STREAM_OF(threads[i].turns[0]) != STREAM_OF(legacy), "the legacy block");
                for (int j = 0; j < i; j++)
                        expect(STREAM_OF(threads[i].turns[0]) != STREAM_OF(threads[j].turns[0]),
                               "two threads share a block");
                for (int k = 0; k < THREAD_TURNS; k++) {
                        const struct told *t = threads[i].turns[k];
                        uint64_t n = t->gridid - legacy->gridid;

                        expect(t->ran && n >= 1 && n <= THREADS * THREAD_TURNS && !seen[n],
                               "id %llu is out of range or taken", (unsigned long long)t->gridid);
                        if (n <= THREADS * THREAD_TURNS)
                                seen[n] = true;
                        expect(!k || SLOT_OF(t) == (SLOT_OF(threads[i].turns[k - 1]) + 1) %
                                                           DEVICE_QUEUE_SLOTS,
                               "thread %d, launch %d is out of turn", i, k);
                }
        }
}

/* All ways to launch are alike. */
static void ways_to_launch(void)
{
        struct place p = open_primary(0);
        void *stream = create_stream();
        const struct told *before = ask(&p, stream);

        for (int i = 0; i < 16; i++) {
                struct told *slot = take_slot();
                void *parameters[] = {&slot};
                struct launch_config config = {
                        .grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};

                if (i % 2)
                        CUDA(cuLaunchKernelEx(&config, p.function, parameters, NULL));
                else
                        CUDA(cuLaunchCooperativeKernel(p.function, 1, 1, 1, 1, 1, 1, 0, stream,
                                                       parameters));
                CUDA(cuCtxSynchronize());
                expect(slot->ran, "a kernel did not run");
                expect_next(before, slot, 1, i % 2 ? "cuLaunchKernelEx" : "cooperative");
                before = slot;
        }
}

/* Large sets and copies on the device take an id and a descriptor of their stream. */
static void other_work(void)
{
        static char host[4096];
        struct place p = open_primary(0);
        void *stream = create_stream(), *event;
        const struct told *before, *now;
        cuda_address x, y;

        CUDA(cuMemAlloc_v2(&x, LARGE));
        CUDA(cuMemAlloc_v2(&y, LARGE));
        CUDA(cuEventCreate(&event, 0));
        before = ask(&p, stream);
        CUDA(cuMemsetD32Async(x, 7, LARGE / 4, stream));
        now = ask(&p, stream);
        expect_next(before, now, 2, "a memset of 64 MiB");
        before = now;
        CUDA(cuMemcpyDtoDAsync_v2(x, y, LARGE, stream));
        now = ask(&p, stream);
        expect_next(before, now, 2, "a device-to-device copy of 64 MiB");
        before = now;
        CUDA(cuMemsetD8Async(x + 1, 7, 1001, stream));
        CUDA(cuMemcpyHtoDAsync_v2(x, host, sizeof(host), stream));
        CUDA(cuEventRecord(event, stream));
        now = ask(&p, stream);
        expect_next(before, now, 1, "a small memset, a host copy, an event");
}

static void *instantiate(const struct place *p, void *stream, struct told *nodes[NODES])
{
        void *graph, *exec;

        CUDA(cuStreamBeginCapture_v2(stream, CUDA_CAPTURE_RELAXED));
        for (int i = 0; i < NODES; i++)
                nodes[i] = launch(p, stream);
        CUDA(cuStreamEndCapture(stream, &graph));
        CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
        return exec;
}

static void replay(void *exec, void *stream, struct told *const nodes[NODES],
                   struct told ret_told[NODES])
{
        for (int i = 0; i < NODES; i++)
                *nodes[i] = (struct told){0};
        CUDA(cuGraphLaunch(exec, stream));
        CUDA(cuCtxSynchronize());
        for (int i = 0; i < NODES; i++)
                ret_told[i] = *nodes[i];
}

/* Nodes of one graph against each other and against those of another. */
static void compare_nodes(const struct told a[NODES], const struct told b[NODES])
{
        for (int i = 0; i < NODES; i++)
                for (int j = 0; j < NODES; j++) {
                        bool same = a == b && i == j;

                        expect(same || a[i].gridid != b[j].gridid, "nodes %d and %d: one id", i, j);
                        expect(same || a[i].descriptor != b[j].descriptor,
                               "nodes %d and %d: one descriptor", i, j);
                }
}

/*
 * Nodes have ids and descriptors of their own from instantiation on, also in another stream;
 * a graph of kernels alone takes one id more.
 */
static void graphs(void)
{
        struct place p = open_primary(0);
        void *stream = create_stream(), *other = create_stream();
        struct told *nodes[2][NODES], first[NODES], again[NODES], second[NODES];
        const struct told *before = ask(&p, stream), *now;
        void *exec[2];

        for (int i = 0; i < 2; i++)
                exec[i] = instantiate(&p, stream, nodes[i]);
        now = ask(&p, stream);
        expect(now->gridid == before->gridid + 1 + 2 * (NODES + 1),
               "instantiation took %lld ids, not %d", (long long)(now->gridid - before->gridid - 1),
               2 * (NODES + 1));
        expect(SLOT_OF(now) == (SLOT_OF(before) + 1) % DEVICE_QUEUE_SLOTS,
               "instantiation took descriptors of the stream");
        replay(exec[0], stream, nodes[0], first);
        replay(exec[1], stream, nodes[1], second);
        for (int r = 0; r < 5; r++) {
                replay(exec[0], r % 2 ? other : stream, nodes[0], again);
                expect(!memcmp(first, again, sizeof(first)), "replay %d differs", r);
        }
        compare_nodes(first, first);
        compare_nodes(first, second);
        for (int i = 0; i < NODES; i++) {
                expect(first[i].ran && first[i].context == before->context, "node %d", i);
                expect(first[i].descriptor % 0x200 == 0, "node %d: descriptor %llx", i,
                       (unsigned long long)first[i].descriptor);
                expect(STREAM_OF(&first[i]) != STREAM_OF(before), "node %d in the stream's block",
                       i);
        }
        before = now;
        expect_next(before, ask(&p, stream), 1, "a launch after replays");
}

/* Each device counts its own grids; contexts are numbered through all of them. */
static void two_devices(void)
{
        struct place first = open_primary(0), second;
        int count = 0;

        CUDA(api.device_get_count(&count));
        if (count < 2) {
                printf("    there is one device: not checked\n");
                return;
        }
        second = open_primary(1);
        for (uint64_t i = 1; i < 20; i++) {
                expect(ask(&first, NULL)->gridid == i, "ids of the first device");
                expect(ask(&second, NULL)->gridid == i, "ids of the second device");
        }
        expect(ask(&first, NULL)->context == 1, "context of the first device");
        expect(ask(&second, NULL)->context == 2, "context of the second device");
}

/* What the agent does in every process, here without a daemon to tell. */
static void agent_check(void)
{
        struct place p = open_primary(0);
        struct wire nobody = WIRE_NONE;
        struct timespec a, b;
        const char *why;

        ask(&p, NULL);
        clock_gettime(CLOCK_MONOTONIC, &a);
        why = grid_check(&api, &nobody, grid_layout_find(90), 50);
        clock_gettime(CLOCK_MONOTONIC, &b);
        expect(!why, "%s", why);
        printf("    %.2f ms, loading its kernel included\n",
               (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6);
}

/* ---- running them ---- */

static const struct {
        const char *name;
        void (*check)(void);
} claims[] = {
        {"contexts", contexts},       {"descriptors", descriptors},
        {"streams", streams},         {"streams_come_and_go", streams_come_and_go},
        {"threads", threads},         {"ways_to_launch", ways_to_launch},
        {"other_work", other_work},   {"graphs", graphs},
        {"two_devices", two_devices}, {"agent_check", agent_check},
};
#define CLAIMS (sizeof(claims) / sizeof(claims[0]))

static int skip(const char *why)
{
        printf("SKIP: %s\n", why);
        fflush(stdout);
        _exit(77);
}

static void open_driver(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        int device, major = 0, minor = 0;

        if (!library)
                skip("no libcuda.so.1");
#define LOOK_UP(name, parameters)                                                                  \
        name = (int(*) parameters)dlsym(library, #name);                                           \
        if (!name)                                                                                 \
                skip("the driver has no " #name);
        DRIVER(LOOK_UP)
        if (cuda_api_load(library, &api, NULL) < 0 || cuInit(0) != CUDA_OK ||
            api.device_get(&device, 0) != CUDA_OK)
                skip("no device");
        CUDA(api.device_get_attribute(&major, CUDA_ATTRIBUTE_MAJOR, device));
        CUDA(api.device_get_attribute(&minor, CUDA_ATTRIBUTE_MINOR, device));
        if (!grid_layout_find((uint32_t)(10 * major + minor)))
                skip("nothing is claimed of this architecture");
}

/* In a process of its own, because ids and contexts count per process. The exit code. */
static int check_claim(size_t i)
{
        int status = 0;
        pid_t child;

        fflush(stdout);
        child = fork();
        if (child == 0) {
                alarm(120);
                open_driver();
                claims[i].check();
                fflush(stdout);
                _exit(wrong ? 1 : 0);
        }
        if (child < 0 || waitpid(child, &status, 0) != child)
                return 1;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                return 77;
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        printf("%s %s\n", status ? "FAIL" : "ok", claims[i].name);
        return status;
}

int main(int argc, char **argv)
{
        unsigned held = 0, checked = 0;

        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        for (size_t i = 0; i < CLAIMS; i++) {
                int r;

                if (argc > 1 && strcmp(argv[1], claims[i].name) != 0)
                        continue;
                r = check_claim(i);
                if (r == 77)
                        return 77;
                checked++;
                held += r == 0;
        }
        printf("%u of %u claims hold\n", held, checked);
        return held == checked && checked ? 0 : 1;
}
