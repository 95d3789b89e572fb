/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Inside of the correlator; see the essay in correlator.c. Not for users of
 * correlator.h.
 *
 * device.c    the devices, their clocks, and the times of records
 * identity.c  functions and kernels: which kernel a launch's handle means
 * order.c     a context's launches in order of entry
 * stream.c    contexts, streams, and the queues of launches
 * ids.c       how many grid ids lie between two launches
 * records.c   device records, sorted into lanes
 * lane.c      the lanes
 * bind.c      whose a lane is
 * match.c     which launch a record's is
 * doubt.c     what to do after a loss
 * scattered.c records that do not tell their stream
 * shift.c     how a lane and a queue lie to each other after a loss
 * graph.c     graphs: captures, instantiation, whose a node is
 * finish.c    a launch from its start to its record
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uthash.h>

#include "correlate/correlator.h"
#include "util/time.h"

#define PENDING_MAX        40960  /* launches waiting, per process */
#define ENTERED_MAX        131072 /* places in the order behind a hole, per context */
#define HELD_MAX           49152  /* device records waiting, per process */
#define FUNCTIONS_MAX      65536  /* per process */
#define KERNELS_MAX        65536
#define NAMES_MAX          131072 /* new names one process may add to the string table */
#define CONTEXTS_MAX       256
#define SYNCS_MAX          1024
#define STREAMS_MAX        4096 /* per context */
#define THREADS_MAX        4096
#define LANES_MAX          8192
#define OPEN_MAX           64   /* calls under way at once in a queue */
#define EXECS_MAX          4096 /* graph execs, per process */
#define NODES_MAX          65536
#define REPLAYS_MAX        4096 /* graph launches outstanding, per exec */
#define UNBOUNDED          (1u << 24)
#define LOOKS_PER_TICK     (1u << 21) /* at pairs of a record and a launch */
#define INPUTS_MAX         4096       /* between two looks at what waits */
#define CLOCK_PATIENCE_NS  (2 * NSEC_PER_SEC)
#define RECORD_PATIENCE_NS (2 * NSEC_PER_SEC)
#define EVENT_LATENCY_NS   (20 * NSEC_PER_MSEC)  /* from a call's return to its event being read */
#define CHOICE_PATIENCE_NS (50 * NSEC_PER_MSEC)  /* for the record of a lower id */
#define DOUBT_PATIENCE_NS  (250 * NSEC_PER_MSEC) /* for proof, before a guess */
#define HORIZON_NS         (100 * NSEC_PER_MSEC)
#define HOLE_PATIENCE_NS   (2 * NSEC_PER_SEC) /* for a call that does not return */
#define SHORT_PATIENCE_NS  NSEC_PER_SEC       /* for a record that should be there already */
#define LONG_PATIENCE_NS   (5 * NSEC_PER_SEC)
#define RETURN_SLACK_NS    (20 * NSEC_PER_USEC) /* events come in order of return, nearly */
#define DEVICE_UNKNOWN     (~0u)

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
        bool may_nest; /* kernels of its image launch kernels */
        bool tagged;   /* its records say which queue */
        bool untagged; /* they do not */
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
        bool launched;         /* at least once */
        bool own;              /* the agent's */
        bool name_cut;         /* of the name only the beginning is known */
        bool listed;           /* its name is among those that were launched */
        bool unlisted;         /* it counts among launched functions without a name */
};

/* The name of a kernel that the CPU has launched. */
struct launched_name {
        UT_hash_handle hh;
        uint64_t name;
};

enum identity {
        IDENTITY_DIFFERS,
        IDENTITY_UNKNOWN,
        IDENTITY_EQUAL,
};

/* ---- launches ---- */

enum launch_state {
        STATE_ENTERED, /* behind a hole in the order of entry */
        STATE_WAITING, /* in its queues, no start record yet */
        STATE_RUNNING, /* started, waits for its end */
        STATE_READY,   /* complete, waits until the calls that overlap with it are known */
};

/* The queues a launch waits in. */
enum queue_of { QUEUE_STREAM, QUEUE_PROCESS, QUEUE_COUNT };

enum launch_list { LIST_NONE, LIST_SHORT, LIST_LONG, LIST_READY, LIST_COUNT };

struct stream;

