/* SPDX-License-Identifier: Apache-2.0 */

/* Maps of every kind, and variables, as device_maps.bpf.c uses them, run by the interpreter. */
#include <bpf/libbpf.h>
#include <errno.h>

#include "bpf/device_maps.h"
#include "bpf/device_tools.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "ptx_interp.h"
#include "unit/test.h"
#include "util/macro.h"

#define SMS     132
#define THREADS 40 /* in a block of 40 x 2, of which a grid has 3 x 2 */

static struct device_object *object;
static void *memory[8];

static void load_object(const char *path)
{
        char error[1024];
        size_t bytes;
        char *elf = device_read_file(path, &bytes);
        int result;

        CHECK(elf);
        result = device_object_load(elf, bytes, NULL, error, sizeof(error), &object);
        free(elf);
        if (result == -EPERM)
                test_skip(error);
        if (result)
                fprintf(stderr, "%s\n", error);
        CHECK_EQ(result, 0);
}

static size_t find_map(const char *name)
{
        for (size_t i = 0; i < device_object_map_count(object); i++)
                if (!strcmp(device_object_map(object, i)->name, name))
                        return i;
        CHECK(!"no such map");
}

static const struct device_program_info *find_program(const char *name)
{
        for (size_t i = 0; i < device_object_program_count(object); i++)
                if (!strcmp(device_object_program(object, i)->name, name))
                        return device_object_program(object, i);
        CHECK(!"no such program");
}

/* What the agent gives a process: zeroed memory for each map. */
static void clear_maps(void)
{
        for (size_t i = 0; i < device_object_map_count(object); i++) {
                size_t bytes = (device_object_map(object, i)->bytes + 255) / 256 * 256;

                free(memory[i]);
                memory[i] = aligned_alloc(256, bytes);
                CHECK(memory[i]);
                memset(memory[i], 0, bytes);
        }
}

static void run(const char *name, uint64_t gridid)
{
        uint64_t maps[8];
        const struct device_values values = {
                .kernel_id = "5", .context = "%envreg6", .queue = "0", .maps = maps};
        struct ptx_launch launch = {
                .grid = {3, 2, 1}, .block = {THREADS, 2, 1}, .gridid = gridid, .first_sm = 7};
        struct ptx_env env = {.sm_count = SMS, .max_instructions = 10000000};
        struct ptx_machine *machine = ptx_machine_new();
        struct ptx_module *module;
        enum ptx_fault fault;
        char log[256] = "", *text;

        for (size_t i = 0; i < ARRAY_SIZE(maps); i++)
                maps[i] = (uint64_t)(uintptr_t)memory[i];
        text = device_make_kernel(find_program(name)->ptx, name, &values, 1);
        ptx_module_load(text, strlen(text), 0, log, sizeof(log), &module);
        CHECK_STR(log, "");
        CHECK_EQ(ptx_run(machine, ptx_module_entry(module, 0), &launch, NULL, &env, &fault), 0);
        CHECK_EQ(fault, PTX_FAULT_NONE);
        ptx_module_free(module);
        ptx_machine_free(machine);
        free(text);
}

/* Sum of counter `key` over all copies of a spread array; ret_used counts those not 0. */
static uint64_t sum_copies(const char *name, unsigned key, unsigned *ret_used)
{
        size_t map = find_map(name);
        const uint64_t *values = memory[map];
        uint32_t copies = device_spread_copies(device_object_map(object, map)->spread);
        uint64_t sum = 0;

        *ret_used = 0;
        for (uint32_t c = 0; c < copies; c++) {
                sum += values[c * MAPS_COUNTERS + key];
                *ret_used += values[c * MAPS_COUNTERS + key] != 0;
        }
        return sum;
}

/* The variables in the order in which the object has them. */
enum variable { TOTAL, FAILED };

static uint64_t variable(enum variable which)
{
        const uint64_t *bss = memory[find_map(".bss")];

        return bss[which];
}

/* 6 blocks of 80 threads, each on a multiprocessor of its own; block_y is 0 or 1. */
static void test_spread_arrays(void)
{
        const uint64_t *buckets;
        unsigned used;

        clear_maps();
        run("count_threads", 1);
        CHECK_EQ(sum_copies("per_sm", 0, &used), 240);
        CHECK_EQ(used, 3);
        CHECK_EQ(sum_copies("per_sm", 1, &used), 240);
        CHECK_EQ(sum_copies("per_sm", 2, &used), 0);
        CHECK_EQ(sum_copies("per_thread", 0, &used), 7 * 240);
        CHECK_EQ(used, 240);
        CHECK_EQ(variable(TOTAL), 7 * 480);
        run("count_threads", 2);
        CHECK_EQ(sum_copies("per_thread", 1, &used), 14 * 240);
        CHECK_EQ(used, 240);
        run("count_warps", 3);
        run("count_warps", 4);
        CHECK_EQ(sum_copies("per_warp", 1, &used), 2 * 18);
        CHECK_EQ(used, 18);
        /* thread_x from 0 to 39: bucket 0 has one, bucket n the 2^(n-1) numbers of n bits */
        buckets = memory[find_map("histogram")];
        CHECK_EQ(buckets[0], 24);
        CHECK_EQ(buckets[1], 24);
        CHECK_EQ(buckets[5], 16 * 24);
        CHECK_EQ(buckets[6], 8 * 24);
        CHECK_EQ(buckets[7], 0);
}

