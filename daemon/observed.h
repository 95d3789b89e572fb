/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes the daemon knows: one struct observed for each (pid, start
 * time) that used a probed library or brought an agent. It lives until the
 * process is gone and its last record is settled in the database, and a while
 * longer so that its ledger can be asked for.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uthash.h>

#include "allocations.h"
#include "api/coverage.h"
#include "gpu_numbers.h"
#include "probe/launch_pace.h"
#include "util/launch_record.h"
#include "util/ledger.h"

struct agent;
struct attachment;
struct map_request;
struct arguments;
struct calls;
struct correlated_process;
struct launches;
struct managed_watch;
struct process_clocks;
struct record_ring;
struct uvm_process;

/* Gone processes that are remembered for their ledgers. */
#define OBSERVED_GONE_MAX 1024

struct observed {
        UT_hash_handle by_pid;
        UT_hash_handle by_key;
        struct process_info info; /* exe and cgroup are owned here */
        struct ledger ledger;
        struct ledger ledger_put;              /* what the store was last told */
        bool info_put;                         /* the store knows it */
        struct correlated_process *correlated; /* NULL once gone */
        struct coverage coverage;
        struct allocations allocations;
        struct calls *calls;                 /* of the driver; NULL none seen */
        bool groups_sought;                  /* channel groups that were there before the daemon */
        struct uvm_process *managed;         /* its managed memory; NULL none seen */
        struct managed_watch *managed_watch; /* whose events are read; NULL they are not */
        bool has_called_uvm;                 /* it was looked for managed memory then */

        /* With an agent: */
        struct agent *agent; /* NULL when the connection is over */
        struct record_ring *ring;
        struct launches
                *launches; /* recorded by the process itself; NULL: by the kernel's probes */
        struct arguments *arguments;   /* that it tells of these; NULL without launches */
        struct process_clocks *clocks; /* of its GPUs; the correlator uses them */
        uint64_t ring_overrun, ring_torn, ring_garbage; /* already in the ledger */
        bool had_agent;                   /* the ring is given back when the process ends */
        bool agent_leaving;               /* it has said so */
        struct attachment *attachments;   /* device programs (attachment.h) */
        struct map_request *map_requests; /* that the agent has not answered */
        uint32_t map_request_count;
        uint64_t last_map_request;
        uint64_t last_attachment;      /* the highest id it was ever asked for */
        struct launch_limits limits;   /* that policies have set */
        struct launch_paced paced;     /* what became of them, as the process says */
        struct launch_paced paced_map; /* of these, what is in the launch map there is now */
        bool can_be_limited;           /* its agent keeps to limits, and policies know */
        char note[240];                /* the agent's last word of trouble, "" when none */

        uint32_t gpu;             /* to policies (gpu_numbers.h): the first it was seen to use */
        uint64_t gpus;            /* all of them, a bit each */
        uint32_t launches_untold; /* policies have not heard of so many */
        uint32_t launches_told;   /* but of so many that were only begun, with their arguments */
        uint64_t active_untold_ns[GPU_NUMBERS_MAX]; /* nor that it had each GPU for so long */
        bool found_dead;                            /* when the daemon looked this second */
        uint64_t kernel_lost; /* launches the kernel could not write, already in the ledger */
        bool gone;
};

struct observed_table {
        struct observed *by_pid; /* live ones */
        struct observed *by_key; /* all */
        uint64_t next_key;
        size_t gone_count;
        struct ledger forgotten; /* ledgers of those no longer in the table */
};

void observed_table_init(struct observed_table *t, uint64_t next_key);
void observed_table_done(struct observed_table *t);

/* The live process with this pid, or NULL. */
struct observed *observed_find(const struct observed_table *t, pid_t pid);
/* The last gone one with this pid that is remembered, or NULL. */
struct observed *observed_find_gone(const struct observed_table *t, pid_t pid);
struct observed *observed_find_key(const struct observed_table *t, uint64_t process_key);

/*
 * The same, made from /proc when not known yet. A process that has ended already is kept
 * with what is known: `told` (its name, user and start; exe and cgroup are not looked at),
 * or where that is NULL its pid. NULL on no memory.
 */
struct observed *observed_get(struct observed_table *t, pid_t pid, const struct process_info *told,
                              bool *ret_new);

/* The pid now means another process (or none): take the old one out of by_pid. */
void observed_set_gone(struct observed_table *t, struct observed *o);

/* Forget gone processes with nothing left to settle, oldest first, beyond OBSERVED_GONE_MAX. */
void observed_trim(struct observed_table *t);

/* Of all processes of a user; API_ANY_UID: of all, also of those that are forgotten. */
void observed_losses(const struct observed_table *t, uint32_t uid, struct ledger *ret_ledger);
