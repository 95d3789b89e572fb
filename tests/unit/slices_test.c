/* SPDX-License-Identifier: Apache-2.0 */

/* From context switches to slices and sums, and what is said of a launch that waited. */
#include <errno.h>

#include "correlate/held.h"
#include "correlate/slice_history.h"
#include "correlate/slices.h"
#include "unit/test.h"

#define T0 (1000 * SLICES_SECOND_NS)
#define MS 1000000ULL
#define US 1000ULL

static struct clock_model *clock;
static struct slices *slices;
static struct slice pieces[65536];
static size_t piece_count;
static struct {
        struct slices_second second;
        struct slices_share shares[SLICES_CONTEXTS_MAX];
} seconds[256];
static size_t second_count;

static void on_slice(void *data, const struct slice *s)
{
        CHECK(piece_count < sizeof(pieces) / sizeof(pieces[0]));
        CHECK(s->start_ns <= s->end_ns && s->since_ns <= s->start_ns);
        /* Within a second. */
        CHECK(s->start_ns == s->end_ns ||
              s->start_ns / SLICES_SECOND_NS == (s->end_ns - 1) / SLICES_SECOND_NS);
        pieces[piece_count++] = *s;
}

static void on_second(void *data, const struct slices_second *s)
{
        uint64_t sum = 0;

        CHECK(second_count < sizeof(seconds) / sizeof(seconds[0]));
        CHECK(s->count <= SLICES_CONTEXTS_MAX);
        CHECK_EQ(s->span_ns, s->active_ns + s->switch_ns + s->idle_ns + s->unknown_ns);
        for (uint32_t i = 0; i < s->count; i++)
                sum += s->shares[i].active_ns;
        CHECK_EQ(sum, s->active_ns);
        seconds[second_count].second = *s;
        memcpy(seconds[second_count].shares, s->shares, s->count * sizeof(s->shares[0]));
        second_count++;
}

static const struct slices_ops ops = {on_slice, on_second};

/* A GPU clock that is CLOCK_MONOTONIC, to some ns. */
static void begin(void)
{
        clock = clock_model_new(1, NULL);
        for (int i = 0; i < 3; i++) {
                struct clock_sample s = {.raw_before_ns = T0 + (uint64_t)i * MS - 1,
                                         .raw_after_ns = T0 + (uint64_t)i * MS + 1,
                                         .gpu_ns = T0 + (uint64_t)i * MS};

                CHECK_EQ(clock_model_add(clock, &s), 0);
        }
        piece_count = second_count = 0;
        slices = slices_new(clock, &ops, NULL, T0);
}

static void end(uint64_t at_ns)
{
        slices_finish(slices, at_ns);
        slices_free(slices);
        clock_model_free(clock);
}

static void event(enum ctxsw_kind kind, uint32_t pid, uint64_t ns)
{
        const struct ctxsw_event e = {.gpu_ns = ns,
                                      .pid = pid,
                                      .context_id = pid + 100,
                                      .kind = kind,
                                      .mig_gpu = CTXSW_NO_MIG,
                                      .mig_compute = CTXSW_NO_MIG};

        slices_event(slices, &e, T0 + 1000 * SLICES_SECOND_NS);
}

static bool is_near(uint64_t a, uint64_t b)
{
        return a > b ? a - b < 100 : b - a < 100;
}

/* Two processes take turns of 2 ms with 88 us between them, as two busy ones do on an H200. */
static void shares_add_up(void)
{
        uint64_t t = T0, active[2] = {0};
        uint32_t count[2] = {0};

        begin();
        for (int i = 0; t < T0 + 3 * SLICES_SECOND_NS; i++) {
                event(CTXSW_START, 1 + (uint32_t)i % 2, t);
                event(CTXSW_END, 1 + (uint32_t)i % 2, t + 2 * MS);
                t += 2 * MS + 88 * US;
        }
        end(T0 + 3 * SLICES_SECOND_NS);
        CHECK_EQ(second_count, 4); /* three, and the little beyond */
        for (size_t i = 0; i < second_count; i++) {
                CHECK_EQ(seconds[i].second.count > 0, 1);
                for (uint32_t k = 0; k < seconds[i].second.count; k++) {
                        const struct slices_share *s = &seconds[i].shares[k];

                        CHECK(s->pid == 1 || s->pid == 2);
                        CHECK_EQ(s->context_id, s->pid + 100);
                        active[s->pid - 1] += s->active_ns;
                        count[s->pid - 1] += s->slices;
                        CHECK(s->longest_ns == 0 || is_near(s->longest_ns, 2 * MS));
                }
        }
        CHECK_EQ(count[0] + count[1], 1437);
        CHECK(is_near(active[0] / count[0], 2 * MS));
        CHECK(is_near(active[1] / count[1], 2 * MS));
        CHECK(is_near(seconds[1].second.switch_ns / seconds[1].second.switches, 88 * US));
        CHECK(seconds[1].second.idle_ns == 0 && seconds[1].second.unknown_ns == 0);
        CHECK_EQ(seconds[1].second.span_ns, SLICES_SECOND_NS);
}

