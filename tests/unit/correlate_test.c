/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The correlator against processes whose truth is known (correlate_sim.h), a
 * group of them at a time:
 *   correlate_test [GROUP [NAME [SEED]]]
 */
#include "unit/correlate_sim.h"
#include "unit/test.h"

/* What all start from: one thread, one stream, ten kernels, the GPU keeping up. */
#define BASE                                                                                       \
        .seed = 1, .launches = 20000, .threads = 1, .streams = 1, .contexts = 1, .kernels = 10,    \
        .gap_ns = 3000, .kernel_ns = 2000, .sync_end = true

#pragma GCC diagnostic ignored "-Woverride-init"

/* One thread, nothing lost: everything is exact. */
static const struct sim_options clean[] = {
        {BASE, .name = "plain"},
        {BASE, .name = "operations and failures", .memsets = 100, .copies = 50, .syncs = 5,
         .failures = 10, .own = 10},
        {BASE, .name = "unprobed kernels", .memsets = 50, .syncs = 5, .unprobed = 100,
         .exit_unprobed = 100},
        {BASE, .name = "one kernel", .kernels = 1, .memsets = 100, .copies = 50, .syncs = 2},
        {BASE, .name = "GPU far behind", .kernel_ns = 8000, .memsets = 50},
        {BASE, .name = "device records first", .device_first = true, .memsets = 50},
        {BASE, .name = "launch events late", .cpu_late_ns = 12000000, .memsets = 50},
        {BASE, .name = "four streams", .streams = 4, .shared_stream = true, .kernel_ns = 20000,
         .memsets = 50, .syncs = 2},
        {BASE, .name = "sixty streams, one kernel", .streams = 60, .shared_stream = true,
         .kernels = 1, .kernel_ns = 200000, .memsets = 50, .syncs = 2},
        {BASE, .name = "streams come and go", .streams = 8, .shared_stream = true, .kernels = 2,
         .kernel_ns = 8000, .restreams = 20, .memsets = 20, .syncs = 2},
        {BASE, .name = "kernels overlap", .overlaps = 300, .memsets = 20},
        {BASE, .name = "ends not seen", .tails = 300, .streams = 4, .shared_stream = true,
         .syncs = 5},
        {BASE, .name = "clock late", .clock_late = true},
        {BASE, .name = "clock slewed", .slewed = true, .memsets = 50, .syncs = 5},
        {BASE, .name = "clock slewed, device records late", .slewed = true,
         .device_late_ns = 12000000},
        {BASE, .name = "clock slewed, seldom read", .slewed = true, .clock_ns = 250000000},
        {BASE, .name = "kernels late", .kernels_late = true},
        {BASE, .name = "records do not tell", .untagged = 1000, .memsets = 50, .syncs = 5},
        {BASE, .name = "a call kept from returning", .kernels = 1, .stuck_ns = 150000000},
        {BASE, .name = "a call kept from returning, records do not tell", .kernels = 1,
         .untagged = 1000, .stuck_ns = 150000000},
};

/* Threads with streams of their own, nothing lost: everything is exact. */
static const struct sim_options threads[] = {
        {BASE, .name = "own streams", .threads = 4, .streams = 4, .gap_ns = 1000},
        {BASE, .name = "own streams, one kernel", .threads = 4, .streams = 4, .kernels = 1,
         .gap_ns = 1000},
        {BASE, .name = "GPU far behind", .threads = 4, .streams = 4, .kernels = 2, .gap_ns = 1000,
         .kernel_ns = 8000, .memsets = 20, .syncs = 1},
        {BASE, .name = "per-thread streams", .threads = 8, .streams = 8, .kernels = 2,
         .per_thread = true, .gap_ns = 1000, .memsets = 20, .syncs = 1},
        {BASE, .name = "streams come and go", .threads = 4, .streams = 4, .kernels = 2,
         .restreams = 5, .memsets = 20, .syncs = 1},
        {BASE, .name = "kernels late", .threads = 4, .streams = 4, .kernels_late = true},
        {BASE, .name = "kernels late, one kernel", .threads = 4, .streams = 4, .kernels = 1,
         .kernels_late = true},
        {BASE, .name = "device records late", .launches = 40000, .threads = 4, .streams = 4,
         .gap_ns = 1000, .device_late_ns = 60000000, .memsets = 20},
};

