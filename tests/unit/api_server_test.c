/* SPDX-License-Identifier: Apache-2.0 */

/* The API server and libgpuobs, end to end over a socket: what is answered, and to whom. */
#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libclient/gpuobs.h"
#include "unit/api_fixture.h"
#include "unit/test.h"
#include "util/time.h"

static struct fixture f;

/* ---- methods ---- */

static void describe_tells_the_schema(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_description *d;
        bool found = false;

        CHECK_EQ(gpuobs_describe(g, NULL, &d), 0);
        CHECK_EQ(d->api_version, GPUOBS_API_VERSION);
        CHECK(d->n_methods >= 9);
        for (size_t i = 0; i < d->n_methods; i++)
                if (!strcmp(d->methods[i].name, "launches.subscribe"))
                        found = d->methods[i].stream;
        CHECK(found);
        gpuobs_description_free(d);
        gpuobs_free(g);
}

static void status_is_complete(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_status *s;

        CHECK_EQ(gpuobs_status(g, NULL, &s), 0);
        CHECK_EQ(s->pid, getpid());
        CHECK(s->uptime_ns >= 5 * NSEC_PER_SEC);
        CHECK(s->rss_bytes > 100000);
        CHECK_EQ(s->connections, 1);
        CHECK_EQ(s->n_gpus, 1);
        CHECK_EQ(s->gpus[0].drift_ppb, -4780);
        CHECK(!s->gpus[0].has_clock_error_ns);
        CHECK(s->store.failing);
        CHECK_STR(s->store.error, "disk full");
        CHECK_EQ(s->n_problems, 1);
        CHECK(s->all_processes);
        CHECK_EQ(s->losses.produced, 150);
        CHECK_EQ(s->losses.stored, 120);
        CHECK_EQ(s->losses.lost, 30);
        CHECK_EQ(s->losses.n_causes, 2);
        gpuobs_status_free(s);
        gpuobs_free(g);
}

static void processes_come_in_pages(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_processes_params p = {.has_limit = true, .limit = 2};
        struct gpuobs_processes *page;
        uint32_t next_pid = 101;
        int pages = 0;

        do {
                CHECK_EQ(gpuobs_processes_list(g, &p, &page), 0);
                for (size_t i = 0; i < page->n_processes; i++)
                        CHECK_EQ(page->processes[i].pid, next_pid++);
                CHECK_EQ(page->losses.produced, 150);
                CHECK_STR(page->processes[0].comm, "sixteen-bytes-\xef\xbf\xbd!");
                CHECK(!page->processes[0].cgroup);
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                gpuobs_processes_free(page);
                pages++;
        } while (p.has_cursor);
        CHECK_EQ(next_pid, 101 + FIXTURE_PROCESSES);
        CHECK_EQ(pages, 3);
        gpuobs_free(g);
}

static void absent_is_not_zero(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_processes_params p = {.has_pid = true, .pid = 101};
        struct gpuobs_processes *page;

        CHECK_EQ(gpuobs_processes_list(g, &p, &page), 0);
        CHECK_EQ(page->n_processes, 1);
        CHECK(page->processes[0].has_depth);
        CHECK_EQ(page->processes[0].depth, 3);
        gpuobs_processes_free(page);
        p.pid = 102;
        CHECK_EQ(gpuobs_processes_list(g, &p, &page), 0);
        CHECK(!page->processes[0].has_depth);
        CHECK(!page->has_next_cursor);
        gpuobs_processes_free(page);
        gpuobs_free(g);
}

