/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Device programs with maps of every kind and warp-wide helpers, run by many threads
 * at once on a real GPU: what the interpreter, which runs one warp after the other,
 * cannot show. Nothing may be lost.
 *
 *   device_check MAPS_OBJECT SCOPES_OBJECT RINGS_OBJECT TABLES_OBJECT KEYS_OBJECT
 *     (tests/bpf/device_maps, device_scopes, device_rings, device_tables, device_keys)
 *
 * Loading the objects takes root: the kernel verifies them. One line per check, "ok"
 * or "FAIL"; exit code 0 all right, 1 not, 77 no device.
 */
#include <bpf/libbpf.h>
#include <dlfcn.h>

#include "bpf/device_keys.h"
#include "bpf/device_maps.h"
#include "bpf/device_rings.h"
#include "bpf/device_scopes.h"
#include "bpf/device_tables.h"
#include "bpf/device_tools.h"
#include "device/device_abi.h"
#include "device/event_ring.h"
#include "device/map_view.h"
#include "device/program.h"
#include "unit/test.h"
#include "util/macro.h"

#define MAPS_MAX    8
#define LAUNCHES    20
#define BLOCKS      1000 /* in x; 2 in y */
#define THREADS     256
#define KEYS_BLOCKS 960 /* 60 for each of 16 keys */
#define READ_NS     UINT64_C(60000000000)

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
        X(cuMemFree_v2, (address))                                                                 \
        X(cuMemsetD8_v2, (address, unsigned char, size_t))                                         \
        X(cuMemcpyDtoH_v2, (void *, address, size_t))                                              \
        X(cuMemcpyHtoD_v2, (address, const void *, size_t))                                        \
        X(cuModuleLoadData, (void **, const void *))                                               \
        X(cuModuleUnload, (void *))                                                                \
        X(cuModuleGetFunction, (void **, void *, const char *))                                    \
        X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
                           unsigned, void *, void **, void **))

#define DECLARE(name, parameters) static int(*name) parameters;
DRIVER(DECLARE)

/* An object with memory for its maps. */
struct world {
        struct device_object *object;
        address maps[MAPS_MAX];
};

static unsigned failures;

static void must(int result, const char *what)
{
        const char *text = NULL;

        if (result == 0)
                return;
        cuGetErrorString(result, &text);
        printf("FAIL %s: %s\n", what, text ? text : "unknown error");
        exit(1);
}

static void report(const char *what, uint64_t got, uint64_t expected)
{
        bool right = got == expected;

        printf("%s %s: %" PRIu64 "%s", right ? "ok" : "FAIL", what, got, right ? "\n" : "");
        if (!right)
                printf(", not %" PRIu64 "\n", expected);
        failures += !right;
}

static void open_device(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
        int device;

        if (!library)
                test_skip("no libcuda.so.1");
#define LOOK_UP(name, parameters)                                                                  \
        name = (int(*) parameters)dlsym(library, #name);                                           \
        CHECK(name);
        DRIVER(LOOK_UP)
        if (cuInit(0) != 0 || cuDeviceGet(&device, 0) != 0)
                test_skip("no device");
        must(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
        must(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/* Maps as they begin. */
static void clear(const struct world *w)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++) {
                const struct device_map_info *info = device_object_map(w->object, i);

                must(cuMemsetD8_v2(w->maps[i], 0, info->bytes), "cuMemsetD8");
                if (info->initial)
                        must(cuMemcpyHtoD_v2(w->maps[i], info->initial, info->value_size),
                             "cuMemcpyHtoD");
        }
}

static struct world world_new(const char *path)
{
        struct world w = {};
        char error[1024];
        size_t bytes;
        char *elf = device_read_file(path, &bytes);
        int result;

        CHECK(elf);
        result = device_object_load(elf, bytes, NULL, error, sizeof(error), &w.object);
        free(elf);
        if (result) {
                printf("FAIL %s: %s\n", path, error);
                exit(1);
        }
        for (size_t i = 0; i < device_object_map_count(w.object); i++)
                must(cuMemAlloc_v2(&w.maps[i], device_object_map(w.object, i)->bytes),
                     "cuMemAlloc");
        clear(&w);
        return w;
}

static void world_done(struct world *w)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++)
                must(cuMemFree_v2(w->maps[i]), "cuMemFree");
        device_object_free(w->object);
}

