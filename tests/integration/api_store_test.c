/* SPDX-License-Identifier: Apache-2.0 */

/* Launches put into a real database, asked for through the API and the library. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/server.h"
#include "libclient/gpuobs.h"
#include "store/store.h"
#include "unit/test.h"
#include "util/intern.h"
#include "util/time.h"

#define LAUNCHES 5000

static char directory[] = "/tmp/gpuobs-api-store-XXXXXX";
static char database[128], path[128];
static struct store *store;
static struct intern *names;

/* ---- the daemon's side ---- */

static void no_state(void *data, struct api_state *ret_state)
{
        *ret_state = (struct api_state){.store_path = database};
        store_get_status(store, &ret_state->store);
}

static void no_processes(void *data, uint64_t after,
                         int (*row)(void *row_data, const struct api_process *p), void *row_data)
{
}

static void no_losses(void *data, uint32_t uid, struct ledger *ret_ledger)
{
        *ret_ledger = (struct ledger){.produced = LAUNCHES, .stored = LAUNCHES};
}

static struct slice_history *no_slices(void *data)
{
        return NULL;
}

static const struct api_backend backend = {
        .state = no_state, .processes = no_processes, .losses = no_losses, .slices = no_slices};

static struct api_server *server;
static uv_loop_t loop;
static uv_async_t stop;
static uv_thread_t thread;

static void on_stop(uv_async_t *async)
{
        api_server_close(server, NULL, NULL);
        uv_close((uv_handle_t *)async, NULL);
}

static void serve(void *unused)
{
        uv_run(&loop, UV_RUN_DEFAULT);
}

static void start(void)
{
        struct api_server_options options = {.listen_fd = -1, .path = path, .store_path = database};

        api_limits_default(&options.limits);
        CHECK_EQ(uv_loop_init(&loop), 0);
        CHECK_EQ(uv_async_init(&loop, &stop, on_stop), 0);
        CHECK_EQ(api_server_new(&loop, &options, &backend, NULL, &server), 0);
        CHECK_EQ(uv_thread_create(&thread, serve, NULL), 0);
}

static void fill(void)
{
        struct store_options options = {.path = database, .commit_interval_ms = 50};
        struct process_info process = {.process_key = 1,
                                       .start_ticks = 77,
                                       .pid = 4242,
                                       .uid = 1000,
                                       .comm = "train",
                                       .exe = "/usr/bin/train",
                                       .cgroup = "/jobs/7"};
        uint64_t next_id, next_key, ids[2];
        char error[200];

        CHECK(mkdtemp(directory));
        snprintf(database, sizeof(database), "%s/launches.db", directory);
        snprintf(path, sizeof(path), "%s/api.sock", directory);
        names = intern_new();
        ids[0] = intern_id(names, "gemm_f16", 8);
        ids[1] = intern_id(names, "softmax", 7);
        CHECK_EQ(store_open(&options, names, error, sizeof(error), &store, &next_id, &next_key), 0);
        CHECK_EQ(store_put_process(store, &process), 0);
        for (uint64_t i = 0; i < LAUNCHES; i++) {
                struct launch_record r = {
                        .launch_id = next_id + i,
                        .process_key = 1,
                        .kernel_name = ids[i % 2],
                        .cpu_enter_ns = 1000000 + 1000 * i,
                        .cpu_return_ns = 1000000 + 1000 * i + 300,
                        .gpu_start_ns = 1000000 + 1000 * i + 200,
                        .gpu_end_ns = 1000000 + 1000 * i + 200 + (i % 2 ? 50 : 500),
                        .grid_x = 4,
                        .grid_y = 2,
                        .grid_z = 1,
                        .block_x = 256,
                        .block_y = 1,
                        .block_z = 1,
                        .has = LAUNCH_HAS_GPU_START | LAUNCH_HAS_GPU_END | LAUNCH_HAS_KERNEL |
                               LAUNCH_HAS_GEOMETRY,
                        .match = MATCH_ORDERED,
                        .end = END_MEASURED,
                };

                CHECK_EQ(store_put_launches(store, &r, 1), 1);
        }
        CHECK_EQ(store_flush(store, 10 * NSEC_PER_SEC), 0);
}

/* ---- the client's side ---- */

static struct gpuobs *g;

