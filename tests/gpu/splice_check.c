/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Runs kernels as they are and with probes spliced in, on a real device, and
 * compares what they compute bit by bit, and the records the probes write. The
 * kernels run on two streams in turn, which the records must tell apart.
 *
 *   splice_check [options] --entry FRAGMENT --exit FRAGMENT CUBIN...
 *   splice_check [options] DIRECTORY
 *     --kernel GLOB   only these kernels
 *     --runs N        comparisons per kernel and size (default 20)
 *     --time          also measure: one block, and 65,536 blocks
 *     --dump DIR      write probes and spliced cubins there
 *     --verbose       show sizes, refusals, differences
 *   Without --entry or --exit that probe is left out; a directory stands for its
 *   entry.frag, exit.frag and kernels*.cubin (tests/unit/data/splice).
 *
 * Every kernel must take (const float *in, float *out, int n), be deterministic,
 * allow blocks of 256 threads, and write out[0..n). One line per kernel, a summary
 * last; exit code 0 all equal, 1 a difference or an error, 77 no usable device.
 */
#include <fnmatch.h>
#include <getopt.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "splice_device.h"
#include "unit/splice_pair.h"

#define BLOCK_THREADS  256
#define ELEMENTS_MAX   (1 << 20)
#define TAIL_THREADS   (144 * 2048) /* launch.bpf.c */
#define FIRST_ID       1000u
#define TIMED_LAUNCHES 200
#define MANY_BLOCKS    65536

enum { FUNCTION_MAX_THREADS = 0, FUNCTION_REGISTERS = 4 };

#define STREAMS 2

/* One of the streams, and what its records have shown of it so far. */
struct lane {
        void *stream;
        uint32_t launches;
        bool seen;
        uint32_t block; /* of descriptors */
        uint32_t turn;  /* descriptor in use minus launches, modulo their number */
};

struct options {
        const char *entry, *exit, *kernel, *dump;
        int runs;
        bool time, verbose;
};

struct bench {
        struct options options;
        struct probe_memory memory;
        device_address in, out;
        uint64_t next_record;
        struct lane lanes[STREAMS];
        void *start, *stop; /* events */
        float *original, *spliced, *fill;
        size_t kernels, entries, exits, failures, unseen;
};

static void dump(const struct bench *b, const char *name, const char *suffix, const void *bytes,
                 size_t size)
{
        const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
        char path[4096];
        FILE *f;

        if (!b->options.dump)
                return;
        snprintf(path, sizeof(path), "%s/%s%s", b->options.dump, base, suffix);
        f = fopen(path, "wb");
        if (!f || fwrite(bytes, 1, size, f) != size)
                splice_die(path, "cannot be written");
        fclose(f);
}

static void allocate(struct bench *b)
{
        size_t bytes = ELEMENTS_MAX * sizeof(float);
        float *input = malloc(bytes);

        b->original = malloc(bytes);
        b->spliced = malloc(bytes);
        b->fill = malloc(bytes);
        if (!input || !b->original || !b->spliced || !b->fill)
                splice_die("malloc", "out of memory");
        for (int i = 0; i < ELEMENTS_MAX; i++) {
                input[i] = (float)((unsigned)i * 2654435761u % 1000) / 7.f;
                b->fill[i] = (float)(i & 1023);
        }
        splice_must(cuMemAlloc_v2(&b->in, bytes), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&b->out, bytes), "cuMemAlloc");
        splice_must(cuMemcpyHtoD_v2(b->in, input, bytes), "cuMemcpyHtoD");
        splice_allocate(&b->memory);
        for (int i = 0; i < STREAMS; i++)
                splice_must(cuStreamCreate(&b->lanes[i].stream, 0), "cuStreamCreate");
        splice_must(cuEventCreate(&b->start, 0), "cuEventCreate");
        splice_must(cuEventCreate(&b->stop, 0), "cuEventCreate");
        free(input);
}

static struct probe_code *build_probe(const struct bench *b, const char *path)
{
        struct splice_built built;
        struct probe_code *code;
        char *fragment;
        size_t size;

        if (!path)
                return NULL;
        fragment = splice_read_file(path, &size);
        code = splice_build_probe(&b->memory, path, fragment, NULL, &built);
        dump(b, path, ".ptx", built.text, built.text_size);
        dump(b, path, ".cubin", built.cubin, built.cubin_size);
        printf("probe %s: %u instructions, %u registers\n", path, probe_code_instructions(code),
               probe_code_registers(code));
        splice_built_done(&built);
        free(fragment);
        return code;
}

