/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Limits on launches, the agent's side (agent/pace.h) against the daemon's
 * (probe/launch_pace.h): a thread in the place of the GPU writes start records.
 * The clock goes on as it is read or, where another thread waits, as the test says.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/pace.h"
#include "probe/launch_pace.h"
#include "unit/test.h"
#include "unit/test_clock.h"
#include "util/time.h"

#define ENTRIES 256
#define MSEC    NSEC_PER_MSEC

/* A reading; not held: the readings of one launch; held no longer than the bound. */
#define STEP_NS  MSEC
#define SHORT_NS (4 * STEP_NS)
#define LONG_NS  (AGENT_PACE_WAIT_MAX_NS + 4 * STEP_NS)

static struct agent_launch_map *map;
static struct device_record ring[ENTRIES];
static _Atomic uint64_t written; /* start records */
static int capture_status, capture_result, range_result;
static uint64_t asked_stream;

/* Until others have read the clock so often: who waits reads it again and again. */
static void await_readings(uint64_t count)
{
        uint64_t end = test_readings + count;

        while (test_readings < end)
                usleep(50);
}

static int is_capturing(cuda_handle stream, int *status)
{
        asked_stream = (uintptr_t)stream;
        *status = capture_status;
        return capture_result;
}

static int priority_range(int *least, int *greatest)
{
        *least = 0;
        *greatest = -5;
        return range_result;
}

static const struct cuda_api api = {.stream_is_capturing = is_capturing,
                                    .stream_priority_range = priority_range};

static void begin(void)
{
        if (!map)
                map = malloc(sizeof(*map));
        CHECK(map);
        memset(map, 0, sizeof(*map));
        memset(ring, 0, sizeof(ring));
        written = 0;
        test_step_ns = STEP_NS;
        capture_status = capture_result = range_result = 0;
        map->contexts[0].handle = 1;
        pace_begin(&api, map, ring, ENTRIES);
}

static void alive(uint64_t at_ns, uint64_t position, uint32_t started)
{
        launch_pace_started(map, position, started);
        launch_pace_alive(map, at_ns);
}

static void limit(uint32_t waiting, uint32_t rate)
{
        alive(now_ns(), written, (uint32_t)written);
        launch_pace_set(map, &(struct launch_limits){.waiting = waiting, .rate = rate});
}

static void write_record(uint64_t n, enum device_record_type type)
{
        struct device_record r = {.time_ns = 1000 + n,
                                  .grid = DEVICE_RECORD_GRID(n + 1, type, 1),
                                  .who = DEVICE_RECORD_WHO(1, 2, 3)};

        r.check = r.time_ns ^ r.grid * DEVICE_SEAL_GRID ^ r.who * DEVICE_SEAL_WHO ^ (n + 1);
        CHECK_EQ(device_record_index(&r), n);
        ring[n % ENTRIES] = r;
}

/* Counted first: by the count never more waits than by the records. */
static void start_one(void)
{
        uint64_t n = written++;

        write_record(n, DEVICE_RECORD_START);
}

static uint64_t held_for(void)
{
        uint64_t began = now_ns();

        errno = 77;
        pace_hold(5);
        CHECK_EQ(errno, 77);
        return now_ns() - began;
}

static void enter(void)
{
        __atomic_add_fetch(&map->contexts[0].entered, 1, __ATOMIC_RELAXED);
}

static struct launch_paced paced(void)
{
        struct launch_paced p = {0};

        launch_pace_read(map, &p);
        return p;
}

/* ---- the limit of what waits ---- */

#define KERNELS   60
#define KERNEL_NS (2 * MSEC)

static _Atomic bool launching;
static uint32_t allowed; /* to wait */

static uint32_t entered(void)
{
        return __atomic_load_n(&map->contexts[0].entered, __ATOMIC_SEQ_CST);
}

static void await_launcher(uint64_t count)
{
        uint64_t end = test_readings + count;

        while (launching && test_readings < end)
                usleep(50);
}

/*
 * While there are launches kernels start only when as many wait as may, and somebody
 * is held. Time goes on while one runs, and that is seen before the next starts. The
 * daemon looks now and then.
 */
static void *gpu(void *unused)
{
        while (launching || written < entered()) {
                if (written == entered() || (launching && entered() - written < allowed)) {
                        usleep(50);
                        continue;
                }
                await_launcher(3);
                test_time_ns += KERNEL_NS;
                await_launcher(2);
                start_one();
                if (written % 7 == 0)
                        alive(test_time_ns, written, (uint32_t)written);
        }
        return NULL;
}

static _Atomic uint32_t deepest;

static void *launch(void *count)
{
        for (int i = 0; i < *(int *)count; i++) {
                uint32_t now, most = deepest;
                int32_t deep;

                pace_hold(0);
                enter();
                now = entered();
                deep = (int32_t)(now - (uint32_t)written);
                while (deep > (int32_t)most &&
                       !atomic_compare_exchange_weak(&deepest, &most, (uint32_t)deep))
                        ;
        }
        return NULL;
}

