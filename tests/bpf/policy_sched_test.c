/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The scheduling policies on the model of channel groups that take turns: shares
 * follow weights, critical work is quick, deadlines are met, queues stay short;
 * and what each of them costs, as its essay says.
 *      policy_sched_test DIRECTORY_OF_OBJECTS
 */
#include <errno.h>

#include "bpf/policy_fixture.h"
#include "policy/sim/share_model.h"
#include "unit/test.h"
#include "util/macro.h"
#include "util/time.h"

#define US   1000ull
#define MSEC NSEC_PER_MSEC

static int load(struct policy_engine *e, void *data)
{
        fixture_load(e, data, 0);
        return 0;
}

static int check_account(void *data, const struct policy_info *info)
{
        const struct policy_stats *s = info->stats;
        uint64_t refused = 0;

        for (int i = 0; i < POLICY_REFUSED_COUNT; i++)
                refused += s->refused[i];
        CHECK_EQ(info->state, POLICY_ACTIVE);
        CHECK_EQ(refused, 0);
        CHECK_EQ(s->asked, s->done);
        CHECK(s->runs > 50);
        return 0;
}

static void look(struct policy_engine *e, void *data)
{
        policy_engine_each(e, check_account, NULL);
}

/* policy NULL: none. */
static void run_for(const char *policy, uint64_t time_ns, uint64_t period_ns,
                    const struct share_client *clients, size_t n, struct share_result *ret_results)
{
        const struct share_options options = {.time_ns = time_ns,
                                              .period_ns = period_ns,
                                              .switch_ns = 88 * US,
                                              .slice_us = 2048,
                                              .prepare = policy ? load : NULL,
                                              .finish = look,
                                              .data = (void *)policy};

        CHECK_EQ(share_run(&options, clients, n, ret_results), 0);
}

static void run(const char *policy, const struct share_client *clients, size_t n,
                struct share_result *ret_results)
{
        run_for(policy, 10 * NSEC_PER_SEC, 10 * MSEC, clients, n, ret_results);
}

static uint64_t percent_of_all(const struct share_result *results, size_t n, size_t i)
{
        uint64_t sum = 0;

        for (size_t k = 0; k < n; k++)
                sum += results[k].active_ns;
        return results[i].active_ns * 100 / sum;
}

static uint64_t mean_us(const struct share_result *r)
{
        CHECK(r->bursts > 10);
        return r->latency_ns / r->bursts / 1000;
}

static void check_near(uint64_t value, uint64_t expected, uint64_t within)
{
        if (value + within < expected || value > expected + within)
                fprintf(stderr, "%" PRIu64 " is not %" PRIu64 "\n", value, expected);
        CHECK(value + within >= expected && value <= expected + within);
}

/* ---- the model itself, against what an H200 did ---- */

static void test_model(void)
{
        const struct share_client two[] = {{"a", 0, 760 * US, 0, 64, 0},
                                           {"b", 1, 760 * US, 0, 64, 0}};
        const struct share_client uneven[] = {{"short", 0, 200 * US, 0, 64, 0},
                                              {"long", 1, 9000 * US, 0, 64, 0}};
        struct share_result r[2];
        struct share_options options = {.time_ns = 10 * NSEC_PER_SEC,
                                        .period_ns = 10 * MSEC,
                                        .switch_ns = 88 * US,
                                        .slice_us = 2048};

        CHECK_EQ(share_run(&options, two, 2, r), 0);
        check_near(percent_of_all(r, 2, 0), 50, 1);
        CHECK_EQ(share_run(&options, two, 0, r), 0);
        /* Kernels are cut when a slice is over: their length does not count. */
        CHECK_EQ(share_run(&options, uneven, 2, r), 0);
        check_near(percent_of_all(r, 2, 0), 50, 1);
        CHECK(share_run(&options, two, SHARE_CLIENTS_MAX + 1, r) < 0);
}

/* ---- sched_fair ---- */

