/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A queue of managed memory events with anything in it, and in its control page:
 * what comes out must be possible, reading must come to an end, nothing counted
 * twice, and what is added up must not lose an event.
 *
 * Input: 528 bytes of control page (missing ones are 0), then entries.
 */
#include "driver/uvm_allocations.h"
#include "driver/uvm_hot.h"
#include "driver/uvm_join.h"
#include "driver/uvm_queue.h"
#include "unit/test.h"

#define ENTRIES 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct sums {
        struct uvm_allocations allocations;
        struct uvm_hot *hot;
        struct uvm_join *join;
        uint64_t events, gpu_faults;
};

static void on_event(void *data, const struct uvm_event *e)
{
        struct sums *s = data;

        CHECK(e->kind > 0 && e->kind < UVM_KIND_COUNT);
        CHECK(e->source < UVM_PROCESSORS_MAX && e->target < UVM_PROCESSORS_MAX);
        CHECK(e->bytes <= UINT64_MAX - e->address);
        CHECK(e->access < UVM_ACCESS_COUNT);
        s->events++;
        s->gpu_faults += e->kind == UVM_KIND_GPU_FAULT;
        uvm_allocations_event(&s->allocations, e);
        uvm_hot_event(s->hot, e);
        uvm_join_event(s->join, e, e->begin_raw_ns);
        if (e->kind == UVM_KIND_REPLAY)
                uvm_join_launch(s->join, e->batch, e->begin_raw_ns, e->begin_gpu_ns);
}

static uint64_t joined_faults(const struct uvm_join *j)
{
        struct uvm_kernel_counts top[UVM_JOIN_KERNELS];
        size_t n = uvm_join_top(j, top, UVM_JOIN_KERNELS);
        uint64_t sum = uvm_join_shared(j).gpu_faults + uvm_join_idle(j).gpu_faults;

        for (size_t i = 0; i < n; i++)
                sum += top[i].gpu_faults;
        return sum;
}

static void check_sums(const struct sums *s)
{
        uint64_t faults = s->allocations.outside.gpu_faults;

        for (size_t i = 0; i < s->allocations.count; i++)
                faults += s->allocations.list[i].total.gpu_faults;
        CHECK_EQ(faults, s->gpu_faults);
        uvm_join_settle(s->join, UINT64_MAX);
        CHECK_EQ(joined_faults(s->join), s->gpu_faults);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static _Alignas(8) uint8_t memory[ENTRIES * UVM_ENTRY_BYTES];
        struct uvm_control control = {0};
        size_t head = size < sizeof(control) ? size : sizeof(control), taken;
        struct sums s = {.hot = uvm_hot_new(UVM_PAGE_SHIFT, 8), .join = uvm_join_new()};
        struct uvm_queue q;

        CHECK(s.hot && s.join);
        memset(memory, 0, sizeof(memory));
        memcpy(&control, data, head);
        memcpy(memory, data + head, size - head < sizeof(memory) ? size - head : sizeof(memory));
        CHECK_EQ(uvm_allocations_add(&s.allocations, 0x10000, 0x100000, 0), 0);
        uvm_queue_init(&q, memory, ENTRIES, &control);
        taken = uvm_queue_read(&q, 10, on_event, &s);
        taken += uvm_queue_read(&q, SIZE_MAX, on_event, &s);
        CHECK_EQ(uvm_queue_read(&q, SIZE_MAX, on_event, &s), 0);
        CHECK(taken < ENTRIES && q.read == taken && q.garbage + s.events == taken);
        check_sums(&s);
        uvm_allocations_done(&s.allocations);
        uvm_hot_free(s.hot);
        uvm_join_free(s.join);
        return 0;
}