static void run(int threads, int launches)
{
        pthread_t gpu_thread, thread[8];

        deepest = 0;
        launching = true;
        CHECK_EQ(pthread_create(&gpu_thread, NULL, gpu, NULL), 0);
        for (int i = 0; i < threads; i++)
                CHECK_EQ(pthread_create(&thread[i], NULL, launch, &launches), 0);
        for (int i = 0; i < threads; i++)
                pthread_join(thread[i], NULL);
        launching = false;
        pthread_join(gpu_thread, NULL);
        CHECK_EQ(map->contexts[0].entered, threads * launches);
        CHECK_EQ(written, threads * launches);
}

static void begin_waiting(uint32_t waiting)
{
        begin();
        CHECK(launch_pace_can_hold(map) && launch_pace_can_prioritize(map));
        CHECK(!pace_limits(map));
        limit(waiting, 0);
        CHECK(pace_limits(map));
        test_step_ns = 0;
        allowed = waiting;
}

/* All but the first two wait, each for a kernel that runs. */
static void test_waiting(void)
{
        begin_waiting(2);
        run(1, KERNELS);
        CHECK_EQ(deepest, 2);
        CHECK_EQ(paced().held, KERNELS - 2);
        CHECK_EQ(paced().held_ns, (KERNELS - 2) * KERNEL_NS);
        CHECK_EQ(paced().late, 0);
        CHECK(!paced().blind);
}

/* Threads may exceed it by one each, as they look at the same time. */
static void test_threads(void)
{
        begin_waiting(3);
        run(4, KERNELS / 4);
        CHECK(deepest >= 3 && deepest <= 6);
        CHECK_EQ(paced().late, 0);
}

/* ---- what ends a wait ---- */

#define WAITED_NS (20 * MSEC)

static uint64_t waited_ns;

static void *wait_once(void *unused)
{
        waited_ns = held_for();
        return NULL;
}

static pthread_t wait_in_thread(void)
{
        pthread_t t;

        enter();
        limit(1, 0);
        test_step_ns = 0;
        CHECK_EQ(pthread_create(&t, NULL, wait_once, NULL), 0);
        await_readings(5); /* the first two are made before it waits */
        test_time_ns += WAITED_NS;
        await_readings(2);
        return t;
}

static void check_ended(pthread_t t)
{
        pthread_join(t, NULL);
        CHECK_EQ(waited_ns, WAITED_NS);
        CHECK_EQ(paced().held, 1);
        CHECK_EQ(paced().held_ns, WAITED_NS);
        CHECK_EQ(paced().late, 0);
}

static void test_lifted(void)
{
        pthread_t t;

        begin();
        t = wait_in_thread();
        launch_pace_set(map, &(struct launch_limits){0});
        check_ended(t);

        begin();
        t = wait_in_thread();
        launch_pace_set(map, &(struct launch_limits){.waiting = 10});
        check_ended(t);

        begin();
        t = wait_in_thread();
        start_one();
        check_ended(t);

        /* The daemon knows that it has started, by a synchronize. */
        begin();
        t = wait_in_thread();
        alive(now_ns(), 0, 1);
        check_ended(t);

        /* The daemon is gone. */
        begin();
        t = wait_in_thread();
        alive(now_ns() - AGENT_PACE_SILENCE_NS, 0, 0);
        check_ended(t);
        CHECK(held_for() < SHORT_NS);
}

static void test_bound(void)
{
        begin();
        enter();
        limit(1, 0);
        for (int i = 0; i < 4; i++) {
                uint64_t ns;

                CHECK(!paced().blind);
                alive(now_ns(), 0, 0);
                ns = held_for();
                CHECK(ns >= AGENT_PACE_WAIT_MAX_NS && ns < LONG_NS);
        }
        CHECK_EQ(paced().late, 4);
        /* Nothing ever starts: given up, until there is another limit. */
        CHECK(paced().blind);
        alive(now_ns(), 0, 0);
        CHECK(held_for() < SHORT_NS);
        limit(1, 0);
        CHECK(!paced().blind);
        CHECK(held_for() >= AGENT_PACE_WAIT_MAX_NS);
}

/* Records that are lost are passed when the daemon has passed them. */
static void test_lost(void)
{
        begin();
        for (int i = 0; i < 3; i++)
                enter();
        limit(1, 0);
        write_record(0, DEVICE_RECORD_START);
        write_record(2, DEVICE_RECORD_START);
        CHECK(held_for() >= AGENT_PACE_WAIT_MAX_NS);
        alive(now_ns(), 2, 2);
        CHECK(held_for() < SHORT_NS);
}

/* Ends are no starts; kernels of graphs start without having been launched. */
static void test_others(void)
{
        begin();
        enter();
        limit(1, 0);
        write_record(0, DEVICE_RECORD_END);
        CHECK(held_for() >= AGENT_PACE_WAIT_MAX_NS);

        begin();
        enter();
        limit(2, 0);
        for (int i = 0; i < 10; i++)
                start_one();
        CHECK(held_for() < SHORT_NS);
        enter();
        enter();
        CHECK(held_for() >= AGENT_PACE_WAIT_MAX_NS);
}

