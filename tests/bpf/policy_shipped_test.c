/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Shipped policies in the engine, in what the simulator does not come to: actions that are
 * refused, several GPUs.
 *      policy_shipped_test DIRECTORY_OF_OBJECTS
 */
#include <errno.h>

#include "bpf/policy_fixture.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

#define BLOCK  ((uint64_t)POLICY_BLOCK_BYTES)
#define BASE   0x700000000000ull
#define BLOCKS 16

/* ---- an actuator that takes down what it is asked for ---- */

#define ORDERS_KEPT 1024

struct world {
        struct policy_engine *engine;
        struct policy_order orders[ORDERS_KEPT];
        size_t count;
        int error; /* of results */
        uint64_t now_ns;
};

static struct world world;

static bool submit(void *data, const struct policy_order *order)
{
        struct policy_result result = {.id = order->id, .error = world.error};

        CHECK(world.count < ORDERS_KEPT);
        world.orders[world.count++] = *order;
        policy_engine_done(world.engine, &result);
        return true;
}

static void flush(void *data)
{
}

static const struct policy_actuator_ops ops = {.submit = submit, .flush = flush};

/* ---- a world ---- */

/* Processes 1, "first", and 2, "second", with 16 blocks each, on a GPU that is full. */
static void begin(void)
{
        world = (struct world){.engine = policy_engine_new(&ops, NULL), .now_ns = NSEC_PER_SEC};
        CHECK(world.engine);
        for (uint64_t key = 1; key <= 2; key++) {
                struct policy_process p = {.key = key,
                                           .start_ticks = key,
                                           .pid = (uint32_t)(100 + key),
                                           .comm = key == 1 ? "first" : "second",
                                           .cgroup = "/"};

                CHECK_EQ(policy_engine_process_start(world.engine, &p, world.now_ns), 0);
                policy_engine_process_gpu(world.engine, key, 0, world.now_ns);
                CHECK_EQ(policy_engine_alloc(world.engine, key, key * BASE, BLOCKS * BLOCK,
                                             world.now_ns),
                         0);
        }
        policy_engine_memory(world.engine, 0, 2 * BLOCKS * BLOCK, 0);
}

static void end(void)
{
        world.engine = policy_engine_free(world.engine);
}

/* "NAME variable=value ..." with so many actions a second. */
static void load(const char *text, uint64_t actions)
{
        struct policy_limits limits = {.actions = actions};

        fixture_load_limited(world.engine, text, 0, &limits);
}

static void moved_between(uint64_t process, uint64_t block, uint32_t from, uint32_t to,
                          enum policy_cause cause)
{
        struct policy_moved m = {.address = process * BASE + block * BLOCK,
                                 .bytes = BLOCK,
                                 .at_ns = world.now_ns,
                                 .to = to,
                                 .cause = (uint16_t)cause,
                                 .from = (uint16_t)from};

        policy_engine_moved(world.engine, process, &m, 1, world.now_ns);
}

/* Between the host and the first GPU. */
static void moved(uint64_t process, uint64_t block, uint32_t to, enum policy_cause cause)
{
        moved_between(process, block, to == POLICY_HOST ? 0 : POLICY_FROM_HOST, to, cause);
}

static void next_tick(void)
{
        world.now_ns += 100 * NSEC_PER_MSEC;
        policy_engine_tick(world.engine, world.now_ns);
}

/* The next second, in which policies have their budget again. */
static void next_second(void)
{
        for (int i = 0; i < 10; i++)
                next_tick();
}

static uint64_t refused(const char *name, enum policy_refusal reason)
{
        return fixture_stats(world.engine, name).refused[reason];
}

/* ---- evicting ---- */

/* Blocks of process 1 that were ordered to the host since, and how often at most. */
static uint32_t evicted(size_t since, uint32_t *ret_most)
{
        uint32_t times[BLOCKS] = {0}, n = 0;

        *ret_most = 0;
        for (size_t i = since; i < world.count; i++) {
                const struct policy_action *a = &world.orders[i].action;
                uint64_t block = (a->address - BASE) / BLOCK;

                CHECK_EQ(a->kind, POLICY_ACTION_migrate);
                CHECK_EQ(a->to, POLICY_HOST);
                CHECK(block < BLOCKS);
                n += times[block]++ == 0;
                *ret_most = times[block] > *ret_most ? times[block] : *ret_most;
        }
        return n;
}

