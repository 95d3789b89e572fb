/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Random device programs give on a real GPU what the kernel made of them.
 *
 *   device_random FILE [WORKERS]
 *
 * FILE comes from tests/bpf/device_random_make: for each seed a hash of what the
 * program of that seed leaves in its map when the kernel runs it. Programs and inputs
 * are made again from the seeds, compiled here by the device compiler, and by the
 * driver in modules of BATCH kernels. Each worker (default 16) is a process with a
 * context of its own and takes the next batch.
 *
 * Prints differences (as many as fit a screen) and a last line with what was run;
 * exit code 0 all equal, 1 not, 77 no device.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bpf/device_tools.h"
#include "bpf/random_program.h"
#include "unit/test.h"

#define BATCH       500
#define WORKERS_MAX 64
#define SHOWN_MAX   20

typedef unsigned long long address;

/* What is needed of the driver, by its exported names; every result is a CUresult. */
#define DRIVER(X)                                                                                  \
        X(cuInit, (unsigned))                                                                      \
        X(cuDeviceGet, (int *, int))                                                               \
        X(cuDevicePrimaryCtxRetain, (void **, int))                                                \
        X(cuCtxSetCurrent, (void *))                                                               \
        X(cuCtxSynchronize, (void))                                                                \
        X(cuGetErrorString, (int, const char **))                                                  \
        X(cuMemAlloc_v2, (address *, size_t))                                                      \
        X(cuMemcpyHtoD_v2, (address, const void *, size_t))                                        \
        X(cuMemcpyDtoH_v2, (void *, address, size_t))                                              \
        X(cuModuleLoadDataEx, (void **, const void *, unsigned, int *, void **))                   \
        X(cuModuleUnload, (void *))                                                                \
        X(cuModuleGetFunction, (void **, void *, const char *))                                    \
        X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                           unsigned, void *, void **, void **))

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER(DECLARE)

enum { JIT_ERROR_LOG = 5, JIT_ERROR_LOG_BYTES = 6 };

struct file {
        const struct random_expected *head;
        const uint64_t *hashes;
};

/* What the workers share. */
struct board {
        atomic_ullong next; /* place of the next batch */
        atomic_ullong ran, differ, skipped, compile_ns, run_ns;
};

struct worker {
        const struct file *file;
        struct board *board;
        address memory; /* BATCH outputs */
        address table;  /* of constants */
        struct pair_input *inputs;
        struct pair_output *outputs;
};

static void must(int result, const char *what)
{
        const char *text = NULL;

        if (result == 0)
                return;
        cuGetErrorString(result, &text);
        fprintf(stderr, "device_random: %s: %s\n", what, text ? text : "unknown error");
        exit(1);
}

static void load_driver(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        if (!library)
                test_skip("no libcuda.so.1");
#define LOOK_UP(name, parameters)                                                                  \
        name = (int(*) parameters)dlsym(library, #name);                                           \
        CHECK(name);
        DRIVER(LOOK_UP)
}

static void open_device(void)
{
        void *context;
        int device;

        if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0)
                test_skip("no device");
        must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
        must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

static uint64_t now_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static struct file open_file(const char *path)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        struct file f;
        struct stat st;

        CHECK(fd >= 0 && fstat(fd, &st) == 0 && (size_t)st.st_size >= sizeof(*f.head));
        f.head = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        CHECK(f.head != MAP_FAILED);
        CHECK(!memcmp(f.head->magic, RANDOM_EXPECTED_MAGIC, sizeof(f.head->magic)));
        CHECK((size_t)st.st_size == sizeof(*f.head) + 8 * f.head->count);
        f.hashes = (const uint64_t *)(f.head + 1);
        close(fd);
        return f;
}

/* The kernel of place i of the batch that starts at `first`. */
static char *make_kernel(const struct worker *w, uint64_t first, uint64_t i)
{
        static struct random_program program;
        uint64_t seed = w->file->head->first + first + i;
        const uint64_t maps[PAIR_MAPS] = {w->memory + i * sizeof(struct pair_output), w->table};
        char name[32], id[16], *fragment, *kernel;
        struct device_values values = {.kernel_id = id, .context = "0", .queue = "0", .maps = maps};

        random_program_make(seed, 0, RANDOM_CONTEXT_ANYWHERE, &program);
        random_input_make(seed, &w->inputs[i]);
        fragment = pair_compile(program.insns, program.count, seed & 1 ? DEVICE_ENTRY : DEVICE_EXIT,
                                NULL, NULL);
        snprintf(name, sizeof(name), "random_%" PRIu64, i);
        snprintf(id, sizeof(id), "%u", w->inputs[i].ctx.kernel_id);
        kernel = device_make_kernel(fragment, name, &values, i == 0);
        free(fragment);
        return kernel;
}

static char *make_module(const struct worker *w, uint64_t first, uint64_t count)
{
        char *text = NULL;
        size_t size;
        FILE *out = open_memstream(&text, &size);

        CHECK(out);
        for (uint64_t i = 0; i < count; i++) {
                char *kernel = make_kernel(w, first, i);

                memcpy(w->outputs[i].elements, w->inputs[i].elements,
                       sizeof(w->outputs[i].elements));
                fputs(kernel, out);
                free(kernel);
        }
        CHECK(fclose(out) == 0);
        return text;
}

