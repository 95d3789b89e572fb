/* SPDX-License-Identifier: Apache-2.0 */

/* Sums of what the probes inside the managed-memory driver see. */
#include "driver/uvm_tier.h"
#include "unit/test.h"

static struct uvm_tier_event event_of(enum uvm_point point, uint64_t process_key)
{
        return (struct uvm_tier_event){
                .probe = {.point = (uint8_t)point, .duration_ns = 1000},
                .process_key = process_key,
        };
}

/* Pages 3 to 5 and 100 of a block, with the processor that was asked for. */
static struct uvm_tier_event decision_of(uint64_t process_key, uint32_t chosen)
{
        struct uvm_tier_event e = event_of(UVM_POINT_PREFETCH, process_key);

        e.probe.has = UVM_PROBE_HAS_BLOCK | UVM_PROBE_HAS_HINT | UVM_PROBE_HAS_PROCESSOR;
        e.probe.start = 0x7f0000200000;
        e.probe.processor = 1;
        e.probe.chosen = chosen;
        e.probe.pages[0] = 0x38;
        e.probe.pages[1] = 1ULL << 36;
        return e;
}

static void pages_of_a_decision(void)
{
        struct uvm_tier_event e = decision_of(1, 1);
        uint64_t start, bytes;

        CHECK_EQ(uvm_tier_pages(&e.probe), 4);
        CHECK(uvm_tier_span(&e.probe, &start, &bytes));
        CHECK(start == 0x7f0000203000 && bytes == 98 * 4096);
        e.probe.pages[7] = 1ULL << 63;
        CHECK(uvm_tier_span(&e.probe, &start, &bytes));
        CHECK_EQ(bytes, 509 * 4096);
        e = decision_of(1, 33); /* the driver does not act on it */
        CHECK_EQ(uvm_tier_pages(&e.probe), 0);
        CHECK(!uvm_tier_span(&e.probe, &start, &bytes));
        e = decision_of(1, 1);
        memset(e.probe.pages, 0, sizeof(e.probe.pages));
        CHECK(!uvm_tier_span(&e.probe, &start, &bytes));
}

static void batches_by_gpu(void)
{
        struct uvm_tier *t = uvm_tier_new();
        struct uvm_tier_event e = event_of(UVM_POINT_BATCH, 0);
        const struct uvm_tier_gpu *g;

        e.probe.has = UVM_PROBE_HAS_UUID | UVM_PROBE_HAS_FAULTS;
        e.probe.uuid[0] = 9;
        e.probe.faults = 10;
        e.probe.distinct = 7;
        e.probe.duplicates = 3;
        uvm_tier_add(t, &e);
        e.probe.faults = 256;
        e.probe.duration_ns = 5000;
        e.probe.status = 0x51;
        uvm_tier_add(t, &e);
        e = event_of(UVM_POINT_EVICT, 4);
        e.probe.has = UVM_PROBE_HAS_UUID;
        e.probe.uuid[0] = 9;
        uvm_tier_add(t, &e);
        g = uvm_tier_gpu(t, 0);
        CHECK(g && !uvm_tier_gpu(t, 1));
        CHECK(g->batches.count == 2 && g->batches.failed == 1 && g->batches.total_ns == 6000 &&
              g->batches.max_ns == 5000);
        CHECK(g->faults == 266 && g->distinct == 14 && g->duplicates == 6 && g->largest == 256);
        CHECK_EQ(g->evicted, 1);
        CHECK_EQ(uvm_tier_point(t, UVM_POINT_BATCH).count, 2);
        CHECK(!uvm_tier_process(t, 2) && uvm_tier_process(t, 1)->evicted == 1);
        uvm_tier_free(t);
}

static void sums_by_process(void)
{
        struct uvm_tier *t = uvm_tier_new();
        struct uvm_tier_event e = decision_of(7, 1);
        const struct uvm_tier_process *p;

        uvm_tier_add(t, &e);
        e = decision_of(7, 33);
        uvm_tier_add(t, &e);
        e = event_of(UVM_POINT_MOVE, 7);
        e.cause = UVM_CAUSE_EVICTION;
        uvm_tier_add(t, &e);
        e = event_of(UVM_POINT_PICK, 0);
        e.cause = UVM_CAUSE_PHYSICAL_ALLOCATION;
        e.state = UVM_CHUNK_SPLIT;
        uvm_tier_add(t, &e);
        p = uvm_tier_process(t, 1);
        CHECK(p && p->process_key == 7 && !uvm_tier_process(t, 2));
        CHECK(p->decisions == 2 && p->chosen == 1 && p->pages == 4 && p->evicted == 0);
        CHECK_EQ(p->moves[UVM_CAUSE_EVICTION].count, 1);
        CHECK_EQ(uvm_tier_picks(t).by_cause[UVM_CAUSE_PHYSICAL_ALLOCATION], 1);
        CHECK_EQ(uvm_tier_picks(t).by_state[UVM_CHUNK_SPLIT], 1);
        CHECK_EQ(uvm_tier_process(t, 0)->last, 0); /* nothing of nobody's */
        uvm_tier_free(t);
}

/* However many processes there are, nothing that was counted goes away. */
static void processes_are_bounded(void)
{
        struct uvm_tier *t = uvm_tier_new();
        const struct uvm_tier_process *p;
        uint64_t seed = 1, sum = 0;
        bool has_last = false;

        for (uint64_t i = 0; i < 20000; i++) {
                struct uvm_tier_event e = event_of(UVM_POINT_EVICT, test_random(&seed) % 2000);

                uvm_tier_add(t, &e);
                if (i == 19999)
                        sum = e.process_key;
        }
        for (size_t i = 0; (p = uvm_tier_process(t, i)); i++)
                has_last = has_last || p->process_key == sum;
        CHECK(has_last);
        sum = 0;
        for (size_t i = 0; (p = uvm_tier_process(t, i)); i++) {
                CHECK(i < UVM_TIER_PROCESSES);
                sum += p->evicted;
        }
        CHECK_EQ(sum, 20000);
        uvm_tier_free(t);
}

static void the_latest_are_kept(void)
{
        struct uvm_tier *t = uvm_tier_new();
        struct uvm_tier_event e = event_of(UVM_POINT_MOVE, 1);
        const struct uvm_tier_event *k;
        uint64_t sequence = 0, n = 0;

        CHECK(!uvm_tier_after(t, 0));
        for (uint64_t i = 1; i <= UVM_TIER_EVENTS + 10; i++) {
                e.probe.enter_ns = i;
                uvm_tier_add(t, &e);
        }
        while ((k = uvm_tier_after(t, sequence))) {
                sequence = k->sequence;
                CHECK_EQ(k->probe.enter_ns, sequence);
                n += 1;
        }
        CHECK(n == UVM_TIER_EVENTS && sequence == UVM_TIER_EVENTS + 10);
        CHECK(!uvm_tier_after(t, UINT64_MAX));
        uvm_tier_free(t);
}

int main(void)
{
        TEST(pages_of_a_decision);
        TEST(batches_by_gpu);
        TEST(sums_by_process);
        TEST(processes_are_bounded);
        TEST(the_latest_are_kept);
        return 0;
}
