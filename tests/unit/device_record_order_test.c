/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The reader of the ring where starts come with the ends: a GPU that runs kernels in
 * streams, some of them overlapping with the one before, writes ring and table as the device
 * program does, and the reader looks now and then. Each start has to come once, before
 * its end and before those that started later in its stream; later only where kernels overlap
 * and another one took the slot in the table.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device_abi.h"
#include "device/record_ring.h"
#include "unit/test.h"

#define STREAMS 8
#define GRIDS   200000
#define APART   UINT64_C(5000000000) /* ns: the second device's clock is so far ahead */
#define NODES   3

struct grid {
        uint64_t start_ns, end_ns, written_ns;
        uint64_t id;
        uint32_t stream;
        bool exits;              /* its end is probed */
        bool overwritten;        /* its slot of the table is another one's */
        uint32_t started, ended; /* records that came */
};

struct gpu {
        struct record_ring *ring;
        struct device_record *slots;
        struct grid *grids; /* by number, from 1: the number is the record's kernel */
        size_t count;
        size_t *by_end;                         /* numbers in the order of their ends */
        size_t holders[DEVICE_RUNNING_ENTRIES]; /* whose each slot of the table is */
        uint64_t head;
        /* What came of each stream last. */
        uint64_t last_start_ns[STREAMS];
        uint64_t lost, records, late;
};

static struct gpu gpu_new(size_t count)
{
        struct gpu g = {.grids = calloc(count + 1, sizeof(*g.grids)),
                        .by_end = calloc(count + 1, sizeof(*g.by_end)),
                        .count = count};
        int fd = memfd_create("ring", 0);