static void test_capture(void)
{
        begin();
        enter();
        limit(1, 0);
        capture_status = 1;
        CHECK(held_for() < SHORT_NS);
        CHECK_EQ(asked_stream, 5);
        capture_status = 0;
        capture_result = 906; /* the legacy stream, while another is captured */
        CHECK(held_for() < SHORT_NS);
        capture_result = 0;
        CHECK(held_for() >= AGENT_PACE_WAIT_MAX_NS);
}

/* ---- the rate ---- */

static uint32_t launches_in(uint64_t ns)
{
        uint64_t end = now_ns() + ns;
        uint32_t n = 0;

        for (; now_ns() < end; n++)
                pace_hold(0);
        return n;
}

static void test_rate(void)
{
        uint32_t n;

        begin();
        test_step_ns = STEP_NS / 20;
        limit(0, 1000);
        n = launches_in(300 * MSEC);
        CHECK(n >= 300 && n <= 311); /* a hundredth of a second's at once */
        CHECK_EQ(paced().late, 0);
        /* The slowest there may be takes no longer than its bound, either. */
        limit(0, 10);
        pace_hold(0);
        CHECK(held_for() <= LONG_NS);
        /* One that is faster again does not wait for the places of the slow one. */
        limit(0, 100000);
        CHECK(held_for() <= LONG_NS);
        CHECK(launches_in(100 * MSEC) > 500);
}

/* ---- whatever the map says ---- */

static void garble(void *at, size_t size)
{
        for (size_t i = 0; i < size; i++)
                ((unsigned char *)at)[i] = (unsigned char)random();
}

static void test_garbage(void)
{
        for (int i = 0; i < 25; i++) {
                int priority;

                begin();
                garble(&map->pace, sizeof(map->pace));
                garble(&map->paced, sizeof(map->paced));
                garble(map->contexts, sizeof(map->contexts));
                garble(ring, sizeof(ring));
                map->pace.alive_ns = i % 5 ? now_ns() : map->pace.alive_ns;
                map->pace.version &= i % 4 ? ~1u : ~0u;
                map->wishes.limits = 1;
                CHECK(held_for() < LONG_NS);
                if (pace_stream_priority(&priority))
                        CHECK(priority >= -5 && priority <= 0);
        }
}

/* ---- streams ---- */

static bool priority_for(uint32_t wanted, int *ret_priority)
{
        launch_pace_set(map, &(struct launch_limits){.priority = wanted});
        return pace_stream_priority(ret_priority);
}

static void test_priorities(void)
{
        int priority = 77;

        begin();
        CHECK(!priority_for(1, &priority)); /* nobody has said that it is there */
        alive(now_ns(), 0, 0);
        CHECK(!pace_limits(map)); /* that costs launches nothing */
        CHECK(!priority_for(0, &priority));
        CHECK_EQ(priority, 77);
        CHECK(priority_for(1, &priority) && priority == -5);
        CHECK(priority_for(3, &priority) && priority == -3);
        CHECK(priority_for(6, &priority) && priority == 0);
        CHECK(priority_for(64, &priority) && priority == 0);
        CHECK(priority_for(UINT32_MAX, &priority) && priority == 0);
        pace_stream_made();
        CHECK_EQ(paced().streams, 1);
        range_result = 201;
        CHECK(!priority_for(1, &priority));
        range_result = 0;
        alive(now_ns() - AGENT_PACE_SILENCE_NS, 0, 0);
        CHECK(!priority_for(1, &priority));
}

/* The agent says that it goes by what was set last, and only then. */
static void test_answered(void)
{
        int priority;

        begin();
        CHECK(!paced().heeded);
        limit(2, 0);
        CHECK(!paced().heeded);
        CHECK(held_for() < SHORT_NS);
        CHECK(paced().heeded);
        limit(3, 0);
        CHECK(!paced().heeded); /* not yet by these */
        alive(now_ns() - 2 * AGENT_PACE_SILENCE_NS, 0, 0);
        CHECK(held_for() < SHORT_NS);
        CHECK(!paced().heeded); /* nor by a daemon's that is gone */
        alive(now_ns(), 0, 0);
        launch_pace_set(map, &(struct launch_limits){.priority = 1});
        CHECK(pace_stream_priority(&priority));
        CHECK(paced().heeded);
}

int main(void)
{
        int priority;

        pace_hold(0); /* before it has begun: nothing */
        CHECK(!pace_stream_priority(&priority));
        TEST(test_waiting);
        TEST(test_threads);
        TEST(test_lifted);
        TEST(test_bound);
        TEST(test_lost);
        TEST(test_others);
        TEST(test_capture);
        TEST(test_rate);
        TEST(test_garbage);
        TEST(test_priorities);
        TEST(test_answered);
        free(map);
        return 0;
}
