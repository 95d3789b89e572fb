/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The simulator's model of managed memory against a real device, within its memory.
 *
 * First what the model's constants stand for is measured: migrations by request of
 * several sizes, faults one by one, many at once, all of a gigabyte, reads in place.
 * Then patterns of the simulator are played, the very traces it replays: the CPU writes
 * all of the memory, kernels touch what the trace says, and what they take longer than a
 * second time, when everything is there, is their stall. The model is asked for the same
 * with the constants it is built with and with those just measured.
 *
 * usage: uvm_model_check [MIB]. Root, as events of this process's memory are read.
 * Exits 1 when the model, with the measured constants, is off by more than FACTOR in the
 * stall of a pattern, or by a tenth in the bytes; 77 when there is no GPU or little free.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "driver/uvm_tracker.h"
#include "policy/sim/generate.h"
#include "policy/sim/replay.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/mono_map.h"
#include "util/time.h"

#define SKIP          77
#define FACTOR        2.0
#define MIB           (1ull << 20)
#define BLOCK         ((uint64_t)POLICY_BLOCK_BYTES)
#define PAGE          65536ull
#define ROUNDS        3
#define WATCH_ENTRIES (1u << 20)
#define LAUNCHES      200
#define THREADS_MAX   4

#define ATTACH_GLOBAL 1  /* CU_MEM_ATTACH_GLOBAL */
#define DEVICE_CPU    -1 /* CU_DEVICE_CPU */
#define ADVISE_PREFER 3  /* CU_MEM_ADVISE_SET_PREFERRED_LOCATION */
#define UNPREFER      4  /* CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION */
#define ACCESSED_BY   5  /* CU_MEM_ADVISE_SET_ACCESSED_BY */
#define NOT_ACCESSED  6  /* CU_MEM_ADVISE_UNSET_ACCESSED_BY */

/* Thread i reads and writes the word at address + i * stride, and so on in turn. */
static const char kernel_ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry poke(.param .u64 address, .param .u64 count, .param .u64 stride)\n"
        "{\n.reg .pred %p;\n.reg .b32 %r<6>;\n.reg .b64 %rd<8>;\n"
        "ld.param.u64 %rd1, [address];\nld.param.u64 %rd2, [count];\nld.param.u64 %rd7, [stride];\n"
        "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %ntid.x;\nmov.u32 %r3, %tid.x;\n"
        "mov.u32 %r4, %nctaid.x;\n"
        "mul.wide.u32 %rd3, %r1, %r2;\ncvt.u64.u32 %rd4, %r3;\nadd.u64 %rd3, %rd3, %rd4;\n"
        "mul.wide.u32 %rd5, %r4, %r2;\n"
        "again:\nsetp.ge.u64 %p, %rd3, %rd2;\n@%p bra done;\n"
        "mul.lo.u64 %rd6, %rd3, %rd7;\nadd.u64 %rd6, %rd1, %rd6;\n"
        "ld.global.u32 %r5, [%rd6];\nadd.u32 %r5, %r5, 1;\nst.global.u32 [%rd6], %r5;\n"
        "add.u64 %rd3, %rd3, %rd5;\nbra again;\n"
        "done:\nret;\n}\n";

/* ---- CUDA ---- */

static struct {
        int (*init)(unsigned);
        int (*device_get)(int *, int);
        int (*context_create)(void **, unsigned, int);
        int (*context_set)(void *);
        int (*synchronize)(void);
        int (*module_load)(void **, const void *);
        int (*module_function)(void **, void *, const char *);
        int (*memory_info)(size_t *, size_t *);
        int (*allocate_managed)(uint64_t *, size_t, unsigned);
        int (*prefetch)(uint64_t, size_t, int, void *);
        int (*advise)(uint64_t, size_t, int, int);
        int (*stream_create)(void **, unsigned);
        int (*stream_synchronize)(void *);
        int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                      void *, void **, void **);
} cuda;

