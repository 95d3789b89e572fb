/* SPDX-License-Identifier: Apache-2.0 */

/*
 * From a GPU's clock to CLOCK_MONOTONIC while its rate is set as time daemons set it: the
 * truth lies within the stated bound, for times asked for at once and later.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <unistd.h>

#include "correlate/clock_model.h"
#include "util/mono_map.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

#define SEC      1000000000ULL
#define MS       1000000.0
#define STEP     32
#define RAW_0    (5000 * SEC)
#define OFFSET_0 (70 * SEC) /* CLOCK_MONOTONIC less the other, at RAW_0 */
#define GPU_0    (1700000000 * SEC)
#define FOREVER  1e18
#define EVENTS   4 /* a turn */

/* How the rate is set. */
enum discipline { CALM, STEPS, SLEWS, EACH_SECOND, PULSES, TICK };

struct truth {
        uint64_t seed;
        enum discipline discipline;
        double size_ppm;      /* of steps, 0: any from 0.05 to 500 */
        double raw;           /* ns since RAW_0, now */
        double offset;        /* of CLOCK_MONOTONIC since OFFSET_0 */
        double gpu;           /* of the GPU's clock since GPU_0 */
        double rate, resting; /* d(offset)/d(raw), and what a slew goes back to */
        double gpu_rate;
        double next_change; /* raw */
        bool away;          /* in a slew, a pulse, ... */
};

struct event {
        uint64_t gpu_ns;
        double offset, raw;
};

struct result {
        size_t count, outside;
        double worst_ns; /* outside the bound */
};

static double uniform(uint64_t *seed)
{
        return (double)(test_random(seed) >> 11) / 9007199254740992.0;
}

static double between(struct truth *t, double low, double high)
{
        return low + uniform(&t->seed) * (high - low);
}

static double any_step(struct truth *t)
{
        double size = t->size_ppm > 0 ? t->size_ppm : exp(between(t, log(0.05), log(500)));

        return (uniform(&t->seed) < 0.5 ? -size : size) * 1e-6;
}

static void change_rate(struct truth *t)
{
        double wait = between(t, 50, 2500) * MS;

        switch (t->discipline) {
        case CALM:
                wait = FOREVER;
                break;
        case STEPS:
                t->rate = any_step(t);
                break;
        case EACH_SECOND: /* a phase locked loop on its way */
                t->rate = t->away ? t->rate * 0.97 : any_step(t);
                t->away = uniform(&t->seed) > 0.05;
                wait = 1000 * MS;
                break;
        case SLEWS:
                if (!t->away)
                        t->resting = any_step(t);
                t->rate = t->away ? t->resting : t->resting + (t->seed & 1 ? -500e-6 : 500e-6);
                t->away = !t->away;
                break;
        case PULSES:
                t->rate = t->away ? 0 : any_step(t);
                t->away = !t->away;
                if (t->away)
                        wait = exp(between(t, log(0.05), log(100))) * MS;
                break;
        case TICK:
                t->rate = t->away ? 0 : between(t, -83333e-6, 83333e-6);
                t->away = !t->away;
                wait += 1000 * MS; /* chrony's shortest */
                break;
        }
        t->next_change = t->raw + wait;
}

static void advance_to(struct truth *t, double raw)
{
        while (t->raw < raw) {
                double until = fmin(raw, t->next_change), ns = until - t->raw;

                t->offset += t->rate * ns;
                t->gpu += ns * (1 + t->gpu_rate);
                t->raw = until;
                if (t->raw >= t->next_change)
                        change_rate(t);
        }
}

static struct truth truth_of(enum discipline discipline, double size_ppm, uint64_t seed)
{
        struct truth t = {.discipline = discipline, .size_ppm = size_ppm, .seed = seed};

        t.gpu_rate = between(&t, -50e-6, 50e-6);
        t.next_change = between(&t, 0, 3000) * MS;
        return t;
}

static uint64_t raw_ns(const struct truth *t)
{
        return RAW_0 + (uint64_t)t->raw;
}

