/* SPDX-License-Identifier: Apache-2.0 */

/* What events of managed memory add up to: by allocation, by hot piece, by kernel. */
#include <errno.h>

#include "driver/uvm_allocations.h"
#include "driver/uvm_hot.h"
#include "driver/uvm_join.h"
#include "unit/test.h"
#include "util/time.h"

#define MIB (1ULL << 20)

static struct uvm_event gpu_fault(uint64_t address)
{
        return (struct uvm_event){.kind = UVM_KIND_GPU_FAULT, .source = 1, .address = address};
}

static struct uvm_event migration(uint8_t from, uint8_t to, uint8_t cause, uint64_t address,
                                  uint64_t bytes)
{
        return (struct uvm_event){.kind = UVM_KIND_MIGRATION,
                                  .source = from,
                                  .target = to,
                                  .cause = cause,
                                  .address = address,
                                  .bytes = bytes};
}

/* ---- allocations ---- */

static void test_allocations(void)
{
        struct uvm_allocations a = {0};
        struct uvm_event e;

        CHECK_EQ(uvm_allocations_add(&a, 40 * MIB, 2 * MIB, 1), 0);
        CHECK_EQ(uvm_allocations_add(&a, 10 * MIB, 4 * MIB, 2), 0);
        CHECK_EQ(uvm_allocations_add(&a, 20 * MIB, 1 * MIB, 3), 0);
        CHECK_EQ(uvm_allocations_add(&a, 0, 1, 3), -EINVAL);
        CHECK_EQ(uvm_allocations_add(&a, 5, UINT64_MAX, 3), -EINVAL);
        CHECK_EQ(uvm_allocations_bytes(&a), 7 * MIB);
        CHECK(a.list[0].address == 10 * MIB && a.list[1].address == 20 * MIB &&
              a.list[2].address == 40 * MIB);

        e = gpu_fault(10 * MIB);
        uvm_allocations_event(&a, &e);
        e = gpu_fault(14 * MIB - 1);
        uvm_allocations_event(&a, &e);
        e = gpu_fault(14 * MIB);
        uvm_allocations_event(&a, &e);
        e = migration(0, 1, UVM_MIGRATED_COHERENCE, 40 * MIB, MIB);
        uvm_allocations_event(&a, &e);
        e = migration(1, 0, UVM_MIGRATED_EVICTION, 40 * MIB, 4096);
        uvm_allocations_event(&a, &e);
        CHECK_EQ(a.list[0].total.gpu_faults, 2);
        CHECK_EQ(a.outside.gpu_faults, 1);
        CHECK_EQ(a.list[2].total.bytes_to_gpu, MIB);
        CHECK_EQ(a.list[2].total.bytes_to_cpu, 4096);
        CHECK_EQ(a.list[2].total.bytes_evicted, 4096);

        uvm_allocations_second(&a);
        CHECK_EQ(a.list[0].rate.gpu_faults, 2);
        uvm_allocations_second(&a);
        CHECK_EQ(a.list[0].rate.gpu_faults, 0);

        CHECK(!uvm_allocations_remove(&a, 11 * MIB));
        CHECK(uvm_allocations_remove(&a, 10 * MIB));
        CHECK_EQ(a.freed.gpu_faults, 2);
        CHECK(!uvm_allocations_find(&a, 10 * MIB));
        CHECK(uvm_allocations_find(&a, 21 * MIB - 1) && !uvm_allocations_find(&a, 21 * MIB));
        /* A free that was not seen: the new allocation takes the place of what it overlaps. */
        CHECK_EQ(uvm_allocations_add(&a, 19 * MIB, 22 * MIB, 4), 0);
        CHECK_EQ(a.count, 1);
        CHECK_EQ(a.freed.bytes_to_gpu, MIB);
        uvm_allocations_advised(&a, 41 * MIB, MIB);
        CHECK(!a.list[0].advised);
        uvm_allocations_advised(&a, 40 * MIB, UINT64_MAX);
        CHECK(a.list[0].advised);
        uvm_allocations_done(&a);
}

static void test_many_allocations(void)
{
        struct uvm_allocations a = {0};
        uint64_t random = 1;

        for (uint64_t i = 0; i < UVM_ALLOCATIONS_MAX; i++)
                CHECK_EQ(
                        uvm_allocations_add(&a, (1 + i * 7919 % UVM_ALLOCATIONS_MAX) * MIB, MIB, i),
                        0);
        CHECK_EQ(uvm_allocations_add(&a, 1ULL << 50, MIB, 0), -ENOSPC);
        CHECK_EQ(a.refused, 1);
        for (int i = 0; i < 100000; i++) {
                struct uvm_event e =
                        gpu_fault(test_random(&random) % ((UVM_ALLOCATIONS_MAX + 2) * MIB));
                const struct uvm_allocation *l = uvm_allocations_find(&a, e.address);
                uint64_t before = l ? l->total.gpu_faults : a.outside.gpu_faults;

                uvm_allocations_event(&a, &e);
                CHECK_EQ(!l, e.address < MIB || e.address >= (UVM_ALLOCATIONS_MAX + 1) * MIB);
                CHECK_EQ(l ? l->total.gpu_faults : a.outside.gpu_faults, before + 1);
        }
        uvm_allocations_done(&a);
}

