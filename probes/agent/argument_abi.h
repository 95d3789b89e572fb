/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
#pragma once

/*
 * The last part of the launch map (launch_abi.h): pointers to managed memory among
 * the arguments of launches, told before the launch is given to the driver.
 *
 * The daemon says whether somebody wants to know (agent_launch_wishes) and where the
 * process has managed memory; the process looks at its kernels' arguments only then,
 * and writes down the pointers that fall into that memory. As with launches all of it
 * can be written by the process, and the daemon believes none of it.
 *
 * The table of ranges is read under its version: odd while it is being changed, and
 * what was read under two different versions is to be read again.
 *
 * The ring is as that of launches: claimed by moving head, whole once a record's
 * turn is its position + 1, never overwritten before it was read, counted in
 * dropped when there is no room. A daemon that is not looking sets asleep; whoever
 * adds a record then takes it back to 0 and sends AGENT_WAKE (agent_abi.h).
 */
#include "../gpuobs_types.h"

#define AGENT_ARGUMENT_RANGES  4096u /* managed allocations of a process */
#define AGENT_ARGUMENT_ENTRIES 4096u /* power of two */
#define AGENT_ARGUMENT_LINE    64u

/* Written by the daemon. */
struct agent_argument_table {
        __u32 version; /* of this line and of the ranges */
        __u32 count;   /* of ranges */
        __u64 low;     /* all of them lie in [low, high) */
        __u64 high;
        __u64 pad[5];
};
_Static_assert(sizeof(struct agent_argument_table) == AGENT_ARGUMENT_LINE, "table");

/* Written by the daemon. */
struct agent_argument_consumer {
        __u64 tail; /* records read */
        __u64 pad[7];
};
_Static_assert(sizeof(struct agent_argument_consumer) == AGENT_ARGUMENT_LINE, "consumer");

/* Written by the process, asleep by both. */
struct agent_argument_producer {
        __u64 head;    /* records claimed */
        __u64 dropped; /* not recorded: the ring was full */
        __u64 unread;  /* launches whose arguments are not known, or only in part */
        __u32 asleep;
        __u32 pad[9];
};
_Static_assert(sizeof(struct agent_argument_producer) == AGENT_ARGUMENT_LINE, "producer");

/* A managed allocation. */
struct agent_argument_range {
        __u64 start, end;
};

#define AGENT_ARGUMENT_ADDRESSES 4u

/* Pointers of one launch, one for each allocation: the lowest. More come in further records. */
struct agent_argument {
        __u64 turn;   /* written last: position + 1 */
        __u64 at_ns;  /* CLOCK_MONOTONIC: the launch was called; the same in all its records */
        __u64 func;   /* CUfunction or CUkernel */
        __u32 device; /* the process's ordinal of the current context's */
        __u32 count;  /* addresses, 1 .. AGENT_ARGUMENT_ADDRESSES */
        __u64 addresses[AGENT_ARGUMENT_ADDRESSES];
};
_Static_assert(sizeof(struct agent_argument) == AGENT_ARGUMENT_LINE, "argument");

struct agent_argument_map {
        struct agent_argument_table table;
        struct agent_argument_consumer consumer;
        struct agent_argument_producer producer;
        struct agent_argument_range ranges[AGENT_ARGUMENT_RANGES]; /* ascending, apart */
        struct agent_argument records[AGENT_ARGUMENT_ENTRIES];
};
_Static_assert(sizeof(struct agent_argument_map) % AGENT_ARGUMENT_LINE == 0, "argument map");