static void launch(struct bench *b, void *function, unsigned blocks, int n, struct lane *lane)
{
        void *arguments[] = {(void *)(uintptr_t)&b->in, (void *)(uintptr_t)&b->out, &n};

        splice_must(cuLaunchKernel(function, blocks, 1, 1, BLOCK_THREADS, 1, 1, 0, lane->stream,
                                   arguments, NULL),
                    "cuLaunchKernel");
        lane->launches++;
}

static void run(struct bench *b, void *function, int n, struct lane *lane, float *ret_out)
{
        size_t bytes = (size_t)n * sizeof(float);

        splice_must(cuMemcpyHtoD_v2(b->out, b->fill, bytes), "cuMemcpyHtoD");
        launch(b, function, ((unsigned)n + BLOCK_THREADS - 1) / BLOCK_THREADS, n, lane);
        splice_must(cuCtxSynchronize(), "the kernel");
        splice_must(cuMemcpyDtoH_v2(ret_out, b->out, bytes), "cuMemcpyDtoH");
}

/* The next record of the ring, or NULL when it is not there or not whole. */
static const struct device_record *take_record(struct bench *b)
{
        const struct device_record *r = &b->memory.ring[b->next_record % DEVICE_RING_ENTRIES];

        if (device_record_index(r) != b->next_record)
                return NULL;
        b->next_record++;
        return r;
}

/* The record's words of context and descriptor, for the last launch on this stream. */
static const char *check_words(struct bench *b, const struct device_record *r, struct lane *lane)
{
        uint32_t queue = DEVICE_RECORD_QUEUE(r);
        uint32_t block = queue >> DEVICE_QUEUE_STREAM_SHIFT;
        uint32_t turn = ((queue >> DEVICE_QUEUE_SLOT_SHIFT) - lane->launches) % DEVICE_QUEUE_SLOTS;

        if (DEVICE_RECORD_CONTEXT(r) != 1)
                return "a record of another context";
        if (!queue)
                return "a record without descriptor";
        if (lane->seen && lane->block != block)
                return "a record of another stream";
        if (lane->seen && lane->turn != turn)
                return "a descriptor out of turn";
        lane->seen = true;
        lane->block = block;
        lane->turn = turn;
        if (b->lanes[0].seen && b->lanes[1].seen && b->lanes[0].block == b->lanes[1].block)
                return "two streams with one block";
        return NULL;
}

/* What one launch must have left: one START, one END, of this kernel and one grid. */
static const char *check_records(struct bench *b, const struct splice_kernel *k, struct lane *lane,
                                 int elements)
{
        const struct device_record *start = NULL, *end = NULL;
        const char *why = NULL;
        bool unseen = false;
        uint64_t head;

        if (!splice_refusal(k, PAIR_ENTRY)) {
                start = take_record(b);
                if (!start)
                        return "no whole start record";
                if (DEVICE_RECORD_TYPE(start) != DEVICE_RECORD_START ||
                    DEVICE_RECORD_KERNEL(start) != k->kernel_id)
                        return "a start record of another kind or kernel";
        }
        if (!splice_refusal(k, PAIR_EXIT)) {
                end = take_record(b);
                if (!end)
                        return "no whole end record";
                /* A block of a large grid may outlive all that could be running with the last. */
                unseen = DEVICE_RECORD_TYPE(end) == DEVICE_RECORD_TAIL && elements > TAIL_THREADS;
                if ((DEVICE_RECORD_TYPE(end) != DEVICE_RECORD_END && !unseen) ||
                    DEVICE_RECORD_KERNEL(end) != k->kernel_id)
                        return "an end record of another kind or kernel";
                b->unseen += unseen;
        }
        if (start && end && DEVICE_RECORD_GRIDID(start) != DEVICE_RECORD_GRIDID(end))
                return "start and end name different grids";
        if (start && end && end->time_ns < start->time_ns)
                return "the end comes before the start";
        if (start)
                why = check_words(b, start, lane);
        if (end && !why)
                why = check_words(b, end, lane);
        if (why)
                return why;
        splice_must(cuMemcpyDtoH_v2(&head, b->memory.counters, sizeof(head)), "cuMemcpyDtoH");
        if (head != b->next_record) {
                b->next_record = head;
                return "more records than there were launches";
        }
        return NULL;
}

