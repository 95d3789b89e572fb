/* SPDX-License-Identifier: Apache-2.0 */

/* The launch map: what threads of a process write, the reader takes once, in order, or counts. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/launch_push.h"
#include "cpu/cpu_abi.h"
#include "probe/launch_ring.h"
#include "unit/test.h"
#include "unit/test_clock.h" /* no hole is waited for in vain because a thread stopped */
#include "util/time.h"

#define THREADS  4
#define LAUNCHES 200000

#define LOAD(at) __atomic_load_n(&(at), __ATOMIC_RELAXED)

static struct launch_ring *ring;
static struct agent_launch_map *map;

static void open_ring(void)
{
        int fd = memfd_create("launches", MFD_CLOEXEC);

        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, AGENT_LAUNCH_BYTES), 0);
        map = mmap(NULL, AGENT_LAUNCH_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(map != MAP_FAILED);
        CHECK_EQ(launch_ring_adopt(fd, &ring), 0);
        CHECK_EQ(launch_ring_fd(ring), fd);
}

static void close_ring(void)
{
        munmap(map, AGENT_LAUNCH_BYTES);
        ring = launch_ring_free(ring);
}

static struct agent_launch launch(uint32_t tid, uint32_t seq)
{
        return (struct agent_launch){.enter_ns = now_ns(),
                                     .func = ((uint64_t)tid << 32) | seq,
                                     .stream = ~(((uint64_t)tid << 32) | seq),
                                     .tid = tid,
                                     .seq = seq,
                                     .grid_x = seq,
                                     .block_x = 32,
                                     .block_y = 1,
                                     .block_z = 1,
                                     .type = CPU_EVENT_LAUNCH};
}

static bool push(uint32_t seq)
{
        struct agent_launch l = launch(1, seq);

        return launch_map_push(map, 0, &l);
}

static bool take(struct agent_launch *ret_launch)
{
        uint64_t context;

        return launch_ring_take(ring, now_ns(), false, ret_launch, &context);
}

static struct launch_ring_losses losses(void)
{
        struct launch_ring_losses l;

        launch_ring_get_losses(ring, &l);
        return l;
}

static void test_in_order(void)
{
        struct agent_launch l;
        uint64_t context = 0;

        open_ring();
        CHECK_EQ(launch_map_context(map, 0), AGENT_LAUNCH_NO_CONTEXT);
        CHECK_EQ(launch_map_context(map, 0x1234), 0);
        CHECK_EQ(launch_map_context(map, 0x5678), 1);
        CHECK_EQ(launch_map_context(map, 0x1234), 0);
        CHECK_EQ(launch_map_enter(map, 1, false), 1);
        CHECK_EQ(launch_map_enter(map, 1, true), 2);
        CHECK_EQ(launch_map_enter(map, AGENT_LAUNCH_NO_CONTEXT, true), 0);
        CHECK_EQ(map->contexts[1].graphs, 1);
        CHECK(!take(&l));
        for (uint32_t i = 1; i <= 3 * AGENT_LAUNCH_ENTRIES; i++) {
                struct agent_launch in = launch(7, i);

                CHECK(launch_map_push(map, i % 2, &in));
                CHECK(launch_ring_take(ring, now_ns(), false, &l, &context));
                CHECK_EQ(context, i % 2 ? 0x5678 : 0x1234);
                in.turn = l.turn;
                CHECK_EQ(memcmp(&in, &l, sizeof(l)), 0);
        }
        CHECK(!take(&l));
        CHECK_EQ(losses().overrun + losses().torn, 0);

        /* A launch without a context, and the agent's own. */
        l = launch(1, 0);
        l.type |= AGENT_LAUNCH_OWN;
        CHECK(launch_map_push(map, AGENT_LAUNCH_NO_CONTEXT, &l));
        CHECK(launch_ring_take(ring, now_ns(), false, &l, &context));
        CHECK_EQ(context, 0);
        CHECK_EQ(l.type, CPU_EVENT_LAUNCH | AGENT_LAUNCH_OWN);
        close_ring();
}

static void test_until(void)
{
        struct agent_launch l;
        uint64_t between, context;

        open_ring();
        CHECK(push(1));
        between = now_ns();
        while (now_ns() == between)
                ;
        CHECK(push(2));
        CHECK(launch_ring_take(ring, between, false, &l, &context));
        CHECK_EQ(l.seq, 1);
        CHECK(!launch_ring_take(ring, between, false, &l, &context));
        CHECK(take(&l));
        CHECK_EQ(l.seq, 2);
        CHECK_EQ(losses().torn, 0);
        close_ring();
}

