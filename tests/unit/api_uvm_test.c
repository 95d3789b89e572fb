/* SPDX-License-Identifier: Apache-2.0 */

/* The API of managed memory, end to end over a socket: lists, streams, who may do what. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "libclient/gpuobs.h"
#include "unit/api_fixture.h"
#include "unit/test.h"
#include "util/time.h"

static struct fixture f;

/* ---- before now ---- */

static void history_is_told(void)
{
        struct gpuobs_uvm_history_params p = {
                .has_limit = true, .limit = 2, .has_step_s = true, .step_s = 10};
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_history *page;

        CHECK_EQ(gpuobs_uvm_history(g, &p, &page), 0);
        CHECK(page->n_steps == 2 && page->has_next_cursor && page->next_cursor == 2);
        CHECK(page->steps[1].pid == 101 && page->steps[1].start_ticks == 7 &&
              page->steps[1].start_ns == 20 && page->steps[1].seconds == 2);
        CHECK(page->steps[1].events == 200 && page->steps[1].counts.gpu_faults == 2 &&
              page->steps[1].counts.remote_maps == 7 && page->steps[1].counts.cpu_faults == 0);
        CHECK_STR(page->steps[1].comm, "app");
        p.has_cursor = true;
        p.cursor = page->next_cursor;
        gpuobs_uvm_history_free(page);
        CHECK_EQ(gpuobs_uvm_history(g, &p, &page), 0);
        CHECK(page->n_steps == 1 && page->steps[0].events == 300 && !page->has_next_cursor);
        gpuobs_uvm_history_free(page);
        CHECK_EQ(gpuobs_uvm_history(g, NULL, &page), 0); /* a minute */
        CHECK(page->n_steps == 3 && page->steps[0].start_ns == 60);
        gpuobs_uvm_history_free(page);
        p.step_s = 0;
        CHECK_EQ(gpuobs_uvm_history(g, &p, &page), -EINVAL);
        p.step_s = 86401;
        CHECK_EQ(gpuobs_uvm_history(g, &p, &page), -EINVAL);
        gpuobs_free(g);
}

/* ---- lists ---- */

static void processes_are_told(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_processes *list;
        const struct gpuobs_uvm_process *p;

        CHECK_EQ(gpuobs_uvm_list(g, NULL, &list), 0);
        CHECK_EQ(list->n_processes, 2); /* the others have no managed memory */
        CHECK(!list->has_next_cursor);
        CHECK_EQ(list->losses.produced, 150);
        p = &list->processes[0];
        CHECK(p->pid == 101 && p->watch == GPUOBS_UVM_WATCH_ON && !p->reason && !p->has_since_ns);
        CHECK(p->produced == 10 && p->read == 6 && p->dropped == 4 && p->garbage == 0);
        CHECK(p->allocated_bytes == 6 << 20 && p->allocation_count == 3 && p->unlisted == 0);
        CHECK(p->total.gpu_faults == 5 && p->total.bytes_to_gpu == 65536);
        CHECK(p->rate.gpu_faults == 5 && p->outside.gpu_faults == 0 && p->freed.gpu_faults == 0);

        CHECK_EQ(p->n_allocations, 3); /* the one that faults first */
        CHECK(p->allocations[0].address == 0x600000 && p->allocations[0].total.gpu_faults == 5);
        CHECK(p->allocations[0].has_since_ns && p->allocations[0].since_ns == 1);
        CHECK(p->allocations[1].address == 0x400000 && !p->allocations[1].has_since_ns);
        CHECK(p->allocations[0].n_pages == 1 && p->allocations[0].pages[0].events == 5);
        CHECK(p->allocations[1].n_pages == 1 && p->allocations[1].pages[0].address == 0x400000);
        CHECK(p->n_blocks == 2 && p->blocks[0].address == 0x600000 && p->blocks[0].events == 5);
        CHECK(p->blocks[0].bytes == 2 << 20 && p->pages[0].bytes == 65536);
        CHECK(p->blocks[1].bytes_to_gpu == 65536);
        CHECK(p->n_kernels == 1 && p->kernels[0].gpu_faults == 5);
        CHECK_STR(p->kernels[0].kernel, "_Z3addPfS_");
        CHECK(p->idle.bytes_to_gpu == 65536 && p->shared.gpu_faults == 0);

        p = &list->processes[1];
        CHECK(p->pid == 102 && p->watch == GPUOBS_UVM_WATCH_REFUSED);
        CHECK_STR(p->reason, "made up");
        gpuobs_uvm_processes_free(list);
        gpuobs_free(g);
}

