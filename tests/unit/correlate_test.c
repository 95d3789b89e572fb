/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The correlator against processes whose truth is known (correlate_sim.h), a
 * group of them at a time:
 *   correlate_test clean | threads | contexts | graphs | losses | noise
 */
#include "unit/correlate_sim.h"
#include "unit/test.h"

/* What all start from: one thread, one stream, ten kernels, the GPU keeping up. */
#define BASE                                                                                       \
        .seed = 1, .launches = 20000, .threads = 1, .streams = 1, .contexts = 1, .kernels = 10,    \
        .gap_ns = 3000, .kernel_ns = 2000, .captures_seen = true, .sync_end = true

#pragma GCC diagnostic ignored "-Woverride-init"

static const struct sim_options clean[] = {
        {BASE, .name = "plain"},
        {BASE, .name = "operations and failures", .memsets = 100, .copies = 50, .syncs = 5,
         .failures = 10, .own = 10},
        {BASE, .name = "unprobed kernels", .memsets = 50, .syncs = 5, .unprobed = 100,
         .exit_unprobed = 100},
        {BASE, .name = "one kernel", .kernels = 1, .memsets = 100, .copies = 50, .syncs = 2},
        {BASE, .name = "GPU far behind", .kernel_ns = 8000, .memsets = 50},
        {BASE, .name = "device records first", .device_first = true, .memsets = 50},
        {BASE, .name = "four streams", .streams = 4, .shared_stream = true, .kernel_ns = 20000,
         .memsets = 50, .syncs = 2},
        {BASE, .name = "clock late", .clock_late = true},
        {BASE, .name = "kernels late", .kernels_late = true},
};

static const struct sim_options threads[] = {
        {BASE, .name = "own streams", .threads = 4, .streams = 4, .gap_ns = 1000},
        {BASE, .name = "shared streams", .threads = 4, .streams = 4, .shared_stream = true,
         .gap_ns = 1000},
        {BASE, .name = "one kernel", .threads = 4, .streams = 4, .kernels = 1,
         .shared_stream = true, .gap_ns = 1000},
        {BASE, .name = "eight threads", .threads = 8, .streams = 4, .shared_stream = true,
         .gap_ns = 20000, .kernel_ns = 1000},
        {BASE, .name = "operations, slow calls", .threads = 4, .streams = 4, .shared_stream = true,
         .gap_ns = 3000, .memsets = 20, .syncs = 2, .slow = 2, .failures = 5},
};

static const struct sim_options contexts[] = {
        {BASE, .name = "two contexts", .threads = 2, .contexts = 2, .streams = 2, .memsets = 20},
        {BASE, .name = "unseen beginning, nameless", .unborn = true, .nameless = 300, .syncs = 5},
};

static const struct sim_options graphs[] = {
        {BASE, .name = "captured", .graphs = 50, .syncs = 5},
};

static const struct sim_options losses[] = {
        {BASE, .name = "device records", .device_gaps = 5, .gap_records = 20, .syncs = 5},
        {BASE, .name = "many device records", .device_gaps = 1, .gap_records = 2000, .syncs = 5},
        {BASE, .name = "launch events", .cpu_gaps = 5, .gap_launches = 20, .syncs = 5},
        {BASE, .name = "both, operations", .cpu_gaps = 3, .gap_launches = 20, .device_gaps = 3,
         .gap_records = 20, .syncs = 5, .memsets = 50},
        {BASE, .name = "both, four streams", .streams = 4, .shared_stream = true, .cpu_gaps = 3,
         .gap_launches = 20, .device_gaps = 3, .gap_records = 20, .syncs = 5, .memsets = 50},
};

static const struct sim_options noise[] = {
        {BASE, .name = "duplicates", .duplicates = 50, .syncs = 5, .memsets = 20},
        {BASE, .name = "garbage", .garbage = 50, .syncs = 5, .memsets = 20},
        {BASE, .name = "both, threads", .threads = 4, .streams = 4, .gap_ns = 1000,
         .duplicates = 50, .garbage = 50},
};

static void print(const struct sim_options *o, const struct sim_result *r)
{
        printf("%s, seed %" PRIu64 ": expected %" PRIu64 " matched %" PRIu64 "; exact %" PRIu64
               " (%" PRIu64 " wrong) ordered %" PRIu64 " (%" PRIu64 ") inferred %" PRIu64
               " (%" PRIu64 ") none %" PRIu64 "; ends %" PRIu64 "/%" PRIu64 "; nodes %" PRIu64
               "/%" PRIu64 " (%" PRIu64 "); longest run without a match %" PRIu64 "\n",
               o->name, o->seed, r->expected, r->matched, r->exact, r->wrong_exact, r->ordered,
               r->wrong_ordered, r->inferred, r->wrong_inferred, r->none, r->ends, r->ends_expected,
               r->nodes, r->nodes_expected, r->wrong_nodes, r->longest_unmatched);
        fflush(stdout);
}

/* Whatever happens to the events: what is produced is emitted, and certain things are right. */
static struct sim_result run(const struct sim_options *o, uint64_t seed)
{
        struct sim_options seeded = *o;
        struct sim_result r;

        seeded.seed = seed;
        r = sim_run(&seeded);
        print(&seeded, &r);
        CHECK_EQ(r.ledger_produced, r.emitted + r.nodes);
        CHECK(r.emitted == r.produced || r.emitted == r.produced - r.captured);
        CHECK_EQ(r.wrong_exact, 0);
        CHECK_EQ(r.wrong_time, 0);
        CHECK_EQ(r.wrong_end, 0);
        return r;
}

static void test_clean(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.matched, r.expected);
        CHECK_EQ(r.exact, r.expected);
        CHECK_EQ(r.ordered + r.inferred, 0);
        CHECK_EQ(r.ends, r.ends_expected);
        CHECK_EQ(r.unmatched, 0);
}

static void test_threads(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        /* Every record has a launch, if not always its own among those that overlap. */
        CHECK_EQ(r.exact + r.ordered + r.inferred, r.expected);
        CHECK_EQ(r.unmatched, 0);
}

static void test_contexts(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.wrong_ordered, 0);
        CHECK(r.matched * 100 >= r.expected * 90);
}

static void test_graphs(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.matched, r.expected);
        CHECK_EQ(r.wrong_nodes, 0);
        CHECK(r.nodes * 100 >= r.nodes_expected * 95);
}

static void test_losses(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.wrong_ordered, 0);
        CHECK(r.matched * 100 >= r.expected * 95);
        CHECK(r.longest_unmatched <= 1000);
}

static void test_noise(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.exact + r.ordered + r.inferred, r.expected);
        CHECK(r.unmatched > 0);
}

static const struct group {
        const char *name;
        void (*test)(const struct sim_options *o, uint64_t seed);
        const struct sim_options *options;
        size_t count;
} groups[] = {
#define GROUP(name)                                                                                \
        {                                                                                          \
#name, test_##name, name, sizeof(name) / sizeof(name[0])                           \
        }
        GROUP(clean), GROUP(threads), GROUP(contexts), GROUP(graphs), GROUP(losses), GROUP(noise),
#undef GROUP
};

#define SEEDS 3

int main(int argc, char **argv)
{
        size_t ran = 0;

        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
                const struct group *g = &groups[i];

                if (argc > 1 && strcmp(argv[1], g->name) != 0)
                        continue;
                for (size_t j = 0; j < g->count; j++)
                        for (uint64_t seed = 1; seed <= SEEDS; seed++, ran++)
                                g->test(&g->options[j], seed);
                printf("ok %s\n", g->name);
        }
        CHECK(ran > 0);
        return 0;
}