/* Threads into the same streams: matched all, exact but for calls of a kernel that overlap. */
static const struct sim_options shared[] = {
        {BASE, .name = "four streams", .threads = 4, .streams = 4, .shared_stream = true,
         .gap_ns = 1000},
        {BASE, .name = "one stream", .threads = 4, .gap_ns = 1000},
        {BASE, .name = "one kernel", .threads = 4, .streams = 4, .kernels = 1,
         .shared_stream = true, .gap_ns = 1000},
        {BASE, .name = "eight threads", .threads = 8, .streams = 4, .shared_stream = true,
         .gap_ns = 20000, .kernel_ns = 1000},
        {BASE, .name = "operations, slow calls", .threads = 4, .streams = 4, .shared_stream = true,
         .gap_ns = 3000, .memsets = 20, .syncs = 2, .slow = 2, .failures = 5},
        {BASE, .name = "records do not tell", .threads = 4, .streams = 4, .gap_ns = 1000,
         .untagged = 1000},
        {BASE, .name = "unseen beginning, kernels late", .threads = 4, .kernels = 3, .unborn = true,
         .kernels_late = true},
};

/* All threads stop now and then, also in calls whose kernels run meanwhile. */
static const struct sim_options stalls[] = {
        {BASE, .name = "two threads", .launches = 5000, .threads = 2, .streams = 2, .stalls = 2,
         .syncs = 2},
        {BASE, .name = "GPU far behind", .launches = 5000, .threads = 2, .streams = 2,
         .kernel_ns = 20000, .stalls = 2, .syncs = 2},
        {BASE, .name = "one kernel", .launches = 5000, .threads = 4, .streams = 4, .kernels = 1,
         .stalls = 2, .syncs = 2},
        {BASE, .name = "two contexts", .launches = 5000, .threads = 2, .contexts = 2, .streams = 2,
         .stalls = 2, .syncs = 2},
        {BASE, .name = "records do not tell", .launches = 5000, .threads = 2, .streams = 2,
         .untagged = 1000, .stalls = 2, .syncs = 2},
        {BASE, .name = "records do not tell, GPU far behind", .launches = 5000, .threads = 2,
         .streams = 2, .kernel_ns = 20000, .untagged = 1000, .stalls = 2, .syncs = 2},
        {BASE, .name = "records do not tell, one kernel", .launches = 5000, .threads = 2,
         .streams = 2, .kernels = 1, .untagged = 1000, .stalls = 2, .syncs = 2},
        {BASE, .name = "for long", .launches = 5000, .threads = 4, .streams = 4, .kernels = 1,
         .stalls = 1, .stall_ns = 1500000000, .syncs = 2},
        {BASE, .name = "for long, shared streams", .launches = 5000, .threads = 4, .streams = 4,
         .kernels = 2, .shared_stream = true, .stalls = 1, .stall_ns = 1500000000, .syncs = 2},
        {BASE, .name = "for long, records do not tell", .launches = 5000, .threads = 4,
         .streams = 4, .untagged = 200, .stalls = 1, .stall_ns = 1500000000, .syncs = 2},
};

/* Contexts whose threads run the same kernels. */
static const struct sim_options contexts[] = {
        {BASE, .name = "clock late", .launches = 5000, .threads = 4, .contexts = 2, .streams = 4,
         .kernels = 2, .clock_late = true},
        {BASE, .name = "two contexts", .threads = 2, .contexts = 2, .streams = 2, .memsets = 20},
        {BASE, .name = "four contexts, one kernel", .threads = 4, .contexts = 4, .kernels = 1,
         .memsets = 20, .syncs = 1},
};

/*
 * Contexts on several devices, whose clocks are far apart, either way, or together but
 * for their drift; the threads stay on one or go from one to the other.
 */