static void lists_have_limits(void)
{
        struct gpuobs_uvm_params p = {.has_limit = true, .limit = 1, .has_top = true, .top = 1};
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_processes *list;
        uint32_t pid = 101;

        do {
                CHECK_EQ(gpuobs_uvm_list(g, &p, &list), 0);
                CHECK_EQ(list->n_processes, 1);
                CHECK_EQ(list->processes[0].pid, pid++);
                CHECK_EQ(list->processes[0].n_allocations, 1);
                CHECK_EQ(list->processes[0].n_pages, 1);
                p.has_cursor = list->has_next_cursor;
                p.cursor = list->next_cursor;
                gpuobs_uvm_processes_free(list);
        } while (p.has_cursor);
        CHECK_EQ(pid, 103);
        p = (struct gpuobs_uvm_params){.has_pid = true, .pid = 102, .has_top = true, .top = 0};
        CHECK_EQ(gpuobs_uvm_list(g, &p, &list), 0);
        CHECK(list->n_processes == 1 && list->processes[0].n_allocations == 0);
        gpuobs_uvm_processes_free(list);
        p.top = 257;
        CHECK_EQ(gpuobs_uvm_list(g, &p, &list), -EINVAL);
        gpuobs_free(g);
}

static void watching_is_told(void)
{
        struct gpuobs_uvm_watch_params p = {.pid = 101, .on = false};
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_watched *w;

        CHECK_EQ(gpuobs_uvm_watch(g, &p, &w), 0);
        CHECK(w->watch == GPUOBS_UVM_WATCH_OFF && !w->reason);
        gpuobs_uvm_watched_free(w);
        p.on = true;
        CHECK_EQ(gpuobs_uvm_watch(g, &p, &w), 0);
        CHECK_EQ(w->watch, GPUOBS_UVM_WATCH_ON);
        gpuobs_uvm_watched_free(w);
        p.pid = 102;
        CHECK_EQ(gpuobs_uvm_watch(g, &p, &w), 0);
        CHECK_EQ(w->watch, GPUOBS_UVM_WATCH_REFUSED);
        CHECK_STR(w->reason, "made up");
        gpuobs_uvm_watched_free(w);
        p.pid = 103;
        CHECK_EQ(gpuobs_uvm_watch(g, &p, &w), -EINVAL);
        gpuobs_free(g);
}

/* ---- streams ---- */

struct seen {
        uint64_t events, batches, dropped;
        uint32_t pid; /* only this one may come; 0 any */
        int kind;     /* only this one; 0 any */
        uint64_t last_at_ns;
        int error;
};

static void on_batch(void *data, int error, const struct gpuobs_uvm_batch *b)
{
        struct seen *s = data;

        if (error) {
                s->error = error;
                return;
        }
        s->batches++;
        s->dropped += b->dropped;
        for (size_t i = 0; i < b->n_events; i++, s->events++) {
                const struct gpuobs_uvm_event *e = &b->events[i];
                bool fault = e->kind == GPUOBS_UVM_KIND_GPU_FAULT;

                CHECK(e->at_ns > s->last_at_ns && e->address == e->at_ns / 1000 * 0x10000);
                CHECK(fault || e->kind == GPUOBS_UVM_KIND_MIGRATION);
                CHECK(fault == e->has_access && fault == e->has_client && fault != e->has_cause);
                CHECK(fault != e->has_bytes);
                CHECK(e->has_clock_error_ns && e->clock_error_ns == e->at_ns / 1000);
                CHECK_EQ(e->has_allocation, e->at_ns / 1000 % 4 == 0);
                CHECK(!e->has_allocation || e->allocation == e->address - 0x1000);
                CHECK_STR(e->source, fault ? "gpu0" : "cpu");
                if (!fault && e->at_ns / 1000 % 4 == 0)
                        CHECK_STR(e->target, "gpu0");
                else
                        CHECK(!e->target); /* not known, or the kind has none */
                CHECK(!s->pid || e->pid == s->pid);
                CHECK(!s->kind || (int)e->kind == s->kind);
                s->last_at_ns = e->at_ns;
        }
}

static void dispatch_until(struct gpuobs *g, const uint64_t *counter, uint64_t value)
{
        uint64_t limit = now_ns() + 60 * NSEC_PER_SEC;

        while (*counter < value) {
                struct pollfd p = {.fd = gpuobs_fd(g), .events = gpuobs_events(g)};

                if (now_ns() > limit)
                        CHECK_EQ(*counter, value);
                poll(&p, 1, 100);
                CHECK(gpuobs_dispatch(g) >= 0);
        }
}

