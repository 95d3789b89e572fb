/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real uprobes of this kernel on a library that exports the driver API's names:
 * what each call makes known, and to whom it is attributed.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "probe_fixture.h"
#include "util/macro.h"
#include "util/proc_stat.h"
#include "util/time.h"

static const char *original; /* the library as built */
static char *library;        /* our copy */
static struct cpu_probes *probes;
static struct recorder seen;

static struct fake fake; /* in the child */

static void run(void (*scenario)(void *data))
{
        child_run(probes, &seen, scenario, NULL);
}

static __attribute__((noinline)) void launch(unsigned tag)
{
        fake.cuLaunchKernel(0xf000 + tag, tag, 1, 1, 32, 1, 1, 0, 0, NULL, NULL);
}

/* ---- launches ---- */

static void launch_all_kinds(void *data)
{
        struct fake_launch_config config = {
                {70, 71, 72}, {80, 81, 82}, 900, 0xabc0, NULL, 0,
        };

        fake_load(library, &fake);
        *fake.handle = 0xc0de;
        fake.cuCtxCreate_v2(&(handle_t){0}, 0, 3);
        fake.cuLaunchKernel(0xf1, 1000000, 65535, 7, 1024, 2, 64, 49152, 0x5555, NULL, NULL);
        fake.cuLaunchKernelEx(&config, 0xf2, NULL, NULL);
        *fake.result = 719;
        fake.cuLaunchCooperativeKernel(0xf3, 1, 2, 3, 4, 5, 6, 7, 0, NULL);
        *fake.result = 0;
        fake.cuGraphLaunch(0xe4, 0x66);
        fake.cuLaunchKernel_ptsz(0xf5, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
        config.stream = 0;
        fake.cuLaunchKernelEx_ptsz(&config, 0xf6, NULL, NULL);
        fake.cuLaunchKernel_ptsz(0xf7, 1, 1, 1, 1, 1, 1, 0, 0x77, NULL, NULL);
        fake.cuGraphLaunch_ptsz(0xe8, 0);
        usleep(20000);
}

static void check_geometry(const struct cpu_launch_event *e, const unsigned expected[7])
{
        CHECK_EQ(e->grid_x, expected[0]);
        CHECK_EQ(e->grid_y, expected[1]);
        CHECK_EQ(e->grid_z, expected[2]);
        CHECK_EQ(e->block_x, expected[3]);
        CHECK_EQ(e->block_y, expected[4]);
        CHECK_EQ(e->block_z, expected[5]);
        CHECK_EQ(e->shared_bytes, expected[6]);
}

static void test_launch_fields(void)
{
        static const uint64_t funcs[] = {0xf1, 0xf2, 0xf3, 0xe4, 0xf5, 0xf6, 0xf7, 0xe8};
        static const uint64_t streams[] = {0x5555, 0xabc0, 0, 0x66, 2, 2, 0x77, 2};
        const struct cpu_launch_event *l = seen.launches;
        uint64_t before = now_ns(), handle;
        uint32_t tgid;
        size_t i;

        run(launch_all_kinds);
        CHECK_EQ(seen.launch_count, ARRAY_SIZE(funcs));
        for (i = 0; i < ARRAY_SIZE(funcs); i++) {
                CHECK_EQ(l[i].func, funcs[i]);
                CHECK_EQ(l[i].stream, streams[i]);
                CHECK_EQ(l[i].seq, i + 1);
                CHECK_EQ(l[i].context, l[0].context);
                CHECK_EQ(l[i].tid, seen.tgid);
                CHECK_EQ(l[i].result, i == 2 ? 719 : 0);
                CHECK_EQ(l[i].type,
                         funcs[i] >> 4 == 0xe ? CPU_EVENT_GRAPH_LAUNCH : CPU_EVENT_LAUNCH);
                CHECK(l[i].enter_ns > before && l[i].enter_ns + l[i].duration_ns < now_ns());
                CHECK(i == 0 || l[i].enter_ns >= l[i - 1].enter_ns + l[i - 1].duration_ns);
                CHECK(l[i].duration_ns > 0);
        }
        check_geometry(&l[0], (unsigned[]){1000000, 65535, 7, 1024, 2, 64, 49152});
        check_geometry(&l[1], (unsigned[]){70, 71, 72, 80, 81, 82, 900});
        check_geometry(&l[2], (unsigned[]){1, 2, 3, 4, 5, 6, 7});
        check_geometry(&l[3], (unsigned[]){0, 0, 0, 0, 0, 0, 0});

        CHECK_EQ(seen.handle_count, 1);
        CHECK_EQ(seen.handles[0].e.kind, CPU_HANDLE_CONTEXT);
        CHECK_EQ(seen.handles[0].e.handle, 0xc0de);
        CHECK_EQ(seen.handles[0].e.parent, 3);
        CHECK_EQ(seen.handles[0].e.context, l[0].context);
        CHECK(l[0].context > 0);
        /* The process is gone: its context is free again. */
        CHECK_EQ(cpu_probes_context(probes, l[0].context, &handle, &tgid), -ENOENT);
}

/* ---- calls in calls ---- */

static jmp_buf escape;

static void leave(void)
{
        longjmp(escape, 1);
}

static void nested_calls(void *data)
{
        static struct fake_copy_2d copy = {.width = 10, .height = 3};
        void (*nothing)(void);

        fake_load(library, &fake);
        fake.cuLaunchCooperativeKernel(1, 1, 1, 1, 1, 1, 1, 0, 0, NULL);
        fake.cuMemcpy2D_v2(&copy);
        fake.jump_to_launch(0x2000, 9, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
        fake.cuLaunchKernel(2, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);

        /* A call that is left by longjmp: nothing is known of it, and the next ones are seen. */
        nothing = *fake.work;
        *fake.work = leave;
        if (setjmp(escape) == 0)
                fake.cuStreamSynchronize(0x99);
        *fake.work = nothing;
        launch(3);
        fake.cuMemcpyHtoD_v2(0xd0, &copy, 77);
}

static void test_nested_calls_count_once(void)
{
        run(nested_calls);
        CHECK_EQ(seen.launch_count, 3);
        CHECK_EQ(seen.launches[0].func, 1);
        CHECK_EQ(seen.launches[1].func, 2);
        CHECK_EQ(seen.launches[2].func, 0xf003);
        CHECK_EQ(seen.launches[1].seq, 2); /* neither the inner launches nor the jump took one */
        CHECK_EQ(seen.launches[2].seq, 3);

        CHECK_EQ(seen.operation_count, 3);
        CHECK_EQ(seen.operations[0].bytes, 30);
        CHECK_EQ(seen.operations[1].operation, CPU_OP_MEMSET);
        CHECK_EQ(seen.operations[1].address, 0x2000);
        CHECK_EQ(seen.operations[2].operation, CPU_OP_MEMCPY_HTOD);
        CHECK_EQ(seen.operations[2].bytes, 77);
        CHECK_EQ(seen.operations[2].launch_seq, 3);
}

/* ---- operations ---- */

static const struct {
        uint8_t operation;
        uint64_t bytes, address, stream, handle;
} expected_operations[] = {
        {CPU_OP_SYNC_CONTEXT, 0, 0, 0, 0},
        {CPU_OP_SYNC_STREAM, 0, 0, 0x51, 0},
        {CPU_OP_SYNC_STREAM, 0, 0, 2, 0},
        {CPU_OP_SYNC_EVENT, 0, 0, 0, 0xe1},
        {CPU_OP_MEMCPY_OTHER, 11, 0xd1, 0, 0},
        {CPU_OP_MEMCPY_OTHER, 12, 0xd2, 2, 0},
        {CPU_OP_MEMCPY_PEER, 13, 0xd3, 0x53, 0},
        {CPU_OP_MEMCPY_HTOD, 14, 0xd4, 0, 0},
        {CPU_OP_MEMCPY_HTOD, 15, 0xd5, 0x55, 0},
        {CPU_OP_MEMCPY_DTOH, 16, 0xd6, 0, 0},
        {CPU_OP_MEMCPY_DTOD, 17, 0xd7, 2, 0},
        {CPU_OP_MEMCPY_DTOH, 100 * 20, 0xd8, 0, 0},
        {CPU_OP_MEMCPY_HTOD, 100 * 20 * 5, 0xd9, 0x59, 0},
        {CPU_OP_MEMSET, 21, 0xda, 0, 0},
        {CPU_OP_MEMSET, 22 * 4, 0xdb, 0x5b, 0},
        {CPU_OP_MEMSET, 23 * 9 * 2, 0xdc, 0, 0},
        {CPU_OP_ALLOC, 31, 0xa1, 0, 0},
        {CPU_OP_ALLOC_MANAGED, 32, 0xa1, 0, 0},
        {CPU_OP_ALLOC_HOST, 33, 0xa1, 0, 0},
        {CPU_OP_ALLOC_ASYNC, 34, 0xa1, 0x61, 0},
        {CPU_OP_FREE, 0, 0xb1, 0, 0},
        {CPU_OP_FREE, 0, 0xb2, 0x62, 0},
        {CPU_OP_FREE, 0, 0xb3, 0, 0},
        {CPU_OP_MAP, 36, 0xb6, 0, 0},
        {CPU_OP_UNMAP, 37, 0xb7, 0, 0},
        {CPU_OP_MEM_ADVISE, 41, 0xb4, 0, 0},
        {CPU_OP_MEM_PREFETCH, 42, 0xb5, 0x65, 0},
        {CPU_OP_GRAPH_INSTANTIATE, 0, 0, 0, 0xa1},
};

static void copies(void)
{
        struct fake_copy_2d two = {
                .src_type = 2,
                .src_device = 0xd8,
                .dst_type = 1,
                .dst_device = 0xbad,
                .width = 100,
                .height = 20,
        };
        struct fake_copy_3d three = {
                .src_type = 1,
                .src_device = 0xbad,
                .dst_type = 2,
                .dst_device = 0xd9,
                .width = 100,
                .height = 20,
                .depth = 5,
        };

        fake.cuMemcpy(0xd1, 0xe1, 11);
        fake.cuMemcpy_ptds(0xd2, 0xe2, 12);
        fake.cuMemcpyPeerAsync(0xd3, 0xc1, 0xe3, 0xc2, 13, 0x53);
        fake.cuMemcpyHtoD_v2(0xd4, NULL, 14);
        fake.cuMemcpyHtoDAsync_v2(0xd5, NULL, 15, 0x55);
        fake.cuMemcpyDtoH_v2(NULL, 0xd6, 16);
        fake.cuMemcpyDtoDAsync_v2_ptsz(0xd7, 0xe7, 17, 0);
        fake.cuMemcpy2DUnaligned_v2(&two);
        fake.cuMemcpy3DAsync_v2(&three, 0x59);
}

static void all_operations(void *data)
{
        CUdeviceptr out;

        fake_load(library, &fake);
        launch(1);
        launch(2);
        fake.cuCtxSynchronize();
        fake.cuStreamSynchronize(0x51);
        fake.cuStreamSynchronize_ptsz(0);
        fake.cuEventSynchronize(0xe1);
        copies();
        fake.cuMemsetD8_v2(0xda, 1, 21);
        fake.cuMemsetD32Async(0xdb, 1, 22, 0x5b);
        fake.cuMemsetD2D16_v2(0xdc, 512, 1, 23, 9);
        *fake.handle = 0xa1;
        fake.cuMemAlloc_v2(&out, 31);
        fake.cuMemAllocManaged(&out, 32, 1);
        fake.cuMemAllocHost_v2((void **)&out, 33);
        fake.cuMemAllocAsync(&out, 34, 0x61);
        fake.cuMemFree_v2(0xb1);
        fake.cuMemFreeAsync(0xb2, 0x62);
        fake.cuMemFreeHost((void *)0xb3);
        fake.cuMemMap(0xb6, 36, 0, 0xa2, 0);
        fake.cuMemUnmap(0xb7, 37);
        fake.cuMemAdvise(0xb4, 41, 1, 0);
        fake.cuMemPrefetchAsync_v2(0xb5, 42, 1, 0, 0x65);
        fake.cuGraphInstantiateWithFlags(&out, 0x91, 0);
        *fake.result = 2;
        fake.cuMemAlloc_v2(&out, 35);
}

static void test_operations(void)
{
        const struct cpu_operation_event *o = seen.operations;
        size_t i, n = ARRAY_SIZE(expected_operations);

        run(all_operations);
        CHECK_EQ(seen.operation_count, n + 1);
        for (i = 0; i < n; i++) {
                CHECK_EQ(o[i].operation, expected_operations[i].operation);
                CHECK_EQ(o[i].bytes, expected_operations[i].bytes);
                CHECK_EQ(o[i].address, expected_operations[i].address);
                CHECK_EQ(o[i].stream, expected_operations[i].stream);
                CHECK_EQ(o[i].handle, expected_operations[i].handle);
                CHECK_EQ(o[i].launch_seq, 2);
                CHECK_EQ(o[i].context, seen.launches[0].context);
                CHECK_EQ(o[i].result, 0);
                CHECK_EQ(o[i].tid, seen.tgid);
        }
        /* Failed: what was asked for is known, what was not given is not. */
        CHECK_EQ(o[n].bytes, 35);
        CHECK_EQ(o[n].address, 0);
        CHECK_EQ(o[n].result, 2);
}

/* ---- handles and names ---- */

static char long_name[CPU_NAME_MAX + 100];

/* A driver reads the names it is given, which brings their pages in; the fake one does not. */
static const char *resident(const char *name)
{
        (void)*(const volatile char *)name;
        return name;
}

static void make_handles(void *data)
{
        handle_t out;

        fake_load(library, &fake);
        memset(long_name, 'k', sizeof(long_name) - 1);
        *fake.handle = 0x10;
        fake.cuModuleLoad(&out, resident("/some/module.cubin"));
        *fake.handle = 0x11;
        fake.cuModuleGetFunction(&out, 0x10, resident("_Z6kernelPfi"));
        *fake.handle = 0x12;
        fake.cuLibraryLoadData(&out, NULL, NULL, NULL, 0, NULL, NULL, 0);
        *fake.handle = 0x13;
        fake.cuLibraryGetKernel(&out, 0x12, long_name);
        long_name[CPU_NAME_MAX - 1] = '\0';
        fake.cuLibraryGetKernel(&out, 0x12, long_name);
        *fake.handle = 0x14;
        fake.cuKernelGetFunction(&out, 0x13);
        *fake.handle = 0x15;
        fake.cuStreamCreate(&out, 0);
        *fake.handle = 0x16;
        fake.cuGraphInstantiateWithFlags(&out, 0x99, 0);
        *fake.result = 500;
        fake.cuModuleGetFunction(&out, 0x10, "no_such_kernel");
        fake.cuModuleUnload(0x10);
        *fake.result = 0;
        fake.cuStreamDestroy_v2(0x15);
        fake.cuGraphExecDestroy(0x16);
        fake.cuModuleUnload(0x10);
        fake.cuModuleGetFunction(&out, 0x10, (const char *)8); /* an unreadable name */
}

static void check_handle(size_t i, enum cpu_handle_kind kind, uint64_t handle, uint64_t parent,
                         bool destroyed, const char *name)
{
        const struct named_handle *h = &seen.handles[i];

        CHECK_EQ(h->e.kind, kind);
        CHECK_EQ(h->e.handle, handle);
        CHECK_EQ(h->e.parent, parent);
        CHECK_EQ(h->e.destroyed, destroyed);
        CHECK_EQ(h->e.tid, seen.tgid);
        CHECK_STR(h->name, name);
}

static void test_handles(void)
{
        run(make_handles);
        memset(long_name, 'k', CPU_NAME_MAX - 1);
        long_name[CPU_NAME_MAX - 1] = '\0';
        /* The instantiation is an operation, which has a context: one event more. */
        CHECK_EQ(seen.handle_count, 13);
        check_handle(0, CPU_HANDLE_MODULE, 0x10, 0, false, "/some/module.cubin");
        check_handle(1, CPU_HANDLE_FUNCTION, 0x11, 0x10, false, "_Z6kernelPfi");
        check_handle(2, CPU_HANDLE_LIBRARY, 0x12, 0, false, "");
        check_handle(3, CPU_HANDLE_KERNEL, 0x13, 0x12, false, long_name);
        CHECK_EQ(seen.handles[3].e.name_truncated, 1);
        check_handle(4, CPU_HANDLE_KERNEL, 0x13, 0x12, false, long_name);
        CHECK_EQ(seen.handles[4].e.name_truncated, 0);
        CHECK_EQ(seen.handles[4].e.name_length, CPU_NAME_MAX - 1);
        check_handle(5, CPU_HANDLE_FUNCTION, 0x14, 0x13, false, "");
        check_handle(6, CPU_HANDLE_STREAM, 0x15, 0, false, "");
        check_handle(7, CPU_HANDLE_CONTEXT, 0, ~0ULL, false, "");
        check_handle(8, CPU_HANDLE_GRAPH_EXEC, 0x16, 0x99, false, "");
        check_handle(9, CPU_HANDLE_STREAM, 0x15, 0, true, "");
        check_handle(10, CPU_HANDLE_GRAPH_EXEC, 0x16, 0, true, "");
        check_handle(11, CPU_HANDLE_MODULE, 0x10, 0, true, "");
        check_handle(12, CPU_HANDLE_FUNCTION, 0x16, 0x10, false, "");
}

/* ---- contexts ---- */

static void *other_thread(void *data)
{
        fake.cuCtxSetCurrent(0xc2);
        launch(20);
        launch(21);
        return NULL;
}

static void *third_thread(void *data)
{
        launch(30); /* never set one: the process's first */
        return NULL;
}

static void many_contexts(void *data)
{
        pthread_t thread;
        handle_t out;

        fake_load(library, &fake);
        *fake.handle = 0xc1;
        fake.cuDevicePrimaryCtxRetain(&out, 0);
        fake.cuCtxSetCurrent(0xc1);
        launch(10);
        *fake.handle = 0xc2;
        fake.cuDevicePrimaryCtxRetain(&out, 1);
        pthread_create(&thread, NULL, other_thread, NULL);
        pthread_join(thread, NULL);
        pthread_create(&thread, NULL, third_thread, NULL);
        pthread_join(thread, NULL);
        fake.cuCtxPushCurrent_v2(0xc2);
        launch(22);
        fake.cuCtxPopCurrent_v2(&out);
        launch(11);
        *fake.handle = 0xc3;
        fake.cuCtxCreate_v4(&out, NULL, 0, 2);
        launch(40);
        fake.cuCtxDestroy_v2(0xc3);
        launch(12);
        *fake.result = 201;
        fake.cuCtxSetCurrent(0xc2); /* failed: nothing changes */
        *fake.result = 0;
        launch(13);
}

static uint32_t context_of(uint64_t handle)
{
        const struct named_handle *h;
        size_t i;

        for (i = 0; (h = recorder_handle(&seen, CPU_HANDLE_CONTEXT, i)); i++)
                if (h->e.handle == handle && !h->e.destroyed)
                        return h->e.context;
        return 0;
}

static void test_contexts_of_threads(void)
{
        static const struct {
                unsigned tag;
                uint64_t context;
                uint32_t seq;
        } expected[] = {
                {10, 0xc1, 1}, {20, 0xc2, 1}, {21, 0xc2, 2}, {30, 0xc1, 2}, {22, 0xc2, 3},
                {11, 0xc1, 3}, {40, 0xc3, 1}, {12, 0xc1, 4}, {13, 0xc1, 5},
        };
        const struct named_handle *h;
        size_t i;

        run(many_contexts);
        CHECK_EQ(seen.launch_count, ARRAY_SIZE(expected));
        for (i = 0; i < ARRAY_SIZE(expected); i++) {
                CHECK_EQ(seen.launches[i].grid_x, expected[i].tag);
                CHECK_EQ(seen.launches[i].context, context_of(expected[i].context));
                CHECK_EQ(seen.launches[i].seq, expected[i].seq);
        }
        CHECK(context_of(0xc1) != context_of(0xc2));
        CHECK_EQ(recorder_handle(&seen, CPU_HANDLE_CONTEXT, 1)->e.parent, 1);
        h = recorder_handle(&seen, CPU_HANDLE_CONTEXT, 3);
        CHECK(h && h->e.destroyed && h->e.handle == 0xc3);
        CHECK(!recorder_handle(&seen, CPU_HANDLE_CONTEXT, 4));
}

/* As for a process that was running before the probes came. */
static void context_before_probes(void *data)
{
        handle_t out;

        fake_load(library, &fake);
        launch(1);
        fake.cuCtxSetCurrent(0xc9);
        launch(2);
        *fake.handle = 0xc9;
        fake.cuDevicePrimaryCtxRetain(&out, 4);
        launch(3);
        fake.cuCtxSetCurrent(0xc8);
        launch(4);
}

static void test_context_made_before_probes(void)
{
        const struct named_handle *h;

        run(context_before_probes);
        CHECK_EQ(seen.launch_count, 4);
        CHECK_EQ(seen.launches[1].context, seen.launches[0].context);
        CHECK_EQ(seen.launches[2].context, seen.launches[0].context);
        CHECK_EQ(seen.launches[2].seq, 3);
        CHECK(seen.launches[3].context != seen.launches[0].context);
        CHECK_EQ(seen.launches[3].seq, 1);

        h = recorder_handle(&seen, CPU_HANDLE_CONTEXT, 0);
        CHECK(h && h->e.handle == 0 && h->e.parent == ~0ULL);
        h = recorder_handle(&seen, CPU_HANDLE_CONTEXT, 1);
        CHECK(h && h->e.handle == 0xc9 && h->e.parent == ~0ULL);
        h = recorder_handle(&seen, CPU_HANDLE_CONTEXT, 2);
        CHECK(h && h->e.handle == 0xc9 && h->e.parent == 4);
        CHECK_EQ(h->e.context, seen.launches[0].context);
        h = recorder_handle(&seen, CPU_HANDLE_CONTEXT, 3);
        CHECK(h && h->e.handle == 0xc8 && h->e.context == seen.launches[3].context);
}

/* More contexts, one after the other, than there are indexes. */
static void contexts_without_end(void *data)
{
        handle_t out;
        int i;

        fake_load(library, &fake);
        for (i = 0; i < CPU_CONTEXT_MAX + 1000; i++) {
                *fake.handle = 0x100000 + (handle_t)i;
                fake.cuCtxCreate_v2(&out, 0, 0);
                if (i % 1000 == 0)
                        launch(1);
                fake.cuCtxDestroy_v2(out);
                if (i % 1024 == 0)
                        usleep(20000); /* lets the daemon give indexes back */
        }
}

static void test_contexts_are_recycled(void)
{
        uint64_t losses[CPU_LOSS_COUNT];
        size_t i;

        run(contexts_without_end);
        CHECK_EQ(cpu_probes_losses(probes, losses), 0);
        CHECK_EQ(losses[CPU_LOSS_CONTEXT_FULL], 0);
        CHECK_EQ(seen.launch_count, (CPU_CONTEXT_MAX + 1000 + 999) / 1000);
        for (i = 0; i < seen.launch_count; i++) {
                CHECK(seen.launches[i].context > 0);
                CHECK_EQ(seen.launches[i].seq, 1);
        }
}

/* ---- many threads ---- */

#define THREADS             4
#define LAUNCHES_PER_THREAD 2000

static void *launch_many(void *data)
{
        unsigned i;

        for (i = 0; i < LAUNCHES_PER_THREAD; i++)
                launch(i + 1);
        return NULL;
}

static void launch_from_threads(void *data)
{
        pthread_t threads[THREADS];
        size_t i;

        fake_load(library, &fake);
        *fake.handle = 0xc1;
        fake.cuCtxCreate_v2(&(handle_t){0}, 0, 0);
        for (i = 0; i < THREADS; i++)
                pthread_create(&threads[i], NULL, launch_many, NULL);
        for (i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
}

static int by_seq(const void *a, const void *b)
{
        const struct cpu_launch_event *l = a, *r = b;

        return l->seq < r->seq ? -1 : l->seq > r->seq;
}

static void test_sequence_over_threads(void)
{
        size_t i;

        run(launch_from_threads);
        CHECK_EQ(seen.launch_count, THREADS * LAUNCHES_PER_THREAD);
        qsort(seen.launches, seen.launch_count, sizeof(*seen.launches), by_seq);
        for (i = 0; i < seen.launch_count; i++)
                CHECK_EQ(seen.launches[i].seq, i + 1);
        /* Threads end, but the process ends once. */
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_EXIT), 1);
}

/* ---- losses ---- */

#define LAUNCHES_TO_LOSE 5000

static void launch_unread(void *data)
{
        unsigned i;

        fake_load(library, &fake);
        for (i = 0; i < LAUNCHES_TO_LOSE; i++)
                launch(i + 1);
        fake.cuMemFree_v2(1);
}

static void test_full_ring_is_counted(void)
{
        struct recorder *r = &seen;
        struct cpu_probes *small = probes_on(library, CPU_PROBES_AUTO, 65536, r);
        uint64_t losses[CPU_LOSS_COUNT], lost;
        struct child c = child_start(launch_unread, NULL);

        recorder_reset(r, (uint32_t)c.pid);
        child_go(&c);
        child_finish(&c, NULL); /* nobody reads */
        while (cpu_probes_poll(small, 100) == 100)
                ;
        CHECK_EQ(cpu_probes_losses(small, losses), 0);
        CHECK_EQ(cpu_probes_process_lost(small, r->tgid, &lost), 0);
        CHECK(lost > 0 && r->launch_count > 0);
        CHECK_EQ(r->launch_count + lost, LAUNCHES_TO_LOSE);
        CHECK_EQ(losses[CPU_LOSS_RING_LAUNCH], lost);
        CHECK_EQ(losses[CPU_LOSS_RING_OPERATION], 1);

        /* Its end did not fit either: the scan tells of it, once. */
        CHECK_EQ(losses[CPU_LOSS_RING_PROCESS], 1);
        CHECK_EQ(recorder_processes(r, CPU_PROCESS_EXIT), 0);
        CHECK_EQ(cpu_probes_scan(small), 0);
        CHECK_EQ(cpu_probes_scan(small), 0);
        CHECK_EQ(recorder_processes(r, CPU_PROCESS_EXIT), 1);
        CHECK_EQ(recorder_process(r, CPU_PROCESS_EXIT)->launches_lost, lost);
        cpu_probes_process_gone(small, r->tgid);
        CHECK_EQ(cpu_probes_process_lost(small, r->tgid, &lost), -ENOENT);
        cpu_probes_free(small);
}

static void test_budget(void)
{
        struct child c = child_start(launch_unread, NULL);

        recorder_reset(&seen, (uint32_t)c.pid);
        child_go(&c);
        child_finish(&c, NULL);
        CHECK_EQ(cpu_probes_poll(probes, 10), 10);
        CHECK(seen.launch_count <= 10);
        CHECK_EQ(cpu_probes_poll(probes, 0), 0);
        while (cpu_probes_poll(probes, 1000) == 1000)
                ;
        CHECK_EQ(seen.launch_count, LAUNCHES_TO_LOSE); /* the default ring holds them all */
        cpu_probes_process_gone(probes, seen.tgid);
}

/* What there was no time for comes again, before anything else. */
static void test_put_back(void)
{
        struct child c = child_start(launch_unread, NULL);
        size_t polls = 0;

        recorder_reset(&seen, (uint32_t)c.pid);
        seen.puts_back = probes;
        child_go(&c);
        child_finish(&c, NULL);
        for (; recorder_processes(&seen, CPU_PROCESS_EXIT) == 0; polls++)
                CHECK(cpu_probes_poll(probes, 1000) >= 1);
        CHECK_EQ(seen.launch_count, LAUNCHES_TO_LOSE);
        CHECK(polls > LAUNCHES_TO_LOSE);
        for (size_t i = 1; i < seen.launch_count; i++)
                CHECK_EQ(seen.launches[i].seq, seen.launches[i - 1].seq + 1);
        cpu_probes_process_gone(probes, seen.tgid);
}

/* Much that waits makes the descriptor readable, before the timer would look. */
#define LAUNCHES_TO_WAKE 60000

static int go_on[2];

static void launch_until_woken(void *data)
{
        unsigned i;
        char byte;

        fake_load(library, &fake);
        launch(1);
        CHECK_EQ(read(go_on[0], &byte, 1), 1);
        for (i = 1; i < LAUNCHES_TO_WAKE; i++)
                launch(i + 1);
        CHECK_EQ(read(go_on[0], &byte, 1), 1); /* its end would wake, too */
}

/* Nothing is there any more, and nothing comes by itself. */
static void poll_until_silent(struct pollfd *wait)
{
        do
                while (cpu_probes_poll(probes, 1000) == 1000)
                        ;
        while (poll(wait, 1, 0) == 1 || seen.launch_count == 0);
}

static void test_wakeup(void)
{
        struct pollfd wait = {.fd = cpu_probes_fd(probes), .events = POLLIN};
        struct child c;

        CHECK_EQ(pipe2(go_on, O_CLOEXEC), 0);
        c = child_start(launch_until_woken, NULL);
        recorder_reset(&seen, (uint32_t)c.pid);
        child_go(&c);
        /* Its first call wakes by itself. */
        CHECK_EQ(poll(&wait, 1, 60000), 1);
        poll_until_silent(&wait);
        CHECK_EQ(seen.launch_count, 1);
        CHECK_EQ(write(go_on[1], "", 1), 1);
        CHECK_EQ(poll(&wait, 1, 60000), 1);
        CHECK_EQ(write(go_on[1], "", 1), 1);
        child_finish(&c, probes);
        close(go_on[0]);
        close(go_on[1]);
        CHECK_EQ(seen.launch_count, LAUNCHES_TO_WAKE);
        cpu_probes_process_gone(probes, seen.tgid);
}

/* ---- processes ---- */

static void fork_once(void *data)
{
        fake_load(library, &fake);
        launch(1);
        if (fork() == 0)
                _exit(0);
        usleep(50000);
}

static void exec_after_launch(void *data)
{
        fake_load(library, &fake);
        launch(1);
        execl("/proc/self/exe", "cpu_probes_test", original, library, "launch-after-exec", NULL);
        _exit(3);
}

static void launch_after_exec(void)
{
        fake_load(library, &fake);
        launch(2);
        launch(3);
        _exit(0);
}

static void *end_last(void *data)
{
        usleep(50000);
        launch(1);
        _exit(0);
}

static void leader_ends_first(void *data)
{
        pthread_t thread;

        fake_load(library, &fake);
        launch(1);
        pthread_create(&thread, NULL, end_last, NULL);
        pthread_exit(NULL);
}

static void test_fork_exec_exit(void)
{
        run(fork_once);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_FORK), 1);
        CHECK_EQ(recorder_process(&seen, CPU_PROCESS_FORK)->parent_tgid, seen.tgid);
        CHECK(recorder_process(&seen, CPU_PROCESS_FORK)->tgid != seen.tgid);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_EXIT), 1);

        /* Another program in the same process: contexts and sequences start anew. */
        run(exec_after_launch);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_EXEC), 1);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_EXIT), 1);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_FIRST), 2);
        CHECK_EQ(seen.launch_count, 3);
        CHECK(seen.launches[1].context != seen.launches[0].context);
        CHECK_EQ(seen.launches[1].seq, 1);
        CHECK_EQ(seen.launches[2].seq, 2);

        run(leader_ends_first);
        CHECK_EQ(seen.launch_count, 2);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_EXIT), 1);
        CHECK(recorder_process(&seen, CPU_PROCESS_EXIT)->ts_ns > seen.launches[1].enter_ns);
}