#define DEVICES .threads = 4, .contexts = 2, .devices = 2, .streams = 4, .kernels = 2
static const struct sim_options devices[] = {
        {BASE, DEVICES, .name = "ahead", .apart_ns = 3000000000, .memsets = 20, .syncs = 1},
        {BASE, DEVICES, .name = "behind", .apart_ns = -700000000, .memsets = 20, .syncs = 1},
        {BASE, DEVICES, .name = "before the beginning", .apart_ns = -10000000000000, .syncs = 1},
        {BASE, DEVICES, .name = "far ahead", .apart_ns = 1700000000000000000, .syncs = 1},
        {BASE, DEVICES, .name = "drift only", .memsets = 20, .syncs = 1},
        {BASE, DEVICES, .name = "slightly apart", .apart_ns = 20000, .syncs = 1},
        {BASE, DEVICES, .name = "one kernel", .kernels = 1, .apart_ns = 40000000, .syncs = 1},
        {BASE, DEVICES, .name = "one that switches", .threads = 1, .switches = 100,
         .apart_ns = -5000000000, .memsets = 20, .syncs = 1},
        {BASE, DEVICES, .name = "all switch", .switches = 200, .apart_ns = 5000000000, .syncs = 1},
        {BASE, DEVICES, .name = "four devices", .contexts = 4, .devices = 4, .switches = 20,
         .apart_ns = 1500000000, .memsets = 20, .syncs = 1},
        {BASE, DEVICES, .name = "two contexts on each", .contexts = 4, .switches = 20,
         .apart_ns = -1500000000, .syncs = 1},
        {BASE, DEVICES, .name = "device records first", .device_first = true,
         .apart_ns = 1500000000, .syncs = 1},
        {BASE, DEVICES, .name = "launch events late", .cpu_late_ns = 12000000,
         .apart_ns = -1500000000, .syncs = 1},
        {BASE, DEVICES, .name = "clocks late", .launches = 5000, .clock_late = true,
         .apart_ns = 1500000000},
        {BASE, DEVICES, .name = "clocks slewed", .slewed = true, .apart_ns = 1500000000},
        {BASE, DEVICES, .name = "graphs", .switches = 20, .graphs = 50, .kernels = 3,
         .apart_ns = 900000000, .syncs = 5},
};

/* Contexts that are reset, each of one thread: proof may take until a synchronise. */
static const struct sim_options resets[] = {
        {BASE, .name = "one stream", .resets = 2, .syncs = 5},
        {BASE, .name = "one kernel", .kernels = 1, .resets = 2, .syncs = 5, .memsets = 20},
        {BASE, .name = "GPU far behind", .kernels = 1, .kernel_ns = 8000, .resets = 1, .syncs = 5},
        {BASE, .name = "four streams", .streams = 4, .shared_stream = true, .resets = 1,
         .syncs = 5},
        {BASE, .name = "while others live", .threads = 4, .contexts = 4, .kernels = 2, .resets = 1,
         .syncs = 2},
        {BASE, .name = "short", .kernels = 2, .resets = 2, .reset_ns = 200000, .syncs = 5},
        {BASE, .name = "short, four streams", .streams = 4, .shared_stream = true, .resets = 1,
         .reset_ns = 200000, .syncs = 5},
        {BASE, .name = "short, while others live", .threads = 4, .contexts = 4, .kernels = 2,
         .resets = 1, .reset_ns = 500000, .syncs = 2},
        {BASE, .name = "losses", .kernels = 2, .resets = 1, .syncs = 5, .device_gaps = 1,
         .gap_records = 20, .cpu_gaps = 1, .gap_launches = 20},
        {BASE, .name = "while others live, losses", .threads = 2, .contexts = 2, .kernels = 2,
         .resets = 1, .syncs = 5, .device_gaps = 1, .gap_records = 20, .cpu_gaps = 1,
         .gap_launches = 20},
};

