/* SPDX-License-Identifier: Apache-2.0 */

/*
 * An agent that comes while threads launch, none of which ever waits: the first launch
 * that is probed is that of the first record, in whatever order the calls returned
 * that were under way.
 */
#include <string.h>

#include "device/device_abi.h"
#include "unit/correlate_hand.h"
#include "util/macro.h"

#define IMAGE    0x7000
#define KERNEL   1
#define FUNCTION 0x100
#define STREAM   0x9000
#define QUEUE    (0x21 << DEVICE_QUEUE_STREAM_SHIFT)
#define TICK     10000000
#define PROBED   200

static struct ledger ledger;
static struct intern *names;
static struct correlator *correlator;
static struct clock_model *clock;
static struct correlated_process *process;
static uint64_t now_ns;
static unsigned bare, exact, other; /* that came out */

static void on_launch(void *data, struct correlated_process *p, struct launch_record *record)
{
        bare += record->match == MATCH_NONE;
        exact += record->match == MATCH_EXACT;
        other += record->match != MATCH_NONE && record->match != MATCH_EXACT;
}

static void start(void)
{
        static const struct correlator_ops ops = {.launch = on_launch};

        memset(&ledger, 0, sizeof(ledger));
        bare = exact = other = 0;
        now_ns = 1000000000;
        clock = hand_clock(now_ns);
        names = intern_new();
        correlator = correlator_new(&ops, NULL, names);
        CHECK(names && correlator);
        process = correlator_add_process(correlator, 1, &ledger, NULL);
        CHECK(process);
        hand_handle(correlator, process, now_ns, CPU_HANDLE_FUNCTION, FUNCTION, IMAGE, "k", false);
}

static void agent_comes(void)
{
        const struct correlated_device device = {.clock = clock};

        correlated_process_set_agent(process, &device, 1);
        correlator_kernel(correlator, process,
                          &(struct correlated_kernel){.kernel_id = KERNEL,
                                                      .image_handle = IMAGE,
                                                      .name = "k",
                                                      .name_length = 1,
                                                      .entry_probed = true});
}

/* So many launches are not in the kernel's numbers: an agent had numbered them, and left. */
static uint32_t left;

static void launch(uint32_t seq, uint32_t tid, bool probed)
{
        const struct cpu_launch_event ev = {
                HAND_LAUNCH,
                .enter_ns = 1000000000 + (seq + left) * 10000,
                .func = FUNCTION,
                .stream = STREAM,
                .seq = seq,
                .duration_ns = probed ? 5000 : 50000,
                .tid = tid,
                .type = probed ? CPU_EVENT_LAUNCH : CPU_EVENT_LAUNCH | CPU_EVENT_UNPROBED};

        correlator_launch(correlator, process, &ev);
        now_ns = ev.enter_ns + ev.duration_ns;
}

/* Its grid's record; grids take their ids as they are launched. */
static void record(uint32_t seq)
{
        const struct device_record r = {
                .time_ns = now_ns,
                .grid = DEVICE_RECORD_GRID(seq, DEVICE_RECORD_START, 1),
                .who = DEVICE_RECORD_WHO(
                        KERNEL, 0, QUEUE | seq % DEVICE_QUEUE_SLOTS << DEVICE_QUEUE_SLOT_SHIFT),
        };

        correlator_device_record(correlator, process, &r);
}

/* When seq was the last that had been entered: no call is under way that nobody knows of. */
static void synchronise(uint32_t seq)
{
        const struct cpu_operation_event ev = {
                .enter_ns = now_ns += 10000,
                .context = 1,
                .launch_seq = seq,
                .duration_ns = 1000,
                .tgid = 1,
                .tid = 1,
                .type = CPU_EVENT_OPERATION,
                .operation = CPU_OP_SYNC_CONTEXT,
        };

        correlator_operation(correlator, process, &ev);
}

