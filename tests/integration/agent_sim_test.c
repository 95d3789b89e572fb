/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The agent on the simulated GPU, with the real start/end program: an
 * application loads PTX as modules and libraries and launches it on several
 * streams and threads; the test plays the daemon, and reads the shared map as
 * the daemon would. Every launch must have left one start and one end record,
 * sealed, of the right kernel, and the application's results must be what they
 * would have been.
 *
 *     agent_sim_test AGENT.so LAUNCH.bpf.o
 */
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_daemon.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "simcuda/cuda.h"
#include "unit/test.h"

#define N        1000 /* elements */
#define BLOCK    64
#define LAUNCHES 60 /* per thread and kernel */
#define THREADS  2

/* Out-of-range threads leave early, so that both kinds of exit are on the way. */
static const char image[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                            ".visible .entry add(.param .u64 a, .param .u32 n, .param .u32 by)\n"
                            "{\n.reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 %rd<4>;\n"
                            "ld.param.u64 %rd1, [a];\nld.param.u32 %r1, [n];\n"
                            "ld.param.u32 %r2, [by];\nmov.u32 %r3, %ctaid.x;\n"
                            "mov.u32 %r4, %ntid.x;\nmov.u32 %r5, %tid.x;\n"
                            "mad.lo.s32 %r6, %r3, %r4, %r5;\n"
                            "setp.ge.u32 %p1, %r6, %r1;\n@%p1 ret;\n"
                            "mul.wide.u32 %rd2, %r6, 4;\nadd.s64 %rd3, %rd1, %rd2;\n"
                            "atom.global.add.u32 %r7, [%rd3], %r2;\nret;\n}\n"
                            ".visible .entry nothing()\n{\nret;\n}\n";

static const char *agent_path;
static int until_closed = -1; /* what the application waits for at its end */

#define CUDA(call)                                                                                 \
        do {                                                                                       \
                CUresult result_ = (call);                                                         \
                if (result_ != CUDA_SUCCESS)                                                       \
                        fprintf(stderr, "%s: %d\n", #call, result_);                               \
                CHECK_EQ(result_, CUDA_SUCCESS);                                                   \
        } while (0)

static void launch(CUfunction f, unsigned blocks, CUstream stream, void **parameters)
{
        CUDA(cuLaunchKernel(f, blocks, 1, 1, BLOCK, 1, 1, 0, stream, parameters, NULL));
}

struct work {
        CUcontext context;
        CUfunction add, nothing;
        CUdeviceptr numbers;
};

static void *launch_many(void *data)
{
        struct work *w = data;
        unsigned n = N, by = 1;
        void *parameters[] = {&w->numbers, &n, &by};
        CUstream streams[2];

        CUDA(cuCtxSetCurrent(w->context));
        CUDA(cuStreamCreate(&streams[0], 1));
        CUDA(cuStreamCreate(&streams[1], 1));
        for (int i = 0; i < LAUNCHES; i++) {
                launch(w->add, (N + BLOCK - 1) / BLOCK, streams[i % 2], parameters);
                launch(w->nothing, 1, streams[(i + 1) % 2], NULL);
        }
        CUDA(cuStreamSynchronize(streams[0]));
        CUDA(cuStreamSynchronize(streams[1]));
        return NULL;
}

static void run_threads(struct work *w)
{
        pthread_t threads[THREADS];

        for (int i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, launch_many, w), 0);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
}

static void check_numbers(const struct work *w, uint32_t want)
{
        uint32_t numbers[N + 1];

        CUDA(cuMemcpyDtoH_v2(numbers, w->numbers, sizeof(numbers)));
        for (int i = 0; i < N; i++)
                CHECK_EQ(numbers[i], want);
        CHECK_EQ(numbers[N], 0);
}

/* Image 1: a module. Image 2: the same text as a library. */
static void application(void)
{
        uint32_t zeros[N + 1] = {0};
        struct work w = {0};
        CUlibrary library;
        CUkernel kernel;
        CUmodule module;

        CUDA(cuInit(0));
        CUDA(cuDevicePrimaryCtxRetain(&w.context, 0));
        CUDA(cuCtxSetCurrent(w.context));
        CUDA(cuModuleLoadData(&module, image));
        CUDA(cuModuleGetFunction(&w.add, module, "add"));
        CUDA(cuModuleGetFunction(&w.nothing, module, "nothing"));
        CUDA(cuMemAlloc_v2(&w.numbers, sizeof(zeros)));
        CUDA(cuMemcpyHtoD_v2(w.numbers, zeros, sizeof(zeros)));
        run_threads(&w);
        check_numbers(&w, THREADS * LAUNCHES);

        CUDA(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
        CUDA(cuLibraryGetKernel(&kernel, library, "add"));
        CUDA(cuKernelGetFunction(&w.add, kernel));
        CUDA(cuLibraryGetKernel(&kernel, library, "nothing"));
        CUDA(cuKernelGetFunction(&w.nothing, kernel));
        run_threads(&w);
        check_numbers(&w, 2 * THREADS * LAUNCHES);
        (void)read(until_closed, &(char){0}, 1);
}

/* The first image comes in the middle of a capture, which must not notice what the agent does. */
static void capturing_application(void)
{
        unsigned n = 1, by = 1;
        CUdeviceptr numbers;
        CUcontext context;
        CUmodule module;
        CUfunction add;
        CUgraphExec exec;
        CUgraph graph;
        CUstream stream;
        uint32_t sum = 0;
        size_t nodes = 0;

        CUDA(cuInit(0));
        CUDA(cuDevicePrimaryCtxRetain(&context, 0));
        CUDA(cuCtxSetCurrent(context));
        CUDA(cuMemAlloc_v2(&numbers, sizeof(sum)));
        CUDA(cuMemcpyHtoD_v2(numbers, &sum, sizeof(sum)));
        CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CUDA(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CUDA(cuModuleLoadData(&module, image));
        CUDA(cuModuleGetFunction(&add, module, "add"));
        launch(add, 1, stream, (void *[]){&numbers, &n, &by});
        CUDA(cuStreamEndCapture(stream, &graph));
        CUDA(cuGraphGetNodes(graph, NULL, &nodes));
        CHECK_EQ(nodes, 1);
        CUDA(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CUDA(cuGraphLaunch(exec, stream));
        CUDA(cuStreamSynchronize(stream));
        CUDA(cuMemcpyDtoH_v2(&sum, numbers, sizeof(sum)));
        CHECK_EQ(sum, 1);
}

/* Both records of the node, with what its grid was told. */
static void check_captured(const struct fake_daemon *d)
{
        const struct device_record *ring =
                mmap(NULL, DEVICE_RING_BYTES, PROT_READ, MAP_SHARED, d->map_fd, 0);

        CHECK(ring != MAP_FAILED);
        for (uint64_t n = 0; n < 2; n++) {
                CHECK_EQ(device_record_index(&ring[n]), n);
                CHECK_EQ(DEVICE_RECORD_CONTEXT(&ring[n]), 1);
                CHECK(DEVICE_RECORD_QUEUE(&ring[n]));
        }
        CHECK_EQ(ring[2].check, 0);
        munmap((void *)(uintptr_t)ring, DEVICE_RING_BYTES);
}

static const char *kernel_name(const struct fake_daemon *d, uint32_t id, uint32_t *ret_image)
{
        static struct fake_kernel k;

        for (size_t i = 0; fake_daemon_kernel(d, i, &k); i++)
                if (k.head.kernel_id == id) {
                        *ret_image = k.image_id;
                        return k.name;
                }
        return NULL;
}

#define MAX_GRIDS 1024

struct seen {
        uint64_t start_ns, end_ns;
        uint32_t kernel, queue;
        uint16_t context;
};

static void take_record(const struct fake_daemon *d, const struct device_record *r, uint64_t index,
                        struct seen *grids)
{
        uint64_t grid = DEVICE_RECORD_GRIDID(r);

        CHECK_EQ(device_record_index(r), index);
        CHECK(grid < MAX_GRIDS);
        CHECK(r->time_ns);
        CHECK(DEVICE_RECORD_SMID(r) < 132);
        if (DEVICE_RECORD_TYPE(r) == DEVICE_RECORD_START) {
                CHECK(!grids[grid].start_ns);
                grids[grid].start_ns = r->time_ns;
                grids[grid].kernel = DEVICE_RECORD_KERNEL(r);
                grids[grid].context = DEVICE_RECORD_CONTEXT(r);
                grids[grid].queue = DEVICE_RECORD_QUEUE(r);
        } else {
                CHECK_EQ(DEVICE_RECORD_TYPE(r), DEVICE_RECORD_END);
                CHECK(!grids[grid].end_ns);
                CHECK(grids[grid].start_ns);
                CHECK_EQ(grids[grid].kernel, DEVICE_RECORD_KERNEL(r));
                CHECK_EQ(grids[grid].context, DEVICE_RECORD_CONTEXT(r));
                CHECK_EQ(grids[grid].queue, DEVICE_RECORD_QUEUE(r));
                grids[grid].end_ns = r->time_ns;
        }
}

#define STREAMS (2 * 2 * THREADS) /* two of each thread, for each of two images */

/* The launches of `add` by stream; each stream takes it and `nothing` in turn. */
struct streams {
        uint32_t block[STREAMS];
        uint32_t last_slot[STREAMS];
        unsigned launches[STREAMS];
        unsigned count;
};

static void take_launch(struct streams *s, uint32_t queue)
{
        uint32_t block = queue >> DEVICE_QUEUE_STREAM_SHIFT,
                 slot = queue >> DEVICE_QUEUE_SLOT_SHIFT;
        unsigned i = 0;

        while (i < s->count && s->block[i] != block)
                i++;
        CHECK(i < STREAMS);
        if (i == s->count)
                s->block[s->count++] = block;
        else
                CHECK_EQ((slot - s->last_slot[i]) % DEVICE_QUEUE_SLOTS, 2);
        s->last_slot[i] = slot;
        s->launches[i]++;
}

/* Grids in the order of their ids: what their records say of context and stream. */
static void check_words(const struct seen *grid, bool is_add, bool told, struct streams *s)
{
        CHECK_EQ(grid->context, told ? 1 : 0);
        if (told && is_add)
                take_launch(s, grid->queue);
        else
                CHECK_EQ(grid->queue, 0); /* without parameters there is no way to it in PTX */
}

static void check_streams(const struct streams *s, bool told)
{
        CHECK_EQ(s->count, told ? STREAMS : 0);
        for (unsigned i = 0; i < s->count; i++)
                CHECK_EQ(s->launches[i], LAUNCHES / 2);
}

static void check_records(const struct fake_daemon *d, uint64_t launches, bool told)
{
        const struct device_record *ring =
                mmap(NULL, DEVICE_RING_BYTES, PROT_READ, MAP_SHARED, d->map_fd, 0);
        static struct seen grids[MAX_GRIDS];
        unsigned counts[3][2] = {{0}}; /* image, kernel */
        struct streams streams = {0};
        uint64_t total = 0;

        CHECK(ring != MAP_FAILED);
        memset(grids, 0, sizeof(grids));
        for (uint64_t n = 0; n < 2 * launches; n++)
                take_record(d, &ring[n], n, grids);
        CHECK_EQ(ring[2 * launches].check, 0);
        for (int g = 0; g < MAX_GRIDS; g++) {
                uint32_t image_id = 0;
                const char *name;

                if (!grids[g].start_ns)
                        continue;
                total++;
                CHECK(grids[g].end_ns >= grids[g].start_ns);
                name = kernel_name(d, grids[g].kernel, &image_id);
                CHECK(name && image_id >= 1 && image_id <= 2);
                counts[image_id][strcmp(name, "add") == 0]++;
                check_words(&grids[g], strcmp(name, "add") == 0, told, &streams);
        }
        CHECK_EQ(total, launches);
        check_streams(&streams, told);
        for (int i = 1; i <= 2; i++)
                for (int k = 0; k < 2; k++)
                        CHECK_EQ(counts[i][k], THREADS * LAUNCHES);
        munmap((void *)(uintptr_t)ring, DEVICE_RING_BYTES);
}

static void *read_object(const char *path, size_t *ret_size)
{
        FILE *f = fopen(path, "rbe");
        char *bytes = malloc(1 << 20);

        CHECK(f && bytes);
        *ret_size = fread(bytes, 1, 1 << 20, f);
        fclose(f);
        return bytes;
}

/* The start/end program, as the daemon compiles it. */
static const void *compile(const char *path, size_t *ret_bytes)
{
        struct device_object *object = NULL;
        char error[512] = "";
        size_t size;
        void *elf = read_object(path, &size), *blob;
        uint64_t bytes;
        int fd, r;

        r = device_object_load(elf, size, NULL, error, sizeof(error), &object);
        if (r == -EPERM)
                test_skip("eBPF programs cannot be verified here");
        if (r < 0)
                fprintf(stderr, "%s\n", error);
        CHECK_EQ(r, 0);
        CHECK_EQ(device_object_blob(object, &fd, &bytes), 0);
        blob = malloc(bytes);
        CHECK_EQ(pread(fd, blob, bytes, 0), (ssize_t)bytes);
        close(fd);
        device_object_free(object);
        free(elf);
        *ret_bytes = bytes;
        return blob;
}

static void check_messages(const struct fake_daemon *d)
{
        const struct agent_image *image_message;
        struct fake_kernel k;

        CHECK_EQ(fake_daemon_count(d, AGENT_IMAGE), 2);
        for (size_t i = 0; i < 2; i++) {
                image_message = fake_daemon_message(d, AGENT_IMAGE, i);
                if (image_message->status != AGENT_IMAGE_REWRITTEN)
                        fprintf(stderr, "%s\n", image_message->reason);
                CHECK_EQ(image_message->status, AGENT_IMAGE_REWRITTEN);
                CHECK_EQ(image_message->is_ptx, 1);
                CHECK_EQ(image_message->is_library, i);
                CHECK(image_message->handle);
        }
        for (size_t i = 0; fake_daemon_kernel(d, i, &k); i++) {
                CHECK_EQ(k.head.entry, AGENT_PROBE_PTX);
                CHECK_EQ(k.head.exit, AGENT_PROBE_PTX);
        }
}

/* A driver that does not tell what it should: one sentence says so. */
static void check_note(const struct fake_daemon *d, const char *why)
{
        static const char head[] = "GPU records do not tell context and stream: ";
        const struct agent_note *note;
        unsigned found = 0;

        for (size_t i = 0; (note = fake_daemon_message(d, AGENT_NOTE, i)); i++) {
                if (strncmp(note->text, head, sizeof(head) - 1) != 0)
                        continue;
                CHECK_EQ(note->kind, AGENT_NOTE_INFO);
                CHECK_STR(note->text + sizeof(head) - 1, why ? why : "nothing");
                found++;
        }
        CHECK_EQ(found, why ? 1 : 0);
}

static bool knows_clock(struct fake_daemon *d)
{
        return !d->clock_devices || fake_daemon_count(d, AGENT_CLOCK) >= 2;
}

/* Run an application under the agent, with the daemon's part played to its end. */
static void serve(struct fake_daemon *d, void (*run_application)(void), const char *words)
{
        int status, ends[2];
        pid_t child;

        fake_daemon_open(d);
        CHECK_EQ(pipe(ends), 0);
        until_closed = ends[0];
        fflush(stdout); /* not again by the child */
        child = fork();
        CHECK(child >= 0);
        if (child == 0) {
                close(ends[1]);
                setenv("CUDA_INJECTION64_PATH", agent_path, 1);
                setenv(AGENT_SOCKET_ENV, d->path, 1);
                setenv("GPUOBS_SIM_GRID_WORDS", words, 1);
                run_application();
                exit(0);
        }
        close(ends[0]);
        fake_daemon_serve(d, 60, knows_clock);
        close(ends[1]);
        fake_daemon_serve(d, 60, NULL);
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
}

/* words: GPUOBS_SIM_GRID_WORDS; why: what the agent then says, NULL nothing. */
static void run(const void *blob, size_t blob_bytes, uint64_t clocks, const char *words,
                const char *why)
{
        struct fake_daemon d = {.blob = blob, .blob_bytes = blob_bytes, .clock_devices = clocks};

        serve(&d, application, words);
        check_messages(&d);
        check_note(&d, why);
        check_records(&d, 4 * THREADS * LAUNCHES, !why);
        /* its own functions: one that looks at what grids are told, the clock's */
        CHECK_EQ(fake_daemon_count(&d, AGENT_HANDLE), clocks ? 2 : 1);
        if (clocks)
                CHECK(fake_daemon_count(&d, AGENT_CLOCK) >= 2);
        fake_daemon_close(&d);
}

static void run_capturing(const void *blob, size_t blob_bytes)
{
        struct fake_daemon d = {.blob = blob, .blob_bytes = blob_bytes};

        serve(&d, capturing_application, "driver");
        check_note(&d, NULL);
        check_captured(&d);
        fake_daemon_close(&d);
}

int main(int argc, char **argv)
{
        size_t bytes;
        const void *blob;

        CHECK_EQ(argc, 3);
        agent_path = argv[1];
        blob = compile(argv[2], &bytes);
        run(blob, bytes, 0, "driver", NULL);
        printf("ok records of every launch\n");
        run(blob, bytes, 1, "driver", NULL);
        printf("ok with the clock thread\n");
        run_capturing(blob, bytes);
        printf("ok first image within a capture\n");
        run(blob, bytes, 0, "none", "a grid is told no context");
        printf("ok with a driver that tells nothing\n");
        run(blob, bytes, 0, "garbled", "what should be a context's number is too large for one");
        printf("ok with a driver that tells something else\n");
        return 0;
}