/* Each eviction is refused until there is a budget for it: all blocks go all the same, each once.
 */
static void check_eviction(const char *text)
{
        char name[64];
        uint32_t most;

        CHECK(sscanf(text, "%63s", name) == 1);
        begin();
        load(text, 3);
        for (uint64_t i = 0; i < BLOCKS; i++)
                moved(1, i, 0, POLICY_BY_FAULT);
        for (int i = 0; i < 9; i++) {
                size_t before = world.count;

                policy_engine_pressure(world.engine, 0, world.now_ns);
                for (size_t k = before; k < world.count; k++)
                        moved(1, (world.orders[k].action.address - BASE) / BLOCK, POLICY_HOST,
                              POLICY_BY_REQUEST);
                next_second();
        }
        CHECK(refused(name, POLICY_REFUSED_over_budget) > 0);
        CHECK_EQ(evicted(0, &most), BLOCKS);
        CHECK_EQ(most, 1);
        CHECK_EQ(fixture_state(world.engine, name, NULL), POLICY_ACTIVE);
        end();
}

static const char *const evicting[] = {"evict_lru reserve_blocks=64",
                                       "evict_lfu reserve_blocks=64",
                                       "evict_2q reserve_blocks=64",
                                       "evict_mru reserve_blocks=64 guard=2",
                                       "evict_quota reserve_blocks=64 quota_mib=64",
                                       "evict_priority reserve_blocks=64",
                                       "kv_cache reserve_blocks=64 window=4",
                                       "pin_protect reserve_blocks=64"};

static void test_eviction_over_budget(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(evicting); i++)
                check_eviction(evicting[i]);
}

/* Half of the blocks on each of two GPUs that have room. */
static void fill_two_gpus(void)
{
        const uint64_t bytes = 2 * BLOCKS * BLOCK, enough = 1000 * BLOCK;

        policy_engine_process_gpu(world.engine, 1, 1, world.now_ns);
        policy_engine_memory(world.engine, 0, bytes, enough);
        policy_engine_memory(world.engine, 1, bytes, enough);
        for (uint64_t i = 0; i < BLOCKS; i++)
                moved_between(1, i, POLICY_FROM_HOST, i >= BLOCKS / 2, POLICY_BY_FAULT);
}

static void fill_up(uint32_t gpu)
{
        policy_engine_memory(world.engine, gpu, 2 * BLOCKS * BLOCK, 0);
        policy_engine_pressure(world.engine, gpu, world.now_ns);
}

/* What leaves one GPU makes no room on the other; what has gone over is the other's. */
static void check_two_gpus(const char *text)
{
        uint64_t gone = 0;
        uint32_t most;

        begin();
        load(text, 1000);
        fill_two_gpus();
        moved_between(1, 0, 0, 1, POLICY_BY_FAULT);
        policy_engine_pressure(world.engine, 0, world.now_ns);
        CHECK_EQ(world.count, 0);
        fill_up(1);
        (void)evicted(0, &most);
        CHECK_EQ(most, 1);
        for (size_t i = 0; i < world.count; i++)
                gone |= 1ull << (world.orders[i].action.address - BASE) / BLOCK;
        CHECK_EQ(gone, 0xff01);
        fill_up(0);
        CHECK_EQ(evicted(0, &most), BLOCKS);
        CHECK_EQ(most, 1);
        end();
}

static void test_two_gpus(void)
{
        for (size_t i = 0; i < ARRAY_SIZE(evicting); i++)
                check_two_gpus(evicting[i]);
}

/* What was refused is in its own GPU's order again. */
static void test_two_gpus_refused(void)
{
        uint32_t most;

        begin();
        load("evict_lru reserve_blocks=64", 3);
        fill_two_gpus();
        for (int i = 0; i < 4; i++) {
                fill_up(1);
                next_second();
        }
        CHECK_EQ(evicted(0, &most), BLOCKS / 2);
        for (size_t i = 0; i < world.count; i++)
                CHECK(world.orders[i].action.address >= BASE + BLOCKS / 2 * BLOCK);
        end();
}