struct launch {
        struct launch_record record;
        struct context *context;
        struct function *function;
        struct kernel *kernel;                     /* of the start record */
        struct stream *stream;                     /* while it waits or runs */
        struct launch *hash_next;                  /* in process->running */
        TAILQ_ENTRY(launch) in_queue[QUEUE_COUNT]; /* waiting; [QUEUE_STREAM] running, too */
        TAILQ_ENTRY(launch) in_laned[QUEUE_COUNT]; /* likewise, if laned */
        TAILQ_ENTRY(launch) in_list;               /* by deadline, or ready */
        TAILQ_ENTRY(launch) in_pending;
        uint64_t seq;
        uint64_t deadline_ns;
        uint64_t ended_by_ns; /* it had ended then; 0 not known */
        /* What had returned by the first had ended by the second, which was before its entry. */
        uint64_t idle_from_ns[QUEUE_COUNT], idle_ns[QUEUE_COUNT];
        uint64_t start_gpu_ns; /* GPU clock */
        uint64_t end_gpu_ns;   /* GPU clock, while its CPU time is not known; 0 none */
        uint32_t start_error_ns;
        uint32_t queue; /* of its start record, with tag */
        uint32_t hole;  /* launches missing in the order of entry before it */
        uint16_t tag;
        uint8_t state;
        uint8_t list;
        uint8_t ids;                 /* grid ids it takes: 0 or 1 */
        bool optional_id;            /* it may have gone into a graph and take none */
        bool unprobed;               /* known to make no start record */
        bool silent;                 /* not to be emitted: it has a place in the order only */
        bool laned[QUEUE_COUNT];     /* its record comes in the queue's lane, if it makes one */
        bool open[QUEUE_COUNT];      /* among a queue's open calls */
        bool swappable[QUEUE_COUNT]; /* another thread's call of the same kernel overlaps */
        bool outlasted;              /* one that was lost was entered before it returned */
        bool may_lack;               /* its record may have been lost */
        bool hashed;                 /* in process->running */
        bool process_queue;          /* matched by the order of the process */
        bool placed;                 /* no other launch of the process can be its record's ... */
        bool id_proven;              /* ... by its neighbours' ids, whatever was guessed before */
        bool match_ordered;
        bool match_inferred;
        bool has_start;
        bool start_known; /* record.gpu_start_ns is CPU time */
};

TAILQ_HEAD(launch_head, launch);

/* Launches in order of entry: of a stream, or of the process. */
struct queue {
        struct launch_head waiting;
        struct launch_head laned; /* of them, as of the process's laned_generation */
        size_t count;
        struct launch *open[OPEN_MAX]; /* calls the next one may overlap with */
        size_t open_count;
        uint64_t
                guess_ns; /* what was done with the launch that returned then was a guess; 0 none */
        uint64_t idle_from_ns, idle_ns; /* what had returned by the first had ended by the second */
        uint64_t reach_ns;              /* the latest return of those that do not wait any more */
        uint32_t hole;                  /* of the launch matched last */
        uint32_t owed; /* of the launches missing before it, records may still come */
        /* Since all was certain, if each record dropped and each launch passed over is counted: */
        bool tallied;
        uint32_t sure_gap, sure_hole; /* gap and hole then */
        int64_t tally;                /* records less launches */
        int64_t group_records; /* still to come for the launches at its head that may lack theirs */
        uint8_t of;            /* enum queue_of */
        bool closed;           /* no launch will come any more; its lane may become another's */
        bool may_lack;         /* launches may have lost their records */
        bool may_exceed;       /* records may be of launches that are not known */
};

struct stream_key {
        uint64_t handle;
        uint64_t tid; /* for the per-thread default stream, else 0 */
};

struct lane;

struct stream {
        UT_hash_handle hh;
        struct stream_key key;
        struct context *context;
        struct queue queue;
        struct launch_head running;
        struct lane *lane; /* NULL: not known */
        uint32_t launcher; /* the thread of its last launch; 0 none */
        TAILQ_ENTRY(stream) in_active;
        bool capturing;
        uint32_t captor;   /* the thread that captures */
        uint32_t captured; /* launches in the capture under way */
};

TAILQ_HEAD(stream_head, stream);

struct thread {
        UT_hash_handle hh;
        uint32_t tid;
        uint32_t captures; /* that it has begun */
        uint64_t last_seq;
        uint64_t last_ns; /* last return */
        uint32_t blurs;   /* of the context: it was not in a call that was lost before */
};

/* A place in the order behind a hole. */
struct entered {
        struct launch *launch; /* NULL: not seen */
};

/* A synchronise, until all launches entered before it are known. */
struct sync {
        STAILQ_ENTRY(sync) in_list;
        struct stream *stream; /* NULL: the context */
        uint64_t seq;          /* of the last launch before it */
        uint64_t enter_ns, return_ns;
};

