/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/launch_pace.h"

#include "agent/launch_abi.h"

#define LOAD(at)         __atomic_load_n(&(at), __ATOMIC_RELAXED)
#define STORE(at, value) __atomic_store_n(&(at), (value), __ATOMIC_RELAXED)

bool launch_pace_can_hold(const struct agent_launch_map *m)
{
        return LOAD(m->paced.can) & AGENT_PACES_LAUNCHES;
}

bool launch_pace_can_prioritize(const struct agent_launch_map *m)
{
        return LOAD(m->paced.can) & AGENT_PACES_STREAMS;
}

/* Only the daemon writes the version, so a process that scribbles on it confuses itself alone. */
static void write_begin(struct agent_pace *p)
{
        __atomic_store_n(&p->version, LOAD(p->version) | 1, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_RELEASE);
}

static void write_end(struct agent_pace *p)
{
        __atomic_store_n(&p->version, LOAD(p->version) + 1, __ATOMIC_RELEASE);
}

void launch_pace_set(struct agent_launch_map *m, const struct launch_limits *limits)
{
        struct agent_pace *p = &m->pace;

        write_begin(p);
        STORE(p->waiting, limits->waiting);
        STORE(p->rate, limits->rate);
        STORE(p->priority, limits->priority);
        STORE(p->setting, LOAD(p->setting) + 1);
        write_end(p);
        __atomic_store_n(&m->wishes.limits, limits->waiting || limits->rate, __ATOMIC_RELEASE);
}

void launch_pace_started(struct agent_launch_map *m, uint64_t position, uint32_t started)
{
        struct agent_pace *p = &m->pace;

        write_begin(p);
        STORE(p->position, position);
        STORE(p->started, started);
        write_end(p);
}

void launch_pace_alive(struct agent_launch_map *m, uint64_t now_ns)
{
        STORE(m->pace.alive_ns, now_ns);
}

static void grow(uint64_t *count, uint64_t now)
{
        if (now > *count)
                *count = now;
}

void launch_pace_read(const struct agent_launch_map *m, struct launch_paced *paced)
{
        const struct agent_paced *p = &m->paced;

        grow(&paced->held, LOAD(p->held));
        grow(&paced->held_ns, LOAD(p->held_ns));
        grow(&paced->late, LOAD(p->late));
        grow(&paced->streams, LOAD(p->streams));
        paced->heeded = LOAD(m->pace.setting) && LOAD(p->heeded) == LOAD(m->pace.setting);
        paced->blind = LOAD(m->wishes.limits) && LOAD(p->blind) == LOAD(m->pace.setting);
}
