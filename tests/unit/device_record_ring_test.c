/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/device_abi.h"
#include "device/record_ring.h"
#include "unit/test.h"

#define PATIENCE_NS UINT64_C(20000000)
#define ENTRIES     UINT64_C(65536)

/* A ring in a memfd, seen from both sides. */
struct fixture {
        struct record_ring *ring;
        struct device_record *slots;
};

static struct fixture fixture_new(uint64_t position)
{
        struct fixture f = {};
        int fd = memfd_create("ring", 0);

        CHECK(fd >= 0 && ftruncate(fd, DEVICE_RING_BYTES) == 0);
        f.slots = mmap(NULL, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(f.slots != MAP_FAILED);
        CHECK_EQ(record_ring_adopt(fd, position, &f.ring), 0);
        return f;
}

static void fixture_done(struct fixture *f)
{
        record_ring_free(f->ring);
        munmap(f->slots, DEVICE_RING_BYTES);
}

/* Record n as the device program writes it; everything in it follows from n. */
static struct device_record make_record(uint64_t n)
{
        uint64_t seed = n;
        struct device_record r = {
                .time_ns = test_random(&seed),
                .grid = (n & 0xffffffff) | (n & 1 ? 1ULL : 2ULL) << 40,
                .who = test_random(&seed) & 0xffffffffffff,
        };

        r.check = (n + 1) ^ r.time_ns ^ (r.grid * DEVICE_SEAL_GRID) ^ (r.who * DEVICE_SEAL_WHO);
        return r;
}

static void put(struct fixture *f, uint64_t n)
{
        f->slots[n % ENTRIES] = make_record(n);
}

/* Collects what the reader hands out and checks it. */
struct collector {
        uint64_t next;  /* index expected next */
        uint64_t count; /* records received */
        uint64_t lost;  /* sum of the gaps */
        uint64_t gaps;
};

static void on_record(void *data, const struct device_record *rec)
{
        struct collector *c = data;
        struct device_record expected = make_record(c->next);

        CHECK_EQ(device_record_index(rec), c->next);
        CHECK(memcmp(rec, &expected, sizeof(expected)) == 0);
        c->next++;
        c->count++;
}

static void on_gap(void *data, uint64_t lost)
{
        struct collector *c = data;

        CHECK(lost > 0);
        c->next += lost;
        c->lost += lost;
        c->gaps++;
}

static size_t take(struct fixture *f, struct collector *c, uint64_t now_ns)
{
        return record_ring_read(f->ring, now_ns, 1000000, on_record, on_gap, c);
}

static void test_empty_ring_gives_nothing(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};

        CHECK_EQ(take(&f, &c, 0), 0);
        CHECK_EQ(take(&f, &c, 10 * PATIENCE_NS), 0);
        CHECK_EQ(record_ring_position(f.ring), 0);
        fixture_done(&f);
}

static void test_records_come_in_order_over_many_rounds(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        uint64_t n = 0, seed = 7;

        while (n < 5 * ENTRIES) {
                uint64_t batch = test_random(&seed) % 20000;

                for (uint64_t i = 0; i < batch; i++)
                        put(&f, n++);
                CHECK_EQ(take(&f, &c, 0), batch);
        }
        CHECK_EQ(c.count, n);
        CHECK_EQ(c.gaps, 0);
        fixture_done(&f);
}

static void test_max_is_kept(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};

        for (uint64_t n = 0; n < 100; n++)
                put(&f, n);
        CHECK_EQ(record_ring_read(f.ring, 0, 30, on_record, on_gap, &c), 30);
        CHECK_EQ(record_ring_position(f.ring), 30);
        CHECK_EQ(record_ring_read(f.ring, 0, 0, on_record, on_gap, &c), 0);
        CHECK_EQ(take(&f, &c, 0), 70);
        fixture_done(&f);
}

