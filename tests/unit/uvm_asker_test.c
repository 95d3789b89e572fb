/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A tracker whose calls are made in a thread of its own, on a made-up driver (uvm_fake.h) that
 * does not return when it is told so, from opening, from a question, from closing.
 */
#include <errno.h>
#include <stdatomic.h>
#include <unistd.h>

#include "driver/silence.h"
#include "driver/uvm_asker.h"
#include "unit/test.h"
#include "unit/uvm_fake.h"
#include "util/mono_map.h"
#include "util/time.h"

#define SHORTLY_NS (200 * NSEC_PER_MSEC)
#define FOREVER_NS (50 * NSEC_PER_SEC) /* what hangs does until it is let go */

static atomic_bool hangs;
static atomic_int in_calls;

static void wait_for_driver(void)
{
        atomic_fetch_add(&in_calls, 1);
        while (atomic_load(&hangs))
                usleep(1000);
        atomic_fetch_sub(&in_calls, 1);
}

static int hanging_open(const char *path, int flags)
{
        wait_for_driver();
        return fake_system.open(path, flags);
}

static int hanging_close(int fd)
{
        wait_for_driver();
        return fake_system.close(fd);
}

static int hanging_ioctl(int fd, unsigned long request, void *argument)
{
        wait_for_driver();
        return fake_system.ioctl(fd, request, argument);
}

static struct uvm_system hanging_system;

static int read_fake_pair(void *data, struct clock_pair *ret_pair)
{
        *ret_pair = (struct clock_pair){
                .raw_ns = fake->raw_ns, .monotonic_ns = fake->monotonic_ns, .error_ns = 20};
        return 0;
}

/* What was told of an opening. */
struct told {
        int times, error;
        struct uvm_tracker *tracker;
};

static void on_opened(void *data, int error, struct uvm_tracker *tracker)
{
        struct told *t = data;

        t->times++;
        t->error = error;
        t->tracker = tracker;
}

static struct mono_map *map;

static struct uvm_asker *begin(struct told *told, bool hang)
{
        struct uvm_tracker_options o = {
                .pid = FAKE_PID, .start_ticks = FAKE_TICKS, .entries = 16, .map = map};
        struct uvm_asker *a = NULL;

        uvm_fake_reset();
        *told = (struct told){0};
        atomic_store(&hangs, hang);
        CHECK_EQ(uvm_asker_new(&hanging_system, &o, on_opened, told, &a), 0);
        return a;
}

static void wait_until_in_call(void)
{
        for (int i = 0; !atomic_load(&in_calls) && i < 60000; i++)
                usleep(1000);
        CHECK_EQ(atomic_load(&in_calls), 1);
}

static void end(struct uvm_asker *a)
{
        for (int i = 0; !uvm_asker_is_closed(a) && i < 60000; i++) {
                usleep(1000);
                uvm_asker_collect(a);
        }
        CHECK(uvm_asker_is_closed(a));
        uvm_asker_free(a, now_ns() + SILENCE_END_NS);
        CHECK_EQ(silence_abandoned(), 0);
        CHECK_EQ(fake->open_files, 0);
}

static void it_opens_learns_and_closes(void)
{
        uint8_t none[UVM_PROCESSORS_MAX][UVM_UUID_BYTES] = {{0}};
        struct told told;
        struct uvm_asker *a = begin(&told, false);

        CHECK(uvm_asker_wait(a, now_ns() + 60 * NSEC_PER_SEC));
        CHECK(told.times == 1 && told.error == 0 && told.tracker);
        uvm_tracker_set_processors(told.tracker, none);
        CHECK(!uvm_tracker_uuid(told.tracker, FAKE_GPU));
        CHECK(uvm_asker_learn(a, now_ns() + 60 * NSEC_PER_SEC));
        CHECK(memcmp(uvm_tracker_uuid(told.tracker, FAKE_GPU), fake_gpu_uuid, 16) == 0);
        uvm_asker_flush(a);
        uvm_asker_close(a);
        CHECK(!uvm_asker_learn(a, now_ns() + NSEC_PER_SEC)); /* too late */
        end(a);
        CHECK_EQ(told.times, 1);
}