static struct {
        void *context, *poke;
        int device;
        uint64_t address, bytes;
} state;

static bool load_cuda(void)
{
        static const struct {
                const char *name;
                void *function;
        } functions[] = {{"cuInit", &cuda.init},
                         {"cuDeviceGet", &cuda.device_get},
                         {"cuCtxCreate_v2", &cuda.context_create},
                         {"cuCtxSetCurrent", &cuda.context_set},
                         {"cuCtxSynchronize", &cuda.synchronize},
                         {"cuModuleLoadData", &cuda.module_load},
                         {"cuModuleGetFunction", &cuda.module_function},
                         {"cuMemGetInfo_v2", &cuda.memory_info},
                         {"cuMemAllocManaged", &cuda.allocate_managed},
                         {"cuMemPrefetchAsync", &cuda.prefetch},
                         {"cuMemAdvise", &cuda.advise},
                         {"cuStreamCreate", &cuda.stream_create},
                         {"cuStreamSynchronize", &cuda.stream_synchronize},
                         {"cuLaunchKernel", &cuda.launch}};
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        for (size_t i = 0; library && i < ARRAY_SIZE(functions); i++) {
                *(void **)functions[i].function = dlsym(library, functions[i].name);
                if (!*(void **)functions[i].function)
                        return false;
        }
        return library;
}

/* Never more than a quarter of what is free: asking for more than there is can hang a GPU. */
static int prepare(uint64_t bytes)
{
        size_t unused, total;
        void *module;

        if (!load_cuda() || cuda.init(0) || cuda.device_get(&state.device, 0))
                return SKIP;
        CHECK_EQ(cuda.context_create(&state.context, 0, state.device), 0);
        CHECK_EQ(cuda.module_load(&module, kernel_ptx), 0);
        CHECK_EQ(cuda.module_function(&state.poke, module, "poke"), 0);
        CHECK_EQ(cuda.memory_info(&unused, &total), 0);
        if (unused / 4 < bytes)
                return SKIP;
        state.bytes = bytes;
        CHECK_EQ(cuda.allocate_managed(&state.address, bytes, ATTACH_GLOBAL), 0);
        return 0;
}

static void launch(unsigned blocks, unsigned threads, uint64_t address, uint64_t count,
                   uint64_t stride)
{
        void *parameters[] = {&address, &count, &stride};

        CHECK_EQ(cuda.launch(state.poke, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL),
                 0);
}

static uint64_t timed(unsigned blocks, unsigned threads, uint64_t count, uint64_t stride)
{
        uint64_t begun = now_ns();

        launch(blocks, threads, state.address, count, stride);
        CHECK_EQ(cuda.synchronize(), 0);
        return now_ns() - begun;
}

static void write_from_cpu(void)
{
        volatile uint32_t *words = (volatile uint32_t *)(uintptr_t)state.address;

        for (uint64_t i = 0; i < state.bytes / 4; i++)
                words[i] = (uint32_t)i;
}

static int compare(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

        return x < y ? -1 : x > y;
}

static uint64_t median(uint64_t values[ROUNDS])
{
        qsort(values, ROUNDS, sizeof(values[0]), compare);
        return values[ROUNDS / 2];
}

/* ---- by request ---- */

static uint64_t request(uint64_t bytes, int to)
{
        uint64_t begun = now_ns();

        CHECK_EQ(cuda.prefetch(state.address, bytes, to, NULL), 0);
        CHECK_EQ(cuda.synchronize(), 0);
        return now_ns() - begun;
}

static uint64_t request_median(uint64_t bytes, bool to_gpu)
{
        uint64_t values[ROUNDS];

        for (int i = 0; i < ROUNDS; i++) {
                if (to_gpu)
                        write_from_cpu();
                else
                        (void)request(state.bytes, state.device);
                values[i] = request(bytes, to_gpu ? state.device : DEVICE_CPU);
        }
        return median(values);
}