/* ---- hot pieces ---- */

/* A few hot pieces among many cold ones are found, and what is claimed of each holds. */
static void test_hot(void)
{
        enum { COLD = 5000, HOT = 8, EVENTS = 200000 };
        static uint64_t truth[COLD + HOT];
        struct uvm_hot_entry top[UVM_HOT_ENTRIES_MAX];
        struct uvm_hot *h = uvm_hot_new(UVM_BLOCK_SHIFT, UVM_HOT_ENTRIES_MAX);
        uint64_t random = 7;
        size_t n;

        CHECK(h);
        for (int i = 0; i < EVENTS; i++) {
                uint64_t r = test_random(&random);
                uint64_t piece = r % 2 ? COLD + r / 2 % HOT : r / 2 % COLD;
                struct uvm_event e = gpu_fault(piece * 2 * MIB + r % MIB);

                truth[piece]++;
                uvm_hot_event(h, &e);
        }
        n = uvm_hot_top(h, top, UVM_HOT_ENTRIES_MAX);
        CHECK_EQ(n, UVM_HOT_ENTRIES_MAX);
        for (size_t i = 0; i < n; i++) {
                uint64_t piece = top[i].address / (2 * MIB);

                CHECK(top[i].events >= truth[piece] &&
                      top[i].events - top[i].error <= truth[piece]);
                CHECK(top[i].faults <= truth[piece]);
                if (i < HOT)
                        CHECK(piece >= COLD);
        }
        CHECK_EQ(uvm_hot_top(h, top, 3), 3);
        uvm_hot_free(h);
}

static void test_hot_bytes(void)
{
        struct uvm_hot_entry top[4];
        struct uvm_event e = migration(0, 1, UVM_MIGRATED_PREFETCH, 5 * MIB, 65536);
        struct uvm_hot *h = uvm_hot_new(UVM_PAGE_SHIFT, 2);

        CHECK(h);
        uvm_hot_event(h, &e);
        e = migration(1, 0, UVM_MIGRATED_COHERENCE, 5 * MIB + 100, 4096);
        uvm_hot_event(h, &e);
        e.kind = UVM_KIND_REPLAY;
        uvm_hot_event(h, &e);
        e = migration(0, 1, UVM_MIGRATED_USER, 8 * MIB, MIB); /* many pieces */
        uvm_hot_event(h, &e);
        CHECK_EQ(uvm_hot_top(h, top, 4), 1);
        CHECK(top[0].address == 5 * MIB && top[0].events == 2 && top[0].faults == 0);
        CHECK(top[0].bytes_to_gpu == 65536 && top[0].bytes_to_cpu == 4096 && top[0].error == 0);

        /* No more than it has room for. */
        for (uint64_t i = 0; i < 5; i++) {
                e = gpu_fault(i * MIB);
                uvm_hot_event(h, &e);
        }
        CHECK_EQ(uvm_hot_top(h, top, 4), 2);
        uvm_hot_free(h);
}

/* However busy another allocation is, each has its own hot pages, and they go with it. */
static void test_hot_by_allocation(void)
{
        struct uvm_hot_entry top[UVM_HOT_ENTRIES_MAX];
        struct uvm_allocations a = {0};
        struct uvm_event e;

        CHECK_EQ(uvm_allocations_add(&a, 100 * MIB, 100 * MIB, 1), 0);
        CHECK_EQ(uvm_allocations_add(&a, 10 * MIB, MIB, 1), 0);
        for (uint64_t i = 0; i < 100000; i++) {
                e = gpu_fault(100 * MIB + i % 1600 * 65536);
                uvm_allocations_event(&a, &e);
        }
        CHECK(!a.list[0].pages);
        for (int i = 0; i < 3; i++) {
                e = gpu_fault(10 * MIB + 70000);
                uvm_allocations_event(&a, &e);
        }
        CHECK_EQ(uvm_hot_top(a.list[0].pages, top, UVM_HOT_ENTRIES_MAX), 1);
        CHECK(top[0].address == 10 * MIB + 65536 && top[0].events == 3 && top[0].error == 0);
        CHECK_EQ(uvm_hot_top(a.list[1].pages, top, UVM_HOT_ENTRIES_MAX), UVM_ALLOCATION_HOT);
        CHECK(uvm_allocations_remove(&a, 100 * MIB));
        CHECK_EQ(uvm_allocations_add(&a, 100 * MIB, MIB, 2), 0);
        CHECK(!a.list[1].pages && a.list[0].pages);
        uvm_allocations_done(&a);
}

