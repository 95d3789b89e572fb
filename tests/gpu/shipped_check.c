/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The programs in probes/device on a real GPU, in kernels of which it is known what they
 * must find, as PTX and as machine code; outputs must be what they are without. Then what
 * they and the least program of each scope cost.
 *
 *   shipped_check KERNELS_PTX OBJECTS_DIRECTORY [--blocks N] [--ptx-only] [--no-cost]
 *     images/shipped_kernels.ptx; NAME.bpf.o of the programs and of scope_cost
 *
 * Loading the objects takes root: the kernel verifies them. One line per check, "ok" or
 * "FAIL", then a table of costs. Exit code 0 all right, 1 not, 77 no device.
 */
#include <stdlib.h>
#include <string.h>

#include "device/block_time_abi.h"
#include "device/mem_bytes_abi.h"
#include "device/mem_heat_abi.h"
#include "device/sm_balance_abi.h"
#include "device/warp_lanes_abi.h"
#include "gpu_world.h"
#include "shipped_cost.h"
#include "unit/test.h"
#include "util/macro.h"

#define THREADS 256
#define STRIDE  32 /* words: each lane has a line of its own */
#define FEW     11 /* lanes that stay */
#define SPIN_NS 20000u

enum { ATTRIBUTE_MULTIPROCESSORS = 16 };

struct bench {
        char *ptx;
        void *cubin;
        size_t cubin_size;
        const char *directory;
        unsigned blocks;
        bool machine; /* now */
        device_address in, out;
        uint32_t *host;
        unsigned failures;
};

static void verdict(struct bench *b, bool ok, const char *what, uint64_t got, uint64_t expected)
{
        printf("%s %s, %s: %" PRIu64, ok ? "ok  " : "FAIL", what,
               b->machine ? "machine code" : "PTX", got);
        if (!ok)
                printf(", not %" PRIu64, expected);
        printf("\n");
        b->failures += !ok;
}

static void check_equal(struct bench *b, const char *what, uint64_t got, uint64_t expected)
{
        verdict(b, got == expected, what, got, expected);
}

/* At least `least`, and not far more, even on a machine that has other things to do. */
static void check_near(struct bench *b, const char *what, uint64_t got, uint64_t least)
{
        verdict(b, got >= least && got <= 10 * least, what, got, least);
}

static uint64_t threads_of(const struct bench *b)
{
        return (uint64_t)b->blocks * THREADS;
}

static uint32_t input(uint64_t i)
{
        return (uint32_t)i * 2654435761u;
}

static void allocate(struct bench *b)
{
        uint64_t words = threads_of(b) * STRIDE;

        b->host = malloc(words * 4);
        CHECK(b->host);
        for (uint64_t i = 0; i < words; i++)
                b->host[i] = input(i);
        splice_must(cuMemAlloc_v2(&b->in, words * 4), "cuMemAlloc");
        splice_must(cuMemAlloc_v2(&b->out, threads_of(b) * 4), "cuMemAlloc");
        splice_must(cuMemcpyHtoD_v2(b->in, b->host, words * 4), "cuMemcpyHtoD");
}

/* Words of the output that are not what the kernel must write. */
static uint64_t count_wrong(struct bench *b, const char *kernel)
{
        uint64_t wrong = 0;

        splice_must(cuMemcpyDtoH_v2(b->host, b->out, threads_of(b) * 4), "cuMemcpyDtoH");
        for (uint64_t i = 0; i < threads_of(b); i++) {
                uint32_t want = !strcmp(kernel, "copy")      ? 3 * input(i) + 1
                                : !strcmp(kernel, "strided") ? input(i * STRIDE)
                                : !strcmp(kernel, "spin")    ? 7
                                : i % 32 < FEW               ? input(i) + 1
                                                             : 0;

                wrong += b->host[i] != want;
        }
        return wrong;
}

static void run(struct bench *b, const struct gpu_kernels *k, const char *kernel, unsigned value)
{
        void *parameters[] = {&b->in, &b->out, &value};
        char what[64];

        splice_must(cuMemsetD32_v2(b->out, 0, threads_of(b)), "cuMemsetD32");
        splice_must(cuLaunchKernel(gpu_kernel_function(k, kernel), b->blocks, 1, 1, THREADS, 1, 1,
                                   0, NULL, parameters, NULL),
                    kernel);
        splice_must(cuCtxSynchronize(), kernel);
        snprintf(what, sizeof(what), "%s: words that are wrong", kernel);
        check_equal(b, what, count_wrong(b, kernel), 0);
}