static const char *find_fragment(const struct world *w, const char *name)
{
        for (size_t i = 0; i < device_object_program_count(w->object); i++)
                if (!strcmp(device_object_program(w->object, i)->name, name))
                        return device_object_program(w->object, i)->ptx;
        CHECK(!"no such program");
}

static size_t find_map(const struct world *w, const char *name)
{
        for (size_t i = 0; i < device_object_map_count(w->object); i++)
                if (!strcmp(device_object_map(w->object, i)->name, name))
                        return i;
        CHECK(!"no such map");
}

/* Run a program a number of times, in grids of `blocks` x 2 blocks of `threads` x `rows`. */
static void run(const struct world *w, const char *name, unsigned launches, unsigned blocks,
                unsigned threads, unsigned rows)
{
        uint64_t maps[MAPS_MAX];
        const struct device_values values = {
                .kernel_id = "5", .context = "0", .queue = "0", .maps = maps};
        void *module, *function;
        char *text;

        for (size_t i = 0; i < MAPS_MAX; i++)
                maps[i] = w->maps[i];
        text = device_make_kernel(find_fragment(w, name), name, &values, 1);
        must(cuModuleLoadData(&module, text), name);
        must(cuModuleGetFunction(&function, module, name), name);
        for (unsigned i = 0; i < launches; i++)
                must(cuLaunchKernel(function, blocks, 2, 1, threads, rows, 1, 0, NULL, NULL, NULL),
                     name);
        must(cuCtxSynchronize(), name);
        must(cuModuleUnload(module), name);
        free(text);
}

/* What a map holds, to free(). */
static void *read_map(const struct world *w, const char *name, const struct device_map_info **ret)
{
        size_t i = find_map(w, name);
        const struct device_map_info *info = device_object_map(w->object, i);
        void *data = malloc(info->bytes);

        CHECK(data);
        must(cuMemcpyDtoH_v2(data, w->maps[i], info->bytes), "cuMemcpyDtoH");
        if (ret)
                *ret = info;
        return data;
}

static uint64_t sum_map(const struct world *w, const char *name)
{
        const struct device_map_info *info;
        _cleanup_free_ uint64_t *values = read_map(w, name, &info);
        uint64_t sum = 0;

        for (uint64_t i = 0; i < info->bytes / 8; i++)
                sum += values[i];
        return sum;
}

/* .bss of device_maps.bpf.c */
enum variable { TOTAL, FAILED };

static uint64_t variable(const struct world *w, enum variable which)
{
        _cleanup_free_ uint64_t *values = read_map(w, ".bss", NULL);

        return values[which];
}

static void check_arrays(const struct world *w)
{
        uint64_t threads = (uint64_t)LAUNCHES * BLOCKS * 2 * THREADS;

        clear(w);
        run(w, "count_threads", LAUNCHES, BLOCKS, THREADS, 1);
        report("threads counted by multiprocessor", sum_map(w, "per_sm"), threads);
        report("threads counted each for itself, without atomics", sum_map(w, "per_thread"),
               7 * threads);
        report("threads counted in a variable", variable(w, TOTAL), 7 * threads);
        report("threads in the histogram", sum_map(w, "histogram"), threads);
        run(w, "count_warps", LAUNCHES, BLOCKS, THREADS, 1);
        report("warps counted each for itself, without atomics", sum_map(w, "per_warp"),
               threads / 32);
}

/* Live slots of the hash and the counts in them; a key that is there twice counts as a failure. */
static void read_table(const struct world *w, uint64_t *ret_live, uint64_t *ret_count)
{
        const struct device_map_info *info;
        _cleanup_free_ char *data = read_map(w, "table", &info);
        uint64_t slots = device_hash_slots(info), twice = 0;
        uint64_t stride = device_map_stride(info);
        const char *first = data + sizeof(struct device_hash_head);

        *ret_live = *ret_count = 0;
        for (uint64_t n = 0; n < slots; n++) {
                const struct device_hash_slot *slot = (const void *)(first + n * stride);
                const struct maps_value *v = (const void *)(slot + 1);

                if (!slot->live)
                        continue;
                ++*ret_live;
                *ret_count += v->count;
                for (uint64_t m = 0; m < n; m++)
                        twice += ((const struct device_hash_slot *)(const void *)(first +
                                                                                  m * stride))
                                         ->tag == slot->tag;
        }
        report("keys that are in the hash twice", twice, 0);
}