static uint64_t monotonic_ns(const struct truth *t)
{
        return RAW_0 + OFFSET_0 + (uint64_t)(t->raw + t->offset);
}

/* As clock_pair_read(): the middle of a bracket, the truth anywhere in it. */
static int read_pair(void *data, struct clock_pair *ret_pair)
{
        struct truth *t = data;
        double width = uniform(&t->seed) < 0.02 ? between(t, 40, 2000) : between(t, 36, 60);

        *ret_pair = (struct clock_pair){
                .raw_ns = raw_ns(t),
                .monotonic_ns =
                        monotonic_ns(t) + (uint64_t)(int64_t)(width * between(t, -0.5, 0.5)),
                .error_ns = (uint32_t)(width / 2 + 2),
        };
        return 0;
}

static void read_gpu(struct truth *t, struct clock_sample *ret_raw,
                     struct clock_sample *ret_monotonic)
{
        uint64_t before = (uint64_t)between(t, 300, 600), after = (uint64_t)between(t, 300, 600);
        uint64_t gpu = (GPU_0 + (uint64_t)t->gpu) / STEP * STEP;

        *ret_raw = (struct clock_sample){raw_ns(t) - before, gpu, raw_ns(t) + after};
        *ret_monotonic =
                (struct clock_sample){monotonic_ns(t) - before, gpu, monotonic_ns(t) + after};
}

static uint32_t check(const struct clock_model *m, const struct event *e, struct result *r)
{
        uint64_t estimate;
        uint32_t error;
        double off;

        CHECK_EQ(clock_model_to_cpu(m, e->gpu_ns, &estimate, &error), 0);
        off = fabs((double)(int64_t)(estimate - RAW_0 - OFFSET_0) - e->raw - e->offset) - error;
        r->count++;
        r->outside += off > 1;
        r->worst_ns = fmax(r->worst_ns, off);
        return error;
}

/* The same times by three models. */
struct run {
        struct mono_map *reading, *fed;
        struct clock_model *model;  /* with a map that reads pairs itself */
        struct clock_model *guess;  /* ... that is only fed */
        struct clock_model *direct; /* held against CLOCK_MONOTONIC, without a map */
        struct result at_once, guessed, later, directly;
        uint32_t bounds[40000], direct_bounds[40000];
        size_t bound_count;
};

static void setup(struct run *r, struct truth *t)
{
        *r = (struct run){0};
        r->reading = mono_map_new(read_pair, t);
        r->fed = mono_map_new(NULL, NULL);
        r->model = clock_model_new(STEP, r->reading);
        r->guess = clock_model_new(STEP, r->fed);
        r->direct = clock_model_new(STEP, NULL);
        CHECK(r->reading && r->fed && r->model && r->guess && r->direct);
}

static void done(struct run *r)
{
        clock_model_free(r->model);
        clock_model_free(r->guess);
        clock_model_free(r->direct);
        mono_map_free(r->reading);
        mono_map_free(r->fed);
}

static void sample(struct run *r, struct truth *t)
{
        struct clock_sample raw, monotonic;

        read_gpu(t, &raw, &monotonic);
        CHECK_EQ(clock_model_add(r->model, &raw), 0);
        CHECK_EQ(clock_model_add(r->guess, &raw), 0);
        (void)clock_model_add(r->direct, &monotonic);
}

static void pair(struct run *r, struct truth *t)
{
        struct clock_pair p;

        CHECK_EQ(read_pair(t, &p), 0);
        CHECK_EQ(mono_map_add(r->fed, &p), 0);
        CHECK_EQ(mono_map_add(r->reading, &p), 0);
}