/* The order stays what it was: who was to go first and was refused goes first. */
static void test_eviction_order(void)
{
        begin();
        load("evict_lru reserve_blocks=2 per_run=2", 1);
        for (uint64_t i = 0; i < 4; i++) {
                policy_engine_memory(world.engine, 0, 2 * BLOCKS * BLOCK, 64 * BLOCK);
                moved(1, i, 0, POLICY_BY_FAULT);
        }
        policy_engine_memory(world.engine, 0, 2 * BLOCKS * BLOCK, 0);
        for (uint64_t i = 0; i < 4; i++) {
                policy_engine_pressure(world.engine, 0, world.now_ns);
                CHECK_EQ(world.count, i + 1);
                CHECK_EQ(world.orders[i].action.address, BASE + i * BLOCK);
                moved(1, i, POLICY_HOST, POLICY_BY_REQUEST);
                next_second();
        }
        end();
}

/* What the driver would not move is tried again after all others; what went unseen is forgotten. */
static void test_eviction_fails(void)
{
        uint32_t most;

        begin();
        load("evict_lru reserve_blocks=1 per_run=1", 1000);
        for (uint64_t i = 0; i < 4; i++) {
                policy_engine_memory(world.engine, 0, 2 * BLOCKS * BLOCK, 64 * BLOCK);
                moved(1, i, 0, POLICY_BY_FAULT);
        }
        policy_engine_memory(world.engine, 0, 2 * BLOCKS * BLOCK, 0);
        world.error = -EIO;
        for (int i = 0; i < 6; i++) {
                policy_engine_pressure(world.engine, 0, world.now_ns);
                next_tick();
        }
        CHECK_EQ(evicted(0, &most), 4);
        CHECK_EQ(most, 2);
        CHECK_EQ(world.orders[4].action.address, BASE);

        world.error = 0;
        world.count = 0;
        for (int i = 0; i < 8; i++) {
                policy_engine_pressure(world.engine, 0, world.now_ns);
                next_second();
        }
        CHECK_EQ(evicted(0, &most), 4);
        CHECK_EQ(most, 1);
        end();
}

/* What the driver takes from a critical process is brought back as soon as that may be. */
static void test_pin_is_brought_back(void)
{
        uint64_t blocks = 0;

        begin();
        load("pin_protect critical[0]=first reserve_blocks=1", 1);
        policy_engine_memory(world.engine, 0, 2 * BLOCKS * BLOCK, BLOCKS * BLOCK);
        for (uint64_t i = 0; i < 3; i++)
                moved(1, i, 0, POLICY_BY_FAULT);
        for (uint64_t i = 0; i < 3; i++)
                moved(1, i, POLICY_HOST, POLICY_BY_EVICTION);
        CHECK_EQ(world.count, 1);
        next_second();
        next_second();
        CHECK_EQ(world.count, 3);
        for (size_t i = 0; i < 3; i++) {
                CHECK_EQ(world.orders[i].action.to, 0);
                blocks |= 1ull << (world.orders[i].action.address - BASE) / BLOCK;
        }
        CHECK_EQ(blocks, 7);
        end();
}

/* ---- bringing ---- */

static void fault(uint64_t block, uint32_t gpu)
{
        struct policy_fault f = {
                .address = BASE + block * BLOCK, .at_ns = world.now_ns, .gpu = gpu, .count = 1};

        policy_engine_faults(world.engine, 1, &f, 1, world.now_ns);
}

static void spend(uint64_t orders)
{
        CHECK_EQ(world.count, orders);
        world.count = 0;
}

/* The walk that was refused its blocks asks at its next step, not at the end of what it missed. */
static void test_stride_over_budget(void)
{
        begin();
        load("prefetch_stride depth=8", 1);
        policy_engine_memory(world.engine, 0, 64 * BLOCK, 64 * BLOCK);
        for (uint64_t i = 0; i < 4; i++)
                fault(2 * i, 0); /* 8 of every other block: one is brought */
        spend(1);
        next_second();
        fault(8, 0);
        spend(1);
        CHECK_EQ(world.orders[0].action.address, BASE + 10 * BLOCK);
        end();
}