/* Launches 1 to 12, of which four are under way when the agent comes and return in this order. */
static void agent_comes_meanwhile(const uint32_t order[4], unsigned before)
{
        left = 0;
        start();
        for (uint32_t seq = 1; seq <= 8; seq++)
                launch(seq, 1 + seq % 4, false);
        for (unsigned i = 0; i < before; i++)
                launch(order[i], 1 + order[i] % 4, false);
        agent_comes();
        for (unsigned i = before; i < 4; i++)
                launch(order[i], 1 + order[i] % 4, false);
        for (uint32_t seq = 13; seq < 13 + PROBED; seq++) {
                launch(seq, 1 + seq % 4, true);
                record(seq);
                correlator_now(correlator, now_ns);
                correlator_tick(correlator, now_ns);
        }
        synchronise(12 + PROBED);
        for (unsigned i = 0; i < 1000; i++) {
                correlator_now(correlator, now_ns += TICK);
                correlator_tick(correlator, now_ns);
        }
        correlator_remove_process(correlator, process);
        printf("   %u under way: %u exact, %u not so, %u without a record\n", 4 - before, exact,
               other, bare);
        CHECK_EQ(bare, 12);
        CHECK_EQ(exact, PROBED);
        CHECK_EQ(ledger.lost[LOSS_device_record_unmatched], 0);
        correlator_free(correlator);
        clock_model_free(clock);
        intern_free(names);
}

static void test_returned_in_order(void)
{
        static const uint32_t order[] = {9, 10, 11, 12};

        for (unsigned before = 0; before <= 4; before++)
                agent_comes_meanwhile(order, before);
}

static void test_returned_in_another_order(void)
{
        static const uint32_t orders[][4] = {{10, 9, 11, 12}, {10, 9, 12, 11}, {12, 11, 10, 9},
                                             {12, 9, 10, 11}, {11, 12, 9, 10}, {9, 12, 10, 11}};

        for (size_t i = 0; i < ARRAY_SIZE(orders); i++)
                for (unsigned before = 0; before <= 4; before++)
                        agent_comes_meanwhile(orders[i], before);
}

static void probed_launches(uint32_t first)
{
        for (uint32_t seq = first; seq < first + PROBED; seq++) {
                launch(seq, 1 + seq % 4, true);
                record(seq + left);
                correlator_now(correlator, now_ns);
                correlator_tick(correlator, now_ns);
        }
}

/*
 * An agent leaves, and another comes. What returned as the first one left has its numbers
 * still; then the kernel counts on from where it was before.
 */
static void test_comes_again(void)
{
        left = 0;
        start();
        for (uint32_t seq = 1; seq <= 8; seq++)
                launch(seq, 1, false);
        agent_comes();
        probed_launches(9);
        correlator_end_agent(correlator, process);
        launch(9 + PROBED, 1, false);
        launch(10 + PROBED, 2, false);
        left = 2 + PROBED;
        for (uint32_t seq = 9; seq <= 40; seq++)
                launch(seq, 1 + seq % 4, false);
        launch(42, 2, false);
        agent_comes();
        launch(41, 1, false);
        probed_launches(43);
        synchronise(42 + PROBED);
        for (unsigned i = 0; i < 1000; i++) {
                correlator_now(correlator, now_ns += TICK);
                correlator_tick(correlator, now_ns);
        }
        correlator_remove_process(correlator, process);
        printf("   %u exact, %u not so, %u without a record\n", exact, other, bare);
        CHECK_EQ(bare, 8 + 2 + 34);
        CHECK_EQ(exact, 2 * PROBED);
        CHECK_EQ(ledger.lost[LOSS_device_record_unmatched], 0);
        correlator_free(correlator);
        clock_model_free(clock);
        intern_free(names);
}

int main(void)
{
        TEST(test_returned_in_order);
        TEST(test_returned_in_another_order);
        TEST(test_comes_again);
        return 0;
}