static void a_long_gap_is_idle(void)
{
        begin();
        event(CTXSW_START, 1, T0);
        event(CTXSW_END, 1, T0 + 10 * MS);
        event(CTXSW_START, 1, T0 + 10 * MS + SLICES_SWITCH_MAX_NS / 2);
        event(CTXSW_END, 1, T0 + 20 * MS);
        event(CTXSW_START, 2, T0 + 300 * MS);
        event(CTXSW_END, 2, T0 + 310 * MS);
        end(T0 + 500 * MS);
        CHECK_EQ(second_count, 1);
        CHECK_EQ(seconds[0].second.switches, 1);
        CHECK(is_near(seconds[0].second.switch_ns, SLICES_SWITCH_MAX_NS / 2));
        CHECK(is_near(seconds[0].second.idle_ns, 280 * MS + 190 * MS));
}

/* Idle time that was reported as such while it went on stays idle. */
static void advancing_does_not_change_the_sums(void)
{
        begin();
        event(CTXSW_START, 1, T0);
        event(CTXSW_END, 1, T0 + 10 * MS);
        slices_advance(slices, T0 + 10 * MS + SLICES_SWITCH_MAX_NS / 2);
        slices_advance(slices, T0 + 100 * MS);
        slices_advance(slices, T0 + 50 * MS); /* not back */
        event(CTXSW_START, 2, T0 + 100 * MS + 100 * US);
        slices_advance(slices, T0 + 150 * MS);
        slices_advance(slices, T0 + 180 * MS);
        event(CTXSW_END, 2, T0 + 200 * MS);
        end(T0 + 200 * MS);
        CHECK(is_near(seconds[0].second.idle_ns, 90 * MS + 100 * US));
        CHECK_EQ(seconds[0].second.switch_ns, 0);
        CHECK_EQ(seconds[0].second.count, 2);
        CHECK_EQ(seconds[0].shares[1].slices, 1);
        CHECK(is_near(seconds[0].shares[1].longest_ns, 100 * MS - 100 * US));
        CHECK_EQ(piece_count, 4); /* one, and three of the second slice */
        CHECK(pieces[1].begins && !pieces[1].ends);
        CHECK(!pieces[2].begins && !pieces[2].ends);
        CHECK(!pieces[3].begins && pieces[3].ends);
        CHECK_EQ(pieces[3].since_ns, pieces[1].start_ns);
}

static void long_slices_are_cut_at_seconds(void)
{
        begin();
        event(CTXSW_START, 1, T0 + 500 * MS);
        event(CTXSW_END, 1, T0 + 3 * SLICES_SECOND_NS + 250 * MS);
        end(T0 + 4 * SLICES_SECOND_NS);
        CHECK_EQ(second_count, 4);
        CHECK(is_near(seconds[0].second.unknown_ns, 500 * MS));
        CHECK(is_near(seconds[0].second.active_ns, 500 * MS));
        CHECK_EQ(seconds[1].second.active_ns, SLICES_SECOND_NS);
        CHECK_EQ(seconds[0].shares[0].slices, 1);
        CHECK_EQ(seconds[1].shares[0].slices, 0);
        CHECK(is_near(seconds[3].shares[0].longest_ns, 2750 * MS));
        CHECK(is_near(seconds[3].second.idle_ns, 750 * MS));
}

static void losses_make_time_unknown(void)
{
        begin();
        event(CTXSW_START, 1, T0);
        slices_advance(slices, T0 + 10 * MS);
        slices_gap(slices, 5);
        event(CTXSW_END, 2, T0 + 30 * MS); /* somebody left whose coming was lost */
        event(CTXSW_START, 1, T0 + 30 * MS + 80 * US);
        event(CTXSW_END, 1, T0 + 40 * MS);
        end(T0 + 40 * MS);
        CHECK(is_near(seconds[0].second.unknown_ns, 20 * MS));
        CHECK_EQ(seconds[0].second.lost, 5);
        CHECK(is_near(seconds[0].second.active_ns, 20 * MS - 80 * US));
        CHECK(pieces[1].unknown);
}