/* Every page size gives the same rows, none twice. */
static void coverage_pages_agree(void)
{
        struct gpuobs *g = fixture_client(&f);

        for (uint32_t limit = 1; limit <= 50; limit++) {
                struct gpuobs_coverage_params p = {.has_limit = true, .limit = limit};
                struct gpuobs_coverage *page = NULL, *before;
                size_t images = 0, kernels = 0;

                do {
                        before = page;
                        CHECK_EQ(gpuobs_coverage_list(g, &p, &page), 0);
                        gpuobs_coverage_free(before);
                        CHECK(page->n_images + page->n_kernels <= limit);
                        for (size_t i = 0; i < page->n_images; i++, images++) {
                                CHECK_EQ(page->images[i].pid, 101 + images / 2);
                                CHECK_EQ(page->images[i].image_id, 1 + images % 2);
                        }
                        for (size_t i = 0; i < page->n_kernels; i++, kernels++) {
                                CHECK_EQ(page->kernels[i].pid, 101 + kernels / 6);
                                CHECK_EQ(page->kernels[i].kernel_id, 1 + kernels % 6);
                        }
                        p.cursor = page->next_cursor;
                } while (p.cursor);
                gpuobs_coverage_free(page);
                CHECK_EQ(images, 2 * FIXTURE_PROCESSES);
                CHECK_EQ(kernels, 6 * FIXTURE_PROCESSES);
        }
        gpuobs_free(g);
}

static void coverage_filters(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_coverage_params p = {.has_pid = true, .pid = 103, .has_kernels = true};
        struct gpuobs_coverage *c;

        CHECK_EQ(gpuobs_coverage_list(g, &p, &c), 0);
        CHECK_EQ(c->n_images, 2);
        CHECK_EQ(c->n_kernels, 0);
        CHECK_STR(c->images[1].reason, "no machine code for sm_90");
        gpuobs_coverage_free(c);
        p.cursor = "1.2";
        CHECK_EQ(gpuobs_coverage_list(g, &p, &c), -EINVAL);
        CHECK_STR(gpuobs_error(g)->code, "bad_params");
        gpuobs_free(g);
}

static void driver_calls_pages_agree(void)
{
        struct gpuobs *g = fixture_client(&f);

        for (uint32_t limit = 1; limit <= 20; limit++) {
                struct gpuobs_driver_calls_params p = {.has_limit = true, .limit = limit};
                struct gpuobs_driver_calls *page = NULL, *before;
                size_t rows = 0;

                do {
                        before = page;
                        CHECK_EQ(gpuobs_driver_calls_list(g, &p, &page), 0);
                        gpuobs_driver_calls_free(before);
                        CHECK(page->n_calls <= limit);
                        for (size_t i = 0; i < page->n_calls; i++, rows++)
                                CHECK_EQ(page->calls[i].count, rows % 3 == 1 ? 3 : 1);
                        p.cursor = page->next_cursor;
                } while (p.cursor);
                gpuobs_driver_calls_free(page);
                CHECK_EQ(rows, 3 * (FIXTURE_PROCESSES - 1));
        }
        gpuobs_free(g);
}

static void driver_calls_are_told(void)
{
        struct gpuobs_driver_calls_params p = {.has_pid = true, .pid = 102};
        struct gpuobs_driver_calls *calls;
        struct gpuobs *g = fixture_client(&f);

        CHECK_EQ(gpuobs_driver_calls_list(g, &p, &calls), 0);
        CHECK_EQ(calls->n_calls, 3);
        CHECK_EQ(calls->calls[1].pid, 102);
        CHECK_STR(calls->calls[1].device, "rm");
        CHECK_STR(calls->calls[1].request_name, "alloc");
        CHECK_EQ(calls->calls[1].what, 0xa06c);
        CHECK_STR(calls->calls[1].what_name, "channel group");
        CHECK_EQ(calls->calls[1].errors, 1);
        CHECK(calls->calls[1].has_last_status && !calls->calls[1].has_last_errno);
        CHECK_EQ(calls->calls[1].last_status, 0x1a);
        CHECK_EQ(calls->calls[1].total_ns, 600);
        CHECK_EQ(calls->calls[2].request, 0xee);
        CHECK(!calls->calls[2].request_name && !calls->calls[2].has_what);
        gpuobs_driver_calls_free(calls);
        p.cursor = "x";
        CHECK_EQ(gpuobs_driver_calls_list(g, &p, &calls), -EINVAL);
        gpuobs_free(g);
}

