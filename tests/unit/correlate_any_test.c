/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The correlator against any process: threads, contexts, resets and losses are drawn
 * from a seed. How much it finds is asked elsewhere (correlate_test.c); here what it
 * promises has to hold, whatever happens: `exact` is right, a right match's times are
 * within their error, no end is told too early, and nothing is left out.
 *   correlate_any_test [FIRST_SEED [COUNT]]
 */
#include "unit/correlate_sim.h"
#include "unit/test.h"

#define SEEDS 300

/* These have broken a promise before. */
static const uint64_t broke[] = {1992,  4697,  4983,  5034,  5179,  5737,  6238,
                                 6551,  8818,  10602, 11959, 14230, 15510, 15605,
                                 19340, 20267, 26020, 26802, 29714, 30946, 35586};

/* One of these; the first one, which should be the plainest, half of the time. */
#define ONE_OF(random, ...)                                                                        \
        one_of(random, (const uint32_t[]){__VA_ARGS__},                                            \
               sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static uint32_t one_of(uint64_t *random, const uint32_t *values, size_t count)
{
        uint64_t n = test_random(random) >> 16;

        return n & 1 ? values[0] : values[(n >> 1) % count];
}

static struct sim_options draw(uint64_t seed, bool stalls)
{
        uint64_t r = seed * 0x9e3779b97f4a7c15ULL + 1;
        struct sim_options o = {
                .name = "any",
                .seed = seed,
                .launches = 3000,
                .threads = ONE_OF(&r, 1, 2, 4, 8),
                .contexts = ONE_OF(&r, 1, 2, 3, 4),
                .streams = ONE_OF(&r, 1, 2, 4, 16),
                .kernels = ONE_OF(&r, 1, 3, 10),
                .gap_ns = ONE_OF(&r, 3000, 1000, 20000),
                .kernel_ns = ONE_OF(&r, 2000, 8000, 30000),
                .memsets = ONE_OF(&r, 0, 20, 100),
                .syncs = ONE_OF(&r, 0, 2, 5, 20),
                .failures = ONE_OF(&r, 0, 5),
                .own = ONE_OF(&r, 0, 5),
                .restreams = ONE_OF(&r, 0, 5, 20),
                .resets = ONE_OF(&r, 0, 1, 3, 10),
                .reset_ns = ONE_OF(&r, 200000, 500000, 1000000, 5000000, 0),
                .switches = ONE_OF(&r, 0, 20, 200),
                .slow = ONE_OF(&r, 0, 2),
                .overlaps = ONE_OF(&r, 0, 300),
                .nameless = ONE_OF(&r, 0, 200),
                .untagged = ONE_OF(&r, 0, 0, 200),
                .device_gaps = ONE_OF(&r, 0, 1, 5),
                .gap_records = ONE_OF(&r, 20, 3, 300),
                .cpu_gaps = ONE_OF(&r, 0, 1, 5),
                .gap_launches = ONE_OF(&r, 20, 3),
                .tails = ONE_OF(&r, 0, 300),
                .clock_ns = ONE_OF(&r, 0, 200000000),
                .cpu_late_ns = ONE_OF(&r, 0, 12000000),
                .device_first = ONE_OF(&r, 0, 1),
                .shared_stream = ONE_OF(&r, 0, 1),
                .unborn = ONE_OF(&r, 0, 0, 0, 1),
                .kernels_late = ONE_OF(&r, 0, 0, 1),
                .sync_end = ONE_OF(&r, 1, 0),
                .device_late_ns = ONE_OF(&r, 0, 0, 30000000),
                .stuck_ns = ONE_OF(&r, 0, 0, 1000000, 30000000),
        };

        if (stalls) {
                o.stalls = ONE_OF(&r, 1, 2, 5);
                o.stall_ns = ONE_OF(&r, 200000000, 40000000, 1000000000);
        }
        return o;
}

/* (Which kernels overlap with the one before is not seen: its end may be told too early.) */
static bool holds(const struct sim_options *o, const struct sim_result *r)
{
        return r->ledger_produced == r->emitted && r->emitted == r->produced &&
               r->wrong_exact == 0 && r->wrong_time == 0 && (r->wrong_end == 0 || o->overlaps) &&
               r->tails == r->tails_counted;
}

static void print(const struct sim_options *o, const struct sim_result *r)
{
        printf("seed %" PRIu64
               ": %u threads %u contexts %u streams (shared %d) %u kernels of %u ns "
               "gap %u memsets %u syncs %u own %u restreams %u resets %u of %u switches %u slow %u "
               "overlaps %u nameless %u untagged %u gaps %u x %u cpu %u x %u late %u first %d "
               "unborn %d device late %u stuck %u stalls %u of %u: produced %" PRIu64
               " emitted %" PRIu64 " ledger %" PRIu64 "; exact %" PRIu64 " (%" PRIu64
               " wrong), wrong times %" PRIu64 " ends %" PRIu64 "\n",
               o->seed, o->threads, o->contexts, o->streams, o->shared_stream, o->kernels,
               o->kernel_ns, o->gap_ns, o->memsets, o->syncs, o->own, o->restreams, o->resets,
               o->reset_ns, o->switches, o->slow, o->overlaps, o->nameless, o->untagged,
               o->device_gaps, o->gap_records, o->cpu_gaps, o->gap_launches, o->cpu_late_ns,
               o->device_first, o->unborn, o->device_late_ns, o->stuck_ns, o->stalls, o->stall_ns,
               r->produced, r->emitted, r->ledger_produced, r->exact, r->wrong_exact, r->wrong_time,
               r->wrong_end);
        fflush(stdout);
}

struct sums {
        uint64_t seeds, expected, exact, inferred, none, wrong, broken;
};

static void run(uint64_t seed, bool stalls, struct sums *sums)
{
        struct sim_options o = draw(seed, stalls);
        struct sim_result r = sim_run(&o);

        if (!holds(&o, &r))
                print(&o, &r);
        sums->broken += !holds(&o, &r);
        sums->seeds++;
        sums->expected += r.expected;
        sums->exact += r.exact;
        sums->wrong += r.wrong_exact;
        sums->inferred += r.inferred;
        sums->none += r.none_recorded;
}

int main(int argc, char **argv)
{
        uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
        uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 0) : SEEDS;
        struct sums sums = {0};

        for (uint64_t seed = first; seed < first + count; seed++) {
                run(seed, false, &sums);
                if (seed % 3 == 0) /* they take the longest */
                        run(seed, true, &sums);
        }
        for (size_t i = 0; argc == 1 && i < sizeof(broke) / sizeof(broke[0]); i++)
                run(broke[i], false, &sums);
        printf("%" PRIu64 " seeds: expected %" PRIu64 " exact %.2f %% (%" PRIu64
               " wrong) inferred %.2f %% none %.2f %%\n",
               sums.seeds, sums.expected, 100.0 * (double)sums.exact / (double)sums.expected,
               sums.wrong, 100.0 * (double)sums.inferred / (double)sums.expected,
               100.0 * (double)sums.none / (double)sums.expected);
        CHECK_EQ(sums.broken, 0);
        return 0;
}
