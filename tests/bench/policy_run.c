/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What running a policy costs: a run that does nothing, runs with items and with
 * actions, and the shipped policies on what they are for.
 *      policy_run DIRECTORY_OF_OBJECTS DIRECTORY_OF_TEST_OBJECTS
 */
#include "bpf/policy_fixture.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

#define BASE 0x700000000000ull
#define RUNS 20000

static bool submit(void *data, const struct policy_order *order)
{
        const struct policy_result result = {.id = order->id};

        policy_engine_done(*(struct policy_engine **)data, &result);
        return true;
}

static void flush(void *data)
{
}

static const struct policy_actuator_ops ops = {.submit = submit, .flush = flush};

static struct policy_engine *engine;

static void open_world(void)
{
        const struct policy_process p = {
                .key = 1, .start_ticks = 1, .pid = 100, .comm = "bench", .cgroup = "/bench"};

        engine = policy_engine_new(&ops, &engine);
        CHECK(engine);
        CHECK_EQ(policy_engine_process_start(engine, &p, 1), 0);
        policy_engine_alloc(engine, 1, BASE, 64ull << 30, 1);
        policy_engine_memory(engine, 0, 80ull << 30, 40ull << 30);
}

static void report(const char *what, uint64_t began_ns, size_t runs, size_t items)
{
        double ns = (double)(now_ns() - began_ns) / (double)runs;

        printf("%-44s %9.0f ns a run %8.1f ns an item\n", what, ns,
               items ? ns / (double)items : 0.0);
}

/* The scripted policy acts on ticks; it hears of faults in batches of n. */
static void time_faults(const char *what, size_t n)
{
        struct policy_fault faults[POLICY_ITEMS_MAX];
        uint64_t began_ns;

        for (size_t i = 0; i < n; i++)
                faults[i] = (struct policy_fault){.address = BASE + i * 65536, .count = 1};
        began_ns = now_ns();
        for (size_t i = 0; i < RUNS; i++)
                policy_engine_faults(engine, 1, faults, n, i);
        report(what, began_ns, RUNS, n);
}

static void time_actions(const char *what, const char *setting, size_t n)
{
        uint64_t began_ns;

        fixture_load(engine, setting, 0);
        began_ns = now_ns();
        for (size_t i = 0; i < RUNS; i++)
                policy_engine_tick(engine, i * NSEC_PER_MSEC);
        report(what, began_ns, RUNS, n);
        CHECK_EQ(policy_engine_unload(engine, "policy_scripted"), 0);
}

static void time_migrations(const char *policy)
{
        struct policy_moved moved[64];
        uint64_t began_ns;

        fixture_load(engine, policy, 0);
        began_ns = now_ns();
        for (size_t i = 0; i < RUNS; i++) {
                for (size_t k = 0; k < ARRAY_SIZE(moved); k++)
                        moved[k] = (struct policy_moved){
                                .address = BASE + (i * 64 + k) % 16384 * POLICY_BLOCK_BYTES,
                                .bytes = POLICY_BLOCK_BYTES,
                                .to = (i / 256) % 2 ? POLICY_HOST : 0};
                policy_engine_moved(engine, 1, moved, ARRAY_SIZE(moved), i);
        }
        report(policy, began_ns, RUNS, ARRAY_SIZE(moved));
        CHECK_EQ(policy_engine_unload(engine, policy), 0);
}

int main(int argc, char **argv)
{
        static const char *const shipped[] = {"evict_lru", "evict_lfu",     "evict_2q",
                                              "kv_cache",  "prefetch_args", "prefetch_tree"};

        CHECK(argc == 3);
        fixture_need_bpf();
        open_world();
        fixture_policies = argv[2];
        fixture_load(engine, "policy_scripted on=7", 0);
        time_faults("1 fault, looked at", 1);
        time_faults("512 faults, one looked at", 512);
        CHECK_EQ(policy_engine_unload(engine, "policy_scripted"), 0);
        time_actions("an action, checked, ordered, done", "policy_scripted kind=7 process=1", 1);
        time_actions("64 actions", "policy_scripted kind=7 process=1 repeat=64", 64);
        fixture_policies = argv[1];
        for (size_t i = 0; i < ARRAY_SIZE(shipped); i++)
                time_migrations(shipped[i]);
        policy_engine_free(engine);
        return 0;
}
