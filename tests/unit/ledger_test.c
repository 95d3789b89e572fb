/* SPDX-License-Identifier: Apache-2.0 */

/* The loss ledger tells the truth: a launch that the join had no room for is counted as one. */

#include "correlate/correlator.h"
#include "cpu/cpu_abi.h"
#include "unit/test.h"
#include "util/ledger.h"

struct seen {
        uint64_t launches, without_gpu_times;
};

static void on_launch(void *data, struct correlated_process *p, struct launch_record *r)
{
        struct seen *seen = data;

        seen->launches++;
        seen->without_gpu_times += !(r->has & (LAUNCH_HAS_GPU_START | LAUNCH_HAS_GPU_END));
}

static void add_launch(struct correlator *c, struct correlated_process *p, uint32_t seq)
{
        struct cpu_launch_event e = {
                .enter_ns = 1000000 + 1000ULL * seq,
                .func = 0x1000,
                .context = 1,
                .seq = seq,
                .duration_ns = 500,
                .tgid = 10,
                .tid = 10,
                .grid_x = 1,
                .grid_y = 1,
                .grid_z = 1,
                .block_x = 1,
                .block_y = 1,
                .block_z = 1,
                .type = CPU_EVENT_LAUNCH,
        };

        correlator_launch(c, p, &e);
}

/* An agent whose device records never come, and launches without end. */
static void launches_given_up_are_counted(void)
{
        static const struct correlator_ops ops = {.launch = on_launch};
        const uint32_t n = 200000;
        struct seen seen = {0};
        struct ledger ledger = {0};
        struct intern *names = intern_new();
        struct correlator *c = correlator_new(&ops, &seen, names);
        struct clock_model *clock = clock_model_new(32, NULL);
        struct correlated_process *p = correlator_add_process(c, 1, &ledger, NULL);

        CHECK(c && clock && p);
        correlated_process_set_agent(
                p, &(struct correlated_device){.clock = clock, .has_gpu = true}, 1);
        for (uint32_t i = 1; i <= n; i++)
                add_launch(c, p, i);
        CHECK_EQ(ledger.produced, n);
        CHECK(seen.launches > n / 2);
        CHECK_EQ(seen.launches + correlated_process_pending(p), n);
        CHECK_EQ(seen.without_gpu_times, seen.launches);
        CHECK_EQ(ledger.lost[LOSS_join_queue_full], seen.launches);
        CHECK_EQ(ledger_lost_launches(&ledger), 0); /* they are stored: not lost */
        correlator_remove_process(c, p);
        CHECK_EQ(seen.launches, n);
        correlator_free(c);
        clock_model_free(clock);
        intern_free(names);
}

int main(void)
{
        TEST(launches_given_up_are_counted);
        return 0;
}
