/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the correlator; see the essay in correlator.c. Not for users of
 * correlator.h.
 *
 * identity.c  functions and kernels: which kernel a launch's handle means
 * order.c     a context's calls by thread and in order of entry, and its streams
 * align.c     who took which grid id
 * records.c   device records that wait
 * graph.c     graphs: captures, instantiation, replays
 * finish.c    states of a launch after it started; quality; emission
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uthash.h>

#include "correlate/correlator.h"
#include "util/time.h"

#define PENDING_MAX        32768  /* launches waiting, per process */
#define ENTERED_MAX        131072 /* launches after a hole, per context */
#define HELD_MAX           65536  /* device records waiting, per process */
#define FUNCTIONS_MAX      65536  /* per process */
#define KERNELS_MAX        65536
#define NAMES_MAX          131072 /* new names one process may add to the string table */
#define CONTEXTS_MAX       256
#define STREAMS_MAX        4096 /* per context */
#define LANES_MAX          4096
#define CALLS_MAX          65536 /* operations waiting in a lane */
#define EXECS_MAX          4096  /* graph execs, per process */
#define NODES_MAX          65536
#define REPLAYS_MAX        4096 /* graph launches outstanding, per exec */
#define UNBOUNDED          (1u << 24)
#define LATE_SLOTS         1024
#define INPUTS_MAX         8192 /* between two alignments */
#define CLOCK_PATIENCE_NS  (2 * NSEC_PER_SEC)
#define RECORD_PATIENCE_NS (2 * NSEC_PER_SEC)
#define EVENT_LATENCY_NS   (20 * NSEC_PER_MSEC) /* from a call's return to its event being read */
#define CHOICE_PATIENCE_NS (50 * NSEC_PER_MSEC) /* for the record of a lower id */
#define HORIZON_NS         (100 * NSEC_PER_MSEC)
#define HOLE_PATIENCE_NS   (100 * NSEC_PER_MSEC)
#define SHORT_PATIENCE_NS  NSEC_PER_SEC /* for a record that should be there already */
#define LONG_PATIENCE_NS   (5 * NSEC_PER_SEC)

/* ---- identity ---- */

struct kernel_name {
        uint64_t image;
        uint64_t name; /* interned */
};

struct kernel {
        UT_hash_handle by_id;
        UT_hash_handle by_name;
        struct kernel_name key;
        uint32_t kernel_id;
        bool entry_probed;
        bool exit_probed;
        bool shared;      /* launched in several contexts, whose ids are alike */
        uint32_t context; /* index of the one it was launched in first */
};

/* What a CUfunction or CUkernel handle means at some time. */
struct function {
        UT_hash_handle hh;
        uint64_t handle;
        uint64_t parent;       /* module, library, or CUkernel */
        uint64_t name;         /* interned; 0 unknown */
        struct kernel *kernel; /* NULL while unknown */
        uint64_t generation;   /* of the identities when it was last looked up */
        uint32_t references;   /* launches, and the table */
        bool learned;          /* kernel comes from alignment, not from names */
        bool own;              /* the agent's */
};

enum identity {
        IDENTITY_DIFFERS,
        IDENTITY_UNKNOWN,
        IDENTITY_EQUAL,
};

/* ---- calls and launches ---- */

enum launch_state {
        STATE_WAITING, /* in its stream's queue, no start record yet */
        STATE_RUNNING, /* started, waits for its end */
        STATE_READY,   /* complete, waits until overlapping launches are known */
        STATE_DONE,    /* emitted; stays in its lane for its place */
};

struct stream;
struct launch;
struct lane;

/* A call that takes grid ids, or may: in its thread's lane until that is settled. */
struct call {
        TAILQ_ENTRY(call) in_lane;
        struct lane *lane; /* NULL: settled */
        struct launch *launch;
        uint64_t seq;
        uint64_t enter_ns;
        uint64_t return_ns;
        uint64_t exec; /* handle, of an instantiation */
        uint64_t low;  /* first id it may have taken; of a lost one: the id it was given */
        uint32_t min;  /* ids it must still take */
        uint32_t max;  /* ids it may still take */
        bool lost;     /* a launch whose event never came: of any kernel */
};

TAILQ_HEAD(call_head, call);