static void who_cannot_be_watched_is_told(void)
{
        struct told told;
        struct uvm_asker *a = begin(&told, true);

        fake->alive = false;
        atomic_store(&hangs, false);
        CHECK(uvm_asker_wait(a, now_ns() + 60 * NSEC_PER_SEC));
        CHECK(told.times == 1 && told.error == -ESRCH && !told.tracker);
        uvm_asker_close(a);
        end(a);
}

static void an_opening_that_hangs_comes_late(void)
{
        struct told told;
        struct uvm_asker *a = begin(&told, true);
        uint64_t start = now_ns();

        CHECK(!uvm_asker_wait(a, start + SHORTLY_NS));
        CHECK(now_ns() - start < FOREVER_NS);
        uvm_asker_collect(a);
        CHECK_EQ(told.times, 0);
        atomic_store(&hangs, false);
        CHECK(uvm_asker_wait(a, now_ns() + 60 * NSEC_PER_SEC));
        CHECK(told.times == 1 && told.tracker);
        uvm_asker_close(a);
        end(a);
}

/* The process ended meanwhile: nobody is told, and nothing stays open. */
static void an_opening_that_hangs_is_closed(void)
{
        struct told told;
        struct uvm_asker *a = begin(&told, true);

        wait_until_in_call();
        uvm_asker_close(a);
        atomic_store(&hangs, false);
        end(a);
        CHECK_EQ(told.times, 0);
}

static void questions_that_hang_hold_nobody(void)
{
        struct told told;
        struct uvm_asker *a = begin(&told, false);
        uint8_t entry[64];
        uint64_t start;

        CHECK(uvm_asker_wait(a, now_ns() + 60 * NSEC_PER_SEC));
        atomic_store(&hangs, true);
        start = now_ns();
        CHECK(!uvm_asker_learn(a, start + SHORTLY_NS));
        CHECK(!uvm_asker_learn(a, start + 100 * NSEC_PER_SEC)); /* it is being asked already */
        uvm_asker_flush(a);
        uvm_fake_gpu_fault(entry, 0x7000, 42);
        uvm_fake_put(entry);
        uvm_asker_close(a);
        uvm_asker_collect(a);
        CHECK(now_ns() - start < FOREVER_NS);
        CHECK(!uvm_asker_is_closed(a));
        atomic_store(&hangs, false);
        end(a);
}

static void it_ends_in_the_midst_of_a_call(void)
{
        static struct uvm_asker *a; /* left alone, for good */
        struct told told;
        uint64_t start;

        a = begin(&told, false);
        CHECK(uvm_asker_wait(a, now_ns() + 60 * NSEC_PER_SEC));
        atomic_store(&hangs, true);
        uvm_asker_close(a);
        wait_until_in_call();
        start = now_ns();
        uvm_asker_free(a, start + SHORTLY_NS);
        CHECK(now_ns() - start < FOREVER_NS);
        CHECK_EQ(silence_abandoned(), 1);
        atomic_store(&hangs, false);
        for (int i = 0; silence_abandoned() && i < 60000; i++)
                usleep(1000);
        CHECK_EQ(silence_abandoned(), 0);
        CHECK_EQ(fake->open_files, 0); /* the call was made all the same */
}

int main(void)
{
        hanging_system = fake_system;
        hanging_system.open = hanging_open;
        hanging_system.close = hanging_close;
        hanging_system.ioctl = hanging_ioctl;
        uvm_fake_reset();
        map = mono_map_new(read_fake_pair, NULL);
        CHECK(map);
        CHECK_EQ(mono_map_read(map), 0);
        TEST(it_opens_learns_and_closes);
        TEST(who_cannot_be_watched_is_told);
        TEST(an_opening_that_hangs_comes_late);
        TEST(an_opening_that_hangs_is_closed);
        TEST(questions_that_hang_hold_nobody);
        TEST(it_ends_in_the_midst_of_a_call);
        mono_map_free(map);
        return 0;
}
