/* SPDX-License-Identifier: Apache-2.0 */

/* The table of a process's live allocations: what its calls add and take out, and its bounds. */
#include "allocations.h"
#include "cpu/cpu_abi.h"
#include "unit/test.h"

static struct allocations a;
static uint64_t now;

static struct cpu_operation_event event(enum cpu_operation operation, uint64_t address,
                                        uint64_t bytes)
{
        now += 100;
        return (struct cpu_operation_event){.type = CPU_EVENT_OPERATION,
                                            .operation = (uint8_t)operation,
                                            .enter_ns = now,
                                            .duration_ns = 10,
                                            .context = 1,
                                            .address = address,
                                            .bytes = bytes};
}

static void happens(enum cpu_operation operation, uint64_t address, uint64_t bytes)
{
        const struct cpu_operation_event e = event(operation, address, bytes);

        allocations_operation(&a, &e);
}

static void is_listed(size_t i, uint64_t address, uint64_t bytes, enum cpu_operation operation)
{
        CHECK(i < a.count);
        CHECK_EQ(a.list[i].address, address);
        CHECK_EQ(a.list[i].bytes, bytes);
        CHECK_EQ(a.list[i].operation, operation);
}

static void come_and_go(void)
{
        happens(CPU_OP_ALLOC_MANAGED, 0x3000, 0x800);
        happens(CPU_OP_ALLOC, 0x1000, 0x1000);
        happens(CPU_OP_ALLOC_ASYNC, 0x2000, 0x1000);
        CHECK_EQ(a.count, 3);
        is_listed(0, 0x1000, 0x1000, CPU_OP_ALLOC);
        is_listed(1, 0x2000, 0x1000, CPU_OP_ALLOC_ASYNC);
        is_listed(2, 0x3000, 0x800, CPU_OP_ALLOC_MANAGED);
        CHECK_EQ(a.list[2].since_ns, 110);
        CHECK(allocations_from(&a, 0) == &a.list[0]);
        CHECK(allocations_from(&a, 0x1001) == &a.list[1]);
        CHECK(!allocations_from(&a, 0x3001));
        happens(CPU_OP_FREE, 0x2100, 0); /* nothing begins there */
        happens(CPU_OP_FREE, 0x9000, 0);
        CHECK_EQ(a.count, 3);
        happens(CPU_OP_FREE, 0x2000, 0);
        CHECK_EQ(a.count, 2);
        is_listed(1, 0x3000, 0x800, CPU_OP_ALLOC_MANAGED);
        allocations_done(&a);
}

static void mappings_go_by_range(void)
{
        for (uint64_t i = 1; i <= 4; i++)
                happens(CPU_OP_MAP, i << 21, 1 << 21);
        happens(CPU_OP_UNMAP, 2 << 21, 2 << 21);
        CHECK_EQ(a.count, 2);
        is_listed(0, 1 << 21, 1 << 21, CPU_OP_MAP);
        is_listed(1, 4 << 21, 1 << 21, CPU_OP_MAP);
        allocations_done(&a);
}

/* Frees that were not seen. */
static void newer_ones_are_believed(void)
{
        happens(CPU_OP_ALLOC, 0x1000, 0x1000);
        happens(CPU_OP_ALLOC, 0x3000, 0x1000);
        happens(CPU_OP_ALLOC, 0x5000, 0x1000);
        happens(CPU_OP_ALLOC, 0x1800, 0x2000);
        CHECK_EQ(a.count, 2);
        is_listed(0, 0x1800, 0x2000, CPU_OP_ALLOC);
        is_listed(1, 0x5000, 0x1000, CPU_OP_ALLOC);
        allocations_done(&a);
}

/* Another thread was given the address before the call that freed it has returned. */
static void late_frees_are_of_the_old_one(void)
{
        struct cpu_operation_event freed, made;

        happens(CPU_OP_ALLOC, 0x1000, 0x1000);
        freed = event(CPU_OP_FREE, 0x1000, 0);
        freed.duration_ns = 1000;
        made = event(CPU_OP_ALLOC, 0x1000, 0x800);
        allocations_operation(&a, &made);
        allocations_operation(&a, &freed);
        CHECK_EQ(a.count, 1);
        is_listed(0, 0x1000, 0x800, CPU_OP_ALLOC);
        allocations_done(&a);
}

static void contexts_take_theirs(void)
{
        struct cpu_operation_event e;

        happens(CPU_OP_ALLOC, 0x1000, 0x1000);
        happens(CPU_OP_ALLOC_ASYNC, 0x2000, 0x1000);
        happens(CPU_OP_MAP, 0x200000, 0x200000);
        e = event(CPU_OP_ALLOC, 0x4000, 0x1000);
        e.context = 2;
        allocations_operation(&a, &e);
        allocations_context_gone(&a, 0);
        CHECK_EQ(a.count, 4);
        allocations_context_gone(&a, 1);
        CHECK_EQ(a.count, 3);
        is_listed(0, 0x2000, 0x1000, CPU_OP_ALLOC_ASYNC);
        is_listed(1, 0x4000, 0x1000, CPU_OP_ALLOC);
        allocations_done(&a);
}

static void failures_and_nonsense_are_left_out(void)
{
        struct cpu_operation_event e = event(CPU_OP_ALLOC, 0x1000, 0x1000);

        e.result = 2;
        allocations_operation(&a, &e);
        happens(CPU_OP_ALLOC, 0, 0x1000);
        happens(CPU_OP_ALLOC, 0x1000, 0);
        happens(CPU_OP_ALLOC, UINT64_MAX - 10, 0x1000);
        happens(CPU_OP_MEMSET, 0x1000, 0x1000);
        CHECK_EQ(a.count, 0);
        CHECK_EQ(a.unlisted, 0);
}

static void too_many_are_counted(void)
{
        for (uint64_t i = 0; i < ALLOCATIONS_MAX + 5; i++)
                happens(CPU_OP_ALLOC, (i + 1) << 12, 1 << 12);
        CHECK_EQ(a.count, ALLOCATIONS_MAX);
        CHECK_EQ(a.unlisted, 5);
        happens(CPU_OP_FREE, 1 << 12, 0);
        happens(CPU_OP_ALLOC, 1ull << 40, 1 << 12);
        CHECK_EQ(a.count, ALLOCATIONS_MAX);
        CHECK_EQ(a.unlisted, 5);
        allocations_done(&a);
}

int main(void)
{
        TEST(come_and_go);
        TEST(mappings_go_by_range);
        TEST(newer_ones_are_believed);
        TEST(late_frees_are_of_the_old_one);
        TEST(contexts_take_theirs);
        TEST(failures_and_nonsense_are_left_out);
        TEST(too_many_are_counted);
        return 0;
}