static void channel_groups_come_in_pages(void)
{
        struct gpuobs_channel_groups_params p = {.has_limit = true, .limit = 3};
        struct gpuobs_channel_groups *page = NULL, *before;
        struct gpuobs *g = fixture_client(&f);
        size_t rows = 0;

        do {
                before = page;
                CHECK_EQ(gpuobs_driver_groups_list(g, &p, &page), 0);
                gpuobs_channel_groups_free(before);
                for (size_t i = 0; i < page->n_groups; i++, rows++) {
                        const struct gpuobs_channel_group *group = &page->groups[i];

                        CHECK_EQ(group->object, rows % 2 ? 0x30 : 0x20);
                        CHECK_EQ(group->client, 0xc1d00001);
                        CHECK_EQ(group->fd, 7);
                        CHECK(group->has_gpu);
                        CHECK_EQ(group->gpu, 7);
                        CHECK_EQ(group->engine, rows % 2 ? 9 : 1);
                        CHECK_EQ(group->has_time_slice_us, rows % 2 == 0);
                        CHECK(rows % 2 || group->time_slice_us == 2048);
                }
                p.cursor = page->next_cursor;
        } while (p.cursor);
        gpuobs_channel_groups_free(page);
        CHECK_EQ(rows, 2 * (FIXTURE_PROCESSES - 1));
        gpuobs_free(g);
}

static void shares_are_told(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_shares_params p = {.has_limit = true, .limit = 2};
        struct gpuobs_shares *s;

        CHECK_EQ(gpuobs_share_query(g, NULL, &s), 0);
        CHECK_EQ(s->n_gpus, 2);
        CHECK_EQ(s->n_shares, 2);
        CHECK(!s->truncated);
        CHECK(!s->gpus[0].has_mig_gpu && s->gpus[1].has_mig_gpu);
        CHECK_EQ(s->gpus[1].mig_gpu, 3);
        CHECK_EQ(s->gpus[0].span_ns, 10000);
        CHECK_EQ(s->gpus[0].switches, 5);
        CHECK_EQ(s->gpus[0].lost, 3);
        CHECK_EQ(s->shares[0].pid, 101);
        CHECK_EQ(s->shares[0].active_ns, 5000);
        CHECK(s->shares[0].has_group && !s->shares[0].has_context_id);
        CHECK_EQ(s->shares[0].group, 9);
        CHECK(!s->shares[1].has_group && s->shares[1].has_context_id);
        CHECK(!s->shares[1].has_pid && !s->shares[1].comm);
        gpuobs_shares_free(s);
        CHECK_EQ(gpuobs_share_query(g, &p, &s), 0);
        CHECK(s->truncated);
        gpuobs_shares_free(s);
        p.limit = 0;
        CHECK_EQ(gpuobs_share_query(g, &p, &s), -EINVAL);
        gpuobs_free(g);
}

static void slices_come_in_pages(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_slices_params p = {.has_limit = true, .limit = 8};
        struct gpuobs_slices *page;
        uint64_t n = 0;

        do {
                CHECK_EQ(gpuobs_slices_list(g, &p, &page), 0);
                for (size_t i = 0; i < page->n_slices; i++, n++) {
                        CHECK_EQ(page->slices[i].sequence, n + 1);
                        CHECK_EQ(page->slices[i].start_ns, 1000 + 100 * n);
                        CHECK_EQ(page->slices[i].unknown, n == 20);
                        CHECK_EQ(page->slices[i].has_pid, n < 20);
                        CHECK(n == 20 || page->slices[i].pid == 101 + n % 2);
                }
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                gpuobs_slices_free(page);
        } while (p.has_cursor);
        CHECK_EQ(n, 21);
        p = (struct gpuobs_slices_params){.has_pid = true,
                                          .pid = 102,
                                          .has_since_ns = true,
                                          .since_ns = 1300,
                                          .has_until_ns = true,
                                          .until_ns = 1800};
        CHECK_EQ(gpuobs_slices_list(g, &p, &page), 0);
        CHECK_EQ(page->n_slices, 3);
        CHECK_EQ(page->slices[0].start_ns, 1300);
        CHECK_STR(page->slices[0].comm, "app");
        gpuobs_slices_free(page);
        gpuobs_free(g);
}

