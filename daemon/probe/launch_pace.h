/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The daemon's side of the limits a process with an agent keeps to (agent_pace in
 * agent/launch_abi.h): writes them, and reads what became of them. The process may
 * write anything there; what is read is a count to show, no more.
 */
#include <stdbool.h>
#include <stdint.h>

struct agent_launch_map;

struct launch_limits {
        uint32_t waiting;  /* kernels launched and not started, at most; 0 any number */
        uint32_t rate;     /* launches a second; 0 any number */
        uint32_t priority; /* of new streams, 1 the greatest; 0 as the process asks */
};

struct launch_paced {
        uint64_t held;    /* launches that waited */
        uint64_t held_ns; /* in all */
        uint64_t late;    /* waits that were ended by their bound */
        uint64_t streams; /* made with another priority than asked for */
        bool blind;       /* the limit of now was given up: starts are not seen */
        bool heeded;      /* a launch or a new stream went by the limits of now */
};

/* Whether the agent can limit launches, or choose priorities of streams. */
bool launch_pace_can_hold(const struct agent_launch_map *m);
bool launch_pace_can_prioritize(const struct agent_launch_map *m);

/* Set the limits; they hold while launch_pace_alive() is called at least once a second. */
void launch_pace_set(struct agent_launch_map *m, const struct launch_limits *limits);

/* The daemon is there at now_ns (CLOCK_MONOTONIC). */
void launch_pace_alive(struct agent_launch_map *m, uint64_t now_ns);

/*
 * Of the kernels the process counts itself `started` had started (wraps) when its
 * start/end map was read up to position.
 */
void launch_pace_started(struct agent_launch_map *m, uint64_t position, uint32_t started);

/* The counts so far. They are the process's: anything, but they do not go backwards in *paced. */
void launch_pace_read(const struct agent_launch_map *m, struct launch_paced *paced);