static void test_fair(void)
{
        const struct share_client three[] = {{"small", 0, 760 * US, 0, 64, 0},
                                             {"middle", 1, 760 * US, 0, 64, 0},
                                             {"large", 2, 760 * US, 0, 64, 0}};
        struct share_result r[3];

        run("sched_fair groups[0]=small weights[0]=100 groups[1]=middle weights[1]=200 "
            "groups[2]=lar* weights[2]=400",
            three, 3, r);
        check_near(percent_of_all(r, 3, 0), 14, 2);
        check_near(percent_of_all(r, 3, 1), 29, 3);
        check_near(percent_of_all(r, 3, 2), 57, 3);
}

/* As the daemon tells of shares: within three seconds from the start, transient included. */
static void test_fair_is_quick(void)
{
        static const struct {
                const char *policy;
                uint64_t percent;
        } ratios[] = {{"sched_fair", 50},
                      {"sched_fair groups[0]=a weights[0]=200", 67},
                      {"sched_fair groups[0]=a weights[0]=800", 89}};
        const struct share_client two[] = {{"a", 0, 250 * US, 0, 64, 0},
                                           {"b", 1, 250 * US, 0, 64, 0}};
        struct share_result r[2];

        for (size_t i = 0; i < ARRAY_SIZE(ratios); i++) {
                run_for(ratios[i].policy, 3 * NSEC_PER_SEC, 50 * MSEC, two, 2, r);
                check_near(percent_of_all(r, 2, 0), ratios[i].percent, 3);
        }
}

/* Work that leaves gaps cannot use up its share: that shortens nobody's turns. */
static void test_fair_with_gaps(void)
{
        const struct share_client clients[] = {{"two", 0, 250 * US, 0, 64, 0},
                                               {"one", 1, 250 * US, 0, 64, 0},
                                               {"gaps", 2, 100 * US, 5 * MSEC, 3, 0}};
        struct share_result with[3], without[3];

        run_for("sched_fair groups[0]=two weights[0]=200", 10 * NSEC_PER_SEC, 50 * MSEC, clients, 3,
                with);
        run(NULL, clients, 3, without);
        check_near(with[0].kernels * 100 / with[1].kernels, 200, 10);
        CHECK((with[0].kernels + with[1].kernels) * 100 >
              (without[0].kernels + without[1].kernels) * 97);
}

/* Who has little work waits for long turns. */
static void test_fair_loses(void)
{
        const struct share_client clients[] = {{"heavy", 0, 500 * US, 0, 64, 0},
                                               {"other", 1, 500 * US, 0, 64, 0},
                                               {"light", 2, 100 * US, 30 * MSEC, 5, 0}};
        struct share_result with[3], without[3];

        run("sched_fair groups[0]=heavy weights[0]=2000", clients, 3, with);
        run(NULL, clients, 3, without);
        printf("heavy: %" PRIu64 " %%; light burst: %" PRIu64 " us with, %" PRIu64 " us without\n",
               percent_of_all(with, 3, 0), mean_us(&with[2]), mean_us(&without[2]));
        CHECK(percent_of_all(with, 3, 0) > 85);
        CHECK(mean_us(&with[2]) > mean_us(&without[2]) * 11 / 10);
}

/* ---- sched_class ---- */

static void test_class(void)
{
        const struct share_client clients[] = {{"web", 0, 100 * US, 20 * MSEC, 30, 0},
                                               {"batch1", 1, 300 * US, 0, 64, 0},
                                               {"batch2", 2, 300 * US, 0, 64, 0},
                                               {"batch3", 3, 300 * US, 0, 64, 0}};
        struct share_result with[4], without[4];
        uint64_t kernels_with = 0, kernels_without = 0;

        run("sched_class critical[0]=web", clients, 4, with);
        run(NULL, clients, 4, without);
        printf("critical burst of 3 ms: %" PRIu64 " us with, %" PRIu64 " us without\n",
               mean_us(&with[0]), mean_us(&without[0]));
        CHECK(mean_us(&with[0]) < mean_us(&without[0]) * 6 / 10);
        for (int i = 1; i < 4; i++) {
                kernels_with += with[i].kernels;
                kernels_without += without[i].kernels;
        }
        printf("batch kernels: %" PRIu64 " with, %" PRIu64 " without\n", kernels_with,
               kernels_without);
        CHECK(kernels_with < kernels_without * 9 / 10); /* the price */
}

/* ---- sched_deadline ---- */

