/* SPDX-License-Identifier: Apache-2.0 */
#include "pacing.h"

#include <errno.h>

#include "daemon.h"
#include "launches.h"
#include "policies.h"
#include "policy/actuator.h"
#include "probe/cpu_probes.h"
#include "util/log.h"
#include "util/time.h"

bool pacing_is(uint32_t kind)
{
        return kind == POLICY_ACTION_pace || kind == POLICY_ACTION_launch_rate ||
               kind == POLICY_ACTION_stream_priority;
}

static uint32_t *limit_of(struct launch_limits *l, uint32_t kind)
{
        switch (kind) {
        case POLICY_ACTION_pace:
                return &l->waiting;
        case POLICY_ACTION_launch_rate:
                return &l->rate;
        default:
                return &l->priority;
        }
}

static bool holds_launches(const struct observed *o)
{
        return o->limits.waiting || o->limits.rate;
}

static bool is_limited(const struct observed *o)
{
        return holds_launches(o) || o->limits.priority;
}

/* Where launches are held, the process counts on from what is told here. */
static void refresh(struct gpuobsd *d, const struct observed *o, struct agent_launch_map *m)
{
        struct cpu_probes_depth depth;

        if (holds_launches(o)) {
                if (cpu_probes_depth(d->probes, o->info.pid, &depth) < 0)
                        return;
                launch_pace_started(m, depth.position, depth.shared - depth.depth);
        }
        launch_pace_alive(m, now_ns());
}

static void tell_limits(struct gpuobsd *d, const struct observed *o, struct agent_launch_map *m)
{
        refresh(d, o, m);
        launch_pace_set(m, &o->limits);
}

int pacing_apply(struct gpuobsd *d, const struct policy_order *order, uint64_t *ret_before)
{
        struct observed *o = observed_find(&d->observed, (pid_t)order->pid);
        struct agent_launch_map *m;
        uint32_t *limit;
        bool can;

        if (!o || o->info.start_ticks != order->start_ticks)
                return -ESRCH;
        m = launches_map(o);
        can = m &&
              (order->action.kind == POLICY_ACTION_stream_priority ? launch_pace_can_prioritize(m)
                                                                   : launch_pace_can_hold(m));
        if (!can && !order->undo)
                return -EOPNOTSUPP;
        limit = limit_of(&o->limits, order->action.kind);
        *ret_before = *limit;
        *limit = (uint32_t)order->action.value;
        if (m)
                tell_limits(d, o, m);
        return 0;
}

/* The counts of a launch map begin anew with each agent, those of the process do not. */
static void read_counts(struct observed *o, const struct agent_launch_map *m)
{
        const struct launch_paced before = o->paced_map;
        const struct launch_paced *now = &o->paced_map;

        launch_pace_read(m, &o->paced_map);
        o->paced.held += now->held - before.held;
        o->paced.held_ns += now->held_ns - before.held_ns;
        o->paced.late += now->late - before.late;
        o->paced.streams += now->streams - before.streams;
        o->paced.blind = now->blind;
        o->paced.heeded = now->heeded;
}

void pacing_end(struct observed *o)
{
        const struct agent_launch_map *m = launches_map(o);

        if (m)
                read_counts(o, m);
        o->limits = (struct launch_limits){0};
}

void pacing_agent_left(struct observed *o)
{
        const struct agent_launch_map *m = launches_map(o);

        if (m)
                read_counts(o, m);
        o->paced.blind = o->paced.heeded = false;
        o->paced_map = (struct launch_paced){0};
        o->can_be_limited = false;
}

static void say_blind(struct observed *o, bool was_blind)
{
        if (o->paced.blind && !was_blind)
                log_pid(LOG_NOTICE, (pid_t)o->info.pid,
                        "launches of process %d (%s) are not held back any more: its kernels do "
                        "not tell when they start, or run longer than a launch may wait",
                        (int)o->info.pid, o->info.comm);
}

static void look(struct gpuobsd *d, struct observed *o)
{
        struct agent_launch_map *m = launches_map(o);
        bool was_blind = o->paced.blind;

        if (!m)
                return;
        if (!o->can_be_limited && (launch_pace_can_hold(m) || launch_pace_can_prioritize(m))) {
                o->can_be_limited = true;
                if (is_limited(o))
                        tell_limits(d, o, m);
                policies_process_again(d, o);
        }
        if (is_limited(o))
                refresh(d, o, m);
        read_counts(o, m);
        say_blind(o, was_blind);
}

void pacing_turn(struct gpuobsd *d)
{
        struct observed *o, *next;

        HASH_ITER (by_pid, d->observed.by_pid, o, next)
                look(d, o);
}