/* Launches that took ids, in order of entry; circular, by number. */
struct id_history {
        uint64_t *enter_ns;
        uint64_t *reach_ns; /* latest return of this one and all before */
        size_t size;
        uint64_t count;       /* ever */
        uint64_t loosened_ns; /* an unknown number of ids may have been taken then */
};

struct context {
        UT_hash_handle hh;
        struct correlated_process *process;
        uint32_t index;
        uint32_t device; /* ordinal, DEVICE_UNKNOWN */
        uint64_t handle;
        uint64_t destroyed_ns; /* 0: it lives */
        bool known_from_birth;
        bool before_probes; /* it is known since before anything was probed */
        uint32_t last_bare; /* number of the last launch before there was an agent; 0: none */
        uint16_t tag;       /* its number on the GPU, after a reset the new one; 0 not known */

        bool sequenced;         /* next_seq means something */
        uint64_t next_seq;      /* all before it are known or given up */
        uint64_t last_seq;      /* highest seen */
        uint64_t first_seq;     /* of those missing before this one no record comes; 0 none */
        struct entered *behind; /* circular, by seq: those after next_seq */
        size_t behind_size;
        uint64_t known_until_ns;  /* all launches entered before this are known */
        uint64_t hole_ns;         /* since when next_seq is missing; 0 it is not */
        uint32_t hole;            /* launches missing: places given up */
        uint64_t holed_ns;        /* launches entered before are missing; 0 none are ... */
        uint64_t holed_end_ns;    /* ... and all of them had ended by then; 0 not known */
        uint32_t blurs;           /* times that calls were lost */
        uint32_t blurred_threads; /* that may still be in one, since the last time */
        uint64_t blurred_from_ns; /* entry of the first call after that */
        uint32_t outstanding;     /* places given up whose calls may be under way yet */
        uint64_t judged_until_ns; /* return of launches judged before all that overlap are known */
        bool streams_shared;      /* by threads that launch into them */
        struct thread *threads;
        struct id_history ids;
        STAILQ_HEAD(, sync) syncs;
        size_t sync_count;

        struct stream *streams;
        struct stream *last_stream;
        struct stream_head active; /* with launches waiting */
        uint32_t captures;         /* streams capturing */
        uint32_t maybe_captured;   /* launches in other streams meanwhile */
};

/* ---- device records ---- */

struct held {
        struct held *hash_next;    /* of the ends */
        TAILQ_ENTRY(held) in_list; /* of its lane, the ends, or the nodes */
        uint64_t time_ns;          /* GPU clock */
        uint64_t gridid;
        uint64_t cpu_ns; /* by the clock of the device, if converted */
        uint64_t arrived_ns;
        struct kernel *kernel;
        uint32_t kernel_id;
        uint32_t error_ns;
        uint32_t queue;  /* 0 not known */
        uint32_t gap;    /* records lost before it */
        uint32_t device; /* ordinal, DEVICE_UNKNOWN */
        uint32_t tick;   /* of the correlator, when it came */
        uint16_t tag;    /* number of its context in the process, 0 not known */
        uint16_t smid;
        uint8_t type; /* enum device_record_type */
        bool converted;
        bool unclocked; /* it waits for a clock */
};

TAILQ_HEAD(held_head, held);

/* A record that waits for proof: its id and the nearest that were proven then; 0 none. */
struct awaited {
        uint64_t id, lower, higher;
};

/* Start records of one stream; or, where records do not say, of a device of the process. */
struct lane {
        UT_hash_handle hh;
        uint64_t key;
        struct correlated_process *process;
        struct held_head records;
        size_t count;
        TAILQ_ENTRY(lane) in_busy; /* with records */
        struct stream *stream;     /* NULL: not known */
        uint32_t device;           /* of a lane of the process: ordinal, DEVICE_UNKNOWN */
        uint64_t last_id;          /* highest matched, of the launch entered at ... */
        uint64_t last_enter_ns, last_return_ns;
        uint64_t last_time_ns; /* GPU clock */
        uint64_t proof_ns;     /* the synchronise after which a proof was tried */
        uint64_t started_ns;   /* GPU clock; what was entered by then has started */
        uint32_t counted;      /* tick of the correlator when that was looked for */
        /* Of the match before, if nothing can lie between: its start at the latest, its return. */
        uint64_t before_start_ns, before_return_ns;
        uint32_t gap; /* of the record looked at last */
        uint16_t tag;
        uint8_t misfits;
        uint8_t low_bits; /* of its first record's queue */
        bool graph;       /* its records are of graph nodes */
        bool guessed;     /* its stream is not proven, perhaps not even its context */
        bool skipped;     /* QUEUE_PROCESS: ids were taken for others' on a guess */
        bool spent;       /* records were given away while its stream was a guess */
        size_t tried;     /* records and launches that waited when it was looked at last */
        struct awaited awaited;
};