/* Load an object and put its programs in. */
static void open_world(struct bench *b, const char *name, struct gpu_world *w,
                       struct gpu_kernels *k)
{
        char path[512], what[64];

        snprintf(path, sizeof(path), "%s/%s.bpf.o", b->directory, name);
        gpu_world_init(w, path, name, b->machine);
        gpu_kernels_load(b->ptx, b->cubin, b->cubin_size, b->machine, w, "", k);
        snprintf(what, sizeof(what), "%s: programs that are in", name);
        check_equal(b, what, k->in, k->wanted);
        if (k->refusal)
                printf("     %s\n", k->refusal);
}

static void close_world(struct gpu_world *w, struct gpu_kernels *k)
{
        gpu_kernels_unload(k);
        gpu_world_done(w);
}

/* ---- the programs ---- */

static void check_sm_balance(struct bench *b)
{
        uint64_t blocks = 0, resident = 0, used = 0, busiest = 0, too_much = 0;
        _cleanup_free_ struct sm_balance *sms = NULL;
        struct gpu_kernels k;
        struct gpu_world w;
        int count = 0;

        open_world(b, "sm_balance", &w, &k);
        run(b, &k, "copy", 0);
        run(b, &k, "spin", SPIN_NS);
        sms = gpu_world_read(&w, "multiprocessors", NULL);
        for (unsigned i = 0; i < DEVICE_SMS_MAX; i++) {
                uint64_t busy_ns = sm_balance_busy_ns(&sms[i]);

                blocks += sms[i].blocks;
                resident += sms[i].resident;
                used += sms[i].blocks != 0;
                busiest = busy_ns > busiest ? busy_ns : busiest;
                too_much += busy_ns > sm_balance_block_ns(&sms[i]);
        }
        splice_must(cuDeviceGetAttribute(&count, ATTRIBUTE_MULTIPROCESSORS, 0),
                    "cuDeviceGetAttribute");
        check_equal(b, "sm_balance: blocks", blocks, 2ULL * b->blocks);
        check_equal(b, "sm_balance: blocks still there", resident, 0);
        check_equal(b, "sm_balance: busy for longer than its blocks together", too_much, 0);
        verdict(b, used > 0 && used <= (uint64_t)count, "sm_balance: multiprocessors with blocks",
                used, (uint64_t)count);
        verdict(b, busiest >= SPIN_NS, "sm_balance: busiest, ns", busiest, SPIN_NS);
        close_world(&w, &k);
}

static void check_block_time(struct bench *b)
{
        _cleanup_free_ struct block_time *kernels = NULL;
        uint64_t blocks = 0, short_ones = 0, sum_ns = 0;
        struct gpu_kernels k;
        struct gpu_world w;

        open_world(b, "block_time", &w, &k);
        run(b, &k, "spin", SPIN_NS);
        run(b, &k, "copy", 0);
        kernels = gpu_world_read(&w, "kernels", NULL);
        for (unsigned i = 0; i < BLOCK_TIME_KERNELS; i++) {
                if (kernels[i].owner.id != gpu_kernel_id(&k, "spin"))
                        continue;
                sum_ns += kernels[i].sum_ns;
                for (unsigned n = 0; n < BLOCK_TIME_BUCKETS; n++) {
                        blocks += kernels[i].buckets[n];
                        if (1ULL << n <= SPIN_NS)
                                short_ones += kernels[i].buckets[n];
                }
        }
        check_equal(b, "block_time: blocks", blocks, b->blocks);
        check_equal(b, "block_time: shorter than they can be", short_ones, 0);
        check_near(b, "block_time: average, ns", sum_ns / (blocks ?: 1), SPIN_NS);
        close_world(&w, &k);
}

static uint64_t sum_lanes(const struct warp_lanes *l, enum warp_lanes_where where, unsigned n)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < DEVICE_SMS_MAX; i++)
                sum += l[i].warps[where][n];
        return sum;
}

static void check_warp_lanes(struct bench *b)
{
        uint64_t warps = threads_of(b) / 32;
        _cleanup_free_ struct warp_lanes *l = NULL;
        struct gpu_kernels k;
        struct gpu_world w;

        open_world(b, "warp_lanes", &w, &k);
        run(b, &k, "leave", FEW);
        l = gpu_world_read(&w, "lanes", NULL);
        check_equal(b, "warp_lanes: full warps at entry", sum_lanes(l, WARP_LANES_ENTRY, 32),
                    warps);
        check_equal(b, "warp_lanes: groups that leave early",
                    sum_lanes(l, WARP_LANES_EXIT, 32 - FEW), warps);
        check_equal(b, "warp_lanes: groups that leave late", sum_lanes(l, WARP_LANES_EXIT, FEW),
                    warps);
        close_world(&w, &k);
}

