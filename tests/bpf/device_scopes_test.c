/* SPDX-License-Identifier: Apache-2.0 */

/* Who runs a program of each scope, what it sees in its context, and a stack in memory. */
#include "bpf/device_scopes.h"
#include "bpf/device_world.h"
#include "device/device_abi.h"
#include "unit/test.h"

static struct world world;
static const struct scope_counts *counts;

/* Run a program in a grid of 3 x 2 blocks of 40 x 2 threads: 6 blocks, 18 warps, 480 threads. */
static void run(const char *name)
{
        world_run(&world, world_fragment(&world, name),
                  &(struct world_launch){.blocks = 3,
                                         .blocks_y = 2,
                                         .threads = 40,
                                         .threads_y = 2,
                                         .sms = 132,
                                         .first_sm = 7,
                                         .kernel_id = 5,
                                         .gridid = 0x123321});
}

static void check_counts(unsigned scope, struct scope_counts expected)
{
        const struct scope_counts *c = &counts[scope];

        CHECK_EQ(c->runs, expected.runs);
        CHECK_EQ(c->lanes, expected.lanes);
        CHECK_EQ(c->active, expected.active);
        CHECK_EQ(c->threads, 80 * expected.runs);
        CHECK_EQ(c->position, expected.position);
        CHECK_EQ(c->same_smid, expected.runs);
        CHECK_EQ(c->warps, expected.warps);
}

static void test_grid(void)
{
        run("scope_grid");
        check_counts(SCOPE_GRID,
                     (struct scope_counts){.runs = 1, .lanes = 1, .active = 32, .warps = 1});
}

/* Block coordinates sum up to 2 * (0 + 1 + 2) + 3 * (0 + 1). */
static void test_block(void)
{
        run("scope_block");
        check_counts(
                SCOPE_BLOCK,
                (struct scope_counts){
                        .runs = 6, .lanes = 1, .active = 6 * 32, .position = 9000000, .warps = 6});
}

/* Leaders are threads (0,0), (32,0) and (24,1) of each block. */
static void test_warp(void)
{
        run("scope_warp");
        check_counts(SCOPE_WARP, (struct scope_counts){.runs = 18,
                                                       .lanes = 1,
                                                       .active = 6 * (32 + 32 + 16),
                                                       .position = 3 * 9000000 + 6 * (32 + 124),
                                                       .warps = 0x060606});
}

static void test_thread(void)
{
        run("scope_thread");
        check_counts(SCOPE_THREAD,
                     (struct scope_counts){.runs = 480,
                                           .lanes = 0xffffffff,
                                           .active = 6 * (2 * 32 * 32 + 16 * 16),
                                           .position = 80ULL * 9000000 +
                                                       6 * (2 * 39 * 40 / 2 + 40 * 100),
                                           .warps = 0x60c0c0});
}

/* Digits 1, 2 and 3 twice each in 0x123321. */
static void test_stack(const char *name, bool in_memory)
{
        CHECK_EQ(strstr(world_fragment(&world, name), ".local") != NULL, in_memory);
        world_clear(&world);
        counts = world_map(&world, "counts");
        run(name);
        CHECK_EQ(counts[SCOPE_STACK].runs, 1);
        CHECK_EQ(counts[SCOPE_STACK].lanes, 0x2220);
}

static void test_stacks(void)
{
        test_stack("stack_array", false);
        test_stack("full_array", false);
        test_stack("wide_array", true);
}

/*
 * Warps of 32, 32 and 16 lanes; odd lanes have 100 more. Sum of a full warp 496 + 1600,
 * of half a one 120 + 800.
 */
static void test_warp_wide(void)
{
        const struct scope_counts *c = &counts[SCOPE_WARP_WIDE];
        uint64_t all = 0, any = 0;

        for (unsigned lanes = 16; lanes <= 32; lanes += 16) {
                uint32_t both = UINT32_MAX, either = 0, parity = 0;

                for (uint32_t lane = 0; lane < lanes; lane++) {
                        uint32_t number = lane & 1 ? lane + 100 : lane;

                        both &= number | 64;
                        either |= number;
                        parity ^= number;
                }
                all += both * (lanes / 16);
                any += (either + parity) * (lanes / 16);
        }
        run("warp_wide");
        CHECK_EQ(c->runs, 18);
        CHECK_EQ(c->lanes, 0xaaaaaaaa);
        CHECK_EQ(c->active, 6 * (2 * 2096 + 920));
        CHECK_EQ(c->threads, 6 * (131 + 131 + 115));
        CHECK_EQ(c->position, 18 * 5);
        CHECK_EQ(c->same_smid, 6 * all);
        CHECK_EQ(c->warps, 6 * any);
        CHECK_EQ(c->pad, 18 * (21 + 8)); /* 0x123321 */
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        world_init(&world, argv[1]);
        counts = world_map(&world, "counts");
        TEST(test_grid);
        TEST(test_block);
        TEST(test_warp);
        TEST(test_thread);
        TEST(test_stacks);
        TEST(test_warp_wide);
        world_done(&world);
        return 0;
}