/* Blocks of 40 x 2 threads, of which all with the same thread_x insert the same key at once. */
static void check_hash(const struct world *w)
{
        uint64_t live, count;

        clear(w);
        run(w, "fill_table", 1, BLOCKS, MAPS_HASH_ENTRIES, 2);
        read_table(w, &live, &count);
        report("keys in the hash", live, MAPS_HASH_ENTRIES);
        report("counted in the hash", count, UINT64_C(4) * BLOCKS * MAPS_HASH_ENTRIES);
        report("insertions that failed", variable(w, FAILED), 0);
        clear(w);
        run(w, "count_blocks", LAUNCHES, BLOCKS, 32, 1);
        read_table(w, &live, &count);
        report("grids in the hash", live, LAUNCHES);
        report("blocks counted in the hash", count, UINT64_C(2) * LAUNCHES * BLOCKS);
}

static void check_random(const struct world *w)
{
        clear(w);
        run(w, "dice", 100, 1, 32, 1);
        report("pairs of random numbers that differ", variable(w, TOTAL), 100);
}

/* As in device_scopes_test: 3 x 2 blocks of 40 x 2 threads. */
static void check_scopes(const struct world *w)
{
        _cleanup_free_ struct scope_counts *c = NULL;

        run(w, "scope_grid", 1, 3, 40, 2);
        run(w, "scope_block", 1, 3, 40, 2);
        run(w, "scope_warp", 1, 3, 40, 2);
        run(w, "scope_thread", 1, 3, 40, 2);
        run(w, "warp_wide", 1, 3, 40, 2);
        c = read_map(w, "counts", NULL);
        report("runs of scope grid", c[SCOPE_GRID].runs, 1);
        report("runs of scope block", c[SCOPE_BLOCK].runs, 6);
        report("runs of scope warp", c[SCOPE_WARP].runs, 18);
        report("runs of scope thread", c[SCOPE_THREAD].runs, 480);
        report("active lanes seen by warps", c[SCOPE_WARP].active, 6 * (32 + 32 + 16));
        report("places of threads", c[SCOPE_THREAD].position,
               UINT64_C(80) * 9000000 + 6 * (2 * 39 * 40 / 2 + 40 * 100));
        report("same multiprocessor by helper and context", c[SCOPE_THREAD].same_smid, 480);
        report("warps that asked together", c[SCOPE_WARP_WIDE].runs, 18);
        report("their ballots", c[SCOPE_WARP_WIDE].lanes, 0xaaaaaaaa);
        report("their sums", c[SCOPE_WARP_WIDE].active, 6 * (2 * 2096 + 920));
        report("their greatest", c[SCOPE_WARP_WIDE].threads, 6 * (131 + 131 + 115));
        report("their least", c[SCOPE_WARP_WIDE].position, 18 * 5);
}

/* What the records that were read add up to. */
struct read {
        uint64_t records, wrong, sum;
};

static void add_event(void *data, const void *bytes, size_t size)
{
        const struct rings_event *e = bytes;
        struct read *r = data;

        r->records++;
        r->sum += e->thread;
        r->wrong += size != sizeof(*e) || e->odd != ~e->block || e->kind != 1 ||
                    e->lane != e->thread % 32 || e->thread % 2 || e->time_ns == 0;
}

static void add_print(void *data, const void *bytes, size_t size)
{
        const struct device_print *p = bytes;
        struct read *r = data;

        r->records++;
        r->sum += p->arguments[0];
        r->wrong += size != offsetof(struct device_print, arguments) + 8 || p->kernel_id != 5;
}

/* Read a ring from its beginning on, once all kernels have ended. */
static struct read read_ring(const struct world *w, const char *name,
                             void (*add)(void *data, const void *bytes, size_t size),
                             struct event_ring_losses *ret_losses)
{
        const struct device_map_info *info;
        _cleanup_free_ void *memory = read_map(w, name, &info);
        struct event_ring *ring;
        struct read r = {};