TAILQ_HEAD(lane_head, lane);

/* ---- graphs ---- */

struct node_key {
        uint64_t gridid;
        uint64_t place; /* tag and queue */
};

struct node {
        UT_hash_handle hh;
        struct node_key key;
        struct graph_exec *exec;
        uint64_t last_replay; /* number of the replay it last started in */
        uint64_t sure;        /* ... for certain */
        bool certain;         /* it is of that exec */
        uint32_t epoch;       /* of the exec, then */
};

struct replay {
        struct launch_record record; /* what its kernels' records have in common */
        bool overlaps;               /* the call overlaps with that of a neighbour */
};

struct graph_exec {
        UT_hash_handle hh;
        uint64_t handle;
        uint64_t graph;
        struct context *context; /* of the instantiation; NULL before */
        uint64_t enter_ns;       /* of the instantiation; 0 not seen */
        uint64_t return_ns;      /* it was over then */
        TAILQ_ENTRY(graph_exec) in_unbounded;
        uint64_t id_low, id_high;          /* its nodes' ids lie between */
        uint64_t id_last;                  /* highest of a node that is certain; 0 none is */
        uint32_t kernels_min, kernels_max; /* of its kernel nodes, as far as is known */
        uint32_t nodes;                    /* seen so far */
        uint32_t hole;                     /* of the context, at the instantiation */
        bool destroyed;
        bool bounded;           /* id_high is final */
        bool lossy;             /* starts may have been lost since it was last idle */
        bool doubtful;          /* nodes said to be its, or others', may be the others', or its */
        struct replay *replays; /* circular: number n is at n % replays_size */
        size_t replays_size;
        uint64_t replays_first; /* number of the oldest kept; they count from 1 */
        uint64_t replays_count;
        uint64_t current;   /* replay whose kernels start now; 0 none yet */
        uint64_t synced;    /* replays up to here had ended ... */
        uint64_t synced_ns; /* ... at this time, by a call entered at ... */
        uint64_t synced_from_ns;
        uint64_t holed_ns;   /* launches before it may be missing */
        uint64_t sure;       /* the last replay that was certain */
        uint32_t synced_gap; /* ... and so many gaps had been seen */
        uint32_t epoch;      /* times that it was found idle after a loss */
};

TAILQ_HEAD(exec_head, graph_exec);

struct graph {
        UT_hash_handle hh;
        uint64_t handle;
        uint32_t kernels_min, kernels_max;
};

/* ---- processes ---- */

/* A launch whose id is proven. */
struct anchor {
        uint64_t id; /* 0 none */
        uint64_t enter_ns;
        uint64_t return_ns;
        uint32_t tid;
};

struct optional_id {
        uint64_t enter_ns;
        uint64_t return_ns;
        uint32_t ids; /* at most */
};

/* A device of the process. Its grids count from 1. */
struct device {
        struct correlated_device is;
        struct anchor anchor;
        struct anchor *proven; /* by id, circular; NULL: not asked for yet */
        uint64_t top_id;       /* highest matched, and what had taken ids when it was */
        uint64_t top_takers;
};

#define OPTIONAL_MAX 4096
#define PROVEN_MAX   4096
#define DEVICES_MAX  64

/* A number of a context on the GPU. */
struct tag {
        uint16_t index;             /* of the context; 0 not known */
        uint64_t first_ns, last_ns; /* its starts: the earliest and the latest, GPU clock */
};

struct correlated_process {
        UT_hash_handle hh;
        struct correlator *correlator;
        uint64_t key;
        struct ledger *ledger;
        void *user;
        bool has_agent;
        bool nothing_probed;  /* the agent has not told of a kernel with a start probe yet */
        uint64_t lost_placed; /* launches lost by the ledger whose places were found */
        struct device devices[DEVICES_MAX]; /* by ordinal */
        uint32_t device_count;              /* that the agent has told of */