static void test_deadline(void)
{
        const struct share_client clients[] = {{"frame", 0, 500 * US, 50 * MSEC, 20, 40 * MSEC},
                                               {"batch1", 1, 300 * US, 0, 64, 0},
                                               {"batch2", 2, 300 * US, 0, 64, 0},
                                               {"batch3", 3, 300 * US, 0, 64, 0},
                                               {"batch4", 4, 300 * US, 0, 64, 0}};
        struct share_client early[ARRAY_SIZE(clients)];
        struct share_result with[5], without[5], late[5], before[5];

        run("sched_deadline urgent[0]=frame deadline_us[0]=40000", clients, 5, with);
        run(NULL, clients, 5, without);
        printf("missed deadlines: %" PRIu64 " of %" PRIu64 " with, %" PRIu64 " of %" PRIu64
               " without\n",
               with[0].missed, with[0].bursts, without[0].missed, without[0].bursts);
        CHECK(without[0].missed > without[0].bursts / 2);
        CHECK(with[0].missed * 20 <= with[0].bursts);

        /* A deadline shorter than the period of the shares: the alarm comes too late. */
        memcpy(early, clients, sizeof(clients));
        early[0].burst = 4;
        early[0].deadline_ns = 4 * MSEC;
        run("sched_deadline urgent[0]=frame deadline_us[0]=4000", early, 5, late);
        run(NULL, early, 5, before);
        CHECK(before[0].missed > before[0].bursts / 2);
        CHECK(late[0].missed > late[0].bursts / 2);
}

/* ---- pace_depth ---- */

static void test_pace(void)
{
        struct share_client clients[] = {{"quick", 0, 100 * US, 50 * MSEC, 1, 0},
                                         {"greedy", 0, 100 * US, 0, 200, 0}};
        struct share_result with[2], without[2];

        run("pace_depth exempt[0]=quick", clients, 2, with);
        run(NULL, clients, 2, without);
        printf("one kernel behind a greedy client: %" PRIu64 " us with, %" PRIu64 " us without\n",
               mean_us(&with[0]), mean_us(&without[0]));
        CHECK(mean_us(&with[0]) * 10 < mean_us(&without[0]));
        /* No kernel is lost by it. */
        CHECK(with[1].kernels + with[0].kernels >= without[1].kernels + without[0].kernels);

        /* Of no use between channel groups. */
        clients[1].group = 1;
        run("pace_depth exempt[0]=quick", clients, 2, with);
        run(NULL, clients, 2, without);
        check_near(mean_us(&with[0]), mean_us(&without[0]), mean_us(&without[0]) / 10);
}

/* ---- stream_class ---- */

static int check_asked(void *data, const struct policy_info *info)
{
        CHECK_EQ(info->state, POLICY_ACTIVE);
        CHECK_EQ(info->stats->asked, 4); /* at loading, and after the pattern was set */
        CHECK_EQ(info->stats->done, 4);
        CHECK_EQ(info->settings, 2);
        return 0;
}

static void look_asked(struct policy_engine *e, void *data)
{
        policy_engine_each(e, check_asked, NULL);
}

static void test_streams(void)
{
        struct share_client clients[] = {{"quick", 0, 100 * US, 50 * MSEC, 1, 0},
                                         {"greedy", 0, 100 * US, 0, 200, 0}};
        const struct share_options options = {.time_ns = 10 * NSEC_PER_SEC,
                                              .period_ns = 10 * MSEC,
                                              .switch_ns = 88 * US,
                                              .slice_us = 2048,
                                              .prepare = load,
                                              .finish = look_asked,
                                              .data = (void *)"stream_class critical[0]=quick"};
        struct share_result with[2], without[2];

        CHECK_EQ(share_run(&options, clients, 2, with), 0);
        run(NULL, clients, 2, without);
        printf("one kernel beside a greedy stream: %" PRIu64 " us with, %" PRIu64 " us without\n",
               mean_us(&with[0]), mean_us(&without[0]));
        CHECK(mean_us(&with[0]) * 10 < mean_us(&without[0]));
        CHECK(with[1].kernels + with[0].kernels >= without[1].kernels + without[0].kernels);

        /* Who is quick and always busy leaves nothing. */
        clients[0] = (struct share_client){"quick", 0, 100 * US, 0, 2, 0};
        CHECK_EQ(share_run(&options, clients, 2, with), 0);
        CHECK_EQ(with[1].kernels, 0);

        /* Of no use between channel groups. */
        clients[0] = (struct share_client){"quick", 1, 100 * US, 50 * MSEC, 1, 0};
        CHECK_EQ(share_run(&options, clients, 2, with), 0);
        run(NULL, clients, 2, without);
        CHECK_EQ(mean_us(&with[0]), mean_us(&without[0]));
}