/* Events of a turn, each asked for when it happens and when the turn ends. */
static void turn(struct run *r, struct truth *t, double ns)
{
        struct event events[EVENTS];
        double begin = t->raw;

        for (int i = 0; i < EVENTS; i++) {
                advance_to(t, begin + ns * (i + uniform(&t->seed)) / EVENTS);
                events[i] = (struct event){GPU_0 + (uint64_t)t->gpu, t->offset, t->raw};
                check(r->guess, &events[i], &r->guessed);
                if (i == 0)
                        check(r->model, &events[i], &r->at_once);
        }
        advance_to(t, begin + ns + 1);
        pair(r, t);
        for (int i = 0; i < EVENTS; i++) {
                uint32_t bound = check(r->guess, &events[i], &r->later);
                uint32_t direct = check(r->direct, &events[i], &r->directly);

                check(r->model, &events[i], &r->later);
                if (r->bound_count == ARRAY_SIZE(r->bounds))
                        continue;
                r->direct_bounds[r->bound_count] = direct;
                r->bounds[r->bound_count++] = bound;
        }
}

static void simulate(struct run *r, struct truth *t, double turn_ms, double seconds)
{
        double next_sample;

        setup(r, t);
        pair(r, t);
        for (int i = 0; i < 5; i++) {
                advance_to(t, t->raw + 50 * MS);
                sample(r, t);
        }
        advance_to(t, t->raw + 1000);
        pair(r, t);
        for (next_sample = t->raw; t->raw < seconds * SEC;) {
                turn(r, t, between(t, 0.6, 1.4) * turn_ms * MS);
                if (t->raw < next_sample)
                        continue;
                sample(r, t);
                next_sample = t->raw + 250 * MS;
        }
}

static int ascending(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

        return (x > y) - (x < y);
}

static uint32_t percentile(uint32_t *bounds, size_t count, double p)
{
        qsort(bounds, count, sizeof(bounds[0]), ascending);
        return bounds[(size_t)((double)(count - 1) * p)];
}

static void add(struct result *sum, const struct result *r)
{
        sum->count += r->count;
        sum->outside += r->outside;
        sum->worst_ns = fmax(sum->worst_ns, r->worst_ns);
}

/* Bounds are those of the last run. */
static void print(const char *what, double turn_ms, struct run *r)
{
        size_t n = r->bound_count;

        printf("%-12s pairs each %2.0f ms: bound p50 %u p90 %u max %u ns, %zu of %zu outside; "
               "against CLOCK_MONOTONIC itself: p50 %u p90 %u max %u ns, %zu outside, by up to "
               "%.0f ns\n",
               what, turn_ms, percentile(r->bounds, n, 0.5), percentile(r->bounds, n, 0.9),
               percentile(r->bounds, n, 1), r->later.outside, r->later.count,
               percentile(r->direct_bounds, n, 0.5), percentile(r->direct_bounds, n, 0.9),
               percentile(r->direct_bounds, n, 1), r->directly.outside, r->directly.worst_ns);
}

static void run_turns(const char *what, enum discipline discipline, double size_ppm, double turn_ms)
{
        struct result at_once = {0}, guessed = {0}, later = {0}, directly = {0};
        static struct run r;

        for (uint64_t seed = 1; seed <= 20; seed++) {
                struct truth t = truth_of(discipline, size_ppm, seed * 77 + (uint64_t)turn_ms);

                simulate(&r, &t, turn_ms, turn_ms < 5 ? 10 : 40);
                add(&at_once, &r.at_once);
                add(&guessed, &r.guessed);
                add(&later, &r.later);
                add(&directly, &r.directly);
                CHECK_EQ(clock_model_restarts(r.model), 0);
                done(&r);
        }
        r.later = later;
        r.directly = directly;
        print(what, turn_ms, &r);
        CHECK(later.count > 10000 && at_once.count > 1000);
        CHECK_EQ(later.outside, 0);
        CHECK_EQ(at_once.outside, 0);
        /* Before a pair shows it, a rate beyond MONO_RATE_MAX_PPM is not reckoned with. */
        if (discipline != TICK)
                CHECK_EQ(guessed.outside, 0);
        /* The test is one: without a map such steps do harm. */
        if (discipline != CALM && (size_ppm == 0 || size_ppm >= 0.5))
                CHECK(directly.outside > 0);
        CHECK(percentile(r.bounds, r.bound_count, 0.5) <= 700);
}

