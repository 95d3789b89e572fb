/* SPDX-License-Identifier: Apache-2.0 */

/* What is recorded of managed memory is a trace that the simulator takes, at any moment. */
#include <errno.h>
#include <unistd.h>

#include "policy/recorder.h"
#include "policy/sim/replay.h"
#include "policy/targets.h"
#include "unit/test.h"
#include "util/macro.h"

#define PATH "policy_recorder_test.trace"
#define BASE 0x700000000000ull
#define MIB  (1ull << 20)

static struct uvm_trace *load(void)
{
        struct uvm_trace *t = NULL;
        char error[200] = "";

        if (uvm_trace_load(PATH, error, sizeof(error), &t) < 0)
                fprintf(stderr, "%s\n", error);
        CHECK(t);
        return t;
}

static void check_kinds(const uint8_t *kinds, size_t n)
{
        _cleanup_(uvm_trace_freep) struct uvm_trace *t = load();

        CHECK_EQ(t->count, n);
        for (size_t i = 0; i < n; i++)
                CHECK_EQ(t->records[i].kind, kinds[i]);
}

static void test_life(void)
{
        static const uint8_t kinds[] = {UVM_TRACE_PROCESS, UVM_TRACE_ALLOC,  UVM_TRACE_LAUNCH,
                                        UVM_TRACE_TOUCH,   UVM_TRACE_HOST,   UVM_TRACE_FREE,
                                        UVM_TRACE_EXIT,    UVM_TRACE_PROCESS};
        const struct policy_fault faults[] = {
                {.address = BASE + 5 * MIB + 7, .access = POLICY_WRITE},
                {.address = BASE + MIB, .gpu = POLICY_HOST},
                {.address = BASE + 900 * MIB}, /* of no allocation: left out */
        };
        struct policy_recorder *r;
        struct replay_options options = {.gpu_bytes = 64 * MIB, .costs = uvm_costs_h200};
        struct replay_result result;
        struct uvm_trace *t;

        CHECK_EQ(policy_recorder_new(PATH, 64, &r), 0);
        policy_recorder_start(r, 77, "sixteen-bytes-xx");
        policy_recorder_start(r, 77, "again");
        policy_recorder_alloc(r, 77, BASE, 8 * MIB);
        policy_recorder_alloc(r, 77, BASE + 4 * MIB, 100); /* in the same pages: left out */
        policy_recorder_alloc(r, 78, BASE, 8 * MIB);       /* nobody */
        policy_recorder_faults(r, 77, faults, ARRAY_SIZE(faults), 1000);
        CHECK_EQ(policy_recorder_flush(r), 0);
        check_kinds(kinds, 5);
        policy_recorder_freed(r, 77, BASE);
        policy_recorder_freed(r, 77, BASE);
        policy_recorder_exit(r, 77);
        policy_recorder_start(r, 79, "next");
        check_kinds(kinds, 5); /* not flushed: the file is still whole */
        policy_recorder_free(r);
        check_kinds(kinds, ARRAY_SIZE(kinds));

        t = load();
        CHECK_EQ(t->records[3].write, 1);
        CHECK_EQ(t->records[3].address, BASE + 5 * MIB);
        CHECK_EQ(t->records[3].bytes, 4096);
        CHECK_EQ(t->records[7].process, 0); /* the number is free again */
        CHECK_EQ(replay(t, &options, &result), 0);
        CHECK_EQ(result.memory.faults, 1);
        CHECK_EQ(result.launches, 1);
        uvm_trace_free(t);
}