static void test_hole_that_fills_loses_nothing(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};

        put(&f, 0);
        put(&f, 2);
        CHECK_EQ(take(&f, &c, 1000), 1);
        CHECK_EQ(take(&f, &c, 1000 + PATIENCE_NS - 1), 0);
        put(&f, 1);
        CHECK_EQ(take(&f, &c, 1000 + 2 * PATIENCE_NS), 2);
        CHECK_EQ(c.lost, 0);
        fixture_done(&f);
}

static void test_hole_that_stays_is_torn(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        struct record_ring_losses losses;

        put(&f, 0);
        put(&f, 3);
        put(&f, 5);
        f.slots[1] = make_record(1);
        f.slots[1].who ^= 1; /* one word of it is not there yet */
        CHECK_EQ(take(&f, &c, 1000), 1);
        CHECK_EQ(take(&f, &c, 1000 + PATIENCE_NS), 2);
        record_ring_get_losses(f.ring, &losses);
        CHECK_EQ(losses.torn, 3);
        CHECK_EQ(losses.overrun + losses.garbage, 0);
        CHECK_EQ(c.lost, 3);
        CHECK_EQ(c.gaps, 2);
        fixture_done(&f);
}

/* What was claimed after the mark was set gets its own patience. */
static void test_late_hole_waits_for_itself(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};

        put(&f, 1);
        CHECK_EQ(take(&f, &c, 0), 0);
        put(&f, 3);
        CHECK_EQ(take(&f, &c, PATIENCE_NS), 1);
        put(&f, 2);
        CHECK_EQ(take(&f, &c, PATIENCE_NS + 1), 2);
        CHECK_EQ(c.lost, 1);
        fixture_done(&f);
}

static void test_long_run_of_lost_records_is_passed(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        uint64_t now_ns = 0;

        put(&f, 30000);
        for (unsigned i = 0; i < 200 && c.count == 0; i++) {
                now_ns += PATIENCE_NS;
                take(&f, &c, now_ns);
        }
        CHECK_EQ(c.count, 1);
        CHECK_EQ(c.lost, 30000);
        fixture_done(&f);
}

static void test_overrun_keeps_what_is_left(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        struct record_ring_losses losses;
        uint64_t written = 3 * ENTRIES + 12345;

        for (uint64_t n = 0; n < written; n++)
                put(&f, n);
        CHECK_EQ(take(&f, &c, 0), ENTRIES);
        record_ring_get_losses(f.ring, &losses);
        CHECK_EQ(losses.overrun, written - ENTRIES);
        CHECK_EQ(c.lost, losses.overrun);
        CHECK_EQ(c.next, written);
        fixture_done(&f);
}

static void test_unknown_type_is_garbage(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        struct record_ring_losses losses;
        struct device_record *r = &f.slots[1];

        put(&f, 0);
        put(&f, 1);
        put(&f, 2);
        r->grid = 99ULL << 40;
        r->check = 2 ^ r->time_ns ^ (r->grid * DEVICE_SEAL_GRID) ^ (r->who * DEVICE_SEAL_WHO);
        CHECK_EQ(take(&f, &c, 0), 2);
        record_ring_get_losses(f.ring, &losses);
        CHECK_EQ(losses.garbage, 1);
        CHECK_EQ(c.lost, 1);
        fixture_done(&f);
}

/* A slot sealed for an index no device can have reached is not believed. */
static void test_absurd_index_is_not_believed(void)
{
        static const uint64_t absurd[] = {UINT64_C(1) << 60, UINT64_C(1) << 41,
                                          UINT64_MAX - ENTRIES + 1, 5, ENTRIES + 5};
        struct fixture f = fixture_new(0);
        struct collector c = {};

        for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++) {
                f.slots[0] = make_record(absurd[i]);
                CHECK_EQ(take(&f, &c, 0), 0);
                CHECK_EQ(record_ring_position(f.ring), 0);
        }
        put(&f, 0);
        CHECK_EQ(take(&f, &c, 0), 1);
        fixture_done(&f);
}