/* Seen only from the middle on: what is certain is right. */
static const struct sim_options unknown[] = {
        {BASE, .name = "unseen beginning", .unborn = true, .syncs = 5},
        {BASE, .name = "unseen beginning, nameless", .unborn = true, .nameless = 300, .syncs = 5},
        {BASE, .name = "records do not tell, four streams", .untagged = 1000, .streams = 4,
         .shared_stream = true, .kernel_ns = 20000, .syncs = 2},
        {BASE, .name = "graphs whose records do not tell", .graphs = 50, .untagged = 1000,
         .syncs = 5},
        {BASE, DEVICES, .name = "devices, both lost", .gap_ns = 20000, .switches = 20,
         .cpu_gaps = 1, .gap_launches = 20, .device_gaps = 1, .gap_records = 20,
         .apart_ns = 1500000000, .syncs = 5},
        {BASE, .name = "some records do not tell", .untagged = 200, .memsets = 20, .syncs = 5},
        {BASE, .name = "some records do not tell, four streams", .untagged = 200, .streams = 4,
         .shared_stream = true, .kernel_ns = 8000, .syncs = 5},
        {BASE, .name = "some records do not tell, threads", .untagged = 200, .threads = 4,
         .streams = 4, .memsets = 20, .syncs = 1},
};

/* Records that do not even tell their context, or whose context's device is not known at first. */
static const struct sim_options untold[] = {
        {BASE, DEVICES, .name = "learned late", .launches = 5000, .gap_ns = 20000,
         .device_late = true, .apart_ns = 2000000000, .syncs = 5},
        {BASE, DEVICES, .name = "some", .threads = 1, .switches = 50, .kernels = 10,
         .untagged = 200, .apart_ns = 900000000, .syncs = 5},
        {BASE, DEVICES, .name = "all", .threads = 1, .switches = 50, .kernels = 10,
         .untagged = 1000, .apart_ns = -2000000000, .syncs = 5},
};

/* Their neighbours' grid ids tell whose the others are. */
static const struct sim_options between[] = {
        {BASE, .name = "threads", .threads = 2, .streams = 2, .kernels = 10, .untagged = 200,
         .gap_ns = 20000, .syncs = 20},
        {BASE, .name = "threads, GPU far behind", .threads = 4, .streams = 4, .kernels = 10,
         .untagged = 200, .gap_ns = 20000, .kernel_ns = 30000},
        {BASE, .name = "contexts", .threads = 4, .contexts = 2, .streams = 2, .kernels = 10,
         .untagged = 200, .gap_ns = 20000, .memsets = 20},
};

static const struct sim_options graphs[] = {
        {BASE, .name = "captured", .graphs = 50, .syncs = 5},
        {BASE, .name = "one kernel", .kernels = 1, .graphs = 100, .memsets = 20},
        {BASE, .name = "GPU far behind", .streams = 4, .shared_stream = true, .graphs = 50,
         .kernel_ns = 4000},
        {BASE, .name = "threads", .threads = 4, .streams = 4, .kernels = 3, .graphs = 50,
         .gap_ns = 3000, .memsets = 20},
        {BASE, .name = "contexts", .threads = 4, .contexts = 2, .streams = 4, .kernels = 3,
         .graphs = 50, .gap_ns = 3000},
};

/* Captures and instantiations that nobody saw disturb nothing else. */
static const struct sim_options unseen[] = {
        {BASE, .name = "graphs", .graphs = 50, .graphs_unseen = true, .syncs = 5},
        {BASE, .name = "graphs, four streams", .streams = 4, .shared_stream = true, .graphs = 50,
         .graphs_unseen = true, .syncs = 5},
};

