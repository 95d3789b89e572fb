/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Which GPU each device of a process is and whose clock it has, on made-up GPUs; and
 * what an agent's readings make of a clock: the truth lies within the bound, and the
 * bound is no wider than the readings and the time since the last one make it.
 */
#include "process_clocks.h"

#include <errno.h>

#include "correlate/clock_model.h"
#include "gpu_clocks.h"
#include "unit/test.h"

#define SEC     1000000000ULL
#define OFFSET  (1700000000ULL * SEC) /* of the agents' clocks */
#define BRACKET 3000                  /* ns, a reading's */
#define STEP    32                    /* ns, the clock's */

/* ---- the machine's GPUs: as many as are known, number 3 first, with UUIDs of 0xa0, 0xa1 ---- */

static struct {
        struct clock_model *model;
        size_t count;
} machine;

size_t gpu_clocks_count(const struct gpu_clocks *c)
{
        return machine.count;
}

const struct clock_model *gpu_clocks_find(const struct gpu_clocks *c, const uint8_t uuid[16],
                                          uint32_t *ret_gpu)
{
        if (uuid[0] < 0xa0 || (size_t)(uuid[0] - 0xa0) >= machine.count)
                return NULL;
        *ret_gpu = 3 + uuid[0] - 0xa0;
        return machine.model;
}

/* A process with two devices. */
static struct process_clocks *clocks_of(uint8_t first, uint8_t second)
{
        struct agent_hello hello = {.device_count = 2};
        struct process_clocks *c;

        memset(hello.device_uuids[0], first, 16);
        memset(hello.device_uuids[1], second, 16);
        CHECK_EQ(process_clocks_new(NULL, &hello, &c), 0);
        return c;
}

static const struct correlated_device *device_of(const struct process_clocks *c, size_t i)
{
        const struct correlated_device *devices;
        size_t count;

        devices = process_clocks_devices(c, &count);
        CHECK_EQ(count, 2);
        return &devices[i];
}

/* ---- which ---- */

static void known_gpus_have_the_machines_clock(void)
{
        struct process_clocks *c;

        machine.count = 2;
        c = clocks_of(0xa1, 0xa0);
        CHECK(device_of(c, 0)->clock == machine.model && device_of(c, 1)->clock == machine.model);
        CHECK(device_of(c, 0)->has_gpu && device_of(c, 1)->has_gpu);
        CHECK_EQ(device_of(c, 0)->gpu, 4);
        CHECK_EQ(device_of(c, 1)->gpu, 3);
        CHECK_EQ(process_clocks_asked(c), 0);
        CHECK_EQ(process_clocks_add(c, 0, &(struct clock_sample){1, 2, 3}), -ENODEV);
        process_clocks_free(c);
}

static void a_gpu_that_is_not_known_has_no_number(void)
{
        struct process_clocks *c;

        machine.count = 1;
        c = clocks_of(0xa0, 0xa1);
        CHECK(device_of(c, 0)->has_gpu && !device_of(c, 1)->has_gpu);
        CHECK_EQ(process_clocks_asked(c), 2);
        CHECK(device_of(c, 1)->clock && device_of(c, 1)->clock != machine.model);
        process_clocks_free(c);
}

static void without_gpus_the_ordinal_is_the_number(void)
{
        struct process_clocks *c;

        machine.count = 0;
        c = clocks_of(0xa0, 0xa1);
        CHECK(device_of(c, 0)->has_gpu && device_of(c, 1)->has_gpu);
        CHECK_EQ(device_of(c, 0)->gpu, 0);
        CHECK_EQ(device_of(c, 1)->gpu, 1);
        CHECK(device_of(c, 0)->clock != device_of(c, 1)->clock);
        CHECK_EQ(process_clocks_asked(c), 3);
        process_clocks_free(c);
}

/* ---- clocks ---- */

static uint64_t agents_clock(uint32_t device, uint64_t cpu_ns)
{
        uint64_t fast = cpu_ns * (device ? 7 : 3) / 1000000;

        return (OFFSET + device * SEC + cpu_ns + fast) / STEP * STEP;
}

/* The clock was read anywhere within the bracket. */
static int feed(struct process_clocks *c, uint32_t device, uint64_t at_ns, uint64_t after_ns)
{
        struct clock_sample sample = {at_ns, agents_clock(device, at_ns + after_ns),
                                      at_ns + BRACKET};

        return process_clocks_add(c, device, &sample);
}

/* The truth is within the bound, and that is at most this (it grows with the readings' age). */
static void check_time(const struct process_clocks *c, uint32_t device, uint64_t cpu_ns,
                       uint64_t most_ns)
{
        uint64_t got_ns, off;
        uint32_t error_ns;

        CHECK_EQ(clock_model_to_cpu(device_of(c, device)->clock, agents_clock(device, cpu_ns),
                                    &got_ns, &error_ns),
                 0);
        off = got_ns > cpu_ns ? got_ns - cpu_ns : cpu_ns - got_ns;
        CHECK(off <= error_ns);
        CHECK(error_ns <= most_ns);
}

static void each_device_has_a_clock_of_its_own(void)
{
        uint64_t seed = 5, cpu_ns;
        struct process_clocks *c;
        uint32_t error_ns;

        machine.count = 0;
        c = clocks_of(0, 0);
        CHECK_EQ(clock_model_to_cpu(device_of(c, 0)->clock, OFFSET, &cpu_ns, &error_ns), -EAGAIN);
        for (uint64_t s = 100; s < 130; s++)
                CHECK_EQ(feed(c, 0, s * SEC, test_random(&seed) % BRACKET), 0);
        CHECK_EQ(clock_model_to_cpu(device_of(c, 1)->clock, OFFSET, &cpu_ns, &error_ns), -EAGAIN);
        for (uint64_t s = 100; s < 130; s++)
                CHECK_EQ(feed(c, 1, s * SEC, test_random(&seed) % BRACKET), 0);
        for (uint32_t device = 0; device < 2; device++)
                for (uint64_t ms = 128000; ms < 130000; ms += 37)
                        check_time(c, device, ms * 1000000, BRACKET);
        CHECK_EQ(feed(c, 2, 131 * SEC, 0), -ENODEV);
        CHECK_EQ(feed(c, UINT32_MAX, 131 * SEC, 0), -ENODEV);
        CHECK_EQ(feed(c, 0, 99 * SEC, 0), -EINVAL);
        process_clocks_free(c);
}

/*
 * All readings at one end of their brackets, then at the other: the worst that an agent
 * can send. A bound narrower than half a bracket and a step is wrong here.
 */
static void the_bound_holds_for_the_worst_readings(void)
{
        for (int late = 0; late < 2; late++) {
                struct process_clocks *c;

                machine.count = 0;
                c = clocks_of(0, 0);
                for (uint64_t s = 100; s < 120; s++)
                        CHECK_EQ(feed(c, 0, s * SEC, late ? BRACKET : 0), 0);
                for (uint64_t ms = 118000; ms < 120000; ms += 41)
                        check_time(c, 0, ms * 1000000, BRACKET);
                process_clocks_free(c);
        }
}

int main(void)
{
        machine.model = clock_model_new(STEP);
        CHECK(machine.model);
        TEST(known_gpus_have_the_machines_clock);
        TEST(a_gpu_that_is_not_known_has_no_number);
        TEST(without_gpus_the_ordinal_is_the_number);
        TEST(each_device_has_a_clock_of_its_own);
        TEST(the_bound_holds_for_the_worst_readings);
        clock_model_free(machine.model);
        return 0;
}
