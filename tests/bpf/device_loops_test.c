/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Programs with loops, a hash, a division and votes at exits, and with a stack that is indexed,
 * as their PTX is and with numbers kept out of uniform registers: both have to mean the same.
 */
#include "bpf/device_loops.h"
#include "bpf/device_world.h"
#include "bpf/hash_memory.h"
#include "unit/test.h"

#define BLOCKS  9
#define THREADS 80 /* warps of 32, 32 and 16 lanes */

static struct world world;
static bool loosen;

static const struct loop_counts *counts_of(unsigned program)
{
        return (const struct loop_counts *)world_map(&world, "counts") + program;
}

static char *without_token(const char *text)
{
        char *copy = strdup(text);

        CHECK(copy);
        for (char *at = copy; (at = strstr(at, "@O@"));)
                memmove(at, at + 3, strlen(at + 3) + 1);
        return copy;
}

static void run(const char *name)
{
        const char *fragment = world_fragment(&world, name);
        char *text = loosen ? without_token(fragment) : strdup(fragment);

        CHECK(text && strstr(fragment, "_end:"));
        world_clear(&world);
        world_run(&world, text, &(struct world_launch){.blocks = BLOCKS, .threads = THREADS});
        free(text);
}

static void test_loops(void)
{
        uint64_t blocks = 0, threads = 0;

        for (unsigned b = 0; b < BLOCKS; b++)
                blocks += loop_go_round(b);
        for (unsigned t = 0; t < THREADS; t++)
                threads += loop_go_round(t);
        run("exit_loop");
        CHECK_EQ(counts_of(LOOP_WARP)->runs, 3 * BLOCKS);
        CHECK_EQ(counts_of(LOOP_WARP)->sum, THREADS * blocks);
        run("exit_loop_thread");
        CHECK_EQ(counts_of(LOOP_THREAD)->runs, BLOCKS * THREADS);
        CHECK_EQ(counts_of(LOOP_THREAD)->sum, BLOCKS * threads);
}

static void test_division(void)
{
        uint64_t sum = 0;

        for (unsigned b = 0; b < BLOCKS; b++)
                sum += LOOP_NUMBER / (b + LOOP_DIVISOR);
        run("exit_divide");
        CHECK_EQ(counts_of(LOOP_DIVIDE)->runs, 3 * BLOCKS);
        CHECK_EQ(counts_of(LOOP_DIVIDE)->sum, THREADS * sum);
}

static void test_hash(void)
{
        run("exit_hash");
        for (unsigned t = 0; t < THREADS + 1; t++)
                CHECK_EQ(hash_get(world_map(&world, "table"), LOOP_KEYS, t),
                         t < THREADS ? BLOCKS : 0);
}

static void test_votes(void)
{
        uint64_t sum = 0;

        for (unsigned t = 0; t < THREADS; t++)
                sum += t & 1 ? loop_go_round(t) & 0xffff : t % 32;
        run("exit_vote");
        CHECK_EQ(counts_of(LOOP_VOTE)->runs, 3 * BLOCKS);
        CHECK_EQ(counts_of(LOOP_VOTE)->sum, BLOCKS * (sum + ((uint64_t)THREADS / 2 << 40)));
}

/* The array is in registers, so that machine code can have it. */
static void test_stack(const char *name, unsigned program)
{
        uint64_t sum = 0;

        CHECK(!strstr(world_fragment(&world, name), ".local"));
        for (unsigned b = 0; b < BLOCKS; b++)
                for (unsigned t = 0; t < THREADS; t++)
                        sum += loop_weigh_thread(b, t);
        run(name);
        CHECK_EQ(counts_of(program)->runs, BLOCKS * THREADS);
        CHECK_EQ(counts_of(program)->sum, sum);
}

static void test_stacks(void)
{
        test_stack("entry_stack", LOOP_ENTRY_STACK);
        test_stack("exit_stack", LOOP_EXIT_STACK);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        world_init(&world, argv[1]);
        for (int turn = 0; turn < 2; turn++) {
                loosen = turn;
                TEST(test_loops);
                TEST(test_division);
                TEST(test_hash);
                TEST(test_votes);
                TEST(test_stacks);
        }
        world_done(&world);
        return 0;
}