static void contradictions_are_noticed(void)
{
        begin();
        event(CTXSW_START, 1, T0 + 1 * MS);
        event(CTXSW_START, 2, T0 + 2 * MS); /* the end of 1 is missing */
        event(CTXSW_END, 3, T0 + 3 * MS);   /* who? */
        event(CTXSW_END, 3, T0 + 4 * MS);
        event(CTXSW_START, 1, T0 + 3 * MS); /* back in time */
        event(CTXSW_END, 1, T0 + 5 * MS);
        event(CTXSW_START, 1, UINT64_MAX / 2); /* from the future */
        CHECK_EQ(slices_contradictions(slices), 4);
        end(T0 + 5 * MS);
        CHECK(is_near(seconds[0].second.active_ns, 2 * MS));
        CHECK(is_near(seconds[0].second.unknown_ns, 3 * MS));
}

static void a_reset_ends_whatever_runs(void)
{
        begin();
        event(CTXSW_START, 1, T0);
        event(CTXSW_RESET, 0, T0 + 7 * MS);
        end(T0 + 10 * MS);
        CHECK(is_near(seconds[0].second.active_ns, 7 * MS));
        CHECK(is_near(seconds[0].second.idle_ns, 3 * MS));
}

static void mig_instances_run_beside_each_other(void)
{
        const struct ctxsw_event e[] = {
                {.gpu_ns = T0, .pid = 1, .kind = CTXSW_START, .mig_gpu = 1, .mig_compute = 0},
                {.gpu_ns = T0, .pid = 2, .kind = CTXSW_START, .mig_gpu = 2, .mig_compute = 0},
                {.gpu_ns = T0 + 5 * MS, .pid = 1, .kind = CTXSW_END, .mig_gpu = 1},
                {.gpu_ns = T0 + 9 * MS, .pid = 2, .kind = CTXSW_END, .mig_gpu = 2},
        };

        begin();
        for (int i = 0; i < 4; i++)
                slices_event(slices, &e[i], T0 + SLICES_SECOND_NS);
        end(T0 + 10 * MS);
        CHECK_EQ(second_count, 2);
        CHECK(is_near(seconds[0].second.active_ns, 5 * MS));
        CHECK(is_near(seconds[1].second.active_ns, 9 * MS));
        CHECK_EQ(seconds[1].second.engine.mig_gpu, 2);
}

static void many_contexts_share_the_last_place(void)
{
        begin();
        for (uint32_t i = 0; i < 400; i++) {
                event(CTXSW_START, 1 + i, T0 + i * MS);
                event(CTXSW_END, 1 + i, T0 + i * MS + 900 * US);
        }
        end(T0 + 400 * MS);
        CHECK_EQ(seconds[0].second.count, SLICES_CONTEXTS_MAX);
        CHECK_EQ(seconds[0].shares[SLICES_CONTEXTS_MAX - 1].pid, CTXSW_PID_HIDDEN);
        CHECK_EQ(seconds[0].shares[SLICES_CONTEXTS_MAX - 1].slices, 400 - SLICES_CONTEXTS_MAX + 1);
}

/* Whatever the order of events, time adds up (checked in on_second). */
static void random_events_add_up(void)
{
        uint64_t seed = 7, t = T0;

        for (int round = 0; round < 50; round++) {
                begin();
                t = T0;
                for (int i = 0; i < 1000; i++) {
                        uint64_t r = test_random(&seed);

                        t += r % (3 * MS);
                        if (r >> 32 & 1)
                                event(CTXSW_START, (uint32_t)(r >> 40) % 4, t);
                        else
                                event(r >> 33 & 7 ? CTXSW_END : CTXSW_RESET,
                                      (uint32_t)(r >> 40) % 4, t);
                        if ((r >> 50) % 10 == 0)
                                slices_advance(slices, t + 1);
                        if ((r >> 55) % 50 == 0)
                                slices_gap(slices, 3);
                }
                end(t + 5 * MS);
        }
}

/* ---- history ---- */

static const struct slices_engine engine = {CTXSW_NO_MIG, CTXSW_NO_MIG};

static void add(struct slice_history *h, uint32_t gpu, uint64_t key, uint64_t from, uint64_t to,
                bool unknown)
{
        const struct slice s = {.start_ns = T0 + from,
                                .end_ns = T0 + to,
                                .since_ns = T0 + from,
                                .pid = (uint32_t)key,
                                .engine = engine,
                                .unknown = unknown};
        uint64_t sequence;

        CHECK_EQ(slice_history_add(h, gpu, key, &s, &sequence), 0);
}

static void check_others(struct slice_history *h, uint64_t key, uint64_t from, uint64_t to,
                         uint64_t expect)
{
        uint64_t ns = 12345;

        CHECK(slice_history_others(h, key, T0 + from, T0 + to, &ns));
        CHECK_EQ(ns, expect);
}