static const char *compare(const struct bench *b, int n)
{
        int shown = 0;

        if (memcmp(b->original, b->spliced, (size_t)n * sizeof(float)) == 0)
                return NULL;
        for (int i = 0; i < n && b->options.verbose && shown < 8; i++) {
                if (memcmp(&b->original[i], &b->spliced[i], sizeof(float)) == 0)
                        continue;
                printf("    n %d out[%d] is %a, was %a\n", n, i, b->spliced[i], b->original[i]);
                shown++;
        }
        return "the outputs differ";
}

static const char *check_runs(struct bench *b, const struct splice_kernel *k, void *original,
                              void *spliced)
{
        static const int sizes[] = {1, 31, 256, 1000, 4096, 100003, ELEMENTS_MAX};

        for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                run(b, original, sizes[s], &b->lanes[0], b->original);
                for (int r = 0; r < b->options.runs; r++) {
                        struct lane *lane = &b->lanes[r % STREAMS];
                        const char *why;

                        run(b, spliced, sizes[s], lane, b->spliced);
                        why = compare(b, sizes[s]);
                        if (!why)
                                why = check_records(b, k, lane, sizes[s]);
                        if (why)
                                return why;
                }
        }
        return NULL;
}

/* Microseconds per launch, from events around many. */
static float time_launches(struct bench *b, void *function, unsigned blocks)
{
        struct lane *lane = &b->lanes[0];
        float milliseconds = 0;

        launch(b, function, blocks, ELEMENTS_MAX, lane);
        splice_must(cuEventRecord(b->start, lane->stream), "cuEventRecord");
        for (int k = 0; k < TIMED_LAUNCHES; k++)
                launch(b, function, blocks, ELEMENTS_MAX, lane);
        splice_must(cuEventRecord(b->stop, lane->stream), "cuEventRecord");
        splice_must(cuEventSynchronize(b->stop), "cuEventSynchronize");
        splice_must(cuEventElapsedTime(&milliseconds, b->start, b->stop), "cuEventElapsedTime");
        return milliseconds * 1e3f / TIMED_LAUNCHES;
}

static void show_times(struct bench *b, void *original, void *spliced)
{
        static const unsigned blocks[] = {1, MANY_BLOCKS};

        for (size_t k = 0; k < 2; k++) {
                float before = time_launches(b, original, blocks[k]);
                float after = time_launches(b, spliced, blocks[k]);

                printf("    %u blocks: %.2f us, spliced %.2f us (%+.1f %%)\n", blocks[k], before,
                       after, (after - before) * 100 / before);
        }
        splice_must(cuMemcpyDtoH_v2(&b->next_record, b->memory.counters, sizeof(b->next_record)),
                    "cuMemcpyDtoH");
}

static const char *check_attributes(const struct splice_kernel *k, void *original, void *spliced)
{
        int before = 0, after = 0, was = 0, is = 0;

        splice_must(cuFuncGetAttribute(&before, FUNCTION_MAX_THREADS, original),
                    "cuFuncGetAttribute");
        splice_must(cuFuncGetAttribute(&after, FUNCTION_MAX_THREADS, spliced),
                    "cuFuncGetAttribute");
        splice_must(cuFuncGetAttribute(&was, FUNCTION_REGISTERS, original), "cuFuncGetAttribute");
        splice_must(cuFuncGetAttribute(&is, FUNCTION_REGISTERS, spliced), "cuFuncGetAttribute");
        if ((uint32_t)was == k->registers_before && (uint32_t)is != k->registers_after)
                return "the driver sees another register count";
        return after < before ? "the largest block became smaller" : NULL;
}

static void check_kernel(struct bench *b, const struct splice_kernel *k, void *before, void *after)
{
        void *original, *spliced;
        const char *why;

        splice_must(cuModuleGetFunction(&original, before, k->name), k->name);
        splice_must(cuModuleGetFunction(&spliced, after, k->name), k->name);
        why = check_attributes(k, original, spliced);
        if (!why)
                why = check_runs(b, k, original, spliced);
        printf("  %-28s %s entry %s exit %s registers %u->%u%s%s\n", k->name, why ? "FAILED" : "ok",
               splice_refusal(k, PAIR_ENTRY) ? "no" : "yes",
               splice_refusal(k, PAIR_EXIT) ? "no" : "yes", k->registers_before, k->registers_after,
               why ? ": " : "", why ? why : "");
        if (b->options.verbose && splice_refusal(k, PAIR_ENTRY))
                printf("    entry: %s (0x%x)\n", splice_refusal(k, PAIR_ENTRY),
                       k->outcomes[PAIR_ENTRY].detail);
        if (b->options.verbose && splice_refusal(k, PAIR_EXIT))
                printf("    exit: %s (0x%x)\n", splice_refusal(k, PAIR_EXIT),
                       k->outcomes[PAIR_EXIT].detail);
        fflush(stdout);
        b->kernels++;
        b->entries += !splice_refusal(k, PAIR_ENTRY);
        b->exits += !splice_refusal(k, PAIR_EXIT);
        b->failures += why != NULL;
        if (b->options.time)
                show_times(b, original, spliced);
}