/* What was not brought does not count as there. */
static void test_tree_over_budget(void)
{
        static const uint64_t come[] = {0, 1, 2, 3, 5}; /* 4 and 6 to 7 are wanted */

        begin();
        load("prefetch_tree least=4", 1);
        for (size_t i = 0; i < ARRAY_SIZE(come); i++)
                moved(1, come[i], 0, POLICY_BY_FAULT);
        CHECK(refused("prefetch_tree", POLICY_REFUSED_over_budget) > 0);
        world.count = 0;
        next_second();
        moved(1, 6, 0, POLICY_BY_FAULT);
        CHECK(world.count > 0);
        CHECK_EQ(world.orders[0].action.address, BASE + 7 * BLOCK);
        end();
}

/* What the host wrote is brought when there is a budget, though it writes no more. */
static void test_written_over_budget(void)
{
        begin();
        load("prefetch_written behind=1 chunk=1", 1);
        fault(15, 0); /* kernels read */
        for (uint64_t i = 0; i < 8; i++)
                fault(i, POLICY_HOST);
        spend(1);
        for (int i = 0; i < 8; i++)
                next_second();
        CHECK(world.count > 0);
        for (size_t i = 0; i < world.count; i++) {
                const struct policy_action *a = &world.orders[i].action;

                CHECK_EQ(a->address, BASE + (i + 1) * BLOCK);
        }
        CHECK_EQ(world.orders[world.count - 1].action.address +
                         world.orders[world.count - 1].action.bytes,
                 BASE + 8 * BLOCK);
        end();
}

/* What the CPU took is brought again before the next launch, as soon as that may be. */
static void test_args_over_budget(void)
{
        struct policy_range range = {.address = BASE, .bytes = 4 * BLOCK};

        begin();
        load("prefetch_args", 1);
        policy_engine_memory(world.engine, 0, 64 * BLOCK, 64 * BLOCK);
        policy_engine_launches(world.engine, 1, 0, 1, 0, &range, 1, world.now_ns);
        spend(1);
        for (uint64_t i = 0; i < 4; i++)
                moved(1, i, 0, POLICY_BY_REQUEST);
        for (uint64_t i = 0; i < 4; i++)
                moved(1, i, POLICY_HOST, POLICY_BY_FAULT);
        next_tick();
        CHECK_EQ(refused("prefetch_args", POLICY_REFUSED_over_budget), 1);
        spend(0);
        next_second();
        next_second();
        spend(1);
        CHECK_EQ(world.orders[0].action.address, BASE);
        CHECK_EQ(world.orders[0].action.bytes, 4 * BLOCK);
        end();
}

static void launch_on(uint32_t gpu, uint64_t blocks)
{
        struct policy_range range = {.address = BASE, .bytes = blocks * BLOCK};

        policy_engine_launches(world.engine, 1, gpu, 1, 0, &range, 1, world.now_ns);
}

/* The newest order is for so many of the first blocks, to that GPU; and it was the only one since.
 */
static void brought(size_t since, uint32_t gpu, uint64_t blocks)
{
        CHECK_EQ(world.count, since + 1);
        CHECK_EQ(world.orders[since].action.kind, POLICY_ACTION_migrate);
        CHECK_EQ(world.orders[since].action.to, gpu);
        CHECK_EQ(world.orders[since].action.address, BASE);
        CHECK_EQ(world.orders[since].action.bytes, blocks * BLOCK);
}