static void waiting_is_split(void)
{
        struct slice_history *h = slice_history_new();
        uint64_t ns;

        add(h, 0, 1, 0, 100, false);
        add(h, 0, 2, 150, 250, false);
        add(h, 0, 1, 300, 400, false);
        add(h, 0, 3, 400, 500, false);
        add(h, 0, 1, 700, 800, false);
        check_others(h, 1, 50, 350, 100);
        check_others(h, 1, 200, 450, 100);
        check_others(h, 1, 160, 170, 10);
        check_others(h, 1, 500, 700, 0);
        check_others(h, 2, 0, 800, 400);
        check_others(h, 1, 120, 120, 0);
        CHECK(!slice_history_others(h, 9, T0 + 50, T0 + 350, &ns)); /* never on it */
        CHECK(!slice_history_others(h, 1, T0 - 10, T0 + 350, &ns));
        CHECK(!slice_history_others(h, 1, T0 + 50, T0 + 900, &ns)); /* not told yet */
        slice_history_advance(h, 0, T0 + 1000);
        check_others(h, 1, 50, 900, 200);
        add(h, 0, 0, 1000, 1100, true);
        add(h, 0, 1, 1100, 1200, false);
        CHECK(!slice_history_others(h, 1, T0 + 900, T0 + 1150, &ns)); /* partly unknown */
        check_others(h, 1, 1100, 1150, 0);
        add(h, 1, 1, 0, 100, false); /* on two GPUs: which one a launch waited for is not known */
        CHECK(!slice_history_others(h, 1, T0 + 1100, T0 + 1150, &ns));
        check_others(h, 2, 160, 240, 0);
        slice_history_free(h);
}

static void history_is_bounded_and_in_order(void)
{
        struct slice_history *h = slice_history_new();
        static struct kept_slice got[3 * SLICE_HISTORY_PIECES];
        uint64_t ns, n, last = 0;

        for (uint64_t i = 0; i < SLICE_HISTORY_PIECES + 10; i++) {
                add(h, 0, 1, i * 10, i * 10 + 10, false);
                add(h, 1, 2, i * 10, i * 10 + 10, false);
        }
        n = slice_history_copy(h, 0, 0, UINT64_MAX, got, sizeof(got) / sizeof(got[0]));
        CHECK_EQ(n, 2 * SLICE_HISTORY_PIECES);
        for (size_t i = 0; i < n; i++) {
                CHECK(got[i].sequence > last);
                last = got[i].sequence;
        }
        CHECK_EQ(slice_history_copy(h, last, 0, UINT64_MAX, got, 10), 0);
        CHECK_EQ(slice_history_copy(h, last - 3, 0, UINT64_MAX, got, 10), 3);
        CHECK_EQ(slice_history_copy(h, 0, T0 + 1000, T0 + 1010, got, 10), 2);
        CHECK_EQ(slice_history_copy(h, 0, 0, UINT64_MAX, got, 5), 5);
        CHECK(!slice_history_others(h, 1, T0 + 50, T0 + 200, &ns)); /* forgotten */
        check_others(h, 1, 200, 300, 0);
        slice_history_free(h);
}

/* ---- launches that wait for slices ---- */

static struct {
        struct launch_record last;
        void *owner;
        uint64_t count, room, lost;
} stored;

static size_t store(void *data, const struct launch_record *records, void *const *owners, size_t n)
{
        if (n > stored.room)
                n = stored.room;
        stored.room -= n;
        for (size_t i = 0; i < n; i++)
                CHECK_EQ(records[i].launch_id, stored.count + stored.lost + i + 1); /* in order */
        if (n) {
                stored.last = records[n - 1];
                stored.owner = owners[n - 1];
        }
        stored.count += n;
        return n;
}

static void lose(void *data, void *owner)
{
        stored.lost++;
}

static struct launch_record waiting(uint64_t id, uint64_t from, uint64_t to)
{
        return (struct launch_record){.launch_id = id,
                                      .process_key = 1,
                                      .cpu_return_ns = T0 + from,
                                      .gpu_start_ns = T0 + to,
                                      .has = LAUNCH_HAS_GPU_START};
}

static struct held *held_world(struct slice_history **ret_history)
{
        struct held *h;

        memset(&stored, 0, sizeof(stored));
        stored.room = UINT64_MAX;
        *ret_history = slice_history_new();
        h = held_new(*ret_history, store, lose, NULL);
        CHECK(h);
        return h;
}