static void test_rate(void)
{
        const struct share_client client = {"steady", 0, 100 * US, 0, 200, 0};
        struct share_result r;

        run("pace_depth rate=1000", &client, 1, &r);
        check_near(r.kernels, 10000, 300); /* it begins without a limit */
}

/* ---- processes that are told of again ---- */

struct asked {
        struct policy_engine *engine;
        struct policy_action last;
        unsigned count;
        int error;
};

static bool take(void *data, const struct policy_order *order)
{
        struct asked *a = data;
        struct policy_result result = {.id = order->id, .error = a->error};

        a->last = order->action;
        a->count++;
        policy_engine_done(a->engine, &result);
        return true;
}

static void nothing_waits(void *data)
{
}

static const struct policy_actuator_ops asked_ops = {.submit = take, .flush = nothing_waits};

static struct policy_engine *begin(struct asked *a, const char *policy)
{
        const struct policy_process p = {
                .key = 1, .start_ticks = 1, .pid = 1, .comm = "greedy", .cgroup = "/jobs"};

        *a = (struct asked){.engine = policy_engine_new(&asked_ops, a)};
        CHECK(a->engine);
        CHECK_EQ(policy_engine_process_start(a->engine, &p, 1), 0);
        fixture_load(a->engine, policy, 0);
        return a->engine;
}

static void set(struct policy_engine *e, const char *name, const char *variable, const char *value)
{
        char error[200];

        CHECK_EQ(policy_engine_set(e, name, variable, value, error, sizeof(error)), 0);
}

static void launch(struct policy_engine *e, uint64_t depth)
{
        policy_engine_launches(e, 1, 0, 1, depth, NULL, 0, 2);
}

static uint64_t settings(struct asked *a, const char *policy)
{
        CHECK_EQ(fixture_state(a->engine, policy, NULL), POLICY_ACTIVE);
        return fixture_settings(a->engine, policy);
}

/* A process that is held is let go, whatever was set meanwhile, and held again when it has to be.
 */
static void test_pace_is_set(void)
{
        struct policy_engine *e;
        struct asked a;

        e = begin(&a, "pace_depth");
        a.error = -EOPNOTSUPP; /* it has no agent yet */
        launch(e, 100);
        CHECK_EQ(a.count, 1);
        a.error = 0;
        policy_engine_process_again(e, 1, 3);
        launch(e, 100);
        CHECK(a.count == 2 && a.last.kind == POLICY_ACTION_pace && a.last.value == 2);
        set(e, "pace_depth", "low", "4");
        CHECK_EQ(settings(&a, "pace_depth"), 0);
        set(e, "pace_depth", "rate", "1000");
        launch(e, 100);
        CHECK_EQ(settings(&a, "pace_depth"), 2);
        set(e, "pace_depth", "rate", "0");
        CHECK_EQ(settings(&a, "pace_depth"), 0);
        launch(e, 100);
        CHECK_EQ(settings(&a, "pace_depth"), 1);
        CHECK_EQ(policy_engine_disable(e, "pace_depth"), 0);
        CHECK_EQ(policy_engine_enable(e, "pace_depth", 4), 0);
        launch(e, 100);
        CHECK_EQ(settings(&a, "pace_depth"), 1);
        set(e, "pace_depth", "exempt[0]", "gree*");
        launch(e, 100);
        CHECK_EQ(settings(&a, "pace_depth"), 0);
        policy_engine_free(e);
}