/* A thread's calls, in order: it has one at a time. */
struct lane {
        UT_hash_handle hh;
        uint32_t tid;
        struct context *context;
        struct call_head calls;
        size_t count;
        uint64_t last_seq;
        uint64_t last_ns; /* last return */
        TAILQ_ENTRY(lane) in_busy;
};

TAILQ_HEAD(lane_head, lane);

struct launch {
        struct launch_record record;
        struct call call;
        struct context *context;
        struct function *function;
        struct kernel *kernel; /* of the start record */
        struct stream *stream;
        struct launch *hash_next;      /* in process->running or ->late */
        TAILQ_ENTRY(launch) in_stream; /* waiting or running */
        TAILQ_ENTRY(launch) in_list;   /* closing or ready */
        TAILQ_ENTRY(launch) in_pending;
        uint64_t seq;
        uint64_t deadline_ns;
        uint64_t ended_by_ns;  /* it had ended then; 0 not known */
        uint64_t start_gpu_ns; /* GPU clock */
        uint64_t end_gpu_ns;   /* GPU clock, while its CPU time is not known; 0 none */
        uint32_t start_error_ns;
        uint8_t state;
        uint8_t list;        /* which list in_list is in */
        bool pinned;         /* record.gridid is known */
        bool hashed;         /* in process->running */
        bool late;           /* in process->late: it has an id, its record has not come */
        bool recordless;     /* the agent's own: no device record is its */
        bool maybe_captured; /* it may have gone into a graph and take no id */
        bool passed;         /* a later launch of its stream has started */
        bool confused;       /* it could have been another's record, or the other way */
        bool match_ordered;  /* found in a way that order had a part in */
        bool match_inferred;
        bool unchecked; /* matched when calls that overlap were not all known */
        bool has_start;
        bool start_known; /* record.gpu_start_ns is CPU time */
};

enum launch_list { LIST_NONE, LIST_SHORT, LIST_LONG, LIST_READY, LIST_COUNT };

TAILQ_HEAD(launch_head, launch);

struct stream_key {
        uint64_t handle;
        uint64_t tid; /* for the per-thread default stream, else 0 */
};

struct stream {
        UT_hash_handle hh;
        struct stream_key key;
        struct launch_head waiting;
        struct launch_head running;
        TAILQ_ENTRY(stream) in_active;
        uint64_t last_start_gpu_ns; /* of the launch matched last */
        bool active;
        bool capturing;
        uint32_t captured; /* launches in the capture under way */
};

TAILQ_HEAD(stream_head, stream);

struct node {
        UT_hash_handle hh;
        uint64_t gridid;
        struct graph_exec *exec;
        struct kernel *kernel;
        uint64_t last_replay; /* number of the replay it last started in */
};

struct context {
        UT_hash_handle hh;
        struct correlated_process *process;
        uint32_t index;
        uint32_t device; /* ordinal, ~0 unknown */
        uint64_t handle;
        uint64_t destroyed_ns; /* 0: it lives */
        bool known_from_birth;

        /* order of entry */
        bool sequenced;    /* last_seq means something */
        uint64_t last_seq; /* highest seen */
        uint64_t *entered; /* circular, by seq: enter_ns of those after contiguous_seq; 0 unknown */
        size_t entered_size;
        uint64_t contiguous_seq; /* all launches up to here are known or given up */
        uint64_t known_until_ns; /* all launches entered before this are known */
        uint64_t hole_ns;        /* since when contiguous_seq + 1 is missing; 0 it is not */
        uint64_t mixed_ns;       /* when threads took turns last; 0 never */
        uint32_t last_tid;       /* of the newest launch */

        /* alignment */
        struct lane *lanes;
        struct lane_head busy; /* lanes with calls */
        size_t busy_count;
        struct lane lost; /* launches whose events never came */
        bool anchored;
        bool born;             /* known from its first launch on, and nothing matched yet */
        uint64_t next_id;      /* all lower ids are settled */
        uint64_t after_id;     /* of the record found last behind ids without one, */
        uint32_t after_inputs; /* ... and after how many inputs */
        uint32_t confused;     /* launches that are confused and not matched yet */
        uint32_t unsure;       /* matches to come that rest on a guess */
        uint32_t misfits;      /* records in a row that fitted nowhere */
        uint64_t gap_budget;   /* start records that may be missing */

        struct stream *streams;
        struct stream_head active; /* with launches waiting */
        struct node *nodes;
        uint32_t captures;       /* streams capturing */
        uint32_t maybe_captured; /* launches in other streams meanwhile */
};