        struct kernel *kernels_by_id;
        struct kernel *kernels_by_name;
        struct function *functions;
        struct launched_name *launched_names;
        uint64_t unlisted_count; /* functions that were launched and have no name */
        bool graphs_seen;        /* graphs launch kernels that nobody names */
        uint32_t kernel_id_max;
        uint64_t identity_generation;
        uint64_t names_added;

        struct context *contexts;
        struct context *last_context;
        struct graph_exec *execs;
        struct graph *graphs;
        struct node *nodes;
        struct exec_head unbounded;   /* execs with no launch after them proven yet */
        struct held_head node_starts; /* that wait */

        struct queue queue;           /* of all launches */
        uint64_t laned_generation;    /* of the identities when launches were sorted by lane */
        struct optional_id *optional; /* circular */
        uint64_t optional_count;      /* ever */

        struct lane *lanes;
        struct lane *last_lane;
        struct lane_head busy;
        bool rehome;                   /* the device of a context's number has become known */
        bool tagged, untagged;         /* a record has told its queue, has not */
        bool nameless;                 /* starts wait whose kernel the agent has not told of */
        uint64_t named_generation;     /* ... as of that generation of the identities */
        bool closing;                  /* nothing more will come */
        struct tag tags[CONTEXTS_MAX]; /* by number */
        uint32_t gap;
        uint64_t newest_ns; /* CPU time of the newest start, at the earliest */

        struct launch_head pending;
        size_t pending_count;
        size_t behind_count; /* of them, behind a hole in the order of entry */
        struct launch_head lists[LIST_COUNT];
        struct launch **running;
        size_t running_size, running_count;
        struct held **ends_table;
        size_t ends_size;
        struct held_head ends;
        size_t ends_count;
        size_t held_count;
        uint32_t inputs;
};

struct window;

struct correlator {
        const struct correlator_ops *ops;
        void *data;
        struct intern *names;
        struct correlated_process *processes;
        struct window *window; /* of shift.c */
        uint64_t looks;        /* at pairs of a record and a launch, since the last tick */
        uint64_t now_ns;
        uint32_t ticks;
};

/* So much waits that what may still be proven cannot be waited for. */
static inline bool process_pressed(const struct correlated_process *p)
{
        return p->pending_count > PENDING_MAX / 2 || p->held_count > HELD_MAX / 2;
}

static inline uint64_t launch_return_ns(const struct launch *l)
{
        return l->record.cpu_return_ns;
}

/* ---- device.c ---- */

void devices_set(struct correlated_process *p, const struct correlated_device *devices,
                 size_t count);
void devices_done(struct correlated_process *p);
/* NULL: no such ordinal. */
struct device *device_get(struct correlated_process *p, uint32_t ordinal);
/* Its ordinal, or DEVICE_UNKNOWN. */
uint32_t context_device(const struct context *c);
/* Certainly. */
bool same_device(const struct context *a, const struct context *b);
/* Its contexts are, or may be, on more than one. */
bool several_devices(const struct correlated_process *p);
/* Of the context with that number on the GPU, or DEVICE_UNKNOWN. */
uint32_t tag_device(struct correlated_process *p, uint16_t tag);
/* The number of the GPU, where it is known. */
void device_fill(const struct correlated_process *p, const struct context *c,
                 struct launch_record *r);
/* CPU time of a time of the device's clock; -ENODATA, or -EAGAIN: it may be known later. */
int device_time(struct correlated_process *p, uint32_t ordinal, uint64_t gpu_ns,
                uint64_t *ret_cpu_ns, uint32_t *ret_error_ns);
/* h is of that device, as far as is known: its CPU time. 0, or -EAGAIN: it may be known later. */
int record_convert(struct correlated_process *p, struct held *h, uint32_t device);
/* What the CPU time of h is if it is of this context; false: not known. */
bool record_time(const struct held *h, const struct context *c, uint64_t *ret_cpu_ns,
                 uint32_t *ret_error_ns);
/* Can h be of this context's device, by its time? */
bool device_possible(const struct held *h, const struct context *c);
/* Likewise, and nothing that is still to be learned can change it. */
bool device_certain(const struct held *h, const struct context *c);

/* ---- identity.c ---- */

struct function *function_get(struct correlated_process *p, uint64_t handle); /* NULL: no memory */
struct function *function_unref(struct function *f);
/* The kernel it means, if both are known by now. */
struct kernel *function_kernel(struct correlated_process *p, struct function *f);
/* The CPU launches it: its name is kept. f may be NULL. */
void function_launched(struct correlated_process *p, struct function *f);
/* Nothing but a kernel can have launched it: the CPU has launched no kernel of that name. */
bool kernel_is_nested(const struct correlated_process *p, const struct kernel *k);
enum identity function_identity(struct correlated_process *p, struct function *f,
                                const struct kernel *k);