/* Nothing of an alarm is left, whatever was set meanwhile. */
static void test_deadline_is_set(void)
{
        struct policy_share share = {
                .process = 1, .active_ns = 5 * MSEC, .period_ns = 10 * MSEC, .waiting = 1};
        struct policy_engine *e;
        struct asked a;

        e = begin(&a, "sched_deadline urgent[0]=greedy deadline_us[0]=20000");
        for (uint64_t ms = 10; ms <= 30; ms += 10)
                policy_engine_shares(e, POLICY_GPUS_MAX, &share, 1, ms * MSEC);
        CHECK_EQ(settings(&a, "sched_deadline"), 1);
        set(e, "sched_deadline", "alarm_percent", "50");
        share.waiting = 0;
        policy_engine_shares(e, POLICY_GPUS_MAX, &share, 1, 40 * MSEC);
        CHECK_EQ(settings(&a, "sched_deadline"), 0);
        policy_engine_free(e);
}

/* So many shares of 50 ms each. The time after them. */
static uint64_t share_for(struct policy_engine *e, uint64_t now_ns, unsigned periods)
{
        const struct policy_share share = {.process = 1,
                                           .active_ns = 40 * MSEC,
                                           .period_ns = 50 * MSEC,
                                           .slice_us = 2048,
                                           .waiting = 1};

        while (periods--) {
                policy_engine_shares(e, POLICY_GPUS_MAX, &share, 1, now_ns);
                now_ns += 50 * MSEC;
        }
        return now_ns;
}

/* A slice that was overruled or failed once comes into force when it can, and is then left alone.
 */
static void test_slice_is_asked_again(void)
{
        struct policy_engine *e;
        struct policy_stats s;
        struct asked a;
        uint64_t now_ns;
        unsigned count;

        e = begin(&a, "sched_fair");
        fixture_load(e, "sched_class critical[0]=greedy", 5);
        now_ns = share_for(e, NSEC_PER_SEC, 100);
        s = fixture_stats(e, "sched_fair");
        CHECK_EQ(settings(&a, "sched_class"), 1);
        CHECK_EQ(settings(&a, "sched_fair"), 0);
        CHECK(s.refused[POLICY_REFUSED_overruled] > 1 && s.asked <= 6); /* once a second */

        a.error = -EIO;
        CHECK_EQ(policy_engine_unload(e, "sched_class"), 0);
        now_ns = share_for(e, now_ns, 40);
        CHECK_EQ(settings(&a, "sched_fair"), 0);
        a.error = 0;
        now_ns = share_for(e, now_ns, 30);
        CHECK_EQ(settings(&a, "sched_fair"), 1);
        CHECK_EQ(a.last.value, 2000);
        count = a.count;
        (void)share_for(e, now_ns, 100);
        CHECK_EQ(a.count, count);
        policy_engine_free(e);
}

static int find_slots(void *data, const struct policy_variable *v)
{
        if (strcmp(v->name, "slot_process") == 0)
                snprintf(data, 256, "%s", v->value);
        return 0;
}

/* A place that became free is not a second one for a process that has one. */
static void test_quota_slots(void)
{
        struct policy_process second = {
                .key = 2, .start_ticks = 1, .pid = 2, .comm = "second", .cgroup = "/jobs"};
        struct policy_engine *e;
        char slots[256] = "";
        struct asked a;

        e = begin(&a, "evict_quota");
        CHECK_EQ(policy_engine_process_start(e, &second, 2), 0);
        policy_engine_process_exit(e, 1, 3);
        policy_engine_process_again(e, 2, 4);
        CHECK_EQ(policy_engine_variables(e, "evict_quota", find_slots, slots), 0);
        CHECK_STR(slots, "0,0,2,0,0,0,0,0,0,0,0,0,0,0,0");
        policy_engine_free(e);
}

int main(int argc, char **argv)
{
        CHECK(argc == 2);
        fixture_policies = argv[1];
        TEST(test_model);
        fixture_need_bpf();
        TEST(test_fair);
        TEST(test_fair_is_quick);
        TEST(test_fair_with_gaps);
        TEST(test_fair_loses);
        TEST(test_class);
        TEST(test_deadline);
        TEST(test_pace);
        TEST(test_streams);
        TEST(test_rate);
        TEST(test_pace_is_set);
        TEST(test_deadline_is_set);
        TEST(test_slice_is_asked_again);
        TEST(test_quota_slots);
        return 0;
}