static void *load_module(const char *text)
{
        static char log[4096];
        int options[] = {JIT_ERROR_LOG, JIT_ERROR_LOG_BYTES};
        void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
        void *module;
        int result = cuModuleLoadDataEx(&module, text, 2, options, values);

        if (result)
                fprintf(stderr, "%s\n", log);
        must(result, "cuModuleLoadDataEx");
        return module;
}

static void launch(const struct worker *w, void *module, uint64_t i)
{
        const struct gpuobs_kernel_ctx *c = &w->inputs[i].ctx;
        void *function;
        char name[32];

        snprintf(name, sizeof(name), "random_%" PRIu64, i);
        must(cuModuleGetFunction(&function, module, name), "cuModuleGetFunction");
        must(cuLaunchKernel(function, c->grid_x, c->grid_y, c->grid_z, c->block_dim_x,
                            c->block_dim_y, c->block_dim_z, 0, NULL, NULL, NULL),
             "cuLaunchKernel");
}

static void compare(const struct worker *w, uint64_t first, uint64_t i)
{
        uint64_t expected = w->file->hashes[first + i];

        if (!expected) {
                w->board->skipped++;
                return;
        }
        w->board->ran++;
        if (random_output_hash(&w->outputs[i]) == expected)
                return;
        if (w->board->differ++ < SHOWN_MAX)
                printf("seed %" PRIu64 " differs; its first registers: %" PRIx64 " %" PRIx64
                       " %" PRIx64 "\n",
                       w->file->head->first + first + i, w->outputs[i].elements[0][PAIR_WORDS / 2],
                       w->outputs[i].elements[0][PAIR_WORDS / 2 + 1],
                       w->outputs[i].elements[0][PAIR_WORDS / 2 + 2]);
}

static void run_batch(const struct worker *w, uint64_t first, uint64_t count)
{
        uint64_t start = now_ns(), compiled;
        char *text = make_module(w, first, count);
        void *module = load_module(text);
        size_t bytes = count * sizeof(*w->outputs);

        compiled = now_ns();
        must(cuMemcpyHtoD_v2(w->memory, w->outputs, bytes), "cuMemcpyHtoD");
        for (uint64_t i = 0; i < count; i++)
                launch(w, module, i);
        must(cuCtxSynchronize(), "running the programs");
        must(cuMemcpyDtoH_v2(w->outputs, w->memory, bytes), "cuMemcpyDtoH");
        w->board->compile_ns += compiled - start;
        w->board->run_ns += now_ns() - compiled;
        for (uint64_t i = 0; i < count; i++)
                compare(w, first, i);
        must(cuModuleUnload(module), "cuModuleUnload");
        free(text);
}

static void work(const struct file *file, struct board *board)
{
        struct worker w = {.file = file, .board = board};
        uint8_t constants[PAIR_TABLE_BYTES];
        uint64_t first;

        load_driver();
        open_device();
        w.inputs = calloc(BATCH, sizeof(*w.inputs));
        w.outputs = calloc(BATCH, sizeof(*w.outputs));
        CHECK(w.inputs && w.outputs);
        must(cuMemAlloc_v2(&w.memory, BATCH * sizeof(*w.outputs)), "cuMemAlloc");
        must(cuMemAlloc_v2(&w.table, sizeof(constants)), "cuMemAlloc");
        pair_table_fill(constants);
        must(cuMemcpyHtoD_v2(w.table, constants, sizeof(constants)), "cuMemcpyHtoD");
        while ((first = atomic_fetch_add(&board->next, BATCH)) < file->head->count)
                run_batch(&w, first,
                          file->head->count - first < BATCH ? file->head->count - first : BATCH);
        fflush(stdout);
        _exit(0);
}

/* Start the workers and wait for them; returns the worst of their exit codes. */
static int run_workers(const struct file *file, struct board *board, unsigned workers)
{
        int worst = 0, status;

        for (unsigned i = 0; i < workers; i++) {
                pid_t pid = fork();

                CHECK(pid >= 0);
                if (pid == 0)
                        work(file, board);
        }
        while (wait(&status) > 0) {
                int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;

                if (code == 1 || worst == 0)
                        worst = code;
        }
        return worst;
}

int main(int argc, char **argv)
{
        uint64_t start = now_ns();
        unsigned workers = argc == 3 ? (unsigned)atoi(argv[2]) : 16;
        struct board *board;
        struct file file;
        int code;

        if (argc < 2 || argc > 3 || workers < 1 || workers > WORKERS_MAX) {
                fprintf(stderr, "usage: device_random FILE [WORKERS]\n");
                return 2;
        }
        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        file = open_file(argv[1]);
        board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0);
        CHECK(board != MAP_FAILED);
        code = run_workers(&file, board, workers);
        if (code == 77)
                return 77;
        printf("%llu of %llu random programs ran, %llu differ, %llu too complex for the kernel; "
               "%.1f s in all; compiling %.1f, running %.1f s of the workers\n",
               board->ran, (unsigned long long)file.head->count, board->differ, board->skipped,
               (double)(now_ns() - start) / 1e9, (double)board->compile_ns / 1e9,
               (double)board->run_ns / 1e9);
        return code || board->differ || board->ran + board->skipped != file.head->count;
}