static const struct sim_options losses[] = {
        {BASE, .name = "device records", .device_gaps = 5, .gap_records = 20, .syncs = 5},
        {BASE, .name = "many device records", .device_gaps = 1, .gap_records = 2000, .syncs = 5},
        {BASE, .name = "ring overrun", .launches = 300000, .threads = 4, .streams = 4,
         .gap_ns = 1000, .overrun_records = 200000, .syncs = 1},
        {BASE, .name = "launch events", .cpu_gaps = 5, .gap_launches = 20, .syncs = 5},
        {BASE, .name = "launch events, one kernel", .kernels = 1, .cpu_gaps = 2, .gap_launches = 20,
         .syncs = 5},
        {BASE, .name = "device records, one kernel", .kernels = 1, .device_gaps = 2,
         .gap_records = 20, .syncs = 5, .memsets = 20},
        {BASE, .name = "both, clock coarse", .clock_ns = 200000000, .cpu_gaps = 2,
         .gap_launches = 20, .device_gaps = 2, .gap_records = 20, .syncs = 20},
        {BASE, .name = "both, operations", .cpu_gaps = 2, .gap_launches = 20, .device_gaps = 2,
         .gap_records = 20, .syncs = 5, .memsets = 50},
        {BASE, .name = "both, four streams", .streams = 4, .shared_stream = true, .cpu_gaps = 1,
         .gap_launches = 20, .device_gaps = 1, .gap_records = 20, .syncs = 5, .memsets = 50},
        {BASE, .name = "both, threads", .threads = 4, .streams = 4, .cpu_gaps = 1,
         .gap_launches = 20, .device_gaps = 1, .gap_records = 20, .syncs = 5, .memsets = 20},
        {BASE, .name = "both, shared streams", .threads = 4, .streams = 2, .shared_stream = true,
         .cpu_gaps = 1, .gap_launches = 20, .device_gaps = 1, .gap_records = 20, .syncs = 5},
        {BASE, .name = "both, graphs", .graphs = 50, .cpu_gaps = 1, .gap_launches = 20,
         .device_gaps = 1, .gap_records = 20, .syncs = 5},
        {BASE, .name = "a call that is stuck", .launches = 150000, .threads = 4, .streams = 4,
         .gap_ns = 1000, .stuck_ns = 80000000, .syncs = 1},
        {BASE, .name = "both, records do not tell", .untagged = 1000, .cpu_gaps = 1,
         .gap_launches = 20, .device_gaps = 1, .gap_records = 20, .syncs = 5},
        {BASE, .name = "launch events, gone at once", .launches = 4000, .threads = 2, .streams = 2,
         .cpu_gaps = 2, .gap_launches = 5, .syncs = 5, .abrupt = true},
};

static const struct sim_options noise[] = {
        {BASE, .name = "duplicates", .duplicates = 50, .syncs = 5, .memsets = 20},
        {BASE, .name = "garbage", .garbage = 50, .syncs = 5, .memsets = 20},
        {BASE, .name = "both, threads", .threads = 4, .streams = 4, .gap_ns = 1000,
         .duplicates = 50, .garbage = 2},
};

static void print(const struct sim_options *o, const struct sim_result *r)
{
        printf("%s, seed %" PRIu64 ": expected %" PRIu64 " matched %" PRIu64 "; exact %" PRIu64
               " (%" PRIu64 " wrong) ordered %" PRIu64 " (%" PRIu64 ") inferred %" PRIu64
               " (%" PRIu64 ") none %" PRIu64 " (%" PRIu64 " recorded); ends %" PRIu64 "/%" PRIu64
               "; nodes %" PRIu64 "/%" PRIu64 " (%" PRIu64 " exact, %" PRIu64
               " wrong); unmatched records %" PRIu64 ", longest run not exact %" PRIu64 "\n",
               o->name, o->seed, r->expected, r->matched, r->exact, r->wrong_exact, r->ordered,
               r->wrong_ordered, r->inferred, r->wrong_inferred, r->none, r->none_recorded, r->ends,
               r->ends_expected, r->nodes, r->nodes_expected, r->exact_nodes, r->wrong_nodes,
               r->unmatched, r->longest_inexact);
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
        CHECK_EQ(r.tails, r.tails_counted);
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

        CHECK(r.exact * 1000 >= r.expected * 999);
        CHECK_EQ(r.none_recorded, 0);
        CHECK_EQ(r.unmatched, 0);
        CHECK_EQ(r.ends, r.ends_expected);
}

static void test_shared(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        /* Every record has a launch, if not always its own among those that overlap. */
        CHECK_EQ(r.exact + r.ordered, r.expected);
        CHECK_EQ(r.wrong_group, 0);
        CHECK_EQ(r.unmatched, 0);
}

static void test_stalls(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        /* When longer than any call is waited for, only what run() checks holds. */
        if (o->stall_ns)
                return;
        CHECK(r.none_recorded * 1000 <= (o->untagged ? r.expected : 0));
        CHECK(o->untagged || (r.unmatched == 0 && r.exact == r.expected));
}

static void test_contexts(const struct sim_options *o, uint64_t seed)
{
        test_threads(o, seed);
}

