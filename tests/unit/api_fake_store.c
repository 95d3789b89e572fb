/* SPDX-License-Identifier: Apache-2.0 */

/* What the API uses of store.h over made-up rows, to be linked in its place. */
#include <errno.h>
#include <unistd.h>

#include "store/store.h"
#include "unit/api_fixture.h"
#include "unit/test.h"

atomic_int fake_store_delay_ms;
atomic_int fake_store_turn;
atomic_int fake_store_let_go;
atomic_int fake_store_waiting;
atomic_int fake_store_error;
atomic_int fake_store_rows;
atomic_int fake_store_running;
atomic_int fake_store_finished;
atomic_int fake_store_peak;
atomic_int fake_store_readers;

struct store_reader {
        int used;
};

int store_reader_new(const char *path, struct store_reader **ret_reader)
{
        CHECK_STR(path, "fake");
        *ret_reader = calloc(1, sizeof(**ret_reader));
        CHECK(*ret_reader);
        fake_store_readers++;
        return 0;
}

struct store_reader *store_reader_free(struct store_reader *r)
{
        if (r)
                fake_store_readers--;
        free(r);
        return NULL;
}

const char *store_reader_error(const struct store_reader *r)
{
        return fake_store_error == -ENOSPC ? "no space for a sort" : "";
}

static void wait_to_be_let_go(void)
{
        int turn = fake_store_turn;

        if (turn)
                fake_store_waiting++;
        while (fake_store_let_go < turn)
                usleep(1000);
}

static void enter(struct store_reader *r)
{
        int running = ++fake_store_running;

        /* A reader has one user at a time. */
        CHECK_EQ(__atomic_exchange_n(&r->used, 1, __ATOMIC_SEQ_CST), 0);
        if (running > fake_store_peak)
                fake_store_peak = running;
        wait_to_be_let_go();
}

static int leave(struct store_reader *r)
{
        __atomic_store_n(&r->used, 0, __ATOMIC_SEQ_CST);
        fake_store_running--;
        fake_store_finished++;
        return fake_store_error;
}

static bool matches(const struct store_filter *f, const struct store_launch *l)
{
        return (f->uid == UINT32_MAX || f->uid == l->uid) && (!f->pid || f->pid == l->pid) &&
               l->record.launch_id > f->after_launch_id && l->record.cpu_enter_ns >= f->since_ns;
}

/* As many rows with long names as it takes to fill more than a frame. */
static const char *long_name(void)
{
        static char name[2048];

        if (!name[0])
                memset(name, 'k', sizeof(name) - 1);
        return name;
}

int store_query_launches(struct store_reader *r, const struct store_filter *filter,
                         uint32_t timeout_ms, int (*row)(void *data, const struct store_launch *l),
                         void *data)
{
        int rows = fake_store_rows;
        uint64_t first = filter->newest && (uint32_t)rows > filter->limit
                                 ? (uint64_t)rows - filter->limit + 1
                                 : 1;
        uint32_t given = 0;
        bool stop = false;

        enter(r);
        for (uint64_t id = first; id <= (uint64_t)rows && given < filter->limit && !stop; id++) {
                /* Every tenth is known to wait from 1050 to 1350 ns, half of it for others. */
                struct store_launch l = {
                        .record = {.launch_id = id,
                                   .process_key = 1,
                                   .cpu_enter_ns = id,
                                   .cpu_return_ns = 1050,
                                   .gpu_start_ns = 1350,
                                   .queue_others_ns = id % 10 == 5 ? 150 : 0,
                                   .has = id % 10 == 5
                                                  ? LAUNCH_HAS_GPU_START | LAUNCH_HAS_QUEUE_OTHERS
                                                  : 0},
                        .kernel = long_name(),
                        .comm = "app",
                        .cgroup = "",
                        .pid = (uint32_t)(101 + id % FIXTURE_PROCESSES),
                        .uid = id % 2 ? 0 : FIXTURE_UID};

                if (fake_store_delay_ms)
                        usleep((useconds_t)fake_store_delay_ms * 1000);
                if (!matches(filter, &l))
                        continue;
                stop = row(data, &l);
                given++;
        }
        return leave(r);
}

