/* SPDX-License-Identifier: Apache-2.0 */

/* Hashes with all kinds of keys, as device_keys.bpf.c uses them, run by the interpreter. */
#include <errno.h>

#include "bpf/device_keys.h"
#include "bpf/device_world.h"
#include "device/device_abi.h"
#include "device/map_view.h"
#include "unit/test.h"
#include "util/macro.h"

#define THREADS 40 /* in a block, of which a grid has 20 x 2 */
#define BLOCKS  20
#define ROWS    2

static struct world world;

static void run_turns(const char *name, uint64_t gridid, uint64_t turns)
{
        world_run(&world, world_fragment(&world, name),
                  &(struct world_launch){.blocks = BLOCKS,
                                         .blocks_y = ROWS,
                                         .threads = THREADS,
                                         .sms = 132,
                                         .kernel_id = 5,
                                         .gridid = gridid,
                                         .turns = turns});
}

static void run(const char *name, uint64_t gridid)
{
        run_turns(name, gridid, 0);
}

static struct map_view view_of(const char *map)
{
        const struct device_map_info *info = world_map_info(&world, map);

        return (struct map_view){.map = info, .bytes = world_map(&world, map), .size = info->bytes};
}

/* What is counted under a key; 0: nothing, it is not there. */
static uint64_t count_of(const char *map, const void *key, size_t size)
{
        struct map_view v = view_of(map);
        const struct keys_value *value;
        uint64_t offset;

        if (map_view_find(&v, key, size, &offset) < 0)
                return 0;
        value = (const void *)(v.bytes + offset);
        CHECK_EQ(value->first, 7);
        return value->count;
}

/* How many elements a map has; ret_sum: what they count together. */
static uint64_t elements(const char *map, uint64_t *ret_sum)
{
        struct map_view v = view_of(map);
        uint64_t at = 0, count = 0, sum = 0;
        struct map_view_element e;

        for (; map_view_next(&v, &at, NULL, &e); count++)
                sum += ((const struct keys_value *)(const void *)e.value)->count;
        *ret_sum = sum;
        return count;
}

enum variable { FAILED, THERE, CRAFTED };

static uint64_t *variables(void)
{
        return world_map(&world, ".bss");
}

static void test_twelve_bytes(void)
{
        uint64_t sum;

        world_clear(&world);
        run("count_places", 1);
        CHECK_EQ(elements("places", &sum), THREADS * ROWS);
        CHECK_EQ(sum, BLOCKS * ROWS * THREADS);
        for (uint32_t x = 0; x < THREADS; x++)
                for (uint32_t row = 0; row < ROWS; row++) {
                        struct keys_place key = {.kernel = 5, .column = x, .row = row};

                        CHECK_EQ(count_of("places", &key, sizeof(key)), BLOCKS);
                }
        CHECK_EQ(variables()[FAILED], 0);
}

/* Words that need care are told from each other. */
static void test_sixteen_bytes(void)
{
        uint64_t sum;

        world_clear(&world);
        run("count_pairs", 1);
        CHECK_EQ(elements("pairs", &sum), THREADS);
        CHECK_EQ(sum, BLOCKS * ROWS * THREADS);
        for (uint64_t x = 0; x < THREADS; x++) {
                struct keys_pair key = {DEVICE_HASH_TAG ^ (x & 1), DEVICE_HASH_TAG ^ x >> 1};

                CHECK_EQ(count_of("pairs", &key, sizeof(key)), BLOCKS * ROWS);
        }
        run("change", 3);
        CHECK_EQ(elements("pairs", &sum), THREADS + 1);
        CHECK_EQ(sum, BLOCKS * ROWS * THREADS + 77);
}

static void test_sixty_four_bytes(void)
{
        uint64_t sum;

        world_clear(&world);
        run("count_wides", 1);
        CHECK_EQ(elements("wides", &sum), 16 * ROWS);
        CHECK_EQ(sum, BLOCKS * ROWS);
        for (uint64_t x = 0; x < 16; x++) {
                struct keys_wide key = {{DEVICE_HASH_TAG, 0, x & 3, x >> 2 << 62, ~0ULL, 0, 0, 1}};

                CHECK_EQ(count_of("wides", &key, sizeof(key)), x < BLOCKS - 16 ? 2 : 1);
        }
        run("change", 1);
        CHECK_EQ(variables()[THERE], 4 * ROWS);
        CHECK_EQ(elements("wides", &sum), 12 * ROWS);
        run("count_wides", 1);
        CHECK_EQ(elements("wides", &sum), 16 * ROWS);
}

/* The key whose tag would be 0, and the one whose tag is what that one has instead. */
static void test_eight_bytes(void)
{
        uint64_t sum, key;

        world_clear(&world);
        run("count_numbers", 1);
        CHECK_EQ(elements("numbers", &sum), THREADS);
        for (uint64_t x = 0; x < THREADS; x++) {
                key = DEVICE_HASH_TAG ^ x;
                CHECK_EQ(count_of("numbers", &key, sizeof(key)), BLOCKS * ROWS);
        }
        run("drop_numbers", 1);
        CHECK_EQ(variables()[THERE], 2);
        CHECK_EQ(elements("numbers", &sum), THREADS - 2);
        key = DEVICE_HASH_TAG;
        CHECK_EQ(count_of("numbers", &key, sizeof(key)), 0);
        run("count_numbers", 1);
        CHECK_EQ(count_of("numbers", &key, sizeof(key)), BLOCKS * ROWS);
}