static void test_resets(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        /* After a loss, or soon after each other, one's new number may be another's as well. */
        if (o->contexts > 1 && (o->cpu_gaps || o->reset_ns))
                return;
        CHECK(r.none_recorded * 100 <= r.expected);
        CHECK(r.matched * 100 >= r.expected * 99);
        /* After a loss a new number is proven only by a synchronise of the context. */
        CHECK(r.exact * 100 >= r.expected * (o->cpu_gaps ? 10 : 70));
}

/* Launches find their records, and these tell the right GPU and its time. */
static void test_devices(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.no_gpu, 0);
        CHECK_EQ(r.no_start, 0);
        CHECK_EQ(r.none_recorded, 0);
        CHECK_EQ(r.wrong_nodes, 0);
        CHECK(r.exact * 1000 >= r.expected * 999);
        CHECK(o->graphs || r.unmatched == 0);
        CHECK_EQ(r.ends, r.ends_expected);
}

static void test_unknown(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.wrong_nodes, 0);
        CHECK(r.none_recorded * 100 <= r.expected);
        CHECK(r.matched * 100 >= r.expected * (o->threads > 1 ? 80 : 99));
}

static void test_untold(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        /* One that is given up before its context's device is known has none. */
        CHECK(r.no_gpu <= r.none);
        CHECK(r.inferred > 0);
        CHECK(o->untagged < 1000 || r.exact + r.ordered == 0);
        CHECK(o->untagged == 1000 || r.wrong_inferred == 0);
}

static void test_between(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK(r.matched * 100 >= r.expected * 95);
        CHECK(r.exact * 100 >= r.expected * (o->threads == 2 ? 90 : 65));
}

static void test_graphs(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.matched, r.expected);
        CHECK(r.exact * 1000 >= r.expected * 999);
        CHECK_EQ(r.wrong_nodes, 0);
        CHECK(r.nodes * 100 >= r.nodes_expected * 98);
        /* Whose nodes are whose is a guess when graphs are instantiated at once or in a row. */
        CHECK(r.inferred_nodes * 20 <= r.nodes);
        CHECK(o->threads > 1 || r.exact_nodes + r.inferred_nodes == r.nodes);
}

static void test_unseen(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.wrong_nodes, 0);
        CHECK_EQ(r.matched, r.expected);
        CHECK(r.exact * 100 >= r.expected * 99);
}

static void test_losses(const struct sim_options *o, uint64_t seed)
{
        struct sim_result r = run(o, seed);

        CHECK_EQ(r.wrong_nodes, 0);
        CHECK(r.longest_inexact <= 2000);
        CHECK((r.exact + r.ordered) * 100 >= r.expected * 90);
        CHECK((o->shared_stream && o->threads > 1) || r.exact * 100 >= r.expected * 90);
        CHECK(o->overrun_records || r.overfull == 0);
        CHECK(r.none_recorded * 100 <= r.expected);
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
        GROUP(clean),  GROUP(threads), GROUP(shared),  GROUP(contexts), GROUP(devices),
        GROUP(stalls), GROUP(resets),  GROUP(unknown), GROUP(untold),   GROUP(between),
        GROUP(graphs), GROUP(unseen),  GROUP(losses),  GROUP(noise),
#undef GROUP
};

#define SEEDS 3

/* Of its options, one by name or (NULL) all; a seed or (0) all. */
static size_t group_run(const struct group *g, const char *name, uint64_t seed)
{
        size_t ran = 0;

        for (size_t i = 0; i < g->count; i++) {
                if (name && *name && strcmp(name, g->options[i].name) != 0)
                        continue;
                for (uint64_t n = seed ? seed : 1; n <= (seed ? seed : SEEDS); n++, ran++)
                        g->test(&g->options[i], n);
        }
        return ran;
}

int main(int argc, char **argv)
{
        const char *name = argc > 2 ? argv[2] : NULL;
        uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 0) : 0;
        size_t ran = 0;

        for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
                if (argc > 1 && strcmp(argv[1], groups[i].name) != 0)
                        continue;
                ran += group_run(&groups[i], name, seed);
                printf("ok %s\n", groups[i].name);
        }
        CHECK(ran > 0);
        return 0;
}