static void ignore_record(void *data, const struct device_record *rec)
{
        CHECK(DEVICE_RECORD_TYPE(rec) == DEVICE_RECORD_START ||
              DEVICE_RECORD_TYPE(rec) == DEVICE_RECORD_END);
        (*(uint64_t *)data)++;
}

static void ignore_gap(void *data, uint64_t lost)
{
        CHECK(lost > 0);
}

/* Slots that all claim to have been overwritten by far: each call still ends, in bounded work. */
static void test_forged_overruns_end(void)
{
        struct fixture f = fixture_new(0);
        uint64_t taken = 0, before = 0;

        for (unsigned call = 0; call < 50; call++) {
                uint64_t position = record_ring_position(f.ring);

                CHECK(position >= before);
                before = position;
                for (uint64_t i = 0; i < ENTRIES; i++)
                        f.slots[(position + i) % ENTRIES] =
                                make_record(position + i + (i + 1) * 8 * ENTRIES);
                record_ring_read(f.ring, call * PATIENCE_NS, 100, ignore_record, ignore_gap,
                                 &taken);
        }
        fixture_done(&f);
}

static void test_positions_near_the_end_of_numbers(void)
{
        struct fixture f = fixture_new((UINT64_C(1) << 62) - 3);
        uint64_t taken = 0;

        for (uint64_t n = (UINT64_C(1) << 62) - 3; n < (UINT64_C(1) << 62) + 100; n++)
                put(&f, n);
        CHECK_EQ(record_ring_read(f.ring, 0, 1000, ignore_record, ignore_gap, &taken), 103);
        fixture_done(&f);
}

/* A writer beside the reader: words in any order, some records late, some never. */
struct writer {
        struct fixture *f;
        uint64_t count;
        uint64_t skipped; /* records that were never written */
        unsigned skip_one_in;
        uint64_t read; /* where the reader is */
        bool done;
};

static void write_words(struct fixture *f, uint64_t n, uint64_t order)
{
        struct device_record r = make_record(n);
        uint64_t *words = (uint64_t *)&f->slots[n % ENTRIES];

        for (unsigned i = 0; i < 4; i++) {
                unsigned w = (i + (unsigned)order) % 4;

                __atomic_store_n(&words[w], ((uint64_t *)&r)[w], __ATOMIC_RELAXED);
        }
}

static void *writer_run(void *data)
{
        struct writer *w = data;
        uint64_t seed = 99, late = UINT64_MAX;

        for (uint64_t n = 0; n < w->count; n++) {
                uint64_t dice = test_random(&seed);

                if (w->skip_one_in && dice % w->skip_one_in == 0)
                        w->skipped++;
                else if (dice % 5 == 0 && late == UINT64_MAX)
                        late = n;
                else
                        write_words(w->f, n, dice >> 32);
                if (late != UINT64_MAX && (n - late > dice % 50 || n + 1 == w->count)) {
                        write_words(w->f, late, dice >> 40);
                        late = UINT64_MAX;
                }
                /* Stay within the ring: overruns have their own test. */
                while (late == UINT64_MAX &&
                       n > __atomic_load_n(&w->read, __ATOMIC_ACQUIRE) + ENTRIES / 2)
                        sched_yield();
        }
        __atomic_store_n(&w->done, true, __ATOMIC_RELEASE);
        return NULL;
}

static uint64_t clock_ns(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/*
 * now_ns tells the time to the reader. Returns when all was read or, when records
 * are left out on purpose, when the writer is done and nothing comes any more.
 */
static void run_with_writer(uint64_t count, unsigned skip_one_in, uint64_t (*now_ns)(void))
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        struct writer w = {.f = &f, .count = count, .skip_one_in = skip_one_in};
        struct record_ring_losses losses;
        unsigned idle = 0;
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, writer_run, &w) == 0);
        while (c.next < count && idle < 100) {
                size_t n = take(&f, &c, now_ns());

                __atomic_store_n(&w.read, record_ring_position(f.ring), __ATOMIC_RELEASE);
                if (!n && __atomic_load_n(&w.done, __ATOMIC_ACQUIRE)) {
                        usleep(1000);
                        idle++;
                } else {
                        idle = 0;
                }
        }
        CHECK(pthread_join(thread, NULL) == 0);
        record_ring_get_losses(f.ring, &losses);
        CHECK_EQ(losses.overrun + losses.garbage, 0);
        CHECK_EQ(c.count + losses.torn, record_ring_position(f.ring));
        CHECK(c.lost <= losses.torn);
        CHECK(record_ring_position(f.ring) + 64 > count);
        if (!skip_one_in)
                CHECK_EQ(c.count, count);
        else
                CHECK(losses.torn >= w.skipped - 64);
        fixture_done(&f);
}