struct kernel *kernel_find(struct correlated_process *p, uint32_t kernel_id);
bool kernel_same(const struct kernel *a, const struct kernel *b);
void identity_handle(struct correlated_process *p, const struct cpu_handle_event *ev);
void identity_kernel(struct correlated_process *p, const struct correlated_kernel *kernel);
void identity_done(struct correlated_process *p);
/* What the agent told of kernels; what handles mean stays. No launch or record may have one. */
void identity_forget_kernels(struct correlated_process *p);

/* ---- order.c ---- */

struct context *context_get(struct correlated_process *p, uint32_t index);  /* NULL: too many */
struct context *context_find(struct correlated_process *p, uint32_t index); /* NULL: none */
/* Its launches must be finished before. */
struct context *context_free(struct context *c);
struct stream *stream_get(struct context *c, uint64_t handle, uint32_t tid); /* NULL: too many */
/* That thread launches into it. */
void stream_launched(struct stream *s, uint32_t tid);
/* No more launches will go into it; its lane may become another's. */
void stream_destroyed(struct context *c, uint64_t handle);
void waiting_init(struct queue *q, enum queue_of of);
/* Which launches have their records in which lanes, if what tells has changed: all that wait. */
void waiting_sort(struct correlated_process *p);
/* Into its queues, as the newest. */
void launch_queue(struct launch *l);
/* Out of its queues, or of its stream's running ones. */
void launch_unqueue(struct launch *l);
void launch_close(struct launch *l);                        /* no more among the open calls */
struct thread *thread_get(struct context *c, uint32_t tid); /* NULL: too many */
/* A launch that was seen without an agent has this number. */
void order_bare(struct context *c, uint32_t seq);
/* Take the launch into the order of entry; when its turn comes launch_admit() is called. */
void order_launch(struct context *c, struct launch *l, uint32_t seq);
/* An operation tells that no launch was entered between the last known one and itself. */
void order_seen(struct context *c, const struct cpu_operation_event *ev);
/* A synchronise, of a stream or (NULL) the context: synced() when its turn comes. */
void order_sync(struct context *c, struct stream *s, const struct cpu_operation_event *ev);
void syncs_run(struct context *c, size_t too_many); /* that many more than are due */
void order_tick(struct context *c);
void order_close(struct context *c); /* what is missing will not come */
void order_leave(struct launch *l);  /* it is given up while it is behind a hole */
/* l is judged while calls may be under way that overlap with it: those are of its group. */
void order_judged(const struct launch *l);
/* Have other threads launched lately? One may be in a call that overlaps with l's. */
bool others_at_work(const struct context *c, const struct launch *l);
/* Can h be of a launch of the context that is missing? */
bool order_missing(const struct context *c, const struct held *h);
/* All launches of the context are known that h can be of. */
bool order_known(const struct context *c, const struct held *h);
/* Are all launches known that were entered by the time this record says, or should they be? */
bool launches_known(const struct correlated_process *p, const struct held *h);
/* May the launch that h is of still come: a call that was kept from returning? */
bool launches_due(const struct correlated_process *p, const struct held *h);
/* In correlator.c. */
void launch_admit(struct launch *l);
void synced(struct context *c, const struct sync *sync);

/* ---- ids.c ---- */

void ids_taken(struct context *c, const struct launch *l);
void ids_optional(struct correlated_process *p, uint64_t enter_ns, uint64_t return_ns,
                  uint32_t ids);
/* An unknown number may have been taken at this time. */
void ids_loosen(struct context *c, uint64_t at_ns);
/* l's id is proven. */
void ids_anchor(struct launch *l);
/* The launches with the nearest proven ids; NULL: none that is near. */
struct neighbours {
        const struct anchor *lower, *higher;
};
struct neighbours ids_neighbours(struct device *d, uint64_t id);
/* The ids right before and after it are proven. */
bool ids_enclosed(const struct neighbours *n);
enum id_verdict { ID_IMPOSSIBLE, ID_POSSIBLE, ID_PROVEN };
/* Does l have this id, by what is proven of others? Without (NULL) neighbours it tells less. */
enum id_verdict ids_verdict(const struct launch *l, uint64_t id, const struct neighbours *n);
void ids_done(struct context *c);

/* ---- records.c ---- */