static void waiting_is_split(void)
{
        struct gpuobs_launches_params p = {.has_limit = true, .limit = 5};
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_launches *page;

        CHECK_EQ(gpuobs_launches_query(g, &p, &page), 0);
        CHECK(!page->launches[3].has_queue_others_ns);
        CHECK(page->launches[4].has_queue_others_ns);
        CHECK_EQ(page->launches[4].queue_others_ns, 150);
        gpuobs_launches_free(page);
        gpuobs_free(g);
}

static void losses_name_their_causes(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_losses_report *r;

        CHECK_EQ(gpuobs_losses_get(g, NULL, &r), 0);
        CHECK_EQ(r->n_processes, FIXTURE_PROCESSES);
        CHECK_EQ(r->processes[1].losses.lost, 4);
        CHECK_EQ(r->losses.n_causes, LOSS_COUNT);
        CHECK(r->losses.causes[0].text);
        gpuobs_losses_report_free(r);
        gpuobs_free(g);
}

static void launches_come_in_pages(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_launches_params p = {.has_limit = true, .limit = 10000};
        struct gpuobs_launches *page;
        uint64_t next_id = 1;
        int pages = 0;

        /* 2 KiB names: 1,000 rows are more than a frame holds */
        fake_store_rows = 1000;
        do {
                CHECK_EQ(gpuobs_launches_query(g, &p, &page), 0);
                for (size_t i = 0; i < page->n_launches; i++)
                        CHECK_EQ(page->launches[i].launch_id, next_id++);
                CHECK_EQ(page->losses.lost, 30);
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                gpuobs_launches_free(page);
                pages++;
        } while (p.has_cursor);
        CHECK_EQ(next_id, 1001);
        CHECK(pages > 2);
        fake_store_rows = 100;
        gpuobs_free(g);
}

static void newest_launches_are_the_last(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_launches_params p = {
                .has_limit = true, .limit = 3, .has_newest = true, .newest = true};
        struct gpuobs_launches *page;

        CHECK_EQ(gpuobs_launches_query(g, &p, &page), 0);
        CHECK_EQ(page->n_launches, 3);
        CHECK_EQ(page->launches[0].launch_id, 98);
        CHECK(!page->has_next_cursor);
        CHECK(!page->launches[0].has_gpu_start_ns && !page->launches[0].has_grid);
        gpuobs_launches_free(page);
        gpuobs_free(g);
}

static void kernels_are_counted(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_kernels_params p = {.has_limit = true, .limit = 1};
        struct gpuobs_kernels *k;

        CHECK_EQ(gpuobs_kernels_stats(g, NULL, &k), 0);
        CHECK_EQ(k->n_kernels, 2);
        CHECK_STR(k->kernels[0].kernel, "busy");
        CHECK_EQ(k->kernels[0].execution.p99_ns, 120);
        CHECK_EQ(k->kernels[0].queue.count, 6);
        CHECK(k->kernels[0].has_summed);
        CHECK_EQ(k->kernels[0].summed, 3);
        CHECK(!k->kernels[1].has_summed);
        CHECK(k->has_rows_from_ns);
        CHECK_EQ(k->rows_from_ns, 5000);
        CHECK(!k->kernels[1].kernel && !k->kernels[1].has_execution);
        CHECK(!k->truncated);
        gpuobs_kernels_free(k);
        CHECK_EQ(gpuobs_kernels_stats(g, &p, &k), 0);
        CHECK_EQ(k->n_kernels, 1);
        CHECK(k->truncated);
        gpuobs_kernels_free(k);
        p.has_since_ns = true;
        p.since_ns = 5000; /* all from rows */
        CHECK_EQ(gpuobs_kernels_stats(g, &p, &k), 0);
        CHECK(!k->has_rows_from_ns);
        gpuobs_kernels_free(k);
        gpuobs_free(g);
}

