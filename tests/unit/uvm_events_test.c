/* SPDX-License-Identifier: Apache-2.0 */

/*
 * UVM events from a made-up driver: every kind by its offsets, a queue that wraps
 * and drops, garbage, clocks that drift apart, every step of opening failing in
 * turn, nothing left open.
 */
#include <errno.h>

#include "driver/uvm_event.h"
#include "driver/uvm_queue.h"
#include "driver/uvm_target.h"
#include "driver/uvm_tracker.h"
#include "unit/test.h"
#include "unit/uvm_fake.h"
#include "util/mono_map.h"

static struct uvm_event events[4096];
static uint64_t at[4096];
static size_t event_count;

static struct mono_map *map;

static void on_event(void *data, const struct uvm_event *e, const struct uvm_when *when)
{
        CHECK(event_count < 4096);
        at[event_count] = when->at_ns;
        events[event_count++] = *e;
        if (data)
                *(struct uvm_when *)data = *when;
}

static int read_fake_pair(void *data, struct clock_pair *ret_pair)
{
        *ret_pair = (struct clock_pair){
                .raw_ns = fake->raw_ns, .monotonic_ns = fake->monotonic_ns, .error_ns = 20};
        return 0;
}

/* The made-up clocks begin again with each test. */
static struct mono_map *fresh_map(void)
{
        mono_map_free(map);
        map = mono_map_new(read_fake_pair, NULL);
        CHECK(map);
        (void)mono_map_read(map); /* events are later than this */
        return map;
}

static struct uvm_tracker *start(uint32_t entries)
{
        struct uvm_tracker_options o = {
                .pid = FAKE_PID, .start_ticks = FAKE_TICKS, .entries = entries, .map = fresh_map()};
        struct uvm_tracker *t;

        event_count = 0;
        CHECK_EQ(uvm_tracker_new(&fake_system, &o, &t), 0);
        return t;
}

/* ---- decoding ---- */

static void put(uint8_t entry[64], size_t offset, uint64_t value, size_t size)
{
        memcpy(entry + offset, &value, size);
}

static void test_kinds(void)
{
        uint8_t e[64];
        struct uvm_event v;

        uvm_fake_gpu_fault(e, 0x7000, 42);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_GPU_FAULT && v.access == UVM_ACCESS_WRITE && v.source == FAKE_GPU);
        CHECK(v.gpc == 5 && v.client == 77 && v.batch == 99 && !v.client_hub && v.fault_type == 2);
        CHECK(v.address == 0x7000 && v.begin_raw_ns == 42 && v.begin_gpu_ns == 49 && v.bytes == 0);

        uvm_fake_cpu_fault(e, 0x8000, 43);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_CPU_FAULT && v.access == UVM_ACCESS_READ && v.cpu == 3);
        CHECK(v.tid == FAKE_PID + 1 && v.pc == 0x401000 && v.address == 0x8000);

        uvm_fake_migration(e, 3, 0, FAKE_GPU, 0x200000, 65536, 44);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_MIGRATION && v.cause == UVM_MIGRATED_PREFETCH);
        CHECK(v.source == UVM_CPU && v.target == FAKE_GPU && v.bytes == 65536);
        CHECK(v.begin_raw_ns == 44 && v.end_raw_ns == 54 && v.begin_gpu_ns == 45 &&
              v.end_gpu_ns == 53);
}

static void test_rarer_kinds(void)
{
        uint8_t e[64] = {14, 1, 0}; /* eviction */
        struct uvm_event v;

        put(e, 8, 0x600000, 8);
        put(e, 16, 0x800000, 8);
        put(e, 24, 2 << 20, 8);
        put(e, 32, 45, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_EVICTION && v.source == 1 && v.target == 0);
        CHECK(v.address == 0x600000 && v.address_in == 0x800000 && v.bytes == 2 << 20 &&
              v.begin_raw_ns == 45);

        memset(e, 0, sizeof(e));
        e[0] = 10; /* thrashing */
        put(e, 8, 3, 8);
        put(e, 16, 0x10000, 8);
        put(e, 24, 4096, 8);
        put(e, 32, 46, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_THRASHING && v.processors == 3 && v.address == 0x10000 &&
              v.bytes == 4096 && v.begin_raw_ns == 46);

        memset(e, 0, sizeof(e));
        e[0] = 13; /* mapped where it is */
        e[1] = 1;
        e[2] = 0;
        e[3] = 3;
        put(e, 8, 0x30000, 8);
        put(e, 16, 8192, 8);
        put(e, 24, 47, 8);
        put(e, 32, 48, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_MAP_REMOTE && v.cause == UVM_MAPPED_POLICY && v.source == 1 &&
              v.target == 0 && v.bytes == 8192 && v.begin_raw_ns == 47 && v.begin_gpu_ns == 48);

        memset(e, 0, sizeof(e));
        e[0] = 4; /* replay */
        e[1] = 1;
        put(e, 4, 99, 4);
        put(e, 8, 48, 8);
        put(e, 16, 50, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_REPLAY && v.batch == 99 && v.source == 1 && v.begin_gpu_ns == 50);

        memset(e, 0, sizeof(e));
        e[0] = 6; /* fatal */
        e[1] = 6;
        e[2] = 2;
        e[3] = 1;
        e[4] = 2;
        put(e, 8, 0xdead000, 8);
        put(e, 16, 51, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_FATAL_FAULT && v.cause == 2 && v.address == 0xdead000 &&
              v.fault_type == 6 && v.begin_raw_ns == 51);

        memset(e, 0, sizeof(e));
        e[0] = 11; /* throttling begins */
        e[1] = 1;
        put(e, 8, 0x5000, 8);
        put(e, 16, 52, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.kind == UVM_KIND_THROTTLE_BEGIN && v.source == 1 && v.begin_raw_ns == 52);

        memset(e, 0, sizeof(e));
        e[0] = 8; /* duplication ends */
        e[1] = 1;
        put(e, 8, 0x5000, 8);
        put(e, 16, 4096, 8);
        put(e, 24, 53, 8);
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK(v.target == 1 && v.bytes == 4096 && v.begin_raw_ns == 53);
}