struct part {
        uint64_t address, bytes;
};

static void *request_part(void *data)
{
        const struct part *p = data;
        void *stream;

        CHECK_EQ(cuda.context_set(state.context), 0);
        CHECK_EQ(cuda.stream_create(&stream, 1), 0);
        CHECK_EQ(cuda.prefetch(p->address, p->bytes, state.device, stream), 0);
        CHECK_EQ(cuda.stream_synchronize(stream), 0);
        return NULL;
}

/* All of it, in parts that as many threads ask for at once. */
static uint64_t request_at_once(unsigned threads)
{
        struct part parts[THREADS_MAX];
        pthread_t list[THREADS_MAX];
        uint64_t begun;

        write_from_cpu();
        begun = now_ns();
        for (unsigned i = 0; i < threads; i++) {
                parts[i] = (struct part){state.address + i * (state.bytes / threads),
                                         state.bytes / threads};
                CHECK_EQ(pthread_create(&list[i], NULL, request_part, &parts[i]), 0);
        }
        for (unsigned i = 0; i < threads; i++)
                CHECK_EQ(pthread_join(list[i], NULL), 0);
        return now_ns() - begun;
}

static uint64_t mbps(uint64_t bytes, uint64_t ns)
{
        uint64_t rate = bytes * 1000 / (ns ? ns : 1);

        return rate ? rate : 1; /* it is divided by */
}

static void measure_requests(struct uvm_costs *costs)
{
        uint64_t block = request_median(BLOCK, true), all = request_median(state.bytes, true);
        uint64_t back = request_median(state.bytes, false);

        costs->to_gpu_mbps = mbps(state.bytes - BLOCK, all - block);
        costs->to_host_mbps = mbps(state.bytes, back);
        costs->call_ns = block > BLOCK * 1000 / costs->to_gpu_mbps
                                 ? block - BLOCK * 1000 / costs->to_gpu_mbps
                                 : 0;
        printf("request: %.3f ms for 2 MiB, %.3f ms for %llu MiB, %.3f ms back; at once by 2 "
               "threads %.3f ms, by 4 %.3f ms\n",
               (double)block / 1e6, (double)all / 1e6, (unsigned long long)(state.bytes / MIB),
               (double)back / 1e6, (double)request_at_once(2) / 1e6,
               (double)request_at_once(4) / 1e6);
}

/* ---- by faulting ---- */

/* Everything at the CPU, then so much of it touched. */
static uint64_t fault_median(unsigned blocks, unsigned threads, uint64_t count, uint64_t stride)
{
        uint64_t values[ROUNDS], warm;

        for (int i = 0; i < ROUNDS; i++) {
                write_from_cpu();
                values[i] = timed(blocks, threads, count, stride);
                warm = timed(blocks, threads, count, stride);
                values[i] -= warm < values[i] ? warm : values[i];
        }
        return median(values);
}

/*
 * Three times, three unknowns. One thread, block after block: each costs a batch, a
 * visit and a page. A thread for each block at once: visits and pages, few batches. All
 * pages: a batch for each batch_faults of them, a visit for each block.
 */
static void measure_faults(struct uvm_costs *c)
{
        double blocks = (double)(state.bytes / BLOCK), pages = (double)(BLOCK / PAGE);
        double page_copy = (double)PAGE * 1000 / (double)c->to_gpu_mbps;
        double one, many, all, batches, batch, both, page;

        one = (double)fault_median(1, 1, state.bytes / BLOCK, BLOCK) / blocks - page_copy;
        many = (double)fault_median((unsigned)blocks, 1, state.bytes / BLOCK, BLOCK) / blocks -
               page_copy;
        all = (double)fault_median(1024, 256, state.bytes / 4, 4) / blocks - pages * page_copy;
        printf("faulting: %.1f us a block one by one, %.1f us a block all at once, %.1f ms for all "
               "of it\n",
               one / 1e3, many / 1e3, (all + pages * page_copy) * blocks / 1e6);
        batches = blocks / c->batch_faults;
        batch = one > many ? (one - many) / (1 - batches / blocks) : 0;
        both = one > batch ? one - batch : 0; /* a visit and a page */
        page = (all - batch * pages / c->batch_faults - both) / (pages - 1);
        page = page > 0 ? page : 0;
        c->batch_ns = (uint64_t)batch;
        c->page_ns = (uint64_t)(page < both ? page : both);
        c->visit_ns = (uint64_t)(both - (double)c->page_ns);
}