static void named(void *data)
{
        fake_load(library, &fake);
        prctl(PR_SET_NAME, "a ) name");
        CHECK_EQ(setresuid(65534, 65534, 65534), 0);
        launch(1);
        launch(2);
}

/* Who it was, told by the kernel: by the time it is read the process is gone. */
static void test_first_call(void)
{
        const struct cpu_process_event *e;
        struct child c = child_start(named, NULL);
        uint64_t ticks;

        recorder_reset(&seen, (uint32_t)c.pid);
        CHECK_EQ(process_start_ticks(c.pid, &ticks), 0);
        child_go(&c);
        child_finish(&c, probes);
        CHECK_EQ(recorder_processes(&seen, CPU_PROCESS_FIRST), 1);
        e = recorder_process(&seen, CPU_PROCESS_FIRST);
        CHECK(e == &seen.processes[0]);
        CHECK_STR(e->comm, "a ) name");
        CHECK_EQ(e->uid, 65534);
        CHECK_EQ(e->started_ns * (uint64_t)sysconf(_SC_CLK_TCK) / 1000000000, ticks);
        CHECK_EQ(seen.launch_count, 2);
        cpu_probes_process_gone(probes, seen.tgid);
}

static void test_all(enum cpu_probes_how how, const char *name)
{
        printf("attached by %s\n", name);
        probes = probes_on(library, how, 0, &seen);
        CHECK_EQ(cpu_probes_library(probes, 0)->how, how);
        CHECK(cpu_probes_library(probes, 0)->functions >= 50);
        TEST(test_launch_fields);
        TEST(test_nested_calls_count_once);
        TEST(test_operations);
        TEST(test_handles);
        TEST(test_contexts_of_threads);
        TEST(test_context_made_before_probes);
        TEST(test_sequence_over_threads);
        TEST(test_fork_exec_exit);
        TEST(test_first_call);
        if (how == CPU_PROBES_MULTI || !cpu_probes_have_multi()) {
                TEST(test_contexts_are_recycled);
                TEST(test_budget);
                TEST(test_put_back);
                TEST(test_wakeup);
        }
        probes = cpu_probes_free(probes);
}

int main(int argc, char **argv)
{
        CHECK(argc >= 2);
        original = argv[1];
        if (argc == 4 && strcmp(argv[3], "launch-after-exec") == 0) {
                library = argv[2];
                launch_after_exec();
        }
        skip_without_bpf();
        recorder_init(&seen);
        library = library_copy(original);
        if (cpu_probes_have_multi())
                test_all(CPU_PROBES_MULTI, "uprobe_multi");
        test_all(CPU_PROBES_PERF_EVENTS, "perf events");
        TEST(test_full_ring_is_counted);
        library_remove(library);
        recorder_done(&seen);
        return 0;
}
