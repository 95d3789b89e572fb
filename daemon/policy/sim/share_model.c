/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/sim/share_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/macro.h"
#include "util/time.h"

struct client {
        struct share_client is;
        struct share_result result;
        uint64_t next_burst_ns;
        uint64_t burst_began_ns;
        uint32_t burst_left; /* kernels of the burst that are not done */
        uint32_t to_launch;  /* wanted, held back by pacing or a full queue */
        uint32_t waiting;    /* in the group's queue */
        uint32_t pace;       /* waiting at most; 0 no limit */
        uint32_t rate;       /* launches a second at most; 0 no limit */
        uint64_t next_ns;    /* by the rate, the next launch */
        uint32_t wanted;     /* priority of streams that it makes; 0 as it asks */
        uint32_t priority;   /* of its stream, which it makes with the first launch */
        uint64_t active_ns;  /* in the running share period */
};

/* A channel group: a queue of kernels, by client. */
struct group {
        uint8_t queue[SHARE_QUEUE_MAX];
        uint32_t first, count;
        uint64_t left_ns; /* of the first kernel, when it was cut; 0: it has not begun */
        uint64_t slice_us;
        bool preempted; /* its slice is over */
};

struct gpu {
        const struct share_options *options;
        struct client clients[SHARE_CLIENTS_MAX];
        size_t client_count;
        struct group groups[SHARE_CLIENTS_MAX];
        struct policy_engine *engine;
        uint64_t now_ns;
        uint64_t next_share_ns, share_began_ns;
        uint32_t turn; /* group whose turn it is */
        bool used;     /* any group has run: the first one costs no switch */
};

/* ---- the actuator: everything takes effect at once ---- */

static int set(uint32_t *limit, uint64_t value, uint64_t *ret_before)
{
        *ret_before = *limit;
        *limit = (uint32_t)value;
        return 0;
}

static int perform(struct gpu *g, const struct policy_action *a, uint64_t *ret_before)
{
        struct client *c = &g->clients[a->process - 1];
        struct group *group = &g->groups[c->is.group];

        switch (a->kind) {
        case POLICY_ACTION_time_slice:
                *ret_before = group->slice_us;
                group->slice_us = a->value;
                return 0;
        case POLICY_ACTION_preempt:
                group->preempted = true;
                return 0;
        case POLICY_ACTION_pace:
                return set(&c->pace, a->value, ret_before);
        case POLICY_ACTION_launch_rate:
                return set(&c->rate, a->value, ret_before);
        case POLICY_ACTION_stream_priority:
                return set(&c->wanted, a->value, ret_before);
        default:
                return -EOPNOTSUPP; /* no memory here: see uvm_model.h */
        }
}

static bool submit(void *data, const struct policy_order *order)
{
        struct gpu *g = data;
        struct policy_result result = {.id = order->id};

        result.error = perform(g, &order->action, &result.before);
        policy_engine_done(g->engine, &result);
        return true;
}

static void flush(void *data)
{
}

static const struct policy_actuator_ops actuator = {.submit = submit, .flush = flush};

/* ---- launching ---- */

static bool may_launch(const struct gpu *g, const struct client *c)
{
        return c->to_launch && g->groups[c->is.group].count < SHARE_QUEUE_MAX &&
               (!c->pace || c->waiting < c->pace) && (!c->rate || c->next_ns <= g->now_ns);
}

static void take_place(struct client *c, uint64_t now_ns)
{
        if (!c->rate)
                return;
        c->next_ns = (c->next_ns > now_ns ? c->next_ns : now_ns) + NSEC_PER_SEC / c->rate;
}

static void launch(struct gpu *g, size_t i)
{
        struct client *c = &g->clients[i];
        struct group *group = &g->groups[c->is.group];

        while (may_launch(g, c)) {
                if (!c->result.kernels && !c->waiting)
                        c->priority = c->wanted ? c->wanted : SHARE_PRIORITY;
                take_place(c, g->now_ns);
                group->queue[(group->first + group->count++) % SHARE_QUEUE_MAX] = (uint8_t)i;
                c->waiting++;
                c->to_launch--;
        }
}

