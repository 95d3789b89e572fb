/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the correlator; see the essay in correlator.c. Not for users of
 * correlator.h.
 *
 * identity.c  functions and kernels: which kernel a launch's handle means
 * window.c    a context's launches in order of entry, and its streams
 * align.c     which launches could have a grid id
 * solve.c     stretches of launches aligned at once
 * records.c   device records: queue, matching, what to do when nothing fits
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

#define PENDING_MAX        65536  /* launches waiting, per process */
#define WINDOW_MAX         131072 /* launches remembered in order, per context */
#define WINDOW_KEEP        64     /* finished ones kept behind the oldest unfinished */
#define HELD_MAX           65536  /* device records waiting, per process */
#define FUNCTIONS_MAX      65536  /* per process */
#define KERNELS_MAX        65536
#define NAMES_MAX          131072 /* new names one process may add to the string table */
#define CONTEXTS_MAX       256
#define STREAMS_MAX        4096 /* per context */
#define THREADS_MAX        64   /* watched, per context */
#define EXECS_MAX          4096 /* graph execs, per process */
#define NODES_MAX          65536
#define REPLAYS_MAX        4096 /* graph launches outstanding, per exec */
#define SCAN_MAX           4096 /* steps of a walk over the window before it gives up */
#define UNBOUNDED          (1u << 24)
#define HIDDEN_IDS_MAX     64 /* ids the driver may have taken with nothing to be seen */
#define CANDIDATES_MAX     16
#define CANDIDATE_DEPTH    64
#define UNANCHOR_AFTER     16 /* records in a row that fit nowhere */
#define CLOCK_PATIENCE_NS  (2 * NSEC_PER_SEC)
#define RECORD_PATIENCE_NS (2 * NSEC_PER_SEC)
#define CHOICE_PATIENCE_NS (500 * NSEC_PER_MSEC)
#define EVENT_LATENCY_NS   (20 * NSEC_PER_MSEC) /* from a call's return to its event being read */
#define HORIZON_NS         (100 * NSEC_PER_MSEC)
#define HOLE_PATIENCE_NS   (500 * NSEC_PER_MSEC)
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

/* ---- launches ---- */

enum launch_state {
        STATE_WAITING, /* in its stream's queue, no start record yet */
        STATE_RUNNING, /* started, waits for its end */
        STATE_READY,   /* complete, waits until overlapping launches are known */
        STATE_DONE,    /* emitted; stays in the window for its place */
};

enum consumes {
        CONSUMES_NONE,
        CONSUMES_ONE,
        CONSUMES_MAYBE,
};

struct stream;

/* Operations that lie together between two launches, in sum. */
struct operations {
        uint64_t enter_ns;  /* earliest entry */
        uint64_t return_ns; /* latest return */
        uint64_t after_min; /* seqs of the launches they came after */
        uint64_t after_max;
        uint32_t definite; /* ids they have taken */
        uint32_t possible; /* ids they can have taken */
};

