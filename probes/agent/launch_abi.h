/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * The launch map: launches that a process with an agent records by itself, an
 * mmapable eBPF array that the process, the daemon and the kernel's programs
 * share. All of it can be written by the process, so the daemon and the programs
 * believe none of it.
 *
 * Elements are cache lines:
 *
 *     0            what the process writes about the ring (agent_launch_producer)
 *     1            what the daemon writes (agent_launch_consumer)
 *     2            what the daemon wants done with each launch (agent_launch_wishes)
 *     3            limits the process is to keep to (agent_pace)
 *     4            what became of these (agent_paced)
 *     64 .. 127    contexts: how many launches were entered (agent_launch_context)
 *     128 ..       the ring (agent_launch)
 *     behind it    arguments of launches (argument_abi.h)
 *
 * A record is claimed by moving head from n to n + 1, which is not done while
 * the ring is full: then the launch is counted as dropped instead. The record of
 * position n is whole once its turn is n + 1. So head + dropped is the number of
 * launches the process has recorded, and none is overwritten before it was read.
 *
 * Which launches are the agent's and which the kernel's: those that ran into a
 * uprobe are the kernel's (probes/agent/launches.c). Both count in the same
 * place, a context's `entered`, so there is one order of entry.
 */
#include "../gpuobs_types.h"
#include "argument_abi.h"

#define AGENT_LAUNCH_ENTRIES    32768u /* power of two */
#define AGENT_LAUNCH_CONTEXTS   64u
#define AGENT_LAUNCH_CONTEXT_0  64u  /* element of the first context */
#define AGENT_LAUNCH_RECORD_0   128u /* element of the first record */
#define AGENT_LAUNCH_NO_CONTEXT 0xffu
#define AGENT_LAUNCH_ELEMENT    64u
#define AGENT_LAUNCH_ELEMENTS                                                                      \
        (AGENT_LAUNCH_RECORD_0 + AGENT_LAUNCH_ENTRIES +                                            \
         (__u32)(sizeof(struct agent_argument_map) / AGENT_LAUNCH_ELEMENT))
#define AGENT_LAUNCH_BYTES      ((__u64)AGENT_LAUNCH_ELEMENTS * AGENT_LAUNCH_ELEMENT)
#define AGENT_LAUNCH_TURN_MASK  0x00ffffffffffffffULL
#define AGENT_LAUNCH_OWN        0x80u /* by the agent itself, not by the application */
#define AGENT_LAUNCH_UNPROBED   0x40u /* the kernel ran without a start probe: no record comes */
#define AGENT_LAUNCH_SLOT_SHIFT 56

struct agent_launch_producer {
        __u64 head;      /* records claimed */
        __u64 dropped;   /* launches not recorded: the ring was full */
        __u32 recording; /* the agent has begun */
        __u32 pad;
        __u64 probed_ns; /* no kernel had a start probe before, CLOCK_MONOTONIC; 0: none has */
        __u32 pad2[8];
};
_Static_assert(sizeof(struct agent_launch_producer) == AGENT_LAUNCH_ELEMENT, "producer");

struct agent_launch_consumer {
        __u64 tail; /* records read */
        __u64 pad[7];
};
_Static_assert(sizeof(struct agent_launch_consumer) == AGENT_LAUNCH_ELEMENT, "consumer");

/* Written by the daemon, seldom: every launch reads it, and nothing else that changes lies here. */
struct agent_launch_wishes {
        __u32 arguments; /* managed memory among the arguments is to be told (argument_abi.h) */
        __u32 limits;    /* there is a limit on launches (agent_pace) */
        __u32 pad[14];
};
_Static_assert(sizeof(struct agent_launch_wishes) == AGENT_LAUNCH_ELEMENT, "wishes");

/*
 * Limits, written by the daemon, every few milliseconds while there are any; a launch
 * looks at agent_launch_wishes.limits only while there are none on launches. What is read
 * here is read again when `version` was odd or has changed meanwhile. A
 * launch is held back no longer than AGENT_PACE_WAIT_MAX_NS, and not at all when the
 * daemon has been silent for AGENT_PACE_SILENCE_NS: it may have been killed.
 *
 * How many wait is a matter of two counts: kernels launched are those of all contexts,
 * entered - graphs - retired; of these `started` had started when the start/end map
 * had been read up to `position`. The process reads on from there by itself, since the
 * daemon looks too seldom for that.
 */