static void check_image(struct bench *b, const char *path, const struct splice_pair *probes)
{
        struct splice_result *r;
        const char *why = "";
        void *before, *after;
        size_t size;
        char *cubin = splice_read_file(path, &size);

        if (splice_pair_image(cubin, size, probes, FIRST_ID, &r, &why) < 0)
                splice_die(path, why);
        dump(b, path, ".spliced", r->image, r->image_bytes);
        printf("%s: %zu kernels, %zu entries, %zu exits\n", path, r->kernel_count,
               splice_count(r, PAIR_ENTRY), splice_count(r, PAIR_EXIT));
        splice_must(cuModuleLoadData(&before, cubin), path);
        splice_must(cuModuleLoadData(&after, r->image), "loading the spliced image");
        for (size_t k = 0; k < r->kernel_count; k++) {
                if (!b->options.kernel || fnmatch(b->options.kernel, r->kernels[k].name, 0) == 0)
                        check_kernel(b, &r->kernels[k], before, after);
        }
        splice_must(cuModuleUnload(before), "cuModuleUnload");
        splice_must(cuModuleUnload(after), "cuModuleUnload");
        splice_result_free(r);
        free(cubin);
}

static struct options parse(int argc, char **argv)
{
        static const struct option known[] = {
                {"entry", required_argument, NULL, 'e'},  {"exit", required_argument, NULL, 'x'},
                {"kernel", required_argument, NULL, 'k'}, {"runs", required_argument, NULL, 'r'},
                {"time", no_argument, NULL, 't'},         {"dump", required_argument, NULL, 'd'},
                {"verbose", no_argument, NULL, 'v'},      {NULL, 0, NULL, 0},
        };
        struct options o = {.runs = 20};
        int c;

        while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
                switch (c) {
                case 'e':
                        o.entry = optarg;
                        break;
                case 'x':
                        o.exit = optarg;
                        break;
                case 'k':
                        o.kernel = optarg;
                        break;
                case 'r':
                        o.runs = atoi(optarg);
                        break;
                case 't':
                        o.time = true;
                        break;
                case 'd':
                        o.dump = optarg;
                        break;
                case 'v':
                        o.verbose = true;
                        break;
                default:
                        exit(2);
                }
        }
        return o;
}

/* The images to check: those named, or a directory's, with its probes. */
static void find_images(struct options *o, int argc, char **argv, glob_t *ret_images)
{
        static char entry[4096], exit_[4096];
        char pattern[4096];
        struct stat st;

        memset(ret_images, 0, sizeof(*ret_images));
        if (argc != 1 || stat(argv[0], &st) != 0 || !S_ISDIR(st.st_mode)) {
                for (int i = 0; i < argc; i++)
                        glob(argv[i], GLOB_NOCHECK | (i ? GLOB_APPEND : 0), NULL, ret_images);
                return;
        }
        snprintf(entry, sizeof(entry), "%s/entry.frag", argv[0]);
        snprintf(exit_, sizeof(exit_), "%s/exit.frag", argv[0]);
        snprintf(pattern, sizeof(pattern), "%s/kernels*.cubin", argv[0]);
        if (!o->entry && !o->exit) {
                o->entry = entry;
                o->exit = exit_;
        }
        if (glob(pattern, 0, NULL, ret_images) != 0)
                splice_die(pattern, "no such files");
}

int main(int argc, char **argv)
{
        struct bench b = {.options = parse(argc, argv)};
        struct splice_pair probes;
        glob_t images;

        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        splice_open_device();
        find_images(&b.options, argc - optind, argv + optind, &images);
        allocate(&b);
        probes = splice_pair(build_probe(&b, b.options.entry), build_probe(&b, b.options.exit));
        for (size_t i = 0; i < images.gl_pathc; i++)
                check_image(&b, images.gl_pathv[i], &probes);
        globfree(&images);
        if (b.unseen)
                printf("%zu ends of large grids not seen\n", b.unseen);
        printf("%zu kernels, %zu probed at entry, %zu at exit: %zu failed\n", b.kernels, b.entries,
               b.exits, b.failures);
        return b.failures || !b.kernels ? 1 : 0;
}
