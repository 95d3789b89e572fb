/* SPDX-License-Identifier: Apache-2.0 */

/*
 * kill -9 at random moments, again and again on the same database: it is whole,
 * has everything that was said to be stored, and everything put long before. That is many
 * times the interval of commits; rounds that last long enough for it are few.
 */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "unit/store_helpers.h"

#define ROUNDS           14
#define MARKS            65536
#define LONG_MS          3000 /* before the kill: a disk may be slow, a machine stand still */
#define LONG_ROUND_EVERY 6
#define PUT_BATCH        64
#define LIMIT_FROM                                                                                 \
        8 /* rounds from here on run with a limit of size, so deletion is cut short too */

/* Written by the child until it dies, read by the parent. */
struct log {
        uint64_t first_id;
        uint64_t stored; /* said by store_collect() */
        uint64_t failed;
        uint64_t marks; /* written so far */
        struct {
                uint64_t time_ns, last_id; /* all ids up to this one were put by then */
        } mark[MARKS];
};

static void add_mark(struct log *log, uint64_t last_id)
{
        log->mark[log->marks % MARKS].time_ns = now_ns();
        log->mark[log->marks % MARKS].last_id = last_id;
        __atomic_store_n(&log->marks, log->marks + 1, __ATOMIC_RELEASE);
}

static _Noreturn void child(struct log *log, int round)
{
        struct store_options options = {.commit_interval_ms = 100};
        struct launch_record records[PUT_BATCH];
        struct ledger ledger = {0};
        char kernel[32];
        uint64_t id, key;
        struct opened o;

        if (round >= LIMIT_FROM)
                options.max_bytes = 16 << 20;
        open_with(&o, &options);
        key = o.next_process_key;
        put_process(&o, key, 1000 + (uint32_t)round, 0, "victim");
        log->first_id = id = o.next_launch_id;
        for (uint64_t n = 0;; n++) {
                struct store_outcome outcome;
                size_t taken = 0;

                snprintf(kernel, sizeof(kernel), "kernel_%d_%d", round, (int)(n % 50));
                for (int i = 0; i < PUT_BATCH; i++)
                        records[i] =
                                full_record(id + (uint64_t)i, key, name_of(&o, kernel), now_ns());
                while (taken < PUT_BATCH) {
                        taken += store_put_launches(o.store, records + taken, PUT_BATCH - taken);
                        if (taken < PUT_BATCH)
                                usleep(500);
                }
                id += PUT_BATCH;
                ledger.produced += PUT_BATCH;
                CHECK_EQ(store_put_ledger(o.store, key, &ledger), 0);
                outcome = collect(&o, key);
                log->failed += outcome.failed;
                __atomic_fetch_add(&log->stored, outcome.stored, __ATOMIC_RELEASE);
                add_mark(log, id - 1);
                usleep(round % 2 ? 2000 : 300);
        }
}

/* Greatest id that was put LONG_MS or more before `then`. */
static uint64_t put_long_before(const struct log *log, uint64_t then)
{
        uint64_t marks = __atomic_load_n(&log->marks, __ATOMIC_ACQUIRE);
        uint64_t first = marks > MARKS ? marks - MARKS : 0, id = 0;

        for (uint64_t i = first; i < marks; i++)
                if (log->mark[i % MARKS].time_ns + LONG_MS * NSEC_PER_MSEC <= then)
                        id = log->mark[i % MARKS].last_id;
        return id;
}

static void check_database(const struct log *log, uint64_t killed_ns)
{
        uint64_t stored = __atomic_load_n(&log->stored, __ATOMIC_ACQUIRE);
        uint64_t last = put_long_before(log, killed_ns);
        int64_t max = sql_int(test_path, "SELECT coalesce(max(launch_id), 0) FROM launch");

        CHECK_EQ(sql_int(test_path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
                 1);
        CHECK_EQ(log->failed, 0);
        if (stored > 0)
                CHECK(max >= (int64_t)(log->first_id + stored - 1));
        CHECK(max >= (int64_t)last);
        /* No holes: what was before is there, or the oldest part of it was deleted. */
        CHECK_EQ(sql_int(test_path, "SELECT coalesce(max(launch_id) - min(launch_id) + 1, 0)"
                                    " - count(*) FROM launch"),
                 0);
        CHECK_EQ(sql_int(test_path, "SELECT (SELECT count(*) FROM launch) -"
                                    " (SELECT coalesce(sum(launches), 0) FROM segment)"),
                 0);
        CHECK_EQ(sql_int(test_path, "SELECT (SELECT count(*) FROM launch) -"
                                    " (SELECT coalesce(sum(launches), 0) FROM segment_process)"),
                 0);
        CHECK_EQ(sql_int(test_path, "SELECT count(*) FROM launch l WHERE NOT EXISTS"
                                    " (SELECT 1 FROM name WHERE id = l.kernel) OR NOT EXISTS"
                                    " (SELECT 1 FROM process WHERE process_key = l.process)"),
                 0);
        CHECK_EQ(sql_int(test_path, "SELECT (SELECT count(*) FROM launch) - (SELECT count(*) FROM"
                                    " segment s JOIN launch l ON l.launch_id BETWEEN s.first_id AND"
                                    " s.last_id AND l.cpu_enter_ns BETWEEN s.min_enter_ns AND"
                                    " s.max_enter_ns)"),
                 0);
        printf("   %" PRId64 " rows up to %" PRId64 ", said stored %" PRIu64 ", of round %" PRIu64
               " put long before %" PRIu64 "\n",
               sql_int(test_path, "SELECT count(*) FROM launch"), max, stored,
               stored ? max - (int64_t)log->first_id + 1 : 0, last ? last - log->first_id + 1 : 0);
}

static void killed_at_random_moments(void)
{
        struct log *log =
                mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        uint64_t random = now_ns(), seen_old = 0;

        CHECK(log != MAP_FAILED);
        new_test_directory();
        for (int round = 0; round < ROUNDS; round++) {
                uint64_t wait_ms = 20 + test_random(&random) % 1980, killed_ns;
                int status;
                pid_t pid;

                if (round % LONG_ROUND_EVERY == LONG_ROUND_EVERY - 1)
                        wait_ms += LONG_MS;
                memset(log, 0, sizeof(*log));
                fflush(stdout);
                pid = fork();
                CHECK(pid >= 0);
                if (pid == 0)
                        child(log, round);
                usleep((useconds_t)wait_ms * 1000);
                killed_ns = now_ns();
                CHECK_EQ(kill(pid, SIGKILL), 0);
                CHECK_EQ(waitpid(pid, &status, 0), pid);
                CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
                seen_old += put_long_before(log, killed_ns) > 0;
                if (access(test_path, F_OK) == 0)
                        check_database(log, killed_ns);
        }
        CHECK(seen_old > 0);
        munmap(log, sizeof(*log));
}

int main(void)
{
        TEST(killed_at_random_moments);
        return 0;
}