static void parameters_have_ranges(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_launches_params p = {.has_limit = true, .limit = 0};
        struct gpuobs_launches *l = NULL;
        char glob[300];

        CHECK_EQ(gpuobs_launches_query(g, &p, &l), -EINVAL);
        CHECK_STR(gpuobs_error(g)->detail, "limit is not between 1 and 10000");
        p.limit = 10001;
        CHECK_EQ(gpuobs_launches_query(g, &p, &l), -EINVAL);
        memset(glob, '*', sizeof(glob) - 1);
        glob[sizeof(glob) - 1] = '\0';
        p = (struct gpuobs_launches_params){.kernel = glob};
        CHECK_EQ(gpuobs_launches_query(g, &p, &l), -EINVAL);
        CHECK(!l); /* not clobbered */
        gpuobs_free(g);
}

/* ---- queries that go wrong ---- */

static void failed_queries_say_why(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_launches *l;

        fake_store_error = -ETIME;
        CHECK_EQ(gpuobs_launches_query(g, NULL, &l), -ETIME);
        CHECK_STR(gpuobs_error(g)->code, "timeout");
        fake_store_error = -ENOSPC;
        CHECK_EQ(gpuobs_launches_query(g, NULL, &l), -EIO);
        CHECK_STR(gpuobs_error(g)->code, "store_failed");
        CHECK_STR(gpuobs_error(g)->detail, "no space for a sort");
        fake_store_error = 0;
        CHECK_EQ(gpuobs_launches_query(g, NULL, &l), 0);
        gpuobs_launches_free(l);
        gpuobs_free(g);
}

static void on_launches(void *data, int error, const struct gpuobs_launches *l)
{
        int *outcome = data;

        CHECK(!error == !!l);
        *outcome = error ? error : 1;
}

static void status_is_answered(struct gpuobs *g)
{
        struct gpuobs_status *s;

        CHECK_EQ(gpuobs_status(g, NULL, &s), 0);
        gpuobs_status_free(s);
}

static void slow_queries_hold_nobody_up(void)
{
        struct gpuobs *g = fixture_client(&f), *other = fixture_client(&f);
        int outcomes[8] = {0};
        int done = 0;

        fake_store_turn = fake_store_let_go + 1; /* none ends before it is let go */
        fake_store_peak = fake_store_finished = fake_store_waiting = 0;
        for (int i = 0; i < 8; i++)
                CHECK_EQ(gpuobs_launches_query_async(g, NULL, on_launches, &outcomes[i], NULL), 0);
        while (fake_store_waiting < (int)f.limits.queries)
                usleep(1000);
        status_is_answered(other);
        status_is_answered(g); /* answers may overtake */
        CHECK_EQ(fake_store_running, f.limits.queries);
        CHECK_EQ(fake_store_finished, 0);
        fake_store_let_go = fake_store_turn;
        while (done < 8) {
                struct pollfd p = {.fd = gpuobs_fd(g), .events = gpuobs_events(g)};
                int r;

                CHECK(gpuobs_timeout_ms(g) >= 0);
                poll(&p, 1, gpuobs_timeout_ms(g));
                r = gpuobs_dispatch(g);
                CHECK(r >= 0);
                done += r;
        }
        for (int i = 0; i < 8; i++)
                CHECK_EQ(outcomes[i], 1);
        CHECK_EQ(fake_store_peak, f.limits.queries);
        fake_store_turn = 0;
        gpuobs_free(g);
        gpuobs_free(other);
}