void records_put(struct correlated_process *p, const struct device_record *r);
void records_gap(struct correlated_process *p, uint64_t lost);
void records_tick(struct correlated_process *p, bool last);
void records_done(struct correlated_process *p);
/* h is of a launch in that context: no id of the device can be much higher than its. */
void records_matched(const struct context *c, const struct held *h);
/* A context is gone, with its numbers. */
void tags_forget(struct correlated_process *p, const struct context *c);
/* It is nobody's. */
void record_drop(struct correlated_process *p, struct held *h);
/*
 * Its kernel and, by that device's clock, its CPU time; -EAGAIN: they may become known
 * soon, -ENOENT: they will not.
 */
int record_resolve(struct correlated_process *p, struct held *h, uint32_t device);
/* What starts tell that came before the agent's word on their kernels. */
void records_named(struct correlated_process *p);
/* h, out of all lists, is l's start: frees h. */
void record_take(struct correlated_process *p, struct held *h, struct launch *l);
static inline bool record_aged(const struct correlated_process *p, const struct held *h,
                               uint64_t ns)
{
        return p->closing || h->arrived_ns + ns <= p->correlator->now_ns;
}

/* ---- lane.c ---- */

/* The lane of a start record; NULL: too many. */
struct lane *lane_get(struct correlated_process *p, const struct held *h);
/* Of records that do not tell their stream. */
bool lane_of_process(const struct lane *lane);
/* The device of a record of the lane, as far as is known. */
uint32_t lane_device(const struct lane *lane, const struct held *h);
/* h joins the lane, whose it is then. */
void lane_add(struct lane *lane, struct held *h);
void lane_remove(struct lane *lane, struct held *h);
void lane_drop(struct lane *lane, struct held *h);
void lane_to_graph(struct lane *lane, struct held *h);
/* Records whose device has become known into its lane: before any that come later. */
void lanes_rehome(struct correlated_process *p);
/* It is nobody's. */
void lane_unbind(struct lane *lane);
/* Its stream is not known any more, nor ever was if it was guessed. */
void lane_release(struct lane *lane);
/* Is it time for another look at all that waits? */
bool lane_worth_trying(struct lane *lane, size_t launches, bool all);
/* Match what can be matched; all: look again at what could not be lately. */
void lane_run(struct lane *lane, bool all);
void lanes_run(struct correlated_process *p, bool all);
void lanes_done(struct correlated_process *p);

/*
 * One step with the first record of a lane: false when there is nothing to be done
 * now. capped: what is matched is not more than inferred.
 */
bool stream_step(struct lane *lane, struct held *h, bool all);    /* bind.c */
bool scattered_step(struct lane *lane, struct held *h, bool all); /* scattered.c */
bool pair_step(struct lane *lane, struct queue *q, struct held *h, bool capped,
               bool all); /* doubt.c */

/* ---- match.c ---- */

/* Could h be the start of l, which waits, as far as the two tell? */
bool record_fits(const struct held *h, const struct launch *l);
/* Could h be of this context, by its number? */
bool match_tag(const struct held *h, const struct context *c);
/* The context, which goes by another number, could have got this one in a reset since. */
bool tag_may_follow(const struct context *c, uint16_t tag);
/* It could have got a later number since this one. */
bool tag_followed(const struct context *c, uint16_t tag);
/* 0, 1, or 2 for more. */
size_t streams_waiting(const struct correlated_process *p);
/* The first, the next of the queue's launches whose records come in the lane. */
struct launch *lane_first(const struct lane *lane, const struct queue *q);
struct launch *lane_next(const struct lane *lane, const struct queue *q, const struct launch *l);
/* Had all that was entered before the queue's last synchronise ended when h started? */
bool match_after_sync(const struct queue *q, const struct held *h);
/* Launches of the queue that h could be of may have been taken for others', or dropped. */
bool match_spoiled(const struct queue *q, const struct held *h);
/* The launch whose h is, if nothing was lost; NULL: none fits (hole: before a hole). */
struct launch *match_front(const struct lane *lane, const struct queue *q, const struct held *h,
                           bool *ret_hole);
bool match_hidden(const struct held *h, const struct launch *l);
/* h is nobody's, by its id. */
bool match_foreign(const struct lane *lane, const struct queue *q, const struct held *h);
/* h is l's; guess: by a guess. h is gone then, l may be. */
void match_launch(struct lane *lane, struct queue *q, struct held *h, struct launch *l, bool guess);

/* ---- doubt.c ---- */