static uint64_t stopped_clock(void)
{
        return 0;
}

/* With time standing still no hole can run out of patience. */
static void test_concurrent_writer_loses_nothing(void)
{
        run_with_writer(1000000, 0, stopped_clock);
}

static void test_concurrent_writer_with_lost_records(void)
{
        run_with_writer(300000, 1000, clock_ns);
}

static void *noise_run(void *data)
{
        struct writer *w = data;
        uint64_t seed = 5;
        uint64_t *words = (uint64_t *)w->f->slots;

        while (!__atomic_load_n(&w->done, __ATOMIC_ACQUIRE)) {
                uint64_t at = test_random(&seed) % (4 * ENTRIES);
                uint64_t n =
                        __atomic_load_n(&w->read, __ATOMIC_ACQUIRE) + test_random(&seed) % 1000;

                __atomic_store_n(&words[at], test_random(&seed), __ATOMIC_RELAXED);
                write_words(w->f, n + (n % 3) * ENTRIES, at);
        }
        return NULL;
}

/* Slots that change while they are read: whatever comes out is sealed and of a known type. */
static void test_hostile_writer(void)
{
        struct fixture f = fixture_new(0);
        struct writer w = {.f = &f};
        uint64_t taken = 0, deadline_ns = clock_ns() + 30000000000;
        pthread_t thread;

        CHECK(pthread_create(&thread, NULL, noise_run, &w) == 0);
        /* On a busy machine the writer may not get to run for a while. */
        for (unsigned i = 0; i < 2000 || (!taken && clock_ns() < deadline_ns); i++) {
                record_ring_read(f.ring, i * PATIENCE_NS / 4, 500, ignore_record, ignore_gap,
                                 &taken);
                __atomic_store_n(&w.read, record_ring_position(f.ring), __ATOMIC_RELEASE);
        }
        __atomic_store_n(&w.done, true, __ATOMIC_RELEASE);
        pthread_join(thread, NULL);
        CHECK(taken > 0);
        fixture_done(&f);
}

/* The real map: what eBPF's own access writes, the reader sees. */
static void test_kernel_map(void)
{
        struct record_ring *ring;
        int error = record_ring_new(&ring);
        struct device_record *slots;
        uint64_t taken = 0;

        if (error == -EPERM) {
                printf("   (no right to create eBPF maps: not tested)\n");
                return;
        }
        CHECK_EQ(error, 0);
        slots = mmap(NULL, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                     record_ring_fd(ring), 0);
        CHECK(slots != MAP_FAILED);
        slots[0] = make_record(0);
        CHECK_EQ(record_ring_read(ring, 0, 10, ignore_record, ignore_gap, &taken), 1);
        munmap(slots, DEVICE_RING_BYTES);
        record_ring_free(ring);
}

static void test_what_is_saved_comes_first_and_in_order(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        uint64_t n = 0;

        for (; n < ENTRIES / 2; n++) {
                put(&f, n);
                if (n % 1000 == 999)
                        CHECK_EQ(record_ring_save(f.ring, 0, 1000000), 1000);
        }
        CHECK_EQ(record_ring_save(f.ring, 0, 1000000), n % 1000);
        CHECK_EQ(record_ring_position(f.ring), n);
        CHECK_EQ(record_ring_read(f.ring, 0, 1000, on_record, on_gap, &c), 1000);
        /* while the rest is dealt with, the ring goes round again */
        for (uint64_t end = n + 2 * ENTRIES; n < end;) {
                for (uint64_t i = 0; i < 8192; i++)
                        put(&f, n++);
                CHECK_EQ(record_ring_read(f.ring, 0, 8192, on_record, on_gap, &c), 8192);
        }
        while (take(&f, &c, 0) > 0)
                ;
        CHECK_EQ(c.count, n);
        CHECK_EQ(c.gaps, 0);
        fixture_done(&f);
}