/* Far behind, asking for what returned long ago: what came since is no loss, nor an old hole. */
static void test_behind(void)
{
        struct agent_launch l;
        uint64_t context, long_ago = now_ns() - 10 * NSEC_PER_SEC;

        open_ring();
        CHECK(push(1));
        CHECK(!launch_ring_take(ring, long_ago, false, &l, &context));
        CHECK(take(&l));
        CHECK_EQ(l.seq, 1);
        map->producer.head++;
        CHECK(push(3));
        CHECK(!take(&l));
        CHECK(!launch_ring_take(ring, long_ago, false, &l, &context));
        CHECK(!take(&l));
        l = launch(1, 2);
        map->records[1] = l;
        map->records[1].turn = 2;
        CHECK(take(&l));
        CHECK_EQ(l.seq, 2);
        CHECK(take(&l));
        CHECK_EQ(l.seq, 3);
        CHECK_EQ(losses().torn, 0);
        close_ring();
}

/* Full: nothing is overwritten, what does not fit is counted, and reading makes room again. */
static void test_overrun(void)
{
        struct agent_launch l;
        uint32_t i;

        open_ring();
        for (i = 0; i < AGENT_LAUNCH_ENTRIES; i++)
                CHECK(push(i));
        for (i = 0; i < 10; i++)
                CHECK(!push(1u << 30));
        CHECK_EQ(losses().overrun, 10);
        for (i = 0; i < AGENT_LAUNCH_ENTRIES; i++) {
                CHECK(take(&l));
                CHECK_EQ(l.seq, i);
        }
        CHECK(!take(&l));
        launch_ring_release(ring);
        CHECK(push(77));
        CHECK(take(&l));
        CHECK_EQ(l.seq, 77);
        CHECK_EQ(losses().overrun, 10);
        CHECK_EQ(losses().torn, 0);
        close_ring();
}

/* Claimed by a thread that never writes: the next ones wait for it, but not for ever. */
static void test_hole(void)
{
        struct agent_launch l;
        uint64_t context;

        open_ring();
        CHECK(push(1));
        map->producer.head++;
        CHECK(push(3));
        CHECK(take(&l));
        CHECK_EQ(l.seq, 1);
        CHECK(!take(&l));
        CHECK_EQ(losses().torn, 0);
        test_time_ns += 600 * NSEC_PER_MSEC;
        CHECK(take(&l));
        CHECK_EQ(l.seq, 3);
        CHECK_EQ(losses().torn, 1);

        /* One that is filled in time is no loss; at the end no time is given. */
        map->producer.head++;
        CHECK(push(5));
        CHECK(!take(&l));
        l = launch(1, 4);
        map->records[3] = l;
        map->records[3].turn = 4;
        CHECK(take(&l));
        CHECK_EQ(l.seq, 4);
        CHECK(take(&l));
        CHECK_EQ(l.seq, 5);
        map->producer.head++;
        CHECK(push(7));
        CHECK(launch_ring_take(ring, now_ns(), true, &l, &context));
        CHECK_EQ(l.seq, 7);
        CHECK_EQ(losses().torn, 2);
        close_ring();
}

static void push_bad(void (*spoil)(struct agent_launch *))
{
        struct agent_launch l = launch(1, 1);

        spoil(&l);
        CHECK(launch_map_push(map, 200, &l));
}

static void bad_type(struct agent_launch *l)
{
        l->type = CPU_EVENT_HANDLE;
}

static void from_before(struct agent_launch *l)
{
        l->enter_ns = 1;
}

static void from_future(struct agent_launch *l)
{
        l->enter_ns += 3600 * NSEC_PER_SEC;
}

static void from_the_end_of_time(struct agent_launch *l)
{
        l->enter_ns = UINT64_MAX - 1;
        l->duration_ns = 5;
}