struct lost {
        uint32_t lack, exceed; /* as for shifts_find() */
};
struct shifts;
/* What may have been lost between the last match and what is next. */
struct lost doubt_lost(const struct lane *lane, const struct queue *q, const struct held *h);
/* This is the way they lie to each other: go on from there; or perhaps it is. */
bool doubt_settle(struct lane *lane, struct queue *q, const struct shifts *s);
bool doubt_guess(struct lane *lane, struct queue *q, struct shifts *s);

/* ---- scattered.c ---- */

/* The first launch that fits, whatever lies between. */
bool scattered_any(struct lane *lane, struct queue *q, struct held *h);

/* ---- shift.c ---- */

struct shifts {
        uint32_t count;  /* 0, 1, or 2 for several */
        int64_t shift;   /* the largest one: record i is of launch i + shift */
        int64_t records; /* that were looked at */
        bool pairs;      /* with it, some record has a launch */
        bool ends;       /* it explains one side up to its next gap or hole */
        bool sure;       /* a single one is proof ... */
        bool open;       /* ... of the launches', but records of missing ones may be among theirs */
};
struct window *window_new(void);
struct window *window_free(struct window *w);
/*
 * Ways in which the lane's records can be of the queue's launches, from the first
 * of both on; lack: launches that may have lost their records, exceed: records
 * that may be of unknown launches, at most.
 */
struct shifts shifts_find(const struct lane *lane, const struct queue *q, uint32_t lack,
                          uint32_t exceed);
/* A way in which the first few of the lane's records can be, when there is none for all. */
struct shifts shifts_guess(const struct lane *lane, const struct queue *q);

/* ---- graph.c ---- */

void graph_handle(struct correlated_process *p, const struct cpu_handle_event *ev);
void graph_capture(struct context *c, const struct cpu_operation_event *ev, bool begin);
/* A launch was made: how many ids does it take, when something is being captured? */
void graph_captures(struct context *c, struct stream *s, uint32_t tid, uint32_t *ret_min,
                    uint32_t *ret_max);
void graph_instantiate(struct context *c, const struct cpu_operation_event *ev);
void graph_launch(struct context *c, const struct cpu_launch_event *ev);
/* Could h be of a graph's node? */
bool graph_may_be(struct correlated_process *p, const struct held *h);
/* h is a node's start that was seen before. */
bool graph_known(struct correlated_process *p, const struct held *h);
/* Is its id lower than those of launches that were entered no earlier than l? */
bool graph_passed(const struct correlated_process *p, const struct held *h, const struct launch *l);
/* h is a graph node's start; it waits if need be until its exec is known. */
void graph_start(struct correlated_process *p, struct held *h);
/* Ids that instantiations took between two times, at least and at most. */
void graph_ids(const struct correlated_process *p, uint64_t from_ns, uint64_t to_ns,
               uint64_t *ret_min, uint64_t *ret_max);
/* l's id is proven: it bounds those of nodes. */
void graph_anchor(const struct launch *l, uint64_t id);
/* All that was launched in the context before enter_ns had ended at at_ns. */
void graph_synced(struct context *c, uint64_t enter_ns, uint64_t at_ns);
void graph_gap(struct correlated_process *p);
/* Launches entered before at_ns are missing. */
void graph_hole(struct context *c, uint64_t at_ns);
void graph_tick(struct correlated_process *p);
void graph_forget(struct context *c);
void graph_done(struct correlated_process *p);

/* ---- finish.c ---- */

struct launch *launch_new(struct context *c);
/* All calls that overlap with this one are known. */
bool launch_overlaps_known(const struct launch *l);
void launch_started(struct launch *l, const struct held *h);
void launch_ended(struct launch *l, const struct held *h);
/* Could h be the end of l, which runs, as far as the two tell? */
bool end_fits(const struct held *h, const struct launch *l);
struct launch *launch_running(struct correlated_process *p, const struct held *h);
/* Nothing more will be learned: emit what there is, if it is to be, and free it. */
void launch_finish(struct launch *l);
/* Likewise, though its record may come. */
void launch_abandon(struct launch *l);
void launch_schedule(struct launch *l, enum launch_list list);
/* What was launched, in one stream or (NULL) all, before enter_ns had ended at at_ns. */
void finish_synced(struct context *c, struct stream *only, uint64_t enter_ns, uint64_t at_ns);
void finish_due(struct correlated_process *p);
/* Everything pending, of one context or (NULL) of all. */
void finish_all(struct correlated_process *p, const struct context *only);