int store_query_kernels(struct store_reader *r, const struct store_filter *filter,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_kernel_stats *k), void *data,
                        uint64_t *ret_rows_from_ns)
{
        struct store_kernel_stats stats[2] = {
                {.kernel = "busy",
                 .launches = 7,
                 .summed = 3,
                 .execution = {7, 700, 90, 100, 100, 110, 120, 130},
                 .queue = {6, 60, 1, 10, 10, 11, 12, 13}},
                {.kernel = NULL, .launches = 1},
        };

        enter(r);
        *ret_rows_from_ns = 5000;
        for (uint32_t i = 0; i < 2 && i < filter->limit; i++)
                if (row(data, &stats[i]))
                        break;
        return leave(r);
}

int store_query_managed(struct store_reader *r, const struct store_filter *filter, uint32_t step_s,
                        uint32_t timeout_ms,
                        int (*row)(void *data, const struct store_managed_past *past), void *data)
{
        enter(r);
        for (uint64_t i = filter->after_launch_id + 1; i <= 3; i++) {
                const struct store_managed_past past = {
                        .sum = {.events = 100 * i, .gpu_faults = i, .remote_maps = 7},
                        .start_ns = i * step_s,
                        .seconds = 2,
                        .cursor = i,
                        .pid = 101,
                        .start_ticks = 7,
                        .comm = "app",
                };

                if (row(data, &past))
                        break;
        }
        return leave(r);
}

int store_query_shares(struct store_reader *r, const struct store_filter *filter,
                       uint32_t timeout_ms,
                       int (*row)(void *data, const struct store_share_sum *sum), void *data)
{
        const struct store_share_sum sums[] = {
                {.share = {.of_engine = true,
                           .mig_gpu = 255,
                           .mig_compute = 255,
                           .span_ns = 10000,
                           .active_ns = 8000,
                           .switch_ns = 500,
                           .slices = 5,
                           .idle_ns = 1400,
                           .unknown_ns = 100,
                           .lost = 3},
                 .end_ns = 10000},
                {.share = {.mig_gpu = 255,
                           .mig_compute = 255,
                           .process_key = 1,
                           .context = STORE_CONTEXT_GROUP | 9,
                           .active_ns = 5000,
                           .slices = 50,
                           .longest_ns = 200},
                 .pid = 101,
                 .start_ticks = 7,
                 .comm = "app"},
                {.share = {.mig_gpu = 255, .mig_compute = 255, .active_ns = 3000}},
                {.share = {.of_engine = true, .gpu = 1, .mig_gpu = 3, .mig_compute = 0}},
        };

        enter(r);
        for (size_t i = 0; i < sizeof(sums) / sizeof(sums[0]); i++)
                if (row(data, &sums[i]))
                        break;
        return leave(r);
}

/* ---- the writing side ---- */

void store_get_status(struct store *s, struct store_status *ret_status)
{
        *ret_status = (struct store_status){.launches = 1234, .failing = fake_store_error != 0};
        if (fake_store_error)
                snprintf(ret_status->error, sizeof(ret_status->error), "disk full");
}

int store_flush(struct store *s, uint64_t timeout_ns)
{
        wait_to_be_let_go();
        usleep((useconds_t)fake_store_delay_ms * 1000);
        return fake_store_error ? -ETIMEDOUT : 0;
}

int store_prune(struct store *s, uint64_t older_than_ns, bool sums, uint64_t timeout_ns,
                uint64_t *ret_deleted)
{
        *ret_deleted = older_than_ns / 1000000000 + (sums ? 1000 : 0);
        return fake_store_error ? -ETIMEDOUT : 0;
}