static void test_impossible(void)
{
        struct uvm_event v = {.kind = 77}, before = v;
        uint8_t e[64] = {0};

        CHECK_EQ(uvm_event_decode(e, &v), -EBADMSG);
        e[0] = 15;
        CHECK_EQ(uvm_event_decode(e, &v), -EBADMSG);
        uvm_fake_migration(e, 1, 0, 33, 0x1000, 4096, 1); /* no such processor */
        CHECK_EQ(uvm_event_decode(e, &v), -EBADMSG);
        uvm_fake_migration(e, 1, 0, 1, 0x1000, UINT64_MAX, 1); /* around the end */
        CHECK_EQ(uvm_event_decode(e, &v), -EBADMSG);
        uvm_fake_gpu_fault(e, 1ULL << 60, 1); /* no user address */
        CHECK_EQ(uvm_event_decode(e, &v), -EBADMSG);
        CHECK(memcmp(&v, &before, sizeof(v)) == 0);
        uvm_fake_migration(e, 200, 0, 1, 0x1000, 4096, 1); /* a cause of a later driver */
        CHECK_EQ(uvm_event_decode(e, &v), 0);
        CHECK_EQ(v.cause, UVM_MIGRATED_UNKNOWN);
}

/* ---- the queue ---- */

static void test_wrap_and_drops(void)
{
        struct uvm_tracker_counts c;
        uint64_t put_out = 0, random = 1;
        struct uvm_tracker *t;
        uint8_t e[64];

        uvm_fake_reset();
        t = start(16);
        CHECK_EQ(fake->enabled, UVM_KINDS_DEFAULT);
        CHECK_EQ(fake->threshold, 2);
        for (int round = 0; round < 300; round++) {
                unsigned n = (unsigned)(test_random(&random) % 24);

                for (unsigned i = 0; i < n; i++, put_out++) {
                        uvm_fake_gpu_fault(e, FAKE_BASE + put_out * 4096, fake->raw_ns);
                        uvm_fake_put(e);
                }
                event_count = 0;
                CHECK_EQ(uvm_tracker_read(t, 4096, on_event, NULL), n < 15 ? n : 15);
                CHECK_EQ(event_count, n < 15 ? n : 15);
                for (size_t i = 0; i < event_count; i++)
                        CHECK_EQ(events[i].address, FAKE_BASE + (put_out - n + i) * 4096);
        }
        uvm_tracker_get_counts(t, &c);
        CHECK_EQ(c.read + c.dropped, put_out);
        CHECK(c.dropped > 0 && c.garbage == 0);
        uvm_tracker_free(t);
        CHECK_EQ(fake->open_files, 0);
}

static void test_max_and_garbage(void)
{
        struct uvm_tracker_counts c;
        struct uvm_tracker *t;
        uint8_t e[64];

        uvm_fake_reset();
        t = start(64);
        for (int i = 0; i < 10; i++) {
                uvm_fake_gpu_fault(e, FAKE_BASE, fake->raw_ns);
                if (i % 2)
                        e[0] = 0xee;
                uvm_fake_put(e);
        }
        CHECK_EQ(uvm_tracker_read(t, 4, on_event, NULL), 4);
        CHECK_EQ(event_count, 2);
        CHECK_EQ(uvm_tracker_read(t, 4, on_event, NULL), 4);
        CHECK_EQ(uvm_tracker_read(t, 4, on_event, NULL), 2);
        CHECK_EQ(event_count, 5);
        uvm_tracker_get_counts(t, &c);
        CHECK(c.read == 10 && c.garbage == 5);
        /* A write position out of the ring is taken modulo its size. */
        memset(fake->control + 8, 0xff, 8);
        CHECK_EQ(uvm_tracker_read(t, 4096, on_event, NULL), 63 - 10);
        uvm_tracker_free(t);
}

