/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A graph of three kernels, the second of which does not tell its stream; and a launch of
 * the same kernel, right after the instantiation, which has the next id. Whenever records
 * and launches are read, the launch is not given the node's record.
 */
#include <string.h>

#include "device/device_abi.h"
#include "unit/correlate_hand.h"

#define IMAGE    0x7000
#define STREAM   0x9000
#define GRAPH    0xa000
#define EXEC     0xb000
#define TICK     10000000
#define REPLAYS  6
#define LAUNCHES 30 /* between two replays */
#define NODE_ID  28 /* of the first */
#define MAIN_NS  1000000000

enum { QUIET = 1, TELLING }; /* kernels, functions: of the first no record tells its stream */

static struct ledger ledger;
static struct intern *names;
static struct correlator *correlator;
static struct clock_model *gpu_clock;
static struct correlated_process *process;
static uint64_t now_ns;
static unsigned launches, nodes, wrong, vague;
static uint64_t launch_ids[9 + REPLAYS * LAUNCHES]; /* by order of entry */

static void on_launch(void *data, struct correlated_process *p, struct launch_record *record)
{
        uint64_t number = (record->cpu_enter_ns - MAIN_NS) / 10000;

        if (record->graph_exec) {
                nodes++;
                wrong += record->gridid < NODE_ID || record->gridid >= NODE_ID + 3;
                return;
        }
        launches++;
        wrong += record->gridid != launch_ids[number];
        vague += record->match != MATCH_EXACT;
}

static void handle(enum cpu_handle_kind kind, uint64_t value, uint64_t parent, const char *name)
{
        hand_handle(correlator, process, now_ns, kind, value, parent, name, false);
}

static void kernel(uint32_t id, const char *name)
{
        handle(CPU_HANDLE_FUNCTION, id, IMAGE, name);
        correlator_kernel(correlator, process,
                          &(struct correlated_kernel){.kernel_id = id,
                                                      .image_handle = IMAGE,
                                                      .name = name,
                                                      .name_length = strlen(name),
                                                      .entry_probed = true});
}

static void start(void)
{
        static const struct correlator_ops ops = {.launch = on_launch};

        memset(&ledger, 0, sizeof(ledger));
        launches = nodes = wrong = vague = 0;
        now_ns = MAIN_NS;
        names = intern_new();
        correlator = correlator_new(&ops, NULL, names);
        CHECK(names && correlator);
        process = correlator_add_process(correlator, 1, &ledger, NULL);
        CHECK(process);
        gpu_clock = hand_clock(MAIN_NS);
        correlated_process_set_agent(process, &(struct correlated_device){.clock = gpu_clock}, 1);
        kernel(QUIET, "q");
        kernel(TELLING, "t");
}

static void operation(enum cpu_operation what, uint64_t stream, uint64_t value, uint32_t seq)
{
        const struct cpu_operation_event ev = {.enter_ns = now_ns,
                                               .handle = value,
                                               .stream = stream,
                                               .context = 1,
                                               .launch_seq = seq,
                                               .duration_ns = 100,
                                               .tgid = 1,
                                               .tid = 1,
                                               .operation = (uint8_t)what,
                                               .type = CPU_EVENT_OPERATION};

        correlator_operation(correlator, process, &ev);
        now_ns += 200;
}

static void launch(uint32_t seq, uint64_t func, uint8_t type)
{
        const struct cpu_launch_event ev = {HAND_LAUNCH,  .enter_ns = MAIN_NS + seq * 10000,
                                            .func = func, .stream = STREAM,
                                            .seq = seq,   .duration_ns = 1000,
                                            .tid = 1,     .type = type};

        now_ns = ev.enter_ns;
        correlator_launch(correlator, process, &ev);
        now_ns += ev.duration_ns;
}

/* The block of the stream's descriptors, or of the graph's, whose lie elsewhere in theirs. */
static void record(uint64_t at_ns, uint32_t id, uint64_t gridid, bool node)
{
        uint64_t queue = (node ? 0x23ull : 0x21ull) << DEVICE_QUEUE_STREAM_SHIFT |
                         gridid % DEVICE_QUEUE_SLOTS << DEVICE_QUEUE_SLOT_SHIFT | (node ? 4 : 0);
        const struct device_record r = {
                .time_ns = at_ns,
                .grid = DEVICE_RECORD_GRID(gridid, DEVICE_RECORD_START, 1),
                .who = DEVICE_RECORD_WHO(id, 0, id == QUIET ? 0 : queue),
        };

        correlator_device_record(correlator, process, &r);
}