static void measure_remote(struct uvm_costs *c)
{
        uint64_t words = state.bytes / 4, ns;

        write_from_cpu();
        CHECK_EQ(cuda.advise(state.address, state.bytes, ADVISE_PREFER, DEVICE_CPU), 0);
        CHECK_EQ(cuda.advise(state.address, state.bytes, ACCESSED_BY, state.device), 0);
        (void)timed(1024, 256, words, 4);
        ns = timed(1024, 256, words, 4);
        CHECK_EQ(cuda.advise(state.address, state.bytes, NOT_ACCESSED, state.device), 0);
        CHECK_EQ(cuda.advise(state.address, state.bytes, UNPREFER, DEVICE_CPU), 0);
        /* Mappings stay until memory moves. */
        (void)request(state.bytes, state.device);
        c->remote_mbps = mbps(state.bytes, ns);
}

static void print_constants(const struct uvm_costs *built, const struct uvm_costs *measured)
{
#define ROW(name)                                                                                  \
        printf("constant %-13s built in %8llu, measured %8llu\n", #name,                           \
               (unsigned long long)built->name, (unsigned long long)measured->name)
        ROW(batch_ns);
        ROW(visit_ns);
        ROW(page_ns);
        ROW(call_ns);
        ROW(to_gpu_mbps);
        ROW(to_host_mbps);
        ROW(remote_mbps);
#undef ROW
}

/* ---- patterns ---- */

/* Kernels as the trace has them, each waited for. ns. */
static uint64_t play(const struct uvm_trace *t)
{
        uint64_t begun = now_ns(), from = 0;

        for (size_t i = 0; i < t->count; i++) {
                const struct uvm_trace_record *r = &t->records[i];

                if (r->kind == UVM_TRACE_ALLOC)
                        from = r->address;
                else if (r->kind == UVM_TRACE_LAUNCH)
                        CHECK_EQ(cuda.synchronize(), 0);
                else if (r->kind == UVM_TRACE_TOUCH)
                        launch(256, 256, state.address + (r->address - from), r->bytes / 4, 4);
        }
        CHECK_EQ(cuda.synchronize(), 0);
        return now_ns() - begun;
}

static uint64_t play_stall(const struct uvm_trace *t)
{
        uint64_t values[ROUNDS], warm;

        for (int i = 0; i < ROUNDS; i++) {
                write_from_cpu();
                values[i] = play(t);
                warm = play(t);
                values[i] -= warm < values[i] ? warm : values[i];
        }
        return median(values);
}

struct counts {
        uint64_t faults, batches, to_gpu_bytes;
        uint32_t batch;
};

static void on_event(void *data, const struct uvm_event *e, const struct uvm_when *when)
{
        struct counts *c = data;

        if (e->kind == UVM_KIND_GPU_FAULT) {
                c->batches += !c->faults || e->batch != c->batch;
                c->batch = e->batch;
                c->faults++;
        }
        if (e->kind == UVM_KIND_MIGRATION && e->target != UVM_CPU)
                c->to_gpu_bytes += e->bytes;
}