struct replay {
        struct launch_record record; /* what its kernels' records have in common */
};

struct graph_exec {
        UT_hash_handle hh;
        uint64_t handle;
        uint64_t graph;
        struct context *context;           /* of the instantiation; NULL before */
        uint64_t id_low, id_high;          /* its nodes' ids are in between; low 0: not known yet */
        uint32_t kernels_min, kernels_max; /* of its kernel nodes, as far as is known */
        uint32_t nodes;                    /* seen so far */
        bool destroyed;
        bool closed;            /* all nodes have been seen */
        bool lossy;             /* starts may have been lost since it was last idle */
        struct replay *replays; /* circular: number n is at n % replays_size */
        size_t replays_size;
        uint64_t replays_first; /* number of the oldest kept; they count from 1 */
        uint64_t replays_count;
        uint64_t current;   /* replay whose kernels start now; 0 none yet */
        uint64_t synced;    /* replays up to here had ended ... */
        uint64_t synced_ns; /* ... at this time */
};

struct graph {
        UT_hash_handle hh;
        uint64_t handle;
        uint32_t kernels_min, kernels_max;
};

/* A device record that waits. */
struct held {
        struct held *hash_next;
        TAILQ_ENTRY(held) in_list; /* all, by arrival; or strays */
        uint64_t time_ns;          /* GPU clock */
        uint64_t gridid;
        uint64_t cpu_ns;
        uint64_t arrived_ns;
        uint32_t kernel_id;
        uint32_t error_ns;
        uint16_t smid;
        uint8_t type; /* enum device_record_type */
        bool converted;
        bool stray; /* its id has been passed, or is a graph's */
};

TAILQ_HEAD(held_head, held);

struct correlated_process {
        UT_hash_handle hh;
        struct correlator *correlator;
        uint64_t key;
        struct ledger *ledger;
        void *user;
        bool has_agent;
        const struct clock_model *clock;
        uint32_t gpu;

        struct kernel *kernels_by_id;
        struct kernel *kernels_by_name;
        struct function *functions;
        uint64_t identity_generation;
        uint64_t names_added;

        struct context *contexts;
        struct graph_exec *execs;
        struct graph *graphs;
        uint64_t node_count;

        struct launch_head pending;
        size_t pending_count;
        struct launch_head lists[LIST_COUNT];
        struct launch **running; /* started launches by grid id and kernel */
        size_t running_size, running_count;

        struct launch *late[LATE_SLOTS]; /* launches with an id and without a record, by id */
        struct held **held;              /* records by grid id */
        size_t held_size, held_count;
        struct held_head starts, ends, strays; /* by arrival */
        uint64_t newest_gpu_ns;                /* latest start seen */
        uint32_t inputs;                       /* since the last alignment */
};

struct correlator {
        const struct correlator_ops *ops;
        void *data;
        struct intern *names;
        struct correlated_process *processes;
        uint64_t now_ns;
};

/* ---- identity.c ---- */

struct function *function_get(struct correlated_process *p, uint64_t handle); /* a reference */
struct function *function_unref(struct function *f);
void identity_handle(struct correlated_process *p, const struct cpu_handle_event *ev);
void identity_kernel(struct correlated_process *p, const struct correlated_kernel *k);
void identity_done(struct correlated_process *p);
struct kernel *kernel_find(struct correlated_process *p, uint32_t kernel_id);
/* The kernel a function means, NULL while unknown. */
struct kernel *function_kernel(struct correlated_process *p, struct function *f);
enum identity function_identity(struct correlated_process *p, struct function *f,
                                const struct kernel *k);
bool kernel_same(const struct kernel *a, const struct kernel *b);

/* ---- order.c ---- */

struct context *context_get(struct correlated_process *p, uint32_t index);
struct context *context_free(struct context *c);
/* The 32-bit order of entry, widened by what came before. */
uint64_t order_widen(const struct context *c, uint32_t seq);
/* A launch is known. */
void order_launch(struct context *c, uint64_t seq, uint64_t enter_ns, uint32_t tid);
/* An operation tells which launches had been entered by then. */
void order_seen(struct context *c, const struct cpu_operation_event *ev);
/* Give up holes that are too old. */
void order_tick(struct context *c);
struct lane *lane_get(struct context *c, uint32_t tid);
void lane_push(struct lane *lane, struct call *call);
/* Settled: an operation's call is freed, a launch that is done too. */
void lane_remove(struct call *call);
void lanes_purge(struct context *c);
/* An operation that must take `min` ids and may take `max`. */
void order_operation(struct context *c, const struct cpu_operation_event *ev, uint32_t min,
                     uint32_t max, uint64_t exec);