static void test_a_loss_keeps_its_place_among_saved_records(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};

        for (uint64_t n = 0; n < 10; n++)
                put(&f, n);
        CHECK_EQ(record_ring_save(f.ring, 0, 1000000), 10);
        for (uint64_t n = 10; n < 10 + ENTRIES + 5; n++)
                put(&f, n);
        CHECK_EQ(record_ring_save(f.ring, 0, 100), 100);
        CHECK_EQ(take(&f, &c, 0), ENTRIES + 10);
        CHECK_EQ(c.lost, 5);
        CHECK_EQ(c.gaps, 1);
        CHECK_EQ(c.next, ENTRIES + 15);
        fixture_done(&f);
}

static void test_no_more_than_so_many_are_saved(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        struct record_ring_losses losses;

        for (uint64_t n = 0; n < ENTRIES; n++)
                put(&f, n);
        CHECK_EQ(record_ring_save(f.ring, 0, 1000000), ENTRIES / 2);
        CHECK_EQ(record_ring_save(f.ring, 0, 1000000), 0);
        for (uint64_t n = ENTRIES; n < 2 * ENTRIES; n++)
                put(&f, n);
        while (take(&f, &c, 0) > 0)
                ;
        record_ring_get_losses(f.ring, &losses);
        CHECK_EQ(losses.overrun, ENTRIES / 2);
        CHECK_EQ(c.lost, losses.overrun);
        CHECK_EQ(c.count + c.lost, 2 * ENTRIES);
        fixture_done(&f);
}

/* However far the ring was overrun: what is left in it comes, behind what was saved. */
static void test_the_rest_is_all_there_is(void)
{
        struct fixture f = fixture_new(0);
        struct collector c = {};
        uint64_t n = 0;

        for (; n < ENTRIES / 2; n++)
                put(&f, n);
        CHECK_EQ(record_ring_save(f.ring, 0, 1000000), ENTRIES / 2);
        for (; n < 4 * ENTRIES; n++)
                if (n != 3 * ENTRIES + 7)
                        put(&f, n);
        record_ring_read_rest(f.ring, 0, on_record, on_gap, &c);
        CHECK_EQ(c.count, ENTRIES / 2 + ENTRIES - 1);
        CHECK_EQ(c.count + c.lost, n);
        CHECK_EQ(record_ring_position(f.ring), n);
        fixture_done(&f);
}

int main(void)
{
        TEST(test_empty_ring_gives_nothing);
        TEST(test_records_come_in_order_over_many_rounds);
        TEST(test_what_is_saved_comes_first_and_in_order);
        TEST(test_a_loss_keeps_its_place_among_saved_records);
        TEST(test_no_more_than_so_many_are_saved);
        TEST(test_the_rest_is_all_there_is);
        TEST(test_max_is_kept);
        TEST(test_hole_that_fills_loses_nothing);
        TEST(test_hole_that_stays_is_torn);
        TEST(test_late_hole_waits_for_itself);
        TEST(test_long_run_of_lost_records_is_passed);
        TEST(test_overrun_keeps_what_is_left);
        TEST(test_unknown_type_is_garbage);
        TEST(test_absurd_index_is_not_believed);
        TEST(test_forged_overruns_end);
        TEST(test_positions_near_the_end_of_numbers);
        TEST(test_concurrent_writer_loses_nothing);
        TEST(test_concurrent_writer_with_lost_records);
        TEST(test_hostile_writer);
        TEST(test_kernel_map);
        return 0;
}