static void run_discipline(const char *what, enum discipline discipline, double size_ppm)
{
        run_turns(what, discipline, size_ppm, 1);
        run_turns(what, discipline, size_ppm, 5);
        run_turns(what, discipline, size_ppm, 50);
}

static void a_steady_rate(void)
{
        run_discipline("calm", CALM, 0);
}

static void steps_of_the_rate(void)
{
        run_discipline("any step", STEPS, 0);
        run_discipline("0.05 ppm", STEPS, 0.05);
        run_discipline("0.5 ppm", STEPS, 0.5);
        run_discipline("50 ppm", STEPS, 50);
        run_discipline("500 ppm", STEPS, 500);
}

static void slews(void)
{
        run_discipline("adjtime", SLEWS, 0);
        run_discipline("each second", EACH_SECOND, 0);
        run_discipline("tick", TICK, 0);
}

static void pulses_of_any_length(void)
{
        run_discipline("pulses", PULSES, 0);
}

static void the_clocks_of_this_machine(void)
{
        struct mono_map *m = mono_map_new(clock_pair_read, NULL);
        uint64_t before, raw, after, estimate;
        double error;

        CHECK(m);
        for (int i = 0; i < 2000; i++) {
                before = now_ns();
                raw = raw_now_ns();
                after = now_ns();
                CHECK_EQ(mono_map_convert(m, raw, 0, &estimate, &error), 0);
                CHECK((double)estimate + error >= (double)before);
                CHECK((double)estimate - error <= (double)after);
                usleep(100);
        }
        mono_map_free(m);
}

static void what_is_not_known_is_said(void)
{
        struct mono_map *m = mono_map_new(NULL, NULL);
        struct clock_pair first = {.raw_ns = 10 * SEC, .monotonic_ns = 20 * SEC, .error_ns = 30};
        struct clock_pair back = {.raw_ns = 11 * SEC, .monotonic_ns = 20 * SEC - 1};
        struct clock_pair second = {.raw_ns = 11 * SEC, .monotonic_ns = 21 * SEC, .error_ns = 30};
        uint64_t at;
        double error, far;

        CHECK_EQ(mono_map_convert(m, 10 * SEC, 0, &at, &error), -EAGAIN);
        CHECK_EQ(mono_map_read(m), -ENOTSUP);
        CHECK_EQ(mono_map_add(m, &first), 0);
        CHECK_EQ(mono_map_add(m, &first), -EINVAL);
        CHECK_EQ(mono_map_add(m, &back), -EINVAL);
        CHECK_EQ(mono_map_add(m, &second), 0);
        CHECK_EQ(mono_map_convert(m, 10 * SEC, 500, &at, &error), 0);
        CHECK_EQ(at, 20 * SEC);
        CHECK(error >= 530 && error < 540);
        CHECK_EQ(mono_map_convert(m, 12 * SEC, 0, &at, &error), 0);
        CHECK_EQ(mono_map_convert(m, 13 * SEC, 0, &at, &far), 0);
        CHECK(error >= 1e6 && far >= error + 0.99e6); /* it may be 1000 ppm from now on */
        CHECK_EQ(mono_map_convert(m, 8 * SEC, 0, &at, &error), 0);
        CHECK(error >= 2e6);
        CHECK_EQ(mono_map_convert(m, 0, 0, &at, &error), 0);
        CHECK_EQ(mono_map_convert(m, UINT64_MAX, 0, &at, &error), 0);
        CHECK_EQ(mono_map_convert(m, INT64_MAX, 0, &at, &error), 0);
        mono_map_free(m);
}

int main(void)
{
        TEST(a_steady_rate);
        TEST(steps_of_the_rate);
        TEST(slews);
        TEST(pulses_of_any_length);
        TEST(the_clocks_of_this_machine);
        TEST(what_is_not_known_is_said);
        return 0;
}