struct stream *stream_get(struct context *c, uint64_t handle, uint32_t tid);
void stream_queue(struct stream *s, struct launch *l);
void stream_unqueue(struct launch *l);
static inline uint64_t launch_return_ns(const struct launch *l)
{
        return l->record.cpu_return_ns;
}

/* ---- align.c ---- */

/* Settle what can be settled. last: nothing more will come. */
void align_run(struct correlated_process *p, bool last);

/* Launches were given up because too many waited: what stands in the lanes for them goes. */
void align_evicted(struct correlated_process *p);
/* If it was taken for lost: its event came after all. */
void align_late_event(struct context *c, struct launch *l);

/* ---- records.c ---- */

void records_put(struct correlated_process *p, const struct device_record *r);
void records_gap(struct correlated_process *p, uint64_t lost);
void records_tick(struct correlated_process *p, bool last);
void records_done(struct correlated_process *p);
/* First of the starts with this id that are not strays; the next one. */
struct held *record_first(const struct correlated_process *p, uint64_t gridid);
struct held *record_next(const struct held *h);
void record_stray(struct correlated_process *p, struct held *h);
/* The start was l's: forget it, and take its end if that is here. */
void record_take(struct correlated_process *p, struct held *h, struct kernel *k, struct launch *l);
/* Its CPU time; -EAGAIN: the clock will be known soon. */
int record_convert(struct correlated_process *p, struct held *h);
bool record_may_be(const struct held *h, const struct launch *l);
void late_add(struct launch *l, uint64_t gridid);
void late_remove(struct launch *l);

/* ---- graph.c ---- */

void graph_handle(struct correlated_process *p, const struct cpu_handle_event *ev);
void graph_capture(struct context *c, const struct cpu_operation_event *ev, bool begin);
/* A launch was made: how many ids does it take, when something is being captured? */
void graph_captures(struct context *c, struct stream *s, uint32_t *ret_min, uint32_t *ret_max);
/* Ids were taken by, or while, an exec was instantiated. */
void graph_ids(struct correlated_process *p, uint64_t exec, uint64_t low, uint64_t high);

/* Has a replay of it been entered by the time of this record? */
bool graph_entered(struct correlated_process *p, uint64_t exec, const struct held *h);
void graph_instantiate(struct context *c, const struct cpu_operation_event *ev);
void graph_launch(struct context *c, const struct cpu_launch_event *ev);
/* All that was launched in the context before enter_ns had ended at at_ns. */
void graph_synced(struct context *c, uint64_t enter_ns, uint64_t at_ns);
void graph_gap(struct correlated_process *p);
void graph_forget(struct context *c);
void graph_done(struct correlated_process *p);

enum graph_claim {
        GRAPH_NO,
        GRAPH_MAYBE, /* it could be a node of a graph that is not known whole */
        GRAPH_YES,
        GRAPH_WAIT, /* a known node, whose launch event has not come yet */
};
enum graph_claim graph_claims(struct context *c, const struct held *h, struct kernel *k,
                              struct graph_exec **ret_exec);
void graph_start(struct graph_exec *e, const struct held *h, struct kernel *k);

/* ---- finish.c ---- */

struct launch *launch_new(struct context *c);
void launch_started(struct launch *l, const struct held *h, struct kernel *k);
void launch_ended(struct launch *l, const struct held *h);
struct launch *launch_running(struct correlated_process *p, const struct held *h);
/* Nothing more will be learned: emit what there is. */
void launch_finish(struct launch *l);
void launch_discard(struct launch *l);
/* It is in its lane for its place only and makes no record. */
void launch_withdraw(struct launch *l);
void launch_schedule(struct launch *l, enum launch_list list);
/* What was launched, in one stream or (NULL) all, before enter_ns had ended at at_ns. */
void finish_synced(struct context *c, const struct stream *only, uint64_t enter_ns, uint64_t at_ns);
void finish_due(struct correlated_process *p);
/* Everything pending, of one context or (NULL) of all. */
void finish_all(struct correlated_process *p, const struct context *only);