/* Of five launches nothing is recorded; three are captured, and their nodes take the next ids. */
static void make_graph(void)
{
        handle(CPU_HANDLE_CONTEXT, 0xc9, 0, NULL);
        for (uint32_t seq = 1; seq <= 5; seq++)
                launch(seq, TELLING, CPU_EVENT_LAUNCH | CPU_EVENT_UNPROBED);
        operation(CPU_OP_CAPTURE_BEGIN, STREAM, 0, 5);
        launch(6, TELLING, CPU_EVENT_LAUNCH);
        launch(7, QUIET, CPU_EVENT_LAUNCH);
        launch(8, TELLING, CPU_EVENT_LAUNCH);
        operation(CPU_OP_CAPTURE_END, STREAM, GRAPH, 8);
        handle(CPU_HANDLE_GRAPH_EXEC, EXEC, GRAPH, NULL);
        operation(CPU_OP_GRAPH_INSTANTIATE, 0, EXEC, 8);
}

/* A launch of the quiet kernel, a replay, and more launches of both. */
static void launch_round(uint32_t first)
{
        launch(first, QUIET, CPU_EVENT_LAUNCH);
        launch(first + 1, EXEC, CPU_EVENT_GRAPH_LAUNCH);
        for (uint32_t i = 2; i < LAUNCHES; i++)
                launch(first + i, i % 4 ? TELLING : QUIET, CPU_EVENT_LAUNCH);
}

static void record_round(uint32_t first, uint64_t id)
{
        uint64_t at_ns = MAIN_NS + first * 10000;

        launch_ids[first] = id;
        record(at_ns + 3000, QUIET, id++, false);
        record(at_ns + 13000, TELLING, NODE_ID, true);
        record(at_ns + 14000, QUIET, NODE_ID + 1, true);
        record(at_ns + 15000, TELLING, NODE_ID + 2, true);
        for (uint32_t i = 2; i < LAUNCHES; i++) {
                launch_ids[first + i] = id;
                record(at_ns + i * 10000 + 3000, i % 4 ? TELLING : QUIET, id++, false);
        }
}

static void pass(void)
{
        correlator_now(correlator, now_ns);
        correlator_tick(correlator, now_ns);
}

/* together: so many rounds are read at once, of them the records first. */
static void replay(unsigned together, bool records_first)
{
        start();
        make_graph();
        for (uint32_t round = 0; round < REPLAYS; round += together) {
                for (int half = 0; half < 2; half++)
                        for (uint32_t i = round; i < round + together; i++) {
                                uint32_t first = 9 + i * LAUNCHES;

                                if ((half == 0) == records_first)
                                        record_round(first, NODE_ID + 3 + i * (LAUNCHES - 1));
                                else
                                        launch_round(first);
                        }
                pass();
        }
        for (unsigned i = 0; i < 1000; i++) {
                now_ns += TICK;
                pass();
        }
        correlator_remove_process(correlator, process);
        printf("   %u at once, %s first: %u launches, %u not exact; %u nodes; %u wrong\n", together,
               records_first ? "records" : "launches", launches, vague, nodes, wrong);
        CHECK_EQ(wrong, 0);
        CHECK_EQ(launches, 5 + REPLAYS * (LAUNCHES - 1));
        CHECK_EQ(vague, 5);
        CHECK_EQ(nodes, 3 * REPLAYS);
        CHECK_EQ(ledger.lost[LOSS_device_record_unmatched], 0);
        correlator_free(correlator);
        clock_model_free(gpu_clock);
        intern_free(names);
}

static void test_launches_first(void)
{
        for (unsigned together = 1; together <= REPLAYS; together++)
                if (REPLAYS % together == 0)
                        replay(together, false);
}

static void test_records_first(void)
{
        for (unsigned together = 1; together <= REPLAYS; together++)
                if (REPLAYS % together == 0)
                        replay(together, true);
}

int main(void)
{
        TEST(test_launches_first);
        TEST(test_records_first);
        return 0;
}
