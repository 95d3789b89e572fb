/* SPDX-License-Identifier: Apache-2.0 */

/* Records of kernels that only kernels launch are told from those whose launch is missing. */
#include <string.h>

#include "device/device_abi.h"
#include "unit/correlate_hand.h"

#define IMAGE  0x7000
#define PARENT 0x100 /* handles of functions */
#define CHILD  0x200
#define TICK   10000000

enum kernel_id { KERNEL_PARENT = 1, KERNEL_CHILD, KERNEL_ELSEWHERE };

static struct ledger ledger;
static struct intern *names;
static struct correlator *correlator;
static struct correlated_process *process;
static uint64_t now_ns = 1000000000;
static unsigned launches; /* that came out */

static void on_launch(void *data, struct correlated_process *p, struct launch_record *record)
{
        launches++;
}

static void tell_kernel(uint32_t id, const char *name, uint64_t image, bool may_nest)
{
        correlator_kernel(correlator, process,
                          &(struct correlated_kernel){.kernel_id = id,
                                                      .image_handle = image,
                                                      .name = name,
                                                      .name_length = strlen(name),
                                                      .entry_probed = true,
                                                      .exit_probed = true,
                                                      .may_nest = may_nest});
}

static void start(void)
{
        static const struct correlator_ops ops = {.launch = on_launch};
        const struct correlated_device device = {.clock = NULL};

        memset(&ledger, 0, sizeof(ledger));
        launches = 0;
        names = intern_new();
        correlator = correlator_new(&ops, NULL, names);
        CHECK(names && correlator);
        process = correlator_add_process(correlator, 1, &ledger, NULL);
        CHECK(process);
        correlated_process_set_agent(process, &device, 1);
        tell_kernel(KERNEL_PARENT, "parent", IMAGE, true);
        tell_kernel(KERNEL_CHILD, "child", IMAGE, true);
        tell_kernel(KERNEL_ELSEWHERE, "elsewhere", IMAGE + 1, false);
}

static void handle(enum cpu_handle_kind kind, uint64_t value, uint64_t parent, const char *name,
                   bool cut)
{
        hand_handle(correlator, process, now_ns, kind, value, parent, name, cut);
}

static void launch(uint64_t func)
{
        static uint32_t seq;
        const struct cpu_launch_event ev = {HAND_LAUNCH,
                                            .enter_ns = now_ns,
                                            .func = func,
                                            .seq = ++seq,
                                            .duration_ns = 5000,
                                            .tid = 1,
                                            .type = CPU_EVENT_LAUNCH};

        correlator_launch(correlator, process, &ev);
        now_ns += 10000;
}

static void record(uint32_t kernel, uint64_t gridid, enum device_record_type type)
{
        const struct device_record r = {
                .time_ns = now_ns,
                .grid = DEVICE_RECORD_GRID(gridid, type, 1),
                .who = DEVICE_RECORD_WHO(kernel, 0, 0x123400),
        };

        correlator_device_record(correlator, process, &r);
        now_ns += 10000;
}

/* Three grids of a kernel, that nobody has launched. */
static void grids(uint32_t kernel)
{
        for (uint64_t id = 100; id < 103; id++) {
                record(kernel, id, DEVICE_RECORD_START);
                record(kernel, id, DEVICE_RECORD_END);
        }
}

/* Time passes, and the process ends. */
static void finish(uint64_t nested, uint64_t unmatched)
{
        for (unsigned i = 0; i < 2000; i++)
                correlator_tick(correlator, now_ns += TICK);
        correlator_remove_process(correlator, process);
        CHECK_EQ(ledger.lost[LOSS_device_record_nested], nested);
        CHECK_EQ(ledger.lost[LOSS_device_record_unmatched], unmatched);
        correlator_free(correlator);
        intern_free(names);
}

static void test_nested(void)
{
        start();
        handle(CPU_HANDLE_FUNCTION, PARENT, IMAGE, "parent", false);
        launch(PARENT);
        record(KERNEL_PARENT, 99, DEVICE_RECORD_START);
        grids(KERNEL_CHILD);
        record(KERNEL_PARENT, 99, DEVICE_RECORD_END);
        finish(6, 0);
        CHECK_EQ(launches, 1);
}

/* The CPU launches it as well: it may be one of those launches that is missing. */
static void test_launched_too(void)
{
        start();
        handle(CPU_HANDLE_FUNCTION, CHILD, IMAGE, "child", false);
        launch(CHILD);
        grids(KERNEL_CHILD);
        finish(0, 4);
}

static void test_no_kernel_launches(void)
{
        start();
        grids(KERNEL_ELSEWHERE);
        finish(0, 6);
}

static void test_something_unseen(void)
{
        start();
        ledger.lost[LOSS_agent_ring_overrun] = 1;
        grids(KERNEL_CHILD);
        finish(0, 6);
        start();
        launch(PARENT); /* nobody has said what that is: it may be the first of them */
        grids(KERNEL_CHILD);
        finish(0, 4);
        start();
        handle(CPU_HANDLE_FUNCTION, PARENT, IMAGE, "par", true);
        launch(PARENT);
        grids(KERNEL_CHILD);
        finish(0, 6);
        start();
        handle(CPU_HANDLE_GRAPH_EXEC, 0x900, 0x800, NULL, false);
        grids(KERNEL_CHILD);
        finish(0, 6);
}

/* What was not known when it was launched first, and what the agent launches itself. */
static void test_learned_later(void)
{
        start();
        launch(PARENT);
        handle(CPU_HANDLE_FUNCTION, PARENT, IMAGE, "parent", false);
        launch(PARENT);
        launch(0x300); /* takes the first grid's records, as anything without a name may */
        correlator_own_function(correlator, process, 0x300);
        grids(KERNEL_CHILD);
        finish(4, 0);
}

int main(void)
{
        TEST(test_nested);
        TEST(test_launched_too);
        TEST(test_no_kernel_launches);
        TEST(test_something_unseen);
        TEST(test_learned_later);
        return 0;
}