static void nobody_waits_and_the_query_stops(void)
{
        struct gpuobs *g = fixture_client(&f);
        uint64_t start;

        fake_store_rows = 1000;
        fake_store_delay_ms = 10; /* 10 s to the end */
        for (int i = 0; i < 6; i++)
                CHECK_EQ(gpuobs_launches_query_async(g, NULL, on_launches, NULL, NULL), 0);
        while (!fake_store_running)
                usleep(1000);
        gpuobs_free(g);
        start = now_ns();
        while (fake_store_running)
                usleep(1000);
        CHECK(now_ns() - start < 5 * NSEC_PER_SEC);
        fake_store_delay_ms = 0;
        fake_store_rows = 100;
}

/* ---- streams ---- */

struct seen {
        uint64_t batches, launches, dropped, losses;
        uint64_t last_id;
        uint32_t pid; /* all must be of it; 0 any */
        int error;
};

static void on_batch(void *data, int error, const struct gpuobs_launch_batch *b)
{
        struct seen *s = data;

        if (error) {
                s->error = error;
                return;
        }
        s->batches++;
        s->launches += b->n_launches;
        s->dropped += b->dropped;
        s->losses += b->has_losses;
        for (size_t i = 0; i < b->n_launches; i++) {
                CHECK(b->launches[i].launch_id > s->last_id);
                CHECK(!s->pid || b->launches[i].pid == s->pid);
                CHECK(b->launches[i].kernel && b->launches[i].has_gpu_start_ns);
                s->last_id = b->launches[i].launch_id;
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

static void streams_carry_everything(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_subscribe_params one = {.has_pid = true, .pid = 102};
        struct gpuobs_subscribe_params glob = {.kernel = "k*_[3-4]", .has_gpu = true, .gpu = 1};
        struct seen all = {0}, of_pid = {.pid = 102}, of_glob = {0};

        CHECK_EQ(gpuobs_launches_subscribe(g, NULL, on_batch, &all, NULL), 0);
        CHECK_EQ(gpuobs_launches_subscribe(g, &one, on_batch, &of_pid, NULL), 0);
        CHECK_EQ(gpuobs_launches_subscribe(g, &glob, on_batch, &of_glob, NULL), 0);
        dispatch_until(g, &of_glob.batches, 1); /* the empty first batch: it has begun */
        CHECK_EQ(all.launches, 0);
        CHECK_EQ(all.losses, 1);
        fixture_publish(&f, 3000, 700); /* less than what may wait for us */
        dispatch_until(g, &all.launches, 3000);
        dispatch_until(g, &of_pid.launches, 600);
        dispatch_until(g, &of_glob.launches, 300); /* kernel_3 is always on GPU 1, kernel_4 never */
        CHECK_EQ(all.dropped + of_pid.dropped + of_glob.dropped, 0);
        CHECK(!all.error && !of_pid.error && !of_glob.error);
        gpuobs_free(g);
}

struct seen_slices {
        uint64_t batches, slices, last;
};

static void on_slices(void *data, int error, const struct gpuobs_slice_batch *b)
{
        struct seen_slices *seen = data;

        CHECK_EQ(error, 0);
        CHECK_EQ(b->dropped, 0);
        seen->batches++;
        for (size_t i = 0; i < b->n_slices; i++) {
                CHECK_EQ(b->slices[i].pid, 102);
                CHECK(b->slices[i].sequence > seen->last);
                CHECK_STR(b->slices[i].comm, "app");
                seen->last = b->slices[i].sequence;
                seen->slices++;
        }
}

static void slices_are_streamed(void)
{
        struct gpuobs_slices_subscribe_params p = {.has_pid = true, .pid = 102};
        struct seen_slices seen = {0};
        struct gpuobs *g = fixture_client(&f);

        CHECK_EQ(gpuobs_slices_subscribe(g, &p, on_slices, &seen, NULL), 0);
        dispatch_until(g, &seen.batches, 1); /* the empty first batch: it has begun */
        CHECK_EQ(seen.slices, 0);
        fixture_publish(&f, 500, 100);
        dispatch_until(g, &seen.slices, 100);
        CHECK_EQ(seen.slices, 100);
        gpuobs_free(g);
}

static void cancelled_streams_end(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_call *call;
        struct gpuobs_cancelled *c;
        struct gpuobs_cancel_params p;
        struct seen first = {0}, second = {0};

        CHECK_EQ(gpuobs_launches_subscribe(g, NULL, on_batch, &first, &call), 0);
        p.stream = gpuobs_call_id(call);
        CHECK_EQ(gpuobs_launches_subscribe(g, NULL, on_batch, &second, &call), 0);
        dispatch_until(g, &second.batches, 1);
        CHECK_EQ(gpuobs_stream_cancel(g, &p, &c), 0);
        CHECK(c->cancelled);
        gpuobs_cancelled_free(c);
        gpuobs_dispatch(g);
        CHECK_EQ(first.error, -ECANCELED); /* told, since the library was not asked */
        CHECK_EQ(gpuobs_stream_cancel(g, &p, &c), 0);
        CHECK(!c->cancelled);
        gpuobs_cancelled_free(c);
        gpuobs_cancel(call);
        fixture_publish(&f, 10, 10);
        status_is_answered(g);
        gpuobs_dispatch(g);
        CHECK_EQ(first.launches + second.launches, 0);
        CHECK_EQ(second.error, 0);
        gpuobs_free(g);
}

/* A subscriber that sleeps: what it gets and what it is told it missed are all there was. */
static void slow_subscribers_are_told(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct seen s = {0};
        uint64_t before = f.slow, n = 60000;

        CHECK_EQ(gpuobs_launches_subscribe(g, NULL, on_batch, &s, NULL), 0);
        dispatch_until(g, &s.batches, 1);
        fixture_publish(&f, n, 500);
        CHECK(f.slow > before); /* 60,000 launches are more than 2 MiB */
        while (s.launches + s.dropped < n) {
                struct pollfd p = {.fd = gpuobs_fd(g), .events = gpuobs_events(g)};

                CHECK(poll(&p, 1, 60000) > 0);
                CHECK(gpuobs_dispatch(g) >= 0);
        }
        CHECK_EQ(s.launches + s.dropped, n);
        CHECK_EQ(s.dropped, f.slow - before);
        CHECK(s.launches > 1000);
        gpuobs_free(g);
}

static void sync_calls_keep_frames_of_streams(void)
{
        struct gpuobs *g = fixture_client(&f);
        struct seen s = {0};

        CHECK_EQ(gpuobs_launches_subscribe(g, NULL, on_batch, &s, NULL), 0);
        fixture_publish(&f, 1, 1); /* may or may not reach the stream */
        status_is_answered(g);
        fixture_publish(&f, 1000, 100);
        status_is_answered(g);
        CHECK_EQ(s.batches, 0); /* callbacks only in dispatch */
        CHECK_EQ(gpuobs_timeout_ms(g), 0);
        CHECK(gpuobs_dispatch(g) >= 11);
        CHECK(s.launches == 1000 || s.launches == 1001);
        gpuobs_free(g);
}

/* ---- privileges ---- */

static void sees_only_its_own(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_subscribe_params foreign = {.has_pid = true, .pid = 101};
        struct gpuobs_processes *p;
        struct gpuobs_launches *l;
        struct gpuobs_losses_report *r;
        struct gpuobs_coverage *c;
        struct gpuobs_status *s;

        CHECK_EQ(gpuobs_processes_list(g, NULL, &p), 0);
        CHECK_EQ(p->n_processes, 2);
        for (size_t i = 0; i < p->n_processes; i++)
                CHECK_EQ(p->processes[i].uid, FIXTURE_UID);
        CHECK_EQ(p->losses.produced, 60);
        CHECK_EQ(gpuobs_launches_query(g, NULL, &l), 0);
        CHECK_EQ(l->n_launches, 50); /* every other row of the made-up database */
        CHECK_EQ(gpuobs_losses_get(g, NULL, &r), 0);
        CHECK_EQ(r->n_processes, 2);
        CHECK_EQ(r->losses.lost, 12);
        CHECK_EQ(gpuobs_coverage_list(g, NULL, &c), 0);
        CHECK_EQ(c->n_images, 4);
        CHECK_EQ(gpuobs_status(g, NULL, &s), 0);
        CHECK(!s->all_processes);
        CHECK_EQ(s->losses.produced, 60);
        CHECK_EQ(gpuobs_launches_subscribe(g, &foreign, on_batch, &(struct seen){0}, NULL), 0);
        gpuobs_processes_free(p);
        gpuobs_launches_free(l);
        gpuobs_losses_report_free(r);
        gpuobs_coverage_free(c);
        gpuobs_status_free(s);
        gpuobs_free(g);
}

static void sees_everything(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_processes *p;

        CHECK_EQ(gpuobs_processes_list(g, NULL, &p), 0);
        CHECK_EQ(p->n_processes, FIXTURE_PROCESSES);
        gpuobs_processes_free(p);
        gpuobs_free(g);
}

static void sees_nothing(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct gpuobs_processes *p;

        CHECK_EQ(gpuobs_processes_list(g, NULL, &p), 0);
        CHECK_EQ(p->n_processes, 0);
        CHECK_EQ(p->losses.produced, 0);
        gpuobs_processes_free(p);
        gpuobs_free(g);
}

static void users_see_their_own(void)
{
        fixture_as(&f, FIXTURE_UID, 65534, sees_only_its_own);
        fixture_as(&f, 12345, 65534, sees_nothing);
        fixture_as(&f, 12345, FIXTURE_GID, sees_everything); /* a supplementary group will do */
        fixture_as(&f, 0, 65534, sees_everything);
}

/* Launches of others do not reach a user's stream: the child counts its own. */
static void stream_of_a_user(struct fixture *fx)
{
        struct gpuobs *g = fixture_client(&f);
        struct seen s = {0};

        CHECK_EQ(gpuobs_launches_subscribe(g, NULL, on_batch, &s, NULL), 0);
        dispatch_until(g, &s.batches, 1);
        CHECK(write(3, "", 1) == 1); /* ready */
        dispatch_until(g, &s.launches, 400);
        usleep(50000);
        CHECK(gpuobs_dispatch(g) >= 0);
        CHECK_EQ(s.launches, 400);
        gpuobs_free(g);
}

static void streams_show_only_own(void)
{
        int ready[2], status;
        char byte;
        pid_t pid;

        CHECK_EQ(pipe(ready), 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                CHECK_EQ(dup2(ready[1], 3), 3);
                fixture_as(&f, FIXTURE_UID, 65534, stream_of_a_user);
                _exit(0);
        }
        close(ready[1]);
        CHECK_EQ(read(ready[0], &byte, 1), 1);
        fixture_publish(&f, 1000, 100);
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(ready[0]);
}

int main(void)
{
        if (geteuid() != 0)
                test_skip("changing user ids needs root");
        fixture_init(&f);
        fixture_start(&f);
        TEST(describe_tells_the_schema);
        TEST(status_is_complete);
        TEST(processes_come_in_pages);
        TEST(absent_is_not_zero);
        TEST(coverage_pages_agree);
        TEST(coverage_filters);
        TEST(driver_calls_pages_agree);
        TEST(driver_calls_are_told);
        TEST(channel_groups_come_in_pages);
        TEST(shares_are_told);
        TEST(slices_come_in_pages);
        TEST(waiting_is_split);
        TEST(losses_name_their_causes);
        TEST(launches_come_in_pages);
        TEST(newest_launches_are_the_last);
        TEST(kernels_are_counted);
        TEST(parameters_have_ranges);
        TEST(failed_queries_say_why);
        TEST(slow_queries_hold_nobody_up);
        TEST(nobody_waits_and_the_query_stops);
        TEST(streams_carry_everything);
        TEST(slices_are_streamed);
        TEST(cancelled_streams_end);
        TEST(slow_subscribers_are_told);
        TEST(sync_calls_keep_frames_of_streams);
        TEST(users_see_their_own);
        TEST(streams_show_only_own);
        fixture_stop(&f);
        return 0;
}