        CHECK(event_ring_new(info, 0, &ring) == 0);
        /* Time passes, so that what was overwritten by halves is given up. */
        for (uint64_t now_ns = 1; now_ns < READ_NS; now_ns += READ_NS / 1000)
                event_ring_read(ring, memory, now_ns, SIZE_MAX / 2, add, &r);
        event_ring_get_losses(ring, ret_losses);
        event_ring_free(ring);
        return r;
}

/* Records of threads with even numbers; those that fit, and far more than fit. */
static void check_ring(const struct world *w)
{
        struct event_ring_losses losses;
        struct read r;

        clear(w);
        run(w, "reserve", 1, 2, 100, 1);
        r = read_ring(w, "events", add_event, &losses);
        report("records in the ring", r.records, 200);
        report("records that are wrong", r.wrong, 0);
        report("their threads", r.sum, 4ULL * 49 * 50);
        clear(w);
        run(w, "reserve", LAUNCHES, BLOCKS, THREADS, 1);
        r = read_ring(w, "events", add_event, &losses);
        /* Writers of one slot, a round apart, may meet in it: then neither is whole. */
        report("records left of many", r.records > 0 && r.records <= 256, 1);
        report("records that are wrong", r.wrong, 0);
        report("records read or lost, but never made",
               r.records + losses.torn + losses.overrun >
                       (uint64_t)LAUNCHES * BLOCKS * 2 * THREADS / 2,
               0);
        printf("   %" PRIu64 " read, %" PRIu64 " overwritten, %" PRIu64 " torn\n", r.records,
               losses.overrun, losses.torn);
}

static void check_messages(const struct world *w)
{
        const struct device_event_head *head;
        _cleanup_free_ void *memory = NULL;
        struct event_ring_losses losses;
        struct read r;

        clear(w);
        run(w, "print_all", 1, 2, 100, 1);
        r = read_ring(w, ".printk", add_print, &losses);
        report("messages", r.records, 400);
        report("messages that are wrong", r.wrong, 0);
        report("their arguments", r.sum, 4ULL * 99 * 50);
        clear(w);
        run(w, "print_all", 1, BLOCKS, THREADS, 1);
        head = memory = read_map(w, ".printk", NULL);
        report("messages kept or counted as suppressed", head->head + head->suppressed,
               2ULL * BLOCKS * THREADS);
        report("messages kept up to the limit", head->head >= DEVICE_PRINT_LIMIT, 1);
        report("messages suppressed", head->suppressed > 0, 1);
}

/* Grids of 1000 x 2 blocks, by tables whose sums are known (device_tables.bpf.c). */
static void check_tables(const struct world *w)
{
        _cleanup_free_ uint64_t *c = NULL;
        uint64_t ends = 0;

        for (unsigned block = 0; block < BLOCKS; block++)
                ends += UINT64_C(2) * tables_walk(block);
        clear(w);
        run(w, "weigh", LAUNCHES, BLOCKS, THREADS, 1);
        run(w, "cells", LAUNCHES, BLOCKS, 32, 1);
        run(w, "letters", LAUNCHES, BLOCKS, 32, 1);
        run(w, "weigh_exits", LAUNCHES, BLOCKS, THREADS, 1);
        run(w, "walk", LAUNCHES, BLOCKS, 32, 1);
        run(w, "together", LAUNCHES, BLOCKS, THREADS, 1);
        c = read_map(w, "counts", NULL);
        report("weights of threads, by a table", c[TABLES_WEIGHT],
               UINT64_C(3) * 13086 * (THREADS / 8) * 2 * BLOCKS * LAUNCHES);
        report("cells of a table, with signs", c[TABLES_TRIANGLE],
               UINT64_C(BLOCKS / 4) * (-1 + -2 + 3 + 4 - 5 + 7 + 8) * LAUNCHES);
        report("letters of a word", c[TABLES_LETTERS], UINT64_C(1407) * LAUNCHES);
        report("weights at exits", c[TABLES_EXITS],
               UINT64_C(13086) * (BLOCKS / 8) * 2 * (THREADS / 32) * LAUNCHES);
        report("ends of walks", c[TABLES_STEPPED], ends * LAUNCHES);
        report("warps whose lanes went one way", c[TABLES_ALIKE],
               UINT64_C(BLOCKS / 2) * 2 * (THREADS / 32) * LAUNCHES);
}

/* What a hash of device_keys.bpf.c holds. */
struct keys_found {
        uint64_t keys, twice, sum, least, most, lost;
};