/* What a process cannot have meant is counted and passed, and what follows is read. */
static void test_hostile(void)
{
        void (*const spoils[])(struct agent_launch *) = {bad_type, from_before, from_future,
                                                         from_the_end_of_time};
        struct agent_launch l;
        uint64_t context = 1;

        open_ring();
        for (size_t i = 0; i < sizeof(spoils) / sizeof(spoils[0]); i++) {
                push_bad(spoils[i]);
                l = launch(1, (uint32_t)i);
                CHECK(launch_map_push(map, 200, &l)); /* no such context */
                CHECK(launch_ring_take(ring, now_ns(), false, &l, &context));
                CHECK_EQ(l.seq, i);
                CHECK_EQ(context, 0);
                CHECK_EQ(losses().torn, i + 1);
        }
        /* A head from nowhere, a tail that was never written, counters that run back. */
        map->producer.head = UINT64_MAX / 2;
        CHECK(!take(&l));
        CHECK(!launch_ring_take(ring, now_ns(), true, &l, &context));
        map->producer.dropped = 5;
        CHECK_EQ(losses().overrun, 5);
        map->producer.dropped = 3;
        CHECK_EQ(losses().overrun, 5);
        map->producer.dropped = UINT64_MAX;
        CHECK_EQ(losses().overrun, 5);
        map->producer.dropped = 9;
        CHECK_EQ(losses().overrun, 9);

        /* Random bytes everywhere: it comes to an end. */
        srand(7);
        for (size_t i = 0; i < AGENT_LAUNCH_BYTES / sizeof(int); i++)
                ((int *)map)[i] = rand();
        for (int i = 0; i < 1000; i++)
                take(&l);
        for (uint64_t i = 0; i < AGENT_LAUNCH_ENTRIES; i++)
                map->records[i].turn = i + 1;
        for (int i = 0; i < 1000; i++)
                take(&l);
        close_ring();
}

/* ---- many threads ---- */

static uint64_t refused;

static void *produce(void *data)
{
        uint32_t tid = (uint32_t)(uintptr_t)data;

        for (uint32_t i = 1; i <= LAUNCHES; i++) {
                struct agent_launch l = launch(tid, i);

                if (!launch_map_push(map, tid % 2, &l))
                        __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
        }
        return NULL;
}

/* Until what does not fit is refused, or there is no more. */
static void wait_until_full(void)
{
        const struct agent_launch_producer *p = &map->producer;
        uint64_t dropped = LOAD(p->dropped);

        while (LOAD(p->dropped) == dropped &&
               LOAD(p->head) + LOAD(p->dropped) < (uint64_t)THREADS * LAUNCHES)
                usleep(1000);
}

static uint64_t consume(uint32_t last[THREADS], bool pause)
{
        struct agent_launch l;
        uint64_t n = 0, context;

        while (launch_ring_take(ring, now_ns(), false, &l, &context)) {
                CHECK(l.tid < THREADS);
                CHECK(l.seq > last[l.tid]); /* no thread overtakes itself */
                last[l.tid] = l.seq;
                CHECK_EQ(l.func, ((uint64_t)l.tid << 32) | l.seq);
                CHECK_EQ(l.stream, ~l.func);
                CHECK_EQ(l.grid_x, l.seq);
                n++;
        }
        launch_ring_release(ring);
        if (pause)
                wait_until_full();
        return n;
}

static void test_threads(bool slow_reader)
{
        pthread_t threads[THREADS];
        uint32_t last[THREADS] = {0};
        uint64_t taken = 0;

        open_ring();
        refused = 0;
        for (uintptr_t i = 0; i < THREADS; i++)
                CHECK_EQ(pthread_create(&threads[i], NULL, produce, (void *)i), 0);
        do {
                taken += consume(last, slow_reader);
        } while (LOAD(map->producer.head) + LOAD(map->producer.dropped) <
                 (uint64_t)THREADS * LAUNCHES);
        for (int i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        taken += consume(last, false);
        CHECK_EQ(taken + refused, (uint64_t)THREADS * LAUNCHES);
        CHECK_EQ(losses().overrun, refused);
        CHECK_EQ(losses().torn, 0);
        if (slow_reader)
                CHECK(refused > 0);
        printf("   %llu taken, %llu refused\n", (unsigned long long)taken,
               (unsigned long long)refused);
        close_ring();
}

int main(void)
{
        test_in_order();
        printf("ok in order\n");
        test_until();
        printf("ok until a time\n");
        test_behind();
        printf("ok behind\n");
        test_overrun();
        printf("ok overrun\n");
        test_hole();
        printf("ok hole\n");
        test_hostile();
        printf("ok hostile\n");
        test_threads(false);
        test_threads(true);
        printf("ok threads\n");
        return 0;
}
