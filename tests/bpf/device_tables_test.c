/* SPDX-License-Identifier: Apache-2.0 */

/* Tables of constants in GPU memory, as device_tables.bpf.c reads them, run by the interpreter. */
#include "bpf/device_tables.h"
#include "bpf/device_world.h"
#include "unit/test.h"

#define BLOCKS   10
#define BLOCKS_Y 4
#define THREADS  40

static struct world world;

static uint64_t run(const char *name, enum tables_counter which)
{
        const uint64_t *counts;

        world_clear(&world);
        world_run(&world, world_fragment(&world, name),
                  &(struct world_launch){
                          .blocks = BLOCKS, .blocks_y = BLOCKS_Y, .threads = THREADS, .sms = 132});
        counts = world_map(&world, "counts");
        return counts[which];
}

static void test_tables(void)
{
        CHECK_EQ(run("weigh", TABLES_WEIGHT), 3 * 13086ULL * (THREADS / 8) * BLOCKS * BLOCKS_Y);
        /* rows 0 and 1 three times, 2 and 3 twice */
        CHECK_EQ(run("cells", TABLES_TRIANGLE),
                 (uint64_t)(3 * (-1 + -2 + 3) + 2 * (4 - 5 + 6 + 7 + 8 - 9 + 10)));
        CHECK_EQ(run("letters", TABLES_LETTERS), 1407);
        /* blocks 8 and 9 are like 0 and 1; two warps each */
        CHECK_EQ(run("weigh_exits", TABLES_EXITS), 2ULL * BLOCKS_Y * (13086 + 21));
        CHECK_EQ(run("together", TABLES_ALIKE), 2ULL * BLOCKS_Y * 4);
}

static void test_walk(void)
{
        uint64_t expected = 0;

        for (unsigned block = 0; block < BLOCKS; block++)
                expected += tables_walk(block) * BLOCKS_Y;
        CHECK_EQ(run("walk", TABLES_STEPPED), expected);
}

/* What is known when the program is compiled is not loaded. */
static void test_known_places(void)
{
        const char *ptx = world_fragment(&world, "weigh");
        unsigned loads = 0;

        for (const char *at = ptx; (at = strstr(at, "ld.global")); at++)
                loads++;
        CHECK_EQ(loads, 1);
        CHECK(strstr(ptx, "ld.global.nc.u16"));
}

/* The section is what the program was given, and is said to be constant. */
static void test_section(void)
{
        const struct device_map_info *info = world_map_info(&world, ".rodata");

        CHECK(info->constant && info->constant == info->initial);
        CHECK(info->value_size >= 16 + 64 + TABLES_WORD_MAX + 16 + 4);
        CHECK(!memcmp(world_map(&world, ".rodata"), info->initial, info->value_size));
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        world_init(&world, argv[1]);
        TEST(test_tables);
        TEST(test_walk);
        TEST(test_known_places);
        TEST(test_section);
        world_done(&world);
        return 0;
}