static struct keys_found read_keys(const struct world *w, const char *name)
{
        struct keys_found f = {.least = UINT64_MAX};
        struct map_view v = {};
        _cleanup_free_ void *data = read_map(w, name, &v.map);
        struct map_view_element e, other;

        v.bytes = data;
        v.size = v.map->bytes;
        for (uint64_t at = 0; map_view_next(&v, &at, NULL, &e); f.keys++) {
                uint64_t count = ((const struct keys_value *)(const void *)e.value)->count;

                f.sum += count;
                f.least = count < f.least ? count : f.least;
                f.most = count > f.most ? count : f.most;
                for (uint64_t next = at; map_view_next(&v, &next, NULL, &other);)
                        f.twice += !memcmp(e.key, other.key, e.key_size);
        }
        f.lost = map_view_lost(&v);
        return f;
}

/* `keys` keys under which equally much was counted. */
static void check_keys_of(const struct world *w, const char *name, const char *program,
                          unsigned threads, unsigned rows, uint64_t keys, uint64_t each)
{
        struct keys_found f;

        clear(w);
        run(w, program, LAUNCHES, KEYS_BLOCKS, threads, rows);
        f = read_keys(w, name);
        printf("   %s\n", name);
        report("keys", f.keys, keys);
        report("keys that are there twice", f.twice, 0);
        report("least counted under a key", f.least, each * LAUNCHES);
        report("most counted under a key", f.most, each * LAUNCHES);
        report("updates that found no room", f.lost, 0);
        report("of which the program was told", variable(w, TOTAL), 0);
}

/* All blocks insert the same keys at once; those of a key must find one another. */
static void check_keys(const struct world *w)
{
        uint64_t crafted[6] = {0, 0, 1, 2, 3}, total;
        struct keys_found f;

        check_keys_of(w, "places", "count_places", 40, 2, 80, 2ULL * KEYS_BLOCKS);
        check_keys_of(w, "pairs", "count_pairs", 64, 2, 64, 4ULL * KEYS_BLOCKS);
        check_keys_of(w, "wides", "count_wides", 32, 1, 32, KEYS_BLOCKS / 16);
        check_keys_of(w, "numbers", "count_numbers", 64, 2, 64, 4ULL * KEYS_BLOCKS);
        clear(w);
        run(w, "fill_up", 1, BLOCKS, THREADS, 1);
        f = read_keys(w, "few");
        total = UINT64_C(2) * BLOCKS * THREADS;
        report("counted in a full hash, or told that there is no room", f.sum + f.lost, total);
        report("of which the program was told", variable(w, TOTAL), f.lost);
        clear(w);
        crafted[5] = 2 ^ keys_mix(0, 1) ^ keys_mix(0, 3);
        must(cuMemcpyHtoD_v2(w->maps[find_map(w, ".bss")], crafted, sizeof(crafted)),
             "cuMemcpyHtoD");
        run(w, "count_crafted", 1, BLOCKS, THREADS, 1);
        f = read_keys(w, "pairs");
        report("keys stored of two with one tag", f.keys, 1);
        report("counted under it, or told that there is no room", f.sum + f.lost, total);
}

int main(int argc, char **argv)
{
        struct world maps, scopes, rings, tables, keys;

        if (argc != 6) {
                fprintf(stderr, "usage: device_check MAPS_OBJECT SCOPES_OBJECT RINGS_OBJECT "
                                "TABLES_OBJECT KEYS_OBJECT\n");
                return 2;
        }
        setlinebuf(stdout); /* where it hangs, if it does, is seen */
        libbpf_set_print(NULL);
        open_device();
        maps = world_new(argv[1]);
        check_arrays(&maps);
        check_hash(&maps);
        check_random(&maps);
        world_done(&maps);
        scopes = world_new(argv[2]);
        check_scopes(&scopes);
        world_done(&scopes);
        rings = world_new(argv[3]);
        check_ring(&rings);
        check_messages(&rings);
        world_done(&rings);
        tables = world_new(argv[4]);
        check_tables(&tables);
        world_done(&tables);
        keys = world_new(argv[5]);
        check_keys(&keys);
        world_done(&keys);
        printf("device_check: %u failed\n", failures);
        return failures != 0;
}