static struct mem_bytes bytes_of(const struct mem_bytes *all, uint32_t kernel)
{
        struct mem_bytes sum = {};

        for (unsigned i = 0; i < DEVICE_SMS_MAX * MEM_BYTES_KERNELS; i++) {
                if (all[i].owner.id != kernel)
                        continue;
                sum.loaded += all[i].loaded;
                sum.stored += all[i].stored;
                sum.sectors += all[i].sectors;
        }
        return sum;
}

static void check_mem_bytes(struct bench *b)
{
        _cleanup_free_ struct mem_bytes *all = NULL;
        uint64_t threads = threads_of(b);
        struct mem_bytes copy, strided;
        struct gpu_kernels k;
        struct gpu_world w;

        open_world(b, "mem_bytes", &w, &k);
        run(b, &k, "copy", 0);
        run(b, &k, "strided", STRIDE);
        all = gpu_world_read(&w, "kernels", NULL);
        copy = bytes_of(all, gpu_kernel_id(&k, "copy"));
        strided = bytes_of(all, gpu_kernel_id(&k, "strided"));
        check_equal(b, "mem_bytes: loaded by copy", copy.loaded, 4 * threads);
        check_equal(b, "mem_bytes: stored by copy", copy.stored, 4 * threads);
        check_equal(b, "mem_bytes: sectors of copy", copy.sectors, 2 * threads / 8);
        check_equal(b, "mem_bytes: loaded by strided", strided.loaded, 4 * threads);
        check_equal(b, "mem_bytes: sectors of strided", strided.sectors, threads + threads / 8);
        close_world(&w, &k);
}

static void check_mem_heat(struct bench *b)
{
        _cleanup_free_ struct mem_heat *pages = NULL;
        uint64_t threads = threads_of(b), loads = 0, writes = 0, sectors = 0;
        struct gpu_kernels k;
        struct gpu_world w;

        open_world(b, "mem_heat", &w, &k);
        run(b, &k, "strided", STRIDE);
        pages = gpu_world_read(&w, "pages", NULL);
        for (unsigned i = 0; i < DEVICE_SMS_MAX * MEM_HEAT_PAGES; i++) {
                uint64_t at = (uint64_t)pages[i].owner.id << MEM_HEAT_PAGE_SHIFT;

                if (at + (1u << MEM_HEAT_PAGE_SHIFT) > b->in && at < b->in + 4 * STRIDE * threads)
                        loads += pages[i].loads;
                writes += pages[i].writes;
                sectors += pages[i].sectors;
        }
        check_equal(b, "mem_heat: requests that load, in the pages read", loads, threads / 32);
        check_equal(b, "mem_heat: requests that write", writes, threads / 32);
        check_equal(b, "mem_heat: sectors", sectors, threads + threads / 8);
        close_world(&w, &k);
}

static void check_programs(struct bench *b)
{
        check_sm_balance(b);
        check_block_time(b);
        check_warp_lanes(b);
        check_mem_bytes(b);
        check_mem_heat(b);
}

/* ---- */

static _Noreturn void usage(void)
{
        fprintf(stderr, "usage: shipped_check KERNELS_PTX OBJECTS_DIRECTORY [--blocks N] "
                        "[--ptx-only] [--no-cost]\n");
        exit(2);
}

int main(int argc, char **argv)
{
        struct bench b = {.blocks = 1024};
        bool ptx_only = false, cost = true;
        size_t size;

        for (int i = 3; i < argc; i++) {
                if (!strcmp(argv[i], "--ptx-only"))
                        ptx_only = true;
                else if (!strcmp(argv[i], "--no-cost"))
                        cost = false;
                else if (!strcmp(argv[i], "--blocks") && i + 1 < argc)
                        b.blocks = (unsigned)atoi(argv[++i]);
                else
                        usage();
        }
        if (argc < 3 || !b.blocks)
                usage();
        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        b.ptx = splice_read_file(argv[1], &size);
        b.directory = argv[2];
        splice_open_device();
        allocate(&b);
        check_programs(&b);
        if (!ptx_only) {
                b.cubin = gpu_assemble(b.ptx, &b.cubin_size);
                b.machine = true;
                check_programs(&b);
        }
        if (cost)
                shipped_cost(b.ptx, b.cubin, b.cubin_size, b.directory);
        printf("shipped_check: %u failed\n", b.failures);
        return b.failures != 0;
}
