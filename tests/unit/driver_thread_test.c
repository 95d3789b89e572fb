/* SPDX-License-Identifier: Apache-2.0 */

/* The thread that asks the driver: in order, on which thread what is called, and calls that block.
 */
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "driver/driver_thread.h"
#include "driver/silence.h"
#include "unit/test.h"
#include "util/time.h"

struct question {
        struct driver_task task;
        int runs, dones, order;
        pthread_t asked_by, told_to;
        atomic_bool blocked;
};

static atomic_int orders;

static void run(void *data)
{
        struct question *q = data;

        while (atomic_load(&q->blocked))
                usleep(1000);
        q->runs++;
        q->order = atomic_fetch_add(&orders, 1);
        q->asked_by = pthread_self();
}

static void done(void *data)
{
        struct question *q = data;

        q->dones++;
        q->told_to = pthread_self();
}

static void init(struct question *q)
{
        *q = (struct question){.task = {.run = run, .done = done, .data = q}};
}

static uint64_t in_s(unsigned s)
{
        return now_ns() + s * NSEC_PER_SEC;
}

static struct driver_thread *begin(void)
{
        struct driver_thread *t = NULL;

        CHECK_EQ(driver_thread_new("test", &t), 0);
        return t;
}

static void wait_for_threads(void)
{
        for (int i = 0; silence_abandoned() && i < 10000; i++)
                usleep(5000);
        CHECK_EQ(silence_abandoned(), 0);
}

static void tasks_run_in_order_elsewhere(void)
{
        struct driver_thread *t = begin();
        struct question q[20];

        for (int i = 0; i < 20; i++) {
                init(&q[i]);
                CHECK(driver_thread_give(t, &q[i].task));
        }
        CHECK(driver_thread_wait(t, &q[19].task, in_s(60)));
        for (int i = 0; i < 20; i++) {
                CHECK_EQ(q[i].runs, 1);
                CHECK_EQ(q[i].dones, 1);
                CHECK(i == 0 || q[i].order == q[i - 1].order + 1);
                CHECK(!pthread_equal(q[i].asked_by, pthread_self()));
                CHECK(pthread_equal(q[i].told_to, pthread_self()));
        }
        driver_thread_free(t);
        CHECK_EQ(silence_abandoned(), 0);
}

static void what_is_done_is_told_through_the_file(void)
{
        struct driver_thread *t = begin();
        struct pollfd p = {.fd = driver_thread_fd(t), .events = POLLIN};
        struct question q;

        init(&q);
        CHECK_EQ(poll(&p, 1, 0), 0);
        CHECK(driver_thread_give(t, &q.task));
        CHECK_EQ(poll(&p, 1, 60000), 1);
        CHECK_EQ(q.dones, 0);
        CHECK(!driver_thread_give(t, &q.task)); /* not before it has been taken in */
        driver_thread_collect(t);
        CHECK_EQ(q.dones, 1);
        CHECK_EQ(poll(&p, 1, 0), 0);
        CHECK(driver_thread_give(t, &q.task));
        CHECK(driver_thread_wait(t, &q.task, in_s(60)));
        CHECK_EQ(q.runs, 2);
        driver_thread_free(t);
}

static void what_was_given_is_run_before_the_end(void)
{
        for (int i = 0; i < 50; i++) {
                struct driver_thread *t = begin();
                struct question q;

                init(&q);
                CHECK(driver_thread_give(t, &q.task));
                driver_thread_free(t);
                CHECK_EQ(q.runs, 1);
                CHECK_EQ(q.dones, 0);
        }
        driver_thread_free(NULL);
}

static void a_call_that_blocks_holds_nobody(void)
{
        struct driver_thread *t = begin();
        struct silence *s = driver_thread_silence(t);
        struct question stuck, behind;
        uint64_t start;

        init(&stuck);
        init(&behind);
        atomic_store(&stuck.blocked, true);
        CHECK(driver_thread_give(t, &stuck.task));
        CHECK(driver_thread_give(t, &behind.task));
        while (!silence_lasts_ns(s))
                usleep(1000);
        start = now_ns();
        CHECK(!driver_thread_wait(t, &behind.task, now_ns() + SILENCE_NS + 100 * NSEC_PER_MSEC));
        CHECK(now_ns() - start < 20 * SILENCE_NS);
        CHECK(silence_lasts_ns(s) >= SILENCE_NS);
        CHECK_EQ(silence_count(s), 1);
        CHECK_EQ(behind.runs, 0);
        atomic_store(&stuck.blocked, false);
        CHECK(driver_thread_wait(t, &behind.task, in_s(60)));
        CHECK_EQ(stuck.dones, 1);
        CHECK_EQ(behind.dones, 1);
        CHECK(driver_thread_give(t, &stuck.task)); /* and on it goes */
        CHECK(driver_thread_wait(t, &stuck.task, in_s(60)));
        CHECK_EQ(silence_count(s), 1);
        CHECK(silence_total_ns(s) >= SILENCE_NS);
        driver_thread_free(t);
        CHECK_EQ(silence_abandoned(), 0);
}

static void it_ends_in_the_midst_of_a_call(void)
{
        struct driver_thread *t = begin();
        struct question stuck, behind;
        uint64_t start = now_ns();

        init(&stuck);
        init(&behind);
        atomic_store(&stuck.blocked, true);
        CHECK(driver_thread_give(t, &stuck.task));
        CHECK(driver_thread_give(t, &behind.task));
        driver_thread_free(t);
        CHECK(now_ns() - start >= SILENCE_END_NS && now_ns() - start < 20 * SILENCE_END_NS);
        CHECK_EQ(silence_abandoned(), 1);
        atomic_store(&stuck.blocked, false);
        wait_for_threads();
        CHECK_EQ(stuck.runs, 1);
        CHECK_EQ(behind.runs, 0); /* what it would use may be gone by then */
        CHECK_EQ(stuck.dones, 0);
}

int main(void)
{
        TEST(tasks_run_in_order_elsewhere);
        TEST(what_is_done_is_told_through_the_file);
        TEST(what_was_given_is_run_before_the_end);
        TEST(a_call_that_blocks_holds_nobody);
        TEST(it_ends_in_the_midst_of_a_call);
        return 0;
}
