/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Putting, writing, reading and asking at the same time, the string table growing
 * meanwhile. Meant for the thread sanitizer; what is read must be consistent.
 */
#include <pthread.h>

#include "unit/store_helpers.h"

#define ROWS 150000

static bool stop;

struct progress {
        uint64_t next; /* expected id */
        uint64_t rows;
};

static int in_order(void *data, const struct store_launch *l)
{
        struct progress *p = data;
        char expected[32];

        CHECK_EQ(l->record.launch_id, p->next);
        snprintf(expected, sizeof(expected), "kernel_%d", (int)(p->next / 100));
        CHECK_STR(l->kernel, expected);
        CHECK_STR(l->comm, "app");
        p->next++;
        p->rows++;
        return 0;
}

/* Follows the rows by cursor, as a client does. */
static void *follow(void *data)
{
        struct store_filter f = any_launch();
        struct progress p = {.next = 1};
        struct store_reader *r;

        CHECK_EQ(store_reader_new(test_path, &r), 0);
        while (p.next <= ROWS) {
                f.after_launch_id = p.next - 1;
                CHECK_EQ(store_query_launches(r, &f, 20000, in_order, &p), 0);
        }
        CHECK_EQ(p.rows, ROWS);
        store_reader_free(r);
        return NULL;
}

static int add_kernel(void *data, const struct store_kernel_stats *k)
{
        *(uint64_t *)data += k->launches;
        CHECK_EQ(k->execution.count, k->launches);
        CHECK_EQ(k->execution.p50_ns, 1000);
        return 0;
}

static int add_process(void *data, const struct process_info *p, uint64_t launches)
{
        *(uint64_t *)data += launches;
        return 0;
}

/* Sums never go back, and two ways to count agree on what was there in between. */
static void *sum_up(void *data)
{
        struct store_filter f = any_launch();
        uint64_t last = 0;
        struct store_reader *r;

        CHECK_EQ(store_reader_new(test_path, &r), 0);
        while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
                uint64_t by_kernel = 0, by_process = 0, rows_from_ns;

                CHECK_EQ(store_query_kernels(r, &f, 20000, add_kernel, &by_kernel, &rows_from_ns),
                         0);
                CHECK_EQ(store_query_processes(r, 20000, add_process, &by_process), 0);
                CHECK(by_kernel >= last);
                CHECK(by_process >= by_kernel);
                last = by_process;
        }
        store_reader_free(r);
        return NULL;
}

static void *ask_status(void *data)
{
        struct opened *o = data;
        struct store_status status;

        while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
                store_get_status(o->store, &status);
                CHECK(!status.failing);
                usleep(500);
        }
        return NULL;
}

static void everything_at_once(void)
{
        void *(*const bodies[])(void *) = {follow, sum_up, ask_status};
        struct store_outcome outcome;
        struct ledger ledger = {0};
        uint64_t stored = 0;
        pthread_t threads[3];
        struct opened o;

        new_test_directory();
        open_plain(&o);
        put_process(&o, 1, 1, 0, "app");
        for (int i = 0; i < 3; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, bodies[i], &o), 0);
        for (uint64_t id = 1; id <= ROWS; id++) {
                char name[32];
                struct launch_record r;

                snprintf(name, sizeof(name), "kernel_%d", (int)(id / 100));
                r = full_record(id, 1, name_of(&o, name), id * 1000);
                while (store_put_launches(o.store, &r, 1) == 0)
                        usleep(200);
                if (id % 1000 == 0) {
                        ledger.produced = id;
                        CHECK_EQ(store_put_ledger(o.store, 1, &ledger), 0);
                        put_process(&o, 1, 1, 0, "app");
                        outcome = collect(&o, 1);
                        stored += outcome.stored;
                        CHECK_EQ(outcome.failed, 0);
                }
        }
        flush(&o);
        CHECK_EQ(stored + collect(&o, 1).stored, ROWS);
        pthread_join(threads[0], NULL);
        __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
        pthread_join(threads[1], NULL);
        pthread_join(threads[2], NULL);
        close_store(&o);
}

int main(void)
{
        TEST(everything_at_once);
        return 0;
}