struct launch {
        struct launch_record record;
        struct context *context;
        struct function *function;
        struct kernel *kernel; /* of the start record */
        struct stream *stream;
        struct launch *hash_next;      /* in process->running */
        TAILQ_ENTRY(launch) in_stream; /* waiting or running */
        TAILQ_ENTRY(launch) in_list;   /* closing or ready */
        TAILQ_ENTRY(launch) in_pending;
        uint64_t seq;
        uint64_t cluster; /* seq of the first launch of those that overlap, one with the next */
        uint64_t reach_before_ns; /* latest return among the launches and operations before */
        uint64_t deadline_ns;
        uint64_t arrived_ns;
        uint64_t ended_by_ns;  /* it had ended then; 0 not known */
        struct operations ops; /* between the launch before and this one */
        uint64_t start_gpu_ns; /* GPU clock */
        uint64_t end_gpu_ns;   /* GPU clock, while its CPU time is not known; 0 none */
        uint32_t start_error_ns;
        uint8_t state;
        uint8_t consumes;
        uint8_t list; /* which list in_list is in */
        bool pinned;  /* record.gridid is known */
        bool windowed;
        bool hashed;
        bool recordless;    /* the agent's own: no device record is its */
        bool passed;        /* a later launch of its stream has started */
        bool chosen;        /* first of a cluster in which a match was a choice */
        bool match_ordered; /* found in a way that order had a part in */
        bool match_inferred;
        bool soft; /* what rests on its id is inferred too */
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

/* Where a walk over the window may start: what came before it, in sum. */
struct anchor {
        bool valid;
        uint64_t id;
        uint64_t definite; /* ids taken since */
        uint64_t possible;
};

/* A thread that launches: when it has launched again, no earlier call of it is still under way. */
struct thread {
        uint32_t tid;
        uint64_t seq;
        uint64_t at_ns;
};

struct context {
        UT_hash_handle hh;
        struct correlated_process *process;
        uint32_t index;
        uint32_t device; /* ordinal, ~0 unknown */
        uint64_t handle;
        uint64_t destroyed_ns; /* 0: it lives */
        bool sequenced;        /* last_seq means something */
        bool known_from_birth;
        uint64_t last_seq;
        struct launch **window; /* circular; NULL where the launch is not known (a hole) */
        size_t window_size;     /* power of two */
        uint64_t first_seq;
        uint64_t count;
        uint64_t settled;        /* launches at the front that are done, and holes given up */
        struct anchor anchor;    /* before first_seq */
        uint64_t anchor_from;    /* pins at lower seqs are not trusted */
        uint64_t reach_ns;       /* latest return before first_seq */
        uint64_t contiguous_seq; /* all launches up to here are known */
        uint64_t known_until_ns; /* all launches entered before this are known */
        struct operations tail;  /* after the last launch */
        uint64_t sync_seq;       /* launches up to here had ended at sync_ns */
        uint64_t sync_ns;
        struct stream *streams;
        struct stream_head active; /* with launches waiting */
        struct node *nodes;
        uint64_t gap_budget;     /* start records that may be missing: lost on the way, */
        uint64_t drop_budget;    /* ... or found nowhere to go */
        uint64_t deferred;       /* start records that wait for a choice, in this pass; of them */
        uint64_t deferred_since; /* ... those of kernels that started after sync_ns */
        uint64_t before_sync;    /* order of the last record of before sync_ns */
        uint32_t captures;       /* streams capturing */
        uint32_t maybe_captured; /* launches in other streams meanwhile */
        uint32_t misfits;        /* records in a row that fitted nowhere */
        uint64_t holes_lost;     /* launches given up, whose records will fit nowhere */
        struct thread threads[THREADS_MAX];
        uint32_t last_tid; /* of the newest launch */
        uint64_t mixed_ns; /* when threads took turns last; 0 never */
};

struct replay {
        struct launch_record record; /* what its kernels' records have in common */
};

struct graph_exec {
        UT_hash_handle hh;
        uint64_t handle;
        uint64_t graph;
        struct context *context; /* of the instantiation; NULL before */
        uint64_t position;       /* last launch seq before it */
        uint64_t enter_ns, return_ns;
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
        uint64_t time_ns; /* GPU clock */
        uint64_t gridid;
        uint64_t cpu_ns;
        uint64_t arrived_ns;
        uint64_t retry_ns; /* not before */
        uint64_t order;    /* of arrival */
        uint32_t kernel_id;
        uint32_t error_ns;
        uint16_t smid;
        bool converted;
        bool candidates; /* some launch could have been its */
        bool taken;      /* it has found its launch, and leaves the list */
        bool misfitted;  /* counted as one that fits nowhere */
};

struct held_list {
        struct held *items;
        size_t count, size;
};

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

        struct held_list starts; /* by grid id, once they have been tried */
        struct held_list ends;   /* in order of arrival */
        uint64_t records;        /* so far: the next one's order */
        uint64_t gap_order;      /* order of the first after the last gap */
        bool changed;            /* something a held record may have waited for */
        uint64_t retried_ns;
};

