/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The programs in probes/device, run by the interpreter in kernels of which it is
 * known what they must find. device_shipped_test DIRECTORY
 */
#include <stdarg.h>

#include "bpf/device_world.h"
#include "device/block_time_abi.h"
#include "device/device_abi.h"
#include "device/mem_bytes_abi.h"
#include "device/mem_heat_abi.h"
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
                if (kernels[i].owner.id != kernel_id)
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
        for (uint32_t n = 0; n <= ID_TABLE_TRIES; n++)
                run_blocks(5 + n * BLOCK_TIME_KERNELS, 2, 100);
        for (uint32_t n = 0; n < ID_TABLE_TRIES; n++)
                CHECK_EQ(find_kernel(5 + n * BLOCK_TIME_KERNELS)->buckets[7], 2);
        CHECK(!find_kernel(5 + ID_TABLE_TRIES * BLOCK_TIME_KERNELS));
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

/* ---- memory ---- */

#define AREA_BYTES (8u << MEM_HEAT_PAGE_SHIFT)

static uint8_t *area; /* begins with a page */

/* A fragment for an access at %at. */
static char *at_access(const char *program, unsigned size, unsigned kind, unsigned space)
{
        const char *fragment = world_fragment(&world, program);
        char *text = NULL;
        size_t bytes;
        FILE *out = open_memstream(&text, &bytes);

        CHECK(out);
        while (*fragment) {
                if (!strncmp(fragment, "@A@", 3))
                        fputs("%at", out);
                else if (!strncmp(fragment, "@S@", 3))
                        fprintf(out, "%u", DEVICE_ACCESS(size, kind, space));
                else
                        fputc(*fragment, out);
                fragment += *fragment == '@' && (fragment[1] == 'A' || fragment[1] == 'S') &&
                                            fragment[2] == '@'
                                    ? 3
                                    : 1;
        }
        CHECK(fclose(out) == 0);
        return text;
}

/* Every thread reads or writes a word, `stride` bytes from its neighbour's in the grid. */
static void run_strided(const char *program, uint32_t kernel_id, unsigned blocks, uint64_t stride,
                        unsigned kind, unsigned space)
{
        _cleanup_free_ char *fragment = at_access(program, 4, kind, space);
        _cleanup_free_ char *text = body(
                ".reg .b64 %%at;\n.reg .b32 %%n, %%b;\n"
                "mov.u32 %%n, %%ntid.x;\nmov.u32 %%b, %%ctaid.x;\n"
                "mul.lo.u32 %%b, %%b, %%n;\nmov.u32 %%n, %%tid.x;\nadd.u32 %%n, %%n, %%b;\n"
                "mov.u64 %%at, 0x%" PRIx64 ";\nmad.wide.u32 %%at, %%n, %" PRIu64
                ", %%at;\n%s\n%s;\n",
                (uint64_t)(uintptr_t)area, stride, fragment,
                kind == GPUOBS_ACCESS_LOAD ? "ld.global.u32 %n, [%at]" : "st.global.u32 [%at], %n");

        run(text, (struct world_launch){
                          .blocks = blocks, .threads = 80, .sms = SMS, .kernel_id = kernel_id});
}

static struct mem_bytes bytes_of(uint32_t kernel_id)
{
        const struct mem_bytes *kernels = world_map(&world, "kernels");
        struct mem_bytes sum = {};

        for (size_t i = 0; i < (size_t)DEVICE_SMS_MAX * MEM_BYTES_KERNELS; i++) {
                if (kernels[i].owner.id != kernel_id)
                        continue;
                sum.loaded += kernels[i].loaded;
                sum.stored += kernels[i].stored;
                sum.atomic += kernels[i].atomic;
                sum.generic += kernels[i].generic;
                sum.sectors += kernels[i].sectors;
        }
        return sum;
}

/* Blocks of 80 threads: warps of 32, 32 and 16 lanes. */
static void test_mem_bytes(void)
{
        open_world("mem_bytes");
        run_strided("global_access", 3, 6, 4, GPUOBS_ACCESS_LOAD, GPUOBS_SPACE_GLOBAL);
        CHECK_EQ(bytes_of(3).loaded, 6 * 80 * 4);
        CHECK_EQ(bytes_of(3).sectors, 6 * (4 + 4 + 2));
        run_strided("global_access", 3, 6, 128, GPUOBS_ACCESS_STORE, GPUOBS_SPACE_GENERIC);
        CHECK_EQ(bytes_of(3).loaded, 6 * 80 * 4);
        CHECK_EQ(bytes_of(3).stored, 6 * 80 * 4);
        CHECK_EQ(bytes_of(3).generic, 6 * 80 * 4);
        CHECK_EQ(bytes_of(3).sectors, 6 * (4 + 4 + 2) + 6 * 80);
        run_strided("global_access", 4, 1, 0, GPUOBS_ACCESS_ATOMIC, GPUOBS_SPACE_GLOBAL);
        CHECK_EQ(bytes_of(4).atomic, 80 * 4);
        CHECK_EQ(bytes_of(4).sectors, 3);
        run_strided("global_access", 5, 1, 4, GPUOBS_ACCESS_LOAD, GPUOBS_SPACE_SHARED);
        CHECK_EQ(bytes_of(5).loaded, 0);
        CHECK_EQ(*(const uint64_t *)world_map(&world, ".bss"), 0);
        world_done(&world);
}

static struct mem_heat heat_of(unsigned page)
{
        const struct mem_heat *pages = world_map(&world, "pages");
        uint32_t id = (uint32_t)((uintptr_t)area >> MEM_HEAT_PAGE_SHIFT) + page;
        struct mem_heat sum = {};

        for (size_t i = 0; i < (size_t)DEVICE_SMS_MAX * MEM_HEAT_PAGES; i++) {
                if (pages[i].owner.id != id)
                        continue;
                sum.loads += pages[i].loads;
                sum.writes += pages[i].writes;
                sum.sectors += pages[i].sectors;
        }
        return sum;
}

static void test_mem_heat(void)
{
        open_world("mem_heat");
        /* 480 threads, 16 KiB from one to the next, are spread over four pages */
        run_strided("touch", 1, 6, 16384, GPUOBS_ACCESS_LOAD, GPUOBS_SPACE_GLOBAL);
        CHECK_EQ(heat_of(0).loads + heat_of(1).loads + heat_of(2).loads + heat_of(3).loads, 18);
        CHECK_EQ(heat_of(0).sectors + heat_of(1).sectors + heat_of(2).sectors + heat_of(3).sectors,
                 480);
        CHECK(heat_of(3).loads > 0);
        CHECK_EQ(heat_of(4).loads, 0);
        run_strided("touch", 1, 2, 4, GPUOBS_ACCESS_STORE, GPUOBS_SPACE_GLOBAL);
        CHECK_EQ(heat_of(0).writes, 6);
        CHECK_EQ(heat_of(1).writes, 0);
        CHECK_EQ(heat_of(0).sectors + heat_of(1).sectors + heat_of(2).sectors + heat_of(3).sectors,
                 480 + 2 * 10);
        CHECK_EQ(*(const uint64_t *)world_map(&world, ".bss"), 0);
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
        area = aligned_alloc(1u << MEM_HEAT_PAGE_SHIFT, AREA_BYTES);
        CHECK(area);
        TEST(test_mem_bytes);
        TEST(test_mem_heat);
        free(area);
        return 0;
}