/* What one GPU has, or was asked to get, is not there for another. */
static void test_args_two_gpus(void)
{
        begin();
        load("prefetch_args", 1000);
        policy_engine_process_gpu(world.engine, 1, 1, world.now_ns);
        policy_engine_memory(world.engine, 0, 64 * BLOCK, 64 * BLOCK);
        policy_engine_memory(world.engine, 1, 64 * BLOCK, 64 * BLOCK);
        launch_on(0, 4);
        brought(0, 0, 4);
        launch_on(1, 4); /* although GPU 0 was just asked to get it */
        brought(1, 1, 4);
        for (uint64_t i = 0; i < 4; i++)
                moved_between(1, i, 0, 1, POLICY_BY_REQUEST);
        launch_on(1, 4);
        CHECK_EQ(world.count, 2);
        launch_on(0, 4);
        brought(2, 0, 4);
        for (uint64_t i = 0; i < 4; i++)
                moved_between(1, i, 1, 0, POLICY_BY_REQUEST);
        launch_on(0, 4);
        CHECK_EQ(world.count, 3);

        /* News of a copy that another GPU had does not make it forget that. */
        for (uint64_t i = 0; i < 4; i++)
                moved_between(1, i, 1, POLICY_HOST, POLICY_BY_EVICTION);
        launch_on(0, 4);
        CHECK_EQ(world.count, 3);

        /* What the CPU took of a kernel on GPU 0 goes back there, and not with GPU 1's tick. */
        for (uint64_t i = 0; i < 4; i++)
                moved_between(1, i, 0, POLICY_HOST, POLICY_BY_FAULT);
        policy_engine_memory(world.engine, 1, POLICY_UNKNOWN, POLICY_UNKNOWN);
        next_tick();
        brought(3, 0, 4);
        end();
}

/* The room of one GPU is not the other's. */
static void test_args_room_of_each(void)
{
        begin();
        load("prefetch_args", 1000);
        policy_engine_process_gpu(world.engine, 1, 1, world.now_ns);
        policy_engine_memory(world.engine, 0, 64 * BLOCK, 0);
        policy_engine_memory(world.engine, 1, 64 * BLOCK, 2 * BLOCK);
        launch_on(0, 4);
        CHECK_EQ(world.count, 0);
        launch_on(1, 4);
        brought(0, 1, 2);
        end();
}

/* ---- processes ---- */

static void launch(uint64_t process, uint64_t depth)
{
        policy_engine_launches(world.engine, process, 0, 1, depth, NULL, 0, world.now_ns);
}

/* Both are held back and let go in the end, one action a second or not. */
static void test_pace_over_budget(void)
{
        begin();
        load("pace_depth low=4 limit=2 rate=100", 1);
        launch(1, 100);
        launch(2, 100);
        for (int i = 0; i < 4; i++)
                next_second();
        spend(4);
        CHECK_EQ(fixture_settings(world.engine, "pace_depth"), 4);
        launch(1, 0);
        launch(2, 0);
        CHECK_EQ(fixture_settings(world.engine, "pace_depth"), 0);
        next_second();
        spend(4);
        end();
}

static void test_streams_over_budget(void)
{
        begin();
        load("stream_class critical[0]=first", 1);
        next_second();
        next_second();
        CHECK_EQ(fixture_settings(world.engine, "stream_class"), 2);
        CHECK_EQ(refused("stream_class", POLICY_REFUSED_over_budget) > 0, true);
        end();
}

/* Slices that were turned up and down for a deadline all go back when it has passed. */
static void test_deadline_over_budget(void)
{
        struct policy_share shares[2] = {
                {.process = 1, .period_ns = 50 * NSEC_PER_MSEC, .waiting = 1},
                {.process = 2, .period_ns = 50 * NSEC_PER_MSEC, .active_ns = 50 * NSEC_PER_MSEC}};

        begin();
        load("sched_deadline urgent[0]=first deadline_us[0]=1000", 2);
        policy_engine_shares(world.engine, POLICY_GPUS_MAX, shares, 2, world.now_ns);
        CHECK_EQ(fixture_settings(world.engine, "sched_deadline"), 2);
        shares[0].waiting = 0;
        policy_engine_shares(world.engine, POLICY_GPUS_MAX, shares, 2, world.now_ns);
        CHECK_EQ(fixture_settings(world.engine, "sched_deadline"), 0);
        spend(4);
        end();
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        fixture_policies = argv[1];
        fixture_need_bpf();
        TEST(test_eviction_over_budget);
        TEST(test_two_gpus);
        TEST(test_two_gpus_refused);
        TEST(test_eviction_order);
        TEST(test_eviction_fails);
        TEST(test_pin_is_brought_back);
        TEST(test_stride_over_budget);
        TEST(test_tree_over_budget);
        TEST(test_written_over_budget);
        TEST(test_args_over_budget);
        TEST(test_args_two_gpus);
        TEST(test_args_room_of_each);
        TEST(test_pace_over_budget);
        TEST(test_streams_over_budget);
        TEST(test_deadline_over_budget);
        return 0;
}
