/* SPDX-License-Identifier: Apache-2.0 */

/* Maps of every kind, and variables, as device_maps.bpf.c uses them, run by the interpreter. */
#include <errno.h>

#include "bpf/device_maps.h"
#include "bpf/device_tools.h"
#include "bpf/device_world.h"
#include "device/device_abi.h"
#include "device/program.h"
#include "unit/test.h"

#define SMS     132
#define THREADS 40 /* in a block of 40 x 2, of which a grid has 3 x 2 */

static struct world world;

static void run(const char *name, uint64_t gridid)
{
        world_run(&world, world_fragment(&world, name),
                  &(struct world_launch){.blocks = 3,
                                         .blocks_y = 2,
                                         .threads = THREADS,
                                         .threads_y = 2,
                                         .sms = SMS,
                                         .first_sm = 7,
                                         .kernel_id = 5,
                                         .gridid = gridid});
}

/* Sum of counter `key` over all copies of a spread array; ret_used counts those not 0. */
static uint64_t sum_copies(const char *name, unsigned key, unsigned *ret_used)
{
        const uint64_t *values = world_map(&world, name);
        uint32_t copies = device_spread_copies(world_map_info(&world, name)->spread);
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
        const uint64_t *bss = world_map(&world, ".bss");

        return bss[which];
}

/* 6 blocks of 80 threads, each on a multiprocessor of its own; block_y is 0 or 1. */
static void test_spread_arrays(void)
{
        const uint64_t *buckets;
        unsigned used;

        world_clear(&world);
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
        buckets = world_map(&world, "histogram");
        CHECK_EQ(buckets[0], 24);
        CHECK_EQ(buckets[1], 24);
        CHECK_EQ(buckets[5], 16 * 24);
        CHECK_EQ(buckets[6], 8 * 24);
        CHECK_EQ(buckets[7], 0);
}

static const struct device_hash_slot *slot_at(uint64_t n)
{
        const char *table = world_map(&world, "table");

        return (const void *)(table + sizeof(struct device_hash_head) +
                              n * device_map_stride(world_map_info(&world, "table")));
}

static uint64_t slots(void)
{
        return device_hash_slots(world_map_info(&world, "table"));
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
        world_clear(&world);
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
        world_clear(&world);
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

        world_clear(&world);
        for (uint64_t gridid = 1; gridid <= 20; gridid++)
                run("fill_table", gridid);
        head = world_map(&world, "table");
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
        world_clear(&world);
        run("dice", 1);
        CHECK_EQ(variable(TOTAL), 1);
}

/* Every program says what it costs, and the hash is the dearest. */
static void test_costs(void)
{
        for (size_t i = 0; i < device_object_program_count(world.object); i++) {
                const struct device_program_info *p = device_object_program(world.object, i);

                printf("%s: %" PRIu64 " instructions, %" PRIu64 " memory, %" PRIu64 " atomics\n",
                       p->name, p->cost.instructions, p->cost.memory, p->cost.atomics);
                CHECK(p->cost.instructions > 0);
        }
        /* places, lost, live, two words of the value, the count, failed */
        CHECK_EQ(world_program(&world, "fill_table")->cost.atomics,
                 DEVICE_HASH_PROBES + 1 + 1 + 2 + 2);
        CHECK_EQ(world_program(&world, "count_threads")->cost.atomics, 3);
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
        world_init(&world, argv[1]);
        TEST(test_spread_arrays);
        TEST(test_hash);
        TEST(test_hash_of_grids);
        TEST(test_hash_fills_up);
        TEST(test_random_numbers);
        TEST(test_costs);
        test_budget(argv[1]);
        world_done(&world);
        return 0;
}