/* ---- opening ---- */

static void test_every_step_fails(void)
{
        struct uvm_tracker_options o = {
                .pid = FAKE_PID, .start_ticks = FAKE_TICKS, .entries = 16, .map = fresh_map()};
        struct uvm_tracker *t = NULL;
        int steps = 0;

        for (;; steps++) {
                int r;

                uvm_fake_reset();
                fake->fail_at = steps + 1;
                r = uvm_tracker_new(&fake_system, &o, &t);
                if (r == 0 && fake->calls < fake->fail_at)
                        break;
                /* Files that are of no use may fail without harm. */
                if (r == 0)
                        t = uvm_tracker_free(t);
                CHECK_EQ(fake->open_files, 0);
        }
        CHECK(steps >= 8);
        uvm_tracker_free(t);
        CHECK_EQ(fake->open_files, 0);
}

static void test_identity(void)
{
        struct uvm_tracker_options o = {
                .pid = FAKE_PID, .start_ticks = FAKE_TICKS + 1, .entries = 16, .map = fresh_map()};
        struct uvm_tracker *t = NULL;

        uvm_fake_reset();
        CHECK_EQ(uvm_tracker_new(&fake_system, &o, &t), -ESRCH); /* the pid was reused */
        o.start_ticks = FAKE_TICKS;
        o.entries = 15;
        CHECK_EQ(uvm_tracker_new(&fake_system, &o, &t), -EINVAL);
        o.entries = 16;
        fake->alive = false;
        CHECK_EQ(uvm_tracker_new(&fake_system, &o, &t), -ESRCH);
        fake->alive = true;
        CHECK_EQ(uvm_tracker_new(&fake_system, &o, &t), 0);
        CHECK(memcmp(uvm_tracker_uuid(t, FAKE_GPU), fake_gpu_uuid, 16) == 0);
        CHECK(memcmp(uvm_tracker_uuid(t, 0), fake_cpu_uuid, 16) == 0);
        CHECK(!uvm_tracker_uuid(t, 2) && !uvm_tracker_uuid(t, 1000));
        CHECK_EQ(uvm_tracker_flush(t), 0);
        CHECK(!uvm_tracker_ended(t));
        fake->alive = false;
        CHECK(uvm_tracker_ended(t));
        uvm_tracker_free(t);
        CHECK_EQ(fake->open_files, 0);
}

/* ---- time ---- */

/*
 * The clocks run 500 ppm apart, the most NTP does, and the rate changes: exact all the same, and
 * never farther off than what is said.
 */
static void test_clock(void)
{
        uint64_t worst = 0, off;
        struct uvm_when when;
        struct uvm_tracker *t;
        uint8_t entry[64];
        double rate = 1.0005;

        uvm_fake_reset();
        t = start(16);
        for (int i = 0; i < 400; i++) {
                uint64_t third = 1000000 + (uint64_t)i * 333, step = 3 * third, raw, monotonic;
                uint8_t e[64];

                if (i == 200)
                        rate = 0.9995;
                raw = fake->raw_ns + third;
                monotonic = fake->monotonic_ns + (uint64_t)((double)third * rate);
                fake->raw_ns += step;
                fake->monotonic_ns += (uint64_t)((double)step * rate);
                uvm_fake_migration(e, 1, 0, 1, FAKE_BASE, 4096, raw);
                uvm_fake_put(e);
                event_count = 0;
                CHECK_EQ(uvm_tracker_read(t, 16, on_event, &when), 1);
                CHECK(when.end_ns > at[0] && when.end_ns - at[0] <= 11);
                off = at[0] > monotonic ? at[0] - monotonic : monotonic - at[0];
                worst = off > worst ? off : worst;
                CHECK(off <= when.error_ns);
                CHECK(when.error_ns < (i % 200 < 20 ? 5000 : 200));
        }
        printf("worst error of a time: %llu ns\n", (unsigned long long)worst);
        CHECK(worst < 100);

        /* What is far from all readings says how far off it may be; what is no time stays none. */
        uvm_fake_cpu_fault(entry, FAKE_BASE, fake->raw_ns - 60000000000);
        uvm_fake_put(entry);
        uvm_fake_cpu_fault(entry, FAKE_BASE, 0);
        uvm_fake_put(entry);
        event_count = 0;
        CHECK_EQ(uvm_tracker_read(t, 1, on_event, &when), 1);
        CHECK(when.error_ns > 50000000);
        CHECK_EQ(uvm_tracker_read(t, 1, on_event, &when), 1);
        CHECK(when.at_ns == 0 && when.end_ns == 0 && when.error_ns == 0);
        uvm_tracker_free(t);
}

int main(void)
{
        TEST(test_kinds);
        TEST(test_rarer_kinds);
        TEST(test_impossible);
        TEST(test_wrap_and_drops);
        TEST(test_max_and_garbage);
        TEST(test_every_step_fails);
        TEST(test_identity);
        TEST(test_clock);
        mono_map_free(map);
        return 0;
}
