/* SPDX-License-Identifier: Apache-2.0 */

/* The API of the managed-memory driver's decisions, end to end over a socket. */
#include <unistd.h>

#include "libclient/gpuobs.h"
#include "unit/api_fixture.h"
#include "unit/test.h"

static struct fixture f;

static void sums_are_told(void)
{
        struct gpuobs_uvm_driver_params p = {.has_pid = true, .pid = 102};
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_driver *d;

        CHECK_EQ(gpuobs_uvm_driver_get(g, NULL, &d), 0);
        CHECK(d->probed && !d->reason && d->lost == 3);
        CHECK_STR(d->struct_ops, "gpu_mem_ops");
        CHECK_EQ(d->n_points, 5);
        CHECK(d->points[0].point == GPUOBS_UVM_POINT_BATCH && d->points[0].probed &&
              d->points[0].arguments && d->points[0].count == 1 && d->points[0].max_ns == 4000);
        CHECK_STR(d->points[0].function, "service_fault_batch");
        CHECK(d->points[0].has_form && d->points[0].form == GPUOBS_UVM_FORM_FENTRY);
        CHECK(!d->points[2].probed && !d->points[2].function && !d->points[2].has_form);
        CHECK_STR(d->points[2].reason, "made up");
        CHECK(d->n_picks == 1 && d->picks[0].reason == GPUOBS_UVM_REASON_ALLOCATION);
        CHECK(d->n_chunks == 1 && d->chunks[0].chunk == GPUOBS_UVM_CHUNK_ALLOCATED);
        CHECK(d->n_gpus == 1 && d->gpus[0].faults == 12 && d->gpus[0].largest == 12);
        CHECK_STR(d->gpus[0].uuid, "GPU-00000000-0000-0000-0000-0000000000ab");
        CHECK_EQ(d->n_processes, 2);
        CHECK(d->processes[0].pid == 101 && d->processes[0].decisions == 1 &&
              d->processes[0].pages == 8 && d->processes[0].n_moves == 0);
        CHECK(d->processes[1].pid == 102 && d->processes[1].n_moves == 1 &&
              d->processes[1].moves[0].failed == 1 &&
              d->processes[1].moves[0].reason == GPUOBS_UVM_REASON_EVICTION);
        gpuobs_uvm_driver_free(d);
        CHECK_EQ(gpuobs_uvm_driver_get(g, &p, &d), 0);
        CHECK(d->n_processes == 1 && d->processes[0].pid == 102);
        gpuobs_uvm_driver_free(d);
        gpuobs_free(g);
}

static void decisions_are_told(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_decisions *list;
        const struct gpuobs_uvm_decision *d;

        CHECK_EQ(gpuobs_uvm_decisions_list(g, NULL, &list), 0);
        CHECK(list->n_decisions == 4 && !list->more && list->next_cursor == 4);
        d = &list->decisions[0];
        CHECK(d->sequence == 1 && d->point == GPUOBS_UVM_POINT_BATCH && !d->has_pid &&
              !d->has_address && d->at_ns == 100 && d->duration_ns == 4000);
        CHECK(d->has_faults && d->faults == 12 && d->distinct == 9 && d->duplicates == 3 &&
              d->batch == 5);
        d = &list->decisions[1];
        CHECK(d->pid == 101 && d->has_address && d->address == 0x210000 && d->bytes == 0x10000);
        CHECK(d->pages == 8 && d->pages_address == 0x240000 && d->pages_bytes == 0x8000);
        CHECK(d->has_processor && d->processor == 1 && !d->has_status && !d->has_reason);
        d = &list->decisions[2];
        CHECK(d->has_chunk && d->chunk == GPUOBS_UVM_CHUNK_ALLOCATED && d->physical == 0x800000);
        CHECK(d->reason == GPUOBS_UVM_REASON_ALLOCATION && !d->has_pages);
        d = &list->decisions[3];
        CHECK(d->pid == 102 && d->has_status && d->status == 0x51);
        gpuobs_uvm_decisions_free(list);
        gpuobs_free(g);
}

static void pages_follow_each_other(void)
{
        struct gpuobs_uvm_decisions_params p = {.has_limit = true, .limit = 1};
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_decisions *list;
        bool more = true;
        uint64_t n = 0;

        while (more) {
                CHECK_EQ(gpuobs_uvm_decisions_list(g, &p, &list), 0);
                CHECK_EQ(list->n_decisions, 1);
                CHECK_EQ(list->decisions[0].sequence, ++n);
                more = list->more;
                p.has_cursor = true;
                p.cursor = list->next_cursor;
                gpuobs_uvm_decisions_free(list);
        }
        CHECK_EQ(n, 4);
        CHECK_EQ(gpuobs_uvm_decisions_list(g, &p, &list), 0); /* none yet */
        CHECK(list->n_decisions == 0 && list->next_cursor == 4);
        gpuobs_uvm_decisions_free(list);
        gpuobs_free(g);
}

static void as_a_user(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_decisions *list;
        struct gpuobs_uvm_driver *d;

        (void)fx;
        CHECK_EQ(gpuobs_uvm_decisions_list(g, NULL, &list), 0);
        CHECK(list->n_decisions == 1 && list->decisions[0].pid == 102 && list->next_cursor == 4);
        gpuobs_uvm_decisions_free(list);
        CHECK_EQ(gpuobs_uvm_driver_get(g, NULL, &d), 0);
        CHECK(d->n_processes == 1 && d->processes[0].pid == 102 && d->n_points == 5);
        gpuobs_uvm_driver_free(d);
        gpuobs_free(g);
}

static void users_see_their_own(void)
{
        fixture_as(&f, FIXTURE_UID, 65534, as_a_user);
}

int main(void)
{
        if (geteuid() != 0)
                test_skip("changing user ids needs root");
        fixture_init(&f);
        fixture_start(&f);
        TEST(sums_are_told);
        TEST(decisions_are_told);
        TEST(pages_follow_each_other);
        TEST(users_see_their_own);
        fixture_stop(&f);
        return 0;
}