/* Bursts that are due; those that are always busy fill up what they keep waiting. */
static void arrive(struct gpu *g)
{
        for (size_t i = 0; i < g->client_count; i++) {
                struct client *c = &g->clients[i];

                if (!c->is.period_ns) {
                        c->to_launch = c->is.burst - c->waiting;
                } else if (g->now_ns >= c->next_burst_ns && !c->burst_left) {
                        c->burst_began_ns = c->next_burst_ns;
                        c->burst_left = c->to_launch = c->is.burst;
                        c->next_burst_ns += c->is.period_ns;
                }
                launch(g, i);
        }
}

static uint64_t next_arrival(const struct gpu *g)
{
        uint64_t next = UINT64_MAX;

        for (size_t i = 0; i < g->client_count; i++) {
                const struct client *c = &g->clients[i];

                if (c->is.period_ns && !c->burst_left && c->next_burst_ns < next)
                        next = c->next_burst_ns;
                if (c->rate && c->to_launch && c->next_ns > g->now_ns && c->next_ns < next)
                        next = c->next_ns;
        }
        return next;
}

/* ---- running ---- */

static void burst_done(struct client *c, uint64_t now_ns)
{
        uint64_t latency_ns = now_ns - c->burst_began_ns;

        c->result.bursts++;
        c->result.latency_ns += latency_ns;
        c->result.longest_ns =
                latency_ns > c->result.longest_ns ? latency_ns : c->result.longest_ns;
        c->result.missed += c->is.deadline_ns && latency_ns > c->is.deadline_ns;
}

static void kernel_done(struct gpu *g, struct group *group, struct client *c)
{
        group->first = (group->first + 1) % SHARE_QUEUE_MAX;
        group->count--;
        c->waiting--;
        c->result.kernels++;
        if (c->burst_left && --c->burst_left == 0)
                burst_done(c, g->now_ns);
}

/* Between kernels, those of the streams with the greatest priority go first. */
static void choose(const struct gpu *g, struct group *group)
{
        uint32_t best = 0, first = group->first;
        uint8_t chosen;

        for (uint32_t i = 1; i < group->count; i++)
                if (g->clients[group->queue[(first + i) % SHARE_QUEUE_MAX]].priority <
                    g->clients[group->queue[(first + best) % SHARE_QUEUE_MAX]].priority)
                        best = i;
        chosen = group->queue[(first + best) % SHARE_QUEUE_MAX];
        for (; best > 0; best--)
                group->queue[(first + best) % SHARE_QUEUE_MAX] =
                        group->queue[(first + best - 1) % SHARE_QUEUE_MAX];
        group->queue[first] = chosen;
}

/* The group's next kernel, or as much of it as there is time for. */
static void run_kernel(struct gpu *g, struct group *group, uint64_t until_ns)
{
        struct client *c;
        uint64_t left_ns, part_ns;

        if (!group->left_ns)
                choose(g, group);
        c = &g->clients[group->queue[group->first]];
        left_ns = group->left_ns ? group->left_ns : c->is.kernel_ns;
        part_ns = until_ns - g->now_ns < left_ns ? until_ns - g->now_ns : left_ns;
        g->now_ns += part_ns;
        c->active_ns += part_ns;
        c->result.active_ns += part_ns;
        group->left_ns = left_ns - part_ns;
        if (!group->left_ns)
                kernel_done(g, group, c);
}

static void tell_shares(struct gpu *g)
{
        struct policy_share shares[SHARE_CLIENTS_MAX];
        uint64_t period_ns = g->now_ns - g->share_began_ns;

        for (size_t i = 0; i < g->client_count; i++) {
                struct client *c = &g->clients[i];

                shares[i] =
                        (struct policy_share){.process = i + 1,
                                              .active_ns = c->active_ns,
                                              .period_ns = period_ns,
                                              .slice_us = (uint32_t)g->groups[c->is.group].slice_us,
                                              .waiting = c->waiting + c->to_launch};
                c->active_ns = 0;
                policy_engine_launches(g->engine, i + 1, 0, 1, c->waiting, NULL, 0, g->now_ns);
        }
        policy_engine_shares(g->engine, POLICY_GPUS_MAX, shares, g->client_count, g->now_ns);
        g->share_began_ns = g->now_ns;
}