        CHECK(g.grids && g.by_end && fd >= 0 && ftruncate(fd, DEVICE_RING_BYTES) == 0);
        g.slots = mmap(NULL, DEVICE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(g.slots != MAP_FAILED);
        CHECK_EQ(record_ring_adopt(fd, 0, &g.ring), 0);
        return g;
}

static void gpu_done(struct gpu *g)
{
        record_ring_free(g->ring);
        munmap(g->slots, DEVICE_RING_BYTES);
        free(g->grids);
        free(g->by_end);
}

/* Every other stream is on a second device. */
static uint16_t context_of(const struct grid *grid)
{
        return 1 + grid->stream % 2;
}

static uint64_t on_clock(const struct grid *grid, uint64_t time_ns)
{
        return time_ns + grid->stream % 2 * APART;
}

static void put(struct gpu *g, uint32_t slot, uint64_t index, uint64_t n, uint64_t time_ns,
                uint8_t type)
{
        struct device_record r = {
                .time_ns = on_clock(&g->grids[n], time_ns),
                .grid = DEVICE_RECORD_GRID(g->grids[n].id, type, context_of(&g->grids[n])),
                .who = DEVICE_RECORD_WHO(n, 7, g->grids[n].stream),
        };

        r.check = (index + 1) ^ r.time_ns ^ (r.grid * DEVICE_SEAL_GRID) ^ (r.who * DEVICE_SEAL_WHO);
        g->slots[slot] = r;
}

static void put_in_ring(struct gpu *g, uint64_t n, uint64_t time_ns, uint8_t type)
{
        put(g, g->head % DEVICE_RING_ENTRIES, g->head, n, time_ns, type);
        g->head++;
}

static void start(struct gpu *g, uint64_t n)
{
        const struct grid *grid = &g->grids[n];
        size_t slot = DEVICE_RUNNING_SLOT(DEVICE_PLACE(grid->id, context_of(grid)));
        size_t *holder = &g->holders[slot - DEVICE_RING_ENTRIES];

        if (!grid->exits) {
                put_in_ring(g, n, grid->start_ns, DEVICE_RECORD_START);
                return;
        }
        g->grids[*holder].overwritten = true;
        *holder = n;
        put(g, slot, grid->id, n, grid->start_ns, DEVICE_RECORD_START);
}

static void end(struct gpu *g, uint64_t n)
{
        const struct grid *grid = &g->grids[n];

        if (!grid->exits)
                return;
        put_in_ring(g, n, grid->start_ns, DEVICE_RECORD_START);
        put_in_ring(g, n, grid->end_ns, DEVICE_RECORD_END);
}

static void on_record(void *data, const struct device_record *r)
{
        struct gpu *g = data;
        struct grid *grid = &g->grids[DEVICE_RECORD_KERNEL(r)];
        uint64_t *last = &g->last_start_ns[grid->stream];

        g->records++;
        CHECK(DEVICE_RECORD_KERNEL(r) <= g->count);
        CHECK_EQ(DEVICE_RECORD_GRIDID(r), grid->id);
        if (DEVICE_RECORD_TYPE(r) == DEVICE_RECORD_END) {
                CHECK_EQ(grid->ended++, 0);
                CHECK(grid->started);
                CHECK_EQ(r->time_ns, on_clock(grid, grid->end_ns));
                return;
        }
        CHECK_EQ(DEVICE_RECORD_TYPE(r), DEVICE_RECORD_START);
        CHECK_EQ(grid->started++, 0);
        CHECK_EQ(r->time_ns, on_clock(grid, grid->start_ns));
        CHECK(r->time_ns > *last || grid->overwritten);
        g->late += r->time_ns <= *last;
        if (r->time_ns > *last)
                *last = r->time_ns;
}

static void on_gap(void *data, uint64_t lost)
{
        struct gpu *g = data;

        g->lost += lost;
}

static size_t look(struct gpu *g, uint64_t now_ns)
{
        size_t n, all = 0;

        do {
                n = record_ring_read(g->ring, now_ns, 256, on_record, on_gap, g);
                all += n;
        } while (n == 256);
        return all;
}

static const struct gpu *sorted;

static int by_end(const void *a, const void *b)
{
        const struct grid *x = &sorted->grids[*(const size_t *)a],
                          *y = &sorted->grids[*(const size_t *)b];

        return x->written_ns < y->written_ns ? -1 : x->written_ns > y->written_ns;
}

/*
 * In the order of their starts; in a stream one after the other, or overlapping. The first
 * stream replays a graph of a few nodes, which keep their ids.
 */
static void draw(struct gpu *g, uint64_t seed, uint32_t overlaps, uint32_t unprobed)
{
        uint64_t now_ns = 1000000, idle_ns[STREAMS] = {0}, nodes = 0;

        for (uint64_t n = 1; n <= g->count; n++) {
                struct grid *grid = &g->grids[n];
                uint64_t r = test_random(&seed), *idle = &idle_ns[r % STREAMS];
                bool overlap = r % STREAMS && (r >> 8) % 1000 < overlaps;

                grid->stream = r % STREAMS;
                grid->id = grid->stream ? NODES + n : 1 + nodes++ % NODES;
                grid->exits = (r >> 20) % 1000 >= unprobed;
                if (*idle > now_ns && !overlap)
                        now_ns = *idle;
                now_ns += 1 + (r >> 32) % 2000;
                grid->start_ns = now_ns;
                /* Now and then one that runs as long as thousands of others. */
                grid->end_ns = now_ns + 10 + (r >> 44) % ((r >> 55) % 128 ? 3000 : 20000000);
                /* Whose time is taken first does not always write first. */
                grid->written_ns = grid->end_ns + test_random(&seed) % 1500;
                if (grid->written_ns > *idle)
                        *idle = grid->written_ns;
                g->by_end[n - 1] = n;
        }
        sorted = g;
        qsort(g->by_end, g->count, sizeof(*g->by_end), by_end);
}

/* every_ns: between looks */
static void run(struct gpu *g, uint64_t every_ns)
{
        uint64_t next_ns = 0;
        size_t started = 0, ended = 0;

        while (ended < g->count) {
                const struct grid *s = started < g->count ? &g->grids[started + 1] : NULL;
                const struct grid *e = &g->grids[g->by_end[ended]];
                uint64_t at_ns = s && s->start_ns <= e->written_ns ? s->start_ns : e->written_ns;

                for (; next_ns < at_ns; next_ns += every_ns)
                        look(g, next_ns);
                if (s && s->start_ns <= e->written_ns)
                        start(g, ++started);
                else
                        end(g, g->by_end[ended++]);
        }
        record_ring_read_rest(g->ring, next_ns, on_record, on_gap, g);
}

static void check_all(const struct gpu *g)
{
        CHECK_EQ(g->lost, 0);
        for (size_t n = 1; n <= g->count; n++) {
                CHECK_EQ(g->grids[n].started, 1);
                CHECK_EQ(g->grids[n].ended, g->grids[n].exits);
        }
}

static void test_starts_come_once_and_in_order(void)
{
        static const uint32_t overlaps[] = {0, 300, 1000}, unprobed[] = {0, 200};

        for (uint64_t seed = 1; seed < 19; seed++) {
                struct gpu g = gpu_new(GRIDS / 10);

                draw(&g, seed, overlaps[seed % 3], unprobed[seed % 2]);
                /* At most 1,000 starts in between: the table holds them. */
                run(&g, seed % 4 ? 200000 : 20000);
                check_all(&g);
                CHECK(g.late * 1000 < g.count);
                gpu_done(&g);
        }
}

/* More starts between two looks than the table holds: the ring has them. */
static void test_what_the_table_lost_comes_from_the_ring(void)
{
        for (uint64_t seed = 1; seed < 4; seed++) {
                struct gpu g = gpu_new(GRIDS);

                draw(&g, seed, 0, 0);
                run(&g, 20000000);
                check_all(&g);
                CHECK_EQ(g.late, 0);
                gpu_done(&g);
        }
}

/* A kernel that does not end, when nothing else happens. */
static void test_start_of_what_runs(void)
{
        struct gpu g = gpu_new(2);

        g.grids[1] = (struct grid){.id = 1, .start_ns = 5, .end_ns = 9000000000, .exits = true};
        g.grids[2] = (struct grid){.id = 2, .start_ns = 6, .end_ns = 8, .stream = 1, .exits = true};
        look(&g, 1);
        start(&g, 1);
        look(&g, 50000000);
        look(&g, 300000000);
        look(&g, 350000000);
        CHECK_EQ(g.grids[1].started, 0);
        look(&g, 450000000);
        CHECK_EQ(g.grids[1].started, 1);
        start(&g, 2);
        end(&g, 2);
        look(&g, 700000000);
        end(&g, 1);
        look(&g, 900000000);
        look(&g, 910000000);
        check_all(&g);
        gpu_done(&g);
}

/* What the start left is gone when the kernel ends, but it was handed out while it ran. */
static void test_known_start_that_is_gone(void)
{
        struct gpu g = gpu_new(1);

        g.grids[1] = (struct grid){.id = 1, .start_ns = 5, .end_ns = 900000000, .exits = true};
        start(&g, 1);
        for (uint64_t now_ns = 1; now_ns < 500000000; now_ns += 50000000)
                look(&g, now_ns);
        CHECK_EQ(g.grids[1].started, 1);
        put_in_ring(&g, 1, 900000000, DEVICE_RECORD_UNKNOWN_START);
        put_in_ring(&g, 1, 900000000, DEVICE_RECORD_END);
        look(&g, 900000000);
        look(&g, 910000000);
        check_all(&g);
        gpu_done(&g);
}

/* What ran when the reader came: no start twice, and none of those that had ended before. */
static void test_adopted(void)
{
        struct gpu g = gpu_new(3);
        struct record_ring *again;

        g.grids[1] = (struct grid){.id = 1, .start_ns = 5, .end_ns = 6, .exits = true};
        g.grids[2] = (struct grid){.id = 2, .start_ns = 7, .end_ns = 400000000, .exits = true};
        g.grids[3] =
                (struct grid){.id = 3, .start_ns = 500000000, .end_ns = 500000100, .exits = true};
        start(&g, 1);
        end(&g, 1);
        start(&g, 2);
        for (uint64_t now_ns = 1; now_ns < 300000000; now_ns += 50000000)
                look(&g, now_ns);
        CHECK_EQ(g.records, 3);
        CHECK_EQ(record_ring_adopt(dup(record_ring_fd(g.ring)), record_ring_position(g.ring),
                                   &again),
                 0);
        record_ring_free(g.ring);
        g.ring = again;
        look(&g, 300000000);
        CHECK_EQ(g.records, 3);
        g.grids[2].started = 0; /* to this reader it comes when it ends */
        g.last_start_ns[0] = 6;
        end(&g, 2);
        start(&g, 3);
        end(&g, 3);
        look(&g, 600000000);
        look(&g, 610000000);
        check_all(&g);
        gpu_done(&g);
}

/* What is held back of one context does not wait until nothing comes of another. */
static void test_end_of_one_context_comes_while_another_works(void)
{
        struct gpu g = gpu_new(10);

        for (uint64_t n = 1; n <= g.count; n++)
                g.grids[n] = (struct grid){.id = n,
                                           .start_ns = n * 1000000,
                                           .end_ns = n * 1000000 + 500,
                                           .stream = n != 2,
                                           .exits = true};
        for (uint64_t n = 1; n <= g.count; n++) {
                start(&g, n);
                end(&g, n);
                CHECK(look(&g, n * 1000000) > 0);
                CHECK_EQ(g.grids[2].ended, n > 2);
        }
        gpu_done(&g);
}

static void start_and_end_meanwhile(void *data, const struct device_record *r)
{
        struct gpu *g = data;

        on_record(g, r);
        if (DEVICE_RECORD_KERNEL(r) != 1)
                return;
        start(g, 2);
        end(g, 2);
}

/* The first start in the table comes, and its records with it, while the ring is being read. */
static void test_first_start_comes_once(void)
{
        struct gpu g = gpu_new(3);

        g.grids[1] = (struct grid){.id = 1, .start_ns = 5, .end_ns = 6};
        g.grids[2] = (struct grid){.id = 2, .start_ns = 7, .end_ns = 9, .exits = true};
        g.grids[3] = (struct grid){.id = 3, .start_ns = 10, .end_ns = 12, .exits = true};
        start(&g, 1);
        record_ring_read(g.ring, 1, 100, start_and_end_meanwhile, on_gap, &g);
        CHECK_EQ(g.grids[2].started, 1);
        start(&g, 3);
        end(&g, 3);
        look(&g, 2);
        look(&g, 3);
        check_all(&g);
        gpu_done(&g);
}

struct heard {
        uint64_t starts, unannounced, gaps;
        bool gap;
};

static void hear_record(void *data, const struct device_record *r)
{
        struct heard *h = data;

        if (DEVICE_RECORD_TYPE(r) != DEVICE_RECORD_START)
                return;
        h->starts++;
        h->unannounced += !h->gap;
        h->gap = false;
}

static void hear_gap(void *data, uint64_t lost)
{
        struct heard *h = data;

        h->gaps += lost;
        h->gap = true;
}

/* After a loss no start is certain to follow the one before it. */
static void test_gap_comes_before_each_start(void)
{
        struct gpu g = gpu_new(DEVICE_RING_ENTRIES);
        struct heard h = {};
        uint64_t id;

        for (id = 1; id <= g.count; id++)
                g.grids[id] = (struct grid){
                        .id = id, .start_ns = 1000 * id, .end_ns = 1000 * id + 5, .exits = true};
        start(&g, 1);
        end(&g, 1);
        look(&g, 1);
        for (id = 2; id <= g.count; id++) { /* two rounds of the ring */
                start(&g, id);
                end(&g, id);
        }
        record_ring_read(g.ring, 2, 2000, hear_record, hear_gap, &h);
        CHECK(h.starts > 800);
        CHECK_EQ(h.unannounced, 0);
        h = (struct heard){};
        record_ring_read(g.ring, 3, 2000, hear_record, hear_gap, &h);
        CHECK(h.starts > 800);
        CHECK_EQ(h.gaps, 0);
        gpu_done(&g);
}

/* A process can write anything into the table: never more than a table full is believed. */
static void test_garbage(void)
{
        struct gpu g = gpu_new(1);
        struct heard h = {};
        uint64_t seed = 7;

        for (unsigned round = 0; round < 200; round++) {
                uint64_t before = h.starts;

                /* It stays for three looks. */
                for (uint32_t i = 0; i < DEVICE_RUNNING_ENTRIES && round % 3 == 0; i++) {
                        struct device_record *r = &g.slots[DEVICE_RING_ENTRIES + i];
                        uint64_t id = test_random(&seed) & 0xffffffff;

                        *r = (struct device_record){test_random(&seed), test_random(&seed),
                                                    test_random(&seed), test_random(&seed)};
                        if (round % 2)
                                continue;
                        r->grid = DEVICE_RECORD_GRID(id, DEVICE_RECORD_START, 1);
                        r->check = (id + 1) ^ r->time_ns ^ (r->grid * DEVICE_SEAL_GRID) ^
                                   (r->who * DEVICE_SEAL_WHO);
                }
                record_ring_read(g.ring, round * UINT64_C(200000000), 100, hear_record, hear_gap,
                                 &h);
                CHECK(h.starts - before <= DEVICE_RUNNING_ENTRIES);
        }
        CHECK(h.starts > 0);
        gpu_done(&g);
}

int main(void)
{
        TEST(test_starts_come_once_and_in_order);
        TEST(test_what_the_table_lost_comes_from_the_ring);
        TEST(test_start_of_what_runs);
        TEST(test_known_start_that_is_gone);
        TEST(test_adopted);
        TEST(test_first_start_comes_once);
        TEST(test_end_of_one_context_comes_while_another_works);
        TEST(test_gap_comes_before_each_start);
        TEST(test_garbage);
        return 0;
}