static void test_fills_up(void)
{
        struct map_view v;
        uint64_t sum;

        world_clear(&world);
        run("fill_up", 1);
        v = view_of("few");
        CHECK(elements("few", &sum) > KEYS_FEW);
        CHECK_EQ(sum + map_view_lost(&v), BLOCKS * ROWS * THREADS);
        CHECK_EQ(variables()[FAILED], map_view_lost(&v));
        CHECK(map_view_lost(&v) > 0);
}

/* Two keys with the same tag: one is stored, and what the other one asked for is counted. */
static void test_same_tag(void)
{
        struct keys_pair a = {1, 2}, b = {3, 2 ^ keys_mix(0, 1) ^ keys_mix(0, 3)};
        uint64_t sum, stored, other, *crafted;
        struct map_view v;

        CHECK_EQ(keys_mix(keys_mix(0, a.a), a.b), keys_mix(keys_mix(0, b.a), b.b));
        world_clear(&world);
        crafted = variables() + CRAFTED;
        memcpy(crafted, &a, sizeof(a));
        memcpy(crafted + 2, &b, sizeof(b));
        run("count_crafted", 1);
        v = view_of("pairs");
        CHECK_EQ(elements("pairs", &sum), 1);
        stored = count_of("pairs", &a, sizeof(a));
        other = count_of("pairs", &b, sizeof(b));
        CHECK(!stored != !other);
        CHECK_EQ(sum, stored ? BLOCKS * ROWS : BLOCKS * ROWS * (THREADS - 1));
        CHECK_EQ(map_view_lost(&v), BLOCKS * ROWS * THREADS - sum);
}

/* A slot that is taken, but whose words are not all there, is no element yet. */
static void test_half_written(void)
{
        struct map_view v;
        uint8_t *bytes;
        uint64_t sum;

        world_clear(&world);
        run("count_pairs", 1);
        v = view_of("pairs");
        bytes = world_map(&world, "pairs");
        for (uint64_t slot = 0; slot < device_hash_slots(v.map); slot++)
                memset(bytes + sizeof(struct device_hash_head) + slot * device_map_stride(v.map) +
                               sizeof(struct device_hash_slot) + 8,
                       0, 8);
        CHECK_EQ(elements("pairs", &sum), 0);
        run("count_pairs", 1); /* who inserts a key writes what is missing */
        CHECK_EQ(elements("pairs", &sum), THREADS);
        CHECK_EQ(sum, 2 * BLOCKS * ROWS * THREADS);
}

/* Warps stand still while they insert a key, and others insert, find and count under it. */
static void test_turns(void)
{
        static const struct {
                const char *program, *map;
                uint64_t keys, count;
        } rows[] = {
                {"count_places", "places", THREADS * ROWS, BLOCKS * ROWS * THREADS},
                {"count_pairs", "pairs", THREADS, BLOCKS * ROWS * THREADS},
                {"count_wides", "wides", 16 * ROWS, BLOCKS * ROWS},
                {"count_numbers", "numbers", THREADS, BLOCKS * ROWS * THREADS},
        };

        for (uint64_t seed = 1; seed <= 100; seed++)
                for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                        uint64_t sum;

                        world_clear(&world);
                        run_turns(rows[i].program, 1, seed);
                        CHECK_EQ(elements(rows[i].map, &sum), rows[i].keys);
                        CHECK_EQ(sum, rows[i].count);
                        CHECK_EQ(variables()[FAILED], 0);
                }
}

/* Two keys with one tag, inserted at once: what is not counted is told. */
static void test_turns_of_same_tag(void)
{
        const struct keys_pair keys[] = {{1, 2}, {3, 2 ^ keys_mix(0, 1) ^ keys_mix(0, 3)}};

        for (uint64_t seed = 1; seed <= 100; seed++) {
                struct map_view v;
                uint64_t sum;

                world_clear(&world);
                memcpy(variables() + CRAFTED, keys, sizeof(keys));
                run_turns("count_crafted", 1, seed);
                v = view_of("pairs");
                CHECK_EQ(elements("pairs", &sum), 1);
                CHECK_EQ(sum + map_view_lost(&v), BLOCKS * ROWS * THREADS);
        }
}

static void test_costs(void)
{
        for (size_t i = 0; i < device_object_program_count(world.object); i++) {
                const struct device_program_info *p = device_object_program(world.object, i);

                printf("%s: %" PRIu64 " instructions, %" PRIu64 " memory, %" PRIu64 " atomics\n",
                       p->name, p->cost.instructions, p->cost.memory, p->cost.atomics);
        }
        /* places, lost, words, live, two words of the value, the count, failed */
        CHECK_EQ(world_program(&world, "count_pairs")->cost.atomics,
                 DEVICE_HASH_PROBES + 1 + 2 + 1 + 2 + 2);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        world_init(&world, argv[1]);
        TEST(test_twelve_bytes);
        TEST(test_sixteen_bytes);
        TEST(test_sixty_four_bytes);
        TEST(test_eight_bytes);
        TEST(test_fills_up);
        TEST(test_same_tag);
        TEST(test_half_written);
        TEST(test_turns);
        TEST(test_turns_of_same_tag);
        TEST(test_costs);
        world_done(&world);
        return 0;
}