static void after_kernel(struct gpu *g)
{
        if (g->engine && g->now_ns >= g->next_share_ns) {
                g->next_share_ns = g->now_ns + g->options->period_ns;
                tell_shares(g);
        }
        arrive(g);
}

static bool has_other_work(const struct gpu *g, uint32_t group)
{
        for (uint32_t i = 0; i < SHARE_CLIENTS_MAX; i++)
                if (i != group && g->groups[i].count)
                        return true;
        return false;
}

/* A group's turn: until its slice is over, or it has nothing more to do. */
static void run_turn(struct gpu *g, uint32_t turn)
{
        struct group *group = &g->groups[turn];
        uint64_t end_ns;

        if (g->used && turn != g->turn)
                g->now_ns += g->options->switch_ns;
        g->used = true;
        g->turn = turn;
        group->preempted = false;
        end_ns = g->now_ns + group->slice_us * 1000;
        while (group->count && g->now_ns < g->options->time_ns) {
                run_kernel(g, group, end_ns);
                after_kernel(g);
                if (g->now_ns >= end_ns || group->preempted) {
                        if (has_other_work(g, turn))
                                return;
                        end_ns = g->now_ns + group->slice_us * 1000;
                }
        }
}

/* The next group in turn that has work; false: none has. */
static bool next_turn(const struct gpu *g, uint32_t *ret_turn)
{
        for (uint32_t i = 1; i <= SHARE_CLIENTS_MAX; i++) {
                uint32_t turn = (g->turn + i) % SHARE_CLIENTS_MAX;

                if (g->groups[turn].count) {
                        *ret_turn = turn;
                        return true;
                }
        }
        return false;
}

static void simulate(struct gpu *g)
{
        uint32_t turn;

        arrive(g);
        while (g->now_ns < g->options->time_ns) {
                if (next_turn(g, &turn)) {
                        run_turn(g, turn);
                        continue;
                }
                g->now_ns = next_arrival(g);
                if (g->now_ns == UINT64_MAX)
                        return; /* nobody will ever do anything again */
                after_kernel(g);
        }
}

/* ---- the whole ---- */

static bool makes_sense(const struct share_client *c)
{
        return c->name && c->group < SHARE_CLIENTS_MAX && c->kernel_ns && c->burst &&
               c->burst <= SHARE_QUEUE_MAX / SHARE_CLIENTS_MAX;
}

static int open_engine(struct gpu *g)
{
        g->engine = policy_engine_new(&actuator, g);
        if (!g->engine)
                return -ENOMEM;
        for (size_t i = 0; i < g->client_count; i++) {
                struct policy_process p = {.key = i + 1,
                                           .start_ticks = 1,
                                           .pid = 1000u + (uint32_t)i,
                                           .comm = g->clients[i].is.name,
                                           .cgroup = g->clients[i].is.name};

                if (policy_engine_process_start(g->engine, &p, 0) < 0)
                        return -ENOMEM;
        }
        return g->options->prepare(g->engine, g->options->data);
}

static int run(struct gpu *g)
{
        int r = g->options->prepare ? open_engine(g) : 0;

        if (r < 0)
                return r;
        simulate(g);
        if (g->engine && g->options->finish)
                g->options->finish(g->engine, g->options->data);
        return 0;
}

int share_run(const struct share_options *options, const struct share_client *clients, size_t n,
              struct share_result *ret_results)
{
        _cleanup_free_ struct gpu *g = calloc(1, sizeof(*g));
        int r;

        if (!g)
                return -ENOMEM;
        if (n > SHARE_CLIENTS_MAX)
                return -EINVAL;
        g->options = options;
        g->client_count = n;
        for (size_t i = 0; i < n; i++) {
                if (!makes_sense(&clients[i]))
                        return -EINVAL;
                g->clients[i].is = clients[i];
        }
        for (size_t i = 0; i < SHARE_CLIENTS_MAX; i++)
                g->groups[i].slice_us = options->slice_us;
        r = run(g);
        policy_engine_free(g->engine);
        for (size_t i = 0; i < n && r == 0; i++)
                ret_results[i] = g->clients[i].result;
        return r;
}
