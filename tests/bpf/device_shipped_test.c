/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The programs in probes/device, run by the interpreter in kernels of which it is
 * known what they must find. device_shipped_test DIRECTORY
 */
#include <stdarg.h>

#include "bpf/device_world.h"
#include "device/block_time_abi.h"
#include "device/sm_balance_abi.h"
#include "device/warp_lanes_abi.h"
#include "unit/test.h"
#include "util/macro.h"

#define SMS 4

static const char *directory;
static struct world world;

static void open_world(const char *object)
{
        char path[512];

        snprintf(path, sizeof(path), "%s/%s.bpf.o", directory, object);
        world_init(&world, path);
}

/* printf into a text to free(). */
static char *body(const char *format, ...) _printf_(1, 2);

static char *body(const char *format, ...)
{
        va_list args;
        char *text;

        va_start(args, format);
        CHECK(vasprintf(&text, format, args) >= 0);
        va_end(args);
        return text;
}

static void run(const char *text, struct world_launch launch)
{
        world_run(&world, text, &launch);
}

/* ---- sm_balance ---- */

static const struct sm_balance *sm(unsigned n)
{
        return (const struct sm_balance *)world_map(&world, "multiprocessors") + n;
}

/* One block after the other, each between two readings of a clock that ticks at each. */
static void test_sm_balance(void)
{
        static const unsigned blocks[SMS] = {3, 3, 2, 2};
        _cleanup_free_ char *text = NULL;

        open_world("sm_balance");
        text = body("%s%s", world_fragment(&world, "sm_block_begins"),
                    world_fragment(&world, "sm_block_ends"));
        run(text, (struct world_launch){.blocks = 10, .threads = 70, .sms = SMS});
        for (unsigned n = 0; n < SMS; n++) {
                CHECK_EQ(sm(n)->blocks, blocks[n]);
                CHECK_EQ(sm(n)->resident, 0);
                CHECK_EQ(sm(n)->block_ns, 100 * blocks[n]);
                CHECK_EQ(sm(n)->busy_ns, 100 * blocks[n]);
        }
        CHECK_EQ(sm(SMS)->blocks, 0);
        world_done(&world);
}

/* Blocks that wait for each other are all there at once: busy is not the sum of their times. */
static void test_sm_balance_together(void)
{
        static uint64_t arrived;
        _cleanup_free_ char *text = NULL;
        uint64_t first_ns;

        open_world("sm_balance");
        text = body("%s\n.reg .b64 %%have, %%at;\n.reg .pred %%wait;\n"
                    "mov.u64 %%at, 0x%" PRIx64 ";\nred.global.gpu.add.u64 [%%at], 1;\n"
                    "again: ld.relaxed.gpu.global.u64 %%have, [%%at];\n"
                    "setp.lt.u64 %%wait, %%have, 5;\n@%%wait bra again;\n%s",
                    world_fragment(&world, "sm_block_begins"), (uint64_t)(uintptr_t)&arrived,
                    world_fragment(&world, "sm_block_ends"));
        first_ns = world.now_ns + world.tick_ns;
        run(text, (struct world_launch){.blocks = 5, .threads = 1, .sms = 1, .together = true});
        CHECK_EQ(sm(0)->blocks, 5);
        CHECK_EQ(sm(0)->resident, 0);
        /* five readings, then five: each block's time is five ticks */
        CHECK_EQ(sm(0)->block_ns, 5 * 500);
        CHECK_EQ(sm(0)->busy_ns, 900);
        CHECK_EQ(sm(0)->last_ns, first_ns + 900);
        world_done(&world);
}

/* While blocks are there, what is known of their times counts. */
static void test_sm_balance_unfinished(void)
{
        open_world("sm_balance");
        run(world_fragment(&world, "sm_block_begins"), (struct world_launch){.blocks = 3});
        CHECK_EQ(sm(0)->resident, 3);
        CHECK_EQ(sm_balance_busy_ns(sm(0)), 200);
        CHECK_EQ(sm_balance_block_ns(sm(0)), 300);
        world_done(&world);
}

/* ---- block_time ---- */

static const struct block_time *find_kernel(uint32_t kernel_id)
{
        const struct block_time *kernels = world_map(&world, "kernels"), *found = NULL;

        for (size_t i = 0; i < BLOCK_TIME_KERNELS; i++) {
                if (kernels[i].owner.kernel_id != kernel_id)
                        continue;
                CHECK(!found);
                found = &kernels[i];
        }
        return found;
}