/* Faults of several GPUs are of a launch on each. */
static void test_gpus(void)
{
        static const uint8_t kinds[] = {UVM_TRACE_PROCESS, UVM_TRACE_ALLOC, UVM_TRACE_LAUNCH,
                                        UVM_TRACE_HOST,    UVM_TRACE_TOUCH, UVM_TRACE_TOUCH,
                                        UVM_TRACE_LAUNCH,  UVM_TRACE_TOUCH, UVM_TRACE_LAUNCH,
                                        UVM_TRACE_TOUCH};
        const struct policy_fault faults[] = {{.address = BASE, .gpu = POLICY_HOST},
                                              {.address = BASE + MIB, .gpu = 2},
                                              {.address = BASE + 2 * MIB, .gpu = 2},
                                              {.address = BASE, .gpu = 0},
                                              {.address = BASE, .gpu = 2}};
        struct policy_recorder *r;
        struct uvm_trace *t;

        CHECK_EQ(policy_recorder_new(PATH, 64, &r), 0);
        policy_recorder_start(r, 77, "both");
        policy_recorder_alloc(r, 77, BASE, 8 * MIB);
        policy_recorder_faults(r, 77, faults, ARRAY_SIZE(faults), 1000);
        policy_recorder_free(r);
        check_kinds(kinds, ARRAY_SIZE(kinds));
        t = load();
        CHECK_EQ(t->records[2].gpu, 2);
        CHECK_EQ(t->records[6].gpu, 0);
        CHECK_EQ(t->records[8].gpu, 2);
        CHECK_EQ(uvm_trace_gpus(t), 3);
        uvm_trace_free(t);
}

static void test_trouble(void)
{
        struct policy_recorder *r;

        CHECK(policy_recorder_new("/nonexistent/trace", 64, &r) < 0);
        CHECK_EQ(policy_recorder_flush(NULL), 0);
        policy_recorder_start(NULL, 1, "x");
        CHECK_EQ(policy_recorder_new("/dev/full", 64, &r), 0);
        policy_recorder_start(r, 1, "x");
        CHECK_EQ(policy_recorder_flush(r), -ENOSPC);
        policy_recorder_alloc(r, 1, BASE, MIB);
        CHECK_EQ(policy_recorder_flush(r), -ENOSPC); /* said as often as asked */
        policy_recorder_free(r);
}

/* What no longer fits is not left out in silence. */
static void test_full(void)
{
        static const uint8_t kinds[] = {UVM_TRACE_PROCESS, UVM_TRACE_ALLOC};
        struct policy_recorder *r;

        CHECK_EQ(policy_recorder_new(PATH, 2, &r), 0);
        policy_recorder_start(r, 1, "x");
        policy_recorder_alloc(r, 1, BASE, MIB);
        CHECK_EQ(policy_recorder_flush(r), 0);
        policy_recorder_freed(r, 1, BASE);
        CHECK_EQ(policy_recorder_flush(r), -EFBIG);
        policy_recorder_free(r);
        check_kinds(kinds, ARRAY_SIZE(kinds));
}

/* Who and what does not fit into a trace is left out, and said to be. */
static void test_too_many(void)
{
        struct policy_recorder *r;

        CHECK_EQ(policy_recorder_new(PATH, UVM_TRACE_RECORDS_MAX, &r), 0);
        for (uint64_t i = 1; i <= UVM_TRACE_PROCESSES; i++)
                CHECK_EQ(policy_recorder_start(r, i, "x"), 0);
        CHECK_EQ(policy_recorder_start(r, 99999, "x"), -ENOSPC);
        CHECK_EQ(policy_recorder_start(r, 1, "x"), 0); /* is there */
        policy_recorder_exit(r, 7);
        CHECK_EQ(policy_recorder_start(r, 99999, "x"), 0);
        for (uint64_t i = 0; i < TARGET_RANGES_MAX; i++)
                CHECK_EQ(policy_recorder_alloc(r, 1, BASE + i * 8192, 4096), 0);
        CHECK_EQ(policy_recorder_alloc(r, 1, BASE - MIB, 4096), -ENOSPC);
        policy_recorder_free(r);
}

int main(void)
{
        TEST(test_life);
        TEST(test_gpus);
        TEST(test_trouble);
        TEST(test_full);
        TEST(test_too_many);
        unlink(PATH);
        return 0;
}