static const struct device_hash_slot *slot_at(uint64_t n)
{
        size_t map = find_map("table");

        return (const void *)((const char *)memory[map] + sizeof(struct device_hash_head) +
                              n * device_map_stride(device_object_map(object, map)));
}

static uint64_t slots(void)
{
        return UINT64_C(1) << device_hash_bits(MAPS_HASH_ENTRIES);
}

/* The live slot of a key, NULL when there is none; there must not be two. */
static const struct device_hash_slot *find_slot(uint64_t key)
{
        const struct device_hash_slot *found = NULL;

        for (uint64_t n = 0; n < slots(); n++)
                if (slot_at(n)->tag == (key ^ DEVICE_HASH_TAG)) {
                        CHECK(!found);
                        found = slot_at(n);
                }
        return found && found->live ? found : NULL;
}

static void test_hash(void)
{
        clear_maps();
        run("fill_table", 9);
        CHECK_EQ(variable(FAILED), 0);
        for (uint64_t x = 0; x < THREADS; x++) {
                const struct device_hash_slot *slot = find_slot(UINT64_C(9) << 32 | x);
                const struct maps_value *v = (const void *)(slot + 1);

                CHECK(slot);
                CHECK_EQ(v->count, 12);
                CHECK_EQ(v->last, 9);
                CHECK_EQ(v->set, 1);
                CHECK(v->lane < 32);
        }
        run("thin_table", 9);
        CHECK_EQ(variable(TOTAL), THREADS / 2);
        for (uint64_t x = 0; x < THREADS; x++)
                CHECK_EQ(find_slot(UINT64_C(9) << 32 | x) == NULL, x & 1);
        /* what was deleted comes back at its place, with a new value */
        run("fill_table", 9);
        CHECK_EQ(((const struct maps_value *)(find_slot(UINT64_C(9) << 32) + 1))->count, 24);
        CHECK_EQ(((const struct maps_value *)(find_slot(UINT64_C(9) << 32 | 1) + 1))->count, 12);
}

static void test_hash_of_grids(void)
{
        clear_maps();
        run("count_blocks", 3);
        run("count_blocks", 5);
        run("count_blocks", 3);
        CHECK_EQ(((const struct maps_value *)(find_slot(3) + 1))->count, 12);
        CHECK_EQ(((const struct maps_value *)(find_slot(5) + 1))->count, 6);
        run("overwrite", 3);
        run("overwrite", 4);
        CHECK_EQ(((const struct maps_value *)(find_slot(3) + 1))->count, 77);
        CHECK_EQ(((const struct maps_value *)(find_slot(4) + 1))->set, 3);
}

/* A full table says so: no key is lost silently, and those that are there stay. */
static void test_hash_fills_up(void)
{
        const struct device_hash_head *head;
        uint64_t taken = 0;

        clear_maps();
        for (uint64_t gridid = 1; gridid <= 20; gridid++)
                run("fill_table", gridid);
        head = memory[find_map("table")];
        for (uint64_t n = 0; n < slots(); n++)
                taken += slot_at(n)->live;
        CHECK(taken > slots() * 3 / 4);
        CHECK(head->lost > 0);
        CHECK_EQ(variable(FAILED), head->lost);
        for (uint64_t x = 0; x < THREADS; x++)
                CHECK(find_slot(UINT64_C(1) << 32 | x));
}

static void test_random_numbers(void)
{
        clear_maps();
        run("dice", 1);
        CHECK_EQ(variable(TOTAL), 1);
}

/* Every program says what it costs, and the hash is the dearest. */
static void test_costs(void)
{
        for (size_t i = 0; i < device_object_program_count(object); i++) {
                const struct device_program_info *p = device_object_program(object, i);

                printf("%s: %" PRIu64 " instructions, %" PRIu64 " memory, %" PRIu64 " atomics\n",
                       p->name, p->cost.instructions, p->cost.memory, p->cost.atomics);
                CHECK(p->cost.instructions > 0);
        }
        /* places, lost, live, two words of the value, the count, failed */
        CHECK_EQ(find_program("fill_table")->cost.atomics, DEVICE_HASH_PROBES + 1 + 1 + 2 + 2);
        CHECK_EQ(find_program("count_threads")->cost.atomics, 3);
}

/* A budget of the caller's holds for programs of every scope. */
static void test_budget(const char *path)
{
        const struct device_cost budget = {.instructions = 60, .memory = 10, .atomics = 10};
        const struct device_options options = {.budget = &budget};
        struct device_object *none = NULL;
        char error[1024];
        size_t bytes;
        char *elf = device_read_file(path, &bytes);

        CHECK(elf);
        CHECK_EQ(device_object_load(elf, bytes, &options, error, sizeof(error), &none), -ENOTSUP);
        CHECK(strstr(error, "more than its budget of 60, 10, 10"));
        CHECK(!none);
        free(elf);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        libbpf_set_print(NULL);
        load_object(argv[1]);
        TEST(test_spread_arrays);
        TEST(test_hash);
        TEST(test_hash_of_grids);
        TEST(test_hash_fills_up);
        TEST(test_random_numbers);
        TEST(test_costs);
        test_budget(argv[1]);
        for (size_t i = 0; i < ARRAY_SIZE(memory); i++)
                free(memory[i]);
        device_object_free(object);
        return 0;
}