struct correlator {
        const struct correlator_ops *ops;
        void *data;
        struct intern *names;
        struct correlated_process *processes;
        struct solver *solver;
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

/* ---- window.c ---- */

struct context *context_get(struct correlated_process *p, uint32_t index);
struct context *context_free(struct context *c);
/* Launch at a place, NULL: a hole, or outside the window. */
struct launch *window_at(const struct context *c, uint64_t seq);
uint64_t window_end(const struct context *c); /* one past the last seq */
/* Put a launch in its place, when its function and times are known; -EEXIST taken, -ERANGE gone by,
 * -ENOMEM. */
int window_put(struct context *c, struct launch *l);
/* Can the call that left this hole have overlapped with l, which is near it? */
bool window_hole_overlaps(const struct context *c, uint64_t hole, const struct launch *l);
void window_trim(struct context *c);
/* A match of l is a choice between overlapping calls; and whether one was, near l. */
void window_choice(struct launch *l);
bool window_chosen(const struct launch *l);
/* The 32-bit order of entry, widened by what came before. */
uint64_t window_widen(const struct context *c, uint32_t seq);
void window_operation(struct context *c, const struct cpu_operation_event *ev, uint32_t definite,
                      uint32_t possible);
/* An operation tells which launches had been entered by then. */
void window_seen(struct context *c, const struct cpu_operation_event *ev);
/* Move on what is known to be complete; holes whose events were lost are given up. */
void window_known(struct context *c);
struct stream *stream_get(struct context *c, uint64_t handle, uint32_t tid);
void stream_queue(struct stream *s, struct launch *l);
void stream_unqueue(struct launch *l);
static inline uint64_t launch_return_ns(const struct launch *l)
{
        return l->record.cpu_return_ns;
}

/* ---- align.c ---- */

enum fit {
        FIT_LOW,        /* more launches came before than the grid id allows */
        FIT_HIGH,       /* fewer, by excess */
        FIT_RIGID,      /* it must have this id */
        FIT_SLACK,      /* it may have this id */
        FIT_UNANCHORED, /* nothing is known about ids here */
};

struct fitting {
        enum fit fit;
        uint64_t excess;   /* FIT_HIGH: by how many */
        uint64_t missing;  /* lower ids since the last known one that nobody is known to have */
        uint64_t distance; /* from the id it had if ids were taken in order of entry */
        bool hole;         /* an unknown launch could have the id as well */
        bool soft;         /* it rests on an id that was found after a loss, by order */
        bool foreign;      /* other things than overlapping launches make the slack */
};

/* Could this launch have this grid id? loose: launches without an id may have taken none. */
struct fitting align_fit(const struct context *c, const struct launch *l, uint64_t gridid,
                         uint64_t record_ns, bool loose);
/* Ids that can have been taken between two moments, near launch `position`: [ret_low, ret_high]. */
void align_between(const struct context *c, uint64_t position, uint64_t enter_ns,
                   uint64_t return_ns, uint64_t *ret_low, uint64_t *ret_high);

/* ---- solve.c ---- */

struct solver *solver_new(void); /* room to work in; NULL on no memory */
struct solver *solver_free(struct solver *s);
/*
 * Give the launches around l (which waits) the records in starts, sorted by id,
 * that can only be theirs; sets those records' taken. exclusive: the records are
 * of this context. Returns how many; ret_end: the first seq not looked at.
 */
size_t solve_around(struct context *c, const struct launch *l, struct held_list *starts,
                    bool exclusive, uint64_t *ret_end);

/* ---- records.c ---- */

/* It was proven that this start record is of this launch. */
void record_assign(const struct held *h, struct launch *l);

void records_put(struct correlated_process *p, const struct device_record *r);
void records_gap(struct correlated_process *p, uint64_t lost);
void records_match(struct correlated_process *p, bool last);
void records_done(struct correlated_process *p);
bool record_may_be(const struct held *h, const struct launch *l);

/* ---- graph.c ---- */

void graph_handle(struct correlated_process *p, const struct cpu_handle_event *ev);
void graph_capture(struct context *c, const struct cpu_operation_event *ev, bool begin);
/* A launch was made: what becomes of it when something is being captured? */
enum consumes graph_captures(struct context *c, struct stream *s);
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
/* It is in the window for its place only and makes no record. */
void launch_withdraw(struct launch *l);
void launch_schedule(struct launch *l, enum launch_list list);
/* What was launched, in one stream or (NULL) all, before enter_ns had ended at at_ns. */
void finish_synced(struct context *c, const struct stream *only, uint64_t enter_ns, uint64_t at_ns);
void finish_due(struct correlated_process *p);
/* Everything pending, of one context or (NULL) of all. */
void finish_all(struct correlated_process *p, const struct context *only);