static void every_launch_once(void)
{
        struct gpuobs_launches_params p = {.has_limit = true, .limit = 777};
        struct gpuobs_launches *page;
        uint64_t seen = 0, last = 0;

        do {
                CHECK_EQ(gpuobs_launches_query(g, &p, &page), 0);
                for (size_t i = 0; i < page->n_launches; i++, seen++) {
                        const struct gpuobs_launch *l = &page->launches[i];

                        CHECK(l->launch_id > last);
                        last = l->launch_id;
                        CHECK_EQ(l->pid, 4242);
                        CHECK_EQ(l->start_ticks, 77);
                        CHECK_STR(l->comm, "train");
                        CHECK_STR(l->cgroup, "/jobs/7");
                        CHECK_STR(l->kernel, seen % 2 ? "softmax" : "gemm_f16");
                        CHECK_EQ(l->cpu_enter_ns, 1000000 + 1000 * seen);
                        CHECK(l->has_grid && l->grid[0] == 4 && l->grid[1] == 2);
                        CHECK(!l->has_gpu && !l->has_smid && !l->has_graph_exec);
                        CHECK_EQ(l->match, GPUOBS_MATCH_ORDERED);
                        CHECK_EQ(l->end, GPUOBS_END_MEASURED);
                }
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                gpuobs_launches_free(page);
        } while (p.has_cursor);
        CHECK_EQ(seen, LAUNCHES);
}

static size_t count(const struct gpuobs_launches_params *filter)
{
        struct gpuobs_launches_params p = *filter;
        struct gpuobs_launches *page;
        size_t n = 0;

        do {
                CHECK_EQ(gpuobs_launches_query(g, &p, &page), 0);
                n += page->n_launches;
                p.has_cursor = page->has_next_cursor;
                p.cursor = page->next_cursor;
                gpuobs_launches_free(page);
        } while (p.has_cursor);
        return n;
}

static void filters_filter(void)
{
        struct gpuobs_launches_params p = {.has_limit = true, .limit = 10000};

        p.kernel = "soft*";
        CHECK_EQ(count(&p), LAUNCHES / 2);
        p.kernel = "nothing*";
        CHECK_EQ(count(&p), 0);
        p.kernel = NULL;
        p.has_since_ns = true;
        p.since_ns = 1000000 + 1000 * (LAUNCHES - 10);
        CHECK_EQ(count(&p), 10);
        p.has_until_ns = true;
        p.until_ns = 1000000 + 1000 * (LAUNCHES - 5);
        CHECK_EQ(count(&p), 5);
        p.has_pid = true;
        p.pid = 4243;
        CHECK_EQ(count(&p), 0);
}

static void newest_are_newest(void)
{
        struct gpuobs_launches_params p = {
                .has_limit = true, .limit = 3, .has_newest = true, .newest = true};
        struct gpuobs_launches *page;

        CHECK_EQ(gpuobs_launches_query(g, &p, &page), 0);
        CHECK_EQ(page->n_launches, 3);
        CHECK_EQ(page->launches[2].cpu_enter_ns, 1000000 + 1000 * (LAUNCHES - 1));
        CHECK(page->launches[0].launch_id < page->launches[2].launch_id);
        gpuobs_launches_free(page);
}

static void statistics_are_right(void)
{
        struct gpuobs_kernels *k;

        CHECK_EQ(gpuobs_kernels_stats(g, NULL, &k), 0);
        CHECK_EQ(k->n_kernels, 2);
        CHECK_STR(k->kernels[0].kernel, "gemm_f16");
        CHECK_EQ(k->kernels[0].launches, LAUNCHES / 2);
        CHECK_EQ(k->kernels[0].execution.p50_ns, 500);
        CHECK_EQ(k->kernels[1].execution.total_ns, 50 * LAUNCHES / 2);
        gpuobs_kernels_free(k);
}

/* The database goes away under the server: an error that says so, and life goes on. */
static void a_lost_database_is_told(void)
{
        struct gpuobs_launches *page;
        struct gpuobs *other;
        char aside[160];

        snprintf(aside, sizeof(aside), "%s.aside", database);
        CHECK_EQ(rename(database, aside), 0);
        CHECK_EQ(gpuobs_connect(path, 0, &other), 0);
        if (gpuobs_launches_query(other, NULL, &page) == 0)
                gpuobs_launches_free(page); /* a reader may keep the file it has open */
        else
                CHECK_STR(gpuobs_error(other)->code, "store_failed");
        CHECK_EQ(rename(aside, database), 0);
        CHECK_EQ(gpuobs_launches_query(other, NULL, &page), 0);
        gpuobs_launches_free(page);
        gpuobs_free(other);
}

int main(void)
{
        char command[200];

        fill();
        start();
        CHECK_EQ(gpuobs_connect(path, 0, &g), 0);
        TEST(every_launch_once);
        TEST(filters_filter);
        TEST(newest_are_newest);
        TEST(statistics_are_right);
        TEST(a_lost_database_is_told);
        gpuobs_free(g);
        uv_async_send(&stop);
        uv_thread_join(&thread);
        CHECK_EQ(uv_loop_close(&loop), 0);
        store_free(store);
        intern_free(names);
        snprintf(command, sizeof(command), "rm -r %s", directory);
        return system(command);
}