/* The same once more, with the driver telling what it does. */
static int watch(const struct uvm_trace *t, struct counts *ret_counts)
{
        struct uvm_tracker_options options = {.pid = getpid(),
                                              .entries = WATCH_ENTRIES,
                                              .map = mono_map_new(clock_pair_read, NULL)};
        struct uvm_tracker_counts seen;
        struct uvm_tracker *tracker;
        int r;

        CHECK(options.map);
        write_from_cpu();
        CHECK_EQ(uvm_system_default.start_ticks(options.pid, &options.start_ticks), 0);
        (void)mono_map_read(options.map); /* events are later than this */
        r = uvm_tracker_new(&uvm_system_default, &options, &tracker);
        if (r < 0)
                return r;
        *ret_counts = (struct counts){0};
        (void)play(t);
        (void)uvm_tracker_flush(tracker);
        while (uvm_tracker_read(tracker, WATCH_ENTRIES, on_event, ret_counts))
                ;
        uvm_tracker_get_counts(tracker, &seen);
        if (seen.dropped)
                printf("%llu events were dropped\n", (unsigned long long)seen.dropped);
        uvm_tracker_free(tracker);
        mono_map_free(options.map);
        return 0;
}

static struct uvm_model_stats model(const struct uvm_trace *t, const struct uvm_costs *costs)
{
        const struct replay_options options = {.gpu_bytes = 4 * state.bytes, .costs = *costs};
        static struct replay_result result;

        CHECK_EQ(replay(t, &options, &result), 0);
        return result.memory;
}

static bool check_pattern(const char *name, const struct uvm_costs *measured)
{
        const struct generate_options options = {.pattern = name,
                                                 .gpu_bytes = state.bytes,
                                                 .percent = 90,
                                                 .launches = LAUNCHES,
                                                 .seed = 1};
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = NULL;
        struct uvm_model_stats built, fitted;
        struct counts seen = {0};
        double stall, ratio;
        bool ok;

        CHECK_EQ(generate(&options, &t), 0);
        stall = (double)play_stall(t);
        built = model(t, &uvm_costs_h200);
        fitted = model(t, measured);
        if (watch(t, &seen) < 0)
                printf("%s: events cannot be read\n", name);
        ratio = stall ? (double)fitted.stall_ns / stall : 0;
        ok = ratio < FACTOR && ratio > 1 / FACTOR;
        if (seen.to_gpu_bytes)
                ok = ok && seen.to_gpu_bytes < fitted.to_gpu_bytes * 11 / 10 &&
                     seen.to_gpu_bytes > fitted.to_gpu_bytes * 9 / 10;
        printf("pattern %-10s stall: %.1f ms, model %.1f ms as built, %.1f ms with what was "
               "measured (x%.2f); to the GPU: %llu MiB, model %llu; faults: %llu in %llu batches, "
               "model %llu in %llu: %s\n",
               name, stall / 1e6, (double)built.stall_ns / 1e6, (double)fitted.stall_ns / 1e6,
               ratio, (unsigned long long)(seen.to_gpu_bytes / MIB),
               (unsigned long long)(fitted.to_gpu_bytes / MIB), (unsigned long long)seen.faults,
               (unsigned long long)seen.batches, (unsigned long long)fitted.faults,
               (unsigned long long)fitted.batches, ok ? "ok" : "OFF");
        return ok;
}

int main(int argc, char **argv)
{
        static const char *const patterns[] = {"streaming", "strided", "zipf", "cyclic",
                                               "clusters"};
        uint64_t bytes = (argc > 1 ? strtoull(argv[1], NULL, 10) : 1024) * MIB;
        struct uvm_costs measured = uvm_costs_h200;
        unsigned off = 0;
        int r;

        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        r = prepare(bytes);
        if (r) {
                printf("SKIP: no GPU, or too little of its memory is free\n");
                return r;
        }
        measure_requests(&measured);
        measure_faults(&measured);
        measure_remote(&measured);
        print_constants(&uvm_costs_h200, &measured);
        for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
                off += !check_pattern(patterns[i], &measured);
        printf("uvm_model_check: %u patterns off\n", off);
        return off != 0;
}