static void run_blocks(uint32_t kernel_id, unsigned blocks, uint64_t time_ns)
{
        _cleanup_free_ char *text = body("%s%s", world_fragment(&world, "block_begins"),
                                         world_fragment(&world, "block_ends"));

        world.tick_ns = time_ns;
        run(text, (struct world_launch){
                          .blocks = blocks, .threads = 33, .sms = SMS, .kernel_id = kernel_id});
}

static void test_block_time(void)
{
        open_world("block_time");
        run_blocks(7, 10, 100); /* bits: 7 */
        run_blocks(7, 3, 128);  /* 8 */
        run_blocks(9, 1, UINT64_C(1) << 60);
        CHECK_EQ(find_kernel(7)->buckets[7], 10);
        CHECK_EQ(find_kernel(7)->buckets[8], 3);
        CHECK_EQ(find_kernel(7)->sum_ns, 10 * 100 + 3 * 128);
        CHECK_EQ(find_kernel(9)->buckets[BLOCK_TIME_BUCKETS - 1], 1);
        CHECK_EQ(find_kernel(9)->buckets[7], 0);
        world_done(&world);
}

/* Kernels that want the same place get the next ones; beyond those they are counted as lost. */
static void test_block_time_places(void)
{
        const uint64_t *lost;

        open_world("block_time");
        for (uint32_t n = 0; n <= KERNEL_TABLE_TRIES; n++)
                run_blocks(5 + n * BLOCK_TIME_KERNELS, 2, 100);
        for (uint32_t n = 0; n < KERNEL_TABLE_TRIES; n++)
                CHECK_EQ(find_kernel(5 + n * BLOCK_TIME_KERNELS)->buckets[7], 2);
        CHECK(!find_kernel(5 + KERNEL_TABLE_TRIES * BLOCK_TIME_KERNELS));
        lost = world_map(&world, ".bss");
        CHECK_EQ(*lost, 2);
        world_done(&world);
}

/* A block that began before the program came has no time; nor is an earlier one's taken for it. */
static void test_block_time_without_beginning(void)
{
        open_world("block_time");
        run_blocks(3, 1, 100);
        run(world_fragment(&world, "block_ends"), (struct world_launch){.kernel_id = 3});
        CHECK_EQ(find_kernel(3)->buckets[7], 1);
        CHECK_EQ(find_kernel(3)->sum_ns, 100);
        world_done(&world);
}

/* ---- warp_lanes ---- */

static uint64_t lanes(enum warp_lanes_where where, unsigned n)
{
        const struct warp_lanes *l = world_map(&world, "lanes");
        uint64_t sum = 0;

        for (unsigned s = 0; s < SMS; s++)
                sum += l[s].warps[where][n];
        return sum;
}

static uint64_t all_lanes(enum warp_lanes_where where)
{
        uint64_t sum = 0;

        for (unsigned n = 0; n < WARP_LANES; n++)
                sum += lanes(where, n);
        return sum;
}

/* 6 blocks of 72 threads: two full warps and one of 8; of a full warp 5 lanes leave early. */
static void test_warp_lanes(void)
{
        _cleanup_free_ char *text = NULL;

        open_world("warp_lanes");
        text = body("%s\n.reg .u32 %%lane;\n.reg .pred %%late;\n"
                    "mov.u32 %%lane, %%laneid;\nsetp.lt.u32 %%late, %%lane, 27;\n"
                    "@%%late bra stay;\n%s\nret;\nstay:\n%s",
                    world_fragment(&world, "warp_begins"), world_fragment(&world, "lanes_leave"),
                    world_fragment(&world, "lanes_leave"));
        run(text, (struct world_launch){.blocks = 6, .threads = 72, .sms = SMS});
        CHECK_EQ(lanes(WARP_LANES_ENTRY, 32), 12);
        CHECK_EQ(lanes(WARP_LANES_ENTRY, 8), 6);
        CHECK_EQ(all_lanes(WARP_LANES_ENTRY), 18);
        CHECK_EQ(lanes(WARP_LANES_EXIT, 5), 12);
        CHECK_EQ(lanes(WARP_LANES_EXIT, 27), 12);
        CHECK_EQ(lanes(WARP_LANES_EXIT, 8), 6);
        CHECK_EQ(all_lanes(WARP_LANES_EXIT), 30);
        world_done(&world);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        directory = argv[1];
        TEST(test_sm_balance);
        TEST(test_sm_balance_together);
        TEST(test_sm_balance_unfinished);
        TEST(test_block_time);
        TEST(test_block_time_places);
        TEST(test_block_time_without_beginning);
        TEST(test_warp_lanes);
        return 0;
}
