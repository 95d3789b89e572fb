/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The daemon's insides, shared by the files of daemon/ that make up struct gpuobsd. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "gpuobsd.h"
#include "observed.h"

struct agent_server;
struct agent_server_ops;
struct api_backend;
struct api_server;
struct correlator;
struct correlator_ops;
struct cpu_probes;
struct cpu_probes_ops;
struct device_object;
struct driver_probes;
struct driver_thread;
struct gpu_clocks;
struct gpu_memory;
struct gpu_switches;
struct group_slices;
struct intern;
struct settings_source;
struct nvml;
struct store;
struct trace;

/* Records gathered in one turn of the loop before they go to the store and to subscribers. */
#define BATCH_RECORDS 1024

struct gpuobsd {
        uv_loop_t *loop;
        const struct settings_source *source;
        struct config *config;
        bool stopping;
        uint64_t started_ns;

        struct intern *names;
        struct store *store;
        struct cpu_probes *probes;
        struct driver_probes *driver_probes; /* NULL: calls of the driver are not seen */
        uint64_t driver_calls_lost;          /* already in the ledger */
        int driver_calls_error;              /* why they are not; 0 not wanted */
        struct correlator *correlator;
        struct device_object *device_object; /* NULL: no agent is served */
        char device_error[256];              /* why, when it could not be loaded */
        int blob_fd;
        uint64_t blob_bytes;
        struct driver_thread *driver; /* asks the driver: asking.h */
        struct gpu_memory *gpu_memory;
        struct gpu_clocks *clocks;
        struct gpu_switches *switches;
        struct held *held;   /* launches not stored yet; NULL: no context switches are traced */
        struct nvml *nvml;   /* NULL: not wanted */
        bool silence_said;   /* of the driver, in the log */
        struct trace *trace; /* NULL: none is kept */
        struct api_server *api;
        struct agent_server *agents;
        struct observed_table observed;
        struct managed *managed; /* memory */
        struct managed_decisions *decisions;
        struct policies *policies;
        struct group_slices *group_slices;
        struct earlier_groups *earlier_groups; /* of channels, from before the daemon */
        struct programs *programs;             /* device programs that came by the API */

        struct launch_record batch[BATCH_RECORDS];
        void *batch_owner[BATCH_RECORDS]; /* struct observed */
        size_t batch_count;
        uint64_t next_launch_id;
        uint64_t events_until_ns; /* then is time for other things than events and launches */
        uint64_t seen_ns;         /* all events and launches until then have been looked for */
        uint32_t late_turns;      /* one after the other, at whose end more events waited */
        bool events_late;         /* it has come in this turn */
        size_t launches_before;   /* the event at hand, passed on so far, from its process's map */
        size_t records_before;    /* likewise, from its process's ring */
        uint64_t unattributed_seen[8]; /* kernel losses already in the ledger, by enum cpu_loss */

        uv_poll_t answers;       /* of the driver */
        uv_poll_t mapped_poll;   /* a new copy of libcuda was mapped */
        uv_timer_t ring_timer;   /* rings: fast while there is work, slow when idle */
        uv_idle_t ring_idle;     /* ... and again after clients while there is more */
        uv_timer_t slow_timer;   /* clocks, ledgers, watchdog */
        uv_timer_t switch_timer; /* context switches of the GPUs */
        uv_signal_t signals[3];
        uint64_t ring_interval_ms;
        uint64_t slow_turns;
        bool handles_open, answers_polled;
};

/* ---- flow.c: events in, records out ---- */

extern const struct cpu_probes_ops flow_probe_ops;      /* data: struct gpuobsd */
extern const struct correlator_ops flow_correlator_ops; /* data: struct gpuobsd */

/* The process, made known everywhere when new; NULL on no memory. */
struct observed *flow_process(struct gpuobsd *d, pid_t pid);
/*
 * Of a pid as the kernel and the driver have it, seen some time ago: a live one, or the
 * last that had it. NULL: nobody's, as 0 is and what the driver says instead of a pid.
 */
struct observed *flow_process_named(struct gpuobsd *d, uint32_t pid);

/* Read a bounded part of every ring and pass on what came out. */
enum flow_work {
        FLOW_IDLE,
        FLOW_SOME,
        FLOW_MORE, /* a ring was not emptied: come back as soon as clients have had their turn */
};
enum flow_work flow_turn(struct gpuobsd *d);

/* Take in all that waits now; what comes meanwhile may stay. */
void flow_catch_up(struct gpuobsd *d);

/* The process is over: its last records, then out. */
void flow_process_ended(struct gpuobsd *d, struct observed *o);
/*
 * Its agent leaves: what it recorded is finished as soon as all that was called before has
 * been taken in, and the process goes on.
 */
void flow_agent_left(struct observed *o);

/* Launches to the database, and one that is lost. As held_put_fn and held_lose_fn: daemon,
 * observed. */
size_t flow_store(void *daemon, const struct launch_record *records, void *const *owners, size_t n);
void flow_lose(void *daemon, void *owner);

/* From now on launches wait for the context switches of their wait (held.h). 0 or -ENOMEM. */
int flow_hold(struct gpuobsd *d);

/* Give the store and the subscribers what is in the batch. */
void flow_flush(struct gpuobsd *d);

/* Bring the ledgers up to date with the store and the kernel's counters. */
void flow_settle(struct gpuobsd *d);

/* Once a second: settle ledgers with the store and the kernel's counters, find dead processes. */
void flow_second(struct gpuobsd *d);

/* ---- agents.c ---- */

extern const struct agent_server_ops agents_ops; /* data: struct gpuobsd */

/* Load and compile the device program; failure leaves agents refused, with the reason kept. */
void agents_load_program(struct gpuobsd *d);

/* ---- backend.c ---- */

extern const struct api_backend backend_ops; /* data: struct gpuobsd */