#define AGENT_PACE_WAIT_MAX_NS 100000000ull
#define AGENT_PACE_SILENCE_NS  1000000000ull

struct agent_pace {
        __u32 version;  /* odd while it is being written */
        __u32 waiting;  /* kernels launched and not started, at most; 0 any number */
        __u32 rate;     /* launches in a second; 0 any number */
        __u32 priority; /* of streams made from now on: 1 the greatest, 2 the next; 0 as asked for
                         */
        __u32 setting;  /* counts changes of the three above */
        __u32 started;
        __u64 alive_ns; /* the daemon was there, CLOCK_MONOTONIC */
        __u64 position;
        __u64 pad[3];
};
_Static_assert(sizeof(struct agent_pace) == AGENT_LAUNCH_ELEMENT, "pace");

/* What the agent can do. */
#define AGENT_PACES_LAUNCHES 1u
#define AGENT_PACES_STREAMS  2u

/* Written by the process. Counts only grow. */
struct agent_paced {
        __u32 can;     /* AGENT_PACES_ */
        __u32 blind;   /* the `setting` given up on: kernels do not tell that they start */
        __u64 held;    /* launches that had to wait */
        __u64 held_ns; /* they waited, in all */
        __u64 late;    /* of them, those whose wait was ended by its bound */
        __u64 streams; /* made with a priority that was not asked for */
        __u32 heeded;  /* the `setting` that a launch or a new stream went by last */
        __u32 reserved;
        __u64 pad[2];
};
_Static_assert(sizeof(struct agent_paced) == AGENT_LAUNCH_ELEMENT, "paced");

/* Taken by whoever needs it first, in order, by exchanging handle from 0; never given back. */
struct agent_launch_context {
        __u64 handle;  /* CUcontext */
        __u32 entered; /* launches, graph launches among them; wraps */
        __u32 graphs;  /* graph launches */
        /*
         * Kernels among them that wait for nothing any more: all, when a context of that
         * handle was last destroyed and when the agent began; the agent's own since then.
         */
        __u32 retired;
        __u32 pad[11];
};
_Static_assert(sizeof(struct agent_launch_context) == AGENT_LAUNCH_ELEMENT, "context");

struct agent_launch {
        __u64 turn;     /* written last: position + 1, and the context's number on top */
        __u64 enter_ns; /* CLOCK_MONOTONIC */
        __u64 func;     /* these as in struct cpu_launch_event */
        __u64 stream;
        __u32 duration_ns;
        __u32 tid;
        __u32 seq; /* value of the context's `entered` with this launch; 0 without context */
        __u32 grid_x;
        __u16 grid_y;
        __u16 grid_z;
        __u32 shared_bytes;
        __u16 block_x;
        __u16 block_y;
        __u8 type; /* CPU_EVENT_LAUNCH or CPU_EVENT_GRAPH_LAUNCH; AGENT_LAUNCH_OWN, _UNPROBED */
        __u8 block_z;
        __u16 result;
};
_Static_assert(sizeof(struct agent_launch) == AGENT_LAUNCH_ELEMENT, "launch");

struct agent_launch_map {
        struct agent_launch_producer producer;
        struct agent_launch_consumer consumer;
        struct agent_launch_wishes wishes;
        struct agent_pace pace;
        struct agent_paced paced;
        __u8 unused[(AGENT_LAUNCH_CONTEXT_0 - 5) * AGENT_LAUNCH_ELEMENT];
        struct agent_launch_context contexts[AGENT_LAUNCH_CONTEXTS];
        struct agent_launch records[AGENT_LAUNCH_ENTRIES];
        struct agent_argument_map arguments;
};
_Static_assert(sizeof(struct agent_launch_map) == AGENT_LAUNCH_BYTES, "launch map");