/* ---- kernels ---- */

#define MS NSEC_PER_MSEC

static void test_join(void)
{
        struct uvm_join *j = uvm_join_new();
        struct uvm_event fault = gpu_fault(MIB), moved = migration(0, 1, 2, MIB, 65536),
                         asked = migration(0, 1, UVM_MIGRATED_USER, MIB, MIB),
                         evicted = migration(1, 0, UVM_MIGRATED_EVICTION, MIB, 4096);
        struct uvm_kernel_counts top[8];
        const uint64_t t = 100 * NSEC_PER_SEC;

        CHECK(j);
        uvm_join_launch(j, 1, t, t + 10 * MS);
        uvm_join_event(j, &fault, t + 1 * MS);
        uvm_join_event(j, &moved, t + 1 * MS + 5000);
        uvm_join_event(j, &asked, t + 2 * MS);
        uvm_join_event(j, &fault, t + 12 * MS); /* nothing runs */
        /* Events may come before the launch they belong to. */
        uvm_join_event(j, &fault, t + 21 * MS);
        uvm_join_event(j, &fault, t + 24 * MS); /* both run */
        uvm_join_event(j, &evicted, t + 29 * MS);
        uvm_join_launch(j, 2, t + 20 * MS, t + 25 * MS);
        uvm_join_launch(j, 3, t + 23 * MS, t + 30 * MS);
        /* The same kernel twice at the same time is still that kernel. */
        uvm_join_launch(j, 2, t + 20 * MS, t + 22 * MS);
        uvm_join_launch(j, 4, 0, t);     /* no start */
        uvm_join_launch(j, 4, t, t - 1); /* ends before it begins */
        uvm_join_settle(j, t + 100 * MS);
        CHECK_EQ(uvm_join_top(j, top, 8), 0); /* too early to say */
        uvm_join_settle(j, t + 2 * NSEC_PER_SEC);
        CHECK_EQ(uvm_join_top(j, top, 8), 3);
        CHECK(top[0].kernel == 1 && top[0].gpu_faults == 1 && top[0].bytes_to_gpu == 65536);
        CHECK(top[1].kernel == 2 && top[1].gpu_faults == 1 && top[1].bytes_to_gpu == 0);
        CHECK(top[2].kernel == 3 && top[2].gpu_faults == 0 && top[2].bytes_evicted == 4096);
        CHECK_EQ(uvm_join_shared(j).gpu_faults, 1);
        CHECK_EQ(uvm_join_idle(j).gpu_faults, 1);
        uvm_join_free(j);
}

/* More launches and marks than are kept, in order: every event finds its kernel or is counted. */
static void test_join_bounds(void)
{
        enum { LAUNCHES = 20000 };
        struct uvm_join *j = uvm_join_new();
        struct uvm_kernel_counts top[UVM_JOIN_KERNELS];
        struct uvm_event fault = gpu_fault(MIB);
        uint64_t t = 100 * NSEC_PER_SEC, sum = 0;
        size_t n;

        for (int i = 0; i < LAUNCHES; i++, t += 100000) {
                uvm_join_event(j, &fault, t + 10000);
                uvm_join_event(j, &fault, t + 60000);
                uvm_join_launch(j, (uint64_t)(i % 300) + 1, t, t + 90000);
        }
        uvm_join_settle(j, UINT64_MAX);
        n = uvm_join_top(j, top, UVM_JOIN_KERNELS);
        CHECK_EQ(n, UVM_JOIN_KERNELS);
        for (size_t i = 0; i < n; i++)
                sum += top[i].gpu_faults;
        CHECK_EQ(sum + uvm_join_shared(j).gpu_faults + uvm_join_idle(j).gpu_faults, 2 * LAUNCHES);
        CHECK_EQ(uvm_join_idle(j).gpu_faults, 0);
        /* Kernels that have no place of their own. */
        CHECK(uvm_join_shared(j).gpu_faults > 0 && uvm_join_shared(j).gpu_faults < LAUNCHES / 2);
        uvm_join_free(j);
}

int main(void)
{
        TEST(test_allocations);
        TEST(test_many_allocations);
        TEST(test_hot);
        TEST(test_hot_bytes);
        TEST(test_hot_by_allocation);
        TEST(test_join);
        TEST(test_join_bounds);
        return 0;
}