static void streams_carry_events(void)
{
        struct gpuobs_uvm_subscribe_params one = {.has_pid = true, .pid = 102};
        struct gpuobs_uvm_subscribe_params faults = {.has_kind = true,
                                                     .kind = GPUOBS_UVM_KIND_GPU_FAULT};
        struct gpuobs_uvm_subscribe_params range = {.has_address = true, .has_bytes = true};
        struct seen all = {0}, of_pid = {.pid = 102}, of_kind = {.kind = GPUOBS_UVM_KIND_GPU_FAULT},
                    in_range = {0};
        struct gpuobs *g = fixture_client(&f);
        uint64_t first = f.next_launch_id;

        /* Ten events, and the migration just before them whose memory reaches in. */
        range.address = (first + (first % 2 ? 1 : 2)) * 0x10000 + 0x8000;
        range.bytes = 10 * 0x10000;
        CHECK_EQ(gpuobs_uvm_subscribe(g, NULL, on_batch, &all, NULL), 0);
        CHECK_EQ(gpuobs_uvm_subscribe(g, &one, on_batch, &of_pid, NULL), 0);
        CHECK_EQ(gpuobs_uvm_subscribe(g, &faults, on_batch, &of_kind, NULL), 0);
        CHECK_EQ(gpuobs_uvm_subscribe(g, &range, on_batch, &in_range, NULL), 0);
        dispatch_until(g, &in_range.batches, 1);
        fixture_publish(&f, 1000, 200);
        dispatch_until(g, &all.events, 1000);
        dispatch_until(g, &of_pid.events, 200);
        dispatch_until(g, &of_kind.events, 500);
        dispatch_until(g, &in_range.events, 11);
        CHECK_EQ(gpuobs_status(g, NULL, &(struct gpuobs_status *){0}), 0); /* nothing more comes */
        CHECK_EQ(gpuobs_dispatch(g) < 0, 0);
        CHECK(all.events == 1000 && of_pid.events == 200 && of_kind.events == 500 &&
              in_range.events == 11);
        CHECK(!all.error && all.dropped == 0);
        range.bytes = UINT64_MAX;
        CHECK_EQ(gpuobs_uvm_subscribe(g, &range, on_batch, &in_range, NULL), 0);
        while (!in_range.error)
                CHECK(gpuobs_dispatch(g) >= 0 && usleep(1000) == 0);
        CHECK_EQ(in_range.error, -EINVAL);
        gpuobs_free(g);
}

/* A subscriber that sleeps: what it gets and what it is told it missed are all there was. */
static void slow_subscribers_are_told(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct seen s = {0};
        uint64_t before = f.slow, n = 100000, sum = 0;

        CHECK_EQ(gpuobs_uvm_subscribe(g, NULL, on_batch, &s, NULL), 0);
        dispatch_until(g, &s.batches, 1);
        fixture_publish(&f, n, 1000);
        CHECK(f.slow > before);
        while (sum < n) {
                struct pollfd p = {.fd = gpuobs_fd(g), .events = gpuobs_events(g)};

                CHECK(poll(&p, 1, 20000) == 1);
                CHECK(gpuobs_dispatch(g) >= 0);
                sum = s.events + s.dropped;
        }
        CHECK_EQ(sum, n);
        CHECK_EQ(s.dropped, f.slow - before);
        gpuobs_free(g);
}

/* ---- privileges ---- */

static void as_a_user(struct fixture *fx)
{
        struct gpuobs_uvm_watch_params p = {.pid = 102, .on = true};
        struct gpuobs_uvm_processes *list;
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_uvm_watched *w;
        struct seen s = {0};

        (void)fx;
        CHECK_EQ(gpuobs_uvm_list(g, NULL, &list), 0);
        CHECK(list->n_processes == 1 && list->processes[0].pid == 102);
        gpuobs_uvm_processes_free(list);
        CHECK_EQ(gpuobs_uvm_watch(g, &p, &w), -EPERM);
        CHECK_EQ(gpuobs_uvm_subscribe(g, NULL, on_batch, &s, NULL), 0);
        dispatch_until(g, &s.batches, 1);
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
        TEST(processes_are_told);
        TEST(lists_have_limits);
        TEST(history_is_told);
        TEST(watching_is_told);
        TEST(streams_carry_events);
        TEST(slow_subscribers_are_told);
        TEST(users_see_their_own);
        fixture_stop(&f);
        return 0;
}