static void launches_wait_for_slices(void)
{
        struct slice_history *history;
        struct held *h = held_world(&history);
        struct launch_record r = waiting(1, 50, 350);
        int owner;

        held_add(h, &r, &owner);
        r = waiting(2, 0, 0); /* did not wait, but may not overtake */
        held_add(h, &r, NULL);
        held_turn(h, T0 + 400, true);
        CHECK_EQ(stored.count, 0); /* there are no slices yet */
        add(history, 0, 1, 0, 100, false);
        add(history, 0, 2, 100, 300, false);
        held_turn(h, T0 + 400, true);
        CHECK_EQ(stored.count, 0);
        slice_history_advance(history, 0, T0 + 349);
        held_turn(h, T0 + 400, true);
        CHECK_EQ(stored.count, 0);
        slice_history_advance(history, 0, T0 + 350);
        held_turn(h, T0 + 400, true);
        CHECK_EQ(stored.count, 2);
        CHECK(!(stored.last.has & LAUNCH_HAS_QUEUE_OTHERS) && !stored.owner);

        r = waiting(3, 50, 350);
        held_add(h, &r, &owner);
        held_turn(h, T0 + 400, true);
        CHECK_EQ(stored.last.queue_others_ns, 200);
        CHECK(stored.last.has & LAUNCH_HAS_QUEUE_OTHERS && stored.owner == &owner);

        /* Nobody waits forever, nor where nothing is traced. */
        r = waiting(4, 50, 5000);
        held_add(h, &r, NULL);
        held_turn(h, T0 + 5000 + HELD_LIMIT_NS, true);
        CHECK_EQ(stored.count, 3);
        held_turn(h, T0 + 5001 + HELD_LIMIT_NS, true);
        CHECK_EQ(stored.count, 4);
        CHECK(!(stored.last.has & LAUNCH_HAS_QUEUE_OTHERS));
        r = waiting(5, 50, 9000);
        held_add(h, &r, NULL);
        held_turn(h, T0, false);
        CHECK_EQ(stored.count, 5);
        held_free(h);
        slice_history_free(history);
}

static void held_launches_are_bounded(void)
{
        struct slice_history *history;
        struct held *h = held_world(&history);

        for (uint64_t id = 1; id <= HELD_MAX + 1000; id++) {
                struct launch_record r = waiting(id, 0, 100);

                held_add(h, &r, NULL);
        }
        CHECK_EQ(stored.count, 1000);
        held_turn(h, T0, true);
        CHECK_EQ(stored.count, 1000);
        held_finish(h);
        CHECK_EQ(stored.count, HELD_MAX + 1000);
        held_free(h);
        slice_history_free(history);
}

/* A burst is more than the database has room for: what it does not take waits its turn. */
static void held_launches_wait_for_room(void)
{
        struct slice_history *history;
        struct held *h = held_world(&history);

        stored.room = 100;
        for (uint64_t id = 1; id <= 1000; id++) {
                struct launch_record r = waiting(id, 0, 0);

                held_add(h, &r, NULL);
        }
        held_turn(h, T0, true);
        CHECK_EQ(stored.count, 100);
        held_turn(h, T0, true);
        CHECK_EQ(stored.count, 100);
        stored.room = 600;
        held_turn(h, T0, true);
        CHECK_EQ(stored.count, 700);
        CHECK_EQ(stored.lost, 0);
        CHECK_EQ(held_finish(h), 300);

        /* Beyond HELD_MAX the oldest are lost, one by one. */
        for (uint64_t id = 1001; id <= 700 + HELD_MAX + 5; id++) {
                struct launch_record r = waiting(id, 0, 0);

                held_add(h, &r, NULL);
        }
        CHECK_EQ(stored.lost, 5);
        stored.room = 10;
        CHECK_EQ(held_finish(h), HELD_MAX - 10);
        held_drop(h);
        CHECK_EQ(stored.count + stored.lost, 700 + HELD_MAX + 5);
        held_free(h);
        slice_history_free(history);
}

int main(void)
{
        TEST(shares_add_up);
        TEST(a_long_gap_is_idle);
        TEST(advancing_does_not_change_the_sums);
        TEST(long_slices_are_cut_at_seconds);
        TEST(losses_make_time_unknown);
        TEST(contradictions_are_noticed);
        TEST(a_reset_ends_whatever_runs);
        TEST(mig_instances_run_beside_each_other);
        TEST(many_contexts_share_the_last_place);
        TEST(random_events_add_up);
        TEST(waiting_is_split);
        TEST(history_is_bounded_and_in_order);
        TEST(launches_wait_for_slices);
        TEST(held_launches_are_bounded);
        TEST(held_launches_wait_for_room);
        return 0;
}
